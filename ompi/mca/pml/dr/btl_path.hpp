/// \file
/// One way to a peer: a BTL module and its endpoint, and the descriptors that it holds.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <string>

#include "ompi/mca/pml/dr/copy_way.hpp"
#include "ompi/mca/pml/dr/list.hpp"
#include "ompi/mca/pml/dr/retry.hpp"
#include "ompi/mca/pml/dr/tcp_endpoint.hpp"
#include "ompi/mca/pml/dr/tx_vfrag.hpp"
#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/path_set.hpp"

namespace ft::dr {

class PeerState;
using reliability::PathId;

/// The BTL tag of every fragment of this component: within the PML's range, none of ob1's.
inline constexpr mca_btl_base_tag_t btl_tag = MCA_BTL_TAG_PML + 14;

struct DescriptorTag;
struct BtlPath;

/// A descriptor that a BTL holds for a fragment, until its callback.
struct Descriptor : Hook<DescriptorTag> {
    BtlPath *path = nullptr;
    mca_btl_base_descriptor_t *des = nullptr;
    TxVfrag *tx = nullptr; ///< nullptr once the engine was told that it is gone
    base::Time sent_at;
    base::Time retry_at; ///< while it is stuck: not before
    std::uint8_t index = 0;
    bool in_call = false;  ///< btl_send has not returned
    bool returned = false; ///< its callback came while in_call
    bool in_vain = false;  ///< and told of an error
};

/// What is known to be wrong with a path.
enum class Fault : std::uint8_t {
    none,
    not_connected, ///< btl/tcp's first attempt to connect came to nothing, and it can make another
    connection,    ///< btl/tcp lost its connection, and can be made to make a new one
    final,         ///< its BTL reported an error
};

/// What became of the control fragment that a BTL was given last.
enum class Control : std::uint8_t {
    none,
    in_call, ///< btl_send has not returned: nobody else takes one out of the BTL's lists
    done,    ///< one was called back for since, that or an earlier one
};

/// Guarded by the peer's lock; `fault`, `unsent`, `control` and `connections` are atomic,
/// `seen_socket` is the watch's.
struct BtlPath {
    PeerState *peer = nullptr;
    mca_btl_base_module_t *btl = nullptr;
    mca_btl_base_endpoint_t *endpoint = nullptr;
    PathId id = reliability::no_path;
    Control control = Control::none;
    std::uint16_t sendi_bytes = 0; ///< what btl_sendi is asked to take at most, header included
    bool in_place =
        false; ///< sent from where the bytes are: the BTL can, and no other path leads there
    bool copies = false;     ///< the short way goes by descriptors, as btl/tcp has no btl_sendi
    bool brief = false;      ///< takes short matches in the brief form
    bool compressed = false; ///< ... and in the compressed one
    bool shared = false;     ///< its fragments lie in memory that the peer's core has just used
    bool vader = false;      ///< ... and are VaderFragments
    bool gathers = false;    ///< keeps fragments back until it is told to flush
    bool unflushed = false;  ///< has been given some since
    bool removed = false;    ///< taken out of the BML for this peer
    bool checksum = true;
    Fault fault = Fault::none;    ///< noted by callbacks; handled by progress
    std::uint8_t renewals = 0;    ///< since it was connected last, saturating
    TcpEndpoint *tcp = nullptr;   ///< what `endpoint` is, if it is that
    int seen_socket = -1;         ///< of the connection at the last look, -1: there was none
    unsigned connections = 0;     ///< seen so far
    unsigned connections_met = 0; ///< of these, what renew() knows of
    CopyWay copy_way;             ///< of what is long, where it is vader
    Retry retry;                  ///< of `stuck`
    base::Time broken_since = base::Time::never(); ///< without a connection since
    /// Not before; and the latest attempt to connect began then, or up to 0.64 s before.
    base::Time renew_at;
    /// Given to btl/tcp, which will not call back for it.
    mca_btl_base_descriptor_t *unsent = nullptr;
    mca_btl_base_descriptor_t *stuck = nullptr; ///< the BTL had no room for it: try again
    Descriptor *stuck_record = nullptr;
    List<Descriptor, DescriptorTag> held;

    /// BTL and number of the module among its kind: "tcp[1]".
    std::string name() const;
    Fault known_fault() const noexcept { return __atomic_load_n(&fault, __ATOMIC_ACQUIRE); }
    /// What is final stays final.
    void note(Fault what) noexcept
    {
        Fault known = known_fault();
        while (known < what && !__atomic_compare_exchange_n(&fault, &known, what, false,
                                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        }
    }
    /// btl/tcp has no connection any more, or has got none. Which it is has to be told at once: who
    /// handles it may find that there is one meanwhile.
    void note_lost_connection() noexcept
    {
        note(__atomic_load_n(&connections, __ATOMIC_ACQUIRE) == 0 ? Fault::not_connected
                                                                  : Fault::connection);
    }
    /// A send failed.
    void note_error() noexcept
    {
        if (tcp != nullptr && !tcp->connected()) {
            note_lost_connection();
        } else {
            note(Fault::final);
        }
    }
};

/// The BTL's callback for descriptors of fragments, and the one for control fragments.
void fragment_complete(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                       mca_btl_base_descriptor_t *descriptor, int status) noexcept;
void control_complete(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                      mca_btl_base_descriptor_t *descriptor, int status) noexcept;
/// Whether a descriptor is this component's own: btl/fault sends some too.
bool is_ours(const mca_btl_base_descriptor_t &des) noexcept;
/// Whether another thread is in btl_send with it, and looks at it again when that returns. The
/// peer's lock is held.
bool in_call(const mca_btl_base_descriptor_t &des) noexcept;
/// The BTLs' error callback: notes the error for every path that is concerned.
void btl_error(mca_btl_base_module_t *btl, std::int32_t flags, opal_proc_t *process,
               char *information) noexcept;

/// Finds connections of btl/tcp that broke, and tidies up after them. Whoever makes progress calls
/// it at each pass: btl/tcp takes some turns of its event loop from a broken connection to the
/// peer's next one. So that there is a pass between any two turns, Open MPI's event loop is made to
/// come back after each.
void watch_connections() noexcept;
/// Whether there is anything for that to look at.
bool any_watched() noexcept;
/// The same for one path that has no connection: before it is given a fragment, and after it has
/// queued one, when it may have met the end of its connection.
void watch_connection(BtlPath &path) noexcept;
/// The paths of a peer that stays are looked at from now on. May throw.
void start_watching(PeerState &peer);
/// A peer that had parted, whose paths may have been put aside, is to be talked to again.
void watch_again(const PeerState &peer) noexcept;
/// The endpoint of a path goes away, or of all paths of a peer.
void stop_watching(BtlPath &path) noexcept;
void stop_watching(PeerState &peer) noexcept;
/// All endpoints have gone.
void stop_watching() noexcept;

/// Free list of Descriptors.
Descriptor *new_descriptor() noexcept;
void release(Descriptor *descriptor) noexcept;
void set_up_descriptors() noexcept;
void release_descriptors() noexcept;

/// Longest message that is sent unasked over a BTL unless the user says otherwise, payload bytes:
/// its own eager limit, and through shared memory 8 KiB at least.
std::size_t eager_limit_of(const mca_btl_base_module_t &btl) noexcept;
/// Adds every send-capable BTL that leads to the peer as a path. \return false when there is none
bool add_paths(PeerState &peer, base::Time now);

} // namespace ft::dr
