#include "opal/mca/btl/dgram/transport_ofi.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "opal/mca/btl/dgram/ofi_errors.hpp"
#include "opal/mca/btl/dgram/ofi_handles.hpp"
#include "opal/mca/btl/dgram/ofi_offers.hpp"

namespace ft::dgram {

namespace {

constexpr std::size_t most_sends = 256;
/// Completions looked at in one call, and how often in one pass.
constexpr std::size_t at_once = 16;
constexpr int rounds_at_once = 4;

using Completions = std::array<fi_cq_msg_entry, at_once>;

class OfiChannel;

/// What the provider keeps with one operation; the context of libfabric comes first.
struct Operation {
    fi_context2 context{};
    std::byte *room = nullptr;
    OfiChannel *channel = nullptr; ///< of a send; nullptr once that is gone
};

/// The whole endpoint, used by the transport and its channels.
class OfiTransport final : public Transport {
  public:
    ~OfiTransport() override
    {
        endpoint_.reset(); // before what is bound to it
    }

    /// \param packet bytes of the longest datagram that the network carries in one packet
    bool open(const fi_info &info, const OfiSettings &settings, std::size_t packet,
              std::string &why);

    [[nodiscard]] const std::string &provider() const noexcept override { return provider_; }
    [[nodiscard]] const Address &address() const noexcept override { return address_; }
    [[nodiscard]] std::size_t largest() const noexcept override { return largest_; }
    [[nodiscard]] std::size_t receive_room() const noexcept override
    {
        return receives_.size() * largest_;
    }
    [[nodiscard]] const TransportCounters &counters() const noexcept override { return counters_; }
    [[nodiscard]] const std::string &trouble() const noexcept override { return receive_trouble_; }
    [[nodiscard]] std::unique_ptr<Channel> connect(const Address &peer,
                                                   std::string &why) noexcept override;
    int receive(Sink &sink) noexcept override;
    void tend() noexcept override;

    SendResult send(OfiChannel &channel, const Outgoing &datagram) noexcept;
    /// Takes back the rooms of what has left.
    void reap() noexcept;
    void forget(const OfiChannel &channel, fi_addr_t peer) noexcept;

  private:
    /// To be held around each call into the domain and what is in it. Not while datagrams are
    /// handed on: whoever takes one may send.
    [[nodiscard]] std::unique_lock<std::mutex> turn()
    {
        return single_calls_ ? std::unique_lock(lock_) : std::unique_lock<std::mutex>();
    }
    ssize_t read(fid_cq &queue, Completions &done)
    {
        const auto alone = turn();
        return fi_cq_read(&queue, done.data(), done.size());
    }
    ssize_t read_error(fid_cq &queue, fi_cq_err_entry &error)
    {
        const auto alone = turn();
        return fi_cq_readerr(&queue, &error, 0);
    }
    bool post(Operation &operation) noexcept;
    bool publish_address(std::string &why);
    bool reap_error() noexcept;
    void receive_error() noexcept;

    Info info_;
    Handle<fid_fabric> fabric_;
    Handle<fid_domain> domain_;
    Handle<fid_av> peers_;
    Handle<fid_cq> sent_;
    Handle<fid_cq> received_;
    Memory send_memory_;
    Memory receive_memory_;
    Handle<fid_ep> endpoint_; ///< closed first
    std::vector<Operation> sends_;
    std::vector<Operation *> idle_;
    std::vector<Operation> receives_;
    std::vector<Operation *> unposted_;
    std::vector<std::byte> inject_;
    std::string provider_;
    Address address_;
    std::size_t largest_ = 0;
    std::size_t prefix_ = 0;
    bool single_calls_ = false; ///< the provider has no locks of its own
    std::mutex lock_;
    std::string trouble_;         ///< of the endpoint: nothing goes any more
    std::string receive_trouble_; ///< nothing comes any more; of who receives
    TransportCounters counters_;
};

class OfiChannel final : public Channel {
  public:
    OfiChannel(OfiTransport &transport, fi_addr_t peer) noexcept
        : transport_(transport), peer_(peer)
    {
    }
    OfiChannel(const OfiChannel &) = delete;
    OfiChannel &operator=(const OfiChannel &) = delete;
    ~OfiChannel() override { transport_.forget(*this, peer_); }

    SendResult send(std::span<const Outgoing> datagrams, std::size_t &taken) noexcept override
    {
        for (taken = 0; taken < datagrams.size(); ++taken) {
            const SendResult result = transport_.send(*this, datagrams[taken]);
            if (result != SendResult::ok) {
                return result;
            }
        }
        return SendResult::ok;
    }
    [[nodiscard]] std::string trouble() const override { return trouble_; }
    [[nodiscard]] fi_addr_t peer() const noexcept { return peer_; }
    [[nodiscard]] bool broken() const noexcept { return !trouble_.empty(); }
    void break_down(const std::string &why) { trouble_ = why; }

  private:
    OfiTransport &transport_;
    fi_addr_t peer_;
    std::string trouble_;
};

bool OfiTransport::open(const fi_info &info, const OfiSettings &settings, std::size_t packet,
                        std::string &why)
{
    info_.reset(fi_dupinfo(&info));
    if (info_ == nullptr) {
        why = said("fi_dupinfo", FI_ENOMEM);
        return false;
    }
    provider_ = ofi_prefix + provider_of(*info_);
    single_calls_ = wants_single_calls(*info_);
    prefix_ = (info_->mode & FI_MSG_PREFIX) != 0 ? info_->ep_attr->msg_prefix_size : 0;
    largest_ = info_->ep_attr->max_msg_size - std::min(info_->ep_attr->max_msg_size, prefix_);
    largest_ = std::min({largest_, most_datagram_bytes, packet});
    if (settings.largest != 0) {
        largest_ = std::min<std::size_t>(settings.largest, largest_);
    }
    const auto opened = [&](const char *call, long rc, auto &handle, auto *raw) {
        handle.reset(raw);
        if (rc != 0) {
            why = said(call, rc);
        }
        return rc == 0;
    };
    fid_fabric *fabric = nullptr;
    if (long rc = fi_fabric(info_->fabric_attr, &fabric, nullptr);
        !opened("fi_fabric", rc, fabric_, fabric)) {
        return false;
    }
    fid_domain *domain = nullptr;
    if (long rc = fi_domain(fabric_.get(), info_.get(), &domain, nullptr);
        !opened("fi_domain", rc, domain_, domain)) {
        return false;
    }
    fi_av_attr av{};
    av.type = FI_AV_UNSPEC;
    fid_av *peers = nullptr;
    if (long rc = fi_av_open(domain_.get(), &av, &peers, nullptr);
        !opened("fi_av_open", rc, peers_, peers)) {
        return false;
    }
    const std::size_t room = prefix_ + largest_;
    receives_.resize(receives_for(settings.receive_buffer, room, info_->rx_attr->size));
    sends_.resize(std::clamp<std::size_t>(info_->tx_attr->size, 1, most_sends));
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_MSG;
    cq.wait_obj = FI_WAIT_NONE;
    cq.size = sends_.size();
    fid_cq *sent = nullptr;
    if (long rc = fi_cq_open(domain_.get(), &cq, &sent, nullptr);
        !opened("fi_cq_open", rc, sent_, sent)) {
        return false;
    }
    cq.size = receives_.size();
    fid_cq *received = nullptr;
    if (long rc = fi_cq_open(domain_.get(), &cq, &received, nullptr);
        !opened("fi_cq_open", rc, received_, received)) {
        return false;
    }
    fid_ep *endpoint = nullptr;
    if (long rc = fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr);
        !opened("fi_endpoint", rc, endpoint_, endpoint)) {
        return false;
    }
    const bool registered = (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    const auto passed = [&](const char *call, long rc) {
        if (rc != 0) {
            why = said(call, rc);
        }
        return rc == 0;
    };
    if (!passed("fi_ep_bind", fi_ep_bind(endpoint_.get(), &peers_->fid, 0)) ||
        !passed("fi_ep_bind", fi_ep_bind(endpoint_.get(), &sent_->fid, FI_TRANSMIT)) ||
        !passed("fi_ep_bind", fi_ep_bind(endpoint_.get(), &received_->fid, FI_RECV)) ||
        !passed("fi_enable", fi_enable(endpoint_.get())) ||
        !passed("fi_mr_reg",
                send_memory_.get(domain_.get(), sends_.size() * room, FI_SEND, registered)) ||
        !passed("fi_mr_reg",
                receive_memory_.get(domain_.get(), receives_.size() * room, FI_RECV, registered)) ||
        !publish_address(why)) {
        return false;
    }
    inject_.resize(std::min<std::size_t>(info_->tx_attr->inject_size, room));
    idle_.reserve(sends_.size());
    for (std::size_t i = 0; i < sends_.size(); ++i) {
        sends_[i].room = send_memory_.bytes.data() + i * room;
        idle_.push_back(&sends_[i]);
    }
    unposted_.reserve(receives_.size());
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        receives_[i].room = receive_memory_.bytes.data() + i * room;
        if (!post(receives_[i])) {
            unposted_.push_back(&receives_[i]);
        }
    }
    return true;
}

bool OfiTransport::publish_address(std::string &why)
{
    std::size_t length = Address::most_bytes;
    const int rc = fi_getname(&endpoint_->fid, address_.bytes.data(), &length);
    if (rc != 0 || length > Address::most_bytes) {
        why = rc != 0 ? said("fi_getname", rc) : "its addresses are too long";
        return false;
    }
    address_.length = static_cast<std::uint8_t>(length);
    return true;
}

std::unique_ptr<Channel> OfiTransport::connect(const Address &peer, std::string &why) noexcept
try {
    if (peer.length != address_.length) {
        why = "the peer's address is of another kind";
        return nullptr;
    }
    fi_addr_t name = FI_ADDR_UNSPEC;
    int inserted = 0;
    {
        const auto alone = turn();
        inserted = fi_av_insert(peers_.get(), peer.bytes.data(), 1, &name, 0, nullptr);
    }
    if (inserted != 1) {
        why = said("fi_av_insert", inserted < 0 ? inserted : FI_EADDRNOTAVAIL);
        return nullptr;
    }
    return std::make_unique<OfiChannel>(*this, name);
} catch (...) {
    return nullptr;
}

void OfiTransport::forget(const OfiChannel &channel, fi_addr_t peer) noexcept
{
    for (Operation &operation : sends_) {
        if (operation.channel == &channel) {
            operation.channel = nullptr;
        }
    }
    const auto alone = turn();
    static_cast<void>(fi_av_remove(peers_.get(), &peer, 1, 0));
}

SendResult OfiTransport::send(OfiChannel &channel, const Outgoing &datagram) noexcept
{
    if (!trouble_.empty() && !channel.broken()) {
        channel.break_down(trouble_);
    }
    if (channel.broken()) {
        return SendResult::broken;
    }
    const std::size_t bytes = datagram.bytes();
    if (bytes > largest_) {
        return SendResult::too_large;
    }
    const bool small = prefix_ + bytes <= inject_.size();
    if (!small && idle_.empty()) {
        reap();
        if (idle_.empty()) {
            return SendResult::full;
        }
    }
    std::byte *room = small ? inject_.data() : idle_.back()->room;
    std::byte *end = room + prefix_;
    for (const iovec &piece : datagram.pieces) {
        if (piece.iov_len != 0) {
            std::memcpy(end, piece.iov_base, piece.iov_len);
            end += piece.iov_len;
        }
    }
    long rc = 0;
    if (small) {
        const auto alone = turn();
        rc = fi_inject(endpoint_.get(), room, prefix_ + bytes, channel.peer());
    } else {
        Operation &operation = *idle_.back();
        operation.channel = &channel;
        const auto alone = turn();
        rc = fi_send(endpoint_.get(), room, prefix_ + bytes, send_memory_.descriptor(),
                     channel.peer(), &operation.context);
        if (rc == 0) {
            idle_.pop_back();
        } else {
            operation.channel = nullptr;
        }
    }
    ++counters_.calls_send;
    if (rc == 0) {
        ++counters_.datagrams_sent;
        return SendResult::ok;
    }
    const auto error = static_cast<int>(-rc);
    if (error == FI_EAGAIN || error == FI_ENOBUFS || error == FI_ENOMEM) {
        reap();
        return SendResult::full;
    }
    if (error == FI_EMSGSIZE) {
        return SendResult::too_large;
    }
    if (lost_by_network(error)) {
        ++counters_.refused;
        return SendResult::ok;
    }
    channel.break_down(said(small ? "fi_inject" : "fi_send", error));
    return SendResult::broken;
}

void OfiTransport::reap() noexcept
{
    Completions done;
    for (;;) {
        const ssize_t count = read(*sent_, done);
        if (count == -FI_EAVAIL && reap_error()) {
            continue;
        }
        if (count <= 0) {
            if (count != -FI_EAGAIN && count != -FI_EAVAIL && count != 0 && trouble_.empty()) {
                trouble_ = said("fi_cq_read of sends", count);
            }
            return;
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            auto *operation = static_cast<Operation *>(done[i].op_context);
            operation->channel = nullptr;
            idle_.push_back(operation);
        }
    }
}

/// A send that failed: lost where networks lose, else the end of that way.
/// \return whether there may be more to look at
bool OfiTransport::reap_error() noexcept
{
    fi_cq_err_entry error{};
    if (const ssize_t rc = read_error(*sent_, error); rc <= 0) {
        if (rc != 0 && rc != -FI_EAGAIN && trouble_.empty()) {
            trouble_ = said("fi_cq_readerr of sends", rc);
        }
        return false;
    }
    ++counters_.refused;
    auto *operation = static_cast<Operation *>(error.op_context);
    if (operation == nullptr) {
        return true;
    }
    if (operation->channel != nullptr && !lost_by_network(error.err) && error.err != FI_ECANCELED) {
        operation->channel->break_down(said("completion of fi_send", error.err));
    }
    operation->channel = nullptr;
    idle_.push_back(operation);
    return true;
}

void OfiTransport::tend() noexcept
{
    // Where progress is manual the provider sends what waits with it only while it is asked, and
    // what failed would not be known before every room is taken.
    if (idle_.size() != sends_.size()) {
        reap();
    }
}

bool OfiTransport::post(Operation &operation) noexcept
{
    const auto alone = turn();
    return fi_recv(endpoint_.get(), operation.room, prefix_ + largest_,
                   receive_memory_.descriptor(), FI_ADDR_UNSPEC, &operation.context) == 0;
}

int OfiTransport::receive(Sink &sink) noexcept
{
    int datagrams = 0;
    Completions done;
    for (int round = 0; round < rounds_at_once; ++round) {
        const ssize_t count = read(*received_, done);
        if (count == -FI_EAVAIL) {
            receive_error();
            continue;
        }
        if (count <= 0) {
            if (count != -FI_EAGAIN && count != 0 && receive_trouble_.empty()) {
                receive_trouble_ = said("fi_cq_read of receives", count);
            }
            break;
        }
        ++counters_.calls_receive;
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            auto *operation = static_cast<Operation *>(done[i].op_context);
            if (done[i].len >= prefix_) {
                sink.take({operation->room + prefix_, done[i].len - prefix_});
                ++counters_.datagrams_received;
                ++datagrams;
            }
            if (!post(*operation)) {
                unposted_.push_back(operation);
            }
        }
        if (static_cast<std::size_t>(count) < at_once) {
            break;
        }
    }
    while (!unposted_.empty() && post(*unposted_.back())) {
        unposted_.pop_back();
    }
    return datagrams;
}

void OfiTransport::receive_error() noexcept
{
    fi_cq_err_entry error{};
    if (const ssize_t rc = read_error(*received_, error); rc <= 0) {
        if (rc != 0 && rc != -FI_EAGAIN && receive_trouble_.empty()) {
            receive_trouble_ = said("fi_cq_readerr of receives", rc);
        }
        return;
    }
    switch (fate_of_receive(error.err)) {
    case ReceiveFate::truncated:
        ++counters_.truncated;
        break;
    case ReceiveFate::lost:
        ++counters_.refused;
        break;
    case ReceiveFate::broken:
        if (receive_trouble_.empty()) {
            receive_trouble_ = said("completion of fi_recv", error.err);
        }
        return; // what is posted on a broken endpoint would only fail again
    }
    if (error.op_context != nullptr) {
        unposted_.push_back(static_cast<Operation *>(error.op_context));
    }
}

} // namespace

std::vector<Opened> open_ofi(const std::vector<Interface> &interfaces, const OfiSettings &settings,
                             std::string &why) noexcept
try {
    std::vector<Opened> all;
    why.clear();
    const auto add = [&](const fi_info &info, const Interface &interface) {
        auto transport = std::make_unique<OfiTransport>();
        std::string its;
        if (transport->open(info, settings, packet_of(info, interface), its)) {
            all.push_back({interface, std::move(transport)});
        } else {
            why += (why.empty() ? "" : "; ") + interface.name + ": " + its;
        }
    };
    std::string provider = settings.provider;
    if (provider.empty()) {
        // Not the first that has addresses of IP.
        const std::vector<std::string> known = ofi_providers();
        provider = known.empty() ? "" : known.front();
    }
    int rc = 0;
    for (const Interface &interface : interfaces) {
        const Info list = offers(provider, &interface.address, rc);
        // verbs answers with its first adapters, whatever address and kind of address it is asked
        // for: each of the interfaces would get the same one.
        const fi_info *info = list.get();
        while (info != nullptr && !is_of_ip(*info)) {
            info = info->next;
        }
        if (info != nullptr) {
            add(*info, interface);
        }
    }
    if (!all.empty() || !why.empty()) {
        return all;
    }
    // Not by the addresses of IP: every domain once.
    const Info list = offers(provider, nullptr, rc);
    if (list == nullptr) {
        why = said("fi_getinfo", rc);
        return all;
    }
    std::vector<std::string> domains;
    for (const fi_info *info = list.get(); info != nullptr; info = info->next) {
        if (is_of_ip(*info)) {
            why = "it has no endpoint at the IP addresses that are to be used";
            continue;
        }
        Interface place;
        place.name = info->domain_attr->name;
        if (std::find(domains.begin(), domains.end(), place.name) == domains.end()) {
            domains.push_back(place.name);
            add(*info, place);
        }
    }
    return all;
} catch (...) {
    return {};
}

} // namespace ft::dgram
