// Daemons that were started on hosts to be added and do not call, because their host does not
// exist, is down, or cannot be reached, or that call and do not become members in time.
//
// The runtime would wait for those that do not call for as long as the remote shell does, and would
// have each later launch try again to start them. A spawn that adds such a host fails; the host is
// put aside as one whose daemon has died, which can be added again. A daemon that has called may
// live, stopped or cut off. Its host is not given another one before it has left: the channel tells
// two daemons of one id apart by nothing.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/every_job.hpp"
#include "orte_glue/radixft/oob_tcp.hpp"
#include "orte_glue/radixft/probe.hpp"

#include <algorithm>
#include <csignal>

#include <sys/wait.h>

namespace ft::radixft {

using namespace base::literals;

namespace {

/// How long a host has to answer a knock at the port of a daemon that was given up.
constexpr base::Duration leaver_patience = 50_ms;

} // namespace

/// The launcher has begun to start daemons for a spawned job.
void Daemon::wait_for_newcomers()
{
    if (!begun()) {
        return;
    }
    for (NodeId id = 1; id < orte_process_info.num_procs; ++id) {
        const orte_proc_t *const proc = daemon_object(id);
        if (proc != nullptr && proc->node != nullptr && proc->node->daemon == proc &&
            !ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED) &&
            !session_->engine().view()->contains(id)) {
            called_for_.emplace(id, monotonic_now());
            lost_.erase(id); // also who has failed before can fail
        }
    }
}

/// Who has not called in time, or has not answered, does not hold up those who spawn any longer.
void Daemon::check_called_for(base::Time now)
{
    const int wait = parameters().launch_wait_ms;
    for (const auto &[id, since] : called_for_) {
        const orte_proc_t *const proc = daemon_object(id);
        const bool called = proc != nullptr && proc->node != nullptr &&
                            ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
        if ((!called || owes_hardware(id)) && wait != 0 &&
            now - since >= base::Duration::from_ms(wait)) {
            newcomer_failed(
                id, (called ? "has not told its hardware within " : "has not called within ") +
                        std::to_string(wait) + " ms (errmgr_radixft_launch_wait)");
            return; // with all others
        }
    }
}

/// Nobody waits for this newcomer any longer. If it calls all the same it is told to leave.
void Daemon::put_aside(NodeId id)
{
    orte_proc_t *const proc = daemon_object(id);
    const bool dead = !lost_.insert(id).second;
    unwanted_.insert(id);
    set_down(id);
    if (const auto life = lives_.find(id); life != lives_.end()) {
        session_->turn_away(monotonic_now(), {id, life->second});
    }
    if (proc == nullptr || proc->node == nullptr) {
        return;
    }
    ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
    // It comes back like one that has died.
    hosts_.remember(host_name(id), {id, 0});
    if (ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED)) {
        if (!dead) {
            turns_away(id);
        }
        if (nobody_tells_hardware(id)) {
            ++orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid)->num_reported;
        }
        return;
    }
    // Or each later launch would try again there, and wait for it.
    ORTE_FLAG_SET(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
    ++orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid)->num_reported;
    end_launcher(*proc);
    if (contact(id).empty()) {
        // The runtime sends everybody's address to all, and takes one that is not there for a
        // fault.
        remember_contact(id, {});
    }
}

void Daemon::newcomer_failed(NodeId id, const std::string &what)
{
    if (over_ || !called_for_.contains(id)) {
        return;
    }
    const std::string why = host_name(id) + ": its daemon " + what;
    put_aside(id);
    // Those that were to come with it have no job either.
    for (const auto &[other, since] : std::exchange(called_for_, {})) {
        if (other != id) {
            put_aside(other);
        }
    }
    explain("not-joined", why.c_str());
    for_every_job([&](orte_job_t &job) {
        if (job.jobid != ORTE_PROC_MY_NAME->jobid && job.state == ORTE_JOB_STATE_DAEMONS_LAUNCHED) {
            give_up_launch(job);
        }
    });
}

/// A newcomer has ended that may have called. When all of its spawn have, check_newcomers() fails
/// it.
void Daemon::newcomer_ended(NodeId id)
{
    const orte_job_t *const daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    const orte_proc_t *const proc = daemon_object(id);
    // An earlier one of its id may have ended only now.
    const bool called = called_for_.contains(id) && !connected_.contains(id) && proc != nullptr &&
                        proc->node != nullptr &&
                        ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
    if (called && daemons->num_reported < daemons->num_procs) {
        newcomer_failed(id, "ended before it was a member");
    }
}

/// At mpirun: whether a spawn waits for this daemon to become a member.
bool Daemon::awaits_newcomer(NodeId id) const
{
    const auto waits = [id](const Launch &launch) { return launch.newcomers.contains(id); };
    return started_ && !over_ && is_member() && !session_->engine().view()->contains(id) &&
           (called_for_.contains(id) || std::any_of(launches_.begin(), launches_.end(), waits));
}

/// At mpirun: a spawned job names hosts on which daemons that were given up may live still. It
/// waits until those have left.
bool Daemon::holds_back(orte_state_caddy_t *caddy)
{
    if (unwanted_.empty() || over_ || !is_member()) {
        return false;
    }
    HeldSpawn held{.caddy = caddy, .until_gone = {}, .since = monotonic_now()};
    for (const std::string &host : hosts_named(*caddy->jdata)) {
        if (const NodeId id = hosts_.id_of(host); is_in_the_way(id)) {
            held.until_gone.insert(id);
        }
    }
    if (held.until_gone.empty()) {
        return false;
    }
    for (const NodeId id : held.until_gone) {
        story(1, "a spawn waits until daemon %u on %s, which was given up, has left", id,
              host_name(id).c_str());
    }
    held_spawns_.push_back(std::move(held));
    check_held_spawns();
    return true;
}

bool Daemon::is_in_the_way(NodeId id) const
{
    // One without which the job began stands in the view still before the first change of it. One
    // that was turned away stands in no view with mpirun (Stabilizer::turn_away).
    return leaving_.contains(id) ||
           (unwanted_.contains(id) && session_->engine().view()->contains(id));
}

/// Whether it has left: nobody listens at its port any more.
void Daemon::look_for(NodeId id)
{
    const auto it = leaving_.find(id);
    if (it == leaving_.end() || std::exchange(it->second.sought, true)) {
        return;
    }
    knock(addresses_of(id), leaver_patience, [id](Knock answer) {
        Daemon &self = get();
        const auto leaver = self.leaving_.find(id);
        if (!self.started_ || leaver == self.leaving_.end()) {
            return;
        }
        leaver->second.sought = false;
        const bool connected = self.connected_.contains(id);
        if (answer == Knock::unasked) {
            return; // it is looked for again
        }
        if (answer == Knock::accepted) {
            // The order to leave may wait for TCP's next try, minutes after the network has healed.
            if (connected) {
                if (auto peer = OobPeer::find(id); peer && peer->break_off_stalled()) {
                    story(1, "breaks off the stalled connection to daemon %u", id);
                    leaver->second.off = true;
                }
            } else if (std::exchange(leaver->second.off, false)) {
                self.turns_away(id);
            }
        } else if (answer == Knock::refused || !connected) {
            // Where the host is silent the connection tells: it outlasts a cut network for a while.
            self.leaving_.erase(leaver);
            story(1, "daemon %u on %s, which was given up, has left", id, host_name(id).c_str());
            self.check_held_spawns();
        }
    });
}

void Daemon::check_held_spawns()
{
    const base::Time now = monotonic_now();
    const int wait = parameters().launch_wait_ms;
    for (HeldSpawn &held : std::exchange(held_spawns_, {})) {
        std::string there;
        for (const NodeId id : held.until_gone) {
            if (is_in_the_way(id)) {
                there += (there.empty() ? "" : ", ") + host_name(id);
                look_for(id);
            }
        }
        if (over_) {
            OBJ_RELEASE(held.caddy);
        } else if (there.empty()) {
            bring_back(*held.caddy->jdata);
            orte_ras_base_allocate(0, 0, held.caddy);
        } else if (wait != 0 && now - held.since >= base::Duration::from_ms(wait)) {
            explain("still-there", there.c_str());
            give_up_launch(*held.caddy->jdata);
            OBJ_RELEASE(held.caddy);
        } else {
            held_spawns_.push_back(std::move(held));
        }
    }
}

/// A remote shell that still tries to reach its host would outlast mpirun.
void Daemon::end_launcher(const orte_proc_t &daemon)
{
    siginfo_t info{};
    if (daemon.pid > 0 &&
        waitid(P_PID, static_cast<id_t>(daemon.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        ::kill(-daemon.pid, SIGKILL);
    }
}

} // namespace ft::radixft
