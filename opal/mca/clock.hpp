/// \file
/// The present, for the engines that never read a clock.
#pragma once
#include <ctime>

#include "opal/ft/base/time.hpp"

namespace ft::mca {

inline base::Time now() noexcept
{
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return base::Time::from_ns(std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec);
}

} // namespace ft::mca
