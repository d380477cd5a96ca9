#include "ompi/mca/pml/dr/btl_path.hpp"

#include <atomic>
#include <cstring>

#include "ompi/mca/pml/dr/added_peers.hpp"
#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/fragment_size.hpp"
#include "ompi/mca/pml/dr/ofi_errors.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peer_limits.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/resting.hpp"
#include "ompi/mca/pml/dr/watched.hpp"
#include "opal/ft/base/lasting.hpp"
#include "opal/mca/hand_over.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/mca/unreliable.hpp"

namespace ft::dr {

namespace {

constexpr std::size_t least_payload = 64;

base::Lasting<BlockPool> the_descriptors;
constinit BlockPool &descriptors = the_descriptors.object;

/// Paths over btl/tcp, looked at in turn.
struct Watch {
    Mutex lock; ///< behind a peer's, before that of who is busy
    Watched<BtlPath> paths;
    std::atomic<bool> some{false}; ///< there were paths once
    bool by_turns = false;         ///< the event loop comes back after each turn, for good
};
base::Lasting<Watch> the_watch;
constinit Watch &watch = the_watch.object;

/// btl/tcp forgets what it fails when it closes a broken connection.
void free_failed(const BtlPath &path, mca_btl_base_descriptor_t *des) noexcept
{
    if (path.tcp != nullptr && path.tcp->failing()) {
        // The peer's next connection may take this one's place before the next pass: by then the
        // endpoint must not hold on to what is freed here.
        path.tcp->forget_send();
        path.btl->btl_free(path.btl, des);
    }
}

/// MPI_Init lets the event loop go on until nothing is left to do. A connection that breaks, the
/// peer's next one, and the first bytes over it could all be met in one call of it then, with
/// nobody in between who tidies up.
void take_turns() noexcept
{
    if (OPAL_LIKELY(!parameters().disable.turns)) {
        opal_progress_set_event_flag(OPAL_EVLOOP_ONCE | OPAL_EVLOOP_NONBLOCK);
    }
    watch.by_turns = ompi_mpi_state >= OMPI_MPI_STATE_INIT_COMPLETED; // it is set within MPI_Init
}

void note_lost_connection(BtlPath &path) noexcept
{
    path.note_lost_connection();
    peers().mark_busy(*path.peer);
}

mca_btl_base_descriptor_t *take_half_received(const BtlPath &path) noexcept
{
    return OPAL_UNLIKELY(parameters().disable.leftovers) ? nullptr : path.tcp->take_half_received();
}

/// Of a closed connection. \return the fragment that was being received
mca_btl_base_descriptor_t *take_leftovers(BtlPath &path) noexcept
{
    mca_btl_base_descriptor_t *half = take_half_received(path);
    mca_btl_base_descriptor_t *unsent = path.tcp->take_half_sent();
    if (unsent != nullptr && is_ours(*unsent)) {
        __atomic_store_n(&path.unsent, unsent, __ATOMIC_RELEASE);
    }
    if (path.seen_socket >= 0 || unsent != nullptr || path.tcp->has_waiting()) {
        path.seen_socket = -1;
        note_lost_connection(path);
    }
    return half;
}

/// With the lock of the watch. \param every_turn whether it was called since the last turn of the
/// event loop \return whether there is no connection, nor was one at the last look
bool look(BtlPath &path, bool every_turn) noexcept
{
    TcpEndpoint &tcp = *path.tcp;
    mca_btl_base_descriptor_t *half = nullptr;
    if (OPAL_LIKELY(tcp.connected())) {
        const int socket = tcp.socket();
        if (OPAL_LIKELY(socket == path.seen_socket)) {
            return false;
        }
        if (path.seen_socket >= 0 && every_turn) {
            // Closed, and the peer's next one accepted, within a turn: nothing was read since.
            half = take_half_received(path);
            note_lost_connection(path);
        }
        path.seen_socket = socket;
        __atomic_add_fetch(&path.connections, 1, __ATOMIC_RELEASE);
        tcp.keep_alive();
    } else if (path.seen_socket >= 0 || !tcp.at_rest()) {
        // If not now, what is left of the connection would meet the next one, whose socket may even
        // have the same number.
        tcp.leave_failed();
        if (tcp.closed()) {
            half = take_leftovers(path);
        }
    } else {
        return true;
    }
    if (half != nullptr) {
        path.btl->btl_free(path.btl, half);
    }
    return false;
}

/// The same in a pass. \return whether it can be put aside: no communicator is left with its peer,
/// whose end of the connection has gone, and who has ended most likely
bool look_in_turn(BtlPath &path, bool every_turn) noexcept
{
    return OPAL_UNLIKELY(look(path, every_turn)) && path.peer->parted();
}

const char *component_name(const mca_btl_base_module_t *btl) noexcept
{
    return btl->btl_component->btl_version.mca_component_name;
}

/// BTLs over shared memory say "in place" and copy all the same.
bool copies_anyway(const char *name) noexcept
{
    return std::strcmp(name, "vader") == 0 || std::strcmp(name, "sm") == 0 ||
           std::strcmp(name, "self") == 0;
}

/// A longer message is complete only when it is acknowledged, and the acknowledgement is a fragment
/// of its own: some microsecond, in which so much more is copied than in vader's 4 KiB.
constexpr std::size_t least_eager_through_memory = std::size_t{8} * 1024;
/// Of other BTLs. Beyond this btl_sendi would only fall back to what we do ourselves.
constexpr std::size_t sendi_at_most = 1024;
/// Through shared memory all that is eager goes by btl_sendi: a descriptor would come back only
/// when the receiver has looked, and MPI_Send wait for that.
std::uint16_t sendi_limit(const mca_btl_base_module_t &btl, bool shared) noexcept
{
    const std::size_t most = shared ? btl.btl_eager_limit : sendi_at_most;
    return btl.btl_sendi == nullptr
               ? std::uint16_t{0}
               : static_cast<std::uint16_t>(std::min<std::size_t>(most, UINT16_MAX));
}

/// \param carried largest fragment that both ends can take, bytes
bool usable(const mca_bml_base_btl_t &candidate, std::size_t carried) noexcept
{
    const mca_btl_base_module_t *btl = candidate.btl;
    if (std::strcmp(component_name(btl), "ofi") == 0 && !ofi_errors_survived()) {
        return false;
    }
    if (carried < fragment_overhead + least_payload) {
        const std::string size = std::to_string(carried);
        const std::string needed = std::to_string(fragment_overhead + least_payload);
        const char *name = component_name(btl);
        ft::mca::show_help("help-pml-dr.txt", "fragment too large", name, size.c_str(),
                           needed.c_str(), name, name);
        return false;
    }
    return true;
}

} // namespace

std::string BtlPath::name() const
{
    unsigned index = 0;
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if (selected->btl_module == btl) {
            break;
        }
        if (selected->btl_module->btl_component == btl->btl_component) {
            ++index;
        }
    }
    return std::string(component_name(btl)) + "[" + std::to_string(index) + "]";
}

std::size_t eager_limit_of(const mca_btl_base_module_t &btl) noexcept
{
    const std::size_t its = std::max(btl.btl_eager_limit, fragment_overhead) - fragment_overhead;
    return copies_anyway(component_name(&btl)) ? std::max(its, least_eager_through_memory) : its;
}

bool is_ours(const mca_btl_base_descriptor_t &des) noexcept
{
    return des.des_cbfunc == fragment_complete || des.des_cbfunc == control_complete;
}

bool in_call(const mca_btl_base_descriptor_t &des) noexcept
{
    if (des.des_cbfunc == fragment_complete) {
        return static_cast<const Descriptor *>(des.des_cbdata)->in_call;
    }
    return des.des_cbfunc == control_complete &&
           __atomic_load_n(&static_cast<const BtlPath *>(des.des_cbdata)->control,
                           __ATOMIC_ACQUIRE) == Control::in_call;
}

void set_up_descriptors() noexcept
{
    descriptors.set_up(sizeof(Descriptor), 64);
}
void release_descriptors() noexcept
{
    the_descriptors.renew();
}
Descriptor *new_descriptor() noexcept
{
    void *memory = descriptors.get();
    return memory == nullptr ? nullptr : new (memory) Descriptor;
}
void release(Descriptor *descriptor) noexcept
{
    descriptors.put(descriptor);
}

bool add_paths(PeerState &peer, base::Time present)
{
    mca_bml_base_endpoint_t *endpoint = mca_bml_base_get_endpoint(peer.proc);
    if (endpoint == nullptr) {
        return false;
    }
    const BtlLimits limits = limits_of(peer.proc->super.proc_name);
    if (!limits.trusts()) {
        parameters().engine.seal_headers(); // for all: who does not ask for it does not mind
    }
    std::size_t eager = SIZE_MAX;
    std::size_t whole = SIZE_MAX; // what fits behind any upper header
    const std::size_t ways = mca_bml_base_btl_array_get_size(&endpoint->btl_send);
    peer.engine.expect_paths(ways);
    peer.paths.reserve(ways);
    for (std::size_t i = 0; i < ways; ++i) {
        const mca_bml_base_btl_t &way = *mca_bml_base_btl_array_get_index(&endpoint->btl_send, i);
        mca_btl_base_module_t *btl = way.btl;
        const std::size_t carried =
            std::min(btl->btl_max_send_size, limits.over(component_name(btl)));
        if (!usable(way, carried)) {
            continue;
        }
        auto path = std::make_unique<BtlPath>();
        path->peer = &peer;
        path->btl = btl;
        path->endpoint = way.btl_endpoint;
        path->shared = copies_anyway(component_name(btl));
        path->vader = std::strcmp(component_name(btl), "vader") == 0;
        path->sendi_bytes = sendi_limit(*btl, path->shared);
        peer.sends_at_once = peer.sends_at_once || path->sendi_bytes != 0;
        path->brief = path->shared && path->sendi_bytes != 0 &&
                      peer.proc->super.proc_name.jobid == OMPI_PROC_MY_NAME->jobid;
        // Without a look at its checksum nobody would know whether its numbers were foretold right.
        path->compressed = path->brief && !parameters().disable.checksum &&
                           OMPI_PROC_MY_NAME->vpid <= reliability::most_compressed_rank;
        peer.sends_brief = peer.sends_brief || path->brief;
        path->in_place = (btl->btl_flags & MCA_BTL_FLAGS_SEND_INPLACE) != 0 && !path->shared;
        path->gathers =
            (btl->btl_flags & mca::btl_flag_unreliable) != 0 && btl->btl_flush != nullptr;
        path->checksum = parameters().checksum_payload(component_name(btl));
        reliability::PathInfo info;
        // The BTLs say Mbit/s and, by habit, microseconds.
        info.bandwidth = std::max(btl->btl_bandwidth, 1U) / 8000.0;
        info.latency = base::Duration::from_us(btl->btl_latency);
        info.max_fragment_bytes = static_cast<std::uint32_t>(
            std::min<std::size_t>(carried - data_overhead, UINT32_MAX) & ~std::size_t{15});
        info.checksum_payload = path->checksum;
        info.acknowledged = parameters().acknowledged(component_name(btl));
        info.unreliable = (btl->btl_flags & mca::btl_flag_unreliable) != 0;
        info.in_memory = path->shared;
        info.keeps_order = std::strcmp(component_name(btl), "tcp") == 0; // a stream of bytes
        path->id = peer.engine.add_path(info, present);
        if (path->id == reliability::no_path) {
            break;
        }
        eager = std::min(eager, eager_limit_of(*btl));
        whole = std::min(whole, carried - fragment_overhead);
        peer.paths.push_back(std::move(path));
    }
    if (peer.paths.empty()) {
        return false;
    }
    for (auto &path : peer.paths) {
        // With several, what waits for a dead one has been acknowledged by way of another, and the
        // user's memory may be gone when it is written after all.
        path->in_place = path->in_place && (peer.paths.size() == 1 || parameters().disable.copies);
        path->tcp = TcpEndpoint::of(path->btl, path->endpoint);
        // Where nothing is summed, what goes on after its request has ended must be stopped.
        path->in_place = path->in_place && (path->checksum || path->tcp != nullptr);
        // A BTL may call back while it is given a descriptor, with locks of its own held: with
        // threads the peer's lock has to be let go before, as the long way does.
        if (path->tcp != nullptr && peer.engine.paths()[path->id].info.acknowledged &&
            !opal_using_threads()) {
            path->copies = true;
            peer.sends_at_once = true;
        }
    }
    if (parameters().eager_limit != 0) {
        eager = parameters().eager_limit;
    }
    peer.eager_limit = static_cast<std::uint32_t>(
        std::min({eager, whole, std::size_t{peer.engine.fragment_bytes()}, largest_tx_payload()}));
    return true;
}

bool any_watched() noexcept
{
    return watch.some.load(std::memory_order_relaxed);
}

void watch_connections() noexcept
{
    if (!any_watched()) {
        return;
    }
    Guard guard(watch.lock);
    if (OPAL_UNLIKELY(!watch.by_turns)) {
        take_turns();
    }
    const std::size_t before = watch.paths.used();
    watch.paths.pass(look_in_turn);
    if (OPAL_UNLIKELY(watch.paths.used() < before) && parameters().verbose != 0) {
        std::fprintf(stderr,
                     "pml/dr[rank %u]: paths to who has parted are put aside; watched: %zu\n",
                     peers().self().rank, watch.paths.used());
    }
}

void watch_connection(BtlPath &path) noexcept
{
    if (path.tcp != nullptr && path.tcp->without_connection()) {
        Guard guard(watch.lock);
        watch.paths.take_back(path);
        look(path, false);
    }
}

void watch_again(const PeerState &peer) noexcept
{
    Guard guard(watch.lock);
    for (const auto &path : peer.paths) {
        watch.paths.take_back(*path);
    }
}

void start_watching(PeerState &peer)
{
    Guard guard(watch.lock);
    for (auto &path : peer.paths) {
        if (path->tcp != nullptr) {
            watch.paths.add(*path);
            watch.some.store(true, std::memory_order_relaxed);
        }
    }
}

void stop_watching(BtlPath &path) noexcept
{
    Guard guard(watch.lock);
    watch.paths.remove(path);
}

void stop_watching(PeerState &peer) noexcept
{
    for (auto &path : peer.paths) {
        stop_watching(*path);
    }
}

void stop_watching() noexcept
{
    the_watch.renew();
}

void fragment_complete(mca_btl_base_module_t * /*btl*/, mca_btl_base_endpoint_t * /*endpoint*/,
                       mca_btl_base_descriptor_t *des, int status) noexcept
{
    mca::take_over(des);
    auto *descriptor = static_cast<Descriptor *>(des->des_cbdata);
    mca::take_over(descriptor);
    BtlPath &path = *descriptor->path;
    const base::Time present = now();
    {
        Guard guard(path.peer->lock);
        if (OPAL_UNLIKELY(status < 0)) {
            path.note_error();
            // With the lock, for whoever gives it to the BTL now looks at it with that.
            free_failed(path, des);
        }
        if (descriptor->in_call) {
            descriptor->returned = true;
            descriptor->in_vain = status < 0;
        } else {
            path.peer->descriptor_done(descriptor, present, status >= 0);
            path.peer->call_again();
        }
    }
    if (OPAL_UNLIKELY(status < 0)) {
        peers().mark_busy(*path.peer);
    }
    mca::hand_over(des);
    if (OPAL_LIKELY(path.vader) && (des->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) == 0) {
        resting.put(path.btl, des);
    }
}

void control_complete(mca_btl_base_module_t * /*btl*/, mca_btl_base_endpoint_t * /*endpoint*/,
                      mca_btl_base_descriptor_t *des, int status) noexcept
{
    mca::take_over(des);
    auto &path = *static_cast<BtlPath *>(des->des_cbdata);
    __atomic_store_n(&path.control, Control::done, __ATOMIC_RELEASE);
    if (OPAL_UNLIKELY(status < 0)) {
        path.note_error();
        free_failed(path, des);
        peers().mark_busy(*path.peer);
    }
    mca::hand_over(des);
}

void btl_error(mca_btl_base_module_t *btl, std::int32_t flags, opal_proc_t *process,
               char * /*information*/) noexcept
{
    if ((flags & MCA_BTL_ERROR_FLAGS_ADD_CUDA_IPC) != 0 ||
        (flags & (MCA_BTL_ERROR_FLAGS_FATAL | MCA_BTL_ERROR_FLAGS_NONFATAL)) ==
            MCA_BTL_ERROR_FLAGS_NONFATAL) {
        return;
    }
    leave_added_peer();
    peers().for_each([&](PeerState &peer) {
        if (process != nullptr && &peer.proc->super != process) {
            return;
        }
        for (auto &path : peer.paths) {
            if (btl == nullptr || path->btl == btl) {
                path->note(Fault::final);
                peers().mark_busy(peer);
            }
        }
    });
}

} // namespace ft::dr
