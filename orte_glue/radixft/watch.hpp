/// A daemon's watch over its ranks that may hang: reads what their self-checking threads report,
/// asks the monitor of each (opal/ft/detector/self_check.hpp), and the operating system about those
/// that have fallen silent. One thread; knows nothing of the runtime.
#pragma once

#include "opal/ft/detector/self_check.hpp"
#include "orte_glue/radixft/self_check_record.hpp"
#include "orte_glue/radixft/types.hpp"

#include <map>
#include <string>
#include <vector>

namespace ft::radixft {

/// What the operating system says of a process.
struct ProcessState {
    char state = '?'; ///< as in /proc/PID/status: T is stopped by a signal, t by a debugger
    bool traced = false;
};

/// Of the process `pid`; '?' when there is none.
ProcessState process_state(std::int64_t pid);

/// What a file of /proc says, as far as it can be read: nothing of a process that somebody reaps
/// between its opening and its reading.
std::string contents(const std::string &path);

/// The signal that has killed the process `pid`, also while the kernel still takes it apart; 0:
/// none has, as far as can be told. Once there is one there is no way back. True only of a process
/// that this one has not yet reaped, or the number may be another's.
int fatal_signal(std::int64_t pid);

/// How the process `pid` ends, or has ended and is not reaped yet, as wait(2) has it; -1: it does
/// not, as far as can be told.
int exit_status(std::int64_t pid);

class Watch {
  public:
    /// `folder` is where the ranks' records appear. Stopped ranks are accused after
    /// config.silent_limit, or never when `stopped_too` is false.
    Watch(std::string folder, const detector::SelfCheckConfig &config, bool stopped_too)
        : folder_(std::move(folder)), config_(config), stopped_too_(stopped_too)
    {
    }
    ~Watch();
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

    struct Accused {
        Rank who;
        Cause cause = Cause::hung; ///< hung or stopped
    };
    /// Looks at the records of these ranks, which live as far as is known. Each is accused once.
    std::vector<Accused> look(base::Time now, const std::vector<Rank> &alive);
    /// This process did not run for so long: nobody's silence in that time counts.
    void on_own_pause(base::Time now, base::Duration pause);
    /// The ranks were stopped, or continued, because a user said so.
    void on_suspended(bool suspended);

  private:
    struct Watched {
        int fd = -1;
        std::int64_t pid = 0;
        std::uint64_t number = 0;
        bool left = false; ///< its last report has come
        bool over = false; ///< was accused
        detector::SelfCheckMonitor monitor;
    };

    void open(base::Time now, Rank who);
    void read(base::Time now, Watched &watched) const;
    bool judge(base::Time now, Watched &watched, Cause &cause) const;

    std::string folder_;
    detector::SelfCheckConfig config_;
    bool stopped_too_;
    bool suspended_ = false;
    std::map<Rank, Watched> watched_;
};

} // namespace ft::radixft
