#include "ompi/mpi_ft/contexts.hpp"

#include <map>

namespace ft::validate {

namespace {

/// Far above what Open MPI gives out itself, which is the lowest free; within the 16 bits of ob1.
constexpr std::uint32_t first_context = 16384;
constexpr std::uint32_t ids_per_window = 63;

struct Window {
    std::uint64_t taken = 0;   ///< once in use here
    std::uint64_t offered = 0; ///< in an agreement that is not over
};

std::map<std::uint32_t, Window> &windows()
{
    static auto *const all = new std::map<std::uint32_t, Window>;
    return *all;
}

std::uint32_t context_of(std::uint32_t window, unsigned bit)
{
    return first_context + window * ids_per_window + bit;
}

} // namespace

Offer::Offer(std::uint32_t window) : window_(window)
{
    Window &w = windows()[window];
    for (unsigned bit = 0; bit < ids_per_window; ++bit) {
        const std::uint64_t one = std::uint64_t{1} << bit;
        if (((w.taken | w.offered) & one) == 0 &&
            opal_pointer_array_get_item(&ompi_mpi_communicators,
                                        static_cast<int>(context_of(window, bit))) == nullptr) {
            mask_ |= one;
        }
    }
    w.offered |= mask_;
}

Offer::~Offer()
{
    windows()[window_].offered &= ~mask_;
}

std::vector<std::uint32_t> Offer::take(std::uint64_t agreed, std::size_t count)
{
    std::vector<std::uint32_t> ids;
    agreed &= ~all_well;
    for (unsigned bit = 0; bit < ids_per_window && ids.size() < count; ++bit) {
        const std::uint64_t one = std::uint64_t{1} << bit;
        if ((agreed & one) != 0) {
            ids.push_back(context_of(window_, bit));
            windows()[window_].taken |= one;
        }
    }
    return ids;
}

bool bring_to_life(ompi_communicator_t *comm, std::uint32_t context) noexcept
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

ompi_communicator_t *make_communicator(ompi_communicator_t *parent, const std::vector<int> &ranks,
                                       std::uint32_t context) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    int rc = ompi_comm_set(&fresh, parent, static_cast<int>(ranks.size()),
                           const_cast<int *>(ranks.data()), 0, nullptr, nullptr,
                           parent->error_handler, false, nullptr, nullptr);
    if (rc != OMPI_SUCCESS || fresh == nullptr) {
        return nullptr;
    }
    if (!bring_to_life(fresh, context)) {
        OBJ_RELEASE(fresh);
        return nullptr;
    }
    return fresh;
}

} // namespace ft::validate
