#include "opal/mca/btl/ucx/ucx.hpp"

#include <cinttypes>

#include "opal/mca/btl/base/entry_points.hpp"
#include "opal/mca/btl/base/receivers.hpp"
#include "opal/mca/clock.hpp"

namespace ft::ucx {

namespace {

constexpr std::size_t header_bytes = sizeof(std::uint64_t);
constexpr std::size_t small_bytes = btl::FragmentPools<Fragment>::small_bytes;
/// New connections are looked for, and the clock is read, every so many passes.
constexpr unsigned passes_per_look = 16;
/// A module that has to ask the kernel and found nothing for so long gets every eighth pass only,
/// when there are others.
constexpr unsigned idle_after = 64;
constexpr unsigned idle_turn = 8;

static_assert(offsetof(Fragment, header) + header_bytes == sizeof(Fragment),
              "header and bytes of a fragment lie in one piece");

/// What uct_ep_am_bcopy packs: a header and up to two pieces.
struct Pieces {
    std::uint64_t header;
    const void *first;
    std::size_t first_bytes;
    const void *second = nullptr;
    std::size_t second_bytes = 0;
};

std::size_t pack(void *to, void *pieces)
{
    const Pieces &all = *static_cast<const Pieces *>(pieces);
    auto *bytes = static_cast<std::byte *>(to);
    std::memcpy(bytes, &all.header, header_bytes);
    std::memcpy(bytes + header_bytes, all.first, all.first_bytes);
    if (all.second_bytes != 0) {
        std::memcpy(bytes + header_bytes + all.first_bytes, all.second, all.second_bytes);
    }
    return header_bytes + all.first_bytes + all.second_bytes;
}

ucs_status_t send_copy(uct_ep_h way, Pieces pieces) noexcept
{
    const ssize_t sent = uct_ep_am_bcopy(way, message_id, pack, &pieces, 0);
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

} // namespace

Module::Module(std::unique_ptr<Port> port, btl::Interface network,
               mca_btl_base_component_t &component, const Settings &settings, std::uint64_t cookie,
               unsigned index)
    : mca_btl_base_module_t{},
      network_(std::move(network)),
      settings_(settings),
      cookie_(cookie),
      index_(index),
      port_(std::move(port))
{
    const bool memory = port_->resource().shared_memory;
    const std::size_t largest = std::min<std::size_t>(port_->largest(), settings.fragment);
    largest_short_ = port_->attributes().cap.am.max_short;
    btl_component = &component;
    btl_eager_limit = largest - header_bytes;
    btl_rndv_eager_limit = btl_eager_limit;
    btl_max_send_size = btl_eager_limit;
    // As btl/vader and btl/tcp: bml/r2 takes the higher ones alone under a PML that leaves them so.
    btl_exclusivity = memory ? MCA_BTL_EXCLUSIVITY_HIGH : MCA_BTL_EXCLUSIVITY_LOW + 100;
    btl_bandwidth = settings.bandwidth != 0 ? settings.bandwidth : memory ? 40000 : 10000;
    btl_latency = settings.latency != 0 ? settings.latency : memory ? 1 : 30;
    btl_flags = MCA_BTL_FLAGS_SEND;
    btl::set_entry_points(*this);
    fragments_.set_up(btl_max_send_size);
    port_->tell(*this);
    if (port_->has_line()) {
        WireEvents &events = *this;
        wires_ = std::make_unique<Wires>(*port_, cookie_, events);
    }
}

Module::~Module()
{
    for (const auto &[way, endpoint] : by_way_) {
        if (wires_ != nullptr) {
            wires_->let_go(*endpoint->wire, way, true);
        }
        uct_ep_destroy(way);
    }
    for (uct_ep_h way : graveyard_) {
        uct_ep_destroy(way);
    }
    wires_.reset();
    port_.reset();
    fragments_.release();
}

Module::Posted Module::judge(Endpoint &endpoint, ucs_status_t status) noexcept
{
    if (OPAL_LIKELY(status == UCS_OK)) {
        if (OPAL_UNLIKELY(endpoint.lost || endpoint.wire != nullptr)) {
            took(endpoint);
        }
        ++counters_.sent;
        return Posted::sent;
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        return Posted::full;
    }
    fail(endpoint, status);
    if (endpoint.broken) {
        return Posted::broken;
    }
    ++counters_.lost;
    return Posted::sent; // and lost, which the PML finds out
}

Module::Posted Module::post(Endpoint &endpoint, Fragment &fragment) noexcept
{
    if (OPAL_UNLIKELY(!endpoint.open) && !opened(endpoint)) {
        return Posted::full;
    }
    const std::size_t bytes = fragment.bytes();
    ucs_status_t status = UCS_OK;
    if (header_bytes + bytes <= largest_short_) {
        status = uct_ep_am_short(endpoint.way, message_id, fragment.header, fragment.data(),
                                 static_cast<unsigned>(bytes));
    } else {
        status = send_copy(endpoint.way, {fragment.header, fragment.data(), bytes});
    }
    return judge(endpoint, status);
}

int Module::send(Endpoint &endpoint, Fragment *fragment, mca_btl_base_tag_t tag) noexcept
{
    fragment->header = Header{endpoint.cookie, Kind::fragment, tag}.packed();
    fragment->endpoint = &endpoint;
    fragment->status = OPAL_SUCCESS;
    {
        const mca::Guard guard(lock_);
        const Ready state = ready(endpoint);
        if (OPAL_UNLIKELY(state == Ready::broken)) {
            return OPAL_ERR_UNREACH;
        }
        Posted posted = Posted::sent;
        if (OPAL_UNLIKELY(state == Ready::lost)) {
            ++counters_.lost;
        } else {
            posted = OPAL_LIKELY(state == Ready::yes && endpoint.waiting.empty())
                         ? post(endpoint, *fragment)
                         : Posted::full;
        }
        switch (posted) {
        case Posted::sent:
            break;
        case Posted::full:
            if (endpoint.waiting.size() >= most_waiting) {
                ++counters_.full;
                return OPAL_ERR_OUT_OF_RESOURCE;
            }
            if (endpoint.waiting.empty()) {
                blocked_.push_back(&endpoint);
            }
            ++counters_.waited;
            endpoint.waiting.push_back(fragment);
            return OPAL_SUCCESS;
        case Posted::broken:
            return OPAL_ERR_UNREACH;
        }
    }
    // The callback always: ob1 counts on it, whatever is returned.
    complete(*fragment);
    return OPAL_SUCCESS;
}

int Module::send_now(Endpoint &endpoint, opal_convertor_t *convertor, const void *header,
                     std::size_t front_bytes, std::size_t payload_bytes,
                     mca_btl_base_tag_t tag) noexcept
{
    std::byte payload[small_bytes];
    const std::size_t total = header_bytes + front_bytes + payload_bytes;
    if (payload_bytes > sizeof payload || total > btl_max_send_size) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    const void *second = payload;
    if (payload_bytes != 0) {
        iovec piece{payload, payload_bytes};
        std::uint32_t pieces = 1;
        std::size_t packed = payload_bytes;
        opal_convertor_pack(convertor, &piece, &pieces, &packed);
        if (packed != payload_bytes) {
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
        second = piece.iov_base; // where they are, if they lie in one piece
    }
    const std::uint64_t mine = Header{endpoint.cookie, Kind::fragment, tag}.packed();
    const mca::Guard guard(lock_);
    const Ready state = ready(endpoint);
    if (OPAL_UNLIKELY(state == Ready::lost || state == Ready::broken)) {
        counters_.lost += state == Ready::lost ? 1 : 0;
        return state == Ready::lost ? OPAL_SUCCESS : OPAL_ERR_UNREACH;
    }
    if (OPAL_UNLIKELY(state == Ready::later || !endpoint.waiting.empty() ||
                      (!endpoint.open && !opened(endpoint)))) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    const ucs_status_t status =
        payload_bytes == 0 && total <= largest_short_
            ? uct_ep_am_short(endpoint.way, message_id, mine, header,
                              static_cast<unsigned>(front_bytes))
            : send_copy(endpoint.way, {mine, header, front_bytes, second, payload_bytes});
    switch (judge(endpoint, status)) {
    case Posted::sent:
        return OPAL_SUCCESS;
    case Posted::broken:
        return OPAL_ERR_UNREACH;
    default:
        ++counters_.full;
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
}

void Module::complete(Fragment &fragment) noexcept
{
    const bool ours = (fragment.descriptor.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
    if (fragment.descriptor.des_cbfunc != nullptr) {
        fragment.descriptor.des_cbfunc(
            this, reinterpret_cast<mca_btl_base_endpoint_t *>(fragment.endpoint),
            &fragment.descriptor, fragment.status);
    }
    if (ours) {
        give_back(&fragment);
    }
}

void Module::push_waiting() noexcept
{
    for (std::size_t i = blocked_.size(); i-- > 0;) {
        Endpoint &endpoint = *blocked_[i];
        Posted posted = Posted::sent;
        while (!endpoint.waiting.empty() && posted != Posted::full) {
            // Its way may still have to be made; where that fails what waits is gone.
            if (OPAL_UNLIKELY(endpoint.way == nullptr && ready(endpoint) != Ready::yes)) {
                drop_waiting(endpoint);
                break;
            }
            Fragment *fragment = endpoint.waiting.front();
            endpoint.waiting.erase(endpoint.waiting.begin());
            posted = post(endpoint, *fragment);
            switch (posted) {
            case Posted::full:
                endpoint.waiting.insert(endpoint.waiting.begin(), fragment);
                break;
            case Posted::broken:
                fragment->status = OPAL_ERR_UNREACH;
                done_.add(fragment);
                break;
            case Posted::sent:
                done_.add(fragment);
                break;
            }
        }
        if (endpoint.waiting.empty()) {
            std::erase(blocked_, &endpoint);
        }
    }
}

int Module::progress(bool alone) noexcept
{
    if (idle_ > idle_after && !alone && port_->asks_kernel() && ++idle_ % idle_turn != 0) {
        return 0;
    }
    if (!receiving_.take()) {
        return 0; // a receiver's callback has come here
    }
    unsigned events = 0;
    bool more = false;
    {
        const mca::Guard guard(lock_);
        under_way_ = true;
        delivers_ = true;
        events = port_->progress();
        delivers_ = false;
        if (wires_ != nullptr && wires_->busy()) {
            wires_->work(mca::now());
        }
        if (OPAL_UNLIKELY(!blocked_.empty())) {
            push_waiting();
        }
        if (OPAL_UNLIKELY(++passes_ % passes_per_look == 0)) {
            look();
        }
        under_way_ = false;
        if (OPAL_UNLIKELY(!graveyard_.empty())) {
            for (uct_ep_h way : graveyard_) {
                uct_ep_destroy(way);
            }
            graveyard_.clear();
        }
        if (wires_ != nullptr) {
            wires_->bury();
        }
        more = !done_.empty() || !failed_.empty();
    }
    receiving_.give_back();
    idle_ = events != 0 ? 0 : idle_ + 1;
    if (OPAL_UNLIKELY(more)) {
        report();
    }
    return static_cast<int>(events);
}

void Module::report() noexcept
{
    DoneList done;
    {
        const mca::Guard guard(lock_);
        std::swap(done, done_);
    }
    while (Fragment *fragment = done.take()) {
        complete(*fragment);
    }
    btl::tell_failed(*this, lock_, failed_);
}

void Module::take(std::span<const std::byte> message) noexcept
{
    if (OPAL_UNLIKELY(message.size() < header_bytes)) {
        ++counters_.malformed;
        return;
    }
    std::uint64_t packed = 0;
    std::memcpy(&packed, message.data(), header_bytes);
    const Header header = Header::of(packed);
    if (OPAL_UNLIKELY(!header.is_for(cookie_))) {
        ++counters_.strangers;
        return;
    }
    const std::span<const std::byte> payload = message.subspan(header_bytes);
    if (OPAL_UNLIKELY(header.kind != Kind::fragment)) {
        if (header.kind == Kind::goodbye) {
            note_leaving(payload);
        } else {
            ++counters_.malformed;
        }
        return;
    }
    const mca_btl_active_message_callback_t *receiver = btl::receiver_of(header.tag);
    if (OPAL_UNLIKELY(receiver == nullptr)) {
        ++counters_.no_receiver;
        return;
    }
    ++counters_.delivered;
    mca_btl_base_segment_t segment{};
    segment.seg_addr.pval = const_cast<std::byte *>(payload.data());
    segment.seg_len = payload.size();
    mca_btl_base_descriptor_t descriptor{};
    descriptor.des_segments = &segment;
    descriptor.des_segment_count = 1;
    // The PML holds locks of its own when it sends. UCX allows sends while it delivers, and nobody
    // else gets to deliver meanwhile.
    lock_.unlock();
    receiver->cbfunc(this, header.tag, &descriptor, receiver->cbdata);
    lock_.lock();
}

void Module::finish() const noexcept
{
    if (!settings_.stats) {
        return;
    }
    ModuleCounters c = counters_;
    if (wires_ != nullptr) {
        c.wired = wires_->counters().opened;
        c.malformed += wires_->counters().malformed;
        c.strangers += wires_->counters().strangers;
    }
    std::fprintf(stderr,
                 "btl/ucx[rank %" PRIu32 "]: module=%u transport=%s device=%s sent=%" PRIu64
                 " delivered=%" PRIu64 " waited=%" PRIu64 " full=%" PRIu64 " malformed=%" PRIu64
                 " strangers=%" PRIu64 " no_receiver=%" PRIu64 " broken=%" PRIu64
                 " renewed=%" PRIu64 " lost=%" PRIu64 " wired=%" PRIu64 "\n",
                 OPAL_PROC_MY_NAME.vpid, index_, port_->resource().transport.c_str(),
                 port_->resource().device.c_str(), c.sent, c.delivered, c.waited, c.full,
                 c.malformed, c.strangers, c.no_receiver, c.broken, c.renewed, c.lost, c.wired);
}

} // namespace ft::ucx
