/// Names under which deaths travel in PMIx events, for those who send and those who receive them.
#pragma once

namespace ft::process {

/// Attribute of the event that tells of a death: the epoch, an unsigned 64-bit integer.
inline constexpr char epoch_key[] = "ompi-ft.epoch";

} // namespace ft::process
