#include "ompi/mca/pml/dr/comm.hpp"

#include <array>
#include <new>
#include <set>

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "opal/ft/base/lasting.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::dr {

namespace {

constexpr std::size_t small_payload = 192;
constexpr std::size_t medium_payload = 4096;
constexpr std::uint8_t from_system = 2;
struct alignas(64) Pools {
    BlockPool of_size[2];
};
base::Lasting<std::array<Pools, pool_shares>> unexpected_pools;

} // namespace

void set_up_unexpected() noexcept
{
    for (Pools &pools : unexpected_pools.object) {
        pools.of_size[0].set_up(sizeof(Unexpected) + small_payload, 64);
        pools.of_size[1].set_up(sizeof(Unexpected) + medium_payload, 16);
    }
}

void release_unexpected() noexcept
{
    unexpected_pools.renew();
}

Unexpected *keep(const Arrival &arrival) noexcept
{
    const std::size_t bytes = arrival.payload.size();
    std::uint8_t size_class = from_system;
    if (bytes <= small_payload) {
        size_class = 0;
    } else if (bytes <= medium_payload) {
        size_class = 1;
    }
    const std::uint8_t share = arrival.peer == nullptr ? 0 : arrival.peer->share;
    void *memory = size_class == from_system
                       ? std::malloc(sizeof(Unexpected) + bytes)
                       : unexpected_pools.object[share].of_size[size_class].get();
    if (memory == nullptr) {
        return nullptr;
    }
    auto *message = new (memory) Unexpected;
    message->arrival = arrival;
    message->size_class = size_class;
    message->share = share;
    if (bytes != 0) {
        auto *copy = reinterpret_cast<std::byte *>(message + 1);
        std::memcpy(copy, arrival.payload.data(), bytes);
        message->arrival.payload = {copy, bytes};
    }
    return message;
}

void release(Unexpected *message) noexcept
{
    if (message->size_class == from_system) {
        std::free(message);
    } else {
        unexpected_pools.object[message->share].of_size[message->size_class].put(message);
    }
}

void forget(Unexpected *message) noexcept
{
    const Arrival &arrival = message->arrival;
    if (arrival.unasked() && ompi_mpi_state < OMPI_MPI_STATE_FINALIZE_STARTED) {
        bool credit = false;
        {
            Guard guard(arrival.peer->lock);
            credit = arrival.peer->take_eager(arrival.payload.size(), now());
        }
        if (credit) {
            peers().mark_busy(*arrival.peer);
        }
    }
    release(message);
}

CommState::CommState(ompi_communicator_t *comm)
    : comm_(comm), sources_(static_cast<std::size_t>(comm->c_remote_group->grp_proc_count))
{
}

CommState::~CommState()
{
    while (Unexpected *message = all_unexpected_.front()) {
        take(message);
        forget(message);
    }
}

CommState::Source *CommState::source(int rank) noexcept
{
    auto &entry = sources_[static_cast<std::size_t>(rank)];
    if (!entry) {
        entry.reset(new (std::nothrow) Source);
    }
    return entry.get();
}

RecvRequest *CommState::match(int source_rank, int tag) noexcept
{
    const auto first = [&](List<RecvRequest, PostedTag> &list) {
        RecvRequest *request = list.front();
        while (request != nullptr && !tag_matches(request->req_base.req_tag, tag)) {
            request = list.next(request);
        }
        return request;
    };
    const auto &entry = sources_[static_cast<std::size_t>(source_rank)];
    RecvRequest *best = entry ? first(entry->posted) : nullptr;
    if (!any_source_.empty()) {
        RecvRequest *any = first(any_source_);
        if (any != nullptr && (best == nullptr || any->order < best->order)) {
            best = any;
        }
    }
    if (best != nullptr) {
        List<RecvRequest, PostedTag>::remove(best);
    }
    return best;
}

void CommState::add(Unexpected *message) noexcept
{
    Source *from = source(message->arrival.source);
    if (from == nullptr) {
        // No memory for a list head: as if the message had not been kept. Nothing was acknowledged
        // above the engine, so say so loudly rather than lose it.
        ft::mca::show_help("help-pml-dr.txt", "no memory", "an unexpected message");
        ompi_mpi_abort(comm_, MPI_ERR_NO_MEM);
    }
    from->unexpected.push_back(message);
    all_unexpected_.push_back(message);
}

Unexpected *CommState::find(int source_rank, int tag) noexcept
{
    if (source_rank == OMPI_ANY_SOURCE) {
        const bool some_ignored = !trouble.recognised.empty();
        const auto wanted = [&](const Arrival &arrival) {
            return tag_matches(tag, arrival.tag) &&
                   !(some_ignored && trouble.ignores(arrival.source, arrival.tag));
        };
        Unexpected *message = all_unexpected_.front();
        while (message != nullptr && !wanted(message->arrival)) {
            message = all_unexpected_.next(message);
        }
        return message;
    }
    const auto &entry = sources_[static_cast<std::size_t>(source_rank)];
    if (!entry) {
        return nullptr;
    }
    Unexpected *message = entry->unexpected.front();
    while (message != nullptr && !tag_matches(tag, message->arrival.tag)) {
        message = entry->unexpected.next(message);
    }
    return message;
}

void CommState::take(Unexpected *message) noexcept
{
    List<Unexpected, FromSourceTag>::remove(message);
    List<Unexpected, FromAllTag>::remove(message);
}

bool CommState::post(RecvRequest *request) noexcept
{
    request->order = next_order_++;
    if (request->req_base.req_peer == OMPI_ANY_SOURCE) {
        any_source_.push_back(request);
        return true;
    }
    Source *from = source(request->req_base.req_peer);
    if (from == nullptr) {
        return false;
    }
    from->posted.push_back(request);
    return true;
}

bool CommState::withdraw(RecvRequest *request) noexcept
{
    if (!static_cast<Hook<PostedTag> *>(request)->linked()) {
        return false;
    }
    List<RecvRequest, PostedTag>::remove(request);
    return true;
}

void CommState::take_posted(int rank, std::vector<RecvRequest *> &into)
{
    const auto &entry = sources_[static_cast<std::size_t>(rank)];
    while (entry && !entry->posted.empty()) {
        into.push_back(entry->posted.pop_front());
    }
}

void CommState::take_posted_any(std::vector<RecvRequest *> &into)
{
    while (!any_source_.empty()) {
        into.push_back(any_source_.pop_front());
    }
}

Comms all_comms;

int Comms::add(ompi_communicator_t *comm) noexcept
try {
    auto state = std::make_unique<CommState>(comm);
    List<Unexpected, FromAllTag> misfits; // to forget one a peer's lock is taken
    {
        // Whoever finds the CommState from now on waits for its lock, so that what came before the
        // communicator was known is matched first.
        Guard matching(state->lock);
        Guard orphans(orphans_lock_);
        __atomic_store_n(&comm->c_pml_comm, reinterpret_cast<mca_pml_comm_t *>(state.get()),
                         __ATOMIC_RELEASE);
        for (Unexpected *message = orphans_.front(); message != nullptr;) {
            Unexpected *after = orphans_.next(message);
            if (message->arrival.context == comm->c_contextid) {
                List<Unexpected, FromAllTag>::remove(message);
                if (message->arrival.source >= 0 && message->arrival.source < state->size()) {
                    state->add(message);
                } else {
                    misfits.push_back(message);
                }
            }
            message = after;
        }
    }
    while (Unexpected *message = misfits.pop_front()) {
        dr::forget(message);
    }
    {
        Guard guard(list_lock_);
        all_.push_back(state.release());
    }
    peers().meet(comm);
    return OMPI_SUCCESS;
} catch (...) {
    return OMPI_ERR_OUT_OF_RESOURCE;
}

std::map<ProcessKey, unsigned> Comms::held()
{
    // Open MPI makes it for its own use, and it goes with the intercommunicator.
    std::set<const ompi_communicator_t *> own_groups;
    for_each([&](const CommState &state) {
        if (const ompi_communicator_t *comm = state.communicator(); OMPI_COMM_IS_INTER(comm)) {
            own_groups.insert(comm->c_local_comm);
        }
    });
    std::map<ProcessKey, unsigned> held;
    const auto count = [&](ompi_group_t *group) {
        for (int rank = 0; rank < group->grp_proc_count; ++rank) {
            const ProcessKey who = key_of(ompi_group_get_proc_name(group, rank));
            if (who.first != OMPI_PROC_MY_NAME->jobid) {
                ++held[who];
            }
        }
    };
    for_each([&](const CommState &state) {
        const ompi_communicator_t *comm = state.communicator();
        if (own_groups.contains(comm)) {
            return;
        }
        count(comm->c_remote_group);
        if (comm->c_local_group != comm->c_remote_group) {
            count(comm->c_local_group);
        }
    });
    return held;
}

int Comms::remove(ompi_communicator_t *comm) noexcept
{
    CommState *state = CommState::of(comm);
    if (state == nullptr) {
        return OMPI_SUCCESS;
    }
    {
        Guard guard(list_lock_);
        List<CommState, CommState>::remove(state);
    }
    peers().let_go(comm);
    __atomic_store_n(&comm->c_pml_comm, nullptr, __ATOMIC_RELEASE);
    if (several_threads()) {
        // Another thread may have found it for something that has come, a late copy of what was
        // received long ago for one. It has the lock of that peer until it is done.
        peers().for_each([](PeerState &peer) { const Guard guard(peer.lock); });
    }
    delete state;
    return OMPI_SUCCESS;
}

CommState *Comms::find_or_keep(const Arrival &arrival) noexcept
{
    if (CommState *state = find(arrival.context); OPAL_LIKELY(state != nullptr)) {
        return state;
    }
    Guard guard(orphans_lock_);
    if (CommState *state = find(arrival.context); state != nullptr) {
        return state;
    }
    if (Unexpected *message = keep(arrival); message != nullptr) {
        orphans_.push_back(message);
    } else {
        ft::mca::show_help("help-pml-dr.txt", "no memory", "an unexpected message");
        ompi_mpi_abort(&ompi_mpi_comm_world.comm, MPI_ERR_NO_MEM);
    }
    return nullptr;
}

void Comms::release() noexcept
{
    while (Unexpected *message = orphans_.pop_front()) {
        dr::release(message);
    }
}

} // namespace ft::dr
