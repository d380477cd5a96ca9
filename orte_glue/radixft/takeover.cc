// What becomes of a job whose mpirun has died: it runs on, and the lowest live daemon stands in.
//
// The daemons reach each other directly and the collectives have found their new root by
// themselves, so little is left to do: output goes to files instead of mpirun's console, requests
// to mpirun that nobody can grant are refused, and the daemons agree on the end (WindDown).
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

/// Longest piece of output in one message; the runtime's own limit is far below.
constexpr std::size_t most_output = 65536;

/// Long enough for several repetitions of a message: after that a daemon knows which collectives
/// are over, and mpirun what has happened.
constexpr base::Duration settled_after = base::Duration::from_ms(1000);

bool recorded(const orte_proc_t &child)
{
    return ORTE_FLAG_TEST(&child, ORTE_PROC_FLAG_RECORDED);
}

/// Whether that process has read what is in the pipe that is its standard input, if it has one.
bool has_read_all(pid_t pid)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/0";
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return true;
    }
    struct stat what {};
    int unread = 0;
    const bool pipe = ::fstat(fd, &what) == 0 && S_ISFIFO(what.st_mode);
    if (pipe && ::ioctl(fd, FIONREAD, &unread) != 0) {
        unread = 0;
    }
    ::close(fd);
    return unread == 0;
}

} // namespace

void Daemon::announce_output() const
{
    std::fprintf(stderr,
                 "radixft: should mpirun die, the job runs on and its output is appended to %s.out "
                 "and .err on the host of the lowest live daemon\n",
                 output_.c_str());
}

std::string Daemon::output_here() const
{
    const std::size_t name = output_.rfind('/');
    const std::string folder = output_.substr(0, name + 1);
    if (access(folder.c_str(), W_OK | X_OK) == 0) {
        return output_;
    }
    const char *const temporary = orte_process_info.tmpdir_base;
    return (temporary == nullptr ? "/tmp" : temporary) + output_.substr(name);
}

void Daemon::without_mpirun(const membership::View &view)
{
    const NodeId root = view.root();
    if (ORTE_PROC_MY_HNP->vpid != root) {
        story(1, "daemon %u on %s stands in for mpirun", root, host_name(root).c_str());
        // Whatever the runtime sends to mpirun goes there from now on.
        ORTE_PROC_MY_HNP->vpid = root;
        ORTE_PROC_MY_PARENT->vpid = root;
        publications_.on_new_server();
    }
    if (!orphaned_at_) {
        orphaned_at_ = monotonic_now();
        if (*orphaned_at_ - must_end_since_ > settled_after) {
            must_end_.clear(); // mpirun has known of it, and let the job go on
        }
    }
    if (root == self_ && stdout_ == nullptr) {
        stand_in();
    }
    wind_down_->on_view(root, std::vector<NodeId>(view.members().begin(), view.members().end()));
    check_ranks();
}

/// Input came from mpirun: a rank that has read all of it finds its end, instead of waiting. This
/// daemon may have some of it that did not fit the pipe, and writes that between two looks.
void Daemon::end_input()
{
    constexpr unsigned empty_looks = 3;
    for (int i = 0; orphaned_at_ && i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child == nullptr || recorded(*child) || child->pid <= 0) {
            continue;
        }
        unsigned &looks = input_looks_[{child->name.jobid, child->name.vpid}];
        if (looks < empty_looks) {
            looks = has_read_all(child->pid) ? looks + 1 : 0;
            if (looks == empty_looks) {
                orte_iof.close(&child->name, ORTE_IOF_STDIN);
            }
        }
    }
}

void Daemon::stand_in()
{
    const std::string output = output_here();
    stdout_ = std::fopen((output + ".out").c_str(), "a");
    stderr_ = std::fopen((output + ".err").c_str(), "a");
    if (stdout_ == nullptr || stderr_ == nullptr) {
        orte_show_help("help-errmgr-radixft.txt", "no-output", true, orte_process_info.nodename,
                       output.c_str(), std::strerror(errno));
        for (std::FILE **file : {&stdout_, &stderr_}) {
            if (*file == nullptr) {
                *file = std::fopen("/dev/null", "a");
            }
        }
    }
    std::fprintf(stderr_, "radixft: mpirun is gone, daemon %u on %s stands in for it\n", self_,
                 host_name(self_).c_str());
    std::fflush(stderr_);
    spawns_.take_over();
    orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, ORTE_RML_TAG_IOF_HNP, ORTE_RML_PERSISTENT,
                            Callbacks::output, nullptr);
    // A daemon with a launcher of its own listens already, and would take the others' reports of
    // their ranks for its own.
    orte_rml.recv_cancel(ORTE_NAME_WILDCARD, ORTE_RML_TAG_PLM);
    orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, ORTE_RML_TAG_PLM, ORTE_RML_PERSISTENT,
                            Callbacks::request, nullptr);
}

void Daemon::job_must_end(const std::string &why) noexcept
{
    if (must_end_.empty()) {
        must_end_ = why;
        must_end_since_ = monotonic_now();
    }
    check_ranks();
    flush();
}

/// Who of the first job, one of mpirun's own ranks perhaps, was lost before all were through
/// MPI_Init, so that this one waits for it there. mpirun would end the job. Null: nobody, as far as
/// is known here.
const RankDeath *Daemon::missed_by(const orte_proc_t &waiting) const
{
    for (const auto &[who, death] : session_->deaths().known()) {
        orte_process_name_t name{.jobid = who.jobid, .vpid = who.vpid};
        const orte_proc_t *const dead =
            who.jobid == waiting.name.jobid ? orte_get_proc_object(&name) : nullptr;
        if (dead != nullptr && in_mpi_init(*dead)) {
            return &death;
        }
    }
    return nullptr;
}

/// Whether a spawned job, some of whose ranks are this daemon's, is known not to be through
/// MPI_Init: its collectives are not over, or its rank 0 and those who spawned it are not done with
/// each other.
bool Daemon::is_beginning(const orte_job_t &spawned) const
{
    return !parent_port(spawned).empty() &&
           (jobs_.host({spawned.jobid, 0}) == self_ ? !publications_.begun(spawned)
                                                    : in_mpi_init(spawned.jobid));
}

/// Ranks of a spawned job that has not begun. Some of them may never have been started, and those
/// who spawned them have been told that it failed; or what both had told each other was mpirun's to
/// keep. So each daemon ends its own; their deaths are told like all others, and the server refuses
/// those who wait for them.
void Daemon::check_spawns()
{
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child == nullptr || !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE) || child->pid <= 0) {
            continue;
        }
        const orte_job_t *const job = orte_get_job_data_object(child->name.jobid);
        if (job != nullptr && is_beginning(*job)) {
            story(1, "rank %u of job %u was spawned and is not through MPI_Init: ends it",
                  child->name.vpid, ORTE_LOCAL_JOBID(child->name.jobid));
            orte_odls.signal_local_procs(&child->name, SIGKILL);
        }
    }
}

void Daemon::called_abort(const orte_job_t &job, const orte_proc_t &rank) noexcept
{
    if (!is_beginning(job)) {
        job_must_end("rank " + std::to_string(rank.name.vpid) + " called MPI_Abort");
    } else if (orphaned_at_) {
        rank_died(rank, Cause::exited); // otherwise mpirun sees to it
    }
}

void Daemon::check_ranks()
{
    if (!orphaned_at_ || over_) {
        return;
    }
    check_spawns();
    if (!must_end_.empty()) {
        wind_down_->report(RanksAre::to_end, must_end_);
        return;
    }
    const base::Time now = monotonic_now();
    const bool patient =
        now - *orphaned_at_ < base::Duration::from_ms(std::max(parameters().launch_wait_ms, 1000));
    bool running = false;
    const RankDeath *missed = nullptr;
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child == nullptr || recorded(*child)) {
            continue;
        }
        running = true;
        if (!is_first(child->name.jobid) || !ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_REG)) {
            continue;
        }
        missed = missed == nullptr ? missed_by(*child) : missed;
        if (!patient && in_mpi_init(*child)) {
            must_end_ = "mpirun died before all ranks were through MPI_Init";
        }
    }
    missed_since_ = missed == nullptr ? base::Time::never() : std::min(missed_since_, now);
    if (missed != nullptr && now - missed_since_ >= settled_after) {
        must_end_ = "rank " + std::to_string(missed->who.vpid) + " on host " +
                    host_name(missed->host) + " died before all ranks were through MPI_Init";
    }
    if (!must_end_.empty()) {
        wind_down_->report(RanksAre::to_end, must_end_);
    } else if (!running) {
        wind_down_->report(RanksAre::over);
    }
}

void Daemon::check_winding_down()
{
    if (!orphaned_at_ || !wind_down_->leaving()) {
        return;
    }
    if (!over_) {
        over_ = true;
        story(1, "the job is over: leaves");
        orte_orteds_term_ordered = true;
        orte_odls.kill_local_procs(nullptr);
    }
    if (wind_down_->may_leave()) {
        ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_DAEMONS_TERMINATED);
    }
}

void Daemon::on_output(opal_buffer_t *buffer)
{
    orte_iof_tag_t stream = 0;
    orte_process_name_t origin;
    static unsigned char bytes[most_output];
    std::int32_t one = 1;
    std::int32_t count = most_output;
    if (opal_dss.unpack(buffer, &stream, &one, ORTE_IOF_TAG) != ORTE_SUCCESS ||
        (stream & (ORTE_IOF_STDOUT | ORTE_IOF_STDERR | ORTE_IOF_STDDIAG)) == 0 ||
        (stream & (ORTE_IOF_PULL | ORTE_IOF_CLOSE | ORTE_IOF_XON | ORTE_IOF_XOFF)) != 0 ||
        (one = 1, opal_dss.unpack(buffer, &origin, &one, ORTE_NAME)) != ORTE_SUCCESS ||
        opal_dss.unpack(buffer, bytes, &count, OPAL_BYTE) != ORTE_SUCCESS) {
        drops_.count(Drops::Why::unexpected);
        return;
    }
    std::FILE *const file = (stream & ORTE_IOF_STDOUT) != 0 ? stdout_ : stderr_;
    std::fwrite(bytes, 1, static_cast<std::size_t>(count), file);
    std::fflush(file);
}

void Daemon::on_request(orte_process_name_t *sender, opal_buffer_t *buffer)
{
    // Reports of ranks' states are not wanted: every daemon says by itself when it has none left.
    orte_plm_cmd_flag_t command = 0;
    std::int32_t one = 1;
    orte_job_t *job = nullptr;
    if (opal_dss.unpack(buffer, &command, &one, ORTE_PLM_CMD) != ORTE_SUCCESS ||
        command != ORTE_PLM_LAUNCH_JOB_CMD ||
        (one = 1, opal_dss.unpack(buffer, &job, &one, ORTE_JOB)) != ORTE_SUCCESS ||
        job == nullptr) {
        return;
    }
    // Nobody is left who could launch: MPI_Comm_spawn is told so, or it would wait for ever.
    refuse_launch(*job, *sender, ORTE_ERR_NOT_SUPPORTED);
    OBJ_RELEASE(job);
}

/// Answers the daemon `who`, of whose rank the request came.
void Daemon::refuse_launch(const orte_job_t &job, orte_process_name_t who, std::int32_t error)
{
    opal_buffer_t *answer = OBJ_NEW(opal_buffer_t);
    orte_jobid_t none = ORTE_JOBID_INVALID;
    int number = 0;
    int *room = &number;
    bool packed = opal_dss.pack(answer, &error, 1, OPAL_INT32) == ORTE_SUCCESS &&
                  opal_dss.pack(answer, &none, 1, ORTE_JOBID) == ORTE_SUCCESS;
    if (packed && orte_get_attribute(const_cast<opal_list_t *>(&job.attributes), ORTE_JOB_ROOM_NUM,
                                     reinterpret_cast<void **>(&room), OPAL_INT)) {
        packed = opal_dss.pack(answer, room, 1, OPAL_INT) == ORTE_SUCCESS;
    }
    if (!packed || orte_rml.send_buffer_nb(static_cast<orte_rml_conduit_t>(orte_mgmt_conduit), &who,
                                           answer, ORTE_RML_TAG_LAUNCH_RESP, Callbacks::sent,
                                           nullptr) != ORTE_SUCCESS) {
        OBJ_RELEASE(answer);
    }
}

} // namespace ft::radixft
