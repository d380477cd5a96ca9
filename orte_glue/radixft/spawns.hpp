/// At mpirun: MPI_Comm_spawn whose new ranks die on their way through MPI_Init.
///
/// The spawning ranks publish a key, look up the one that the new ranks publish at the end of their
/// MPI_Init, and wait for it (OPAL_PMIX_EXCHANGE: ten minutes). mpirun keeps what is published, so
/// it sees who has come that far. When a rank of a job dies that has not, mpirun publishes in its
/// place a text that is no list of names. All spawning ranks get it, also those that have it from
/// their root by a broadcast, and MPI_Comm_spawn returns an error in every one of them.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include <cstdint>
#include <set>
#include <string>

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
    /// Ends their waiting with an error. Once per job; later calls have no effect.
    void refuse(orte_job_t &job);
    bool refused(std::uint32_t jobid) const { return refused_.contains(jobid); }

  private:
    static void on_message(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                           orte_rml_tag_t tag, void *data) noexcept;
    bool wanted(opal_buffer_t *message);

    bool watching_ = false;
    std::set<std::uint32_t> called_;  ///< jobs that have published
    std::set<std::uint32_t> refused_; ///< jobs of which that is not waited for any more
};

} // namespace ft::radixft
