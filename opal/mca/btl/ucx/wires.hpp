/// \file
/// Endpoints that are connected one to one: each end has to learn the other's address first. The
/// messages for that go over the port's line. PROTOCOL.md has the rules. No Open MPI here.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "opal/ft/base/time.hpp"
#include "opal/mca/btl/ucx/port.hpp"
#include "opal/mca/btl/ucx/wire_message.hpp"

namespace ft::ucx {

/// The way from a module to one of a peer's.
struct Wire {
    std::uint64_t cookie = 0; ///< the peer's
    Address line_address;     ///< the peer's
    uct_ep_h way = nullptr;   ///< my endpoint
    bool taken = false;       ///< my user sends by it, and destroys it
    bool open = false;        ///< the peer is known to be connected to my endpoint
    bool used = false;        ///< UCX has taken something for it
    bool owes = false;        ///< an answer
    bool failed = false;      ///< which my user was told
    bool listed = false;      ///< among those to be looked at
    std::uint32_t mine = 0;   ///< number of my endpoint
    std::uint32_t theirs = 0; ///< number of the one that mine is connected to; 0 none
    std::uint32_t least = 0;  ///< lower numbers of the peer's are endpoints that are gone
    uct_ep_h line = nullptr;
    std::uint8_t lines_lost = 0; ///< since the endpoint was made
    ucs_status_t cut = UCS_OK;   ///< what became of the last one, if that is to be judged
    base::Duration pause;
    base::Time next;
    base::Time deadline = base::Time::never();
};

/// Who is told what happens. Called from Wires::work() and from within UCX.
class WireEvents {
  public:
    WireEvents() = default;
    WireEvents(const WireEvents &) = delete;
    WireEvents &operator=(const WireEvents &) = delete;
    virtual ~WireEvents() = default;
    /// Nothing goes through that way any more, which was taken. It is to be let go.
    virtual void wire_broken(uct_ep_h way, ucs_status_t status) noexcept = 0;
    /// The peer ends in good order.
    virtual void wire_leaves(std::uint64_t cookie) noexcept = 0;
};

/// All wires of a port. The caller holds the port's lock.
class Wires final : public LineEvents {
  public:
    /// \param cookie mine, as peers have it; \param events for the time of its life
    Wires(Port &port, std::uint64_t cookie, WireEvents &events);
    /// Ways that were taken must have been let go.
    ~Wires() override;

    /// Begins to connect, or takes what the peer began. \param limit how long it may take
    /// \return nullptr, and the status
    Wire *take_way(std::uint64_t cookie, const Address &line, base::Time now, base::Duration limit,
                   ucs_status_t &status);
    /// UCX has taken something for it: from now on it is UCX that knows when it breaks.
    static void note_used(Wire &wire) noexcept { wire.used = true; }
    /// Who took the way destroys it. \param leaving for good: the peer is told if it needs to be
    void let_go(Wire &wire, uct_ep_h way, bool leaving) noexcept;
    /// UCX says that an endpoint broke which nobody took.
    void broken(uct_ep_h way) noexcept;

    /// Whether work() would do anything, now or later.
    [[nodiscard]] bool busy() const noexcept { return !inbox_.empty() || !listed_.empty(); }
    /// Reads what came and sends what is due. Not from within UCX.
    void work(base::Time now) noexcept;
    /// Destroys endpoints that are no longer needed. Not from within UCX.
    void bury() noexcept;

    void line_take(std::span<const std::byte> message) noexcept override;
    void line_broken(uct_ep_h endpoint, ucs_status_t status) noexcept override;

    struct Counters {
        std::uint64_t opened = 0;
        std::uint64_t malformed = 0;
        std::uint64_t strangers = 0;
    };
    [[nodiscard]] const Counters &counters() const noexcept { return counters_; }

  private:
    using Key = std::pair<std::uint64_t, Address>;
    Wire &find_or_make(std::uint64_t cookie, const Address &line);
    bool make_way(Wire &wire, ucs_status_t &status);
    void hear(const WireMessage &message, base::Time now);
    bool join(Wire &wire, const WireMessage &message);
    void say(Wire &wire, base::Time now);
    ssize_t post(Wire &wire, WireMessage::Kind kind);
    void lose_line(Wire &wire, ucs_status_t status) noexcept;
    void judge_cut(Wire &wire) noexcept;
    void fail(Wire &wire, ucs_status_t status) noexcept;
    void forget(Wire &wire) noexcept;
    void list(Wire &wire) noexcept;

    Port &port_;
    const std::uint64_t cookie_;
    WireEvents &events_;
    std::map<Key, std::unique_ptr<Wire>> all_; ///< never shrinks: `least` is to be remembered
    std::vector<Bytes> inbox_;
    std::vector<Wire *> listed_;
    std::vector<Wire *> turn_; ///< those of the pass under way
    std::vector<uct_ep_h> dead_;
    std::uint32_t last_number_ = 0;
    Counters counters_;
};

} // namespace ft::ucx
