/// \file
/// libfabric with faults, or in another guise: its entry points stand in front of the real ones,
/// and what the real provider opens gets operations of ours that hand on to its own. Linked into a
/// unit test, or preloaded into the processes of a job (ofi_faults.so).
#pragma once
#include <cstdint>

namespace ft::test {

/// What goes wrong. A process that is started with FT_OFI_FAULTS in its environment takes it from
/// there, as in "inject=64,queue=4,send_error=5,after=200,rank=0".
struct OfiFaults {
    std::uint64_t inject = ~std::uint64_t{0}; ///< bytes that are injected at most
    /// So many sends wait, unsent, in the memory that they were given in, until their completion
    /// queue is looked at: as with an adapter whose software moves only then. The next one finds no
    /// room (FI_EAGAIN). 0: the provider does as it does.
    std::uint64_t queue = 0;
    std::uint64_t send_error = 0;          ///< of a completion of a send
    std::uint64_t receive_error = 0;       ///< of a completion of a receive
    std::uint64_t after = 0;               ///< so many completions of that kind are good before
    std::uint64_t count = 1;               ///< so many are not
    std::uint64_t send_queue_error = 0;    ///< fi_cq_read of sends fails with it, after `after`
    std::uint64_t receive_queue_error = 0; ///< ... of receives
    std::uint64_t post_error = 0;          ///< fi_send fails with it, after so many that are good
    std::uint64_t addresses = ~std::uint64_t{0}; ///< so many are taken of peers, no more
    std::uint64_t nothing = 0;                   ///< 1: there is no provider at all
    std::uint64_t memory_error = 0;              ///< registrations fail with it
    bool mute = false; ///< fi_cq_readerr does not tell what failed, but fails itself
    // What the provider passes for; see ofi_guise.hpp.
    std::uint64_t prefix = 0;    ///< bytes in front of each message that are its own
    std::uint64_t registers = 0; ///< 1: memory must be registered
    std::uint64_t domains = 0;   ///< so many, and its addresses are none of IP
    /// 1: who asks for an address of IP gets these domains, too, as from verbs, and not nothing.
    std::uint64_t heedless = 0;
    std::uint64_t single = 0; ///< 1: it takes one call at a time into a domain (FI_THREAD_DOMAIN)
    std::uint64_t verbs = 0;  ///< 1: it is called verbs, and the host has an adapter
};

struct OfiCounts {
    std::uint64_t sends = 0; ///< by fi_send
    std::uint64_t injects = 0;
    std::uint64_t no_room = 0;   ///< sends that had to wait for others
    std::uint64_t failed = 0;    ///< completions, looks at a queue and sends that were made fail
    std::uint64_t refused = 0;   ///< addresses
    std::uint64_t addresses = 0; ///< ... and those that were taken
    std::uint64_t send_completions = 0;
    std::uint64_t receive_completions = 0;
    std::uint64_t receives = 0;       ///< by fi_recv
    std::uint64_t registered = 0;     ///< pieces of memory
    std::uint64_t released = 0;       ///< of those
    std::uint64_t unregistered = 0;   ///< messages whose memory was not, or without its descriptor
    std::uint64_t without_prefix = 0; ///< messages shorter than that alone
    std::uint64_t overlaps = 0;       ///< calls into a domain while another one was in it
};

/// Of what is opened from now on, and already is.
OfiFaults &ofi_faults() noexcept;
OfiCounts &ofi_counts() noexcept;

} // namespace ft::test
