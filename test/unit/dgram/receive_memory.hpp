/// \file
/// Where a transport lets the kernel put what comes, as a test sees it that stands in for the C
/// library's functions: that what is handed on lies there shows that nobody has copied it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>

namespace ft::test {

/// Begin, and bytes.
inline std::map<const std::byte *, std::size_t> receive_memory;

/// The kernel was given this.
inline void note_receive_memory(const void *memory, std::size_t bytes)
{
    std::size_t &most = receive_memory[static_cast<const std::byte *>(memory)];
    most = std::max(most, bytes);
}

inline bool in_receive_memory(std::span<const std::byte> datagram)
{
    const auto behind = receive_memory.upper_bound(datagram.data());
    if (behind == receive_memory.begin()) {
        return false;
    }
    const auto &[begin, bytes] = *std::prev(behind);
    return datagram.data() + datagram.size() <= begin + bytes;
}

} // namespace ft::test
