/// \file
/// One way to a peer: a BTL module and its endpoint, and the descriptors that it holds.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <string>

#include "ompi/mca/pml/dr/list.hpp"
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
    TxVfrag *tx = nullptr; ///< nullptr once the engine was told that it is gone
    base::Time sent_at;
    std::uint8_t index = 0;
    bool in_call = false;  ///< btl_send has not returned
    bool returned = false; ///< its callback came while in_call
};

/// Guarded by the peer's lock, `broken` excepted.
struct BtlPath {
    PeerState *peer = nullptr;
    mca_btl_base_module_t *btl = nullptr;
    mca_btl_base_endpoint_t *endpoint = nullptr;
    PathId id = reliability::no_path;
    bool has_sendi = false;
    bool in_place =
        false; ///< sent from where the bytes are: the BTL can, and no other path leads there
    bool queues = false;    ///< never asked to send at once
    bool gathers = false;   ///< keeps fragments back until it is told to flush
    bool unflushed = false; ///< has been given some since
    bool removed = false;   ///< taken out of the BML for this peer
    bool stale = false;     ///< a failed send may still be in the BTL's lists: never free it
    bool broken = false;    ///< noted by callbacks, atomically; handled by progress
    bool checksum = true;
    TcpEndpoint *tcp = nullptr;                 ///< what `endpoint` is, if it is that
    mca_btl_base_descriptor_t *stuck = nullptr; ///< the BTL had no room for it: try again
    Descriptor *stuck_record = nullptr;
    std::string name; ///< BTL and number of the module among its kind: "tcp[1]"
    List<Descriptor, DescriptorTag> held;

    void note_error() noexcept { __atomic_store_n(&broken, true, __ATOMIC_RELEASE); }
};

/// The BTL's callback for descriptors of fragments, and the one for control fragments.
void fragment_complete(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                       mca_btl_base_descriptor_t *descriptor, int status) noexcept;
void control_complete(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                      mca_btl_base_descriptor_t *descriptor, int status) noexcept;
/// The BTLs' error callback: notes the error for every path that is concerned.
void btl_error(mca_btl_base_module_t *btl, std::int32_t flags, opal_proc_t *process,
               char *information) noexcept;

/// Tidies up after connections of btl/tcp that broke. Whoever makes progress calls it at each pass.
void watch_connections() noexcept;
/// The peer's endpoints go away.
void stop_watching(const PeerState &peer) noexcept;

/// Free list of Descriptors.
Descriptor *new_descriptor() noexcept;
void release(Descriptor *descriptor) noexcept;
void set_up_descriptors() noexcept;
void release_descriptors() noexcept;

/// Adds every send-capable BTL that leads to the peer as a path. \return false when there is none
bool add_paths(PeerState &peer, base::Time now);

} // namespace ft::dr
