#include "ompi/mca/pml/dr/mpi_buffer.hpp"

#include <algorithm>

#include "ompi/mca/pml/dr/clock.hpp"

namespace ft::dr {

void *room_in_mpi_buffer(std::size_t bytes) noexcept
{
    constexpr base::Duration patience = base::Duration::from_ms(1000);
    static std::atomic<std::uint32_t> in_vain{UINT32_MAX};
    base::Time until = base::Time::never();
    for (;;) {
        // Asked before: where nothing is leaving any more, what has left is there to be found.
        const std::uint32_t left = left_mpi_buffer.load(std::memory_order_relaxed);
        const bool leaving = leaving_mpi_buffer.load(std::memory_order_acquire) != 0 &&
                             in_vain.load(std::memory_order_relaxed) != left;
        void *room = mca_pml_base_bsend_request_alloc_buf(bytes); // makes progress if it fails
        if (OPAL_LIKELY(room != nullptr) || !leaving) {
            return room;
        }
        const base::Time present = now();
        until = std::min(until, present + patience);
        if (present >= until) {
            in_vain.store(left, std::memory_order_relaxed);
            return nullptr;
        }
    }
}

} // namespace ft::dr
