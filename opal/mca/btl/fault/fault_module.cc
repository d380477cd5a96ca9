// The module of btl/fault, which reaches nobody, and the entries that it puts into the modules of
// the other BTLs.
//
// bml/r2 sorts the modules by exclusivity and asks each in turn to add the peers. This one has the
// highest of all, so that it is asked first: the others are patched before any of them has an
// endpoint, hence before the first message. Later the PML registers its receivers, and r2 tells
// each module of it right after it has filled the table that BTLs look receivers up in: there the
// receive side is hooked.

#include "opal/mca/btl/fault/fault.hpp"

#include <algorithm>

namespace ft::fault {

namespace {

Path *path_of(const Btl *btl) noexcept
{
    return the_injector != nullptr ? the_injector->find(btl) : nullptr;
}

int on_send(Btl *btl, Endpoint *endpoint, Descriptor *descriptor, Tag tag) noexcept
{
    return path_of(btl)->send(endpoint, descriptor, tag);
}

int on_sendi(Btl *btl, Endpoint *endpoint, opal_convertor_t *convertor, void *header,
             std::size_t header_size, std::size_t payload_size, std::uint8_t order,
             std::uint32_t flags, Tag tag, Descriptor **descriptor) noexcept
{
    return path_of(btl)->sendi(endpoint, convertor, header, header_size, payload_size, order, flags,
                               tag, descriptor);
}

int on_put(Btl *btl, Endpoint *endpoint, void *local_address, std::uint64_t remote_address,
           Registration *local_handle, Registration *remote_handle, std::size_t size, int flags,
           int order, mca_btl_base_rdma_completion_fn_t done, void *context, void *data) noexcept
{
    return path_of(btl)->put(RdmaCall{endpoint, local_address, remote_address, local_handle,
                                      remote_handle, size, flags, order, done, context, data});
}

int on_get(Btl *btl, Endpoint *endpoint, void *local_address, std::uint64_t remote_address,
           Registration *local_handle, Registration *remote_handle, std::size_t size, int flags,
           int order, mca_btl_base_rdma_completion_fn_t done, void *context, void *data) noexcept
{
    return path_of(btl)->get(RdmaCall{endpoint, local_address, remote_address, local_handle,
                                      remote_handle, size, flags, order, done, context, data});
}

int on_register_error(Btl *btl, mca_btl_base_module_error_cb_fn_t callback) noexcept
{
    Path *path = path_of(btl);
    path->set_error_callback(callback);
    return path->originals().register_error(btl, callback);
}

int on_add_procs(Btl *btl, std::size_t count, opal_proc_t **procs, Endpoint **endpoints,
                 opal_bitmap_t *reachable) noexcept
{
    Path *path = path_of(btl);
    const int result = path->originals().add_procs(btl, count, procs, endpoints, reachable);
    for (std::size_t i = 0; result == OPAL_SUCCESS && i < count; ++i) {
        if (endpoints[i] != nullptr &&
            (reachable == nullptr || opal_bitmap_is_set_bit(reachable, static_cast<int>(i)))) {
            path->add_peer(endpoints[i], procs[i]);
        }
    }
    return result;
}

int on_del_procs(Btl *btl, std::size_t count, opal_proc_t **procs, Endpoint **endpoints) noexcept
{
    Path *path = path_of(btl);
    for (std::size_t i = 0; i < count; ++i) {
        path->remove_peer(endpoints[i]);
    }
    return path->originals().del_procs(btl, count, procs, endpoints);
}

/// The module may free itself: it gets its own entries back first.
int on_finalize(Btl *btl) noexcept
{
    path_of(btl)->restore();
    return btl->btl_finalize(btl);
}

// ---- the module of btl/fault itself ----

int add_procs(Btl *, std::size_t, opal_proc_t **, Endpoint **, opal_bitmap_t *) noexcept
{
    start();
    return OPAL_SUCCESS; // reaches nobody
}

int del_procs(Btl *, std::size_t, opal_proc_t **, Endpoint **) noexcept
{
    return OPAL_SUCCESS;
}

int register_receiver(Btl *, Tag tag, mca_btl_base_module_recv_cb_fn_t, void *) noexcept
{
    if (the_injector != nullptr) {
        the_injector->hook_receiver(tag);
    }
    return OPAL_SUCCESS;
}

int finalize(Btl *) noexcept
{
    stop();
    return OPAL_SUCCESS;
}

} // namespace

void on_receive(Btl *btl, Tag tag, Descriptor *descriptor, void *data) noexcept
{
    if (Path *path = path_of(btl)) {
        path->receive(tag, descriptor);
        return;
    }
    // A BTL that is not subject to faults, like self.
    static_cast<void>(data);
    const mca_btl_active_message_callback_t &receiver = the_injector->receiver(tag);
    receiver.cbfunc(btl, tag, descriptor, receiver.cbdata);
}

int on_progress() noexcept
{
    return the_injector != nullptr ? the_injector->progress() : 0;
}

void patch(Btl &btl, const Settings &settings) noexcept
{
    btl.btl_add_procs = on_add_procs;
    btl.btl_del_procs = on_del_procs;
    btl.btl_finalize = on_finalize;
    if (settings.on_send) {
        btl.btl_send = on_send;
        if (btl.btl_sendi != nullptr) {
            btl.btl_sendi = on_sendi;
        }
        if (btl.btl_put != nullptr) {
            btl.btl_put = on_put;
        }
    }
    if (settings.on_receive && btl.btl_get != nullptr) {
        btl.btl_get = on_get;
    }
    if (btl.btl_register_error != nullptr) {
        btl.btl_register_error = on_register_error;
    }
}

Btl *module() noexcept
{
    static Btl the_module = [] {
        Btl btl{};
        btl.btl_component = &mca_btl_fault_component;
        btl.btl_exclusivity = UINT32_MAX;
        btl.btl_add_procs = add_procs;
        btl.btl_del_procs = del_procs;
        btl.btl_register = register_receiver;
        btl.btl_finalize = finalize;
        return btl;
    }();
    return &the_module;
}

} // namespace ft::fault
