/// The messages of the membership protocol, typed and as bytes.
///
/// Names follow Varma et al. 2006; PROTOCOL.md says who sends which when, and what answers it. A
/// message is one flat struct: the common fields, a few scalars whose meaning depends on the type,
/// and shared immutable parts, so that passing a proposal on to `arity` children copies pointers
/// only. Plain values.
#pragma once

#include "opal/ft/membership/types.hpp"
#include "opal/ft/membership/view.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ft::membership {

enum class Type : std::uint8_t {
    how_are_you = 1,
    i_am_well,
    node_failure,
    root_failure,
    failure_det_ack,
    failed_node,
    root_dead,
    root_and_node_failure,
    failure_ack,
    new_node,
    node_alive,
    join_det_ack,
    new_node_join,
    alive_node_join,
    new_node_join_ack,
    alive_node_join_ack,
    working,
    refused,
    view_commit,
    commit_ack,
    fetch_view,
    view_state,
    evicted,
    evicted_ack,
    goodbye,
    minority,
    heartbeat,
};
inline constexpr unsigned type_count = static_cast<unsigned>(Type::heartbeat) + 1;

/// The paper's spelling, "HOW_ARE_YOU"; "?" for a number that is no type.
const char *name(Type type);

/// FAILED_NODE, ROOT_DEAD, ROOT_AND_NODE_FAILURE, NEW_NODE_JOIN, ALIVE_NODE_JOIN.
bool is_proposal(Type type);
/// FAILURE_ACK, NEW_NODE_JOIN_ACK, ALIVE_NODE_JOIN_ACK.
bool is_vote(Type type);
/// The vote that answers a proposal of `type`.
Type vote_for(Type type);

/// `Message::status` of FAILURE_DET_ACK, JOIN_DET_ACK and REFUSED.
enum class Status : std::uint8_t {
    none = 0,
    received,   ///< FAILURE_DET_ACK: heard, being looked into
    alive,      ///< FAILURE_DET_ACK: refuted, the accused answers me
    no_quorum,  ///< FAILURE_DET_ACK: true, but we are too few to go on
    not_root,   ///< FAILURE_DET_ACK, JOIN_DET_ACK: ask `hint`
    pending,    ///< JOIN_DET_ACK: wait for the proposal; `view` is the present view
    welcome,    ///< JOIN_DET_ACK: you are a member of epoch `number`
    denied,     ///< JOIN_DET_ACK: not with this id: a live member has it, or it is out of range
    low_number, ///< REFUSED: I have seen attempt `number`
    old_base,   ///< REFUSED: `view` is a later view than your base
    heard,      ///< REFUSED: `accused` have spoken to me since you began to doubt them
    in_doubt,   ///< HEARTBEAT: not all who are beyond me are in touch with me
};
inline constexpr unsigned status_count = static_cast<unsigned>(Status::in_doubt) + 1;

/// An attempted next view.
struct Proposal {
    Epoch number = 0;
    NodeId coordinator = no_node;
    Epoch base = 0;
    std::uint64_t base_digest = 0;
    std::uint64_t target_digest = 0;
    Change change;
};

/// An attempt that a voter voted for and that may have been committed.
struct Ambiguous {
    NodeId coordinator = no_node;
    ViewPtr target; ///< its epoch is the attempt's number
};

struct Message {
    Type type = Type::heartbeat;
    Status status = Status::none;
    NodeId from = no_node;
    NodeId to = no_node;
    std::uint32_t from_incarnation = 0;
    /// The incarnation that is meant, where the receiver's may have changed: EVICTED, join
    /// messages, probes.
    std::uint32_t to_incarnation = 0;
    std::uint64_t sequence = 0; ///< never used twice by one incarnation of `from`
    Epoch epoch = 0;            ///< of the sender's view
    Epoch number = 0;           ///< attempt or view that the message is about
    NodeId coordinator = no_node;
    NodeId hint = no_node;
    /// HEARTBEAT: its number; HOW_ARE_YOU, I_AM_WELL: the question's; NODE_FAILURE, ROOT_FAILURE:
    /// the sequence of the receiver's "alive" that the sender has had last, 0 when the last one was
    /// another's; REFUSED: the attempt's; proposals: for how many us those whom it evicts have been
    /// doubted at least, 0: nobody may object.
    std::uint64_t beat = 0;
    std::uint64_t echo = 0; ///< HEARTBEAT: the receiver's last heartbeat that the sender has

    std::shared_ptr<const Proposal> proposal;
    std::vector<Removed> accused; ///< NODE_FAILURE, ROOT_FAILURE, MINORITY, REFUSED
    std::shared_ptr<const std::vector<Ambiguous>> ambiguous; ///< votes; null when there are none
    ViewPtr view;                                            ///< VIEW_STATE, JOIN_DET_ACK, REFUSED
};

/// Same content (shared parts compared by what they hold).
bool equal(const Message &a, const Message &b);

/// The message as bytes, little endian, without a MAC (see Sealer).
std::vector<std::byte> encode(const Message &m);

/// The message in `data`, which must hold it exactly; nothing when it is malformed: short, long,
/// unknown version, type or status, lists unsorted, members from `most_ids` on, a part missing
/// that its type needs. Never crashes. Allocates in proportion to `data`; views besides, which are
/// short as runs of ids: all of one message together as much as one view with the id most_ids - 1.
std::optional<Message> decode(std::span<const std::byte> data, NodeId most_ids = max_nodes);

/// One line of prose for logs and golden scripts: "4 -> 0 NODE_FAILURE epoch 3: 7 (proven)".
std::string describe(const Message &m);

} // namespace ft::membership
