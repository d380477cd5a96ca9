/// At every daemon: what becomes of the spawns that its ranks ask for, and that fail.
///
/// Open MPI tells such a failure to the root of MPI_Comm_spawn alone. That returns; the other ranks
/// of the call wait for what it would have told them. So the root is told that all went well. It
/// goes on to ask who the new ranks are, as after every spawn (spawns.hpp), and its own daemon
/// answers with the text that is no list of names. The root passes that on like any other, and the
/// call fails in all of its ranks, also when mpirun dies meanwhile. When mpirun has died before the
/// root has its answer, the new ranks cannot begin (takeover.cc), and it is told the same.
///
/// Who spawns programs without MPI (ompi_non_mpi) asks for no names and is told the error itself,
/// and so is everybody with a server of the user's own, which the questions go to.
///
/// One thread, that of the runtime's event base.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace ft::radixft {

class SpawnRequests {
  public:
    /// From now on handles mpirun's answers, in the runtime's place. Again: no effect.
    void watch() noexcept;
    /// Answers a request that has failed with this error of the runtime's. The request itself is
    /// left to whoever calls.
    void fail(const pmix_server_req_t &request, int error);
    /// A rank of this daemon, of job `asker`, asks for a key, or the daemon asks again for it.
    /// Whether the rank is to be told that nobody comes.
    bool refuses(std::uint32_t asker, const std::string &key);

  private:
    /// The root of a spawn that was answered, and has not got the names of the new ranks yet.
    struct Call {
        std::uint32_t caller = 0; ///< the root's job
        bool failed = false;
    };

    static void on_answer(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                          orte_rml_tag_t tag, void *data) noexcept;
    bool remember(const pmix_server_req_t &request, bool failed);

    bool watching_ = false;
    std::map<std::string, Call, std::less<>> calls_; ///< by port
};

} // namespace ft::radixft
