// Hosts that are added to a running job (MPI_Comm_spawn with add-host).
//
// The runtime starts a daemon there and waits until it has called; then it would map and launch.
// mpirun holds that back until the newcomer is a member of the view: it tells the members the
// newcomer's address, hands the newcomer the job's key and everybody's addresses, and the engine
// does the rest. So a rank never runs on a host of whose death nobody would be told.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/every_job.hpp"
#include "orte_glue/radixft/launch_key.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <sstream>

namespace ft::radixft {

void Callbacks::vm_ready(int, short, void *data) noexcept
{
    auto *caddy = static_cast<orte_state_caddy_t *>(data);
    Daemon &self = Daemon::get();
    if (self.awaits_comeback(caddy->jdata->jobid)) {
        ORTE_ACTIVATE_JOB_STATE(caddy->jdata, ORTE_JOB_STATE_LAUNCH_DAEMONS);
        OBJ_RELEASE(caddy);
        return;
    }
    if (is_first(caddy->jdata->jobid) && !self.fit(*caddy->jdata)) {
        OBJ_RELEASE(caddy);
        return;
    }
    if (!self.begun() || caddy->jdata->jobid == ORTE_PROC_MY_NAME->jobid ||
        is_first(caddy->jdata->jobid)) {
        if (!self.begun() && caddy->jdata->jobid != ORTE_PROC_MY_NAME->jobid) {
            // A singleton's own job has never come by here. Its daemons may be ready already.
            self.mapped_ = true;
            self.begin_if_ready();
        }
        self.vm_ready_(0, 0, caddy);
        return;
    }
    self.admit(caddy);
}

/// Holds a spawned job back until its new daemons are members and the slots of those that failed
/// are free again.
void Daemon::admit(orte_state_caddy_t *caddy)
{
    Launch launch{.caddy = caddy, .newcomers = {}, .since = monotonic_now()};
    if (orte_get_attribute(&caddy->jdata->attributes, ORTE_JOB_LAUNCHED_DAEMONS, nullptr,
                           OPAL_BOOL)) {
        admit_newcomers(launch);
    }
    if (ranks_are_ending()) {
        story(1, "a spawn waits until the ranks of a failed one have ended");
    }
    launches_.push_back(std::move(launch));
    introduce();
    check_newcomers();
    flush();
    arm_timer();
}

/// Whoever called for a spawn that failed may call for the next one before what was left of that is
/// gone, and its slots with it.
bool Daemon::ranks_are_ending() const
{
    bool found = false;
    for_every_job([&](const orte_job_t &job) {
        found = found || (spawns_.refused(job.jobid) && job.num_terminated < job.num_procs);
    });
    return found;
}

void Daemon::admit_newcomers(Launch &launch)
{
    hand_out_no_more();
    // The stock runtime has put the list of hosts on the newcomer's command line, and takes it for
    // known: daemons that were there before would fail at the launch.
    orte_nidmap_communicated = false;
    for (NodeId id = 1; id < orte_process_info.num_procs; ++id) {
        const orte_proc_t *const proc = daemon_object(id);
        if (proc != nullptr && ORTE_FLAG_TEST(proc, ORTE_PROC_FLAG_ALIVE) &&
            !session_->engine().view()->contains(id)) {
            launch.newcomers.insert(id);
            if (connected_.contains(id)) {
                lost_.erase(id); // which an earlier one was
            }
            called_for_.erase(id);
            const auto who = hosts_.identity_for(host_name(id), *session_->engine().view());
            lives_[id] = who && who->id == id ? who->incarnation : 0;
            hosts_.remember(host_name(id), {id, lives_[id]});
            story(1, "daemon %u on %s is to join", id, host_name(id).c_str());
        }
    }
}

/// Those that a spawned job names; add-host has become host by now.
std::vector<std::string> hosts_named(const orte_job_t &job)
{
    std::vector<std::string> hosts;
    for (int i = 0; job.apps != nullptr && i < job.apps->size; ++i) {
        const auto *const app =
            static_cast<const orte_app_context_t *>(opal_pointer_array_get_item(job.apps, i));
        char *text = nullptr;
        if (app == nullptr ||
            !orte_get_attribute(const_cast<opal_list_t *>(&app->attributes), ORTE_APP_DASH_HOST,
                                reinterpret_cast<void **>(&text), OPAL_STRING)) {
            continue;
        }
        std::istringstream names(text);
        std::free(text);
        for (std::string name; std::getline(names, name, ',');) {
            name.resize(std::min(name.find(':'), name.size()));
            hosts.push_back(std::move(name));
        }
    }
    return hosts;
}

/// Has the runtime start daemons again on the hosts that a spawned job names, if those had ones
/// which are dead. The runtime by itself takes a host that it knows for one that has a daemon.
void Daemon::bring_back(const orte_job_t &job)
{
    if (!is_member() || job.originator.jobid == ORTE_JOBID_INVALID) {
        return;
    }
    for (std::string &name : hosts_named(job)) {
        const auto who = hosts_.identity_for(name, *session_->engine().view());
        const auto same = [&who](const Comeback &c) { return c.id == who->id; };
        if (who && who->incarnation > 0 &&
            std::none_of(comebacks_.begin(), comebacks_.end(), same)) {
            comebacks_.push_back({job.jobid, who->id, std::move(name)});
        }
    }
}

bool Daemon::awaits_comeback(std::uint32_t jobid) const
{
    return std::any_of(comebacks_.begin(), comebacks_.end(),
                       [jobid](const Comeback &c) { return c.jobid == jobid; });
}

/// Which daemon the launcher is to start again now. One in each of its turns, behind one for hosts
/// that never had a daemon: it numbers those that it starts together one behind the other.
NodeId Daemon::next_comeback(std::uint32_t jobid)
{
    const auto it = std::find_if(comebacks_.begin(), comebacks_.end(),
                                 [jobid](const Comeback &c) { return c.jobid == jobid; });
    if (it == comebacks_.end()) {
        return no_node;
    }
    for (int i = 1; i < orte_node_pool->size; ++i) {
        const auto *const node =
            static_cast<const orte_node_t *>(opal_pointer_array_get_item(orte_node_pool, i));
        if (node != nullptr && node->state == ORTE_NODE_STATE_ADDED && node->daemon == nullptr) {
            return no_node;
        }
    }
    const Comeback now = *it;
    comebacks_.erase(it);
    unwanted_.erase(now.id);
    leaving_.erase(now.id);
    bring_back(now.id, now.host);
    return now.id;
}

void Daemon::bring_back(NodeId id, const std::string &host)
{
    orte_job_t *const daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    for (int i = 1; i < orte_node_pool->size; ++i) {
        auto *const node =
            static_cast<orte_node_t *>(opal_pointer_array_get_item(orte_node_pool, i));
        if (node == nullptr || node->name == nullptr || host != node->name) {
            continue;
        }
        node->state = ORTE_NODE_STATE_ADDED;
        node->daemon = nullptr; // kept by the list of daemons until the new one takes its place
        ORTE_FLAG_UNSET(node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
        for (int n = 0; n < daemons->map->nodes->size; ++n) {
            if (opal_pointer_array_get_item(daemons->map->nodes, n) == node) {
                opal_pointer_array_set_item(daemons->map->nodes, n, nullptr);
                --daemons->map->num_nodes;
            }
        }
        story(1, "a daemon is started again on %s, as daemon %u", host.c_str(), id);
    }
}

void Callbacks::launch_daemons(int fd, short flags, void *data) noexcept
{
    Daemon &self = Daemon::get();
    const NodeId id =
        self.next_comeback(static_cast<const orte_state_caddy_t *>(data)->jdata->jobid);
    orte_job_t *const daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    const orte_vpid_t count = daemons->num_procs;
    if (id != no_node) {
        // The next daemon's number is that of daemons: so it gets its old one.
        daemons->num_procs = id;
    }
    if (!self.begun()) {
        self.launch_since_ = monotonic_now(); // a job of one host may spawn on others hours later
    }
    {
        const WithEnvironment key(self.launch_key_);
        self.start_daemons_(fd, flags, data);
    }
    if (id != no_node) {
        daemons->num_procs = count;
        daemons->num_reported = count - 1;
        orte_process_info.num_procs = count;
    }
    self.wait_for_newcomers();
}

void Daemon::watch_launches() noexcept
{
    // With --novm, and for a program that was started by itself, it is another one: there jobs are
    // mapped before their daemons are started.
    for (opal_list_item_t *item = opal_list_get_first(&orte_job_states);
         item != opal_list_get_end(&orte_job_states); item = opal_list_get_next(item)) {
        auto *const state = reinterpret_cast<orte_state_t *>(item);
        if (state->job_state == ORTE_JOB_STATE_VM_READY && state->cbfunc != nullptr) {
            vm_ready_ = std::exchange(state->cbfunc, Callbacks::vm_ready);
            return;
        }
    }
    vm_ready_ = orte_plm_base_vm_ready;
    orte_state.set_job_state_callback(ORTE_JOB_STATE_VM_READY, Callbacks::vm_ready);
}

/// The launcher registers itself after the error manager, so it is looked for later.
void Daemon::take_over_launcher()
{
    if (start_daemons_ != nullptr) {
        return;
    }
    receive_daemons();
    for (opal_list_item_t *item = opal_list_get_first(&orte_job_states);
         item != opal_list_get_end(&orte_job_states); item = opal_list_get_next(item)) {
        auto *const state = reinterpret_cast<orte_state_t *>(item);
        if (state->job_state == ORTE_JOB_STATE_LAUNCH_DAEMONS && state->cbfunc != nullptr) {
            start_daemons_ = std::exchange(state->cbfunc, Callbacks::launch_daemons);
        }
    }
}

void Daemon::introduce()
{
    if (launches_.empty()) {
        return;
    }
    const membership::ViewPtr view = session_->engine().view();
    std::set<NodeId> newcomers;
    for (const Launch &launch : launches_) {
        std::copy_if(launch.newcomers.begin(), launch.newcomers.end(),
                     std::inserter(newcomers, newcomers.end()),
                     [&view](NodeId id) { return !view->contains(id); });
    }
    const std::vector<NodeId> members(view->members().begin(), view->members().end());
    introductions_.tick(newcomers, members,
                        {.contact = contact,
                         .tell =
                             [this](NodeId member, const Bytes &contacts) {
                                 if (member != self_) {
                                     send({member, Type::address, contacts});
                                 }
                             },
                         .invite =
                             [this](NodeId newcomer, const Bytes &contacts) {
                                 send(newcomer, launch_tag, invitation(newcomer, contacts));
                             }});
}

/// \param contacts of all members
Bytes Daemon::invitation(NodeId guest, const Bytes &contacts)
{
    const std::size_t size = 4 + contacts.size();
    Bytes text = go(true, size);
    base::WireWriter out(std::span<std::byte>(text).last(size));
    out.u32(lives_[guest]);
    out.bytes(contacts);
    return sealed(launch_key_, std::move(text));
}

bool Daemon::on_invitation(base::WireReader &in)
{
    const std::uint32_t life = in.u32();
    const Contacts contacts = decode_contacts(in);
    if (!in.complete() || contacts.empty()) {
        return false;
    }
    std::vector<NodeId> known;
    for (const auto &[id, uri] : contacts) {
        known.push_back(id);
        if (id != 0 && id != self_) {
            remember_contact(id, uri);
        }
    }
    if (!std::exchange(greeted_, true)) {
        // With the next invitation it begins.
        const Bytes text = encode_contacts({{self_, contact(self_)}});
        prepare_engine();
        open_connections_of_newcomer(known);
        for (const NodeId id : known) {
            send({id, Type::address, text});
        }
        return true;
    }
    session_->begin_joiner(monotonic_now(), parameters().engine(), life, known);
    story(1, "asks to join %zu daemons", known.size());
    session_->time(monotonic_now());
    return true;
}

bool Daemon::on_address(NodeId from, std::span<const std::byte> body)
{
    base::WireReader in(body);
    const Contacts contacts = decode_contacts(in);
    const auto bad = [&](const auto &one) {
        const auto &[id, uri] = one;
        return (from != 0 && from != id) || id == 0 || id == self_ || id >= membership::max_nodes ||
               uri.empty();
    };
    if (!in.complete() || contacts.empty() || std::any_of(contacts.begin(), contacts.end(), bad)) {
        return false;
    }
    for (const auto &[id, uri] : contacts) {
        const bool fresh = contact(id) != uri;
        remember_contact(id, uri);
        if (fresh && from != id) {
            stop_opening(id); // to another one of its addresses
            await_newcomer(id);
        } else if (from != id) {
            // Is repeated until it is a member; until then there may be nothing else to say.
            nudge(id);
        }
    }
    return true;
}

void Daemon::give_up_launch(orte_job_t &job)
{
    orte_exit_status = exit_code_; // a mapper that finds no slots sets one
    std::erase_if(comebacks_, [&job](const Comeback &c) { return c.jobid == job.jobid; });
    refuse_launch(job, job.originator, ORTE_ERR_FAILED_TO_START);
    job.num_terminated = job.num_procs;
    ORTE_ACTIVATE_JOB_STATE(&job, ORTE_JOB_STATE_TERMINATED);
}

/// MPI_Init passes the modex and a barrier, or the barrier alone when the modex is left for later.
std::uint32_t Daemon::fences_of_init()
{
    return opal_pmix_base_async_modex ? 1 : 2;
}

bool Daemon::in_mpi_init(const orte_proc_t &dead) const
{
    const std::uint32_t jobid = dead.name.jobid;
    const NodeId host = jobs_.only_host(jobid);
    if (host == no_node) {
        return in_mpi_init(jobid);
    }
    // Fences under one daemon are the PMIx server's own affair. It lets the others go on without a
    // client that has broken off, but waits for ever for one that never came: of which its daemon
    // knows, and mpirun only when all have come.
    if (host == self_) {
        return !ORTE_FLAG_TEST(&dead, ORTE_PROC_FLAG_REG);
    }
    const orte_job_t *const job = ORTE_PROC_IS_HNP ? orte_get_job_data_object(jobid) : nullptr;
    return job != nullptr && job->num_reported < job->num_procs;
}

bool Daemon::in_mpi_init(std::uint32_t jobid) const
{
    const Rank all{jobid, every_rank};
    return gather_->completed(encode_signature({&all, 1})) < fences_of_init();
}

/// Whether this is a collective of the first job's MPI_Init. That waits for the dead too, unless
/// they may be done without: the job is ended for them, and nobody is to get on meanwhile.
bool Daemon::begins_job(const std::vector<Rank> &named, std::uint32_t number) const
{
    return named.size() == 1 && named.front().vpid == every_rank && is_first(named.front().jobid) &&
           number < fences_of_init();
}

/// A rank of a spawned job died before those who spawned it had a communicator with it. Their
/// waiting ends, and the rest of the job, which could not begin either, is ended.
void Daemon::spawn_failed(orte_job_t &job, orte_proc_t &dead, const RankDeath &death)
{
    if (spawns_.refused(job.jobid)) {
        return;
    }
    for (int i = 0; i < job.procs->size; ++i) {
        auto *const proc = static_cast<orte_proc_t *>(opal_pointer_array_get_item(job.procs, i));
        if (proc != nullptr && proc->state < ORTE_PROC_STATE_RUNNING) {
            // Nobody may come to say that it runs: it was not started, or is ended before its
            // daemon has said so. The call would wait for that first.
            ORTE_ACTIVATE_PROC_STATE(&proc->name, ORTE_PROC_STATE_RUNNING);
        }
    }
    const bool everywhere = spawns_.refuse(job);
    const std::string host = host_name(death.host);
    if (death.cause == Cause::not_started) {
        const auto *const app = static_cast<const orte_app_context_t *>(
            opal_pointer_array_get_item(job.apps, static_cast<int>(dead.app_idx)));
        explain("spawn-not-started", death.who.vpid, host.c_str(), app == nullptr ? "" : app->app,
                opal_strerror(death.exit_code));
    } else {
        explain(everywhere ? "spawn-failed" : "spawn-lost", death.who.vpid, host.c_str(),
                exit_code_text(death).c_str());
    }
    orte_plm.terminate_job(job.jobid);
}

void Daemon::mind_callers() noexcept
try {
    if (over_ || orte_orteds_term_ordered || !session_) {
        return;
    }
    const auto &dead = session_->deaths().known();
    spawns_.on_deaths(dead);
    if (!ORTE_PROC_IS_HNP) {
        if (orphaned_at_ && is_root()) {
            spawns_.refuse_all(dead); // each daemon has ended its own of these ranks
        }
        return;
    }
    std::vector<std::pair<orte_job_t *, const RankDeath *>> lost;
    for_every_job([&](orte_job_t &job) {
        if (spawns_.refused(job.jobid)) {
            return;
        }
        for (const Rank caller : spawns_.waits_for(job)) {
            if (const RankDeath *const death = find_death(dead, caller)) {
                lost.emplace_back(&job, death);
                return;
            }
        }
    });
    for (const auto &[job, death] : lost) {
        spawns_.refuse(*job);
        explain("spawn-orphaned", death->who.vpid, host_name(death->host).c_str());
        orte_plm.terminate_job(job->jobid);
    }
} catch (const std::exception &) {
    // Without memory they go on waiting.
}

bool Daemon::spawn_aborted(orte_job_t &job, orte_proc_t &rank) noexcept
{
    if (over_ || !spawns_.awaited(job)) {
        return false;
    }
    const bool known = rank.node != nullptr && rank.node->daemon != nullptr;
    RankDeath death;
    death.who = {rank.name.jobid, rank.name.vpid};
    death.host = known ? rank.node->daemon->name.vpid : self_;
    death.exit_code = rank.exit_code;
    spawn_failed(job, rank, death);
    flush();
    arm_timer();
    return true;
}

void Daemon::follow_joins(const membership::Event &installed)
{
    // Only the newcomers: what else is a member may be known to be dead by now.
    const auto joined = [&](NodeId id) {
        if (!welcome_) {
            return installed.view->contains(id);
        }
        const auto *const change = installed.change.get();
        return change != nullptr &&
               std::any_of(change->joined.begin(), change->joined.end(),
                           [id](const membership::Identity &who) { return who.id == id; });
    };
    for (NodeId id = 0; id < orte_process_info.num_procs; ++id) {
        if (!joined(id) || id == self_) {
            continue;
        }
        lost_.erase(id);
        story(1, "daemon %u on %s is a member now", id, host_name(id).c_str());
        if (orte_proc_t *const proc = daemon_object(id); proc != nullptr) {
            proc->state = ORTE_PROC_STATE_RUNNING;
            ORTE_FLAG_SET(proc, ORTE_PROC_FLAG_ALIVE);
        }
    }
    for (NodeId id = 0; id < orte_process_info.num_procs && !welcome_; ++id) {
        if (orte_proc_t *const proc = daemon_object(id);
            proc != nullptr && !installed.view->contains(id)) {
            ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
        }
    }
    welcome_ = true;
}

void Daemon::check_newcomers()
{
    if (launches_.empty()) {
        return;
    }
    const base::Time now = monotonic_now();
    const int wait = parameters().launch_wait_ms;
    for (auto it = launches_.begin(); it != launches_.end();) {
        std::string missing;
        bool dead = false;
        for (const NodeId id : it->newcomers) {
            if (!session_->engine().view()->contains(id)) {
                missing += (missing.empty() ? "" : ", ") + host_name(id);
                dead = dead || lost_.contains(id);
            }
        }
        const bool late = wait != 0 && now - it->since >= base::Duration::from_ms(wait);
        if ((!missing.empty() || ranks_are_ending()) && !late && !dead) {
            ++it;
            continue;
        }
        orte_state_caddy_t *caddy = it->caddy;
        const std::set<NodeId> newcomers = std::move(it->newcomers);
        it = launches_.erase(it);
        if (over_) {
            OBJ_RELEASE(caddy);
        } else if (missing.empty()) {
            vm_ready_(0, 0, caddy);
        } else {
            explain("not-joined", missing.c_str());
            for (const NodeId id : newcomers) {
                if (!session_->engine().view()->contains(id)) {
                    put_aside(id);
                }
            }
            give_up_launch(*caddy->jdata);
            OBJ_RELEASE(caddy);
        }
    }
}

} // namespace ft::radixft
