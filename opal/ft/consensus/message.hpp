/// What processes tell each other while they agree, and how it looks on the wire.
///
/// Every message belongs to an instance (one call of one agreement on one group). Most belong to a
/// numbered tree. Failure sets take no room when empty, else the smaller of runs and bitmap.
#pragma once

#include "opal/ft/consensus/rank_set.hpp"
#include "opal/ft/consensus/tree_shape.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ft::consensus {

/// Names one agreement. Instances with the same context come one after another in `sequence`;
/// those with different contexts know nothing of each other and may run at once.
struct InstanceId {
    std::uint64_t context = 0;
    std::uint32_t sequence = 0;
    auto operator<=>(const InstanceId &) const = default;
};

/// Number of a broadcast tree. Whoever has seen one takes no part in a lower one any more.
///
/// (round, root) is what is promised to: within it only one value is ever put to COMMIT. `attempt`
/// tells the trees apart that one root grows for the same purpose. All zero: no tree.
struct Number {
    std::uint32_t round = 0;
    Rank root = 0;
    std::uint32_t attempt = 0;
    auto operator<=>(const Number &) const = default;
    bool same_round(const Number &o) const { return round == o.round && root == o.root; }
    explicit operator bool() const { return round != 0; }
};

/// What is agreed upon: the failed set, the AND of everybody's flags, and the failures that
/// everybody had acknowledged before the call.
struct Value {
    RankSet failed;
    std::uint64_t flags = ~std::uint64_t{0};
    RankSet acknowledged;
    bool operator==(const Value &) const = default;
};

/// A value that was accepted in COMMIT, and in which tree.
struct Accepted {
    Number number;
    Value value;
    bool operator==(const Accepted &) const = default;
};

enum class Kind : std::uint8_t {
    exchange = 1, ///< fast path: everybody to everybody in log2(n) steps
    ballot = 2,   ///< down a new tree: phase BALLOTING
    commit = 3,   ///< down a tree: phase COMMIT
    decide = 4,   ///< ALL_COMMIT: down the tree's edges, or as the answer to any question
    answer = 5,   ///< up the tree, the whole subtree's (ACK, or rejection with what was missing)
    refuse = 6,   ///< up the tree at once (NAK): a child was lost, or a higher number is known
    report = 7,   ///< towards the root: suspicions, or a parent was lost
    stop = 8,     ///< you are held for failed: stop
    stopped = 9,  ///< I have stopped: hold me for failed
};

/// Steps of an exchange that are not numbers: along a tree, to the process above, with what all
/// below have brought, and to those below, with what all have; and no step, but a question to who
/// has returned.
inline constexpr std::uint8_t step_up = 29;
inline constexpr std::uint8_t step_down = 30;
inline constexpr std::uint8_t no_step = 31;

/// Which sweep of a tree a message belongs to.
enum class Stage : std::uint8_t { ballot = 0, commit = 1 };

struct Message {
    Kind kind = Kind::stop;
    InstanceId instance;
    /// The tree: ballot, commit, decide, answer, refuse. In report: the tree whose parent is lost.
    Number number;
    /// refuse: the highest number the refusing process knows.
    Number seen;
    /// ballot, commit on a new tree, decide in place of either, a report that a root spreads: the
    /// ranks below the receiver.
    std::optional<Range> below;
    /// answer: the sweep answered. exchange: ballot is the first, commit the second sweep.
    Stage stage = Stage::ballot;
    /// exchange: which step of the sweep, 0 .. 28, or one of those below.
    std::uint8_t step = 0;
    /// answer: accepted by the whole subtree.
    bool ok = false;
    /// Whom the sender holds for failed (ballot and commit: whom the tree leaves out).
    RankSet suspects;
    /// Those of `suspects` that only silence or a broken connection speaks against.
    RankSet unconfirmed;
    /// exchange, answer: what the sender and those it speaks for bring to the value.
    std::uint64_t flags = ~std::uint64_t{0};
    RankSet acknowledged;
    /// commit, decide: the value. answer: the highest accepted one below.
    std::optional<Accepted> accepted;

    Message() = default;
    explicit Message(Kind what, const Number &tree = {}) : kind(what), number(tree) {}
    bool operator==(const Message &) const = default;
};

/// The message as bytes.
std::vector<std::byte> encode(const Message &message);
/// The same behind what is in `bytes` already.
void encode(const Message &message, std::vector<std::byte> &bytes);

/// The message in `bytes`, for a group of `size` processes. Nothing if the bytes are no message:
/// too short or too long, an unknown kind or version, a rank outside the group, a set
/// that is not in order, a field that its kind must have and has not.
std::optional<Message> decode(std::span<const std::byte> bytes, Rank size);

/// To which agreement a message belongs, whatever the size of its group. Nothing if it is too
/// short.
std::optional<InstanceId> instance_of(std::span<const std::byte> bytes);

/// A step of an exchange in which nobody has acknowledged anything, and all that have failed are
/// known to both sides beforehand and confirmed (the *tag*): nearly every message.
struct PlainStep {
    Stage stage = Stage::ballot;
    std::uint8_t step = 0;
    std::uint64_t flags = ~std::uint64_t{0};
};
/// A tag with its bytes on the wire, which need not be made for each message. Behaves as a value.
class Tag {
  public:
    Tag() = default;
    explicit Tag(RankSet set);
    const RankSet &set() const { return set_; }
    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    RankSet set_;
    std::vector<std::byte> bytes_; ///< none when it is empty
};
/// The longest that encode_plain() writes beside the tag.
inline constexpr std::size_t longest_plain = 26;

/// Writes the bytes of encode() for such a step to the front of `out`, where there is room for
/// longest_plain and the tag. \return how many
std::size_t encode_plain(const InstanceId &instance, const Tag &tag, const PlainStep &step,
                         std::span<std::byte> out);
/// What decode() would make of `bytes`, if it is such a step with this tag; false if it is anything
/// else.
bool decode_plain(std::span<const std::byte> bytes, const Tag &tag, InstanceId &instance,
                  PlainStep &step);
/// The same as any message. \param tag its set
Message message_of(const InstanceId &instance, const RankSet &tag, const PlainStep &step);

/// A word for the kind, as golden scripts and traces write it.
const char *name(Kind kind);

} // namespace ft::consensus
