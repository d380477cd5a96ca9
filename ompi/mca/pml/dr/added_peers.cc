// The BTLs' functions that add peers are replaced by one that hands on to them, one peer at a time.
// Where a BTL would end the process from there it is left by a jump. It holds no lock at either
// place, and what it had made for the peer lies idle until the process ends. It must not be asked
// for that peer again: btl/ofi would take it for known and return an address on its stack, and
// btl/vader would count it twice, beyond the room that it has.
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/added_peers.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "ompi/mca/pml/dr/btl_path.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "opal/ft/base/lasting.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::dr {

namespace {

/// A BTL's module in our hands.
struct Guarded {
    mca_btl_base_module_t *btl = nullptr;
    mca_btl_base_module_add_procs_fn_t own = nullptr;
    std::vector<opal_proc_t *> refused{}; ///< each held, so that no other takes its place in memory
    bool told = false;
};
base::Lasting<std::vector<Guarded>> all_guarded;
constinit std::vector<Guarded> &guarded = all_guarded.object;
Mutex lock; ///< of what was refused
thread_local std::jmp_buf *way_out = nullptr;

const char *name_of(const Guarded &g) noexcept
{
    return g.btl->btl_component->btl_version.mca_component_name;
}

/// \return whether the BTL came back from it
bool add(const Guarded &g, opal_proc_t *process, mca_btl_base_endpoint_t **peer,
         opal_bitmap_t *reachable, int &rc) noexcept
{
    std::jmp_buf here;
    if (setjmp(here) != 0) {
        way_out = nullptr;
        return false;
    }
    way_out = &here;
    rc = g.own(g.btl, 1, &process, peer, reachable);
    way_out = nullptr;
    return true;
}

bool was_refused(const Guarded &g, const opal_proc_t *process) noexcept
{
    Guard guard(lock);
    return std::find(g.refused.begin(), g.refused.end(), process) != g.refused.end();
}

void refuse(Guarded &g, opal_proc_t *process) noexcept
{
    OBJ_RETAIN(process);
    bool tells = process != opal_proc_local_get(); // to itself it needs no way over this BTL
    {
        Guard guard(lock);
        tells = tells && !g.told;
        g.told = g.told || tells;
        g.refused.push_back(process);
    }
    if (tells) {
        ft::mca::show_help("help-pml-dr.txt", "peer not added", opal_process_info.nodename,
                           name_of(g), OPAL_NAME_PRINT(process->proc_name));
    }
}

/// In place of the BTL's own.
int add_procs(mca_btl_base_module_t *btl, std::size_t count, opal_proc_t **processes,
              mca_btl_base_endpoint_t **peers, opal_bitmap_t *reachable) noexcept
{
    Guarded &g = *std::find_if(guarded.begin(), guarded.end(),
                               [btl](const Guarded &one) { return one.btl == btl; });
    opal_bitmap_t reached;
    OBJ_CONSTRUCT(&reached, opal_bitmap_t);
    int rc = opal_bitmap_init(&reached, 1);
    for (std::size_t i = 0; i < count && rc == OPAL_SUCCESS; ++i) {
        peers[i] = nullptr;
        opal_bitmap_clear_all_bits(&reached);
        if (was_refused(g, processes[i])) {
            continue;
        }
        if (!add(g, processes[i], &peers[i], reachable == nullptr ? nullptr : &reached, rc)) {
            peers[i] = nullptr;
            refuse(g, processes[i]);
        } else if (reachable != nullptr && opal_bitmap_is_set_bit(&reached, 0)) {
            opal_bitmap_set_bit(reachable, static_cast<int>(i));
        }
    }
    OBJ_DESTRUCT(&reached);
    return rc;
}

} // namespace

void survive_added_peers() noexcept
{
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        Guarded g{selected->btl_module, selected->btl_module->btl_add_procs};
        const bool vader = std::strcmp(name_of(g), "vader") == 0;
        if (g.own == add_procs || (!vader && std::strcmp(name_of(g), "ofi") != 0)) {
            continue;
        }
        if (vader) {
            g.btl->btl_register_error(g.btl, btl_error); // exits when that returns
        }
        g.btl->btl_add_procs = add_procs;
        guarded.push_back(std::move(g));
    }
}

void die_of_added_peers_again() noexcept
{
    for (const Guarded &g : guarded) {
        if (g.btl->btl_add_procs ==
            add_procs) { // else another one hands on to it, for the last time
            g.btl->btl_add_procs = g.own;
        }
        for (opal_proc_t *process : g.refused) {
            OBJ_RELEASE(process);
        }
    }
    all_guarded.renew();
}

void leave_added_peer() noexcept
{
    if (way_out != nullptr) {
        std::longjmp(*way_out, 1);
    }
}

} // namespace ft::dr
