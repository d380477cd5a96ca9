/// At mpirun: how far each MPI_Comm_spawn is (spawns.hpp says what that is for).
///
/// One entry for each job that was spawned, from the first thing heard of it until it is gone. What
/// the two sides have said to each other by then is kept only while the call is under way. Plain
/// data, no runtime. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ft::radixft {

class SpawnCalls {
  public:
    struct Call {
        std::string port;          ///< of those who call it
        bool called = false;       ///< the new ranks have told who they are
        bool through = false;      ///< have published all that is waited for
        bool let_in = false;       ///< those who call it have published all
        bool refused = false;      ///< is not waited for any more
        std::vector<Rank> callers; ///< empty: they have not told who they are
        std::string asked;         ///< the last number looked up
        std::string told;          ///< the last number published
    };

    /// The entry of a job, made when there is none.
    Call &of(std::uint32_t jobid, std::string_view port);
    /// Null when nothing was heard of the job.
    const Call *find(std::uint32_t jobid) const;
    /// The one whose port a key begins with, or is; null when there is none.
    Call *at(std::string_view key);
    /// Nothing that the two sides will say is of interest any more.
    static void settle(Call &call);
    /// Forgets the jobs of which `exists` says that they are gone. But those who called one that
    /// was refused may still have numbers to ask for.
    template <class Exists>
    void keep(Exists exists)
    {
        std::erase_if(calls_, [&](const auto &entry) {
            const Call &call = entry.second;
            return !exists(entry.first) && (!call.refused || call.let_in);
        });
    }
    /// Calls `each` with every job and its entry.
    template <class Each>
    void for_each(Each each)
    {
        for (auto &[jobid, call] : calls_) {
            each(jobid, call);
        }
    }
    std::size_t size() const { return calls_.size(); }

  private:
    std::map<std::uint32_t, Call> calls_;
};

} // namespace ft::radixft
