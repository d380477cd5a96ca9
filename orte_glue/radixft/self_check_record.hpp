/// What the self-checking thread of a rank tells the daemon of its host, through a file.
///
/// A rank has no channel of the runtime's to its daemon but PMIx, whose thread may be what hangs.
/// So the thread overwrites one small record, and the daemon reads it when it has time: neither
/// waits for the other. The file lies in the daemon's session directory, whose place the rank gets
/// with its environment; the daemon unlinks it when it has opened it.
#pragma once

#include <cstdint>
#include <string>

namespace ft::radixft {

struct SelfCheckRecord {
    static constexpr std::uint32_t expected_magic = 0x72637466; // "ftcr"
    enum : std::uint32_t {
        in_mpi = 1, ///< the progress engine has entered its functions and not left them
        traced = 2, ///< a debugger is attached
        left = 4,   ///< MPI_Finalize: nothing more will come
    };

    std::uint32_t magic = expected_magic;
    std::uint32_t flags = 0;
    std::int64_t pid = 0;           ///< of the process, which a script may have started
    std::uint64_t number = 0;       ///< of this report, from 1
    std::uint64_t progress = 0;     ///< rises with every turn of the progress engine
    std::int64_t announced_ns = 0;  ///< see detector::RankState
    std::uint64_t number_again = 0; ///< equal to number, unless the record was read half written
};

/// Environment variable: the folder for the records. Set by the daemon for its ranks. Not called
/// OMPI_...: those of mpirun's go to the ranks of all hosts.
inline constexpr char self_check_folder[] = "FT_RADIXFT_SELF_CHECK";

inline std::string self_check_path(const std::string &folder, std::uint32_t jobid,
                                   std::uint32_t vpid)
{
    return folder + "/radixft-" + std::to_string(jobid) + "-" + std::to_string(vpid);
}

} // namespace ft::radixft
