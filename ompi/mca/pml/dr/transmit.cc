/// \file
/// From what the engine wants sent to descriptors of the BTLs.
///
/// A BTL may call back while it is given a descriptor, with locks of its own held. So the peer's
/// lock is let go for btl_send, and one caller at a time transmits to a peer; a second one leaves
/// its work to the first. btl_sendi never calls back, and is called with the lock held; so is
/// btl_send of a BTL that gathers fragments, whose descriptors are its own from then on. (The short
/// way over btl/tcp keeps it too, where there are no threads and it is no lock: express.cc.)
#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/copy_if_there.hpp"
#include "ompi/mca/pml/dr/front.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/resting.hpp"
#include "ompi/mca/pml/dr/vader_fragment.hpp"
#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/copy.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/mca/hand_over.hpp"

#include <memory>
#include <new>

namespace ft::dr {

namespace {

using reliability::header_bytes;

/// Below this a copy is cheaper than a second element of the vector.
constexpr std::uint32_t in_place_from = 2048;
/// After so many bytes the time of the pass is too old to stamp fragments with.
constexpr std::uint32_t clock_step = 8192;
/// Fragments that are stamped with one look at the clock, and given away before the next thing is
/// chosen: 22 KiB of Ethernet's packets, some microseconds.
constexpr unsigned most_in_a_run = 16;

/// What is sent again goes from a copy: it may still wait in the BTL when an acknowledgement of the
/// first transmission ends the request and the user takes the memory away; writev would fail, and
/// btl/tcp closes the connection then. Not so where there was one transmission, over the only path,
/// and its peer said that it came spoilt or that a later one of the stream came: it will not
/// arrive.
bool lost_in_stream(const reliability::FragmentRecord &record, const BtlPath &path) noexcept
{
    using reliability::LossReason;
    return record.tries == 1 && record.held == 0 && path.tcp != nullptr &&
           (record.reason == LossReason::gap || record.reason == LossReason::nack);
}

/// Whether its bytes may have been taken away: a request that is not complete was freed, and its
/// user, who was told by other means that the message is there, may know more than this end. Not so
/// before the first transmission, and not in the MPI buffer, whose end waits.
bool may_be_gone(const TxVfrag &tx) noexcept
{
    return tx.packed == nullptr && tx.request != nullptr && tx.request->bsend_buffer == nullptr &&
           tx.request->life.was_freed();
}

/// What is sent in the place of such bytes.
struct Rescued {
    std::unique_ptr<std::byte[]> bytes; ///< nullptr: there is no memory, or no way, at present
    bool gone = false;                  ///< they are zeros
};

Rescued rescue(std::span<const std::byte> from) noexcept
{
    Rescued rescued;
    rescued.bytes.reset(new (std::nothrow) std::byte[from.size()]);
    if (rescued.bytes == nullptr) {
        return rescued;
    }
    const Copied copied = copy_if_there(rescued.bytes.get(), from);
    if (copied == Copied::not_now) {
        rescued.bytes.reset();
    } else if (copied == Copied::gone) {
        rescued.gone = true;
        std::memset(rescued.bytes.get(), 0, from.size());
    }
    return rescued;
}

/// After btl/tcp returned an error for a control fragment: whether it is still ours. False also
/// when that cannot be told, since it has called back for it or for another one.
bool refused_control(const BtlPath &path, const mca_btl_base_descriptor_t &des) noexcept
{
    // In this order: before its callback nobody else writes there, after it anybody may.
    return TcpEndpoint::refused(des) &&
           __atomic_load_n(&path.control, __ATOMIC_ACQUIRE) != Control::done;
}

} // namespace

void PeerState::transmit(base::Time present) noexcept
{
    Guard guard(lock);
    if (transmitting_) {
        return;
    }
    transmitting_ = true;
    reliability::Transmit what;
    std::uint32_t since_clock = 0;
    while (engine.next_transmit(what, present)) {
        const unsigned went = transmit_some(what, present);
        if (OPAL_UNLIKELY(went == 0)) {
            engine.blocked(what.path);
            continue;
        }
        since_clock += went * what.header.payload_bytes;
        if (since_clock >= clock_step) {
            since_clock = 0;
            present = now();
        }
        if (engine.calm()) {
            break; // the common case, told sooner than by asking for another
        }
    }
    flush_paths();
    transmitting_ = false;
    call_again();
}

unsigned PeerState::transmit_some(reliability::Transmit &what, base::Time present) noexcept
{
    BtlPath &path = *paths[what.path];
    if (path.gathers && what.what == reliability::Transmit::What::fragment &&
        path.stuck == nullptr && OPAL_LIKELY(path.known_fault() == Fault::none)) {
        if (const unsigned count = std::min(engine.run(what, present), most_in_a_run); count > 1) {
            return transmit_run(path, what, count, present);
        }
    }
    return transmit_one(what, present) ? 1 : 0;
}

/// btl/tcp gives a connection that comes in to an endpoint of that address which has none; if it is
/// making one for each, it gives all that come in to the last, one over the other: its event loop
/// does not return any more from two in one turn. It asks for what the kernel says is the sender's
/// address, which among the processes of one host may be the same for all. So there, and between
/// the same two addresses, connections are made one after the other. One that nobody answers would
/// keep the others back for the minutes in which the kernel tries: it is called off, so that two
/// never live together, and the links take turns.
bool PeerState::may_connect(BtlPath &path, base::Time present) noexcept
{
    // The kernel has asked three times by then. Longer each time, for where an answer takes long.
    constexpr base::Duration patience = base::Duration::from_ms(3500);
    const bool same_host = OPAL_PROC_ON_LOCAL_NODE(proc->super.proc_flags);
    bool another = false;
    for (const auto &other : paths) {
        if (other.get() == &path || other->tcp == nullptr || other->removed ||
            !other->tcp->connecting() || !(same_host || other->tcp->same_address(*path.tcp))) {
            continue;
        }
        another = true;
        if (present - other->renew_at >= patience * (1 + other->renewals)) {
            other->tcp->call_off_unanswered();
        }
    }
    if (!another) {
        path.renew_at = std::max(path.renew_at, present);
    }
    return !another;
}

bool PeerState::transmit_one(reliability::Transmit &what, base::Time present) noexcept
{
    BtlPath &path = *paths[what.path];
    if (path.tcp != nullptr && OPAL_UNLIKELY(path.tcp->without_connection())) {
        // btl/tcp would connect anew, with what is left of the connection before.
        watch_connection(path);
        if (path.tcp->failing()) {
            return false; // another thread is closing it
        }
    }
    if (path.stuck != nullptr || OPAL_UNLIKELY(path.known_fault() != Fault::none)) {
        return false;
    }
    if (path.tcp != nullptr && OPAL_UNLIKELY(path.tcp->closed())) {
        if (!may_connect(path, present)) {
            return false;
        }
        // btl/tcp counts those who need the event loop: one more for a connection that was made,
        // but one less for each that it gives up, whether it was made or not. Some refused
        // connections, and Open MPI looks at the sockets of all others only now and then: messages
        // take tens of milliseconds. So each attempt is counted here. Those that succeed are then
        // counted twice, which changes nothing: the loop runs anyway while there is a connection.
        opal_progress_event_users_increment();
    }
    return what.what == reliability::Transmit::What::fragment
               ? transmit_fragment(path, what, present)
               : transmit_control(path, what, present);
}

bool PeerState::transmit_control(BtlPath &path, const reliability::Transmit &what,
                                 base::Time present) noexcept
{
    std::array<std::byte, reliability::max_control_bytes> buffer;
    const std::size_t bytes = engine.write_control(what, buffer);
    mca_btl_base_module_t *btl = path.btl;
    if (bytes <= path.sendi_bytes &&
        btl->btl_sendi(btl, path.endpoint, nullptr, buffer.data(), bytes, 0, MCA_BTL_NO_ORDER,
                       prompt_flags, btl_tag, nullptr) == OPAL_SUCCESS) {
        engine.sent(what, present);
        return true;
    }
    mca_btl_base_descriptor_t *des =
        btl->btl_alloc(btl, path.endpoint, MCA_BTL_NO_ORDER, bytes, prompt_flags);
    if (des == nullptr) {
        return false;
    }
    mca::take_over(des);
    std::memcpy(front(des), buffer.data(), bytes);
    if (path.gathers) {
        if (!give_gathered(path, des)) {
            return false; // not sent, so that nobody waits for what it would bring
        }
        engine.sent(what, present);
        return true;
    }
    des->des_cbfunc = control_complete;
    des->des_cbdata = &path;
    engine.sent(what, present);
    mca::hand_over(des);
    __atomic_store_n(&path.control, Control::in_call, __ATOMIC_RELAXED);
    lock.unlock();
    const int rc = give(path, des);
    lock.lock();
    if (OPAL_UNLIKELY(rc == OPAL_ERR_OUT_OF_RESOURCE)) {
        btl->btl_free(btl, des); // it was not taken: lost, as on the wire
        engine.blocked(what.path);
    } else if (OPAL_UNLIKELY(rc < 0 && rc != OPAL_ERR_RESOURCE_BUSY)) {
        path.note_error(); // the descriptor may hang in the BTL's lists: it is left there
        if (path.tcp != nullptr && refused_control(path, *des)) {
            btl->btl_free(btl, des);
        }
    }
    __atomic_store_n(&path.control, Control::none, __ATOMIC_RELAXED);
    return true;
}

bool PeerState::transmit_fragment(BtlPath &path, reliability::Transmit &what,
                                  base::Time present) noexcept
{
    auto *tx = static_cast<TxVfrag *>(what.choice.vfrag->user);
    reliability::FragHeader &header = what.header;
    const unsigned index = what.choice.index;
    const std::uint32_t payload = header.payload_bytes;
    const std::byte *bytes = tx->bytes + tx->vfrag.offset_of(index);
    mca_btl_base_module_t *btl = path.btl;

    if (tx->room != nullptr) {
        if (OPAL_UNLIKELY(tx->form != reliability::Form::full)) {
            TxPools::spread(*tx); // sent again: it goes any way there is
            bytes = tx->bytes;
        }
        header.upper_bytes = tx->upper_bytes;
        const reliability::FragmentRecord &record = tx->vfrag.fragments[0];
        if (OPAL_UNLIKELY(what.choice.retransmission) &&
            record.reason == reliability::LossReason::broken) {
            tx->in_vain = static_cast<std::uint8_t>(record.tries - record.held);
        }
    } else {
        header.upper_bytes = data_bytes;
    }
    Rescued rescued;
    if (OPAL_UNLIKELY(what.choice.retransmission) && may_be_gone(*tx)) {
        rescued = rescue({bytes, payload});
        bytes = rescued.bytes.get();
        if (bytes == nullptr) {
            return false;
        }
    }
    const std::size_t front_bytes = header_bytes + header.upper_bytes;
    const std::size_t total = front_bytes + payload;
    const bool sums = path.checksum && payload != 0;
    bool summed = tx->crc_known;
    const auto note_sum = [&](std::uint32_t crc) {
        tx->payload_crc = crc;
        tx->crc_known = tx->vfrag.ordered; // of which this is the only fragment
        summed = true;
    };
    const std::span from(bytes, payload);
    const auto copy = [&](std::byte *to) {
        if (sums && !summed) {
            note_sum(path.shared
                         ? base::copy_crc32c_shared({to, payload}, from, base::Summed::source)
                         : base::copy_crc32c({to, payload}, from));
        } else if (path.shared) {
            base::copy_by_vectors(to, from);
        } else {
            std::memcpy(to, bytes, payload);
        }
    };
    const auto copy_past_caches = [&](std::byte *to) {
        if (sums && !summed) {
            note_sum(base::copy_crc32c_past_caches({to, payload}, from));
        } else {
            base::copy_past_caches(to, from);
        }
    };
    const auto sum = [&] {
        if (OPAL_UNLIKELY(rescued.gone)) {
            // The receiver has it, and answers to its number. If the program was wrong and it has
            // not, nothing takes this for the message.
            header.flags |= reliability::flag_payload_checksummed;
            header.payload_crc = ~base::crc32c(from);
            return;
        }
        if (!sums) {
            return;
        }
        if (!summed) {
            note_sum(base::crc32c({bytes, payload}));
        }
        header.flags |= reliability::flag_payload_checksummed;
        header.payload_crc = tx->payload_crc;
    };

    if (tx->room != nullptr && total <= path.sendi_bytes) {
        sum();
        write_front(header, {tx->room, front_bytes});
        if (btl->btl_sendi(btl, path.endpoint, nullptr, tx->room, total, 0, MCA_BTL_NO_ORDER,
                           prompt_flags, btl_tag, nullptr) == OPAL_SUCCESS) {
            engine.sent(what, present, true);
            return true;
        }
    }

    Descriptor *held = path.gathers ? nullptr : new_descriptor();
    if (held == nullptr && !path.gathers) {
        return false;
    }
    mca_btl_base_descriptor_t *des = nullptr;
    if (path.in_place && payload >= in_place_from && rescued.bytes == nullptr &&
        (!what.choice.retransmission || lost_in_stream(tx->vfrag.fragments[index], path) ||
         OPAL_UNLIKELY(parameters().disable.copies))) {
        opal_convertor_t convertor;
        OBJ_CONSTRUCT(&convertor, opal_convertor_t);
        opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &ompi_mpi_byte.dt.super,
                                                 payload, bytes, 0, &convertor);
        std::size_t size = payload;
        des = btl->btl_prepare_src(btl, path.endpoint, &convertor, MCA_BTL_NO_ORDER, front_bytes,
                                   &size, prompt_flags);
        OBJ_DESTRUCT(&convertor);
        FT_ASSERT(des == nullptr || size == payload);
    } else {
        const bool rests = path.vader && total > btl->btl_eager_limit;
        Resting::Buffer buffer;
        if (rests) {
            buffer = resting.get(btl, path.endpoint, total, prompt_flags);
            des = buffer.des;
        } else {
            des = btl->btl_alloc(btl, path.endpoint, MCA_BTL_NO_ORDER, total, prompt_flags);
        }
        if (des != nullptr && rests) {
            // The first copy into a page waits for the kernel, not for another core.
            const CopyWay::Next next = buffer.used_before ? path.copy_way.next() : CopyWay::Next{};
            std::byte *const to = front(des) + front_bytes;
            if (OPAL_UNLIKELY(next.timed)) {
                const base::Time before = now();
                base::copy_by_vectors(to, from);
                path.copy_way.took(payload, now() - before);
            } else if (next.past_caches) {
                copy_past_caches(to);
            } else {
                copy(to);
            }
        } else if (des != nullptr && payload != 0) {
            copy(front(des) + front_bytes);
        }
    }
    if (OPAL_UNLIKELY(des == nullptr)) {
        if (path.vader) {
            peers().note_starved();
        }
        if (held != nullptr) {
            release(held);
        }
        return false;
    }
    mca::take_over(des);
    if (path.vader) {
        if (VaderFragment *const fragment = VaderFragment::of(*des); fragment != nullptr) {
            fragment->mark();
        }
    }
    sum();
    std::byte *upper = front(des) + header_bytes;
    if (OPAL_LIKELY(tx->room == nullptr)) {
        write_data(tx->remote_request, tx->message_offset + tx->vfrag.offset_of(index),
                   std::span<std::byte, data_bytes>(upper, data_bytes));
    } else {
        std::memcpy(upper, tx->room + header_bytes, header.upper_bytes);
    }
    write_front(header, {front(des), front_bytes});
    if (path.gathers) {
        if (!give_gathered(path, des)) {
            return false;
        }
        engine.sent(what, present, true);
        return true;
    }
    des->des_cbfunc = fragment_complete;
    des->des_cbdata = held;
    held->path = &path;
    held->des = des;
    held->tx = tx;
    held->index = static_cast<std::uint8_t>(index);
    held->sent_at = present;
    engine.sent(what, present);
    path.held.push_back(held);
    hand_over(path, des, held, present);
    return true;
}

unsigned PeerState::transmit_run(BtlPath &path, reliability::Transmit &first, unsigned count,
                                 base::Time present) noexcept
{
    const auto &tx = *static_cast<const TxVfrag *>(first.choice.vfrag->user);
    reliability::FragHeader &header = first.header;
    const reliability::Vfrag &vfrag = tx.vfrag;
    mca_btl_base_module_t *btl = path.btl;
    constexpr std::size_t front_bytes = header_bytes + data_bytes;
    header.upper_bytes = data_bytes;
    if (path.checksum) {
        header.flags |= reliability::flag_payload_checksummed;
    }
    const std::uint32_t first_tx = header.tx;
    unsigned went = 0;
    for (; went < count; ++went) {
        const unsigned index = first.choice.index + went;
        const std::uint64_t offset = vfrag.offset_of(index);
        const std::uint32_t payload = vfrag.bytes_of(index);
        mca_btl_base_descriptor_t *des = btl->btl_alloc(btl, path.endpoint, MCA_BTL_NO_ORDER,
                                                        front_bytes + payload, prompt_flags);
        if (OPAL_UNLIKELY(des == nullptr)) {
            break;
        }
        mca::take_over(des);
        std::byte *const to = front(des);
        const std::span<std::byte> place(to + front_bytes, payload);
        if (path.checksum) {
            header.payload_crc = base::copy_crc32c(place, {tx.bytes + offset, payload});
        } else {
            std::memcpy(place.data(), tx.bytes + offset, payload);
        }
        header.index = static_cast<std::uint8_t>(index);
        header.tx = first_tx + went;
        header.payload_bytes = payload;
        write_data(tx.remote_request, tx.message_offset + offset,
                   std::span<std::byte, data_bytes>(to + header_bytes, data_bytes));
        write_front(header, {to, front_bytes});
        if (OPAL_UNLIKELY(!give_gathered(path, des))) {
            break;
        }
    }
    header.tx = first_tx; // what the engine is told is the first one's
    header.payload_bytes = vfrag.bytes_of(first.choice.index);
    if (OPAL_LIKELY(went != 0)) {
        engine.sent_run(first, went, present);
    }
    return went;
}

bool PeerState::give_gathered(BtlPath &path, mca_btl_base_descriptor_t *des) noexcept
{
    des->des_cbfunc = control_complete; // btl/fault may still have something to tell
    des->des_cbdata = &path;
    mca::hand_over(des);
    const int rc = path.btl->btl_send(path.btl, path.endpoint, des, btl_tag);
    if (OPAL_UNLIKELY(rc < 0 && rc != OPAL_ERR_RESOURCE_BUSY)) {
        if (rc != OPAL_ERR_OUT_OF_RESOURCE) {
            path.note_error();
        }
        path.btl->btl_free(path.btl, des);
        return false;
    }
    path.unflushed = true;
    return true;
}

void PeerState::hand_over(BtlPath &path, mca_btl_base_descriptor_t *des, Descriptor *held,
                          base::Time present) noexcept
{
    path.unflushed = path.gathers;
    held->in_call = true;
    held->returned = held->in_vain = false;
    mca::hand_over(held);
    mca::hand_over(des);
    lock.unlock();
    const int rc = give(path, des);
    lock.lock();
    held->in_call = false;
    if (rc == OPAL_ERR_OUT_OF_RESOURCE && !held->returned) {
        path.stuck = des; // still ours
        path.stuck_record = held;
        held->retry_at = path.retry.refused(present);
        return;
    }
    path.retry.over();
    const bool failed = rc < 0 && rc != OPAL_ERR_RESOURCE_BUSY;
    bool kept = false;
    if (OPAL_UNLIKELY(failed)) {
        path.note_error(); // the descriptor may hang in the BTL's lists: it is left there
        if (path.tcp != nullptr && !held->returned) {
            // btl/tcp that cannot connect keeps it for the next connection, and calls back then.
            kept = !TcpEndpoint::refused(*des);
            if (!kept) {
                path.btl->btl_free(path.btl, des);
            }
        }
    }
    if (rc == 1 || (failed && !kept) || held->returned) {
        descriptor_done(held, present, !failed && !held->in_vain);
    }
}

void PeerState::flush_paths() noexcept
{
    for (auto &path : paths) {
        if (OPAL_UNLIKELY(path->unflushed)) {
            path->unflushed = false;
            if (!path->removed) {
                path->btl->btl_flush(path->btl, path->endpoint);
            }
        }
    }
}

void PeerState::retry_stuck(base::Time present) noexcept
{
    if (transmitting_) {
        return;
    }
    for (auto &path : paths) {
        if (path->stuck == nullptr) {
            continue;
        }
        mca_btl_base_descriptor_t *des = path->stuck;
        Descriptor *held = path->stuck_record;
        const bool unwanted = held->tx == nullptr || path->removed;
        if (!unwanted &&
            (present < held->retry_at ||
             (path->tcp != nullptr && path->tcp->closed() && !may_connect(*path, present)))) {
            continue;
        }
        path->stuck = nullptr;
        path->stuck_record = nullptr;
        if (unwanted) {
            path->btl->btl_free(path->btl, des);
            descriptor_done(held, present, false);
            continue;
        }
        transmitting_ = true;
        hand_over(*path, des, held, present);
        transmitting_ = false;
    }
}

} // namespace ft::dr
