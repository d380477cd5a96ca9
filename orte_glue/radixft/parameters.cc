#include "orte_glue/radixft/parameters.hpp"

#include "opal/ft/membership/radix_tree.hpp"
#include "opal/mca/misread.hpp"
#include "opal/mca/open_mpi_series.hpp"

#include <array>

namespace ft::radixft {

namespace {

struct Entry {
    const char *name;
    int Parameters::*value;
    int least;
    int most;
    mca_base_var_info_lvl_t level;
    const char *help;
    bool written_by_programs = false; ///< through MPI_T, while the job runs
};

constexpr std::array<Entry, 17> table{{
    {"arity", &Parameters::arity, 2, 1024, OPAL_INFO_LVL_4,
     "Children of a daemon in the membership tree: a power of two, 2 to 1024, default 2. 2: the "
     "least "
     "work for one daemon and the most levels, so the most hops for a change. 1024: one hop, but "
     "the "
     "root alone sends a message to every daemon and waits for every answer."},
    {"repair", &Parameters::repair, 0, 1, OPAL_INFO_LVL_8,
     "How the tree follows from the daemons that live, 0 or 1, default 0. 0: it is formed anew, "
     "and "
     "none has more than arity children, but many get new neighbours. 1: the paper's four repair "
     "steps, in which a dead daemon's children go to its parent: few get new neighbours, but as "
     "failures add up one daemon can come to have a message to send to every other."},
    {"localised_view", &Parameters::localised_view, 0, 1, OPAL_INFO_LVL_8,
     "How a daemon keeps the list of daemons, 0 or 1, default 0. 0: an array, 8 bytes for each (8 "
     "MiB with a million), with every look-up in constant time. 1: the gaps in their numbers only, "
     "8 bytes for each and some hundred in all, with look-ups that take the logarithm of the "
     "gaps' number. Not with repair 1."},
    {"heartbeat", &Parameters::heartbeat_ms, 0, 60000, OPAL_INFO_LVL_3,
     "Time between heartbeats of neighbours in the tree, in milliseconds, 0 to 60000, default 100. "
     "Smaller: silent daemons are noticed sooner, at more wake-ups (a daemon sends at most arity + "
     "1 messages "
     "each time). 0: no heartbeats; a daemon that stops without closing its connections is never "
     "noticed."},
    {"suspect_floor", &Parameters::suspect_floor_ms, 10, 600000, OPAL_INFO_LVL_4,
     "Silence that is never suspicious, in milliseconds, 10 to 600000, default 500. Smaller: "
     "silent "
     "daemons are noticed sooner, but slow ones are probed more often. Larger: nothing but later "
     "notice. Must "
     "exceed the heartbeat."},
    {"suspect_ceiling", &Parameters::suspect_ceiling_ms, 10, 3600000, OPAL_INFO_LVL_4,
     "Silence that is always suspicious, in milliseconds, 10 to 3600000, default 5000. In between, "
     "the "
     "timeout follows the heartbeats' own jitter. Smaller: a bound on the time to notice; too "
     "small, and daemons "
     "of an overloaded machine are probed for nothing. Not below suspect_floor."},
    {"probe", &Parameters::probe_ms, 1, 600000, OPAL_INFO_LVL_4,
     "How long a suspected daemon has to answer before it is believed dead, in milliseconds, 1 to "
     "600000, "
     "default 150. Smaller: silent deaths are settled sooner, but a daemon that is only slow is "
     "evicted and "
     "its ranks end. Larger: the opposite. A daemon whose host refuses connections is believed "
     "dead at once."},
    {"minority_wait", &Parameters::minority_wait_ms, 0, 3600000, OPAL_INFO_LVL_4,
     "How long daemons that reach no majority wait for the network to heal before they end their "
     "ranks, in "
     "milliseconds, 0 to 3600000, default 5000. 0: they end at once. Large: ranks on the smaller "
     "side "
     "of a cut network hang that long. Where nobody had a majority, three quarters of what is left "
     "of it are the longest time that those who have one again wait for the others."},
    {"launch_wait", &Parameters::launch_wait_ms, 0, 3600000, OPAL_INFO_LVL_3,
     "How long mpirun waits, from the start of the launch, for the last daemon to be ready before "
     "it ends the job with "
     "a message, in milliseconds, 0 to 3600000, default 30000. 0: for ever. Small: a slow launch "
     "fails; large: a "
     "host that never answers holds up the job that long."},
    {"start_without", &Parameters::start_without, 0, 1000000, OPAL_INFO_LVL_2,
     "How many of its ranks the job may begin without: 0 to 1000000, default 0. 0: a host that "
     "cannot be reached, or whose daemon ends before the job is mapped, ends it with a message. "
     "Otherwise the job is mapped to the other hosts: with all its ranks, if there are slots for "
     "them (or --oversubscribe), or with so many fewer, of which MPI_COMM_WORLD is as much "
     "smaller; and ranks that die in MPI_Init are dead from the start. Large: a job may run with "
     "next to nothing of what it was to have."},
    {"failed_exit_code", &Parameters::failed_exit_code, 0, 255, OPAL_INFO_LVL_2,
     "mpirun's exit code when ranks died, or the job began without some (start_without), and "
     "every survivor ended with 0: 0 to 255, default 0. "
     "With 0 a job that "
     "ran through its failures counts as a success; another value lets a script tell the "
     "difference. When no rank "
     "survives, mpirun returns the code of the first that died (128 + signal)."},
    {"self_check", &Parameters::self_check_ms, 0, 60000, OPAL_INFO_LVL_4,
     "Time between the reports of a rank's self-checking thread to its daemon, in milliseconds, 0 "
     "to 60000, default 500. Smaller: more wake-ups of every rank. Larger: hang_limit, and "
     "stop_limit unless it is 0, must be at least twice as long. 0: no such thread; ranks that "
     "hang or are stopped are never found, and "
     "one stays caught in btl/vader when another dies while it adds to its queue in shared "
     "memory."},
    {"hang_limit", &Parameters::hang_limit_ms, 10, 3600000, OPAL_INFO_LVL_4,
     "How long a rank's progress engine may stand still inside one of its functions before the "
     "rank counts as hung and is ended, in milliseconds, 10 to 3600000, default 10000. Smaller: "
     "hung ranks are found sooner, but one that runs a long reduction of its own inside "
     "a nonblocking collective is ended, unless it announces that. Larger: found later. Ranks that "
     "compute outside MPI, wait for messages or are held by a debugger do not count."},
    {"stop_limit", &Parameters::stop_limit_ms, 0, 3600000, OPAL_INFO_LVL_4,
     "How long a rank may be stopped (SIGSTOP), while its daemon runs, before it is ended, in "
     "milliseconds, 0 to 3600000, default 5000. Smaller: the others wait less for it. 0: stopped "
     "ranks are let be. What a debugger stops, or mpirun because it was told to, does not count."},
    {"tell", &Parameters::tell, 1, 3, OPAL_INFO_LVL_8,
     "How a daemon tells its ranks of deaths: 1 to 3, default 3. 1: by memory that they share, at "
     "which a rank looks whenever MPI makes progress: within microseconds, but a rank that stays "
     "out of MPI learns nothing meanwhile. 2: by an event of PMIx, whose thread waits for the core "
     "on which its rank computes: milliseconds. 3: by both, the events 5 ms later."},
    {"life_line", &Parameters::life_line, 0, 1, OPAL_INFO_LVL_8,
     "How a daemon notices that a rank is killed, 0 or 1, default 1. 1: when its first thread "
     "ends, "
     "some 60 microseconds after the signal; costs a sleeping thread in each rank, wants Linux "
     "5.16, and is for 127 ranks of a daemon. 0, and wherever 1 is not to be had: when the kernel "
     "has taken the whole process apart, milliseconds later, many where cores are shared."},
    {"announce", &Parameters::announce_ms, 0, 3600000, OPAL_INFO_LVL_5,
     "Written through MPI_T by a program that will keep MPI's progress engine from moving on "
     "purpose: for how long, in milliseconds, 0 to 3600000, default 0. Counted from the next "
     "report of the self-checking thread, which sets it back to 0. Too short: the rank is "
     "ended. Too long: it is found late if it really hangs.",
     true},
}};

struct Folder {
    const char *name;
    char *Parameters::*value;
    mca_base_var_info_lvl_t level;
    const char *help;
};

constexpr std::array<Folder, 2> folders{{
    {"output_dir", &Parameters::output_dir, OPAL_INFO_LVL_2,
     "Folder for what the ranks print after mpirun has died, on the host of the daemon that takes "
     "its place (the lowest live one); best one that all hosts share. Unset (the default): the "
     "folder in which mpirun was started. Nothing is written there while mpirun lives."},
    {"log_dir", &Parameters::log_dir, OPAL_INFO_LVL_8,
     "Folder that exists on every host; each daemon writes there the log of everything that "
     "entered and left its membership engine, from which the run can be repeated. Unset (the "
     "default): no log. Set: some hundred bytes for each protocol message, heartbeats included."},
}};

} // namespace

Parameters &parameters() noexcept
{
    static Parameters the_parameters;
    return the_parameters;
}

int register_parameters(const mca_base_component_t *component) noexcept
{
    Parameters &p = parameters();
    for (const Entry &e : table) {
        const int rc = mca_base_component_var_register(
            component, e.name, e.help, MCA_BASE_VAR_TYPE_INT, nullptr, 0,
            e.written_by_programs ? MCA_BASE_VAR_FLAG_SETTABLE
                                  : static_cast<mca_base_var_flag_t>(0),
            e.level, e.written_by_programs ? MCA_BASE_VAR_SCOPE_LOCAL : MCA_BASE_VAR_SCOPE_READONLY,
            &(p.*e.value));
        if (rc < 0) {
            return rc;
        }
    }
    for (const Folder &f : folders) {
        const int rc =
            mca_base_component_var_register(component, f.name, f.help, MCA_BASE_VAR_TYPE_STRING,
                                            nullptr, 0, static_cast<mca_base_var_flag_t>(0),
                                            f.level, MCA_BASE_VAR_SCOPE_READONLY, &(p.*f.value));
        if (rc < 0) {
            return rc;
        }
    }
    return OPAL_SUCCESS;
}

membership::Config Parameters::engine() const
{
    const auto ms = [](int v) { return base::Duration::from_ms(v); };
    membership::Config c;
    c.arity = static_cast<unsigned>(arity);
    c.mode = repair != 0 ? membership::TreeMode::paper : membership::TreeMode::rebuild;
    c.form = localised_view != 0 ? membership::ViewForm::localised : membership::ViewForm::full;
    c.probe_timeout = ms(probe_ms);
    c.minority_wait = ms(minority_wait_ms);
    c.exile_hold = ms(minority_wait_ms) + base::Duration::from_s(5);
    c.heartbeat.interval = ms(heartbeat_ms);
    c.heartbeat.suspicion.floor = ms(suspect_floor_ms);
    c.heartbeat.suspicion.ceiling = ms(suspect_ceiling_ms);
    // A lease that outlasts the suspicion would make evictions of silent daemons wait for it.
    c.heartbeat.fence = ms(suspect_floor_ms) * 4 / 5;
    return c;
}

detector::SelfCheckConfig Parameters::self_check() const
{
    detector::SelfCheckConfig c;
    c.period = base::Duration::from_ms(self_check_ms);
    c.frozen_limit = base::Duration::from_ms(hang_limit_ms);
    if (stop_limit_ms > 0) {
        c.silent_limit = base::Duration::from_ms(stop_limit_ms);
    }
    return c;
}

void hand_on_parameters() noexcept
{
    // What stands in a file of overrides stands there on all hosts, or is warned of by the runtime.
    const auto hand_on = [](const char *component, const char *name, const auto &text) {
        const int index = mca_base_var_find("orte", "errmgr", component, name);
        mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
        if (index >= 0 &&
            mca_base_var_get_value(index, nullptr, &source, nullptr) == OPAL_SUCCESS &&
            source == MCA_BASE_VAR_SOURCE_FILE) {
            const std::string full = name == nullptr ? "" : std::string("_radixft_") + name;
            setenv(("OMPI_MCA_errmgr" + full).c_str(), text().c_str(), 1);
        }
    };
    const Parameters &p = parameters();
    hand_on(nullptr, nullptr, [] { return std::string("radixft"); });
    for (const Entry &e : table) {
        hand_on("radixft", e.name, [&] { return std::to_string(p.*e.value); });
    }
    for (const Folder &f : folders) {
        hand_on("radixft", f.name,
                [&] { return std::string(p.*f.value == nullptr ? "" : p.*f.value); });
    }
}

std::string misread_parameter()
{
    for (const Entry &e : table) {
        const std::string name = std::string("errmgr_radixft_") + e.name;
        if (const auto text = mca::misread_number(name, false)) {
            return name + " is \"" + *text +
                   "\", which is no whole number; durations are milliseconds, without a unit";
        }
    }
    return {};
}

std::string Parameters::fault() const
{
    for (const Entry &e : table) {
        const int v = this->*e.value;
        if (v < e.least || v > e.most) {
            return std::string("errmgr_radixft_") + e.name + " is " + std::to_string(v) +
                   ", but must be " + std::to_string(e.least) + " to " + std::to_string(e.most);
        }
    }
    if (!membership::RadixTree::valid_arity(static_cast<unsigned>(arity))) {
        return "errmgr_radixft_arity is " + std::to_string(arity) + ", but must be a power of two";
    }
    if (repair != 0 && localised_view != 0) {
        return "errmgr_radixft_repair and errmgr_radixft_localised_view are both 1: a localised "
               "view cannot keep the links of a tree that is repaired step by step; choose one";
    }
    if (heartbeat_ms > 0 && suspect_floor_ms <= heartbeat_ms) {
        return "errmgr_radixft_suspect_floor (" + std::to_string(suspect_floor_ms) +
               " ms) must exceed errmgr_radixft_heartbeat (" + std::to_string(heartbeat_ms) +
               " ms), or every daemon is suspected between two heartbeats";
    }
    if (suspect_ceiling_ms < suspect_floor_ms) {
        return "errmgr_radixft_suspect_ceiling (" + std::to_string(suspect_ceiling_ms) +
               " ms) is below errmgr_radixft_suspect_floor (" + std::to_string(suspect_floor_ms) +
               " ms)";
    }
    if (self_check_ms > 0 && (hang_limit_ms < 2 * self_check_ms ||
                              (stop_limit_ms > 0 && stop_limit_ms < 2 * self_check_ms))) {
        return "errmgr_radixft_hang_limit (" + std::to_string(hang_limit_ms) +
               " ms) and errmgr_radixft_stop_limit (" + std::to_string(stop_limit_ms) +
               " ms) must be at least twice errmgr_radixft_self_check (" +
               std::to_string(self_check_ms) + " ms), or ranks that are well are ended";
    }
    return engine().fault();
}

bool requested() noexcept
{
    if (!mca::open_mpi_fits()) {
        return false; // errmgr/radixft says so
    }
    const int index = mca_base_var_find("orte", "errmgr", nullptr, nullptr);
    if (index < 0) {
        return false;
    }
    const char *const *value = nullptr;
    if (mca_base_var_get_value(index, static_cast<void *>(&value), nullptr, nullptr) !=
            OPAL_SUCCESS ||
        value == nullptr || *value == nullptr) {
        return false;
    }
    return std::strcmp(*value, "radixft") == 0;
}

int offer_to_daemons(void *module, mca_base_module_t **answer, int *priority) noexcept
{
    *answer = nullptr;
    *priority = -1;
    if (!requested() || !(ORTE_PROC_IS_HNP || ORTE_PROC_IS_DAEMON)) {
        return ORTE_ERR_NOT_SUPPORTED;
    }
    *answer = static_cast<mca_base_module_t *>(module);
    *priority = 200;
    return ORTE_SUCCESS;
}

} // namespace ft::radixft
