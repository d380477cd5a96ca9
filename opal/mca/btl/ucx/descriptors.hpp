/// \file
/// The file descriptors that UCX opens: without FD_CLOEXEC, so that each program which the process
/// starts would keep them, and the listening port with them. No Open MPI here.
#pragma once
#include <cstddef>
#include <vector>

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

/// Sockets at which UCX takes connections.
class Listeners {
  public:
    /// Runs `open`, marks all that it has opened, and notes which of that listens. May throw
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
    [[nodiscard]] bool none() const noexcept { return listening_.empty(); }
    /// One of them, -1 if there is none.
    [[nodiscard]] int any() const noexcept { return none() ? -1 : listening_.front(); }
    /// How many connections may wait there, 0 if none does.
    [[nodiscard]] std::size_t waiting() const noexcept;

  private:
    /// Open descriptors; empty if that cannot be told.
    [[nodiscard]] static std::vector<int> all();
    void note(const std::vector<int> &before);
    std::vector<int> listening_;
};

} // namespace ft::ucx
