#include "ompi/mpi_ft/contexts.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <numeric>

namespace ft::validate {

namespace {

/// Far above what Open MPI gives out itself, which is the lowest free; within the 16 bits of ob1.
constexpr std::uint32_t first_context = 16384;
constexpr std::uint32_t ids_per_window = 60;
/// Guests have names above all ids (groups.cc), which come again.
constexpr std::uint32_t after_last_context = std::uint32_t{1} << 31;

struct Window {
    std::uint64_t taken = 0;   ///< once in use here
    std::uint64_t gone = 0;    ///< and no more; nothing is kept of it
    std::uint64_t offered = 0; ///< in an agreement that is not over
};

std::map<std::uint32_t, Window> &windows()
{
    static auto *const all = new std::map<std::uint32_t, Window>;
    return *all;
}

Window &window_at(std::uint32_t number)
{
    static Window &first = windows()[0]; // nearly always enough
    return number == 0 ? first : windows()[number];
}

std::uint32_t context_of(std::uint32_t window, unsigned bit)
{
    return first_context + window * ids_per_window + bit;
}

/// The PML's bound, and that of the table of communicators.
std::uint32_t last_context() noexcept
{
    constexpr std::uint32_t most = INT32_MAX - 1;
    return std::min<std::uint32_t>(mca_pml.pml_max_contextid, most);
}

/// Those ids of a window that there are.
std::uint64_t valid_in(std::uint32_t window) noexcept
{
    const std::uint32_t first = context_of(window, 0);
    const std::uint32_t count = first > last_context() ? 0 : last_context() - first + 1;
    return count < ids_per_window ? (std::uint64_t{1} << count) - 1 : all_ids;
}

/// Those of a window that a communicator has, Open MPI's own or this library's: out of the bits
/// that opal_pointer_array keeps, in which it looks for a free place itself.
std::uint64_t in_use(std::uint32_t window) noexcept
{
    constexpr std::uint32_t bits = 64;
    const std::uint32_t first = context_of(window, 0);
    const std::uint32_t word = first / bits;
    const std::uint32_t shift = first % bits;
    opal_pointer_array_t &all = ompi_mpi_communicators;
    OPAL_THREAD_LOCK(&all.lock);
    const std::uint32_t words = (static_cast<std::uint32_t>(all.size) + bits - 1) / bits;
    const std::uint64_t low = word < words ? all.free_bits[word] : 0;
    const std::uint64_t high = word + 1 < words ? all.free_bits[word + 1] : 0;
    OPAL_THREAD_UNLOCK(&all.lock);
    return shift == 0 ? low : low >> shift | high << (bits - shift);
}

} // namespace

bool used_once(std::uint32_t context) noexcept
{
    return context >= first_context && context < after_last_context;
}

bool note_gone(std::uint32_t context)
{
    if (!used_once(context)) {
        return false;
    }
    const std::uint32_t place = context - first_context;
    const auto window = windows().find(place / ids_per_window);
    const std::uint64_t one = std::uint64_t{1} << place % ids_per_window;
    if (window == windows().end() || (window->second.taken & one) == 0) {
        return false; // Open MPI has many
    }
    window->second.gone |= one;
    return true;
}

bool is_gone(std::uint32_t context) noexcept
{
    if (!used_once(context)) {
        return false;
    }
    const std::uint32_t place = context - first_context;
    const auto window = windows().find(place / ids_per_window);
    return window != windows().end() && (window->second.gone >> place % ids_per_window & 1) != 0;
}

std::uint32_t window_count() noexcept
{
    const std::uint32_t last = last_context();
    return last < first_context ? 1 : (last - first_context) / ids_per_window + 1;
}

Offer::Offer(std::uint32_t window) : window_(window)
{
    Window &w = window_at(window);
    mask_ = ~(w.taken | w.offered | in_use(window)) & valid_in(window);
    w.offered |= mask_;
}

Offer::~Offer()
{
    Window &w = window_at(window_);
    w.offered &= ~mask_;
    if (window_ != 0 && w.offered == 0 && w.taken == 0) {
        windows().erase(window_); // nothing was found in it
    }
}

std::vector<std::uint32_t> Offer::take(std::uint64_t agreed, std::size_t count)
{
    std::vector<std::uint32_t> ids;
    agreed &= all_ids;
    for (unsigned bit = 0; bit < ids_per_window && ids.size() < count; ++bit) {
        const std::uint64_t one = std::uint64_t{1} << bit;
        if ((agreed & one) != 0) {
            ids.push_back(context_of(window_, bit));
            window_at(window_).taken |= one;
        }
    }
    return ids;
}

Prepared prepare_ranks(ompi_communicator_t *parent, const std::vector<int> &ranks) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    const int rc = ompi_comm_set(&fresh, parent, static_cast<int>(ranks.size()),
                                 const_cast<int *>(ranks.data()), 0, nullptr, nullptr,
                                 parent->error_handler, false, nullptr, nullptr);
    return rc == OMPI_SUCCESS ? fresh : nullptr;
}

Prepared prepare_group(ompi_communicator_t *parent, ompi_group_t *group) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    const int rc = ompi_comm_set(&fresh, parent, group->grp_proc_count, nullptr, 0, nullptr,
                                 nullptr, parent->error_handler, false, group, nullptr);
    return rc == OMPI_SUCCESS ? fresh : nullptr;
}

namespace {

/// An intercommunicator. ompi_comm_set would agree upon a context id for the own group's
/// communicator by itself, in a way that waits for ever when a process fails in it.
/// \param own its second half, freed here when this fails, as nullptr says
Prepared join(ompi_communicator_t *own, ompi_errhandler_t *handler, ompi_group_t *remote,
              const std::vector<int> &remote_ranks) noexcept
{
    if (own == nullptr) {
        return nullptr;
    }
    auto *fresh = OBJ_NEW(ompi_communicator_t);
    if (fresh == nullptr) {
        ompi_comm_free(&own);
        return nullptr;
    }
    fresh->super.s_info = nullptr;
    fresh->c_flags |= OMPI_COMM_INTER;
    fresh->c_local_comm = own;
    fresh->c_cube_dim =
        static_cast<int>(std::bit_width(static_cast<unsigned>(ompi_comm_size(own)) - 1));
    fresh->c_id_available = MPI_UNDEFINED;
    fresh->c_id_start_index = MPI_UNDEFINED;
    fresh->error_handler = handler;
    OBJ_RETAIN(fresh->error_handler);
    fresh->c_local_group = own->c_local_group;
    OBJ_RETAIN(fresh->c_local_group);
    if (ompi_group_incl(remote, static_cast<int>(remote_ranks.size()),
                        const_cast<int *>(remote_ranks.data()),
                        &fresh->c_remote_group) != OMPI_SUCCESS) {
        ompi_comm_free(&fresh); // the own group's with it
        return nullptr;
    }
    fresh->c_my_rank = fresh->c_local_group->grp_my_rank;
    return fresh;
}

} // namespace

Prepared prepare_inter(ompi_communicator_t *parent, const std::vector<int> &local_ranks,
                       const std::vector<int> &remote_ranks, ompi_communicator_t *own) noexcept
{
    own = own == nullptr ? parent->c_local_comm : own;
    return join(prepare_ranks(own, local_ranks), parent->error_handler, parent->c_remote_group,
                remote_ranks);
}

Prepared prepare_pair(ompi_communicator_t *own, const std::vector<int> &world_ranks) noexcept
{
    return join(prepare_group(own, own->c_local_group), own->error_handler,
                ompi_mpi_comm_world.comm.c_local_group, world_ranks);
}

Prepared prepare_twin(ompi_communicator_t *parent, bool with_attributes) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    if (OMPI_COMM_IS_INTER(parent)) {
        const auto all = [](int count) {
            std::vector<int> ranks(static_cast<std::size_t>(count));
            std::iota(ranks.begin(), ranks.end(), 0);
            return ranks;
        };
        fresh =
            prepare_inter(parent, all(ompi_comm_size(parent)), all(ompi_comm_remote_size(parent)));
        if (fresh != nullptr && with_attributes && parent->c_keyhash != nullptr) {
            ompi_attr_hash_init(&fresh->c_keyhash);
            if (ompi_attr_copy_all(COMM_ATTR, parent, fresh, parent->c_keyhash, fresh->c_keyhash) !=
                OMPI_SUCCESS) {
                ompi_comm_free(&fresh);
                return nullptr;
            }
        }
        return fresh;
    }
    const int rc = ompi_comm_set(&fresh, parent, ompi_comm_size(parent), nullptr, 0, nullptr,
                                 with_attributes ? parent->c_keyhash : nullptr,
                                 parent->error_handler, true, parent->c_local_group, nullptr);
    return rc == OMPI_SUCCESS ? fresh : nullptr;
}

namespace {

bool activate(ompi_communicator_t *comm, std::uint32_t context) noexcept
{
    comm->c_contextid = context;
    if (opal_pointer_array_set_item(&ompi_mpi_communicators, static_cast<int>(context), comm) !=
        OPAL_SUCCESS) {
        return false;
    }
    if (MCA_PML_CALL(add_comm(comm)) != OMPI_SUCCESS) {
        return false;
    }
    OMPI_COMM_SET_PML_ADDED(comm);
    return mca_coll_base_comm_select(comm) == OMPI_SUCCESS;
}

} // namespace

ompi_communicator_t *bring_to_life(Prepared comm, const std::uint32_t *contexts) noexcept
{
    if (comm == nullptr) {
        return nullptr;
    }
    if ((OMPI_COMM_IS_INTER(comm) && !activate(comm->c_local_comm, contexts[1])) ||
        !activate(comm, contexts[0])) {
        ompi_comm_free(&comm);
        return nullptr;
    }
    return comm;
}

} // namespace ft::validate
