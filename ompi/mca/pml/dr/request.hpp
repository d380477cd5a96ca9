/// \file
/// Send and receive requests: Open MPI's, with what pml/dr adds. Their addresses are those of the
/// ompi_request_t at their front.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/list.hpp"
#include "ompi/mca/pml/dr/lock.hpp"

namespace ft::dr {

class PeerState;
class CommState;

struct PendingTag;
struct DataTag;
struct PostedTag;

/// What a request needs to end exactly once although its user frees, or starts it again, when he
/// likes: two flags, and a count of starts that tells a late `finish` that it is about an earlier
/// one.
class Life {
  public:
    /// A new persistent request: not active. The count goes on, as the place in memory may be that
    /// of an earlier request which a late `finish` is about.
    void rest() noexcept
    {
        const std::uint32_t word = __atomic_load_n(&word_, __ATOMIC_RELAXED);
        __atomic_store_n(&word_, (word & ~flags) | done, __ATOMIC_RELAXED);
    }
    /// The request becomes active.
    void start() noexcept
    {
        // A late `finish` of the run before may come between; it is overruled.
        const std::uint32_t word = __atomic_load_n(&word_, __ATOMIC_RELAXED);
        __atomic_store_n(&word_, (word & ~flags) + (flags + 1), __ATOMIC_RELEASE);
    }
    std::uint32_t epoch() const noexcept
    {
        return __atomic_load_n(&word_, __ATOMIC_RELAXED) & ~flags;
    }
    bool was_freed() const noexcept
    {
        return (__atomic_load_n(&word_, __ATOMIC_ACQUIRE) & freed) != 0;
    }
    bool is_over() const noexcept
    {
        return (__atomic_load_n(&word_, __ATOMIC_ACQUIRE) & done) != 0;
    }
    /// The user lets go. \return true when the caller is to release the request
    bool free() noexcept
    {
        if (several_threads()) {
            return (__atomic_fetch_or(&word_, freed, __ATOMIC_ACQ_REL) & done) != 0;
        }
        word_ |= freed;
        return (word_ & done) != 0;
    }
    /// pml/dr lets go of what was started as `epoch`. \return true when the caller is to release it
    bool finish(std::uint32_t epoch) noexcept
    {
        if (!several_threads()) {
            if ((word_ & ~flags) != epoch) {
                return false;
            }
            word_ |= done;
            return (word_ & freed) != 0;
        }
        std::uint32_t word = __atomic_load_n(&word_, __ATOMIC_ACQUIRE);
        while ((word & ~flags) == epoch) {
            if (__atomic_compare_exchange_n(&word_, &word, word | done, true, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {
                return (word & freed) != 0;
            }
        }
        return false;
    }

  private:
    static constexpr std::uint32_t freed = 1;
    static constexpr std::uint32_t done = 2;
    static constexpr std::uint32_t flags = 3;
    std::uint32_t word_ = 0;
};

struct SendRequest : mca_pml_base_send_request_t, Hook<PendingTag>, Hook<DataTag> {
    PeerState *peer;           ///< nullptr: to this process itself
    SendRequest *next_done;    ///< in Completions
    const std::byte *base;     ///< of the message, when contiguous; else nullptr
    void *bsend_buffer;        ///< of the MPI buffer, to be given back at the end
    std::uint64_t number;      ///< in the peer's table while a cts is awaited; else 0
    std::uint64_t remote;      ///< the receiver's number for the message
    std::uint64_t opened;      ///< message bytes that are in VFRAGs already (or on the rts)
    std::uint64_t end;         ///< where the receiver wants to stop; known from the cts on
    std::uint32_t open_vfrags; ///< data VFRAGs in the engine
    std::uint32_t order;       ///< of its match, while that leaves
    bool synchronous;
    bool cts_seen;
    bool started;       ///< its match or rts was given to the engine
    std::int16_t error; ///< as a receive's
    Life life;

    ompi_request_t &ompi() noexcept { return req_base.req_ompi; }
};

struct RecvRequest : mca_pml_base_recv_request_t, Hook<PostedTag> {
    CommState *comm;        ///< where it was posted
    PeerState *peer;        ///< whom data comes from; known from the match on
    RecvRequest *next_done; ///< in Completions
    std::byte *base;        ///< of the buffer, when contiguous; else nullptr
    std::uint64_t order;    ///< of posting, between lists
    std::uint64_t number;   ///< in the peer's table while data is awaited; else 0
    std::uint64_t capacity; ///< of the buffer, packed bytes
    std::uint64_t expected; ///< bytes that will come: at most capacity
    std::uint64_t arrived;  ///< bytes unpacked
    std::byte *gathered;    ///< its message, if that can only be unpacked whole; else nullptr
    bool convertor_ready;
    std::int16_t error; ///< what it ends with; in its status from its end on, see request.cc
    Life life;

    ompi_request_t &ompi() noexcept { return req_base.req_ompi; }
};

inline SendRequest *send_request(ompi_request_t *request) noexcept
{
    return static_cast<SendRequest *>(reinterpret_cast<mca_pml_base_send_request_t *>(request));
}
inline RecvRequest *recv_request(ompi_request_t *request) noexcept
{
    return static_cast<RecvRequest *>(reinterpret_cast<mca_pml_base_recv_request_t *>(request));
}

/// Requests that are to be completed once no lock is held: completing may call the user's code.
class Completions {
  public:
    Completions() = default;
    Completions(const Completions &) = delete;
    Completions &operator=(const Completions &) = delete;
    ~Completions() { run(); }

    void add(SendRequest *request) noexcept
    {
        request->next_done = sends_;
        sends_ = request;
    }
    /// Receives complete in the order in which they were added.
    void add(RecvRequest *request) noexcept
    {
        request->next_done = nullptr;
        *receives_tail_ = request;
        receives_tail_ = &request->next_done;
    }
    /// Whether a receive is among them.
    bool received() const noexcept { return receives_ != nullptr; }
    /// \return how many were completed
    int run() noexcept { return receives_ == nullptr && sends_ == nullptr ? 0 : run_all(); }

  private:
    int run_all() noexcept;

    SendRequest *sends_ = nullptr;
    RecvRequest *receives_ = nullptr;
    RecvRequest **receives_tail_ = &receives_;
};

/// Makes both free lists hold this component's requests. \return an OMPI error code
int set_up_requests() noexcept;

SendRequest *new_send_request() noexcept;
RecvRequest *new_recv_request() noexcept;
/// Gives a request back to its free list, with the references that it held.
void release(SendRequest *request) noexcept;
void release(RecvRequest *request) noexcept;

} // namespace ft::dr
