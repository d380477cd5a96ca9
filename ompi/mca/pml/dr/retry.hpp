/// \file
/// When a BTL is given again what it refused.
///
/// Most have room again after a pass of progress or a few. A refusal of btl/ofi may last, though,
/// as it says of every error of libfabric that there is no room; and each costs memory, which it
/// does not give back.
#pragma once
#include <cstdint>

#include "opal/ft/base/time.hpp"

namespace ft::dr {

/// Of one path. Guarded by the peer's lock.
class Retry {
  public:
    /// \param now or a little before it \return when it is to be tried again at the earliest
    base::Time refused(base::Time now) noexcept
    {
        if (refusals_ < at_each_pass + most_doublings) {
            ++refusals_;
        }
        return at_once()
                   ? now
                   : now + base::Duration::from_us(std::int64_t{1} << (refusals_ - at_each_pass));
    }
    /// Something was taken.
    void over() noexcept { refusals_ = 0; }

    /// At the next pass, whenever that is.
    bool at_once() const noexcept { return refusals_ <= at_each_pass; }

  private:
    static constexpr std::uint8_t at_each_pass = 8;
    static constexpr std::uint8_t most_doublings = 10; ///< 1 ms

    std::uint8_t refusals_ = 0; ///< in a row, saturating
};

} // namespace ft::dr
