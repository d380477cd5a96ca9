/// Context ids that Open MPI has in hand for a communicator that is to be.
#pragma once

#include "ompi/mca/ompi_prelude.hpp"

#include <bit>
#include <cstdint>

namespace ft::mca {

/// While Open MPI looks for a context id, the places of those that it tries name the communicator
/// that the new one is made from, and after an error they do so for ever. MPI_Finalize would free
/// that once for each. Gives these places back. Looks only where opal_pointer_array marks a place
/// as taken: ids of ours begin high up (ompi/mpi_ft/contexts.cc).
inline void release_ids(const ompi_communicator_t *comm) noexcept
{
    opal_pointer_array_t &all = ompi_mpi_communicators;
    constexpr int bits = 64;
    const auto next = [&](int from) {
        OPAL_THREAD_LOCK(&all.lock);
        int found = -1;
        for (int first = from / bits * bits; first < all.size && found < 0; first += bits) {
            for (std::uint64_t taken = all.free_bits[first / bits]; taken != 0;
                 taken &= taken - 1) {
                const int id = first + std::countr_zero(taken);
                if (id >= from && id < all.size && all.addr[id] == comm &&
                    static_cast<std::uint32_t>(id) != comm->c_contextid) {
                    found = id;
                    break;
                }
            }
        }
        OPAL_THREAD_UNLOCK(&all.lock);
        return found;
    };
    for (int id = next(0); id >= 0; id = next(id)) {
        opal_pointer_array_set_item(&all, id, nullptr);
    }
}

} // namespace ft::mca
