/// \file
/// What this process keeps about one peer: the engine, the paths, what waits. Made at first
/// contact.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "ompi/mca/pml/dr/btl_path.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/request.hpp"
#include "ompi/mca/pml/dr/slot_table.hpp"
#include "ompi/mca/pml/dr/tx_vfrag.hpp"
#include "opal/ft/reliability/peer.hpp"

namespace ft::dr {

/// Members are guarded by `lock` unless said otherwise.
class PeerState {
  public:
    PeerState(ompi_proc_t *process, reliability::Name own_name);
    PeerState(const PeerState &) = delete;
    PeerState &operator=(const PeerState &) = delete;

    mutable Mutex lock;
    reliability::Peer engine;
    ompi_proc_t *const proc; ///< constant; until Peers::forget, then it may be gone
    std::vector<std::unique_ptr<BtlPath>> paths; ///< by PathId; constant after set-up
    SlotTable<SendRequest> sends;                ///< await a cts
    SlotTable<RecvRequest> receives;             ///< await data
    List<SendRequest, PendingTag> pending;       ///< not started: the window is full; in order
    List<SendRequest, PendingTag> leaving;       ///< all theirs is in the engine; in order
    List<SendRequest, DataTag> data;             ///< with bytes that are in no VFRAG yet
    std::uint32_t eager_limit = 0;               ///< payload bytes; constant after set-up
    int error = MPI_SUCCESS;          ///< error class of everything to and from it, once it failed
    std::uint64_t eager_sent = 0;     ///< cost of all messages that went without being asked for
    std::uint64_t eager_credited = 0; ///< of those, what the peer says its receives have taken
    std::uint64_t eager_taken = 0;    ///< the same the other way: cost of what was taken here
    std::uint64_t eager_told = 0;     ///< ... and was told to the peer
    std::uint32_t moved = 0;          ///< fragments to and fro, at the last pass of progress; wraps
    base::Time last_heard;            ///< when a fragment of it came

    TxPools &pools() const noexcept { return tx_pools(share); }
    /// Queues an ordered VFRAG (a cts) that is sent as soon as the window has room.
    void submit(TxOrdered *tx, base::Time now) noexcept;
    /// The shortest way of a short message, of at most most_compressed_payload: right behind others
    /// like it (Peer::lane_takes). `lock` is held. \return false when nothing was sent, and it is
    /// to be looked at closer
    bool send_on_lane(std::span<const std::byte> bytes, std::uint64_t match,
                      base::Time now) noexcept;
    /// The short way of a short message: to the BTL at once, when nothing is before it. `lock` is
    /// held. \return false when it has to go the long way, by way of engine.submit and transmit
    bool send_at_once(TxOrdered &tx, base::Time now) noexcept;
    /// All that there is to do for a short message in the full form, as it goes over a network:
    /// checks, copy, and send_at_once. Takes `lock`. \param alone no BTL holds anything for the
    /// peer \return false when nothing was sent, and it is to be looked at closer
    bool send_plain(std::span<const std::byte> bytes, int tag, const ompi_communicator_t *comm,
                    bool &alone) noexcept;
    /// The same for a match that fits the brief form, where its path takes that: these bytes are
    /// copied. \return false when nothing was sent
    bool send_brief(std::span<const std::byte> bytes, std::uint64_t match, base::Time now) noexcept;
    /// Whether the short message that was sent last is still with its BTL, which queued it. True
    /// once. \param order of its match
    bool take_kept(std::uint32_t &order) noexcept
    {
        order = engine.sender().next_order() - 1;
        return std::exchange(kept_, false);
    }
    /// No BTL has a descriptor for the peer.
    bool nothing_held() const noexcept
    {
        for (PathId id = 0; id < paths.size(); ++id) {
            if (engine.paths()[id].held != 0) {
                return false;
            }
        }
        return true;
    }
    /// Gives to the engine what has been waiting for room.
    void fill_window(base::Time now, Completions &done) noexcept;
    /// Hands to the BTLs what the engine wants sent. Takes and leaves `lock`, which must not be
    /// held.
    void transmit(base::Time now) noexcept;
    /// Takes back what the engine is done with.
    void collect_finished(Completions &done) noexcept;
    /// Every send to it ends with this error class. The engine must know already that it is lost.
    void fail_sends(int error, Completions &done) noexcept;
    /// Everything that time brings about. Takes `lock`. \return false when nothing is left to do
    /// for it
    bool progress(base::Time now, Completions &done) noexcept;
    /// The paths' errors that callbacks noted.
    void take_path_errors(base::Time now) noexcept;
    /// Says when `progress` is to be called next. After whatever changed the engine's state.
    void call_again() const noexcept;
    /// The same, when nothing has happened but that a fragment was accepted and acknowledgements
    /// came with it. \return whether something waits to be sent
    bool call_again_after_arrival() const noexcept;

    /// Takes back the buffers of btl/vader that the process, which is dead, will not return and
    /// nobody else touches. Takes `lock`.
    void take_back_abandoned(base::Time now) noexcept;
    /// A descriptor came back from its BTL. \param carried false when it was not sent
    void descriptor_done(Descriptor *descriptor, base::Time now, bool carried = true) noexcept;
    PathId arrival_path(const mca_btl_base_module_t *btl) const noexcept;
    /// Nothing waits and nothing is unacknowledged.
    bool idle() const noexcept;
    /// Something that was sent, or is to be sent as an answer, is not acknowledged.
    bool unacknowledged() const noexcept { return !engine.drained() || waiting_ != nullptr; }
    /// A send that its user has freed, over a communicator of so many processes, has not begun, or
    /// waits for its receiver, or is in the engine in part only. Nobody waits for it.
    bool owes_freed_send(int processes) noexcept;
    /// A message without an acknowledgement has not left this process yet: a BTL has it still (its
    /// connection is not up, or is full), or does not have it at all. What left once and was sent
    /// again since nobody answered, as who computes, has left.
    bool behind() const noexcept;
    /// The same of the match with this `order` and of those before it. `lock` is held.
    bool behind(std::uint32_t order) const noexcept;
    /// Ends sends whose match has left this process. Who has waited for one may compute for long,
    /// and nobody else would hand on what is still here. `lock` is held.
    void let_go(Completions &done) noexcept;
    /// A send was given to the engine: ends it, or when its match has left. `lock` is held.
    void started(SendRequest &request, Completions &done) noexcept;
    /// What a message costs a receiver that has not asked for it yet.
    static constexpr std::uint64_t eager_cost(std::uint64_t payload) noexcept
    {
        constexpr std::uint64_t envelope = 256;
        return payload + envelope;
    }
    /// Whether a message of this payload may go without being asked for.
    bool has_credit(std::uint64_t payload) const noexcept
    {
        return eager_sent - eager_credited + eager_cost(payload) <= parameters().eager_window;
    }
    /// A message that came unasked, of this payload, has met its receive or is forgotten.
    /// \return true when there is something to send now
    bool take_eager(std::uint64_t payload, base::Time now) noexcept
    {
        eager_taken += eager_cost(payload);
        // In halves of the window: seldom, and the sender never runs dry by what it is not told.
        return OPAL_UNLIKELY(eager_taken - eager_told >= parameters().eager_window / 2) &&
               tell_taken(now);
    }
    /// Tells the peer what has been taken. \return the same
    bool tell_taken(base::Time now) noexcept;
    /// Sends a ping when the peer was silent for `interval` and nothing of ours is outstanding that
    /// would be acknowledged: only then is a lost peer noticed by one who waits for it.
    void ping_if_silent(base::Duration interval, base::Time now) noexcept;
    /// A process of another job with which no communicator is left gets no pings: it may have ended
    /// as it should. `lock` is held.
    void set_parted(bool parted) noexcept { __atomic_store_n(&parted_, parted, __ATOMIC_RELAXED); }
    /// Also without `lock`.
    bool parted() const noexcept { return __atomic_load_n(&parted_, __ATOMIC_RELAXED); }
    const char *printed_name() const noexcept;
    /// Memory that the peer costs now, without what the system adds to each allocation.
    std::size_t bytes() const noexcept;

    bool sends_at_once = false; ///< a path knows the short way; constant after set-up
    bool sends_brief = false;   ///< ... and one that takes the short forms; constant, too
    bool busy = false;          ///< in the list that progress walks; atomic, changes under its lock
    const std::uint8_t share = next_pool_share(); ///< which free lists it takes from

    /// The process, also when `proc` is gone.
    opal_process_name_t name() const noexcept { return name_; }

  private:
    /// \return how many went, 0 when the BTL has no room
    unsigned transmit_some(reliability::Transmit &what, base::Time now) noexcept;
    bool transmit_one(reliability::Transmit &what, base::Time now) noexcept;
    bool may_connect(BtlPath &path, base::Time now) noexcept;
    bool transmit_control(BtlPath &path, const reliability::Transmit &what,
                          base::Time now) noexcept;
    bool transmit_fragment(BtlPath &path, reliability::Transmit &what, base::Time now) noexcept;
    /// Fragments of data that follow each other, by a BTL that gathers them. \return how many went
    unsigned transmit_run(BtlPath &path, reliability::Transmit &first, unsigned count,
                          base::Time now) noexcept;
    bool give_gathered(BtlPath &path, mca_btl_base_descriptor_t *des) noexcept;
    void hand_over(BtlPath &path, mca_btl_base_descriptor_t *des, Descriptor *held,
                   base::Time now) noexcept;
    void retry_stuck(base::Time now) noexcept;
    /// What BTLs keep back goes to the network.
    void flush_paths() noexcept;
    /// send_at_once, where it has to be quick.
    [[gnu::always_inline]] bool send_whole(TxOrdered &tx, base::Time now) noexcept;
    /// A whole fragment by btl_sendi. \return false when the BTL did not take it
    [[gnu::always_inline]] bool hand_to(const BtlPath &path, std::span<std::byte> whole) noexcept;
    /// A whole fragment by a descriptor of btl/tcp. \return false when nothing was sent
    bool send_copy(BtlPath &path, TxOrdered &tx, std::span<const std::byte> whole,
                   const reliability::FragHeader &header, base::Time now) noexcept;
    /// After the short way: who keeps the VFRAG, and when to look again.
    [[gnu::always_inline]] void sent_short(const BtlPath &path, TxOrdered *tx,
                                           base::Time when) noexcept;
    bool open_data(SendRequest &request, base::Time now) noexcept;
    void orphan_descriptors(const TxVfrag *tx, bool whole) noexcept;
    /// A BTL has an ordered VFRAG for which `which` is true.
    template <class Which>
    bool holds_ordered(Which which) const noexcept;
    /// A transmission of it is out of this process's hands. `lock` is held.
    bool has_left(const TxVfrag &tx) const noexcept;
    void report_events() noexcept;
    bool renew(BtlPath &path, base::Time now) noexcept;
    bool take_unsent(BtlPath &path, base::Time now) noexcept;

    bool transmitting_ = false; ///< somebody is in transmit; here, where it takes no room
    bool kept_ = false;         ///< see take_kept
    bool parted_ = false;       ///< see set_parted
    const opal_process_name_t name_;
    TxVfrag *waiting_ = nullptr; ///< replies that wait for the window
    TxVfrag *waiting_tail_ = nullptr;
    base::Time last_ping_;
};

} // namespace ft::dr
