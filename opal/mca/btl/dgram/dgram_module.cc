#include "opal/mca/btl/dgram/dgram.hpp"

#include <cinttypes>
#include <utility>

#include "opal/mca/btl/base/entry_points.hpp"
#include "opal/mca/btl/base/receivers.hpp"
#include "opal/mca/clock.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/mca/unreliable.hpp"

namespace ft::dgram {

namespace {

constexpr std::size_t small_bytes = btl::FragmentPools<Fragment>::small_bytes;
/// A clock is read, and sizes and sends are looked after, every so many calls of progress.
constexpr unsigned passes_per_look = 32;
constexpr base::Duration look_interval = base::Duration::from_ms(10);
/// A channel rests after nothing was sent by it for one to two of these.
constexpr base::Duration rest_interval = base::Duration::from_s(2);

/// For the next fragment that goes in parts, or round of a search for the size. Who receives them
/// knows them by this and by the process, and several modules of it may send there.
std::uint32_t next_number() noexcept
{
    static std::atomic<std::uint32_t> number{0};
    return number.fetch_add(1, std::memory_order_relaxed);
}

static_assert(offsetof(Fragment, front) + whole_bytes == sizeof(Fragment),
              "header and bytes of a fragment lie in one piece");

} // namespace

Module::Module(Interface network, std::unique_ptr<Transport> transport, const Settings &settings,
               std::uint64_t cookie, unsigned index)
    : mca_btl_base_module_t{},
      network_(std::move(network)),
      settings_(settings),
      cookie_(cookie),
      index_(index),
      transport_(std::move(transport)),
      batch_(batch_for(*transport_, settings.batch))
{
    const std::size_t largest = transport_->largest() - whole_bytes;
    btl_component = &mca_btl_dgram_component;
    btl_eager_limit = largest;
    btl_rndv_eager_limit = largest;
    btl_max_send_size = largest;
    btl_exclusivity = MCA_BTL_EXCLUSIVITY_LOW + 100; // as btl/tcp
    btl_latency = settings.latency;
    btl_bandwidth = settings.bandwidth;
    btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_NEED_ACK | MCA_BTL_FLAGS_NEED_CSUM |
                mca::btl_flag_unreliable;
    btl::set_entry_points(*this);
    fragments_.set_up(largest);
    if (transport_->in_one_piece() > 1) {
        trays_.set_up(batch_, largest);
    }
    probe_.resize(transport_->largest());
}

Module::~Module()
{
    fragments_.release();
}

Header Module::header_for(const Endpoint &endpoint, Kind kind) const noexcept
{
    Header header;
    header.kind = kind;
    header.sender = static_cast<std::uint32_t>(cookie_);
    header.key = endpoint.key;
    return header;
}

bool Module::ready(Endpoint &endpoint) noexcept
{
    if (OPAL_LIKELY(endpoint.channel != nullptr)) {
        return !endpoint.broken;
    }
    if (!endpoint.tried) {
        endpoint.tried = true;
        std::string why;
        endpoint.channel = transport_->connect(endpoint.address, why);
        if (endpoint.channel == nullptr) {
            fail(endpoint, why);
        } else if (!why.empty() && !std::exchange(told_shut_, true)) {
            mca::show_help(help_file, "way-shut", opal_process_info.nodename, network_.name.c_str(),
                           OPAL_NAME_PRINT(endpoint.process->proc_name), why.c_str());
        }
    }
    return endpoint.channel != nullptr;
}

void Module::fail(Endpoint &endpoint, const std::string &why) noexcept
{
    if (endpoint.broken) {
        return;
    }
    endpoint.broken = true;
    mca::show_help(help_file, "way-broken", opal_process_info.nodename, network_.name.c_str(),
                   OPAL_NAME_PRINT(endpoint.process->proc_name), why.c_str());
    for (Fragment *fragment : endpoint.waiting) {
        give_back(fragment);
    }
    endpoint.waiting.clear();
    std::erase(unflushed_, &endpoint);
    try {
        failed_.push_back(&endpoint);
    } catch (...) {
        // The next send tells the PML.
    }
}

int Module::send(Endpoint &endpoint, Fragment *fragment, mca_btl_base_tag_t tag) noexcept
{
    const std::uint32_t flags = fragment->descriptor.des_flags;
    const bool ours = (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
    {
        const mca::Guard guard(lock_);
        if (OPAL_UNLIKELY(!ready(endpoint))) {
            return OPAL_ERR_UNREACH;
        }
        if (endpoint.waiting.size() >= 2 * batch_) {
            flush_locked(endpoint);
            if (endpoint.broken) {
                return OPAL_ERR_UNREACH;
            }
            if (endpoint.waiting.size() >= 2 * batch_) {
                ++counters_.full;
                return OPAL_ERR_OUT_OF_RESOURCE;
            }
        }
        Fragment *kept = fragment;
        if (OPAL_UNLIKELY(!ours)) {
            kept = allocate(fragment->segments[0].seg_len, flags);
            if (kept == nullptr) {
                return OPAL_ERR_OUT_OF_RESOURCE;
            }
            std::memcpy(kept->data(), fragment->data(), fragment->segments[0].seg_len);
        }
        kept->tag = tag;
        write_whole(tag, whole_bytes + kept->segments[0].seg_len, endpoint.key,
                    std::span<std::byte, whole_bytes>(kept->wire, whole_bytes));
        ++counters_.fragments_sent;
        if (endpoint.waiting.empty()) {
            unflushed_.push_back(&endpoint);
        }
        endpoint.waiting.push_back(kept);
        if (endpoint.waiting.size() >= batch_) {
            flush_locked(endpoint);
        }
    }
    // It is copied: the PML's own bytes are free.
    if ((flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) != 0) {
        if (fragment->descriptor.des_cbfunc != nullptr) {
            fragment->descriptor.des_cbfunc(this,
                                            reinterpret_cast<mca_btl_base_endpoint_t *>(&endpoint),
                                            &fragment->descriptor, OPAL_SUCCESS);
        }
        return 0;
    }
    return 1;
}

int Module::send_now(Endpoint &endpoint, opal_convertor_t *convertor, const void *header,
                     std::size_t header_bytes, std::size_t payload_bytes,
                     mca_btl_base_tag_t tag) noexcept
{
    const std::size_t total = header_bytes + payload_bytes;
    if (total > small_bytes || total > btl_max_send_size) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    std::byte bytes[whole_bytes + small_bytes];
    std::memcpy(bytes + whole_bytes, header, header_bytes);
    if (payload_bytes != 0) {
        iovec piece{bytes + whole_bytes + header_bytes, payload_bytes};
        std::uint32_t pieces = 1;
        std::size_t packed = payload_bytes;
        opal_convertor_pack(convertor, &piece, &pieces, &packed);
        if (packed != payload_bytes) {
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
    }
    const mca::Guard guard(lock_);
    if (OPAL_UNLIKELY(endpoint.channel == nullptr || endpoint.broken) && !ready(endpoint)) {
        return OPAL_ERR_UNREACH;
    }
    if (whole_bytes + total > endpoint.search.size()) {
        return OPAL_ERR_OUT_OF_RESOURCE; // in parts, the longer way
    }
    write_whole(tag, whole_bytes + total, endpoint.key,
                std::span<std::byte, whole_bytes>(bytes, whole_bytes));
    Outgoing one;
    one.pieces[0] = {bytes, whole_bytes + total};
    std::size_t taken = 0;
    const SendResult result = endpoint.channel->send({&one, 1}, taken);
    if (result == SendResult::broken) {
        fail(endpoint, endpoint.channel->trouble());
    }
    if (result != SendResult::ok) {
        counters_.full += result == SendResult::full ? 1 : 0;
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    ++counters_.fragments_sent;
    note_used(endpoint); // what is swallowed for its size looks sent, and is sent so again
    return OPAL_SUCCESS;
}

void Module::flush(Endpoint &endpoint) noexcept
{
    const mca::Guard guard(lock_);
    flush_locked(endpoint);
}

void Module::flush_locked(Endpoint &endpoint) noexcept
{
    if (endpoint.waiting.empty() || endpoint.broken) {
        return;
    }
    note_used(endpoint);
    std::size_t done = 0;
    SendResult result = SendResult::ok;
    while (done < endpoint.waiting.size() && result == SendResult::ok) {
        std::size_t taken = 0;
        result = send_run(endpoint, std::span(endpoint.waiting).subspan(done), taken);
        for (std::size_t i = done; i < done + taken; ++i) {
            give_back(endpoint.waiting[i]);
        }
        done += taken;
    }
    endpoint.waiting.erase(endpoint.waiting.begin(),
                           endpoint.waiting.begin() + static_cast<std::ptrdiff_t>(done));
    if (result == SendResult::broken) {
        fail(endpoint, endpoint.channel->trouble());
    }
    counters_.full += result == SendResult::full ? 1 : 0;
    if (endpoint.waiting.empty()) {
        std::erase(unflushed_, &endpoint);
    }
}

SendResult Module::send_run(Endpoint &endpoint, std::span<Fragment *const> run,
                            std::size_t &taken) noexcept
{
    const std::size_t limit = endpoint.search.size();
    std::size_t count = 0;
    while (count < run.size() && count < most_batch) {
        Fragment &fragment = *run[count];
        const std::size_t bytes = whole_bytes + fragment.segments[0].seg_len;
        if (bytes > limit) {
            break;
        }
        outgoing_[count++].pieces[0] = {fragment.wire, bytes}; // and nothing behind it
    }
    if (count == 0) {
        const SendResult result = send_in_parts(endpoint, *run.front());
        taken = result == SendResult::ok ? 1 : 0;
        return result;
    }
    const SendResult result = endpoint.channel->send({outgoing_.data(), count}, taken);
    if (result == SendResult::too_large) {
        ++counters_.too_large; // the size search will find what passes; until then it is lost
        ++taken;
        return SendResult::ok;
    }
    return result;
}

SendResult Module::send_in_parts(Endpoint &endpoint, Fragment &fragment) noexcept
{
    constexpr std::size_t most = most_fragment_bytes / (least_datagram - long_bytes) + 1;
    std::array<std::array<std::byte, long_bytes>, most> headers;
    std::array<Outgoing, most> parts;
    Header header = header_for(endpoint, Kind::part);
    header.tag = fragment.tag;
    header.number = next_number();
    header.total = static_cast<std::uint32_t>(fragment.segments[0].seg_len);
    const std::size_t step = endpoint.search.size() - long_bytes;
    std::size_t count = 0;
    for (std::size_t at = 0; at < header.total; at += step, ++count) {
        header.offset = static_cast<std::uint32_t>(at);
        const std::size_t bytes = std::min(step, header.total - at);
        write_header(header, long_bytes + bytes, headers[count]);
        parts[count] = Outgoing{};
        parts[count].pieces[0] = {headers[count].data(), long_bytes};
        parts[count].pieces[1] = {fragment.data() + at, bytes};
    }
    std::size_t taken = 0;
    const SendResult result = endpoint.channel->send({parts.data(), count}, taken);
    if (result == SendResult::full && taken == 0) {
        return result;
    }
    ++counters_.sent_in_parts;
    // What the network did not take of a fragment that is half sent is lost with the rest of it.
    return result == SendResult::broken ? result : SendResult::ok;
}

int Module::progress() noexcept
{
    if (!receiving_.take()) {
        return 0; // a receiver's callback has come here
    }
    const int received = transport_->receive(*this);
    const bool looks = ++passes_ >= passes_per_look;
    if (OPAL_UNLIKELY(looks)) {
        passes_ = 0;
        take_trouble();
    }
    receiving_.give_back();
    if (OPAL_UNLIKELY(!unflushed_.empty())) {
        const mca::Guard guard(lock_);
        for (std::size_t i = unflushed_.size(); i-- > 0;) {
            if (i < unflushed_.size()) {
                flush_locked(*unflushed_[i]);
            }
        }
    }
    if (OPAL_UNLIKELY(looks)) {
        look_after(mca::now());
        report_failures();
    }
    return received;
}

void Module::take_trouble() noexcept
{
    if (const std::string &trouble = transport_->trouble(); OPAL_UNLIKELY(!trouble.empty())) {
        const mca::Guard guard(lock_);
        for (const auto &entry : endpoints_) {
            fail(*entry.second, trouble);
        }
    }
}

void Module::report_failures() noexcept
{
    btl::tell_failed(*this, lock_, failed_);
}

void Module::look_after(base::Time now) noexcept
{
    const mca::Guard guard(lock_);
    transport_->tend();
    if (now >= next_rest_) {
        next_rest_ = now + rest_interval;
        rest_idle();
    }
    if (settings_.size_interval_ms == 0 || now < next_search_) {
        return;
    }
    next_search_ = now + look_interval;
    std::erase_if(used_, [&](Endpoint *endpoint) {
        if (!ready(*endpoint)) {
            endpoint->used = false;
            return true;
        }
        const SizeSearch::Probes probes = endpoint->search.on_time(now, next_number());
        for (std::uint32_t i = 0; i < probes.count; ++i) {
            send_probe(*endpoint, Kind::size_probe, probes.nonce, probes.size[i], 0);
        }
        // It comes back with its next use; a round that has begun is finished first.
        endpoint->used = probes.count != 0 || endpoint->search.next() <= now + look_interval * 10;
        return !endpoint->used;
    });
}

void Module::rest_idle() noexcept
{
    for (const auto &entry : endpoints_) {
        Endpoint &endpoint = *entry.second;
        const bool idle = !std::exchange(endpoint.busy, false) && endpoint.waiting.empty();
        if (idle && endpoint.channel != nullptr) {
            endpoint.channel->rest();
        }
    }
}

void Module::send_probe(Endpoint &endpoint, Kind kind, std::uint32_t nonce, std::uint32_t bytes,
                        std::uint32_t total) noexcept
{
    Header header = header_for(endpoint, kind);
    header.number = nonce;
    header.total = total;
    const std::size_t length = std::min<std::size_t>(bytes, probe_.size());
    write_header(header, length, probe_);
    Outgoing one;
    one.pieces[0] = {probe_.data(), length};
    std::size_t taken = 0;
    endpoint.busy = true;
    const SendResult result = endpoint.channel->send({&one, 1}, taken);
    if (result == SendResult::broken) {
        fail(endpoint, endpoint.channel->trouble());
    }
}

void Module::take(std::span<const std::byte> datagram) noexcept
{
    std::uint8_t tag = 0;
    std::span<const std::byte> fragment;
    if (OPAL_LIKELY(parse_whole(datagram, cookie_, tag, fragment))) {
        deliver(tag, fragment);
    } else {
        take_unusual(datagram);
    }
}

void Module::take_unusual(std::span<const std::byte> datagram) noexcept
{
    Header header;
    std::span<const std::byte> payload;
    switch (parse_datagram(datagram, cookie_, header, payload)) {
    case Parse::malformed:
        ++counters_.malformed;
        return;
    case Parse::stranger:
        ++counters_.strangers;
        return;
    case Parse::ok:
        break;
    }
    switch (header.kind) {
    case Kind::whole:
        deliver(header.tag, payload);
        break;
    case Kind::part:
        try {
            if (const auto whole = reassembly_.take(header, payload); !whole.empty()) {
                deliver(header.tag, whole);
            }
        } catch (...) {
            // No memory: as if it were lost.
        }
        break;
    case Kind::size_probe:
        answer(header, datagram.size());
        break;
    case Kind::size_reply:
        // The peer answers by the way that it has, which need not be that of the probe: where it
        // has fewer addresses, several modules lead to one of its own.
        for (const auto &module : btl::all_modules<Module>()) {
            module->take_answer(header);
        }
        break;
    }
}

void Module::take_answer(const Header &answer) noexcept
{
    const mca::Guard guard(lock_);
    if (const auto found = by_sender_.find(answer.sender); found != by_sender_.end()) {
        found->second->search.on_reply(answer.number, answer.total);
    }
}

void Module::deliver(mca_btl_base_tag_t tag, std::span<const std::byte> fragment) noexcept
{
    const mca_btl_active_message_callback_t *receiver = btl::receiver_of(tag);
    if (OPAL_UNLIKELY(receiver == nullptr)) {
        ++counters_.no_receiver;
        return;
    }
    ++counters_.delivered;
    incoming_segment_.seg_addr.pval = const_cast<std::byte *>(fragment.data());
    incoming_segment_.seg_len = fragment.size();
    incoming_.des_segments = &incoming_segment_;
    incoming_.des_segment_count = 1;
    receiver->cbfunc(this, tag, &incoming_, receiver->cbdata);
}

void Module::answer(const Header &probe, std::size_t bytes) noexcept
{
    const mca::Guard guard(lock_);
    const auto found = by_sender_.find(probe.sender);
    if (found != by_sender_.end() && ready(*found->second)) {
        send_probe(*found->second, Kind::size_reply, probe.number, long_bytes,
                   static_cast<std::uint32_t>(bytes));
    }
}

void Module::finish() const noexcept
{
    if (!settings_.stats) {
        return;
    }
    const TransportCounters &t = transport_->counters();
    std::uint64_t lowered = counters_.narrowed;
    for (const auto &entry : endpoints_) {
        lowered += entry.second->search.times_lowered();
    }
    std::fprintf(stderr,
                 "btl/dgram[rank %" PRIu32 "]: module=%u provider=%s sent=%" PRIu64
                 " parts=%" PRIu64 " delivered=%" PRIu64 " datagrams_out=%" PRIu64
                 " calls_out=%" PRIu64 " datagrams_in=%" PRIu64 " calls_in=%" PRIu64
                 " malformed=%" PRIu64 " strangers=%" PRIu64 " no_receiver=%" PRIu64
                 " refused=%" PRIu64 " full=%" PRIu64 " too_large=%" PRIu64 " narrowed=%" PRIu64
                 " unfinished=%" PRIu64 "\n",
                 OPAL_PROC_MY_NAME.vpid, index_, transport_->provider().c_str(),
                 counters_.fragments_sent, counters_.sent_in_parts, counters_.delivered,
                 t.datagrams_sent, t.calls_send, t.datagrams_received, t.calls_receive,
                 counters_.malformed, counters_.strangers, counters_.no_receiver, t.refused,
                 counters_.full, counters_.too_large, lowered, reassembly_.given_up());
}

} // namespace ft::dgram
