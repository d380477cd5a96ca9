#include "ompi/mca/pml/dr/copy_if_there.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ft::dr {

namespace detail {

// Both call the kernel by themselves: a sanitizer that stands in for the library's functions would
// look at the memory first.

Copied copy_as_to_another(std::byte *to, std::span<const std::byte> from) noexcept
{
    // What is written from is read as for any write. The side of the other process, which would
    // not do for memory of devices, is ours.
    const iovec source{const_cast<std::byte *>(from.data()), from.size()};
    const iovec target{to, from.size()};
    const long copied = syscall(SYS_process_vm_writev, getpid(), &source, 1UL, &target, 1UL, 0UL);
    if (copied == static_cast<long>(from.size())) {
        return Copied::whole;
    }
    return copied >= 0 || errno == EFAULT ? Copied::gone : Copied::not_now;
}

Copied copy_by_pipe(std::byte *to, std::span<const std::byte> from) noexcept
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return Copied::not_now;
    }
    Copied result = Copied::whole;
    while (!from.empty() && result == Copied::whole) {
        constexpr std::size_t at_a_time = 65536; // it takes what it has room for
        const long in = syscall(SYS_write, ends[1], from.data(), std::min(from.size(), at_a_time));
        if (in <= 0) {
            result = in < 0 && errno == EFAULT ? Copied::gone : Copied::not_now;
        } else if (syscall(SYS_read, ends[0], to, in) != in) {
            result = Copied::not_now;
        } else {
            from = from.subspan(static_cast<std::size_t>(in));
            to += in;
        }
    }
    close(ends[0]);
    close(ends[1]);
    return result;
}

} // namespace detail

Copied copy_if_there(std::byte *to, std::span<const std::byte> from) noexcept
{
    const Copied copied = detail::copy_as_to_another(to, from);
    return copied == Copied::not_now ? detail::copy_by_pipe(to, from) : copied;
}

} // namespace ft::dr
