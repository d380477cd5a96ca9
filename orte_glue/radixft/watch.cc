#include "orte_glue/radixft/watch.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ft::radixft {

using detector::SelfCheckMonitor;

ProcessState process_state(std::int64_t pid)
{
    ProcessState result;
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string word; status >> word;) {
        if (word == "State:") {
            status >> result.state;
        } else if (word == "TracerPid:") {
            std::int64_t tracer = 0;
            status >> tracer;
            result.traced = tracer != 0;
            break;
        }
    }
    return result;
}

std::string contents(const std::string &path)
{
    std::ifstream file(path);
    std::string text;
    // Not by iterators over the buffer: these throw where a read fails.
    std::getline(file, text, '\0');
    return text;
}

namespace {

// The kernel's PF_EXITING and PF_SIGNALED, which it has not changed since 2.6.
constexpr unsigned long exiting = 0x4;
constexpr unsigned long signaled = 0x400;

struct Ending {
    unsigned long flags = 0; ///< 0: there is no such process
    int status = 0;
    bool gone = false;    ///< it waits to be reaped
    bool stopped = false; ///< by a signal or a debugger
};

Ending ending(std::int64_t pid)
{
    const std::string text = contents("/proc/" + std::to_string(pid) + "/stat");
    // The second of its fields is the program's name, and may hold anything.
    std::istringstream rest(text.substr(std::min(text.rfind(')'), text.size() - 1) + 1));
    const std::vector<std::string> words{std::istream_iterator<std::string>(rest), {}};
    constexpr std::size_t flags = 9 - 3;
    constexpr std::size_t exit_code = 52 - 3;
    return words.size() > exit_code
               ? Ending{std::strtoul(words[flags].c_str(), nullptr, 10),
                        std::atoi(words[exit_code].c_str()), words[0] == "Z" || words[0] == "X",
                        words[0] == "T" || words[0] == "t"}
               : Ending{};
}

bool stops(int signal)
{
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

} // namespace

int exit_status(std::int64_t pid)
{
    const Ending end = ending(pid);
    // Since 5.17 it is there when one thread has called exit, and the first one goes on a moment
    // longer than others. Nothing else has a code there, and no signal.
    const bool called_exit = WIFEXITED(end.status) && WEXITSTATUS(end.status) != 0;
    // Its flags say that it exits before there is a code.
    const bool exited = (end.flags & exiting) != 0 && (end.status != 0 || end.gone);
    return exited || called_exit ? end.status : -1;
}

int fatal_signal(std::int64_t pid)
{
    const Ending end = ending(pid);
    const int code = end.status & 0x7f;
    const bool first_thread_too = (end.flags & (exiting | signaled)) == (exiting | signaled);
    // Since 5.17 it is there when one thread was killed, and the first one may go on until it has
    // a core. What a stopped process was stopped by stands in the same place, and kills nobody.
    if (code != 0 && (first_thread_too || !(end.stopped || stops(code)))) {
        return code;
    }
    // Sent, and not to be blocked, but its first thread has not had a core since.
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string word; status >> word;) {
        if (word == "ShdPnd:") {
            unsigned long long pending = 0;
            status >> std::hex >> pending;
            return (pending >> (SIGKILL - 1) & 1) != 0 ? SIGKILL : 0;
        }
    }
    return 0;
}

Watch::~Watch()
{
    for (const auto &[who, watched] : watched_) {
        ::close(watched.fd);
    }
}

void Watch::open(base::Time now, Rank who)
{
    const std::string path = self_check_path(folder_, who.jobid, who.vpid);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return; // not that far, or it runs without: nothing is known of it, nothing believed
    }
    ::unlink(path.c_str());
    watched_.emplace(who, Watched{.fd = fd, .monitor = SelfCheckMonitor(now, config_)});
}

void Watch::read(base::Time now, Watched &watched) const
{
    SelfCheckRecord record;
    if (::pread(watched.fd, &record, sizeof record, 0) != sizeof record ||
        record.magic != SelfCheckRecord::expected_magic || record.number != record.number_again ||
        record.number == watched.number) {
        return;
    }
    watched.number = record.number;
    watched.pid = record.pid;
    // Its last report before it takes leave of the runtime: it does not hang any more, but may be
    // stopped still.
    watched.left = (record.flags & SelfCheckRecord::left) != 0;
    watched.monitor.on_report(
        now, {.in_mpi = !watched.left && (record.flags & SelfCheckRecord::in_mpi) != 0,
              .traced = (record.flags & SelfCheckRecord::traced) != 0,
              .progress = record.progress,
              .announced = base::Duration::from_ns(record.announced_ns)});
}

bool Watch::judge(base::Time now, Watched &watched, Cause &cause) const
{
    const auto verdict = watched.monitor.verdict(now);
    if (verdict == SelfCheckMonitor::Verdict::healthy || watched.pid <= 0) {
        return false;
    }
    const ProcessState process = process_state(watched.pid);
    if (process.traced || process.state == 't' || process.state == '?') {
        return false;
    }
    if (verdict == SelfCheckMonitor::Verdict::hung) {
        cause = Cause::hung;
        return true;
    }
    // Silent. A thread that gets no processor, or waits for a disk, says nothing about MPI.
    cause = Cause::stopped;
    return stopped_too_ && !suspended_ && process.state == 'T';
}

std::vector<Watch::Accused> Watch::look(base::Time now, const std::vector<Rank> &alive)
{
    // Who is not among them any more does not come back.
    std::erase_if(watched_, [&](const auto &entry) {
        const bool gone = std::find(alive.begin(), alive.end(), entry.first) == alive.end();
        if (gone) {
            ::close(entry.second.fd);
        }
        return gone;
    });
    std::vector<Accused> accused;
    for (const Rank who : alive) {
        auto it = watched_.find(who);
        if (it == watched_.end()) {
            open(now, who);
            continue;
        }
        Watched &watched = it->second;
        if (watched.over) {
            continue;
        }
        read(now, watched);
        if (watched.left && process_state(watched.pid).state != 'T') {
            watched.monitor.on_report(now, {}); // it is silent only while it is stopped
        }
        Cause cause = Cause::hung;
        if (!watched.over && judge(now, watched, cause)) {
            watched.over = true;
            accused.push_back({who, cause});
        }
    }
    return accused;
}

void Watch::on_own_pause(base::Time now, base::Duration pause)
{
    for (auto &[who, watched] : watched_) {
        watched.monitor.on_own_pause(now, pause);
    }
}

void Watch::on_suspended(bool suspended)
{
    suspended_ = suspended;
}

} // namespace ft::radixft
