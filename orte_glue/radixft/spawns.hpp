/// At mpirun: MPI_Comm_spawn whose new ranks die on their way through MPI_Init.
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
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/meetings.hpp"
#include "orte_glue/radixft/types.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ft::radixft {

/// What is published in the place of names. The error manager of a rank turns it into MPI_ERR_SPAWN
/// where Open MPI wants to read a name.
inline constexpr char spawn_refusal[] = "radixft-spawn-failed";
/// MPI_ERR_SPAWN of Open MPI's mpi.h, which this layer does not know; a positive code is passed on
/// as it is. cluster/radixft/join sees it arrive.
inline constexpr int spawn_error = 50;

class Spawns {
  public:
    /// From the start of the job on, looks at what is published here. Again: no effect.
    void watch() noexcept;

    /// Whether the ranks that spawned this job wait for its ranks.
    bool awaited(const orte_job_t &job);
    /// Ends their waiting; to be called once per job. Whether with an error in all of them.
    bool refuse(orte_job_t &job);
    bool refused(std::uint32_t jobid) const { return refused_.contains(jobid); }

    /// The ranks that spawned this job, if it has come as far as to wait for them and not all that
    /// it waits for is published; a vpid of `every_rank` stands for all of a job. As long as they
    /// have not told who they are, the one that asked the runtime. Empty in any other case.
    std::vector<Rank> waits_for(const orte_job_t &job);

    /// Minds the deaths known so far in calls of MPI_Comm_accept and MPI_Comm_connect.
    void on_deaths(const std::map<Rank, RankDeath> &dead);

  private:
    static void on_message(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                           orte_rml_tag_t tag, void *data) noexcept;
    bool wanted(opal_buffer_t *message);
    bool published(opal_buffer_t *message);
    bool callers_published(Rank owner, const std::string &key, const opal_value_t &value);
    void act() noexcept;
    void looked_up(opal_buffer_t *message);
    void stand_in(const std::string &port);

    bool watching_ = false;
    Meetings meetings_;
    std::set<std::uint32_t> called_;  ///< jobs that have published
    std::set<std::uint32_t> through_; ///< jobs that have published all that is waited for
    std::map<std::string, std::vector<Rank>> callers_; ///< by port
    std::set<std::string> let_in_;             ///< ports at which the callers have published all
    std::map<std::string, std::string> asked_; ///< by port: the last number looked up
    std::map<std::string, std::string> told_;  ///< by port: the last number published
    std::set<std::uint32_t> refused_;          ///< jobs of which that is not waited for any more
};

} // namespace ft::radixft
