/// Which rank runs under which daemon. Copied from the runtime's job objects while they exist: a
/// daemon frees a job's object when its own ranks have ended, but may have to answer for the others
/// later, as root. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <map>
#include <span>
#include <vector>

namespace ft::radixft {

class Jobs {
  public:
    /// Takes over the map of every job that the runtime has mapped and that is not known yet.
    void learn();

    /// The daemon of a rank; no_node when unknown.
    NodeId host(Rank who) const;
    /// The daemon of all ranks of a job; no_node when they have several, or the job is unknown.
    NodeId only_host(std::uint32_t jobid) const;
    /// Ranks of all jobs under this daemon.
    std::vector<Rank> ranks_on(NodeId node) const;
    /// Ranks under this daemon that a signature names.
    std::vector<Rank> ranks_on(NodeId node, std::span<const Rank> signature) const;
    /// Number of ranks of a job; 0 when it is not known.
    std::size_t size(std::uint32_t jobid) const;
    const std::map<std::uint32_t, std::vector<NodeId>> &all() const { return hosts_; }

  private:
    /// By job, then by rank. Jobs that have ended stay: only mpirun learns that one has, any other
    /// daemon may be the root after it, and who still has a communicator with such a job is told,
    /// as of any other, which ranks went with a host. The end's summary counts them too. It is a
    /// number for each rank, of no more jobs than the runtime has numbers for (65535), whose own
    /// objects mpirun keeps as long.
    std::map<std::uint32_t, std::vector<NodeId>> hosts_;
};

/// The job that mpirun was started for; all others are spawned.
bool is_first(std::uint32_t jobid);

/// Signatures as bytes and back. An empty list stands for all daemons.
Bytes encode_signature(std::span<const Rank> ranks);
std::vector<Rank> decode_signature(const Bytes &signature);

} // namespace ft::radixft
