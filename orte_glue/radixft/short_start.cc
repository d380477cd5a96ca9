// A job that begins without some of the hosts that it was to have
// (errmgr_radixft_start_without).
//
// The runtime maps a job when all daemons have called. A host whose daemon cannot be started, or
// ends before that, is counted as one that has called and is marked as down, so that nothing is
// mapped there; if there is no room for all ranks on the others, the job is mapped with fewer. The
// daemons begin with the view in which the missing ones stand, and at once prove these dead.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/every_job.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include <strings.h>

namespace ft::radixft {

namespace {

/// What there is for the ranks of a program.
struct Room {
    std::size_t hosts = 0;
    std::size_t slots = 0;
    std::size_t patterned = 0; ///< as many as --map-by ppr maps; with no pattern, the slots
    std::size_t sockets = 0;
};

/// An object of a host for which a pattern (--map-by ppr:2:node,1:socket) gives a number of ranks.
/// The runtime takes the beginning of a name for the whole, whatever its case.
struct Object {
    const char *name;
    hwloc_obj_type_t type;
    unsigned cache_level;
};
constexpr std::array objects{
    Object{"node", HWLOC_OBJ_MACHINE, 0},    Object{"hwthread", HWLOC_OBJ_PU, 0},
    Object{"thread", HWLOC_OBJ_PU, 0},       Object{"core", HWLOC_OBJ_CORE, 0},
    Object{"socket", HWLOC_OBJ_SOCKET, 0},   Object{"skt", HWLOC_OBJ_SOCKET, 0},
    Object{"l1cache", HWLOC_OBJ_L1CACHE, 1}, Object{"l2cache", HWLOC_OBJ_L2CACHE, 2},
    Object{"l3cache", HWLOC_OBJ_L3CACHE, 3}, Object{"numa", HWLOC_OBJ_NUMANODE, 0},
};

/// How many of them a host has. A host that has never called is taken to have as many as mpirun's.
std::size_t count_of(const Object &object, const orte_node_t &host)
{
    if (object.type == HWLOC_OBJ_MACHINE) {
        return 1;
    }
    const bool known = host.topology != nullptr && host.topology->topo != nullptr;
    return opal_hwloc_base_get_nbobjs_by_type(known ? host.topology->topo : opal_hwloc_topology,
                                              object.type, object.cache_level,
                                              OPAL_HWLOC_AVAILABLE);
}

const char *pattern_of(const orte_job_map_t &map)
{
    return map.ppr != nullptr ? map.ppr : orte_rmaps_base.ppr;
}

/// The ranks that a host gets by a pattern: each part of it is a limit. One that is wrong the
/// runtime refuses.
std::size_t ranks_by(const std::string &pattern, const orte_node_t &host)
{
    std::size_t most = 0;
    std::istringstream parts(pattern);
    for (std::string part; std::getline(parts, part, ',');) {
        const std::size_t colon = part.find(':');
        const std::string name = colon == part.npos ? std::string() : part.substr(colon + 1);
        const auto *const object =
            std::find_if(objects.begin(), objects.end(), [&name](const Object &o) {
                return !name.empty() && strncasecmp(o.name, name.c_str(), name.size()) == 0;
            });
        if (object != objects.end()) {
            const std::size_t ranks =
                std::strtoul(part.c_str(), nullptr, 10) * count_of(*object, host);
            most = most == 0 ? ranks : std::min(most, ranks);
        }
    }
    return most;
}

Room room_for(orte_app_context_t &app, const orte_job_map_t &map)
{
    opal_list_t nodes;
    OBJ_CONSTRUCT(&nodes, opal_list_t);
    orte_std_cntr_t slots = 0;
    Room room;
    if (orte_rmaps_base_get_target_nodes(&nodes, &slots, &app, map.mapping, true, true) ==
        ORTE_SUCCESS) {
        room.hosts = opal_list_get_size(&nodes);
        room.slots = static_cast<std::size_t>(std::max(slots, 0));
        room.patterned = pattern_of(map) == nullptr ? room.slots : 0;
        orte_node_t *node = nullptr;
        OPAL_LIST_FOREACH(node, &nodes, orte_node_t)
        {
            if (pattern_of(map) != nullptr) {
                room.patterned += ranks_by(pattern_of(map), *node);
            }
            room.sockets += count_of({"socket", HWLOC_OBJ_SOCKET, 0}, *node);
        }
    }
    OPAL_LIST_DESTRUCT(&nodes);
    return room;
}

/// Whether hosts may get more ranks than they have slots.
bool oversubscribes(const orte_job_map_t &map)
{
    const auto own = ORTE_GET_MAPPING_DIRECTIVE(map.mapping);
    const auto said = (own & ORTE_MAPPING_SUBSCRIBE_GIVEN) != 0
                          ? own
                          : ORTE_GET_MAPPING_DIRECTIVE(orte_rmaps_base.mapping);
    return (said & ORTE_MAPPING_SUBSCRIBE_GIVEN) != 0 &&
           (said & ORTE_MAPPING_NO_OVERSUBSCRIBE) == 0;
}

/// The ranks that a job without -np has: the runtime looks for these two words in the pattern, and
/// takes the first number in it.
std::size_t ranks_without_number(const Room &room, const orte_job_map_t &map)
{
    const char *const text = pattern_of(map);
    if (text != nullptr && std::strstr(text, "node") != nullptr) {
        return std::strtoul(text, nullptr, 10) * room.hosts;
    }
    if (text != nullptr && std::strstr(text, "socket") != nullptr) {
        return std::strtoul(text, nullptr, 10) * room.sockets;
    }
    return room.slots;
}

/// Whether it is known how many slots each host has: those that nobody has told are counted when
/// all daemons have called.
bool slots_are_known(const orte_job_t &daemons)
{
    for (int i = 0; i < daemons.map->nodes->size; ++i) {
        const auto *const node =
            static_cast<const orte_node_t *>(opal_pointer_array_get_item(daemons.map->nodes, i));
        if (node != nullptr && (node->index != 0 || orte_hnp_is_allocated) &&
            !ORTE_FLAG_TEST(node, ORTE_NODE_FLAG_SLOTS_GIVEN)) {
            return orte_managed_allocation;
        }
    }
    return true;
}

orte_job_t *first_job()
{
    orte_job_t *found = nullptr;
    for_every_job([&](orte_job_t &job) { found = is_first(job.jobid) ? &job : found; });
    return found;
}

/// As if the daemon had called: the runtime goes on when all have.
void count_as_called(orte_job_t &daemons)
{
    if (++daemons.num_reported < daemons.num_procs) {
        return;
    }
    daemons.state = ORTE_JOB_STATE_DAEMONS_REPORTED;
    for_every_job([&](orte_job_t &job) {
        if (&job != &daemons && job.state == ORTE_JOB_STATE_DAEMONS_LAUNCHED) {
            ORTE_ACTIVATE_JOB_STATE(&job, ORTE_JOB_STATE_DAEMONS_REPORTED);
        }
    });
}

} // namespace

/// At mpirun: a daemon is lost before the job has begun. `what` says how, as in "the daemon on n2
/// ended".
void Daemon::lost_in_launch(NodeId id, const std::string &what)
{
    orte_proc_t *const daemon = daemon_object(id);
    if (over_ || begun() || missing_.contains(id)) {
        return;
    }
    orte_job_t *const daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    orte_job_t *const job = first_job();
    // With --novm the runtime maps before it starts daemons.
    const bool mapped = mapped_ || job == nullptr || job->map == nullptr || job->map->num_nodes > 0;
    const bool called = daemon != nullptr && daemon->node != nullptr &&
                        ORTE_FLAG_TEST(daemon->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
    if (parameters().start_without == 0 || mapped || daemon == nullptr || daemon->node == nullptr) {
        if (daemon != nullptr) {
            // Nobody is to tell it that the job ends, or to wait until it has left.
            has_left(id);
            ORTE_FLAG_UNSET(daemon, ORTE_PROC_FLAG_ALIVE);
        }
        std::string why = "the daemon on " + host_name(id) + " " + what;
        if (parameters().start_without == 0) {
            why += ". errmgr_radixft_start_without, which is 0, would let it begin without some of "
                   "its ranks.";
        } else if (mapped) {
            why += ". Its ranks were mapped already: errmgr_radixft_start_without is for hosts "
                   "that are lost before that.";
        }
        launch_failed(why);
        return;
    }
    story(1, "goes on without daemon %u on %s, which %s", id, host_name(id).c_str(), what.c_str());
    missing_[id] = what;
    unsure_.erase(id);
    unwanted_.insert(id);
    lost_.insert(id);
    ready_.erase(id);
    ORTE_FLAG_UNSET(daemon, ORTE_PROC_FLAG_ALIVE);
    // Or the launcher would try again there when it is to start a daemon on another host.
    ORTE_FLAG_SET(daemon->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
    set_down(id);
    end_launcher(*daemon);
    if (contact(id).empty()) {
        // The runtime sends everybody's address to all, and takes one that is not there for a
        // fault.
        remember_contact(id, {});
    }
    if (slots_are_known(*daemons) && !may_begin(*job)) {
        return;
    }
    if (!called || nobody_tells_hardware(id)) {
        count_as_called(*daemons);
    } else if (unsure_.empty() && std::exchange(held_back_, false)) {
        ORTE_ACTIVATE_JOB_STATE(job, ORTE_JOB_STATE_VM_READY);
    }
}

/// The ranks that the job was to have, and how many of them find no room without the missing hosts.
/// Where several programs share the hosts the runtime itself decides, and maps all or none.
Daemon::Shortage Daemon::shortage(orte_job_t &job) const
{
    Shortage found;
    const bool patterned = pattern_of(*job.map) != nullptr;
    for (int i = 0; i < job.apps->size; ++i) {
        auto *const app =
            static_cast<orte_app_context_t *>(opal_pointer_array_get_item(job.apps, i));
        if (app == nullptr) {
            continue;
        }
        const Room left = room_for(*app, *job.map);
        const auto set_missing = [this](orte_node_state_t state) {
            for (const auto &[id, what] : missing_) {
                daemon_object(id)->node->state = state;
            }
        };
        set_missing(ORTE_NODE_STATE_UP);
        const Room all = room_for(*app, *job.map);
        set_missing(ORTE_NODE_STATE_DOWN);
        const std::size_t wanted = app->num_procs != 0 ? static_cast<std::size_t>(app->num_procs)
                                                       : ranks_without_number(all, *job.map);
        const bool crowded = oversubscribes(*job.map) && !patterned && app->num_procs != 0;
        const std::size_t room =
            app->num_procs != 0 ? left.patterned
                                : std::min(left.patterned, ranks_without_number(left, *job.map));
        found.asked += wanted;
        found.nobody_left = found.nobody_left || left.hosts == 0;
        // Who asked for more than there ever was is told so by the runtime.
        if (wanted > room && wanted <= all.patterned && job.num_apps == 1 && !crowded) {
            found.ranks += wanted - room;
        }
    }
    return found;
}

/// Whether as many ranks may be missing as are; if not the job is ended with a message.
bool Daemon::may_begin(orte_job_t &job)
{
    shortage_ = shortage(job);
    const auto allowed = static_cast<std::size_t>(parameters().start_without);
    if (shortage_.ranks <= allowed && !shortage_.nobody_left) {
        return true;
    }
    std::string why;
    if (shortage_.nobody_left) {
        why = "no host is left on which it could run";
    } else {
        why = std::to_string(shortage_.ranks) + " of its " + std::to_string(shortage_.asked) +
              " ranks would be missing, and errmgr_radixft_start_without allows " +
              std::to_string(allowed);
    }
    launch_failed(why + ":" + missing_hosts());
    return false;
}

std::string Daemon::missing_hosts() const
{
    std::string text;
    for (const auto &[id, what] : missing_) {
        text += "\n    the daemon on " + host_name(id) + " " + what;
    }
    return text;
}

/// At mpirun: all daemons have called or are given up, and the job is to be mapped. False: it is
/// ended instead, or mapped when it is known whether a daemon is dead that may be.
bool Daemon::fit(orte_job_t &job)
{
    if (!unsure_.empty()) {
        held_back_ = true;
        return false;
    }
    mapped_ = true;
    if (missing_.empty()) {
        return true;
    }
    if (over_ || !may_begin(job)) {
        return false;
    }
    const std::size_t ranks = shortage_.asked - shortage_.ranks;
    if (auto *const app =
            static_cast<orte_app_context_t *>(opal_pointer_array_get_item(job.apps, 0));
        shortage_.ranks != 0 && app->num_procs != 0) {
        app->num_procs = static_cast<orte_std_cntr_t>(ranks);
    }
    orte_show_help("help-errmgr-radixft.txt", "starts-without", true, missing_hosts().c_str(),
                   ranks, shortage_.asked);
    begin_if_ready();
    return true;
}

/// A daemon that was given up may call all the same, when its host's network heals: it is told to
/// leave. So is a newcomer that was, on each connection that it makes.
bool Daemon::turns_away(NodeId id)
{
    if (!unwanted_.contains(id)) {
        return false;
    }
    if (std::exchange(leaving_[id].told, true)) {
        return true;
    }
    story(1, "daemon %u on %s comes too late: it is told to leave", id, host_name(id).c_str());
    order(id, ORTE_DAEMON_HALT_VM_CMD);
    return true;
}

/// Whether other ranks of its daemon wait for this one: the PMIx server lets them go on without a
/// client that has broken off, but not without one that never came.
bool Daemon::holds_up_others(const RankDeath &death) const
{
    if (death.cause != Cause::absent) {
        return false;
    }
    const Rank all{death.who.jobid, every_rank};
    const std::vector<Rank> ranks = jobs_.ranks_on(death.host, std::span(&all, 1));
    return std::any_of(ranks.begin(), ranks.end(),
                       [this](Rank r) { return !session_->deaths().announced(r); });
}

/// At mpirun: a rank of the first job has died before all were through MPI_Init. Whether the others
/// get through it without; if not, the message says why.
bool Daemon::goes_on_without(const orte_job_t &job, orte_proc_t &dead, const RankDeath &death)
{
    const auto allowed = static_cast<std::size_t>(parameters().start_without);
    const std::size_t missing = shortage_.ranks + done_without_.size() + 1;
    const std::string host = host_name(death.host);
    std::string why;
    if (!is_first(job.jobid)) {
        why = "A job that was spawned cannot begin without one of its ranks.";
    } else if (allowed == 0) {
        why = "errmgr_radixft_start_without, which is 0, would let the others begin.";
    } else if (missing > allowed) {
        why = "That makes " + std::to_string(missing) +
              " that are missing, and errmgr_radixft_start_without allows " +
              std::to_string(allowed) + ".";
    } else if (done_without_.size() + 1 >= job.num_procs) {
        why = "Nobody is left.";
    } else if (holds_up_others(death)) {
        why = "It had not come to MPI_Init, and other ranks on its host wait for it there.";
    }
    explain(why.empty() ? "done-without" : "died-in-init", death.who.vpid, host.c_str(),
            exit_code_text(death).c_str(), why.c_str());
    if (!why.empty()) {
        return false;
    }
    done_without_.insert(death.who);
    if (dead.state < ORTE_PROC_STATE_RUNNING) {
        // Nobody will say that it runs, and the runtime counts those that do.
        ORTE_ACTIVATE_PROC_STATE(&dead.name, ORTE_PROC_STATE_RUNNING);
    }
    return true;
}

void Callbacks::daemon_called(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                              orte_rml_tag_t tag, void *data) noexcept
{
    if (sender->jobid != ORTE_PROC_MY_NAME->jobid || !Daemon::get().turns_away(sender->vpid)) {
        orte_plm_base_daemon_callback(status, sender, buffer, tag, data);
        story(2, "daemon %u has called", sender->vpid);
        Daemon::get().has_called(sender->vpid);
    }
}

void Daemon::receive_daemons()
{
    orte_rml.recv_cancel(ORTE_NAME_WILDCARD, ORTE_RML_TAG_ORTED_CALLBACK);
    orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, ORTE_RML_TAG_ORTED_CALLBACK, ORTE_RML_PERSISTENT,
                            Callbacks::daemon_called, nullptr);
    orte_rml.recv_cancel(ORTE_NAME_WILDCARD, ORTE_RML_TAG_TOPOLOGY_REPORT);
    orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, ORTE_RML_TAG_TOPOLOGY_REPORT, ORTE_RML_PERSISTENT,
                            Callbacks::hardware_told, nullptr);
}

} // namespace ft::radixft
