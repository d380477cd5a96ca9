/// At mpirun, or at the daemon that stands in for it: MPI_Comm_spawn whose new ranks die on their
/// way through MPI_Init.
///
/// The spawning ranks publish a key, look up the one that the new ranks publish at the end of their
/// MPI_Init, and wait for it (OPAL_PMIX_EXCHANGE: ten minutes). mpirun keeps what is published, so
/// it sees who has come that far. When a rank of a job dies that has not, mpirun publishes in its
/// place a text that is no list of names. All spawning ranks get it, also those that have it from
/// their root by a broadcast, and MPI_Comm_spawn returns an error in every one of them.
///
/// When they have the names, nothing that is published can end the call everywhere: some may be
/// ahead of others. So all are let through. Daemons answer for the dead when they are asked for
/// their addresses (address_requests.hpp). The roots of both sides then exchange numbers in the
/// same way as names (comm_cid.c), until the communicator has its context id; mpirun answers for
/// the new ranks what ends that soonest: 1 is the smallest proposal of an id, and "agreed". The
/// call succeeds, and what is sent to its ranks fails, since all of them are dead: mpirun ends
/// those that are left.
///
/// The same the other way round: new ranks wait in MPI_Init for what those who spawn them publish.
/// When one of these dies that has not let them through, mpirun gives the new ones up: the others
/// fail (they would wait for the dead), and what began for nothing ends.
///
/// When mpirun dies, every daemon ends those of its ranks that were spawned and are not through
/// MPI_Init (takeover.cc): what they and those who spawned them had said to each other is gone. The
/// daemon that stands in refuses the spawn when it learns of their deaths, as mpirun would.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/data_server.hpp"
#include "orte_glue/radixft/meetings.hpp"
#include "orte_glue/radixft/spawn_calls.hpp"
#include "orte_glue/radixft/types.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ft::radixft {

/// MPI_ERR_SPAWN of Open MPI's mpi.h, which this layer does not know; a positive code is passed on
/// as it is. cluster/radixft/join sees it arrive.
inline constexpr int spawn_error = 50;

/// The rank that asked for a spawned job, the root of the call; nothing if it was not spawned. The
/// originator that the runtime knows is the daemon of this rank.
std::optional<Rank> asker(const orte_job_t &job);
/// The port at which the ranks that spawned a job wait for it; empty if nobody does.
std::string parent_port(const orte_job_t &job);
/// The key under which the new ranks tell those at this port who they are.
std::string key_of_new_ranks(const std::string &port);

class Spawns {
  public:
    /// From the start of the job on, looks at what is published here. Again: no effect.
    void watch() noexcept;
    /// At who stands in for mpirun: keeps in mind what was spawned so far. All that is of those
    /// jobs that are given up goes through refuse().
    void take_over();

    /// Whether the ranks that spawned this job wait for its ranks.
    bool awaited(const orte_job_t &job);
    /// Ends their waiting; to be called once per job. Whether with an error in all of them.
    bool refuse(orte_job_t &job);
    /// At who stands in for mpirun: the same for all jobs that are not refused and of which
    /// somebody is in `dead`.
    void refuse_all(const std::map<Rank, RankDeath> &dead);
    bool refused(std::uint32_t jobid) const;

    /// The ranks that spawned this job, if it has come as far as to wait for them and not all that
    /// it waits for is published; a vpid of `every_rank` stands for all of a job. As long as they
    /// have not told who they are, the one that asked the runtime. Empty in any other case.
    std::vector<Rank> waits_for(const orte_job_t &job);

    /// Minds the deaths known so far in calls of MPI_Comm_accept and MPI_Comm_connect.
    void on_deaths(const std::map<Rank, RankDeath> &dead);

  private:
    /// What is done with a message to the server.
    struct Verdict {
        bool wanted = true;                       ///< false: not kept, and nobody is told
        std::optional<data_server::Value> answer; ///< to a look-up, in place of the server's
    };

    static void on_message(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                           orte_rml_tag_t tag, void *data) noexcept;
    static bool refuse(SpawnCalls::Call &call);
    SpawnCalls::Call *call_of(const orte_job_t &job);
    SpawnCalls::Call *call_at(std::string_view key);
    Verdict judge(opal_buffer_t *message);
    bool published(opal_buffer_t *message);
    bool on_value(Rank owner, const std::string &key, const opal_value_t &value, bool once);
    bool on_new_ranks(SpawnCalls::Call &call, const std::string &key);
    void act() noexcept;
    void looked_up(opal_buffer_t *message, std::optional<data_server::Value> &answer);
    static void stand_in(SpawnCalls::Call &call);

    bool watching_ = false;
    bool taken_over_ = false; ///< mpirun is gone: nothing more is spawned
    Meetings meetings_;
    SpawnCalls calls_;
};

} // namespace ft::radixft
