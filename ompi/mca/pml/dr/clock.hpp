/// \file
/// The present, for the engines that never read a clock.
#pragma once
#include "opal/mca/clock.hpp"

namespace ft::dr {

using mca::now;

} // namespace ft::dr
