/// What one daemon (mpirun is daemon 0) does for radixft, and what the three components share.
///
/// It owns the membership engine and the two small protocols beside it (death_spread.hpp,
/// gather.hpp), carries their messages over the runtime's channel, keeps their time on the
/// runtime's event base, and turns what they say into the runtime's terms: routes, job accounting,
/// events for the ranks. The launch goes like this: a daemon that has everybody's address tells
/// mpirun READY; when all have, mpirun answers GO with a number from which the key of the
/// protocol's seal is made (launch_key.hpp) and its parameters, and all begin in the same view.
/// Until then mpirun alone minds the daemons. Everything runs in the thread of the event base.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/address_requests.hpp"
#include "orte_glue/radixft/death_board.hpp"
#include "orte_glue/radixft/drops.hpp"
#include "orte_glue/radixft/gather.hpp"
#include "orte_glue/radixft/held.hpp"
#include "orte_glue/radixft/introductions.hpp"
#include "orte_glue/radixft/jobs.hpp"
#include "orte_glue/radixft/life_lines.hpp"
#include "orte_glue/radixft/parameters.hpp"
#include "orte_glue/radixft/publications.hpp"
#include "orte_glue/radixft/segments.hpp"
#include "orte_glue/radixft/session.hpp"
#include "orte_glue/radixft/spawns.hpp"
#include "orte_glue/radixft/stalls.hpp"
#include "orte_glue/radixft/streams.hpp"
#include "orte_glue/radixft/watch.hpp"
#include "orte_glue/radixft/wind_down.hpp"

#include "opal/ft/base/wire.hpp"
#include "opal/ft/membership/host_map.hpp"

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ft::radixft {

/// What the end of the job tells about one daemon that was lost.
struct NodeLoss {
    NodeId id = no_node;
    std::string host;
    membership::Grade grade = membership::Grade::suspected;
    std::int64_t noticed_us = 0; ///< wall clock
    std::int64_t installed_us = 0;
    std::int64_t stabilized_ns = 0; ///< the paper's T_s; 0 when another daemon was root
    std::vector<Rank> ranks;        ///< that died with it
    Epoch epoch = 0;
};

/// At mpirun: a job that is not mapped before these daemons are members, and before the ranks of
/// spawns that failed have ended.
struct Launch {
    orte_state_caddy_t *caddy = nullptr;
    std::set<NodeId> newcomers;
    base::Time since;
};

/// At mpirun: a daemon that was given up and may live still.
struct Leaver {
    bool told = false;   ///< to leave, on the connection that there is
    bool off = false;    ///< mpirun has broken off a connection to it that was stalled
    bool sought = false; ///< mpirun knocks at its port now
};

/// At mpirun: a job for whose hosts no daemons are started before these have left, which were given
/// up there.
struct HeldSpawn {
    orte_state_caddy_t *caddy = nullptr;
    std::set<NodeId> until_gone;
    base::Time since;
};

/// At mpirun: a daemon that is started again under its old id for a spawned job.
struct Comeback {
    std::uint32_t jobid = 0;
    NodeId id = no_node;
    std::string host;
};

class Daemon {
  public:
    /// The one of this process. Only for mpirun and daemons of a job that asked for radixft.
    static Daemon &get() noexcept;

    /// From the error manager's init and finalize.
    int start() noexcept;
    void stop() noexcept;

    /// From routed: addresses or the number of daemons changed.
    void on_wireup() noexcept;
    /// From mpirun's error manager: launches wait for new daemons to be members.
    void watch_launches() noexcept;
    /// Whether messages to this daemon make sense.
    bool reachable(NodeId id) const noexcept { return !lost_.contains(id); }
    bool is_leaving(NodeId id) const noexcept;

    /// From routed: the channel has a connection to a daemon now, or has it no more.
    void connected(NodeId id) noexcept;
    void disconnected(NodeId id) noexcept;
    /// From the error manager: the channel lost its connection to a daemon, or could not get one.
    void connection_lost(NodeId id) noexcept;
    /// The channel broke to some daemon, and the runtime does not say to which: all are knocked at.
    void channel_broke(const char *text) noexcept;
    /// At mpirun: the command that had started a daemon ended with an error.
    void launcher_reports(orte_proc_t &daemon) noexcept;
    /// At mpirun: the command that had started several daemons has ended, with an error or not.
    void launchers_end(bool failed) noexcept;
    /// Whether there is a job that nobody is ending, and that has not ended.
    bool has_open_job() const noexcept;
    /// At a daemon: the same as connection_lost(), also for the time before the job has begun.
    void peer_left(NodeId id) noexcept;
    /// At mpirun: its exit code if it has none yet. The runtime sets one of its own when a remote
    /// shell fails, which a lost daemon must not leave behind, and when a spawn cannot be mapped.
    void set_exit_code(int code) noexcept;
    /// A rank of this daemon died without having finalized.
    void rank_died(const orte_proc_t &rank, Cause cause) noexcept;
    /// A rank of this daemon, of a spawned job, could not be started.
    void rank_not_started(orte_proc_t &rank) noexcept;

    /// At mpirun: how many ranks fewer than were asked for the job began with.
    std::size_t ranks_missing() const { return shortage_.ranks; }

    /// Whether a rank of this job is known to have died.
    bool bereaved(std::uint32_t jobid) const;
    /// Of any job.
    bool bereaved() const;

    /// From grpcomm.
    int allgather(orte_grpcomm_coll_t *coll, opal_buffer_t *data) noexcept;

    /// At mpirun: a rank has called MPI_Abort. Whether that concerns the spawn alone in whose
    /// MPI_Init it is.
    bool spawn_aborted(orte_job_t &job, orte_proc_t &rank) noexcept;
    /// At mpirun: a spawned job of which nothing was started fails, and those who called it are
    /// told.
    void give_up_launch(orte_job_t &job);
    /// At mpirun: ends spawned jobs that wait for a rank that is dead. There, and at who stands in
    /// for it: minds deaths in calls of MPI_Comm_accept and MPI_Comm_connect.
    void mind_callers() noexcept;
    /// At mpirun: ends the whole job with a message that was shown before. \param culprit is said
    /// to have called "abort" by mpirun, whatever the state; may be nullptr
    void end_job(orte_job_t *job, orte_job_state_t state, orte_proc_t *culprit, int code) noexcept;
    /// A daemon went as it was told to: nothing is sent there any more.
    void has_left(NodeId id) noexcept { lost_.insert(id); }
    /// At a daemon: a rank has called MPI_Abort.
    void called_abort(const orte_job_t &job, const orte_proc_t &rank) noexcept;
    /// At a daemon: something happened after which the whole job must end. mpirun learns of it by
    /// the runtime's own ways; this is for the time after its death.
    void job_must_end(const std::string &why) noexcept;
    /// After every loss of a daemon while the job ends: is everybody gone?
    void check_all_gone() noexcept;

    const DeathSpread *deaths() const { return session_ ? &session_->deaths() : nullptr; }
    bool is_root() const;
    /// The job has begun: the engine is there.
    bool begun() const { return session_ && session_->begun(); }
    /// And this daemon is a member, which one that joins is only later.
    bool is_member() const { return begun() && session_->engine().view() != nullptr; }
    /// It is one, and this daemon is one too.
    bool has_member(NodeId id) const
    {
        return is_member() && session_->engine().view()->contains(id);
    }

  private:
    friend struct Callbacks;

    // daemon.cc
    void arm_timer();
    void on_timer();
    void send_ready();
    bool get_keys();
    void on_ready(NodeId from, base::WireReader &in, bool genuine);
    void begin_if_ready();
    void on_go(base::WireReader &in);
    void prepare_engine();
    Bytes go(bool join, std::size_t room) const;
    void begin(std::uint32_t daemons);
    void check_launch(base::Time now);
    void check_mpirun(base::Time now);
    void check_leaving();
    void launch_failed(const std::string &why);

    // short_start.cc
    /// What a job lacks that begins without some hosts.
    struct Shortage {
        std::size_t asked = 0;    ///< ranks that it was to have
        std::size_t ranks = 0;    ///< of those, for which there is no room
        bool nobody_left = false; ///< no host at all for some program
    };
    void lost_in_launch(NodeId id, const std::string &what);
    Shortage shortage(orte_job_t &job) const;
    bool may_begin(orte_job_t &job);
    std::string missing_hosts() const;
    bool fit(orte_job_t &job);
    bool turns_away(NodeId id);
    bool goes_on_without(const orte_job_t &job, orte_proc_t &dead, const RankDeath &death);
    bool holds_up_others(const RankDeath &death) const;
    static void receive_daemons();

    // hardware.cc
    void has_called(NodeId id);
    bool owes_hardware(NodeId id) const;
    bool nobody_tells_hardware(NodeId id);
    bool takes_hardware(NodeId id);

    // daemon_join.cc
    void admit(orte_state_caddy_t *caddy);
    void admit_newcomers(Launch &launch);
    bool ranks_are_ending() const;
    void bring_back(const orte_job_t &job);
    static void bring_back(NodeId id, const std::string &host);
    NodeId next_comeback(std::uint32_t jobid);
    bool awaits_comeback(std::uint32_t jobid) const;
    void take_over_launcher();
    void introduce();
    Bytes invitation(NodeId guest, const Bytes &contacts);
    bool on_invitation(base::WireReader &in);
    bool on_address(NodeId from, std::span<const std::byte> body);
    void follow_joins(const membership::Event &installed);
    void check_newcomers();
    static std::uint32_t fences_of_init();
    bool in_mpi_init(std::uint32_t jobid) const;
    bool in_mpi_init(const orte_proc_t &dead) const;
    bool begins_job(const std::vector<Rank> &named, std::uint32_t number) const;
    void spawn_failed(orte_job_t &job, orte_proc_t &dead, const RankDeath &death);

    // newcomers.cc
    void wait_for_newcomers();
    void check_called_for(base::Time now);
    void put_aside(NodeId id);
    void newcomer_failed(NodeId id, const std::string &what);
    void newcomer_ended(NodeId id);
    bool awaits_newcomer(NodeId id) const;
    static void end_launcher(const orte_proc_t &daemon);
    bool holds_back(orte_state_caddy_t *caddy);
    bool is_in_the_way(NodeId id) const;
    void look_for(NodeId id);
    void check_held_spawns();

    // daemon_watch.cc
    void keep_job(Rank dead);
    static void set_for_ranks(const char *variable, const char *value);
    void start_board();
    void start_lines();
    void lines_broke();
    void await_end(Rank who, pid_t process, int number, int seen);
    void ended_below(Rank who, int status);
    void rank_died(const orte_proc_t &rank, Cause cause, int exit_code);
    void rank_died(Rank who, Cause cause, int exit_code);
    void start_watch();
    void watch_ranks(base::Time now);
    void start_sweeping();
    void sweep(base::Time now);

    // daemon_messages.cc
    void send(NodeId to, orte_rml_tag_t tag, const Bytes &bytes);
    void send(const Outgoing &message);
    static void transmit(NodeId to, orte_rml_tag_t tag, const Bytes &bytes);
    void send_held(NodeId to);
    void open_connections();
    void await_connection(NodeId from, base::Duration patience);
    void open_connections_of_newcomer(std::span<const NodeId> members);
    void await_newcomer(NodeId id);
    void stop_opening(NodeId to) noexcept;
    void leave_without_mpirun();
    void on_bytes(NodeId from, orte_rml_tag_t tag, std::span<const std::byte> bytes);
    void on_protocol(NodeId from, std::span<const std::byte> bytes);
    void on_glue(NodeId from, std::span<const std::byte> bytes);
    void on_launch(NodeId from, std::span<const std::byte> bytes);
    static Bytes sealed(const membership::Key &key, Bytes bytes);
    void drop(NodeId from, Drops::Why why);
    Drops drops() const;

    // daemon_connections.cc
    bool is_to_knock_first(NodeId id) const;
    void knock_at(NodeId id);
    void answered_in_launch(NodeId id, bool refused);
    void on_refused(NodeId id);
    void check_open_files(std::uint32_t daemons) const;

    // contacts.cc
    void look_up_contacts();

    // daemon_rails.cc
    void start_rails();
    bool has_rails() const { return own_addresses_.size() > 1; }
    void watch_rails();
    void examine(NodeId id, bool broken);
    void examined(NodeId id, const std::vector<sockaddr_storage> &addresses,
                  std::span<const Knock> answers, const Progress &before, bool broken);
    bool changes_rail(NodeId id);
    void forget_rail(NodeId id);
    void nudge_all();
    void nudge(NodeId id);
    void greet_rail(NodeId id, bool replaced);
    void ask_to_let_go(NodeId id);
    bool on_let_go(std::span<const std::byte> body);

    // daemon_events.cc
    void flush();
    void flush_glue();
    void on_event(const membership::Event &event);
    void remember_loss(const membership::Removed &gone_one, Epoch epoch);
    void on_installed(const membership::Event &event);
    void apply_view();
    static void set_down(NodeId id);
    void on_announced(const RankDeath &death);
    void account(const RankDeath &death);
    void announce(const std::vector<RankDeath> &deaths);
    void tell_ranks();
    static void tell_ranks(const RankDeath &death);
    void complete(const Gather::Done &done);
    void forget_collectives(base::Time now);
    static bool is_over(const Bytes &signature);
    bool anyone_here(std::span<const Rank> named) const;
    bool gone(NodeId id, const Bytes &signature, std::uint32_t number);
    void end_here(const char *topic);

    // takeover.cc
    void announce_output() const;
    /// `output_` or, where that folder is missing on this host, the same in the temporary folder.
    std::string output_here() const;
    void without_mpirun(const membership::View &view);
    void end_input();
    void stand_in();
    void check_ranks();
    const RankDeath *missed_by(const orte_proc_t &waiting) const;
    void check_spawns();
    bool is_beginning(const orte_job_t &spawned) const;
    void check_winding_down();
    void on_output(opal_buffer_t *buffer);
    void on_request(orte_process_name_t *sender, opal_buffer_t *buffer);
    static void refuse_launch(const orte_job_t &job, orte_process_name_t who, std::int32_t error);

    // summary.cc
    void summarize(std::FILE *where) const;

    NodeId self_ = 0;
    bool started_ = false;
    Jobs jobs_;
    std::unique_ptr<Gather> gather_;
    std::unique_ptr<WindDown> wind_down_;
    std::unique_ptr<Session> session_;
    std::optional<membership::Sealer> sealer_;
    membership::Key number_{};     ///< at mpirun: key_ was made from it
    membership::Key launch_key_{}; ///< seals what is said before the job begins
    membership::Key key_{};        ///< seals everything later
    DeathBoard board_;             ///< where its ranks look for deaths
    LifeLines lines_;              ///< by which its ranks hang
    opal_event_t line_broke_;
    std::vector<RankDeath> untold_; ///< of which PMIx knows nothing yet
    std::unique_ptr<Watch> watch_;  ///< null: nobody wants ranks that hang to be found
    std::map<Rank, std::pair<Cause, std::int64_t>> accused_; ///< of what, and when by the wall
    /// What a local rank that died has in shared memory.
    struct Leftover {
        base::Time since;
        std::uint32_t jobid;
        std::uint32_t local_rank;
    };
    Segments segments_;
    std::vector<Leftover> leftovers_; ///< oldest first
    bool keyless_ = false;            ///< this daemon was handed no launch key
    std::set<NodeId> without_key_;    ///< at mpirun: daemons that were not
    std::ofstream log_;
    std::vector<std::pair<NodeId, Bytes>> early_; ///< protocol messages that came before GO
    std::set<NodeId> sealing_;                    ///< have sent something sealed
    membership::HostMap hosts_;                   ///< at mpirun
    std::map<NodeId, std::uint32_t> lives_;       ///< at mpirun: incarnations of newcomers
    orte_state_cbfunc_t start_daemons_ = nullptr; ///< the launcher's
    orte_state_cbfunc_t vm_ready_ = nullptr;      ///< at mpirun: the state machine's own
    bool greeted_ = false;                        ///< this newcomer has told who it is
    Spawns spawns_;                               ///< at mpirun, or who stands in for it
    AddressRequests requests_;
    Publications publications_;
    /// Ranks of this daemon's, by job; of ended jobs too, like all deaths (DeathSpread::known).
    std::map<std::uint32_t, std::set<std::uint32_t>> died_here_;
    std::vector<Comeback> comebacks_; ///< at mpirun: not started yet
    std::vector<Launch> launches_;    ///< at mpirun: wait for newcomers
    Introductions introductions_;     ///< at mpirun: of those newcomers
    std::set<NodeId> ready_;          ///< at mpirun, during the launch
    bool mapped_ = false;             ///< at mpirun: it is decided where the first job runs
    std::set<NodeId> unsure_;         ///< at mpirun, during the launch: may be dead
    bool held_back_ = false;          ///< at mpirun: nothing is mapped until it is known who is
    /// At mpirun: kinds of hardware that it does not know yet, and which daemon is to tell them.
    std::map<const orte_topology_t *, NodeId> asked_;
    /// Daemons without which the job began, and at mpirun why: "could not be started".
    std::map<NodeId, std::string> missing_;
    /// At mpirun: daemons that were given up in the launch or in a spawn, and not asked for again.
    std::set<NodeId> unwanted_;
    /// At mpirun: those of them that have called and may live still.
    std::map<NodeId, Leaver> leaving_;
    std::vector<HeldSpawn> held_spawns_;      ///< at mpirun
    std::map<NodeId, base::Time> called_for_; ///< at mpirun: started for spawns, and since when
    Shortage shortage_;                       ///< at mpirun
    /// At mpirun: dead ranks of the first job without which the others get through MPI_Init.
    std::set<Rank> done_without_;
    std::set<NodeId> lost_;      ///< nothing is sent there any more
    std::set<NodeId> connected_; ///< the channel's connections
    std::set<NodeId> awaited_;   ///< these are to open a connection here
    Held held_;                  ///< waits for the answers to knocks, and for connections
    std::vector<sockaddr_storage> own_addresses_;
    Stalls stalls_;
    Streams streams_;
    std::set<NodeId> examined_; ///< whose addresses are being knocked at, each on its own
    std::set<NodeId> moving_;   ///< the connection was ended here, for another address is better
    /// A connection that was ended here; the other daemon is asked to do the same.
    struct LetGo {
        Ports ports;
        base::Time asked_at;
    };
    std::map<NodeId, LetGo> let_go_;
    base::Time nudged_at_;
    bool nudge_due_ = false;
    std::map<NodeId, std::int64_t> doubted_us_; ///< when doubt began
    std::map<NodeId, NodeLoss> losses_;
    std::pair<Epoch, std::int64_t>
        stabilized_; ///< the last view that all voted for here, and its T_s in ns
    base::Time started_at_;
    base::Time launch_since_;         ///< at mpirun: of what is waited for in the launch
    base::Time looked_for_mpirun_at_; ///< at a daemon, before the job has begun
    base::Time announced_at_; ///< at the root: the oldest announcement that not everybody has
    std::map<Rank, std::int64_t> spread_us_; ///< how long the announcement of a death took
    std::int64_t started_wall_us_ = 0;
    bool waiting_for_spread_ = false;
    int exit_code_ = 0;
    bool over_ = false;      ///< the job is being ended
    bool suspended_ = false; ///< a user has had the ranks stopped, through mpirun
    bool welcome_ = false;   ///< this daemon has a view
    Drops drops_;            ///< the engine's apart
    unsigned leaving_ticks_ = 0;
    std::optional<base::Time> orphaned_at_; ///< mpirun has been gone since
    std::map<Rank, unsigned> input_looks_;  ///< that found nothing to be read, in a row
    std::string must_end_;                  ///< why, if the job must end
    base::Time must_end_since_;
    /// Since when a rank of this daemon has waited in MPI_Init for a dead one, without mpirun.
    base::Time missed_since_ = base::Time::never();
    std::string folder_;          ///< at mpirun: the one in which it was started
    std::string output_;          ///< where the ranks' output goes without mpirun: path
                                  ///< without its extension
    std::FILE *stdout_ = nullptr; ///< open at the daemon that stands in for mpirun
    std::FILE *stderr_ = nullptr;
    opal_event_t timer_;
    base::Time armed_for_;
    base::Time tick_at_;
    base::Time forgot_at_; ///< collectives
};

/// Between repetitions of what the two small protocols have not been answered, and between looks at
/// the ranks.
inline constexpr base::Duration tick = base::Duration::from_ms(100);

/// The present on the clock that the engine is given, and on the wall.
base::Time monotonic_now() noexcept;
std::int64_t wall_us() noexcept;

/// A line of the story of what happens, for errmgr_base_verbose >= level.
void story(int level, const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));

/// At mpirun: a message of help-errmgr-radixft.txt about something that may happen again, with
/// another host or rank. orte_show_help() would only count it then.
void explain(const char *topic, ...) noexcept;
/// What the runtime is told, and what a user reads.
int exit_code_of(const RankDeath &death) noexcept;
std::string exit_code_text(const RankDeath &death);

/// Hands a message to the runtime's channel, which lets it go when it is sent.
void give(NodeId to, orte_rml_tag_t tag, opal_buffer_t *message) noexcept;

/// One of the runtime's own orders to a daemon.
void order(NodeId to, orte_daemon_cmd_flag_t command) noexcept;

/// The host name of a daemon, for messages; "unknown" when there is none.
std::string host_name(NodeId id);

/// The hosts that a spawned job is to run on, if it names any.
std::vector<std::string> hosts_named(const orte_job_t &job);

/// The runtime's object for a daemon; null when it has none.
orte_proc_t *daemon_object(NodeId id);

/// The contact string of a daemon; empty if the runtime has none, because it has not called yet.
std::string contact(NodeId id);
/// Where it can be asked for a connection: this host's own are not among them.
std::vector<sockaddr_storage> addresses_of(NodeId id);
/// Has the runtime remember another one.
void remember_contact(NodeId id, const std::string &uri);
/// Members have come and gone, these.
void contacts_changed(std::span<const membership::Removed> gone);

} // namespace ft::radixft
