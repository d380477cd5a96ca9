/// Shared memory that killed ranks leave behind on their host.
///
/// btl/vader and osc/sm keep files in /dev/shm, which their ranks remove when they finalize. Of a
/// rank that is killed the PMIx server would remove them, but under radixft it keeps what it knows
/// of such ranks (errmgr_radixft_pmix.cc); so its daemon does, by the names that Open MPI 4.1.4
/// gives them, and only those of its own job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ft::radixft {

/// Where ranks of one node keep their files, and how their names go on.
struct Segments {
    std::string folder = "/dev/shm";
    std::string node; ///< as the runtime calls this host
    std::uint32_t uid = 0;

    /// Removes what the rank with this number among those of its node has left. True if there was
    /// something.
    bool remove(std::uint32_t jobid, std::uint32_t local_rank) const noexcept;
    /// Removes what ranks of all jobs of one mpirun (jobid >> 16) have left; how many files it was.
    std::size_t remove_all(std::uint32_t family) const noexcept;
};

} // namespace ft::radixft
