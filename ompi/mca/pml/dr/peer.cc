#include "ompi/mca/pml/dr/peer.hpp"

#include <algorithm>
#include <utility>

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/in_list.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/process_window.hpp"
#include "ompi/mca/pml/dr/resting.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "ompi/mca/pml/dr/vader_fragment.hpp"
#include "ompi/mpi_ft/mpi_ft.h"
#include "opal/ft/base/assert.hpp"
#include "opal/mca/hand_over.hpp"

namespace ft::dr {

namespace {

/// Bytes of a scattered message that are packed at a time.
constexpr std::uint64_t packed_at_most = 512 * 1024;
/// No basic type of MPI is longer.
constexpr std::uint64_t largest_element = 64;

} // namespace

PeerState::PeerState(ompi_proc_t *process, reliability::Name own_name)
    : engine(parameters().engine, own_name), proc(process), name_(process->super.proc_name)
{
}

bool PeerState::idle() const noexcept
{
    return engine.quiet() && waiting_ == nullptr && pending.empty() && data.empty() &&
           leaving.empty() && sends.empty() && receives.empty();
}

std::size_t PeerState::bytes() const noexcept
{
    Guard guard(lock);
    return sizeof *this + engine.allocated_bytes() + sends.allocated_bytes() +
           receives.allocated_bytes() + paths.capacity() * sizeof paths[0] +
           paths.size() * sizeof(BtlPath);
}

bool PeerState::owes_freed_send(int processes) noexcept
{
    const auto counts = [processes](const SendRequest &request) {
        const ompi_communicator_t *comm = request.req_base.req_comm;
        const int own = comm->c_local_group->grp_proc_count;
        return request.life.was_freed() &&
               (own + comm->c_remote_group->grp_proc_count == processes ||
                (!OMPI_COMM_IS_INTER(comm) && own == processes));
    };
    for (SendRequest *request = pending.front(); request != nullptr;
         request = pending.next(request)) {
        if (counts(*request)) {
            return true;
        }
    }
    for (SendRequest *request = data.front(); request != nullptr; request = data.next(request)) {
        if (counts(*request)) {
            return true;
        }
    }
    return sends.any(counts);
}

bool PeerState::tell_taken(base::Time present) noexcept
{
    if (eager_taken == eager_told || error != MPI_SUCCESS) {
        return false;
    }
    UpperHeader upper;
    upper.kind = MessageKind::credit;
    upper.consumed = eager_taken;
    TxOrdered *tx = pools().get_ordered(upper, 0);
    if (tx == nullptr) {
        return false; // with the next message
    }
    eager_told = eager_taken;
    submit(tx, present);
    return true;
}

namespace {

/// The receiver takes it without help of this process. In a list it waits for room in the
/// receiver's fast box, which vader still looks for.
bool in_receivers_hands(const Descriptor &held) noexcept
{
    return held.path->vader && !held.in_call && held.des != held.path->stuck && !in_list(*held.des);
}

} // namespace

bool PeerState::has_left(const TxVfrag &tx) const noexcept
{
    const reliability::FragmentRecord &record = tx.vfrag.fragments[0];
    if (record.tries - record.held > tx.in_vain) {
        return true;
    }
    return std::ranges::any_of(paths, [&tx](const auto &path) {
        for (Descriptor *held = path->held.front(); held != nullptr; held = path->held.next(held)) {
            if (held->tx == &tx && in_receivers_hands(*held)) {
                return true;
            }
        }
        return false;
    });
}

template <class Which>
bool PeerState::holds_ordered(Which which) const noexcept
{
    if (engine.drained()) {
        return false;
    }
    for (const auto &path : paths) {
        for (Descriptor *held = path->held.front(); held != nullptr; held = path->held.next(held)) {
            if (held->tx != nullptr && held->tx->vfrag.ordered && !in_receivers_hands(*held) &&
                which(held->tx->vfrag) && !has_left(*held->tx)) {
                return true;
            }
        }
    }
    return false;
}

bool PeerState::behind() const noexcept
{
    Guard guard(lock);
    return OPAL_UNLIKELY(engine.has_unsent_ordered()) ||
           holds_ordered([](const reliability::Vfrag & /*any*/) { return true; });
}

bool PeerState::behind(std::uint32_t order) const noexcept
{
    return engine.has_unsent_ordered(order) ||
           holds_ordered([order](const reliability::Vfrag &vfrag) {
               return reliability::serial_diff(vfrag.order(), order) <= 0;
           });
}

void PeerState::started(SendRequest &request, Completions &done) noexcept
{
    if (request.number != 0) {
        return; // a rendezvous: its receiver ends it
    }
    if (request.req_send_mode == MCA_PML_BASE_SEND_BUFFERED) {
        finish(request, MPI_SUCCESS, done);
    } else {
        leaving.push_back(&request);
    }
}

void PeerState::let_go(Completions &done) noexcept
{
    while (!leaving.empty() && !behind(leaving.front()->order)) {
        finish(*leaving.pop_front(), MPI_SUCCESS, done);
    }
}

void PeerState::ping_if_silent(base::Duration interval, base::Time present) noexcept
{
    // What is under way over a communicator that both have let go is still waited for.
    const bool parted = parted_ && sends.empty() && receives.empty();
    if (engine.unreachable() || !engine.drained() || waiting_ != nullptr || parted ||
        present - std::max(last_heard, last_ping_) < interval) {
        return;
    }
    last_ping_ = present;
    UpperHeader upper;
    upper.kind = MessageKind::ping;
    if (TxOrdered *tx = pools().get_ordered(upper, 0); tx != nullptr) {
        tx->vfrag.wants_answer = true;
        submit(tx, present);
    }
}

const char *PeerState::printed_name() const noexcept
{
    return OMPI_NAME_PRINT(&name_);
}

PathId PeerState::arrival_path(const mca_btl_base_module_t *btl) const noexcept
{
    for (const auto &path : paths) {
        if (path->btl == btl) {
            return path->id;
        }
    }
    return reliability::no_path;
}

void PeerState::submit(TxOrdered *tx, base::Time present) noexcept
{
    if (waiting_ == nullptr && engine.has_room(tx->vfrag.length, true)) {
        engine.submit(tx->vfrag, present);
        return;
    }
    tx->next = nullptr;
    (waiting_ == nullptr ? waiting_ : waiting_tail_->next) = tx;
    waiting_tail_ = tx;
}

void PeerState::fill_window(base::Time present, Completions &done) noexcept
{
    if (engine.unreachable()) {
        return;
    }
    while (waiting_ != nullptr && engine.has_room(waiting_->vfrag.length, true)) {
        TxVfrag *tx = waiting_;
        waiting_ = tx->next;
        engine.submit(tx->vfrag, present);
    }
    while (!pending.empty() && waiting_ == nullptr) {
        if (!start_on_wire(*pending.front(), present)) {
            break;
        }
        started(*pending.pop_front(), done);
    }
    // One VFRAG of each long message in turn.
    while (!data.empty()) {
        SendRequest &request = *data.front();
        if (!open_data(request, present)) {
            break;
        }
        data.pop_front();
        if (request.opened < request.end) {
            data.push_back(&request);
        }
    }
}

bool PeerState::open_data(SendRequest &request, base::Time present) noexcept
{
    const std::uint64_t fragment = engine.fragment_bytes();
    if (fragment == 0) {
        return false;
    }
    std::uint64_t length =
        std::min(request.end - request.opened, fragment * reliability::max_fragments);
    // Several VFRAGs fit into the window, so that it never empties while one is acknowledged.
    const std::uint64_t quarter = parameters().engine.window_bytes / 4 / fragment * fragment;
    length = std::min(length, std::max(quarter, fragment));
    if (request.base == nullptr) {
        length = std::min(length, std::max(packed_at_most / fragment * fragment, fragment));
    }
    length = process_window.room(length, fragment, engine.sender().window_bytes() == 0);
    if (length == 0 || !engine.has_room(length, false)) {
        return false;
    }
    TxData *tx = pools().get_data();
    if (tx == nullptr) {
        return false;
    }
    if (request.base != nullptr) {
        tx->bytes = request.base + request.opened;
    } else {
        // A receiver's buffer may end inside an element, and elements are packed whole.
        const std::uint64_t rest = request.req_bytes_packed - request.opened;
        const std::uint64_t wanted = std::min(length + largest_element, rest);
        const bool last = request.opened + length == request.end;
        tx->packed = static_cast<std::byte *>(std::malloc(wanted));
        const std::size_t packed =
            tx->packed == nullptr ? 0 : pack(request, tx->packed, last ? wanted : length);
        if (packed == 0) {
            pools().put(tx);
            return false;
        }
        tx->bytes = tx->packed;
        length = std::min<std::uint64_t>(length, packed);
    }
    tx->request = &request;
    tx->message_offset = request.opened;
    tx->remote_request = request.remote;
    tx->vfrag.length = length;
    tx->vfrag.fragment_bytes = static_cast<std::uint32_t>(std::min(fragment, length));
    tx->vfrag.fragments = {tx->records,
                           reliability::Vfrag::count_for(length, tx->vfrag.fragment_bytes)};
    process_window.add(length);
    engine.submit(tx->vfrag, present);
    request.opened += length;
    ++request.open_vfrags;
    return true;
}

void PeerState::collect_finished(Completions &done) noexcept
{
    while (reliability::Vfrag *vfrag = engine.next_finished()) {
        auto *tx = static_cast<TxVfrag *>(vfrag->user);
        const bool whole = vfrag->acknowledged();
        if (vfrag->descriptors_held() != 0) {
            orphan_descriptors(tx, whole);
        }
        SendRequest *request = tx->request;
        pools().put(tx);
        if (request == nullptr) {
            continue;
        }
        FT_ASSERT(request->open_vfrags > 0);
        --request->open_vfrags;
        const bool in_line = static_cast<Hook<DataTag> *>(request)->linked();
        if (request->open_vfrags == 0 && !in_line) {
            const int lost = error != MPI_SUCCESS ? error : MPIX_ERR_UNREACHABLE;
            finish(*request, whole ? MPI_SUCCESS : lost, done);
        }
    }
}

void PeerState::fail_sends(int code, Completions &done) noexcept
{
    collect_finished(done);
    while (waiting_ != nullptr) {
        TxVfrag *tx = waiting_;
        waiting_ = tx->next;
        pools().put(tx);
    }
    while (SendRequest *request = pending.pop_front()) {
        finish(*request, code, done);
    }
    while (SendRequest *request = leaving.pop_front()) {
        finish(*request, code, done);
    }
    while (SendRequest *request = data.pop_front()) {
        finish(*request, code, done);
    }
    for (SendRequest *request : sends.take_all()) {
        request->number = 0;
        finish(*request, code, done);
    }
}

void PeerState::orphan_descriptors(const TxVfrag *tx, bool whole) noexcept
{
    for (auto &path : paths) {
        bool any = false;
        for (Descriptor *held = path->held.front(); held != nullptr; held = path->held.next(held)) {
            if (held->tx == tx) {
                held->tx = nullptr;
                any = true;
            }
        }
        // The program has its buffer back, and may write it anew before this is read from there. A
        // sum of the payload would tell the receiver, should it go on after all.
        if (any && !whole && path->in_place && !path->checksum) {
            path->tcp->end_connection();
        }
    }
}

void PeerState::descriptor_done(Descriptor *descriptor, base::Time present, bool carried) noexcept
{
    List<Descriptor, DescriptorTag>::remove(descriptor);
    const PathId path = descriptor->path->id;
    if (descriptor->tx != nullptr) {
        if (!carried && descriptor->tx->in_vain != UINT8_MAX) {
            ++descriptor->tx->in_vain;
        }
        engine.locally_complete(descriptor->tx->vfrag, descriptor->index, path, descriptor->sent_at,
                                present, carried);
    } else {
        engine.descriptor_released(path, descriptor->sent_at);
    }
    release(descriptor);
}

void PeerState::take_back_abandoned(base::Time present) noexcept
{
    Guard guard(lock);
    for (auto &path : paths) {
        if (!path->vader) {
            continue;
        }
        Descriptor *after = nullptr;
        for (Descriptor *held = path->held.front(); held != nullptr; held = after) {
            after = path->held.next(held);
            if (!in_receivers_hands(*held)) {
                continue;
            }
            mca_btl_base_descriptor_t *const des = held->des;
            const VaderFragment *const fragment = VaderFragment::of(*des);
            if (fragment != nullptr && fragment->abandoned(btl_tag)) {
                descriptor_done(held, present, false);
                if ((des->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) == 0) {
                    resting.put(path->btl, des);
                } else {
                    mca::hand_over(des);
                    path->btl->btl_free(path->btl, des);
                }
            }
        }
    }
}

void PeerState::take_path_errors(base::Time present) noexcept
{
    for (auto &path : paths) {
        const Fault fault = path->known_fault();
        if (OPAL_LIKELY(fault == Fault::none && path->broken_since.is_never()) || path->removed ||
            (fault != Fault::final && renew(*path, present))) {
            continue;
        }
        if (OPAL_UNLIKELY(transmitting_)) {
            continue; // its endpoint is being used; who does that asks for another pass at the end
        }
        path->removed = true;
        stop_watching(*path);
        mca_bml.bml_del_proc_btl(proc, path->btl);
        engine.path_error(path->id, present);
    }
}

/// After a connection broke: the next fragment brings about another. \return false when that was
/// tried for too long
bool PeerState::renew(BtlPath &path, base::Time present) noexcept
{
    if (const unsigned connections = __atomic_load_n(&path.connections, __ATOMIC_ACQUIRE);
        connections != path.connections_met) {
        path.connections_met = connections;
        path.broken_since = base::Time::never();
        path.renewals = 0;
    }
    Fault known = path.known_fault();
    const bool broke = known == Fault::not_connected || known == Fault::connection;
    if (broke && parameters().reconnect == base::Duration::zero() && !engine.drained()) {
        return false;
    }
    if (engine.drained()) {
        path.broken_since = base::Time::never(); // nobody needs it: no hurry, and no verdict
    } else if (path.broken_since.is_never() ? broke : engine.paths().other_up(path.id)) {
        path.broken_since = present; // while another path is up there is no hurry either
    } else if (!path.broken_since.is_never() &&
               present - path.broken_since > parameters().reconnect) {
        return false;
    }
    if (!broke || (present < path.renew_at && !path.tcp->connected()) ||
        !take_unsent(path, present)) {
        return true; // and nothing is sent over a broken one meanwhile
    }
    constexpr std::uint8_t most_doublings = 6;
    path.renew_at = present + base::Duration::from_ms(std::int64_t{10} << path.renewals);
    path.renewals = std::min<std::uint8_t>(path.renewals + 1, most_doublings);
    if (!__atomic_compare_exchange_n(&path.fault, &known, Fault::none, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        return known != Fault::final;
    }
    if (engine.drained()) {
        return true;
    }
    if (known == Fault::not_connected) {
        // Two that connect to each other at once: btl/tcp of the lower rank turns the other's
        // connection down, which sees that before it has accepted the one that is to take its
        // place.
        engine.path_not_connected(path.id, present);
    } else {
        engine.path_replaced(path.id, present);
    }
    return true;
}

/// Takes back what btl/tcp was given and did not send. \return false while it is being given
bool PeerState::take_unsent(BtlPath &path, base::Time present) noexcept
{
    const auto take_back = [&](mca_btl_base_descriptor_t *des) {
        if (des->des_cbfunc == fragment_complete) {
            descriptor_done(static_cast<Descriptor *>(des->des_cbdata), present, false);
        }
        if (is_ours(*des)) {
            path.btl->btl_free(path.btl, des);
        }
    };
    if (mca_btl_base_descriptor_t *half = __atomic_load_n(&path.unsent, __ATOMIC_ACQUIRE);
        half != nullptr) {
        if (in_call(*half)) {
            return false;
        }
        take_back(half);
        __atomic_store_n(&path.unsent, nullptr, __ATOMIC_RELEASE);
    }
    // It would be sent with the next connection, but until there is one it would grow.
    bool stayed = false;
    while (mca_btl_base_descriptor_t *waiting = path.tcp->take_waiting(in_call, stayed)) {
        take_back(waiting);
    }
    return !stayed;
}

bool PeerState::progress(base::Time present, Completions &done) noexcept
{
    bool lost = false;
    {
        Guard guard(lock);
        take_path_errors(present);
        if (engine.next_deadline() <= present) {
            engine.on_time(present);
        }
        collect_finished(done);
        engine.unblock();
        retry_stuck(present);
        fill_window(present, done);
        let_go(done);
        if (!sends.empty() || !receives.empty()) {
            ping_if_silent(parameters().engine.probe_interval, present);
        }
        report_events();
        lost = engine.unreachable() && error == MPI_SUCCESS;
    }
    if (OPAL_UNLIKELY(lost)) {
        fail_peer(*this, MPIX_ERR_UNREACHABLE);
        peers().call_for_pass();
        return true;
    }
    transmit(present);
    Guard guard(lock);
    if (!engine.paths().any_trusted()) [[likely]] {
        return !idle();
    }
    // Where nothing is acknowledged there is nothing to do after a message. One that is taken out
    // of the list would be put there with the next, which asks for a pass each time.
    const auto so_far = static_cast<std::uint32_t>(engine.fragments_moved());
    return std::exchange(moved, so_far) != so_far || !idle();
}

bool PeerState::call_again_after_arrival() const noexcept
{
    if (OPAL_UNLIKELY(!engine.calm() || waiting_ != nullptr || !pending.empty() ||
                      !leaving.empty() || !data.empty())) {
        peers().call_for_pass();
        return true;
    }
    peers().call_for_pass_at(engine.answer_deadline());
    return false;
}

void PeerState::call_again() const noexcept
{
    bool now = (engine.unreachable() ? error == MPI_SUCCESS : !engine.calm()) ||
               waiting_ != nullptr || !pending.empty() || !leaving.empty() || !data.empty();
    base::Time when = engine.next_deadline();
    for (const auto &path : paths) {
        if (OPAL_UNLIKELY(path->stuck != nullptr)) {
            now = now || path->retry.at_once();
            when = std::min(when, path->stuck_record->retry_at);
        }
        if (OPAL_LIKELY(path->removed ||
                        (path->known_fault() == Fault::none && path->broken_since.is_never()))) {
            continue;
        }
        now = now || path->known_fault() != Fault::none;
        when = std::min(when, path->broken_since + parameters().reconnect);
    }
    if (now) {
        peers().call_for_pass();
        return;
    }
    if (!sends.empty() || !receives.empty()) {
        when =
            std::min(when, std::max(last_heard, last_ping_) + parameters().engine.probe_interval);
    }
    peers().call_for_pass_at(when);
}

void PeerState::report_events() noexcept
{
    reliability::PathEvent event;
    while (engine.next_event(event)) {
        if (parameters().verbose == 0) {
            continue;
        }
        timespec wall{};
        clock_gettime(CLOCK_REALTIME, &wall);
        std::tm parts{};
        localtime_r(&wall.tv_sec, &parts);
        std::fprintf(stderr, "pml/dr[rank %u] %02d:%02d:%02d.%06ld: peer %s path %s: %s -> %s\n",
                     peers().self().rank, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     wall.tv_nsec / 1000, printed_name(), paths[event.path]->name().c_str(),
                     reliability::to_string(event.from), reliability::to_string(event.to));
    }
}

} // namespace ft::dr
