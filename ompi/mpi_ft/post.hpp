/// \file
/// How the processes of MPI_COMM_WORLD tell each other what concerns failures.
///
/// All messages travel on MPI_COMM_WORLD with one tag of their own (process::agreement_tag), so
/// that one posted receive serves all communicators and a message finds a process that does not
/// know the communicator yet. They ride on whatever the PML is; with pml/dr they arrive whole,
/// once.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <vector>

namespace ft::validate {

/// What a message is about.
enum class Topic : std::uint32_t {
    strict_agreement = 1, ///< of one whose caller wants strict semantics
    loose_agreement = 2,
    revoked = 3,   ///< the communicator is revoked; tell the others
    suspected = 4, ///< the sender finds no way to a process any more; `key` is its rank
};

struct Letter {
    std::uint32_t from = 0; ///< rank in MPI_COMM_WORLD
    Topic topic = Topic::strict_agreement;
    std::uint64_t key = 0; ///< of the communicator
    std::vector<std::byte> body;
};

/// Not synchronised: the service's lock is held for every call.
class Post {
  public:
    using Receiver = void (*)(Letter &&letter);

    /// \param largest bytes of any message's body
    void open(std::size_t largest, Receiver receiver) noexcept;
    /// Takes back the posted receive. What is on its way to others still leaves.
    void close() noexcept;
    bool is_open() const noexcept { return open_; }

    /// A failure to send is not reported: whoever cannot be reached is reported as such otherwise.
    void send(std::uint32_t to, Topic topic, std::uint64_t key, std::span<const std::byte> body);
    /// Lets go of what has left.
    void reap() noexcept;
    bool all_sent() const noexcept { return outgoing_.empty(); }

  private:
    struct Outgoing {
        ompi_request_t *request;
        std::vector<std::byte> bytes;
    };
    static int on_received(ompi_request_t *request) noexcept;
    void listen() noexcept;
    void take(ompi_request_t *request);

    bool open_ = false;
    Receiver receiver_ = nullptr;
    ompi_request_t *posted_ = nullptr;
    std::vector<std::byte> buffer_;
    std::vector<std::byte> scratch_;
    std::list<Outgoing> outgoing_;
};

} // namespace ft::validate
