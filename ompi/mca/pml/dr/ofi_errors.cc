// btl/ofi ends the process in a function of its own, mca_btl_ofi_exit, which it exports and hence
// calls through its table of functions of other libraries. The entry of that table is replaced.
// Where the function is called while completions are read, the code behind the call only leaves
// the completion behind. While a peer is added it could not go on, and is left (added_peers.hpp).
// It is called elsewhere only by what dr never uses: put, get and atomics.
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/ofi_errors.hpp"

#include <array>
#include <atomic>
#include <cstdint>

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ompi/mca/pml/dr/added_peers.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::dr {

namespace {

using Function = void (*)();

#if defined(__x86_64__)
constexpr ElfW(Xword) jump_slot = R_X86_64_JUMP_SLOT;
#elif defined(__aarch64__)
constexpr ElfW(Xword) jump_slot = R_AARCH64_JUMP_SLOT;
#else
constexpr ElfW(Xword) jump_slot = 0; // of no entry: btl/ofi is not used
#endif

constexpr const char *name_of_exit = "mca_btl_ofi_exit";
constexpr std::array readers{"mca_btl_ofi_context_progress", "mca_btl_ofi_recv_frag"};

struct Range {
    std::uintptr_t first = 0;
    std::uintptr_t bytes = 0;
    [[nodiscard]] bool holds(std::uintptr_t address) const noexcept
    {
        return address - first < bytes;
    }
};

std::array<Range, readers.size()> goes_on_in;
Function *entry = nullptr;
Function exit_of_btl = nullptr;
std::atomic<bool> told{false};

/// In place of mca_btl_ofi_exit.
void go_on() noexcept
{
    const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
    if (std::none_of(goes_on_in.begin(), goes_on_in.end(),
                     [caller](const Range &range) { return range.holds(caller); })) {
        leave_added_peer();
        exit_of_btl();
    }
    if (!told.exchange(true, std::memory_order_relaxed)) {
        ft::mca::show_help("help-pml-dr.txt", "libfabric error", opal_process_info.nodename);
    }
}

/// One of the pointers in a library's dynamic section, which the loader has relocated.
std::uintptr_t dynamic(const link_map &library, ElfW(Sxword) tag) noexcept
{
    for (const ElfW(Dyn) *found = library.l_ld; found->d_tag != DT_NULL; ++found) {
        if (found->d_tag == tag) {
            return found->d_un.d_ptr;
        }
    }
    return 0;
}

/// Where a library keeps the address of a function that it calls by name.
Function *entry_of(const link_map &library, const char *name) noexcept
{
    const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(dynamic(library, DT_SYMTAB));
    const auto *names = reinterpret_cast<const char *>(dynamic(library, DT_STRTAB));
    const auto *calls = reinterpret_cast<const ElfW(Rela) *>(dynamic(library, DT_JMPREL));
    if (symbols == nullptr || names == nullptr || calls == nullptr ||
        dynamic(library, DT_PLTREL) != DT_RELA) {
        return nullptr;
    }
    const std::size_t count = dynamic(library, DT_PLTRELSZ) / sizeof(*calls);
    for (std::size_t i = 0; i < count; ++i) {
        const ElfW(Rela) &call = calls[i];
        if (ELF64_R_TYPE(call.r_info) == jump_slot &&
            std::strcmp(names + symbols[ELF64_R_SYM(call.r_info)].st_name, name) == 0) {
            return reinterpret_cast<Function *>(library.l_addr + call.r_offset);
        }
    }
    return nullptr;
}

/// \return whether it was changed
bool set(Function function) noexcept
{
    // With -z now the table is read-only once the library is loaded.
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(entry) / page * page;
    if (mprotect(reinterpret_cast<void *>(begin), page, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    __atomic_store_n(entry, function, __ATOMIC_RELEASE);
    return true;
}

/// \param component of the library, any address in it
void replace_exit(void *component) noexcept
{
    Dl_info where{};
    link_map *library = nullptr;
    if (dladdr1(component, &where, reinterpret_cast<void **>(&library), RTLD_DL_LINKMAP) == 0 ||
        library == nullptr) {
        return;
    }
    void *handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
        return;
    }
    bool known = true;
    for (std::size_t i = 0; i < readers.size(); ++i) {
        void *code = dlsym(handle, readers[i]);
        const ElfW(Sym) *symbol = nullptr;
        known = known && code != nullptr &&
                dladdr1(code, &where, reinterpret_cast<void **>(const_cast<ElfW(Sym) **>(&symbol)),
                        RTLD_DL_SYMENT) != 0 &&
                symbol != nullptr;
        if (known) {
            goes_on_in[i] = {reinterpret_cast<std::uintptr_t>(code), symbol->st_size};
        }
    }
    exit_of_btl = reinterpret_cast<Function>(dlsym(handle, name_of_exit));
    Function *found = entry_of(*library, name_of_exit);
    if (known && exit_of_btl != nullptr && found != nullptr) {
        entry = found;
        if (!set(go_on)) {
            entry = nullptr;
        }
    }
    dlclose(handle);
}

} // namespace

void survive_ofi_errors() noexcept
{
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const mca_btl_base_component_t *component = selected->btl_component;
        if (entry == nullptr && (selected->btl_module->btl_flags & MCA_BTL_FLAGS_SEND) != 0 &&
            std::strcmp(component->btl_version.mca_component_name, "ofi") == 0) {
            replace_exit(selected->btl_component);
            if (entry == nullptr) {
                ft::mca::show_help("help-pml-dr.txt", "ofi not used", opal_process_info.nodename);
                return;
            }
        }
    }
}

bool ofi_errors_survived() noexcept
{
    return entry != nullptr;
}

void die_of_ofi_errors_again() noexcept
{
    if (entry != nullptr) {
        set(exit_of_btl);
        entry = nullptr;
    }
}

} // namespace ft::dr
