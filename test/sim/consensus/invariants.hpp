/// What must hold at the end of every run.
#pragma once

#include "world.hpp"

namespace sim {

/// Empty, or which invariant is broken and by whom. The first word is one of: agreement, validity,
/// termination, fence, flags, wire.
std::string check(const Plan &plan, const Run &run);

} // namespace sim
