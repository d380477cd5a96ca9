/// Time as the paper measured it: a model of its Blue Gene/P, fitted to two of its figures.
#pragma once

#include "plans.hpp"

namespace sim {

/// What the paper gives at 4,096 processes (Buntinas 2011, section 3), in nanoseconds.
inline constexpr Time paper_strict = 305000;
inline constexpr Time paper_loose = 172000;
inline constexpr Rank paper_size = 4096;
/// The same pattern (three broadcasts, two reductions) by unoptimised collectives: 305 us / 1.66.
inline constexpr Time paper_unoptimised = 183735;

/// From the first call to the last return, without failures, all calling at once.
Time latency(Rank size, Algorithm algorithm, Semantics semantics, const Costs &costs);

/// Costs at which the paper's own algorithm takes the paper's times. The overheads of a send and a
/// receive are given (0.8 us each, of the order that is known of that machine's 850 MHz cores); the
/// wire and the handling of an answer, by far the larger cost of a sweep up in the paper's MPI
/// program, are fitted: two unknowns for two measurements.
Costs calibrate();

/// The pattern alone, by a binomial tree whose messages cost `costs` and no handling.
Time collectives(Rank size, const Costs &costs);

} // namespace sim
