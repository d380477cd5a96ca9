/// \file
/// The file descriptors that UCX opens: without FD_CLOEXEC, so that each program which the process
/// starts would keep them, and the listening port with them. No Open MPI here.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "opal/mca/btl/ucx/address.hpp"

namespace ft::ucx {

/// Connections that a call opens are closed in programs that are started: made before the call, it
/// looks which numbers the next descriptors will have, and marks those when it ends.
class MarksWhatOpens {
  public:
    /// \param some any open descriptor, -1: nothing is looked for \param most descriptors that are
    /// expected
    explicit MarksWhatOpens(int some, std::size_t most) noexcept;
    MarksWhatOpens(const MarksWhatOpens &) = delete;
    MarksWhatOpens &operator=(const MarksWhatOpens &) = delete;
    ~MarksWhatOpens();
    /// Whether that many are free.
    [[nodiscard]] bool free() const noexcept { return all_; }

  private:
    std::vector<int> next_;
    bool all_ = false;
};

/// Sockets at which UCX takes connections. It closes one without a word where it could not take a
/// connection, so the number may be another file's later: that is left alone.
class Listeners {
  public:
    /// Runs `open`, and marks what UCX has opened in it, as far as that can be told from what other
    /// threads open at the same time; sockets that listen are for adopt() to mark. May throw
    template <typename Open>
    auto during(Open open)
    {
        const std::vector<int> before = all();
        const auto result = open();
        if (!before.empty()) {
            note(before);
        }
        return result;
    }
    /// Of what was opened, the socket whose port is in that address of an interface: it is marked,
    /// and listens for UCX. May throw
    void adopt(const Bytes &address);
    [[nodiscard]] bool none() const noexcept { return listening_.empty(); }
    /// One of them, -1 if there is none.
    [[nodiscard]] int any() noexcept;
    /// How many connections may wait there, 0 if none does.
    [[nodiscard]] std::size_t waiting() noexcept;

  private:
    struct Listener {
        int fd;
        dev_t device;
        ino_t inode;
        /// Whether the number is still that socket's.
        [[nodiscard]] bool there() const noexcept;
    };
    /// Open descriptors; empty if that cannot be told.
    [[nodiscard]] static std::vector<int> all();
    void note(const std::vector<int> &before);
    std::vector<int> opened_; ///< sockets that listen
    std::vector<Listener> listening_;
};

} // namespace ft::ucx
