/// At every daemon: what its ranks have asked of mpirun when that dies.
///
/// What ranks publish and look up (MPI_Publish_name, and by it MPI_Comm_accept, connect and spawn
/// meet) is kept by mpirun. When that dies, the daemon that stands in for it keeps what is
/// published from then on. The rest is gone, but for this: a root that has told who is on its side
/// of an accept or connect, and waits for the other side, may wait for long. What it has told
/// nobody has read yet, or it would have its answer. So its daemon remembers that, tells it the new
/// server, and asks there again. A number whose exchange mpirun's death cut into cannot be had any
/// more: that call fails. So does a spawn that was asked for, since nobody is left to launch it;
/// how a spawn fails is told in spawn_requests.hpp.
/// Ranks that were spawned and have not said their last word to those who spawned them do not begin
/// any more (takeover.cc); for the others the server answers.
///
/// One thread, that of the runtime's event base.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/spawn_requests.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace ft::radixft {

class Publications {
  public:
    /// From the start of the job on, looks at what goes to the server. Again: no effect.
    void watch() noexcept;
    /// No more: this code may be unloaded.
    void stop() noexcept;
    /// mpirun, or who stood in for it, is gone; ORTE_PROC_MY_HNP is the new one.
    void on_new_server() noexcept;
    /// Of a spawned job of which rank 0 is this daemon's: whether its ranks are through MPI_Init,
    /// as far as that has to do with those who spawned it.
    bool begun(const orte_job_t &job) const;

  private:
    struct Release {
        void operator()(opal_buffer_t *buffer) const { OBJ_RELEASE(buffer); }
    };
    using Buffer = std::unique_ptr<opal_buffer_t, Release>;
    /// Names that one side of a port has told, the job of who told them, and the last server that
    /// has been told.
    struct Names {
        Buffer request;
        std::uint32_t jobid = 0;
        std::uint32_t server = 0;
    };

    static int pass_on(orte_rml_conduit_t conduit, orte_process_name_t *peer, opal_buffer_t *buffer,
                       orte_rml_tag_t tag, orte_rml_buffer_callback_fn_t done, void *data) noexcept;
    /// What a rank has just asked for. Whether that is answered, and nothing is to be sent.
    bool note(opal_buffer_t *message);
    /// Whether the answer to this request is still to come.
    bool ask_again(pmix_server_req_t &request);
    bool look_up_again(pmix_server_req_t &request);
    /// What a look-up asks for first, and whose rank asks.
    struct Question {
        std::uint32_t jobid = 0;
        std::string key; ///< empty: it is no look-up
    };
    static Question question_of(opal_buffer_t &request);
    void tell_again(const std::string &key);
    static Buffer copy_of(opal_buffer_t *message);
    static void send(int room, opal_buffer_t *request);

    SpawnRequests spawns_;
    std::map<std::string, Names> names_; ///< by key
    std::set<std::uint32_t> last_word_;  ///< spawned jobs that have published their last number
};

} // namespace ft::radixft
