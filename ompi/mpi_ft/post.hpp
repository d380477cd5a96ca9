/// \file
/// How processes tell each other what concerns failures.
///
/// Between processes of one job all messages travel on MPI_COMM_WORLD with one tag of their own
/// (process::agreement_tag), so that one posted receive serves all communicators and a message
/// finds a process that does not know the communicator yet. To processes of another job they take
/// the communicator that they are about, where one more receive is posted. They ride on whatever
/// the PML is; with pml/dr they arrive whole, once.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace ft::validate {

/// What a message is about.
enum class Topic : std::uint32_t {
    strict_agreement = 1, ///< of one whose caller wants strict semantics
    loose_agreement = 2,
    revoked = 3,   ///< it is revoked (Revocation, record.hpp); tell the others
    suspected = 4, ///< the sender finds no way to a process any more; `key` is its id
    pairing = 5,   ///< two groups agree on an intercommunicator; `key` is the receiver's group's
    call_off = 6,  ///< the sender waits in MPI_Comm_create_group on what is revoked (groups.cc)
};

/// The runtime's name of a process, job above rank.
using ProcessId = std::uint64_t;
constexpr ProcessId id_of(std::uint32_t job, std::uint32_t rank)
{
    return static_cast<ProcessId>(job) << 32 | rank;
}

/// A (remote) rank of a communicator.
struct Route {
    ompi_communicator_t *comm = nullptr;
    int rank = 0;
};

/// What has come. The body lies where it was received.
struct Letter {
    ProcessId from = 0;
    Topic topic = Topic::strict_agreement;
    std::uint64_t key = 0; ///< of the communicator
    std::span<const std::byte> body;
};

/// One that is kept until it can be read.
class KeptLetter {
  public:
    explicit KeptLetter(const Letter &letter)
        : letter_(letter), bytes_(letter.body.begin(), letter.body.end())
    {
        letter_.body = bytes_;
    }
    const Letter &letter() const { return letter_; }
    KeptLetter(KeptLetter &&) = default;
    KeptLetter &operator=(KeptLetter &&) = default;

  private:
    Letter letter_;
    std::vector<std::byte> bytes_; ///< stay where they are when this is moved
};

/// Not synchronised: the service's lock is held for every call.
class Post {
  public:
    using Receiver = void (*)(const Letter &letter, bool lasting);

    /// \param receiver takes what comes on any line. `lasting`: the line is not taken back
    /// meanwhile, whatever is done about the letter
    void open(Receiver receiver) noexcept { receiver_ = receiver; }
    /// Takes back all posted receives. What is on its way to others still leaves.
    void close() noexcept;
    bool is_open() const noexcept { return !lines_.empty(); }
    /// Listens on this communicator, and stops. A posted receive holds the communicator.
    void listen_on(ompi_communicator_t *comm);
    void hang_up(ompi_communicator_t *comm) noexcept;

    /// A failure to send is not reported: whoever cannot be reached is reported as such otherwise.
    void send(const Route &to, Topic topic, std::uint64_t key)
    {
        compose(topic, key);
        dispatch(to);
    }
    /// The same with a body, which goes behind what is in the bytes already, then dispatch().
    std::vector<std::byte> &compose(Topic topic, std::uint64_t key);
    void dispatch(const Route &to) { dispatch(to, scratch_.size()); }
    /// The same with a body of at most so many bytes, which goes into what is returned; then
    /// dispatch_body() with its length.
    std::span<std::byte> compose(Topic topic, std::uint64_t key, std::size_t most);
    void dispatch_body(const Route &to, std::size_t length);
    /// Lets go of what has left.
    void reap() noexcept;
    bool all_sent() const noexcept { return outgoing_.empty(); }

  private:
    struct Outgoing {
        ompi_request_t *request;
        std::vector<std::byte> bytes;
    };
    /// A communicator on which a receive is posted.
    struct Line {
        ompi_communicator_t *comm = nullptr;
        ompi_request_t *receive = nullptr; ///< persistent: one for all messages
        bool posted = false;
        bool starting = false; ///< the receive is being started
        bool came = false;     ///< its message was there already
        std::unique_ptr<std::byte[]> buffer;
    };
    static int on_received(ompi_request_t *request) noexcept;
    void dispatch(const Route &to, std::size_t length);
    void listen(Line &line) noexcept;
    /// Hands on what has come. \return false when nothing more will
    bool take(Line &line);

    Receiver receiver_ = nullptr;
    std::map<ompi_communicator_t *, std::unique_ptr<Line>> lines_;
    std::vector<std::byte> scratch_; ///< of the next message, perhaps with something behind it
    std::list<Outgoing> outgoing_;
};

} // namespace ft::validate
