// What a daemon does when its connection to another one is gone: it asks at that one's port whether
// anybody listens there still.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/open_files.hpp"
#include "orte_glue/radixft/probe.hpp"

namespace ft::radixft {

using namespace base::literals;

namespace {

/// How long a host has to refuse a knock before its daemon is probed through the protocol instead.
constexpr base::Duration knock_patience = 50_ms;

/// When those knock who are neither the root nor next to it in the tree: by then the others have
/// told them, as a rule, and where hosts share cores, they have not been in their way.
constexpr base::Duration others_knock_after = 5_ms;

/// When mpirun knocks again, in the launch, at a daemon whose port has not refused it, and later at
/// one that is to join. The kernel may close the connections of a dying process before the port at
/// which it listened.
constexpr base::Duration knock_again_after = 50_ms;

/// As many open files as a daemon wants besides one for each other daemon: what it has open anyway,
/// knocks, and five for each of its ranks.
constexpr std::uint64_t files_besides = 512;
/// Daemons that are to be mpirun's successors, and have connections to all.
constexpr NodeId first_few = 4;

} // namespace

void Daemon::connection_lost(NodeId id) noexcept
{
    if (changes_rail(id) || !started_ || id == self_ || lost_.contains(id) ||
        (!held_.begin(id) && awaited_.erase(id) == 0)) {
        return;
    }
    doubted_us_.emplace(id, wall_us());
    if (!begun() && ORTE_PROC_IS_HNP && !contact(id).empty()) {
        unsure_.insert(id);
    }
    if (is_to_knock_first(id)) {
        knock_at(id);
    } else {
        Callbacks::after(others_knock_after, [id] { get().knock_at(id); });
    }
}

bool Daemon::is_to_knock_first(NodeId id) const
{
    if (!is_member()) {
        return true;
    }
    const membership::View &view = *session_->engine().view();
    return view.root() == self_ || !view.contains(id) || view.parent(id) == self_ ||
           view.parent(self_) == id;
}

void Daemon::knock_at(NodeId id)
{
    if (!started_) {
        held_.end(id);
        return;
    }
    story(2, "lost the connection to daemon %u, knocks at its port", id);
    knock(addresses_of(id), knock_patience, [id](Knock answer) {
        Daemon &self = get();
        if (answer == Knock::unasked && self.started_ && !self.over_ && self.reachable(id) &&
            !self.connected_.contains(id) &&
            (!self.begun() || self.has_member(id) || self.awaits_newcomer(id))) {
            // Nothing is known of it. What is to be said to it would want a socket too, and fail.
            Callbacks::after(knock_again_after, [id] { get().knock_at(id); });
            return;
        }
        const std::vector<Held::Message> held = self.held_.end(id);
        if (!self.started_) {
            return;
        }
        story(2, "knock at daemon %u: %s", id,
              answer == Knock::refused    ? "refused"
              : answer == Knock::accepted ? "accepted"
              : answer == Knock::unasked  ? "no socket to be had"
                                          : "silence");
        if (!self.begun()) {
            self.answered_in_launch(id, answer == Knock::refused);
            return;
        }
        self.unsure_.erase(id);
        if (answer == Knock::refused) {
            self.on_refused(id);
            return;
        }
        // Ahead of what the suspicion makes this daemon say. The lower one of the two opens the new
        // connection.
        for (const Held::Message &m : held) {
            self.send(id, m.tag, m.bytes);
        }
        if (answer != Knock::unasked) {
            self.session_->suspicion(monotonic_now(), id);
        }
        if (self.awaits_newcomer(id)) {
            // Nobody probes who is no member.
            Callbacks::after(knock_again_after, [id] {
                if (get().awaits_newcomer(id) && !get().connected_.contains(id)) {
                    get().connection_lost(id);
                }
            });
        }
        self.flush();
        self.arm_timer();
    });
}

/// A daemon that has lost its connection to mpirun before the job has begun leaves by itself, so
/// its port refuses sooner or later. Until then, or until it is given up (check_launch), nothing is
/// mapped.
void Daemon::answered_in_launch(NodeId id, bool refused)
{
    if (self_ != 0) {
        return;
    }
    if (refused) {
        lost_in_launch(id, "ended before the job had begun");
        return;
    }
    Callbacks::after(knock_again_after, [id] {
        Daemon &self = get();
        if (self.started_ && !self.over_ && self.unsure_.contains(id) && self.held_.begin(id)) {
            self.knock_at(id);
        }
    });
}

/// The host of a daemon refuses connections to it: it is dead.
void Daemon::on_refused(NodeId id)
{
    if (!begun()) {
        return;
    }
    if (id == 0 && !is_member() && !over_) {
        leave_without_mpirun();
        return;
    }
    lost_.insert(id);
    if (orte_proc_t *const proc = daemon_object(id); proc != nullptr && orte_orteds_term_ordered) {
        ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
        check_all_gone();
    }
    newcomer_ended(id);
    session_->proof(monotonic_now(), id, membership::ProofKind::refused);
    flush();
    arm_timer();
}

void Daemon::check_open_files(std::uint32_t daemons) const
{
    if (const std::uint64_t most = most_open_files();
        self_ < first_few && most < daemons + files_besides) {
        orte_show_help("help-errmgr-radixft.txt", "few-files", true, orte_process_info.nodename,
                       static_cast<unsigned long>(most),
                       static_cast<unsigned long>(daemons + files_besides));
    }
}

void Daemon::channel_broke(const char *text) noexcept
{
    story(2, "the channel broke: %s", text);
    if (!begun() && !ORTE_PROC_IS_HNP) {
        return;
    }
    for (NodeId id = 0; id < orte_process_info.num_procs; ++id) {
        if (const orte_proc_t *const proc = daemon_object(id);
            id != self_ && proc != nullptr && ORTE_FLAG_TEST(proc, ORTE_PROC_FLAG_ALIVE)) {
            connection_lost(id);
        }
    }
}

} // namespace ft::radixft
