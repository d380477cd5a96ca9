// The entry points of a module, as Open MPI calls them.
#include "opal/mca/btl/ucx/ucx.hpp"

namespace ft::ucx {

namespace {

using Btl = mca_btl_base_module_t;
using Way = mca_btl_base_endpoint_t;
using Descriptor = mca_btl_base_descriptor_t;

Module &module_of(Btl *btl) noexcept
{
    return *static_cast<Module *>(btl);
}
Endpoint &endpoint_of(Way *way) noexcept
{
    return *reinterpret_cast<Endpoint *>(way);
}
Fragment *fragment_of(Descriptor *descriptor) noexcept
{
    return reinterpret_cast<Fragment *>(descriptor); // its first member
}

bool neighbours(const Module &module, const Published::Place &place) noexcept
{
    const dgram::Interface &mine = module.network();
    return mine.address != 0 && place.ipv4 != 0 && mine.same_network(place.ipv4);
}

/// The peer's place that this module leads to: for a network one on the same IP network, or, where
/// the peer has none there, the one that takes the same turn among its places.
const Published::Place *partner(const Module &module, const Published &peer, bool same_host)
{
    const Resource &mine = module.port().resource();
    std::vector<const Published::Place *> others;
    for (const Published::Place &place : peer.places) {
        if (place.transport != mine.transport || place.loopback != module.network().loopback ||
            ((place.loopback || mine.shared_memory) && !same_host) ||
            !module.port().reaches(place.device, place.interface)) {
            continue;
        }
        if (mine.shared_memory || neighbours(module, place)) {
            return &place;
        }
        // Somebody else of ours is its neighbour.
        const bool taken = std::any_of(modules().begin(), modules().end(), [&](const auto &other) {
            return other->port().resource().transport == mine.transport &&
                   neighbours(*other, place);
        });
        if (!taken) {
            others.push_back(&place);
        }
    }
    std::size_t turn = 0;
    for (const auto &other : modules()) {
        if (other.get() == &module) {
            break;
        }
        turn += other->port().resource().transport == mine.transport ? 1 : 0;
    }
    return turn < others.size() ? others[turn] : nullptr;
}

int add_procs(Btl *btl, std::size_t count, opal_proc_t **procs, Way **ways,
              opal_bitmap_t *reachable) noexcept
try {
    Module &module = module_of(btl);
    for (std::size_t i = 0; i < count; ++i) {
        ways[i] = nullptr;
        Published peer;
        if (procs[i] == opal_proc_local_get() ||
            !published_by(*btl->btl_component, procs[i], peer)) {
            continue;
        }
        const bool same_host = OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags);
        const Published::Place *place = partner(module, peer, same_host);
        if (place == nullptr) {
            continue;
        }
        ways[i] = reinterpret_cast<Way *>(
            module.add_peer(procs[i], peer.cookie, place->device, place->interface));
        if (reachable != nullptr) {
            opal_bitmap_set_bit(reachable, static_cast<int>(i));
        }
    }
    return OPAL_SUCCESS;
} catch (...) {
    return OPAL_ERR_OUT_OF_RESOURCE;
}

int del_procs(Btl *btl, std::size_t count, opal_proc_t ** /*procs*/, Way **ways) noexcept
{
    for (std::size_t i = 0; i < count; ++i) {
        if (ways[i] != nullptr) {
            module_of(btl).remove_peer(&endpoint_of(ways[i]));
            ways[i] = nullptr;
        }
    }
    return OPAL_SUCCESS;
}

int finalize(Btl *btl) noexcept
{
    module_of(btl).finish();
    std::erase_if(modules(), [&](const std::unique_ptr<Module> &m) { return m.get() == btl; });
    return OPAL_SUCCESS;
}

Descriptor *alloc(Btl *btl, Way * /*way*/, std::uint8_t /*order*/, std::size_t size,
                  std::uint32_t flags) noexcept
{
    Fragment *fragment = module_of(btl).allocate(size, flags);
    return fragment == nullptr ? nullptr : &fragment->descriptor;
}

int release(Btl *btl, Descriptor *descriptor) noexcept
{
    module_of(btl).give_back(fragment_of(descriptor));
    return OPAL_SUCCESS;
}

Descriptor *prepare_src(Btl *btl, Way * /*way*/, opal_convertor_t *convertor,
                        std::uint8_t /*order*/, std::size_t reserve, std::size_t *size,
                        std::uint32_t flags) noexcept
{
    const std::size_t most = btl->btl_max_send_size - std::min(btl->btl_max_send_size, reserve);
    std::size_t packed = std::min(*size, most);
    Fragment *fragment = module_of(btl).allocate(reserve + packed, flags);
    if (fragment == nullptr) {
        return nullptr;
    }
    iovec piece{fragment->data() + reserve, packed};
    std::uint32_t pieces = 1;
    if (opal_convertor_pack(convertor, &piece, &pieces, &packed) < 0) {
        module_of(btl).give_back(fragment);
        return nullptr;
    }
    fragment->segments[0].seg_len = reserve + packed;
    *size = packed;
    return &fragment->descriptor;
}

int send(Btl *btl, Way *way, Descriptor *descriptor, mca_btl_base_tag_t tag) noexcept
{
    return module_of(btl).send(endpoint_of(way), fragment_of(descriptor), tag);
}

int sendi(Btl *btl, Way *way, opal_convertor_t *convertor, void *header, std::size_t header_size,
          std::size_t payload_size, std::uint8_t order, std::uint32_t flags, mca_btl_base_tag_t tag,
          Descriptor **descriptor) noexcept
{
    const int rc = module_of(btl).send_now(endpoint_of(way), convertor, header, header_size,
                                           payload_size, tag);
    if (descriptor != nullptr) {
        // ob1 goes on with this one, and only then takes it that its bytes were packed already.
        *descriptor = rc == OPAL_SUCCESS
                          ? nullptr
                          : alloc(btl, way, order, header_size + payload_size, flags);
    }
    return rc;
}

int register_error(Btl *btl, mca_btl_base_module_error_cb_fn_t callback) noexcept
{
    module_of(btl).on_error = callback;
    return OPAL_SUCCESS;
}

} // namespace

void set_entry_points(mca_btl_base_module_t &module) noexcept
{
    module.btl_add_procs = add_procs;
    module.btl_del_procs = del_procs;
    module.btl_finalize = finalize;
    module.btl_alloc = alloc;
    module.btl_free = release;
    module.btl_prepare_src = prepare_src;
    module.btl_send = send;
    module.btl_sendi = sendi;
    module.btl_register_error = register_error;
}

} // namespace ft::ucx
