// The last words of mpirun, or of the daemon that stood in for it: who died, when, how it was
// noticed, how long it took until all knew.
#include "orte_glue/radixft/daemon.hpp"

#include <sstream>

namespace ft::radixft {

void explain(const char *topic, ...) noexcept
{
    va_list arguments;
    va_start(arguments, topic);
    char *const text = opal_show_help_vstring("help-errmgr-radixft.txt", topic, 1, arguments);
    va_end(arguments);
    if (text != nullptr) {
        std::fputs(text, stderr);
        std::free(text);
    }
}

int exit_code_of(const RankDeath &death) noexcept
{
    return death.exit_code == unknown_exit_code ? ORTE_ERROR_DEFAULT_EXIT_CODE : death.exit_code;
}

std::string exit_code_text(const RankDeath &death)
{
    return death.exit_code == unknown_exit_code ? "exit code not known"
                                                : "exit code " + std::to_string(death.exit_code);
}

namespace {

std::string seconds(std::int64_t us)
{
    char text[64];
    std::snprintf(text, sizeof text, "%.3f s", static_cast<double>(us) * 1e-6);
    return text;
}

std::string milliseconds(std::int64_t us)
{
    char text[64];
    std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(us) * 1e-3);
    return text;
}

std::string manner(const RankDeath &death)
{
    if (death.cause == Cause::hung) {
        return "hung inside MPI, ended by its daemon";
    }
    if (death.cause == Cause::stopped) {
        return "was stopped and not let go on, ended by its daemon";
    }
    if (death.cause == Cause::absent) {
        return "ended before it had come to MPI_Init (" + exit_code_text(death) +
               "), reaped by its daemon";
    }
    if (death.cause == Cause::not_started) {
        return std::string("could not be started (") + opal_strerror(death.exit_code) + ")";
    }
    if (death.cause == Cause::signal) {
        const int number = death.exit_code - 128;
        const char *name = strsignal(number);
        return "ended by signal " + std::to_string(number) + " (" + (name ? name : "unknown") +
               "), reaped by its daemon";
    }
    if (death.exit_code == unknown_exit_code) {
        return "ended without MPI_Finalize, exit code not known, reaped by the script that started "
               "it";
    }
    return "left with " + exit_code_text(death) + " and without MPI_Finalize, reaped by its daemon";
}

} // namespace

void Daemon::summarize(std::FILE *where) const
{
    if (const Drops dropped = drops(); dropped.strange() != 0) {
        std::fprintf(
            where,
            "radixft: of the messages that came to daemon %u, %llu were malformed or forged, and "
            "were dropped (%s). Somebody else speaks on the runtime's network, or it spoils "
            "what it carries.\n",
            self_, static_cast<unsigned long long>(dropped.strange()), dropped.text().c_str());
    }
    if (!session_ || (session_->deaths().known().empty() && losses_.empty() && missing_.empty())) {
        return;
    }
    std::ostringstream text;
    std::size_t ranks = 0;
    for (const auto &[jobid, hosts] : jobs_.all()) {
        ranks += hosts.size();
    }
    if (!missing_.empty() && mapped_) {
        text << "radixft: the job began without " << missing_.size() << " of its "
             << orte_process_info.num_procs << " daemons, with "
             << shortage_.asked - shortage_.ranks << " of " << shortage_.asked << " ranks.\n";
    }
    for (const auto &[id, what] : missing_) {
        text << "  daemon " << id << " on " << host_name(id) << ": "
             << (what.empty() ? "was not there when the job began" : what) << "\n";
    }
    text << "radixft: " << session_->deaths().known().size() << " of " << ranks << " ranks died";
    if (!must_end_.empty() || !wind_down_->why().empty()) {
        text << ", and the job was ended: " << (must_end_.empty() ? wind_down_->why() : must_end_)
             << ".\n";
    } else {
        // For a signal to mpirun the runtime ends the job by itself.
        const bool ended = (over_ || orte_job_term_ordered) && !orphaned_at_;
        text << (ended                                        ? ", and the job was ended.\n"
                 : session_->deaths().known().size() == ranks ? ", nobody was left.\n"
                                                              : ", the others ran on.\n");
    }
    for (const auto &[id, loss] : losses_) {
        if (loss.id == no_node) {
            continue;
        }
        text << "  daemon " << id << " on " << loss.host << ": "
             << (loss.grade == membership::Grade::suspected ? "silent, evicted"
                 : loss.grade == membership::Grade::farewell
                     ? "left"
                     : "dead, its host refused the connection")
             << "; noticed " << seconds(loss.noticed_us - started_wall_us_)
             << " after the start, view " << loss.epoch << " installed "
             << milliseconds(loss.installed_us - loss.noticed_us) << " later";
        if (loss.stabilized_ns != 0) {
            text << " (all votes in after " << milliseconds(loss.stabilized_ns / 1000) << ")";
        }
        text << "\n";
    }
    for (const auto &[who, death] : session_->deaths().known()) {
        text << "  rank " << who.vpid;
        if (ORTE_LOCAL_JOBID(who.jobid) != 1) {
            text << " of child job " << ORTE_LOCAL_JOBID(who.jobid);
        }
        text << " on " << host_name(death.host) << ": ";
        if (death.cause == Cause::node_died) {
            text << "died with daemon " << death.host;
        } else {
            text << manner(death);
        }
        text << "; noticed " << seconds(death.noticed_us - started_wall_us_) << " after the start";
        if (const auto it = spread_us_.find(who); it != spread_us_.end()) {
            text << ", known to every daemon " << milliseconds(it->second)
                 << " after it was announced";
        }
        text << " (epoch " << death.epoch << ")"
             << (done_without_.contains(who) ? ", before all ranks were through MPI_Init" : "")
             << "\n";
    }
    const std::string line(74, '-');
    std::fprintf(where, "%s\n%s%s\n", line.c_str(), text.str().c_str(), line.c_str());
}

} // namespace ft::radixft
