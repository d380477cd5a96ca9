#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/launch_key.hpp"
#include "orte_glue/radixft/open_files.hpp"
#include "orte_glue/radixft/prompt.hpp"

#include "opal/ft/base/wire.hpp"
#include "opal/mca/help_dir.hpp"

#include <array>
#include <new>

namespace ft::radixft {

using namespace base::literals;

namespace {

/// Ticks after which mpirun looks for daemons whose leaving it may have missed.
constexpr unsigned leaving_patience = 10;
/// Format of READY and GO and of everything behind them. Daemons of different formats do not mix.
constexpr std::uint32_t format = 9;

/// Of mpirun's parameters those that GO brings to all daemons.
constexpr std::array agreed{
    &Parameters::arity,        &Parameters::repair,           &Parameters::localised_view,
    &Parameters::heartbeat_ms, &Parameters::suspect_floor_ms, &Parameters::suspect_ceiling_ms,
    &Parameters::probe_ms,     &Parameters::minority_wait_ms,
};

/// Whether a process of one of this daemon's ranks exists, whatever the runtime's books say.
bool children_exist()
{
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child != nullptr && child->pid > 0 && ::kill(child->pid, 0) == 0) {
            return true;
        }
    }
    return false;
}

} // namespace

base::Time monotonic_now() noexcept
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return base::Time::from_ns(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

std::int64_t wall_us() noexcept
{
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1'000'000LL + t.tv_nsec / 1000;
}

void story(int level, const char *format_text, ...) noexcept
{
    const int stream = orte_errmgr_base_framework.framework_output;
    if (opal_output_get_verbosity(stream) < level) {
        return;
    }
    char line[512];
    va_list arguments;
    va_start(arguments, format_text);
    std::vsnprintf(line, sizeof line, format_text, arguments);
    va_end(arguments);
    const std::int64_t now = wall_us();
    opal_output(stream, "radixft [daemon %u] %lld.%06lld %s", ORTE_PROC_MY_NAME->vpid,
                static_cast<long long>(now / 1000000), static_cast<long long>(now % 1000000), line);
}

std::string host_name(NodeId id)
{
    const orte_job_t *daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    if (daemons != nullptr) {
        const auto *proc = static_cast<const orte_proc_t *>(
            opal_pointer_array_get_item(daemons->procs, static_cast<int>(id)));
        if (proc != nullptr && proc->node != nullptr && proc->node->name != nullptr) {
            return proc->node->name;
        }
    }
    return "unknown";
}

orte_proc_t *daemon_object(NodeId id)
{
    const orte_job_t *daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    return daemons == nullptr ? nullptr
                              : static_cast<orte_proc_t *>(opal_pointer_array_get_item(
                                    daemons->procs, static_cast<int>(id)));
}

Daemon &Daemon::get() noexcept
{
    // Never destroyed: the runtime's frameworks close in an order of their own.
    static Daemon *const the_daemon = new Daemon;
    return *the_daemon;
}

bool Daemon::is_root() const
{
    if (begun()) {
        const membership::ViewPtr &view = session_->engine().view();
        return view != nullptr && view->root() == self_;
    }
    return self_ == 0;
}

int Daemon::start() noexcept
{
    mca::add_help_dir();
    std::string fault = misread_parameter();
    if (fault.empty()) {
        fault = parameters().fault();
    }
    if (!fault.empty()) {
        orte_show_help("help-errmgr-radixft.txt", "bad-parameter", true, fault.c_str());
        return ORTE_ERR_SILENT;
    }
    self_ = ORTE_PROC_MY_NAME->vpid;
    char here[PATH_MAX] = "";
    // Now: with --preload-binary mpirun stands in its session's folder when the job begins.
    folder_ = getcwd(here, sizeof here) == nullptr ? "/tmp" : here;
    started_at_ = monotonic_now();
    launch_since_ = started_at_;
    started_wall_us_ = wall_us();
    session_ = std::make_unique<Session>(self_);
    gather_ = std::make_unique<Gather>(
        self_, [this](NodeId id, const Bytes &signature, std::uint32_t number) {
            return gone(id, signature, number);
        });
    wind_down_ = std::make_unique<WindDown>(self_);
    // Until GO, mpirun is the root of everything and has no children.
    gather_->on_root(0);
    if (!get_keys()) {
        orte_show_help("help-errmgr-radixft.txt", "no-key", true, std::strerror(errno));
        return ORTE_ERR_SILENT;
    }
    run_promptly();
    raise_open_files();
    start_board();
    start_lines();
    start_watch();
    start_sweeping();
    for (const orte_rml_tag_t tag : {protocol_tag, glue_tag, launch_tag, opening_tag}) {
        orte_rml.recv_buffer_nb(ORTE_NAME_WILDCARD, tag, ORTE_RML_PERSISTENT, Callbacks::received,
                                nullptr);
    }
    opal_event_evtimer_set(orte_event_base, &timer_, Callbacks::timer, nullptr);
    opal_event_set_priority(&timer_, ORTE_MSG_PRI);
    armed_for_ = base::Time::never();
    tick_at_ = started_at_ + tick;
    started_ = true;
    arm_timer();
    return ORTE_SUCCESS;
}

bool Daemon::get_keys()
{
    if (self_ != 0) {
        const auto key = handed_out();
        keyless_ = !key;
        launch_key_ = key.value_or(membership::Key{});
        return true;
    }
    const auto key = draw_key();
    if (!key) {
        return false;
    }
    launch_key_ = *key;
    // Only now, for the launchers: earlier the runtime would copy it into the ranks' environment.
    orte_state.set_job_state_callback(ORTE_JOB_STATE_ALLOCATE, [](int fd, short flags, void *data) {
        Daemon &self = get();
        hand_out(self.launch_key_);
        self.take_over_launcher();
        self.spawns_.watch();
        self.publications_.watch();
        auto *const caddy = static_cast<orte_state_caddy_t *>(data);
        if (!self.holds_back(caddy)) {
            self.bring_back(*caddy->jdata);
            orte_ras_base_allocate(fd, flags, caddy);
        }
    });
    return true;
}

void Daemon::stop() noexcept
{
    if (!started_) {
        return;
    }
    started_ = false;
    streams_.stop(); // before whom it stands in for
    publications_.stop();
    opal_event_evtimer_del(&timer_);
    if (lines_.readable() >= 0) {
        opal_event_del(&line_broke_);
        lines_.stop();
    }
    // Its ranks have ended, also those that were never reported.
    segments_.remove_all(ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid));
    if (ORTE_PROC_IS_HNP) {
        summarize(stderr);
    } else if (stderr_ != nullptr) {
        summarize(stderr_);
        std::fclose(stderr_);
        std::fclose(stdout_);
    }
    const Drops dropped = drops();
    story(dropped.strange() != 0 ? 1 : 2, "leaves; %llu messages dropped%s%s",
          static_cast<unsigned long long>(dropped.total()), dropped.total() != 0 ? ": " : "",
          dropped.text().c_str());
    log_.close();
}

void Daemon::arm_timer()
{
    if (!started_) {
        return;
    }
    base::Time next = tick_at_;
    if (begun()) {
        next = std::min(next, session_->engine().next_deadline());
    }
    if (next == armed_for_) {
        return;
    }
    armed_for_ = next;
    const std::int64_t us = std::max<std::int64_t>((next - monotonic_now()).us() + 1, 1);
    timeval tv{.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    opal_event_evtimer_add(&timer_, &tv);
}

void Daemon::on_timer()
{
    armed_for_ = base::Time::never();
    const base::Time now = monotonic_now();
    if (now >= tick_at_) {
        watch_ranks(now);
    }
    if (begun() && now >= session_->engine().next_deadline()) {
        session_->time(now);
    }
    if (now >= tick_at_) {
        tick_at_ = now + tick;
        sweep(now);
        jobs_.learn();
        session_->tick(now);
        gather_->tick();
        forget_collectives(now);
        look_up_contacts();
        end_input();
        check_ranks();
        wind_down_->tick();
        check_launch(now);
        requests_.refuse([this](Rank who) { return session_->deaths().announced(who); });
        introduce();
        check_called_for(now);
        check_newcomers();
        check_held_spawns();
        check_leaving();
    }
    flush();
    arm_timer();
}

void Daemon::on_wireup() noexcept
{
    // The runtime stores the addresses right after it has called this: look when it has returned.
    if (started_ && self_ != 0 && !begun()) {
        Callbacks::later([] { get().send_ready(); });
    }
}

void Daemon::send_ready()
{
    if (begun() || !orte_routed_base.routing_enabled) {
        return;
    }
    Bytes body(4 + 4 + 4 + 1);
    base::WireWriter out(body);
    out.u32(magic);
    out.u32(format);
    out.u32(orte_process_info.num_procs);
    out.u8(keyless_ ? 1 : 0);
    send(0, launch_tag, sealed(launch_key_, std::move(body)));
    story(2, "is ready");
}

void Daemon::on_ready(NodeId from, base::WireReader &in, bool genuine)
{
    const std::uint32_t their_format = in.u32();
    const std::uint32_t their_count = in.u32();
    const bool has_no_key = in.u8() != 0;
    if (!genuine && has_no_key) {
        without_key_.insert(
            from); // said when the launch has failed for it, and not believed before
    }
    if (!genuine) {
        // From a daemon that was handed no key it is no wonder.
        drop(from, has_no_key ? Drops::Why::unexpected : Drops::Why::forged);
        return;
    }
    if (!in.complete() || self_ != 0 || over_) {
        drop(from, in.complete() ? Drops::Why::stale : Drops::Why::malformed);
        return;
    }
    if (their_format != format) {
        launch_failed("the daemon on " + host_name(from) +
                      " speaks another version of radixft's protocol: install the same version of "
                      "ompi-ft on all "
                      "hosts");
        return;
    }
    // READY of a daemon that was added later says nothing new.
    if (begun() || their_count != orte_process_info.num_procs) {
        return;
    }
    if (!missing_.contains(from)) {
        ready_.insert(from);
    }
    begin_if_ready();
}

/// At mpirun: the job begins when all daemons are ready that are not given up.
void Daemon::begin_if_ready()
{
    if (!mapped_ || orte_process_info.num_procs < 2 ||
        ready_.size() + missing_.size() + 1 < orte_process_info.num_procs) {
        return;
    }
    const Parameters &p = parameters();
    const int family = ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid);
    const bool named = p.output_dir != nullptr && p.output_dir[0] != '\0';
    output_ = named && p.output_dir[0] == '/'
                  ? p.output_dir
                  : folder_ + (named ? std::string("/") + p.output_dir : "");
    output_ += "/radixft-" + std::to_string(family);
    announce_output();
    const auto number = draw_key();
    if (!number) {
        launch_failed(std::string("mpirun got no random number from the system: ") +
                      std::strerror(errno));
        return;
    }
    number_ = *number;
    key_ = job_key(launch_key_, number_);
    const Bytes message = sealed(launch_key_, go(false, 0));
    for (const NodeId id : ready_) {
        send(id, launch_tag, message);
    }
    begin(orte_process_info.num_procs);
}

/// GO without its seal, with room for what a daemon that joins is told besides.
Bytes Daemon::go(bool join, std::size_t room) const
{
    const Parameters &p = parameters();
    // Who joins learns from its first view who is a member.
    const std::map<NodeId, std::string> absent = join ? decltype(missing_){} : missing_;
    Bytes text(4 + 4 + 4 + 1 + number_.size() + agreed.size() * 4 + 4 + output_.size() + 4 +
               absent.size() * 4 + room);
    base::WireWriter out(text);
    out.u32(magic);
    out.u32(format);
    out.u32(orte_process_info.num_procs);
    out.u8(join ? 1 : 0);
    out.bytes(number_);
    for (int Parameters::*const value : agreed) {
        out.u32(static_cast<std::uint32_t>(p.*value));
    }
    out.u32(static_cast<std::uint32_t>(output_.size()));
    out.bytes(std::as_bytes(std::span(output_)));
    out.u32(static_cast<std::uint32_t>(absent.size()));
    for (const auto &[id, what] : absent) {
        out.u32(id);
    }
    return text;
}

void Daemon::on_go(base::WireReader &in)
{
    Parameters p = parameters();
    const std::uint32_t their_format = in.u32();
    const std::uint32_t daemons = in.u32();
    const bool join = in.u8() != 0;
    membership::Key number{};
    const auto drawn = in.bytes(number.size());
    for (int Parameters::*const value : agreed) {
        p.*value = static_cast<int>(in.u32());
    }
    const auto output = in.bytes(std::min<std::size_t>(in.u32(), PATH_MAX));
    std::map<NodeId, std::string> absent;
    for (std::uint32_t left = in.u32(); left > 0 && in.ok(); --left) {
        if (const NodeId id = in.u32(); id == 0 || id == self_ || id >= daemons) {
            in.fail();
        } else {
            absent[id] = {};
        }
    }
    if (begun()) {
        drop(0, Drops::Why::duplicate);
        return;
    }
    if (!in.ok() || (!join && !in.complete()) || their_format != format || self_ >= daemons ||
        !p.fault().empty()) {
        drop(0, Drops::Why::malformed);
        return;
    }
    parameters() = p;
    std::copy(drawn.begin(), drawn.end(), number.begin());
    key_ = job_key(launch_key_, number);
    output_.assign(reinterpret_cast<const char *>(output.data()), output.size());
    if (const std::string here = output_here(); here != output_) {
        orte_show_help("help-errmgr-radixft.txt", "output-elsewhere", true,
                       orte_process_info.nodename, output_.c_str(), here.c_str());
    }
    orte_process_info.num_procs = std::max<orte_vpid_t>(orte_process_info.num_procs, daemons);
    if (!join) {
        missing_ = std::move(absent);
        begin(daemons);
    } else if (!on_invitation(in)) {
        drop(0, Drops::Why::malformed);
    }
}

/// What comes before the session's begin.
void Daemon::prepare_engine()
{
    const Parameters &p = parameters();
    if (p.log_dir != nullptr && p.log_dir[0] != '\0') {
        const std::string path = std::string(p.log_dir) + "/radixft-" +
                                 std::to_string(ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid)) + "-" +
                                 std::to_string(self_) + ".log";
        log_.open(path);
        if (!log_) {
            orte_show_help("help-errmgr-radixft.txt", "no-log", true, path.c_str(),
                           std::strerror(errno));
        }
    }
    hand_out_no_more();
    publications_.watch();
    // Before it may stand in for mpirun: others may see that it does sooner than it does itself,
    // and what they publish here is to be seen.
    spawns_.watch();
    sealer_.emplace(key_);
    session_->log_to(log_.is_open() ? &log_ : nullptr);
    start_rails();
}

void Daemon::begin(std::uint32_t daemons)
{
    const Parameters &p = parameters();
    // The PMIx server's thread is there by now.
    run_all_promptly();
    prepare_engine();
    if (self_ != 0) {
        // A daemon does not keep book of the others, which a stand-in for mpirun needs.
        for (NodeId id = 0; id < daemons; ++id) {
            orte_proc_t *const proc = daemon_object(id);
            if (proc != nullptr && missing_.contains(id)) {
                ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
            } else if (proc != nullptr) {
                ORTE_FLAG_SET(proc, ORTE_PROC_FLAG_ALIVE);
                proc->state = ORTE_PROC_STATE_RUNNING;
            }
        }
    }
    session_->begin(monotonic_now(), p.engine(), daemons);
    welcome_ = true;
    for (const auto &[id, what] : missing_) {
        // It has never been one of them, so it has voted for nothing.
        lost_.insert(id);
        session_->proof(monotonic_now(), id, membership::ProofKind::reaped);
    }
    for (NodeId id = 0; id < daemons && self_ == 0; ++id) {
        hosts_.remember(host_name(id), {id, 0});
    }
    story(1, "begins: %u daemons, arity %d%s%s", daemons, p.arity,
          p.repair != 0 ? ", repaired tree" : "", p.localised_view != 0 ? ", localised views" : "");
    check_open_files(daemons);
    look_up_contacts();
    open_connections();
    apply_view();
    for (const auto &[from, bytes] : std::exchange(early_, {})) {
        on_protocol(from, bytes);
    }
    flush();
    arm_timer();
}

void Daemon::check_leaving()
{
    if (!orte_orteds_term_ordered || wind_down_->leaving() ||
        ++leaving_ticks_ % leaving_patience != 0) {
        return;
    }
    const unsigned patience_over = leaving_ticks_ / leaving_patience;
    bool leave = false;
    if (!ORTE_PROC_IS_HNP) {
        // The order to leave can overtake the start of a rank, whose end then goes uncounted.
        leave = patience_over >= 10 || (patience_over >= 2 && !children_exist());
    } else if (!begun() && orte_process_info.num_procs > 1) {
        // The launch failed. Who has not called by now was told nothing, and ends by itself when it
        // finds nobody here.
        leave = patience_over >= 3;
    } else {
        leave = patience_over >= 30;
        channel_broke("daemons that were told to leave are still there");
    }
    if (leave) {
        story(1, "waits no longer for what has not ended, and leaves");
        ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_DAEMONS_TERMINATED);
    }
}

} // namespace ft::radixft
