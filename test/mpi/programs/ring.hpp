/* What the rounds of hashring share: who takes part, buffers with guards, and the count of errors.
 */
#ifndef TEST_MPI_PROGRAMS_RING_HPP
#define TEST_MPI_PROGRAMS_RING_HPP

#include "test/mpi/programs/payload.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ring {

/* Memory for one message between guard bytes that nobody may touch. */
class Buffer {
  public:
    explicit Buffer(std::size_t size);
    std::span<std::byte> bytes() { return std::span(memory_).subspan(guard, size_); }
    std::byte *data() { return bytes().data(); }
    int count() const { return static_cast<int>(size_); }
    bool guards_intact() const;

  private:
    static constexpr std::size_t guard = 64;
    std::size_t size_;
    std::vector<std::byte> memory_;
};

/* One rank's part in the run. */
struct Ring {
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int size = 0;
    std::uint64_t seed = 0;
    std::size_t largest = 0; /* bytes; upper limit of a message */
    long round = 0;
    int offset = 0; /* this round everybody sends to rank + offset */

    std::uint64_t messages = 0; /* received and checked */
    std::uint64_t bytes = 0;
    std::uint64_t wrong = 0; /* messages that were not what they should be */

    int right() const { return (rank + offset) % size; }
    int left() const { return (rank + size - offset) % size; }
    MessageName outgoing(int index) const { return {seed, rank, right(), round, index}; }
    MessageName incoming(int index) const { return {seed, left(), rank, round, index}; }

    /* A number below limit that every rank draws alike, for this round and the given purpose. */
    std::uint64_t draw(std::uint64_t purpose, std::uint64_t limit) const;

    /* Counts the buffer as a received message; says on standard error what is wrong with it. */
    void verify(Buffer &buffer, const MessageName &name);
    void verify_bytes(std::span<const std::byte> bytes, const MessageName &name);
    /* Counts an error that is not a wrong byte. */
    void complain(const std::string &text);
};

/* A kind of round: a way to exchange messages. */
struct Kind {
    const char *name;
    void (*run)(Ring &);
};

/* All kinds, in the order in which a run takes them. */
std::span<const Kind> all_kinds();

/* The rounds, by file. rounds_plain.cc: */
void storm(Ring &ring); /* many small messages at once, receives posted in another order */
void bulk(Ring &ring);  /* a few messages of the largest size at once */
void edges(Ring &ring); /* sizes around the limits of protocols */
void order(Ring &ring); /* one tag: messages must not overtake each other */
void late(Ring &ring);  /* everything arrives before its receive, taken in reverse */
/* rounds_modes.cc: */
void modes(Ring &ring);    /* synchronous, buffered, ready, persistent, replace */
void shapes(Ring &ring);   /* derived datatypes on either end */
void wildcard(Ring &ring); /* any source, any tag */
void probe(Ring &ring);    /* sizes found out by probe and matched probe */
void collect(Ring &ring);  /* collectives with known results */

} // namespace ring

#endif
