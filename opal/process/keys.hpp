/// Names under which deaths travel in PMIx events, for those who send and those who receive them.
#pragma once

namespace ft::process {

/// Attribute of the event that tells of a death: the epoch, an unsigned 64-bit integer.
inline constexpr char epoch_key[] = "ompi-ft.epoch";
/// When the death was noticed, microseconds since 1970, and T_s in microseconds: both signed 64-bit
/// integers.
inline constexpr char noticed_key[] = "ompi-ft.noticed";
inline constexpr char stabilized_key[] = "ompi-ft.stabilized";
/// Whether its daemon ended it because it hung or was stopped: a boolean.
inline constexpr char hung_key[] = "ompi-ft.hung";

} // namespace ft::process
