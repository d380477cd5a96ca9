// What passes between a daemon and its own ranks through memory and files: the lines by which they
// hang, the board of deaths, and the watch over those that may hang inside MPI.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/launch_key.hpp"

#include <cerrno>

#include <sys/syscall.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

orte_odls_base_module_signal_local_process_fn_t signal_ranks = nullptr;
orte_odls_base_module_kill_local_processes_fn_t end_ranks = nullptr;

/// How long what a dead rank has in shared memory is let be. Others of its node that have not heard
/// of its death may be about to open it, and would find no way to a rank that seems to live.
constexpr base::Duration sweep_after = base::Duration::from_ms(1000);

std::vector<Rank> local_ranks()
{
    std::vector<Rank> ranks;
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child != nullptr && ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE) &&
            !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_HAS_DEREG)) {
            ranks.push_back({child->name.jobid, child->name.vpid});
        }
    }
    return ranks;
}

/// The runtime's object for a rank of this daemon that may still die of a signal; null when there
/// is none.
const orte_proc_t *mortal(Rank who)
{
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child != nullptr && child->name.jobid == who.jobid && child->name.vpid == who.vpid) {
            const bool lives = ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE) &&
                               !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_WAITPID) && child->pid > 0;
            // Who has said goodbye, or called MPI_Abort, or was ended with the job, is no failure.
            const bool minded = !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_HAS_DEREG) &&
                                !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ABORT) &&
                                child->state < ORTE_PROC_STATE_TERMINATED;
            return lives && minded ? child : nullptr;
        }
    }
    return nullptr;
}

/// This daemon's ranks of a job that are still to die; nothing, when the runtime must look after
/// some that have not come to life yet.
std::optional<std::vector<orte_process_name_t>> living(orte_jobid_t jobid)
{
    std::vector<orte_process_name_t> ranks;
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child == nullptr || child->name.jobid != jobid ||
            ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_WAITPID)) {
            continue;
        }
        if (!ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE) || child->pid == 0) {
            return std::nullopt;
        }
        ranks.push_back(child->name);
    }
    return ranks;
}

/// Of a job that is ended, what the runtime has not begun to start: behind a program that is not
/// there it does not try the next one, and a slow daemon may come to the order to end its ranks
/// before it has started them. It will not start them then, and would wait for the end of their
/// output.
void count_unstarted(orte_jobid_t jobid)
{
    for (int i = 0; i < orte_local_children->size; ++i) {
        auto *const child =
            static_cast<orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child != nullptr && child->name.jobid == jobid && child->pid <= 0 &&
            !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE)) {
            ORTE_FLAG_SET(child, ORTE_PROC_FLAG_IOF_COMPLETE);
        }
    }
}

/// Ends what a dead rank has started and what lives on. It has the rank's connection to the PMIx
/// server, which counts the rank out of the fences when the last copy of that is closed: the others
/// would wait in MPI_Finalize. The runtime makes each of its children the leader of a group, whose
/// number nobody else gets while a member lives. A process of that number is the rank itself, which
/// is not reaped, or a stranger, with no group left.
void end_group(pid_t leader)
{
    if (leader > 1 && leader != getpgrp() && kill(leader, 0) != 0 && errno == ESRCH) {
        kill(-leader, SIGKILL);
    }
}

} // namespace

void Callbacks::line_broke(int, short, void *) noexcept
{
    Daemon::get().lines_broke();
}

int Callbacks::signalled(const orte_process_name_t *rank, std::int32_t number) noexcept
{
    if (number == SIGSTOP || number == SIGTSTP || number == SIGCONT) {
        Daemon &self = Daemon::get();
        self.suspended_ = number != SIGCONT;
        if (self.watch_) {
            self.watch_->on_suspended(self.suspended_);
        }
    }
    return signal_ranks(rank, number);
}

/// A job that mpirun gives up alone, because its spawn failed, dies by a signal like any other that
/// dies: it is noticed, everybody is told, and what it has in shared memory goes. The runtime's own
/// way forgets the ranks at once.
int Callbacks::ended(opal_pointer_array_t *ranks) noexcept
{
    const auto *const first =
        ranks == nullptr ? nullptr
                         : static_cast<const orte_proc_t *>(opal_pointer_array_get_item(ranks, 0));
    if (first == nullptr || first->name.vpid != ORTE_VPID_WILDCARD ||
        first->name.jobid == ORTE_JOBID_WILDCARD || orte_orteds_term_ordered) {
        return end_ranks(ranks);
    }
    try {
        const auto mortals = living(first->name.jobid);
        if (!mortals) {
            count_unstarted(first->name.jobid);
            return end_ranks(ranks);
        }
        for (const orte_process_name_t &rank : *mortals) {
            signal_ranks(&rank, SIGKILL);
        }
    } catch (const std::exception &) {
        return end_ranks(ranks);
    }
    return ORTE_SUCCESS;
}

/// A variable in the environment of this daemon's ranks.
void Daemon::set_for_ranks(const char *variable, const char *value)
{
    // A daemon has put its ranks' environment aside already, mpirun will do so later.
    setenv(variable, value, 1);
    if (orte_launch_environ != nullptr) {
        opal_setenv(variable, value, true, &orte_launch_environ);
    }
}

void Daemon::start_board()
{
    std::uint64_t number = 0;
    const bool wanted = (parameters().tell & tell_by_board) != 0;
    const auto drawn = draw_key();
    if (drawn) {
        std::memcpy(&number, drawn->data(), sizeof number);
    }
    if (wanted && (!drawn || !board_.make(ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid), number))) {
        story(1, "has no board for its ranks (%s): they learn of deaths by PMIx alone",
              std::strerror(errno));
    }
    // Without one, that of a job in which this daemon runs must not be taken for it.
    set_for_ranks(death_board_place, board_.place().c_str());
}

void Daemon::start_lines()
{
    if (parameters().life_line != 0) {
        std::uint64_t number = 0;
        const auto drawn = draw_key();
        if (drawn) {
            std::memcpy(&number, drawn->data(), sizeof number);
        }
        if (drawn && lines_.start(ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid), number)) {
            opal_event_set(orte_event_base, &line_broke_, lines_.readable(),
                           OPAL_EV_READ | OPAL_EV_PERSIST, Callbacks::line_broke, nullptr);
            opal_event_set_priority(&line_broke_, ORTE_MSG_PRI);
            opal_event_add(&line_broke_, nullptr);
        } else {
            story(1, "has no lines for its ranks (%s): waits for the end of their processes",
                  std::strerror(errno));
        }
    }
    set_for_ranks(life_lines_place, lines_.place().c_str());
}

/// Whether one of these, or the runtime itself, may wait here for the end of a collective.
bool Daemon::anyone_here(std::span<const Rank> named) const
{
    const std::vector<Rank> here = local_ranks();
    return std::any_of(named.begin(), named.end(), [&](Rank one) {
        if (one.jobid == ORTE_PROC_MY_NAME->jobid) {
            return true;
        }
        return std::any_of(here.begin(), here.end(), [&](Rank local) {
            return local.jobid == one.jobid &&
                   (one.vpid == ORTE_VPID_WILDCARD || one.vpid == local.vpid) &&
                   !session_->deaths().announced(local);
        });
    });
}

void Daemon::rank_died(const orte_proc_t &rank, Cause cause) noexcept
{
    end_group(rank.pid);
    rank_died(rank, cause, rank.exit_code);
}

void Daemon::rank_died(const orte_proc_t &rank, Cause cause, int exit_code)
{
    leftovers_.push_back({monotonic_now(), rank.name.jobid, rank.local_rank});
    const Rank who{rank.name.jobid, rank.name.vpid};
    lines_.forget(who);
    keep_job(who);
    const bool came = !is_first(who.jobid) || ORTE_FLAG_TEST(&rank, ORTE_PROC_FLAG_REG);
    rank_died(who, came ? cause : Cause::absent, exit_code);
}

/// The runtime's daemon forgets a job when the last of its ranks here has ended, and tells mpirun
/// of their ends, which have been told as deaths. But its other ranks live, and may spawn a new one
/// here, which would ask for a job that nobody here knows and fail in MPI_Init.
void Daemon::keep_job(Rank dead)
{
    orte_job_t *const job = orte_get_job_data_object(dead.jobid);
    std::set<std::uint32_t> &died = died_here_[dead.jobid];
    died.insert(dead.vpid);
    if (!ORTE_PROC_IS_HNP && job != nullptr && died.size() >= job->num_local_procs &&
        job->num_procs > job->num_local_procs) {
        orte_set_attribute(&job->attributes, ORTE_JOB_TERM_NOTIFIED, ORTE_ATTR_LOCAL, nullptr,
                           OPAL_BOOL);
    }
}

bool Daemon::bereaved(std::uint32_t jobid) const
{
    return died_here_.contains(jobid) ||
           (session_ && find_death(session_->deaths().known(), {jobid, every_rank}) != nullptr);
}

bool Daemon::bereaved() const
{
    return !died_here_.empty() || (session_ && !session_->deaths().known().empty());
}

void Daemon::rank_not_started(orte_proc_t &rank) noexcept
{
    rank.state = ORTE_PROC_STATE_INIT; // one of failure would be told mpirun as news of its own
    ORTE_FLAG_SET(&rank, ORTE_PROC_FLAG_IOF_COMPLETE); // it prints nothing
    rank_died(rank, Cause::not_started);
}

void Daemon::rank_died(Rank who, Cause cause, int exit_code)
{
    if (!started_ || over_ || orte_orteds_term_ordered) {
        return;
    }
    jobs_.learn();
    RankDeath death{who, self_, cause, exit_code, 0, wall_us()};
    if (const auto it = accused_.find(who); it != accused_.end()) {
        std::tie(death.cause, death.noticed_us) = it->second;
    }
    session_->report(monotonic_now(), death);
    flush();
    arm_timer();
}

/// The kernel will report the same death again, as a child's end, when it has cleaned up.
void Daemon::lines_broke()
{
    for (const auto &[who, process, signal, status] : lines_.take()) {
        const orte_proc_t *const child = mortal(who);
        if (child != nullptr && process != 0 && static_cast<pid_t>(process) != child->pid) {
            await_end(who, static_cast<pid_t>(process), signal, status);
            continue;
        }
        const int number = child == nullptr ? 0 : signal != 0 ? signal : fatal_signal(child->pid);
        story(3, "the line of rank %u of job %u broke: signal %d", who.vpid,
              ORTE_LOCAL_JOBID(who.jobid), number);
        if (number != 0) {
            rank_died(who, Cause::signal, 128 + number);
        }
    }
}

/// The rank is not the daemon's child but that of a script or the like, which may go on for long,
/// and is the only one whom the kernel tells of its end. It is let be: it may have work to do with
/// what the rank has left. \param number the signal that ended it, if that is known, or 0
/// \param seen how else it ends, if that was seen when its line broke, or -1
void Daemon::await_end(Rank who, pid_t process, int number, int seen)
{
    const auto file = static_cast<int>(syscall(SYS_pidfd_open, process, 0U));
    const bool gone = file < 0 && errno == ESRCH;
    const int present = number != 0 ? number : exit_status(process);
    const int status = present >= 0 ? present : seen;
    story(3, "the line of rank %u of job %u broke: process %d, status %d", who.vpid,
          ORTE_LOCAL_JOBID(who.jobid), static_cast<int>(process), status);
    if (gone || number != 0) {
        ended_below(who, status);
    }
    if (file >= 0 && number != 0) {
        close(file);
    } else if (file >= 0) {
        Callbacks::when_readable(file, [who, process, file, status] {
            const int last = exit_status(process); // until its parent has reaped it
            close(file);
            get().ended_below(who, last >= 0 ? last : status);
        });
    }
}

void Daemon::ended_below(Rank who, int status)
{
    const orte_proc_t *const child = mortal(who);
    // Where the rank has a line itself, it was another program, which the rank has started.
    if (child == nullptr || lines_.held_by(who)) {
        return;
    }
    if (status > 0 && WIFSIGNALED(status)) {
        rank_died(*child, Cause::signal, 128 + WTERMSIG(status));
    } else {
        rank_died(*child, Cause::exited, status >= 0 ? WEXITSTATUS(status) : unknown_exit_code);
    }
}

void Daemon::start_watch()
{
    const Parameters &p = parameters();
    if (p.self_check_ms == 0 || orte_process_info.jobfam_session_dir == nullptr) {
        return;
    }
    watch_ = std::make_unique<Watch>(orte_process_info.jobfam_session_dir, p.self_check(),
                                     p.stop_limit_ms > 0);
    set_for_ranks(self_check_folder, orte_process_info.jobfam_session_dir);
}

void Daemon::start_sweeping()
{
    segments_.node = orte_process_info.nodename;
    segments_.uid = geteuid();
    // Of ranks that died with an earlier daemon on this host.
    if (!ORTE_PROC_IS_HNP) {
        segments_.remove_all(ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid));
    }
}

void Daemon::sweep(base::Time now)
{
    const auto kept = std::find_if(leftovers_.begin(), leftovers_.end(), [now](const Leftover &l) {
        return now - l.since < sweep_after;
    });
    for (auto it = leftovers_.begin(); it != kept; ++it) {
        segments_.remove(it->jobid, it->local_rank);
    }
    leftovers_.erase(leftovers_.begin(), kept);
}

void Daemon::watch_ranks(base::Time now)
{
    if (signal_ranks == nullptr && orte_odls.signal_local_procs != nullptr) {
        signal_ranks = std::exchange(orte_odls.signal_local_procs, Callbacks::signalled);
        end_ranks = std::exchange(orte_odls.kill_local_procs, Callbacks::ended);
    }
    if (orphaned_at_ && suspended_) {
        story(1, "lets its ranks go on, which were stopped through mpirun");
        orte_odls.signal_local_procs(nullptr, SIGCONT); // nobody else will
    }
    if (!watch_ || over_ || orte_orteds_term_ordered) {
        return;
    }
    // A daemon that was stopped itself knows nothing of that time.
    if (const base::Duration late = now - tick_at_; late > tick) {
        watch_->on_own_pause(now, late);
    }
    for (const Watch::Accused &accused : watch_->look(now, local_ranks())) {
        story(1, "rank %u of job %u %s: ends it", accused.who.vpid,
              ORTE_LOCAL_JOBID(accused.who.jobid),
              accused.cause == Cause::hung ? "hangs inside MPI" : "is stopped and does not go on");
        accused_.emplace(accused.who, std::pair(accused.cause, wall_us()));
        orte_process_name_t name{.jobid = accused.who.jobid, .vpid = accused.who.vpid};
        signal_ranks(&name, SIGKILL);
    }
}

} // namespace ft::radixft
