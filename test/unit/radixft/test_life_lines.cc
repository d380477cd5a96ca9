#include "orte_glue/radixft/life_lines.hpp"
#include "orte_glue/radixft/watch.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ft::radixft;

namespace {

constexpr std::uint32_t family = 4711;
constexpr std::uint64_t number = 0xfedcba9876543210;
constexpr int patience_ms = 30'000;

Rank rank(std::uint32_t vpid)
{
    return {family << 16 | 1, vpid};
}

/// A process that holds a line, and what its parent sees of its end. Made before the lines are
/// watched: a process with threads had better not fork.
class Child {
  public:
    /// `last` is what it does when told to go on, with its line. `contained`: it is the first one
    /// of a new numbering, and its parent the process that is known here.
    template <class Last>
    Child(Rank who, Last last, bool contained = false)
    {
        if (pipe(to_) != 0 || pipe(from_) != 0) {
            return;
        }
        pid_ = fork();
        if (pid_ == 0) {
            if (contained) {
                const pid_t inner = unshare(CLONE_NEWPID) == 0 ? fork() : -1;
                if (inner != 0) {
                    [[maybe_unused]] const auto no = inner < 0 ? write(from_[1], "n", 1) : 0;
                    for (const int file : {to_[0], to_[1], from_[0], from_[1]}) {
                        close(file);
                    }
                    waitpid(inner, nullptr, 0);
                    _exit(0);
                }
            }
            char place[256] = "";
            LifeLine line;
            const char held =
                read(to_[0], place, sizeof place) > 0 && line.hold(place, family, who) ? 'y' : 'n';
            char go = 0;
            if (write(from_[1], &held, 1) == 1 && read(to_[0], &go, 1) == 1) {
                last(line);
            }
            _exit(0);
        }
    }
    ~Child()
    {
        for (const int file : {to_[0], to_[1], from_[0], from_[1]}) {
            close(file);
        }
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    bool holds(const LifeLines &lines) const
    {
        const std::string &place = lines.place();
        const auto size = static_cast<ssize_t>(place.size() + 1);
        char held = 0;
        return pid_ > 0 && write(to_[1], place.c_str(), place.size() + 1) == size &&
               read(from_[0], &held, 1) == 1 && held == 'y';
    }
    bool go_on() const { return write(to_[1], "g", 1) == 1; }
    /// Waits for its end, leaves it unreaped.
    void wait_for_end() const
    {
        siginfo_t info{};
        waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    }
    int reap() const
    {
        int status = -1;
        waitpid(pid_, &status, 0);
        return status;
    }
    pid_t pid() const { return pid_; }

  private:
    int to_[2] = {-1, -1};
    int from_[2] = {-1, -1};
    pid_t pid_ = -1;
};

bool told(const LifeLines &lines)
{
    pollfd wait{lines.readable(), POLLIN, 0};
    return poll(&wait, 1, patience_ms) == 1;
}

/// What is taken when that child's line breaks.
std::vector<LifeLines::Broken> line_of(std::uint32_t vpid, const Child &child, int signal = 0,
                                       int status = -1)
{
    return {{rank(vpid), static_cast<std::uint32_t>(child.pid()), signal, status}};
}

/// Waits until a process, which may be dead but not reaped, has given way to others.
bool gives_way(pid_t pid, int before)
{
    const std::time_t end = std::time(nullptr) + patience_ms / 1000;
    const auto id = static_cast<id_t>(pid);
    while (getpriority(PRIO_PROCESS, id) == before && std::time(nullptr) < end) {
        sched_yield();
    }
    // As little as the lowest policy would be given no core for seconds.
    return getpriority(PRIO_PROCESS, id) == std::min(before + 5, 19) &&
           sched_getscheduler(pid) == SCHED_OTHER;
}

void who_is_killed_is_told(void **)
{
    const Child kills_itself(rank(3), [](LifeLine &) { raise(SIGKILL); });
    const Child ends_itself(rank(4), [](LifeLine &) { raise(SIGTERM); });
    LifeLines lines;
    const bool started = lines.start(family, number);
    const bool held = kills_itself.holds(lines) && ends_itself.holds(lines);
    kills_itself.go_on();
    const bool first_told = told(lines);
    const std::vector<LifeLines::Broken> first = lines.take();
    kills_itself.wait_for_end();
    const int first_signal = fatal_signal(kills_itself.pid());
    ends_itself.go_on();
    const bool second_told = told(lines);
    const std::vector<LifeLines::Broken> second = lines.take();
    ends_itself.wait_for_end();
    const int second_signal = fatal_signal(ends_itself.pid());
    const int second_status = exit_status(ends_itself.pid());
    lines.stop();
    kills_itself.reap();
    ends_itself.reap();
    assert_true(started && held && first_told && second_told);
    assert_true(first == line_of(3, kills_itself, SIGKILL));
    assert_true(second == line_of(4, ends_itself, SIGTERM));
    assert_int_equal(second_status & 0x7f, SIGTERM);
    assert_int_equal(first_signal, SIGKILL);
    assert_int_equal(second_signal, SIGTERM);
}

/// Runs on the first core that this process may use, and leaves nothing of it to idle threads.
class Spinner {
  public:
    Spinner()
    {
        const pid_t parent = getpid();
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) {
                _exit(1);
            }
            run_here();
            for (volatile bool on = true; on;) {
            }
        }
    }
    ~Spinner()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    Spinner(const Spinner &) = delete;
    Spinner &operator=(const Spinner &) = delete;

    static void run_here()
    {
        cpu_set_t cores;
        sched_getaffinity(0, sizeof cores, &cores);
        int first = 0;
        while (!CPU_ISSET(first, &cores)) {
            ++first;
        }
        CPU_ZERO(&cores);
        CPU_SET(first, &cores);
        sched_setaffinity(0, sizeof cores, &cores);
    }

  private:
    pid_t pid_ = -1;
};

/// The process' first thread is the last to know.
void who_is_killed_by_a_thread_is_told(void **)
{
    for (const int signal : {SIGKILL, SIGTERM}) {
        const Child child(rank(1), [signal](LifeLine &) {
            std::atomic<bool> waits = false;
            const std::thread killer([&waits, signal] {
                waits.wait(false);
                raise(signal);
            });
            Spinner::run_here();
            const sched_param no_priority{};
            sched_setscheduler(0, SCHED_IDLE, &no_priority);
            waits = true;
            waits.notify_one();
            for (;;) {
                pause();
            }
        });
        auto spinner = std::make_unique<Spinner>();
        LifeLines lines;
        lines.start(family, number);
        const bool held = child.holds(lines) && child.go_on();
        const bool was_told = told(lines);
        spinner.reset(); // a failed assertion would leave it
        const std::vector<LifeLines::Broken> broken = lines.take();
        lines.stop();
        child.reap();
        assert_true(held && was_told);
        assert_true(broken == line_of(1, child, signal));
    }
}

/// It is what this is for: from the first word on it is certain, whether the process is gone or
/// not.
void it_is_certain_at_once(void **)
{
    const Child child(rank(1), [](LifeLine &) {
        for (;;) {
            pause();
        }
    });
    LifeLines lines;
    lines.start(family, number);
    const bool held = child.holds(lines) && child.go_on();
    const int before = fatal_signal(child.pid());
    if (held) {
        kill(child.pid(), SIGKILL);
    }
    const bool was_told = told(lines);
    const int during = fatal_signal(child.pid());
    const std::vector<LifeLines::Broken> broken = lines.take();
    const bool yields = gives_way(child.pid(), getpriority(PRIO_PROCESS, 0));
    lines.stop();
    child.reap();
    assert_true(held && was_told);
    assert_int_equal(before, 0);
    assert_int_equal(during, SIGKILL);
    assert_int_equal(broken.size(), 1);
    assert_true(yields);
}

void who_leaves_is_not_told(void **)
{
    const Child releases(rank(1), [](LifeLine &line) { line.release(); });
    const Child leaves(rank(2), [](LifeLine &) { _exit(3); });
    // The line is not its child's.
    const Child forks(rank(3), [](LifeLine &line) {
        const pid_t pid = fork();
        if (pid == 0) {
            raise(SIGKILL);
        }
        waitpid(pid, nullptr, 0);
        line.release();
    });
    LifeLines lines;
    lines.start(family, number);
    const bool held = releases.holds(lines) && leaves.holds(lines) && forks.holds(lines);
    forks.go_on();
    forks.wait_for_end();
    releases.go_on();
    releases.wait_for_end();
    leaves.go_on();
    // Without a word: the line breaks, but the system says that no signal did it.
    const bool was_told = told(lines);
    const std::vector<LifeLines::Broken> broken = lines.take();
    leaves.wait_for_end();
    const int left = fatal_signal(leaves.pid());
    const int told_status = exit_status(leaves.pid());
    lines.stop();
    const int status = leaves.reap();
    const int later = exit_status(leaves.pid());
    releases.reap();
    forks.reap();
    assert_true(held && was_told);
    // Its other threads may have ended before its first one has begun to.
    assert_true(broken == line_of(2, leaves) || broken == line_of(2, leaves, 0, status));
    assert_int_equal(left, 0);
    assert_int_equal(told_status, status);
    assert_int_equal(later, -1);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

/// A script reaps it as soon as it can, and does not tell.
void how_it_left_is_noted_at_once(void **)
{
    const Child child(rank(1), [](LifeLine &) {
        // Its first thread is gone for sure when the others end.
        std::thread last([self = getpid()] {
            while (process_state(self).state != 'Z') {
                sched_yield();
            }
            _exit(13);
        });
        syscall(SYS_exit, 13);
    });
    LifeLines lines;
    lines.start(family, number);
    const bool held = child.holds(lines) && child.go_on();
    const bool was_told = told(lines);
    const int status = child.reap();
    const std::vector<LifeLines::Broken> broken = lines.take();
    lines.stop();
    assert_true(held && was_told);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 13);
    assert_true(broken == line_of(1, child, 0, status));
}

/// Another program in its place ends its threads, but not the process.
void who_becomes_another_program_lives(void **)
{
    const Child child(rank(1), [](LifeLine &) { execl("/bin/sleep", "sleep", "600", nullptr); });
    LifeLines lines;
    lines.start(family, number);
    const bool held = child.holds(lines) && child.go_on();
    const bool was_told = told(lines);
    const int at_once = fatal_signal(child.pid());
    const int status_at_once = exit_status(child.pid());
    const std::vector<LifeLines::Broken> broken = lines.take();
    const int policy = sched_getscheduler(child.pid());
    kill(child.pid(), SIGKILL);
    child.wait_for_end();
    const int later = fatal_signal(child.pid());
    lines.stop();
    child.reap();
    assert_true(held && was_told);
    assert_true(broken == line_of(1, child));
    assert_int_equal(at_once, 0);
    assert_int_equal(status_at_once, -1);
    assert_int_equal(policy, SCHED_OTHER);
    assert_int_equal(later, SIGKILL);
}

/// A rank may start another program that takes itself for the rank.
void a_rank_may_have_two(void **)
{
    const Child itself(rank(1), [](LifeLine &) { raise(SIGKILL); });
    const Child another(rank(1), [](LifeLine &) { raise(SIGKILL); });
    LifeLines lines;
    const bool early = lines.held_by(rank(1));
    lines.start(family, number);
    const bool held = itself.holds(lines) && another.holds(lines);
    another.go_on();
    const bool first_told = told(lines);
    const std::vector<LifeLines::Broken> first = lines.take();
    const bool still = lines.held_by(rank(1));
    itself.go_on();
    const bool second_told = told(lines);
    const std::vector<LifeLines::Broken> second = lines.take();
    const bool no_more = !lines.held_by(rank(1));
    lines.stop();
    itself.reap();
    another.reap();
    assert_true(held && first_told && still && second_told && no_more);
    assert_false(early);
    assert_true(first == line_of(1, another, SIGKILL));
    assert_true(second == line_of(1, itself, SIGKILL));
}

/// In a container a process has another number for itself than the daemon has for it.
void numbers_of_others_are_not_taken(void **)
{
    const Child contained(
        rank(1), [](LifeLine &) { raise(SIGKILL); }, true);
    LifeLines lines;
    lines.start(family, number);
    const bool held = contained.holds(lines);
    const bool was_told = held && contained.go_on() && told(lines);
    const std::vector<LifeLines::Broken> broken = lines.take();
    lines.stop();
    contained.reap();
    if (!held) {
        _skip(__FILE__, __LINE__); // no container to be had
    }
    assert_true(was_told);
    assert_true(broken == (std::vector<LifeLines::Broken>{{rank(1), 0, 0, -1}}));
}

/// All lines are taken, and free again when their owners have released them or are known to be
/// dead.
void a_line_is_free_again(void **)
{
    LifeLines lines;
    lines.start(family, number);
    auto held = std::make_unique<std::array<LifeLine, LifeLinesLayout::capacity>>();
    std::uint32_t vpid = 0;
    bool all = true;
    for (LifeLine &line : *held) {
        all = line.hold(lines.place().c_str(), family, rank(vpid++)) && all;
    }
    LifeLine more;
    const bool too_many = more.hold(lines.place().c_str(), family, rank(vpid));
    held->front().release();
    const bool one = more.hold(lines.place().c_str(), family, rank(vpid));
    LifeLine another;
    const bool full = another.hold(lines.place().c_str(), family, rank(vpid + 1));
    lines.forget(rank(7));
    const bool forgotten = another.hold(lines.place().c_str(), family, rank(vpid + 1));
    const bool quiet = lines.take().empty();
    held.reset();
    assert_true(all && one && forgotten && quiet);
    assert_false(too_many || full);
}

void what_is_no_daemons_is_not_taken(void **)
{
    LifeLines lines;
    lines.start(family, number);
    const std::string place = lines.place();
    const auto holds = [](const std::string &where, std::uint32_t whose) {
        LifeLine line;
        return line.hold(where.c_str(), whose, rank(1));
    };
    const bool right = holds(place, family);
    const bool wrong = holds(place, family + 1) || holds(place + "0", family) ||
                       holds("", family) || holds("/tmp:0", family) || holds("/dev/zero:0", family);
    LifeLine line;
    const bool null = line.hold(nullptr, family, rank(1));
    lines.stop();
    const bool stopped = lines.readable() == -1;
    assert_true(right && stopped);
    assert_false(wrong || null);
}

void a_process_that_lives_was_killed_by_nothing(void **)
{
    assert_int_equal(fatal_signal(getpid()), 0);
    assert_int_equal(fatal_signal(1), 0);
    assert_int_equal(fatal_signal(0), 0);
    assert_int_equal(fatal_signal(-1), 0);
}

/// The system keeps what stopped it where it keeps what killed it.
void a_stopped_process_was_killed_by_nothing(void **)
{
    const pid_t pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(5);
    }
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WEXITED | WNOWAIT);
    const int how = info.si_code;
    const int stopped = fatal_signal(pid);
    const int stopped_status = exit_status(pid);
    if (pid > 0) {
        kill(pid, SIGCONT);
    }
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    const int ended = fatal_signal(pid);
    const int ended_status = exit_status(pid);
    int status = -1;
    waitpid(pid, &status, 0);
    assert_int_equal(how, CLD_STOPPED);
    assert_int_equal(stopped, 0);
    assert_int_equal(stopped_status, -1);
    assert_int_equal(ended, 0);
    assert_int_equal(ended_status, status);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_is_killed_is_told),
        cmocka_unit_test(who_is_killed_by_a_thread_is_told),
        cmocka_unit_test(it_is_certain_at_once),
        cmocka_unit_test(who_leaves_is_not_told),
        cmocka_unit_test(how_it_left_is_noted_at_once),
        cmocka_unit_test(who_becomes_another_program_lives),
        cmocka_unit_test(a_rank_may_have_two),
        cmocka_unit_test(numbers_of_others_are_not_taken),
        cmocka_unit_test(a_line_is_free_again),
        cmocka_unit_test(what_is_no_daemons_is_not_taken),
        cmocka_unit_test(a_process_that_lives_was_killed_by_nothing),
        cmocka_unit_test(a_stopped_process_was_killed_by_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
