// Daemons that mpirun asks for their hardware.
//
// A daemon that calls says of what kind its host's hardware is. The first one of a kind that mpirun
// does not know is asked for the whole of it, and counts as one that has called when it has
// answered; others of that kind count at once, though they cannot be mapped before. The runtime
// asks once, and waits for that answer for ever. Here another one of the kind is asked when the
// first one is given up, and when there is none, nobody waits any more.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"

#include <algorithm>

namespace ft::radixft {

namespace {

/// What is known of the hardware of a daemon's host; null if it has never called.
orte_topology_t *hardware_of(NodeId id)
{
    const orte_proc_t *const daemon = daemon_object(id);
    return daemon == nullptr || daemon->node == nullptr ? nullptr : daemon->node->topology;
}

void forget(orte_topology_t *kind)
{
    for (int i = 0; i < orte_node_topologies->size; ++i) {
        if (opal_pointer_array_get_item(orte_node_topologies, i) == kind) {
            opal_pointer_array_set_item(orte_node_topologies, i, nullptr);
        }
    }
    for (int i = 0; i < orte_node_pool->size; ++i) {
        auto *const node =
            static_cast<orte_node_t *>(opal_pointer_array_get_item(orte_node_pool, i));
        if (node != nullptr && node->topology == kind) {
            node->topology = nullptr;
        }
    }
    OBJ_RELEASE(kind);
}

} // namespace

/// At mpirun: the runtime has taken this daemon's call, and asks it if it is the first of its kind.
void Daemon::has_called(NodeId id)
{
    const orte_topology_t *const kind = hardware_of(id);
    if (kind != nullptr && kind->topo == nullptr && asked_.emplace(kind, id).second) {
        story(2, "daemon %u is asked for its hardware", id);
    }
}

/// At mpirun: whether a daemon owes the runtime an answer for which that waits.
bool Daemon::owes_hardware(NodeId id) const
{
    return std::any_of(asked_.begin(), asked_.end(),
                       [id](const auto &request) { return request.second == id; });
}

/// At mpirun: a daemon that has called is given up. Whether the runtime still waits for an answer
/// that nobody can give: the caller is to count it.
bool Daemon::nobody_tells_hardware(NodeId id)
{
    orte_topology_t *const kind = hardware_of(id);
    const auto request = asked_.find(kind);
    if (request == asked_.end()) {
        return false;
    }
    NodeId other = no_node;
    bool other_is_unsure = true;
    for (NodeId of_kind = 1; of_kind < orte_process_info.num_procs; ++of_kind) {
        if (hardware_of(of_kind) != kind || unwanted_.contains(of_kind)) {
            continue;
        }
        if (of_kind == request->second) {
            return false; // and is not given up
        }
        if (other == no_node || other_is_unsure) {
            other = of_kind;
            other_is_unsure = unsure_.contains(of_kind);
        }
    }
    if (other == no_node) {
        asked_.erase(request);
        forget(kind);
        return true;
    }
    // Who is unsure is given up in its turn, or answers.
    request->second = other;
    story(2, "daemon %u is asked for its hardware, since daemon %u has not answered", other, id);
    order(other, ORTE_DAEMON_REPORT_TOPOLOGY_CMD);
    return false;
}

void Callbacks::hardware_told(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                              orte_rml_tag_t tag, void *data) noexcept
{
    if (sender->jobid == ORTE_PROC_MY_NAME->jobid && Daemon::get().takes_hardware(sender->vpid)) {
        orte_plm_base_daemon_topology(status, sender, buffer, tag, data);
    }
}

/// At mpirun: a daemon answers. One that was given up may do so all the same.
bool Daemon::takes_hardware(NodeId id)
{
    if (turns_away(id) || !owes_hardware(id)) {
        return false;
    }
    asked_.erase(hardware_of(id));
    return true;
}

} // namespace ft::radixft
