/// What passes over the channel's connections to other daemons, counted in bytes at both ends, so
/// that nothing of the runtime's own messages is lost with a connection that is given up.
///
/// Used where daemons have several networks; elsewhere no connection is given up. In the thread of
/// the event base.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/oob_tcp.hpp"
#include "orte_glue/radixft/sent.hpp"
#include "orte_glue/radixft/types.hpp"

#include <map>
#include <memory>
#include <span>

namespace ft::radixft {

class Streams {
  public:
    /// From now on everything that is sent to daemons is counted.
    void start();
    void stop();

    /// A look at a connection that stands: what has arrived meanwhile need not be kept.
    void look(NodeId id, const OobPeer &peer);
    /// This daemon has given its connection up.
    void given_up(NodeId id, const OobPeer &peer);
    /// It has ended in another way, and what was on its way is lost.
    void lost(NodeId id);
    /// There will be no other one.
    void ended(NodeId id);
    /// There is a new one; `replaced`: the other daemon had given up the one before. What was on
    /// its way here is taken. What to tell the other daemon of that; empty if nothing.
    Bytes connected(NodeId id, OobPeer &peer, bool replaced);
    /// What the other daemon says in the same case: it is sent again what it has not had. False if
    /// the message is malformed.
    bool on_resume(NodeId id, std::span<const std::byte> body);

  private:
    struct Release {
        void operator()(opal_buffer_t *buffer) const { OBJ_RELEASE(buffer); }
    };
    struct Message {
        orte_rml_conduit_t conduit;
        orte_rml_tag_t tag;
        std::unique_ptr<opal_buffer_t, Release> buffer;
    };
    struct Stream {
        Ports ports;
        /// Keeps what has come and is not read yet when the channel closes its own.
        FileDescriptor socket;
        Sent<Message> sent;
        bool given_up = false;
    };
    struct Note;

    static int send(orte_rml_conduit_t conduit, orte_process_name_t *peer, opal_buffer_t *buffer,
                    orte_rml_tag_t tag, orte_rml_buffer_callback_fn_t done, void *data) noexcept;
    static void written(int status, orte_process_name_t *peer, opal_buffer_t *buffer,
                        orte_rml_tag_t tag, void *data) noexcept;

    bool started_ = false;
    std::map<NodeId, Stream> streams_;
    std::multimap<NodeId, Stream> ended_; ///< of which the other daemon is to say what it has had
};

} // namespace ft::radixft
