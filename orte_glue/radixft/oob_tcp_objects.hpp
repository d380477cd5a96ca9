/// The objects of oob/tcp, the runtime's channel, as Open MPI 4.1 has them: its headers are not
/// installed. The only place that repeats them.
///
/// Nothing of them is to be believed before OobTcp::known() has found the component and the sizes
/// that its own classes name, and before OobPeer::find() has compared the events in the middle of a
/// peer with its socket. With another Open MPI, look here first.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include <cstddef>
#include <cstdint>

namespace ft::radixft {

/// mca_oob_tcp_state_t.
enum class OobState : int {
    unconnected,
    closed,
    resolve,
    connecting,
    greeting, ///< connected, but for the other's answer
    connected,
    failed,
    accepting
};

/// mca_oob_tcp_hdr_t.
struct OobHeader {
    orte_process_name_t origin;
    orte_process_name_t destination;
    orte_rml_tag_t tag;
    std::uint32_t sequence;
    std::uint32_t bytes;
    std::uint8_t type;
    char routed[32];
};

/// mca_oob_tcp_send_t.
struct OobSending {
    opal_list_item_t super;
    opal_event_t event;
    void *peer;
    bool activate;
    OobHeader header;
    orte_rml_send_t *message;
    char *data;
    bool header_sent;
    int part;
    char *next;
    std::size_t left;
};

/// mca_oob_tcp_recv_t.
struct OobReceiving {
    opal_list_item_t super;
    OobHeader header;
    bool header_there;
    char *data;
    char *next;
    std::size_t left;
};

/// mca_oob_tcp_addr_t.
struct OobAddress {
    opal_list_item_t super;
    sockaddr_storage where;
    int tries;
    OobState state;
};

/// mca_oob_tcp_peer_t.
struct OobPeerObject {
    opal_list_item_t super;
    orte_process_name_t name;
    char *auth_method;
    int socket;
    opal_list_t addresses;
    OobAddress *used;
    OobState state;
    int retries;
    opal_event_t send_event;
    bool sends;
    opal_event_t receive_event;
    bool receives;
    opal_event_t timer_event;
    bool times;
    opal_list_t queue;
    OobSending *sending;
    OobReceiving *receiving;
};

/// mca_oob_tcp_conn_op_t: a decision to connect, which an event of its own carries out.
struct OobAttempt {
    opal_object_t super;
    OobPeerObject *peer;
    opal_event_t event;
};

/// A header, a flag, and the version of the channel's protocol: with it each end of a connection
/// begins.
inline constexpr std::uint64_t oob_greeting_bytes =
    sizeof(OobHeader) + sizeof(std::uint16_t) + sizeof "4.0.0";

/// What the component exports.
struct OobTcp {
    using Handler = void(int, short, void *);

    OobPeerObject *(*lookup)(const orte_process_name_t *) = nullptr;
    Handler *try_connect = nullptr;
    Handler *receive = nullptr; ///< what is to be read of a connection
    opal_class_t *address_class = nullptr;
    opal_class_t *attempt_class = nullptr;
    opal_class_t *peer_class = nullptr;

    /// Null where the channel is another one, or not as it is described here.
    static const OobTcp *known() noexcept;
};

} // namespace ft::radixft
