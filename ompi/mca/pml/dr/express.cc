/// \file
/// The short way of a short message: when nothing is before it, to the BTL at once, by btl_sendi,
/// which is done with the bytes when it returns; or, as btl/tcp has none, by a descriptor, which is
/// nearly always on the wire when btl_send returns. On the lane, one behind the other, the least is
/// looked at; what is not as usual goes the next longer way (opal/ft/reliability/PROTOCOL.md, "The
/// short way").
#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/front.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "opal/ft/base/copy.hpp"
#include "opal/ft/base/crc32c.hpp"

namespace ft::dr {

using reliability::header_bytes;

/// By a descriptor; what is longer is better sent from where it is.
constexpr std::size_t copied_at_most = 2048;

inline bool PeerState::hand_to(const BtlPath &path, std::span<std::byte> whole) noexcept
{
    mca_btl_base_module_t *btl = path.btl;
    // What a BTL calls back from in there must not send before this one.
    transmitting_ = true;
    const int rc = btl->btl_sendi(btl, path.endpoint, nullptr, whole.data(), whole.size(), 0,
                                  MCA_BTL_NO_ORDER, prompt_flags, btl_tag, nullptr);
    transmitting_ = false;
    return OPAL_LIKELY(rc == OPAL_SUCCESS);
}

inline void PeerState::sent_short(const BtlPath &path, TxOrdered *tx, base::Time when) noexcept
{
    if (OPAL_LIKELY(engine.paths()[path.id].info.acknowledged)) {
        peers().call_for_pass_at(when);
    } else {
        pools().put(tx); // the engine does not keep it, and no timer runs for it
    }
}

bool PeerState::send_on_lane(std::span<const std::byte> bytes, std::uint64_t match,
                             base::Time present) noexcept
{
    if (OPAL_UNLIKELY(!engine.lane_takes(bytes.size(), present) || transmitting_)) {
        return false;
    }
    const BtlPath &path = *paths[engine.lane_path()];
    if (OPAL_UNLIKELY(!path.compressed || path.stuck != nullptr ||
                      reliability::compressed_bytes + bytes.size() > path.sendi_bytes ||
                      path.known_fault() != Fault::none)) {
        return false;
    }
    TxOrdered *tx = pools().get_brief(bytes.size());
    if (OPAL_UNLIKELY(tx == nullptr)) {
        return false;
    }
    tx->form = reliability::Form::compressed;
    base::copy_short(const_cast<std::byte *>(tx->bytes), bytes);
    const std::span<std::byte> whole = TxPools::compressed_of(*tx);
    const bool summed = path.checksum && !bytes.empty();
    reliability::write_compressed(engine.lane_numbers(), peers().self().rank, summed, match, whole);
    if (!hand_to(path, whole)) {
        pools().put(tx);
        return false;
    }
    const base::Time when = engine.sent_on_lane(tx->vfrag, summed, present);
    sent_short(path, tx, when);
    return true;
}

bool PeerState::send_copy(BtlPath &path, TxOrdered &tx, std::span<const std::byte> whole,
                          const reliability::FragHeader &header, base::Time present) noexcept
{
    Descriptor *const held = new_descriptor();
    if (OPAL_UNLIKELY(held == nullptr)) {
        return false;
    }
    mca_btl_base_module_t *btl = path.btl;
    mca_btl_base_descriptor_t *const des =
        btl->btl_alloc(btl, path.endpoint, MCA_BTL_NO_ORDER, whole.size(), prompt_flags);
    if (OPAL_UNLIKELY(des == nullptr)) {
        release(held);
        return false;
    }
    std::memcpy(front(des), whole.data(), whole.size());
    des->des_cbfunc = fragment_complete;
    des->des_cbdata = held;
    held->path = &path;
    held->des = des;
    held->tx = &tx;
    held->index = 0;
    held->sent_at = present;
    held->in_call = true;
    held->returned = false;
    transmitting_ = true;
    const int rc = give(path, des);
    transmitting_ = false;
    held->in_call = false;
    if (OPAL_UNLIKELY(rc < 0 && rc != OPAL_ERR_RESOURCE_BUSY && !held->returned)) {
        // Not btl/tcp, which keeps all that it is given while it is connected: btl/fault.
        btl->btl_free(btl, des);
        release(held);
        if (rc != OPAL_ERR_OUT_OF_RESOURCE) {
            path.note_error();
            peers().call_for_pass();
        }
        return false;
    }
    base::Time when = engine.sent_express(tx.vfrag, path.id, header, present);
    if (OPAL_LIKELY(rc == 1 || held->returned)) {
        release(held);
    } else {
        path.held.push_back(held);
        when = std::min(when, engine.kept(tx.vfrag, path.id, present));
        kept_ = true;
    }
    sent_short(path, &tx, when);
    return true;
}

inline bool PeerState::send_whole(TxOrdered &tx, base::Time present) noexcept
{
    const std::size_t front_bytes = header_bytes + tx.upper_bytes;
    const std::size_t payload = tx.vfrag.length;
    const std::size_t total = front_bytes + payload;
    const PathId id = transmitting_ || !sends_at_once ? reliability::no_path
                                                      : engine.express_path(payload, present);
    if (OPAL_UNLIKELY(id == reliability::no_path)) {
        return false;
    }
    BtlPath &path = *paths[id];
    if (total > (path.copies ? copied_at_most : path.sendi_bytes) ||
        (path.tcp != nullptr && !(path.copies && path.tcp->connected())) || path.stuck != nullptr ||
        path.known_fault() != Fault::none) {
        return false;
    }
    reliability::FragHeader header = engine.express_header(tx.vfrag, id, present);
    header.upper_bytes = tx.upper_bytes;
    if (path.checksum && payload != 0) {
        tx.payload_crc = base::crc32c({tx.bytes, payload});
        tx.crc_known = true;
        header.flags |= reliability::flag_payload_checksummed;
        header.payload_crc = tx.payload_crc;
    }
    write_front(header, {tx.room, front_bytes});
    if (path.copies) {
        return send_copy(path, tx, {tx.room, total}, header, present);
    }
    if (!hand_to(path, {tx.room, total})) {
        return false;
    }
    sent_short(path, &tx, engine.sent_express(tx.vfrag, id, header, present));
    return true;
}

bool PeerState::send_at_once(TxOrdered &tx, base::Time present) noexcept
{
    return send_whole(tx, present);
}

bool PeerState::send_plain(std::span<const std::byte> bytes, int tag,
                           const ompi_communicator_t *comm, bool &alone) noexcept
{
    const base::Time present = now();
    Guard guard(lock);
    if (OPAL_UNLIKELY(bytes.size() > eager_limit || error != MPI_SUCCESS || !pending.empty() ||
                      !has_credit(bytes.size()) || !engine.has_room(bytes.size(), true))) {
        return false;
    }
    TxOrdered *tx = pools().get_match(comm->c_contextid, comm->c_my_rank, tag, bytes.size());
    if (OPAL_UNLIKELY(tx == nullptr)) {
        return false;
    }
    base::copy_short(const_cast<std::byte *>(tx->bytes), bytes);
    if (OPAL_UNLIKELY(!send_whole(*tx, present))) {
        pools().put(tx);
        return false;
    }
    eager_sent += eager_cost(bytes.size());
    peers().keep_busy(*this);
    alone = nothing_held();
    return true;
}

bool PeerState::send_brief(std::span<const std::byte> bytes, std::uint64_t match,
                           base::Time present) noexcept
{
    const PathId id =
        transmitting_ ? reliability::no_path : engine.express_path(bytes.size(), present);
    if (OPAL_UNLIKELY(id == reliability::no_path)) {
        return false;
    }
    const BtlPath &path = *paths[id];
    if (OPAL_UNLIKELY(!path.brief || reliability::brief_bytes + bytes.size() > path.sendi_bytes ||
                      path.stuck != nullptr || path.known_fault() != Fault::none)) {
        return false;
    }
    TxOrdered *tx = pools().get_brief(bytes.size());
    if (OPAL_UNLIKELY(tx == nullptr)) {
        return false;
    }
    using reliability::Form;
    reliability::FragHeader header = engine.express_header(
        tx->vfrag, id, present,
        path.compressed && bytes.size() <= reliability::most_compressed_payload ? Form::compressed
                                                                                : Form::brief);
    if (path.checksum && !bytes.empty()) {
        header.flags |= reliability::flag_payload_checksummed;
    }
    tx->form = header.form;
    std::span<std::byte> whole;
    if (OPAL_LIKELY(header.form == Form::compressed)) {
        base::copy_short(const_cast<std::byte *>(tx->bytes), bytes);
        whole = TxPools::compressed_of(*tx);
        reliability::write_compressed(header, match, whole);
    } else {
        if (OPAL_UNLIKELY(header.form == Form::full)) {
            pools().put(tx); // it is another path that has the short forms
            return false;
        }
        if (parameters().engine.seals_headers()) {
            header.flags |= reliability::flag_header_checksummed;
        }
        whole = TxPools::brief_of(*tx);
        reliability::write_brief(header, match, bytes, whole);
    }
    if (!hand_to(path, whole)) {
        pools().put(tx);
        return false;
    }
    sent_short(path, tx, engine.sent_express(tx->vfrag, id, header, present));
    return true;
}

} // namespace ft::dr
