// The entry points of a module, as Open MPI calls them.
#include "opal/mca/btl/dgram/dgram.hpp"

#include "opal/mca/show_help.hpp"

namespace ft::dgram {

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

bool neighbours(const Interface &mine, const Published::Place &place) noexcept
{
    return mine.address != 0 && place.ipv4 != 0 && mine.same_network(place.ipv4);
}

/// Says once that a peer's datagrams are of another kind than all of ours. The lower rank speaks.
void tell_other_provider(const opal_proc_t *process, const Published &peer) noexcept
{
    static bool told = false;
    const std::string &mine = modules().front()->transport().provider();
    const bool alike =
        std::any_of(peer.places.begin(), peer.places.end(),
                    [&](const Published::Place &place) { return place.provider == mine; });
    if (told || alike || peer.places.empty() || OPAL_PROC_MY_NAME.vpid > process->proc_name.vpid) {
        return;
    }
    told = true;
    const char *host = process->proc_hostname;
    mca::show_help("help-btl-dgram.txt", "other-provider", opal_process_info.nodename, mine.c_str(),
                   OPAL_NAME_PRINT(process->proc_name), host == nullptr ? "another host" : host,
                   peer.places.front().provider.c_str());
}

/// The peer's place that this module leads to: one on the same network, or, where the peer has none
/// there, the one that takes the same turn among its places.
const Published::Place *partner(Module &module, const Published &peer, bool same_host)
{
    const Interface &mine = module.interface();
    std::vector<const Published::Place *> others;
    for (const Published::Place &place : peer.places) {
        if (place.provider != module.transport().provider() || place.loopback != mine.loopback ||
            (place.loopback && !same_host)) {
            continue;
        }
        if (neighbours(mine, place)) {
            return &place;
        }
        // Somebody else of ours is its neighbour.
        bool taken = false;
        for (const auto &other : modules()) {
            taken = taken || neighbours(other->interface(), place);
        }
        if (!taken) {
            others.push_back(&place);
        }
    }
    std::size_t turn = 0;
    for (const auto &other : modules()) {
        if (other.get() == &module) {
            break;
        }
        ++turn;
    }
    return turn < others.size() ? others[turn] : nullptr;
}

int add_procs(Btl *btl, std::size_t count, opal_proc_t **procs, Way **ways,
              opal_bitmap_t *reachable) noexcept
try {
    if (!pml_retransmits()) {
        return OPAL_SUCCESS; // reaches nobody
    }
    Module &module = module_of(btl);
    for (std::size_t i = 0; i < count; ++i) {
        ways[i] = nullptr;
        Published peer;
        if (procs[i] == opal_proc_local_get() || !published_by(procs[i], peer)) {
            continue;
        }
        const bool same_host = OPAL_PROC_ON_LOCAL_NODE(procs[i]->proc_flags);
        const Published::Place *place = partner(module, peer, same_host);
        if (place == nullptr) {
            tell_other_provider(procs[i], peer);
            continue;
        }
        ways[i] = reinterpret_cast<Way *>(
            module.add_peer(procs[i], place->address, peer.cookie, place->largest));
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
          std::size_t payload_size, std::uint8_t /*order*/, std::uint32_t /*flags*/,
          mca_btl_base_tag_t tag, Descriptor **descriptor) noexcept
{
    if (descriptor != nullptr) {
        *descriptor = nullptr;
    }
    return module_of(btl).send_now(endpoint_of(way), convertor, header, header_size, payload_size,
                                   tag);
}

int flush(Btl *btl, Way *way) noexcept
{
    if (way != nullptr) {
        module_of(btl).flush(endpoint_of(way));
    }
    return OPAL_SUCCESS;
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
    module.btl_flush = flush;
    module.btl_register_error = register_error;
}

} // namespace ft::dgram
