/// \file
/// The entry points of a module, as Open MPI calls them, in front of a class that does the work.
///
/// `Module` is an mca_btl_base_module_t and has the types Fragment (fragments.hpp) and Endpoint,
/// `on_error`, and
/// - Endpoint *reach(opal_proc_t *process): the way to that peer, nullptr when there is none; may
///   throw
/// - void remove_peer(Endpoint *)
/// - Fragment *allocate(std::size_t bytes, std::uint32_t flags), void give_back(Fragment *)
/// - int send(Endpoint &, Fragment *, tag): as btl_send
/// - int send_now(Endpoint &, convertor, header, header_bytes, payload_bytes, tag): as btl_sendi,
///   but for the descriptor of a failure
/// - void flush(Endpoint &): if there is one
/// - void finish(): before it is destroyed
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "opal/mca/lock.hpp"

namespace ft::btl {

/// The modules of a component, in the order of the modex. Hidden: a static object of a template
/// that others can see keeps a shared object from being unloaded. Never destroyed, but emptied by
/// MPI_Finalize: who calls exit() instead may be a child that shares the modules' connections with
/// its parent, or have threads that are still under way in them.
template <typename Module>
[[gnu::visibility("hidden")]] std::vector<std::unique_ptr<Module>> &all_modules() noexcept
{
    using Modules = std::vector<std::unique_ptr<Module>>;
    alignas(Modules) static std::byte room[sizeof(Modules)];
    static Modules &all = *new (room) Modules;
    return all;
}

/// Leaves nothing of the list behind.
template <typename Module>
void drop_all_modules() noexcept
{
    std::vector<std::unique_ptr<Module>>().swap(all_modules<Module>());
}

/// Tells the PML of the peers whose ways have failed. One at a time: until its turn has come a peer
/// may be removed by another thread, and from the list. \param lock of the list
template <typename M>
void tell_failed(M &module, mca::Mutex &lock, std::vector<typename M::Endpoint *> &failed) noexcept
{
    for (;;) {
        opal_proc_t *process = nullptr;
        {
            const mca::Guard guard(lock);
            if (failed.empty()) {
                return;
            }
            process = failed.back()->process;
            failed.pop_back();
        }
        if (module.on_error != nullptr) {
            module.on_error(&module, MCA_BTL_ERROR_FLAGS_FATAL, process, nullptr);
        }
    }
}

template <typename M>
struct EntryPoints {
    using Btl = mca_btl_base_module_t;
    using Way = mca_btl_base_endpoint_t;
    using Descriptor = mca_btl_base_descriptor_t;
    using Endpoint = typename M::Endpoint;
    using Fragment = typename M::Fragment;

    static M &module_of(Btl *btl) noexcept { return *static_cast<M *>(btl); }
    static Endpoint &endpoint_of(Way *way) noexcept { return *reinterpret_cast<Endpoint *>(way); }
    static Fragment *fragment_of(Descriptor *descriptor) noexcept
    {
        return reinterpret_cast<Fragment *>(descriptor); // its first member
    }

    static int add_procs(Btl *btl, std::size_t count, opal_proc_t **procs, Way **ways,
                         opal_bitmap_t *reachable) noexcept
    try {
        for (std::size_t i = 0; i < count; ++i) {
            Endpoint *endpoint =
                procs[i] == opal_proc_local_get() ? nullptr : module_of(btl).reach(procs[i]);
            ways[i] = reinterpret_cast<Way *>(endpoint);
            if (endpoint != nullptr && reachable != nullptr) {
                opal_bitmap_set_bit(reachable, static_cast<int>(i));
            }
        }
        return OPAL_SUCCESS;
    } catch (...) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }

    static int del_procs(Btl *btl, std::size_t count, opal_proc_t ** /*procs*/, Way **ways) noexcept
    {
        for (std::size_t i = 0; i < count; ++i) {
            if (ways[i] != nullptr) {
                module_of(btl).remove_peer(&endpoint_of(ways[i]));
                ways[i] = nullptr;
            }
        }
        return OPAL_SUCCESS;
    }

    static int finalize(Btl *btl) noexcept
    {
        module_of(btl).finish();
        auto &all = all_modules<M>();
        std::erase_if(all, [&](const std::unique_ptr<M> &module) { return module.get() == btl; });
        if (all.empty()) {
            drop_all_modules<M>();
        }
        return OPAL_SUCCESS;
    }

    static Descriptor *alloc(Btl *btl, Way * /*way*/, std::uint8_t /*order*/, std::size_t size,
                             std::uint32_t flags) noexcept
    {
        Fragment *fragment = module_of(btl).allocate(size, flags);
        return fragment == nullptr ? nullptr : &fragment->descriptor;
    }

    static int release(Btl *btl, Descriptor *descriptor) noexcept
    {
        module_of(btl).give_back(fragment_of(descriptor));
        return OPAL_SUCCESS;
    }

    static Descriptor *prepare_src(Btl *btl, Way * /*way*/, opal_convertor_t *convertor,
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

    static int send(Btl *btl, Way *way, Descriptor *descriptor, mca_btl_base_tag_t tag) noexcept
    {
        return module_of(btl).send(endpoint_of(way), fragment_of(descriptor), tag);
    }

    static int sendi(Btl *btl, Way *way, opal_convertor_t *convertor, void *header,
                     std::size_t header_size, std::size_t payload_size, std::uint8_t order,
                     std::uint32_t flags, mca_btl_base_tag_t tag, Descriptor **descriptor) noexcept
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

    static int flush(Btl *btl, Way *way) noexcept
    {
        if (way != nullptr) {
            module_of(btl).flush(endpoint_of(way));
        }
        return OPAL_SUCCESS;
    }

    static int register_error(Btl *btl, mca_btl_base_module_error_cb_fn_t callback) noexcept
    {
        module_of(btl).on_error = callback;
        return OPAL_SUCCESS;
    }
};

/// Fills the entry points of a module.
template <typename M>
void set_entry_points(M &module) noexcept
{
    using Entries = EntryPoints<M>;
    module.btl_add_procs = Entries::add_procs;
    module.btl_del_procs = Entries::del_procs;
    module.btl_finalize = Entries::finalize;
    module.btl_alloc = Entries::alloc;
    module.btl_free = Entries::release;
    module.btl_prepare_src = Entries::prepare_src;
    module.btl_send = Entries::send;
    module.btl_sendi = Entries::sendi;
    if constexpr (requires(typename M::Endpoint & endpoint) { module.flush(endpoint); }) {
        module.btl_flush = Entries::flush;
    }
    module.btl_register_error = Entries::register_error;
}

/// The list that btl_init returns, and how many are in it. \return nullptr when there are none
template <typename M>
mca_btl_base_module_t **list_of_modules(int &count) noexcept
{
    const auto &all = all_modules<M>();
    count = 0;
    auto **list = all.empty() ? nullptr
                              : static_cast<mca_btl_base_module_t **>(
                                    std::malloc(all.size() * sizeof(mca_btl_base_module_t *)));
    if (list != nullptr) {
        for (const auto &module : all) {
            list[count++] = module.get();
        }
    }
    return list;
}

} // namespace ft::btl
