// What the engine and the small protocols say, in the runtime's terms.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/prompt.hpp"

#include "opal/process/keys.hpp"

namespace ft::radixft {

using namespace base::literals;
using membership::Event;

namespace {

/// How much later than on the board a death is told by PMIx. Ranks that poll know by then, also
/// where several of them share a core; those that do not poll know that much later.
constexpr base::Duration events_after = 5_ms;
/// The last release of a collective is kept for at least so long after its jobs have ended. Whoever
/// still waits for it says so every 13 s at least.
constexpr base::Duration collectives_kept = 300_s;

} // namespace

void Daemon::peer_left(NodeId id) noexcept
{
    if (orphaned_at_ && over_) {
        wind_down_->has_left(id);
        check_winding_down();
        return;
    }
    if (begun() && !orte_orteds_term_ordered) {
        connection_lost(id);
        return;
    }
    if (id == 0) {
        leave_without_mpirun();
    }
}

/// mpirun is gone, and the job has not begun, is over, or was to take in this daemon, for ranks
/// that only mpirun could have started.
void Daemon::leave_without_mpirun()
{
    story(1, "mpirun is gone: leaves");
    over_ = true;
    orte_odls.kill_local_procs(nullptr);
    ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_DAEMONS_TERMINATED);
}

void Daemon::set_exit_code(int code) noexcept
{
    if (exit_code_ == 0 && code != 0) {
        exit_code_ = code;
        orte_exit_status = code;
    }
}

void Daemon::flush()
{
    while (begun()) {
        const membership::Output out = session_->take();
        if (out.messages.empty() && out.events.empty()) {
            break;
        }
        for (const membership::Message &m : out.messages) {
            send(m.to, protocol_tag, sealer_->seal(m));
        }
        for (const Event &event : out.events) {
            on_event(event);
        }
    }
    flush_glue();
}

void Daemon::flush_glue()
{
    if (!session_) {
        return;
    }
    for (bool again = true; again;) {
        again = false;
        for (const Outgoing &message : session_->take_outgoing()) {
            send(message);
        }
        if (const std::vector<RankDeath> news = session_->take_news(); !news.empty()) {
            announce(news);
            again = true;
        }
        for (const Outgoing &message : gather_->take_outgoing()) {
            send(message);
        }
        for (const Outgoing &message : wind_down_->take_outgoing()) {
            send(message);
        }
        for (const Gather::Done &done : gather_->take_done()) {
            complete(done);
            again = true;
        }
    }
    check_winding_down();
    if (waiting_for_spread_ && session_->deaths().everybody_knows()) {
        waiting_for_spread_ = false;
        const std::int64_t us = (monotonic_now() - announced_at_).us();
        for (const auto &[who, death] : session_->deaths().known()) {
            spread_us_.emplace(who, us);
        }
        story(1, "every daemon knows, after %lld us", static_cast<long long>(us));
    }
}

void Daemon::on_event(const Event &event)
{
    if (orte_orteds_term_ordered) {
        // The job is over and daemons leave one by one: that is no failure. But who is silent will
        // not leave.
        if (event.kind == Event::Kind::believed) {
            if (orte_proc_t *const proc = daemon_object(event.who.id); proc != nullptr) {
                ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
            }
            wind_down_->has_left(event.who.id);
            check_all_gone();
        }
        return;
    }
    switch (event.kind) {
    case Event::Kind::installed:
        on_installed(event);
        break;
    case Event::Kind::stabilized:
        story(1, "all votes for view %llu are in after %lld us",
              static_cast<unsigned long long>(event.view ? event.view->epoch() : 0),
              static_cast<long long>(event.elapsed.us()));
        stabilized_ = {event.view ? event.view->epoch() : 0, event.elapsed.ns()};
        break;
    case Event::Kind::believed:
        doubted_us_.emplace(event.who.id, wall_us());
        story(1, "believes daemon %u dead (%s)", event.who.id,
              event.grade == membership::Grade::suspected ? "it is silent" : "proven");
        break;
    case Event::Kind::refuted:
        doubted_us_.erase(event.who.id);
        story(1, "daemon %u lives after all", event.who.id);
        break;
    case Event::Kind::suspended:
        story(1, "reaches no majority of the daemons, and waits");
        break;
    case Event::Kind::resumed:
        story(1, "reaches a majority of the daemons again");
        break;
    case Event::Kind::evicted:
        end_here("evicted");
        break;
    case Event::Kind::ended:
        end_here(event.grade == membership::Grade::doubtful ? "outlived" : "minority");
        break;
    case Event::Kind::left:
        break;
    }
}

namespace {

/// As mpirun knows; no other daemon is told.
bool has_ended_well(Rank who)
{
    orte_process_name_t name{.jobid = who.jobid, .vpid = who.vpid};
    const orte_proc_t *const rank = ORTE_PROC_IS_HNP ? orte_get_proc_object(&name) : nullptr;
    return rank != nullptr && rank->state == ORTE_PROC_STATE_TERMINATED;
}

} // namespace

void Daemon::remember_loss(const membership::Removed &gone_one, Epoch epoch)
{
    NodeLoss &loss = losses_[gone_one.id];
    const auto doubt = doubted_us_.find(gone_one.id);
    loss.id = gone_one.id;
    loss.host = host_name(gone_one.id);
    loss.grade = gone_one.grade;
    loss.installed_us = wall_us();
    loss.noticed_us = doubt == doubted_us_.end() ? loss.installed_us : doubt->second;
    loss.epoch = epoch;
    loss.stabilized_ns = stabilized_.first == epoch ? stabilized_.second : 0;
    // As of now: its host may come back, with other ranks.
    loss.ranks = jobs_.ranks_on(gone_one.id);
    std::erase_if(loss.ranks, has_ended_well); // of a job that was spawned and is over
}

void Daemon::on_installed(const Event &event)
{
    story(1, "installed view %llu: %u daemons, %u messages",
          static_cast<unsigned long long>(event.view->epoch()), event.view->size(), event.messages);
    jobs_.learn();
    if (event.change) {
        for (const membership::Removed &gone_one : event.change->removed) {
            if (gone_one.incarnation != 0 || !missing_.contains(gone_one.id)) {
                remember_loss(gone_one, event.view->epoch());
            }
            doubted_us_.erase(gone_one.id); // it may come back, and be doubted anew
            set_down(gone_one.id);
            forget_rail(gone_one.id);
            // An evicted one may live and must be told so; a dead one would only make the channel
            // complain.
            if (gone_one.grade != membership::Grade::suspected) {
                lost_.insert(gone_one.id);
                stop_opening(gone_one.id);
            }
            if (orte_proc_t *const proc = daemon_object(gone_one.id); proc != nullptr) {
                ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
            }
        }
    }
    contacts_changed(event.change ? event.change->removed : std::vector<membership::Removed>());
    follow_joins(event);
    hosts_.follow(*event.view);
    open_connections();
    apply_view();
    check_newcomers();
    if (!event.view->contains(0)) {
        without_mpirun(*event.view);
    }
    check_all_gone();
}

/// Nothing is to be mapped there any more, until it is added again.
void Daemon::set_down(NodeId id)
{
    if (const orte_proc_t *const proc = daemon_object(id);
        ORTE_PROC_IS_HNP && proc != nullptr && proc->node != nullptr) {
        proc->node->state = ORTE_NODE_STATE_DOWN;
    }
}

void Daemon::apply_view()
{
    const membership::ViewPtr &view = session_->engine().view();
    gather_->on_root(view->root());
    if (view->root() != self_ || over_) {
        return;
    }
    // Of all daemons ever lost: the root that had to announce their ranks' deaths may have died
    // over it.
    std::vector<RankDeath> deaths;
    for (const auto &[id, loss] : losses_) {
        if (loss.id == no_node) {
            continue;
        }
        for (const Rank who : loss.ranks) {
            if (!session_->deaths().announced(who)) {
                deaths.push_back({who, id, Cause::node_died, 128 + SIGKILL, loss.epoch,
                                  loss.noticed_us, loss.stabilized_ns / 1000});
            }
        }
    }
    session_->report(monotonic_now(), deaths);
    gather_->recheck();
}

/// Ranks that poll are told first, by the board; then the other daemons, to whom what is to be sent
/// leaves when this call of the event base returns; and then, by PMIx, ranks that do not poll. An
/// event wakes a thread of every rank, which those that have read the board have no use for, and
/// which takes the cores from those that are about to.
void Daemon::announce(const std::vector<RankDeath> &deaths)
{
    if (!over_) {
        bool on_board = true;
        for (const RankDeath &death : deaths) {
            const bool posted = board_.post(death);
            on_board = on_board && posted;
            if (!posted || (parameters().tell & tell_by_event) != 0) {
                untold_.push_back(death);
            }
        }
        if (!untold_.empty()) {
            Callbacks::after(on_board ? events_after : base::Duration::zero(),
                             [] { get().tell_ranks(); });
        }
    }
    for (const RankDeath &death : deaths) {
        on_announced(death);
    }
    if (!over_) {
        mind_callers();
        gather_->recheck();
    }
}

void Daemon::on_announced(const RankDeath &death)
{
    story(1, "rank %u of job %u on daemon %u is dead (%s), epoch %llu", death.who.vpid,
          ORTE_LOCAL_JOBID(death.who.jobid), death.host,
          death.cause == Cause::node_died     ? "with its daemon"
          : death.cause == Cause::signal      ? "by a signal"
          : death.cause == Cause::hung        ? "it hung"
          : death.cause == Cause::stopped     ? "it was stopped"
          : death.cause == Cause::absent      ? "before MPI_Init"
          : death.cause == Cause::not_started ? "it could not be started"
                                              : "it exited",
          static_cast<unsigned long long>(death.epoch));
    if (over_) {
        return;
    }
    if (is_root() && !waiting_for_spread_) {
        waiting_for_spread_ = true;
        announced_at_ = monotonic_now();
    }
    if (ORTE_PROC_IS_HNP) {
        account(death);
    }
}

void Daemon::account(const RankDeath &death)
{
    orte_job_t *const job = orte_get_job_data_object(death.who.jobid);
    if (job == nullptr || orte_orteds_term_ordered) {
        return;
    }
    auto *const proc = static_cast<orte_proc_t *>(
        opal_pointer_array_get_item(job->procs, static_cast<int>(death.who.vpid)));
    if (proc == nullptr || ORTE_FLAG_TEST(proc, ORTE_PROC_FLAG_RECORDED)) {
        return;
    }
    proc->exit_code = exit_code_of(death);
    if (spawns_.awaited(*job)) {
        spawn_failed(*job, *proc, death);
    } else if (in_mpi_init(*proc)) {
        if (!goes_on_without(*job, *proc, death)) {
            end_job(job, ORTE_JOB_STATE_ABORTED, nullptr, proc->exit_code);
            return;
        }
    }
    if (proc->state < ORTE_PROC_STATE_TERMINATED) {
        // Not one of the states of failure: those make the runtime send a notification of its own.
        proc->state = ORTE_PROC_STATE_TERMINATED;
    }
    if (!ORTE_FLAG_TEST(proc, ORTE_PROC_FLAG_LOCAL)) {
        // Its daemon will not report the end of its output, or already has and too early.
        ORTE_FLAG_SET(proc, ORTE_PROC_FLAG_IOF_COMPLETE);
        ORTE_ACTIVATE_PROC_STATE(&proc->name, ORTE_PROC_STATE_WAITPID_FIRED);
    }
}

void Daemon::tell_ranks()
{
    const std::vector<RankDeath> deaths = std::exchange(untold_, {});
    if (!started_ || deaths.empty()) {
        return;
    }
    send_promptly();
    for (const RankDeath &death : deaths) {
        tell_ranks(death);
    }
}

void Daemon::tell_ranks(const RankDeath &death)
{
    auto *info = OBJ_NEW(opal_list_t);
    const auto add = [info](const char *key, opal_data_type_t type) {
        opal_value_t *const value = OBJ_NEW(opal_value_t);
        value->key = strdup(key);
        value->type = type;
        opal_list_append(info, &value->super);
        return value;
    };
    opal_process_name_t name;
    name.jobid = death.who.jobid;
    name.vpid = death.who.vpid;
    add(OPAL_PMIX_EVENT_AFFECTED_PROC, OPAL_NAME)->data.name = name;
    add(process::epoch_key, OPAL_UINT64)->data.uint64 = death.epoch;
    add(process::noticed_key, OPAL_INT64)->data.int64 = death.noticed_us;
    add(process::stabilized_key, OPAL_INT64)->data.int64 = death.stabilized_us;
    add(process::hung_key, OPAL_BOOL)->data.flag = ended_by_daemon(death.cause);
    // The server hands events of its own back to the runtime, which would send them to all daemons.
    add("orte.notify.donotloop", OPAL_BOOL)->data.flag = true;
    const auto release = [](int, void *data) {
        auto *list = static_cast<opal_list_t *>(data);
        OPAL_LIST_RELEASE(list);
    };
    if (opal_pmix.server_notify_event(OPAL_ERR_PROC_ABORTED, &name, info, release, info) !=
        OPAL_SUCCESS) {
        release(0, info);
    }
}

bool Daemon::gone(NodeId id, const Bytes &signature, std::uint32_t number)
{
    const std::vector<Rank> named = decode_signature(signature);
    if (begins_job(named, number)) {
        const std::vector<Rank> ranks = jobs_.ranks_on(id, named);
        return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(),
                                             [this](Rank r) { return done_without_.contains(r); });
    }
    if (is_member() && !session_->engine().view()->contains(id)) {
        return true;
    }
    if (named.empty()) {
        return false; // all daemons take part for themselves
    }
    const std::vector<Rank> ranks = jobs_.ranks_on(id, named);
    return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [this](Rank r) {
        return session_->deaths().announced(r);
    });
}

/// Whether nobody here takes part in collectives with this signature any more, as far as the
/// runtime knows: its jobs have ended, or at a daemon this one's ranks of them.
bool Daemon::is_over(const Bytes &signature)
{
    const std::vector<Rank> named = decode_signature(signature);
    return !named.empty() && std::all_of(named.begin(), named.end(), [](const Rank &rank) {
        const orte_job_t *const job = orte_get_job_data_object(rank.jobid);
        return job == nullptr || job->state > ORTE_JOB_STATE_UNTERMINATED;
    });
}

void Daemon::forget_collectives(base::Time now)
{
    if (now - forgot_at_ >= collectives_kept) {
        forgot_at_ = now;
        gather_->forget(is_over);
    }
}

int Daemon::allgather(orte_grpcomm_coll_t *coll, opal_buffer_t *data) noexcept
{
    jobs_.learn();
    std::vector<Rank> named;
    for (std::size_t i = 0; i < coll->sig->sz; ++i) {
        named.push_back({coll->sig->signature[i].jobid, coll->sig->signature[i].vpid});
    }
    std::vector<NodeId> participants;
    if (coll->dmns == nullptr) {
        for (NodeId id = 0; id < coll->ndmns; ++id) {
            participants.push_back(id);
        }
    } else {
        participants.assign(coll->dmns, coll->dmns + coll->ndmns);
    }
    const auto *bytes = reinterpret_cast<const std::byte *>(data->unpack_ptr);
    const auto *end = reinterpret_cast<const std::byte *>(data->base_ptr) + data->bytes_used;
    Bytes mine;
    if (bytes != nullptr && bytes < end) {
        mine.assign(bytes, end);
    }
    gather_->contribute(encode_signature(named), participants, std::move(mine));
    flush();
    arm_timer();
    return ORTE_SUCCESS;
}

void Daemon::complete(const Gather::Done &done)
{
    const std::vector<Rank> named = decode_signature(done.signature);
    orte_grpcomm_signature_t *signature = OBJ_NEW(orte_grpcomm_signature_t);
    signature->sz = named.size();
    if (!named.empty()) {
        signature->signature = static_cast<orte_process_name_t *>(
            std::calloc(named.size(), sizeof(orte_process_name_t)));
        for (std::size_t i = 0; i < named.size(); ++i) {
            signature->signature[i].jobid = named[i].jobid;
            signature->signature[i].vpid = named[i].vpid;
        }
    }
    orte_grpcomm_coll_t *coll = orte_grpcomm_base_get_tracker(signature, false);
    OBJ_RELEASE(signature);
    if (coll == nullptr) {
        drops_.count(Drops::Why::unexpected);
        return;
    }
    opal_list_remove_item(&orte_grpcomm_base.ongoing, &coll->super);
    if (!anyone_here(named)) {
        // Nobody waits for it. When it has lost all who did, the PMIx server forgets the call, and
        // an answer would lock a mutex that is no more, for ever.
        OBJ_RELEASE(coll);
        return;
    }
    opal_buffer_t *buffer = OBJ_NEW(opal_buffer_t);
    if (!done.data.empty()) {
        void *const copy = std::malloc(done.data.size());
        if (copy != nullptr) {
            std::memcpy(copy, done.data.data(), done.data.size());
            opal_dss.load(buffer, copy, static_cast<std::int32_t>(done.data.size()));
        }
    }
    if (coll->cbfunc != nullptr) {
        coll->cbfunc(ORTE_SUCCESS, buffer, coll->cbdata);
    }
    OBJ_RELEASE(buffer);
    OBJ_RELEASE(coll);
}

void Daemon::end_job(orte_job_t *job, orte_job_state_t state, orte_proc_t *culprit,
                     int code) noexcept
{
    if (over_) {
        return;
    }
    over_ = true;
    orte_job_term_ordered = true;
    if (job != nullptr) {
        job->state = state;
        if (!ORTE_FLAG_TEST(job, ORTE_JOB_FLAG_ABORTED)) {
            ORTE_FLAG_SET(job, ORTE_JOB_FLAG_ABORTED);
            if (culprit != nullptr) {
                OBJ_RETAIN(culprit);
                orte_set_attribute(&job->attributes, ORTE_JOB_ABORTED_PROC, ORTE_ATTR_LOCAL,
                                   culprit, OPAL_PTR);
            }
        }
    }
    set_exit_code(code == 0 ? ORTE_ERROR_DEFAULT_EXIT_CODE : code);
    if (state == ORTE_JOB_STATE_FAILED_TO_LAUNCH || state == ORTE_JOB_STATE_FAILED_TO_START) {
        // Not all daemons can be waited for: those that are there are told to leave at once.
        orte_abnormal_term_ordered = true;
    }
    orte_plm.terminate_orteds();
    check_all_gone();
}

void Daemon::check_all_gone() noexcept
{
    if (!ORTE_PROC_IS_HNP || !orte_orteds_term_ordered) {
        return;
    }
    // By name: without one the routes of the stock components would be counted too.
    char mine[] = "radixft";
    if (orte_routed.num_routes(mine) != 0) {
        return;
    }
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child != nullptr && ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE) &&
            child->state < ORTE_PROC_STATE_UNTERMINATED) {
            return;
        }
    }
    ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_DAEMONS_TERMINATED);
}

void Daemon::end_here(const char *topic)
{
    if (std::exchange(over_, true)) {
        return;
    }
    orte_show_help("help-errmgr-radixft.txt", topic, true, orte_process_info.nodename,
                   static_cast<unsigned long long>(unread_bytes()));
    orte_odls.kill_local_procs(nullptr);
    set_exit_code(ORTE_ERROR_DEFAULT_EXIT_CODE);
    ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_DAEMONS_TERMINATED);
}

} // namespace ft::radixft
