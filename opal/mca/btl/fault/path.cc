#include "opal/mca/btl/fault/injector.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/mca/hand_over.hpp"
#include "opal/mca/selected_pml.hpp"

#include <utility>

namespace ft::fault {

namespace {

constexpr base::Duration retry_time = base::Duration::from_us(20);
/// A fragment that is to be overtaken waits no longer than this: nothing may come after it.
constexpr base::Duration reorder_wait = base::Duration::from_ms(1);

std::size_t index(Direction direction)
{
    return static_cast<std::size_t>(direction);
}

const void *first_byte(const Descriptor &descriptor)
{
    return descriptor.des_segment_count > 0 && descriptor.des_segments[0].seg_len > 0
               ? descriptor.des_segments[0].seg_addr.pval
               : nullptr;
}

/// Whoever sent the fragment has been told already.
void copy_is_sent(Btl *, Endpoint *, Descriptor *, int) noexcept {}

} // namespace

Bytes gather(const Descriptor &descriptor)
{
    auto bytes = std::make_shared<std::vector<std::byte>>();
    for (std::size_t i = 0; i < descriptor.des_segment_count; ++i) {
        const mca_btl_base_segment_t &segment = descriptor.des_segments[i];
        const auto *from = static_cast<const std::byte *>(segment.seg_addr.pval);
        bytes->insert(bytes->end(), from, from + segment.seg_len);
    }
    return bytes;
}

Path::Path(Injector &injector, Btl *btl, std::string name, bool may_die)
    : injector_(injector),
      btl_(btl),
      name_(std::move(name)),
      originals_{btl->btl_add_procs, btl->btl_del_procs,     btl->btl_finalize,
                 btl->btl_send,      btl->btl_sendi,         btl->btl_put,
                 btl->btl_get,       btl->btl_register_error},
      plans_{Plan(injector.settings(), injector.rank(), name_, Direction::send),
             Plan(injector.settings(), injector.rank(), name_, Direction::receive)},
      life_(may_die ? injector.settings().kill_after : 0, injector.settings().revive_after)
{
    patch(*btl, injector.settings());
}

void Path::count(std::uint64_t Counters::*which)
{
    const std::scoped_lock lock(injector_.mutex());
    ++(injector_.counters().*which);
}

Path::Verdict Path::judge(Direction direction, bool eligible, const void *endpoint)
{
    const Settings &settings = injector_.settings();
    Verdict verdict;
    const std::scoped_lock lock(injector_.mutex());
    if (eligible) {
        verdict.counted = true;
        verdict.number = numbers_[index(direction)]++;
        ++injector_.counters().fragments;
    }
    if (life_.mortal()) {
        const base::Time present = now();
        verdict.lost = eligible ? life_.strikes(direction, present) : life_.dead(present);
        if (verdict.lost) {
            ++injector_.counters().killed;
            if (settings.kills_any()) {
                injector_.spare_others(this);
            }
            if (settings.kill_reports) {
                verdict.status = OPAL_ERR_UNREACH;
                verdict.refused = deaths_reported_ == life_.deaths();
                report_death();
            }
            return verdict;
        }
    }
    if (eligible) {
        verdict.decision = plans_[index(direction)].decide(verdict.number);
    }
    later_.overtaken(direction, endpoint);
    return verdict;
}

/// The BTL did not take the fragment after all, and the PML will come again with it.
void Path::take_back(const Verdict &verdict)
{
    const std::scoped_lock lock(injector_.mutex());
    std::uint64_t &next = numbers_[index(Direction::send)];
    if (verdict.counted && next == verdict.number + 1) {
        --next;
        --injector_.counters().fragments;
        life_.take_back(Direction::send);
    }
}

bool Path::dead_now()
{
    const std::scoped_lock lock(injector_.mutex());
    if (!life_.mortal() || !life_.dead(now())) {
        return false;
    }
    ++injector_.counters().killed;
    return true;
}

/// Under the mutex. A BTL that has an error callback calls it once for each peer that it lost, from
/// its progress function.
void Path::report_death()
{
    if (deaths_reported_ == life_.deaths()) {
        return;
    }
    deaths_reported_ = life_.deaths();
    if (error_callback_ == nullptr) {
        return;
    }
    for (const Peer &peer : peers_) {
        Later report;
        report.endpoint = peer.endpoint;
        report.act = [this, proc = peer.proc] {
            static std::array<char, 32> info{"btl/fault: path killed"};
            // As this project's BTLs say it to a PML that goes on by another path; to another one
            // it would be the end of the job.
            const std::int32_t flags =
                mca::pml_retransmits() ? MCA_BTL_ERROR_FLAGS_FATAL : MCA_BTL_ERROR_FLAGS_NONFATAL;
            error_callback_(btl_, flags, proc, info.data());
            return true;
        };
        later_.at(base::Time::zero(), std::move(report));
    }
    waiting_ = later_.size();
}

void Path::complete_later(Endpoint *endpoint, Descriptor *descriptor, int status)
{
    // As a BTL that queues a fragment does: from now on its owner counts on the callback.
    descriptor->des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    Later later;
    later.endpoint = endpoint;
    later.act = [this, endpoint, descriptor, status] {
        const bool ours = (descriptor->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
        if (descriptor->des_cbfunc != nullptr) {
            descriptor->des_cbfunc(btl_, endpoint, descriptor, status);
        }
        if (ours) {
            mca::hand_over(descriptor);
            btl_->btl_free(btl_, descriptor);
        }
        return true;
    };
    later.abandon = [this, descriptor] {
        if ((descriptor->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0) {
            btl_->btl_free(btl_, descriptor);
        }
    };
    const std::scoped_lock lock(injector_.mutex());
    later_.at(base::Time::zero(), std::move(later));
    waiting_ = later_.size();
}

bool Path::put_off(const Decision &decision, Later later)
{
    if (!decision.delay && decision.overtaken_by == 0) {
        return false;
    }
    const base::Time present = now();
    const std::scoped_lock lock(injector_.mutex());
    if (decision.delay) {
        ++injector_.counters().delayed;
        later_.at(present + injector_.settings().delay_time, std::move(later));
    } else {
        ++injector_.counters().reordered;
        later_.after_overtaken(decision.overtaken_by, present + reorder_wait, std::move(later));
    }
    waiting_ = later_.size();
    return true;
}

Bytes Path::damage(const Bytes &bytes, const Decision &decision)
{
    auto damaged = std::make_shared<std::vector<std::byte>>(*bytes);
    if (!corrupt_bits(decision.damage, *damaged)) {
        return bytes;
    }
    count(&Counters::corrupted);
    return damaged;
}

// ---- sending ----

Path::Sent Path::transmit(Endpoint *endpoint, Tag tag, std::uint32_t flags,
                          const std::vector<std::byte> &bytes)
{
    const std::uint32_t kept = flags & (MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_SIGNAL);
    Descriptor *descriptor = btl_->btl_alloc(btl_, endpoint, MCA_BTL_NO_ORDER, bytes.size(),
                                             kept | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    if (descriptor == nullptr) {
        return Sent::not_yet;
    }
    mca::take_over(descriptor);
    descriptor->des_cbfunc = copy_is_sent;
    descriptor->des_cbdata = nullptr;
    descriptor->des_context = nullptr;
    memcpy(descriptor->des_segments[0].seg_addr.pval, bytes.data(), bytes.size());
    mca::hand_over(descriptor);
    const int result = originals_.send(btl_, endpoint, descriptor, tag);
    if (result >= 0 || result == OPAL_ERR_RESOURCE_BUSY) {
        return Sent::yes;
    }
    btl_->btl_free(btl_, descriptor);
    return result == OPAL_ERR_OUT_OF_RESOURCE || result == OPAL_ERR_TEMP_OUT_OF_RESOURCE
               ? Sent::not_yet
               : Sent::never;
}

void Path::send_copy(Endpoint *endpoint, Tag tag, std::uint32_t flags, const Bytes &bytes,
                     const Decision &decision)
{
    Later later;
    later.direction = Direction::send;
    later.endpoint = endpoint;
    later.act = [this, endpoint, tag, flags, bytes] {
        return dead_now() || transmit(endpoint, tag, flags, *bytes) != Sent::not_yet;
    };
    if (put_off(decision, later) || transmit(endpoint, tag, flags, *bytes) != Sent::not_yet) {
        return;
    }
    const std::scoped_lock lock(injector_.mutex());
    later_.at(now() + retry_time, std::move(later));
    waiting_ = later_.size();
}

int Path::send(Endpoint *endpoint, Descriptor *descriptor, Tag tag)
{
    const bool eligible = injector_.is_subject(tag, first_byte(*descriptor));
    const Verdict verdict = judge(Direction::send, eligible, endpoint);
    if (verdict.refused) {
        return OPAL_ERR_UNREACH;
    }
    if (verdict.lost) {
        complete_later(endpoint, descriptor, verdict.status);
        return OPAL_SUCCESS;
    }
    Decision decision = verdict.decision;
    if (decision.drop) {
        count(&Counters::dropped);
        complete_later(endpoint, descriptor, OPAL_SUCCESS);
        return OPAL_SUCCESS;
    }
    const auto as_it_is = [&] {
        const int result = originals_.send(btl_, endpoint, descriptor, tag);
        if (result < 0 && result != OPAL_ERR_RESOURCE_BUSY) {
            take_back(verdict);
        }
        return result;
    };
    if (decision.harmless()) {
        return as_it_is();
    }
    const Bytes bytes = gather(*descriptor);
    if (bytes->size() > std::max(btl_->btl_max_send_size, btl_->btl_eager_limit)) {
        return as_it_is(); // no descriptor of the BTL holds a copy
    }
    const std::uint32_t flags = descriptor->des_flags;
    const Decision at_once;
    int result = OPAL_SUCCESS;
    if (decision.corrupt || decision.delay || decision.overtaken_by > 0) {
        complete_later(endpoint, descriptor, OPAL_SUCCESS);
        send_copy(endpoint, tag, flags, decision.corrupt ? damage(bytes, decision) : bytes,
                  decision);
    } else {
        result = as_it_is();
    }
    if (decision.duplicate && result >= 0) {
        count(&Counters::duplicated);
        send_copy(endpoint, tag, flags, bytes, at_once);
    }
    return result;
}

int Path::sendi(Endpoint *endpoint, opal_convertor_t *convertor, void *header,
                std::size_t header_size, std::size_t payload_size, std::uint8_t order,
                std::uint32_t flags, Tag tag, Descriptor **descriptor)
{
    const bool eligible = injector_.is_subject(tag, header_size > 0 ? header : nullptr);
    const Verdict verdict = judge(Direction::send, eligible, endpoint);
    const Decision &decision = verdict.decision;
    const std::size_t size = header_size + payload_size;
    const bool holds = size <= std::max(btl_->btl_max_send_size, btl_->btl_eager_limit);
    if (!verdict.lost && !decision.drop && (decision.harmless() || !holds)) {
        const int result = originals_.sendi(btl_, endpoint, convertor, header, header_size,
                                            payload_size, order, flags, tag, descriptor);
        if (result < 0) {
            take_back(verdict);
        }
        return result;
    }
    if (descriptor != nullptr) {
        *descriptor = nullptr;
    }
    if (verdict.lost) {
        return verdict.status; // there is no descriptor to complete with an error
    }
    if (decision.drop) {
        count(&Counters::dropped);
        return OPAL_SUCCESS;
    }
    auto bytes = std::make_shared<std::vector<std::byte>>(size);
    memcpy(bytes->data(), header, header_size);
    if (payload_size > 0) {
        iovec piece{bytes->data() + header_size, payload_size};
        std::uint32_t pieces = 1;
        std::size_t packed = payload_size;
        if (opal_convertor_pack(convertor, &piece, &pieces, &packed) < 0 ||
            packed != payload_size) {
            return OPAL_ERROR;
        }
        // A contiguous buffer may be handed out where it lies instead of being copied.
        if (piece.iov_base != bytes->data() + header_size) {
            memcpy(bytes->data() + header_size, piece.iov_base, payload_size);
        }
    }
    const Decision at_once;
    send_copy(endpoint, tag, flags, decision.corrupt ? damage(bytes, decision) : Bytes(bytes),
              decision);
    if (decision.duplicate) {
        count(&Counters::duplicated);
        send_copy(endpoint, tag, flags, bytes, at_once);
    }
    return OPAL_SUCCESS;
}

// ---- receiving ----

void Path::deliver(Tag tag, std::vector<std::byte> &bytes)
{
    mca_btl_base_segment_t segment{};
    segment.seg_addr.pval = bytes.data();
    segment.seg_len = bytes.size();
    Descriptor descriptor{};
    descriptor.des_segments = &segment;
    descriptor.des_segment_count = 1;
    const mca_btl_active_message_callback_t &receiver = injector_.receiver(tag);
    receiver.cbfunc(btl_, tag, &descriptor, receiver.cbdata);
}

void Path::receive(Tag tag, Descriptor *descriptor)
{
    const mca_btl_active_message_callback_t &receiver = injector_.receiver(tag);
    FT_ASSERT(receiver.cbfunc != nullptr);
    const bool eligible = injector_.is_subject(tag, first_byte(*descriptor));
    const Verdict verdict = judge(Direction::receive, eligible, nullptr);
    const Decision &decision = verdict.decision;
    if (verdict.lost) {
        mca::hand_over(descriptor);
        return;
    }
    if (decision.drop) {
        mca::hand_over(descriptor);
        count(&Counters::dropped);
        return;
    }
    if (decision.harmless()) {
        receiver.cbfunc(btl_, tag, descriptor, receiver.cbdata);
        return;
    }
    const Bytes bytes = gather(*descriptor);
    mca::hand_over(descriptor);
    const Bytes first = decision.corrupt ? damage(bytes, decision) : bytes;
    Later later;
    later.direction = Direction::receive;
    later.act = [this, tag, first] {
        if (!dead_now()) {
            deliver(tag, *first);
        }
        return true;
    };
    if (!put_off(decision, std::move(later))) {
        deliver(tag, *first);
    }
    if (decision.duplicate) {
        count(&Counters::duplicated);
        deliver(tag, *bytes);
    }
}

// ---- the rest ----

int Path::progress()
{
    std::size_t most = waiting_;
    if (most == 0) {
        return 0;
    }
    int events = 0;
    for (; most > 0; --most) {
        std::optional<Later> later;
        {
            const std::scoped_lock lock(injector_.mutex());
            later = later_.pop_due(now());
            waiting_ = later_.size();
        }
        if (!later) {
            break;
        }
        if (later->act()) {
            ++events;
            continue;
        }
        const std::scoped_lock lock(injector_.mutex());
        later_.at(now() + retry_time, std::move(*later));
        waiting_ = later_.size();
    }
    return events;
}

void Path::add_peer(Endpoint *endpoint, opal_proc_t *proc)
{
    const std::scoped_lock lock(injector_.mutex());
    peers_.push_back(Peer{endpoint, proc});
}

void Path::remove_peer(Endpoint *endpoint)
{
    const std::scoped_lock lock(injector_.mutex());
    later_.abandon(endpoint);
    std::erase_if(peers_, [endpoint](const Peer &peer) { return peer.endpoint == endpoint; });
    if (peers_.empty()) {
        // Nobody is left to have sent it, and the PML is about to go.
        later_.abandon(nullptr);
    }
    waiting_ = later_.size();
}

void Path::set_error_callback(mca_btl_base_module_error_cb_fn_t callback)
{
    const std::scoped_lock lock(injector_.mutex());
    error_callback_ = callback;
}

void Path::restore()
{
    if (restored_) {
        return;
    }
    restored_ = true;
    const std::scoped_lock lock(injector_.mutex());
    later_.abandon(nullptr);
    waiting_ = 0;
    btl_->btl_add_procs = originals_.add_procs;
    btl_->btl_del_procs = originals_.del_procs;
    btl_->btl_finalize = originals_.finalize;
    btl_->btl_send = originals_.send;
    btl_->btl_sendi = originals_.sendi;
    btl_->btl_put = originals_.put;
    btl_->btl_get = originals_.get;
    btl_->btl_register_error = originals_.register_error;
}

} // namespace ft::fault
