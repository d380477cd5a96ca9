// What becomes of a job whose mpirun has died: it runs on, and the lowest live daemon stands in.
//
// The daemons reach each other directly and the collectives have found their new root by
// themselves, so little is left to do: output goes to files instead of mpirun's console, requests
// to mpirun that nobody can grant are refused, and the daemons agree on the end (WindDown).
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"

namespace ft::radixft {

namespace {

/// Longest piece of output in one message; the runtime's own limit is far below.
constexpr std::size_t most_output = 65536;

bool recorded(const orte_proc_t &child)
{
    return ORTE_FLAG_TEST(&child, ORTE_PROC_FLAG_RECORDED);
}

} // namespace

void Daemon::announce_output() const
{
    std::fprintf(stderr,
                 "radixft: should mpirun die, the job runs on and its output is appended to %s.out "
                 "and .err on the host of the lowest live daemon\n",
                 output_.c_str());
}

void Daemon::without_mpirun(const membership::View &view)
{
    const NodeId root = view.root();
    if (ORTE_PROC_MY_HNP->vpid != root) {
        story(1, "daemon %u on %s stands in for mpirun", root, host_name(root).c_str());
        // Whatever the runtime sends to mpirun goes there from now on.
        ORTE_PROC_MY_HNP->vpid = root;
        ORTE_PROC_MY_PARENT->vpid = root;
    }
    if (!orphaned_at_) {
        orphaned_at_ = monotonic_now();
    }
    if (root == self_ && stdout_ == nullptr) {
        stand_in();
    }
    wind_down_->on_view(root, std::vector<NodeId>(view.members().begin(), view.members().end()));
    check_ranks();
}

void Daemon::stand_in()
{
    stdout_ = std::fopen((output_ + ".out").c_str(), "a");
    stderr_ = std::fopen((output_ + ".err").c_str(), "a");
    if (stdout_ == nullptr || stderr_ == nullptr) {
        orte_show_help("help-errmgr-radixft.txt", "no-output", true, orte_process_info.nodename,
                       output_.c_str(), std::strerror(errno));
        for (std::FILE **file : {&stdout_, &stderr_}) {
            if (*file == nullptr) {
                *file = std::fopen("/dev/null", "a");
            }
        }
    }
    std::fprintf(stderr_, "radixft: mpirun is gone, daemon %u on %s stands in for it\n", self_,
                 host_name(self_).c_str());
    std::fflush(stderr_);
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
    }
    check_ranks();
    flush();
}

void Daemon::check_ranks()
{
    if (!orphaned_at_ || over_) {
        return;
    }
    if (!must_end_.empty()) {
        wind_down_->report(RanksAre::to_end, must_end_);
        return;
    }
    const bool patient = monotonic_now() - *orphaned_at_ <
                         base::Duration::from_ms(std::max(parameters().launch_wait_ms, 1000));
    bool running = false;
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child == nullptr || recorded(*child)) {
            continue;
        }
        running = true;
        // Another daemon may never have been told to start its ranks, and nobody will.
        if (!patient && ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_REG) && in_mpi_init(*child)) {
            must_end_ = "mpirun died before all ranks were through MPI_Init";
            wind_down_->report(RanksAre::to_end, must_end_);
            return;
        }
    }
    if (!running) {
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
        ++dropped_;
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
