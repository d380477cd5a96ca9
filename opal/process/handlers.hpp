/// Whether this process is inside a function that a BTL's event handler has called.
///
/// The self-checking thread of a rank (errmgr/radixft) sees by two functions of Open MPI's progress
/// engine whether what runs between them comes back. Handlers of sockets run behind the last one;
/// so those whom they call mark that themselves.
#pragma once

#include <atomic>
#include <cstdint>

namespace ft::process {

namespace detail {
/// Counts; odd while inside.
extern std::atomic<std::uint64_t> handled;
} // namespace detail

/// Marks its own lifetime. No read-modify-write, since it is on the way of each fragment: with
/// several threads, or one inside another, the end of one may end the mark of all. It never stays
/// when all have come back, because who has set it clears it.
class InHandler {
  public:
    InHandler() noexcept { set((get() + 2) | 1); }
    ~InHandler() { set((get() + 1) & ~std::uint64_t{1}); }
    InHandler(const InHandler &) = delete;
    InHandler &operator=(const InHandler &) = delete;

    /// The count.
    static std::uint64_t get() noexcept { return detail::handled.load(std::memory_order_relaxed); }

  private:
    static void set(std::uint64_t value) noexcept
    {
        detail::handled.store(value, std::memory_order_relaxed);
    }
};

} // namespace ft::process
