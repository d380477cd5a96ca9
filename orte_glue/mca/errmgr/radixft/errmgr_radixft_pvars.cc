// What a rank knows of the failures, as performance variables of MPI_T.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "opal/process/deaths.hpp"

namespace ft::radixft {

namespace {

std::uint64_t dead_of_this_job()
{
    std::uint64_t dead = 0;
    for (std::size_t i = process::death_count(); i-- > 0;) {
        dead += process::death(i).who.jobid == ORTE_PROC_MY_NAME->jobid ? 1 : 0;
    }
    return dead;
}

std::uint64_t hung_of_this_job()
{
    std::uint64_t hung = 0;
    for (std::size_t i = process::death_count(); i-- > 0;) {
        const process::Death death = process::death(i);
        hung += death.hung && death.who.jobid == ORTE_PROC_MY_NAME->jobid ? 1 : 0;
    }
    return hung;
}

struct Count {
    const char *name;
    std::uint64_t (*read)();
    const char *help;
};

constexpr Count counts[] = {
    {"epoch", [] { return process::epoch(); },
     "Epoch of the latest view of the daemons in which a death was announced; 0: none was."},
    {"dead", dead_of_this_job, "Ranks of MPI_COMM_WORLD that are known to be dead."},
    {"live", [] { return orte_process_info.num_procs - dead_of_this_job(); },
     "Ranks of MPI_COMM_WORLD that are not known to be dead."},
    {"hung", hung_of_this_job,
     "Of the dead ranks of MPI_COMM_WORLD, those that their daemon ended because they hung inside "
     "MPI or had been stopped."},
    {"dropped", [] { return death_board.dropped(); },
     "Messages of the daemons' protocol that this process's daemon did not use: malformed, forged, "
     "of an old epoch, taken before, from no member, out of place. 0 with "
     "errmgr_radixft_tell 2."},
    {"forged", [] { return death_board.strange(); },
     "Of the dropped messages, those that were malformed or forged: no daemon of the job sends "
     "such."},
};

struct Time {
    const char *name;
    std::int64_t process::Death::*value;
    const char *help;
};

constexpr Time times[] = {
    {"stabilization_time", &process::Death::stabilized_us,
     "How long the daemons took to agree on the view without the node of the rank that was last "
     "announced dead (T_s), microseconds; 0: it died alone, or nobody has died."},
    {"detection_time", &process::Death::told_after_us,
     "From the moment at which a daemon noticed the death that was last announced until this "
     "process was told, microseconds, by the hosts' wall clocks; 0: nobody has died."},
};

int read_count(const mca_base_pvar_t *variable, void *value, void * /*object*/) noexcept
{
    *static_cast<unsigned long long *>(value) = static_cast<const Count *>(variable->ctx)->read();
    return OPAL_SUCCESS;
}

int read_time(const mca_base_pvar_t *variable, void *value, void * /*object*/) noexcept
{
    const std::size_t known = process::death_count();
    const auto field = static_cast<const Time *>(variable->ctx)->value;
    *static_cast<double *>(value) =
        known == 0 ? 0.0 : static_cast<double>(process::death(known - 1).*field);
    return OPAL_SUCCESS;
}

constexpr auto flags =
    static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);

} // namespace

int register_pvars(const mca_base_component_t *component) noexcept
{
    int rc = OPAL_SUCCESS;
    for (const Count &count : counts) {
        rc = std::min(rc, mca_base_component_pvar_register(
                              component, count.name, count.help, OPAL_INFO_LVL_4,
                              MCA_BASE_PVAR_CLASS_LEVEL, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG,
                              nullptr, MCA_BASE_VAR_BIND_NO_OBJECT, flags, read_count, nullptr,
                              nullptr, const_cast<Count *>(&count)));
    }
    for (const Time &time : times) {
        rc = std::min(rc, mca_base_component_pvar_register(
                              component, time.name, time.help, OPAL_INFO_LVL_4,
                              MCA_BASE_PVAR_CLASS_LEVEL, MCA_BASE_VAR_TYPE_DOUBLE, nullptr,
                              MCA_BASE_VAR_BIND_NO_OBJECT, flags, read_time, nullptr, nullptr,
                              const_cast<Time *>(&time)));
    }
    return rc < 0 ? rc : OPAL_SUCCESS;
}

} // namespace ft::radixft
