/// \file
/// The buffer that a program gives for buffered sends (MPI_Buffer_attach). Any thread.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ft::dr {

/// Messages in the MPI buffer that their receivers have asked for: they leave it in time, whatever
/// this program does.
inline std::atomic<std::uint32_t> leaving_mpi_buffer{0};
/// How many of them have left.
inline std::atomic<std::uint32_t> left_mpi_buffer{0};

/// Room for a message in the MPI buffer, nullptr when there is none. What is there of an earlier
/// one is given back when its bytes are acknowledged, and the program may have heard before that
/// they were received: then there is room, by what MPI says. Not for ever, since a buffered send
/// ends whatever its receivers do; and once, until another one has left.
void *room_in_mpi_buffer(std::size_t bytes) noexcept;

} // namespace ft::dr
