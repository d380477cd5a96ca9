/// At mpirun: MPI_Comm_accept and MPI_Comm_connect of which a participant dies.
///
/// The roots of both sides publish who is on their side and look up who is on the other; then they
/// exchange numbers in the same way, step by step, until the communicator has its context id and is
/// activated. The keys are made of the port. mpirun keeps what is published, so it sees how far
/// each meeting is. When a rank of one side dies, that side fails in MPI: what its root would wait
/// for, or leaves for others to wait for, is taken care of here:
///
/// - its root waits for somebody to connect (or to accept): it is told that nobody comes, and its
///   names are taken back, or the next one to come would be paired with the dead;
/// - the other side waits for its next number: it is given the one that ends the exchange soonest
///   (spawns.hpp). The call succeeds there, with a communicator in which somebody is dead. What it
///   publishes in its turn is taken back when it is through, since the keys are the same the next
///   time.
///
/// Who has not met anybody yet goes on waiting: somebody else may come. Ports of MPI_Comm_spawn are
/// not for this class. Pure state machine: what is to be done comes out as actions. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ft::radixft {

class Meetings {
  public:
    struct Action {
        enum class What {
            refuse,   ///< publish under `key` the text that stands for "nobody"
            number,   ///< publish under `key` the number that ends an exchange soonest
            take_back ///< of what `owner` has published, `key`
        };
        What what;
        std::string key;
        Rank owner;

        bool operator==(const Action &) const = default;
    };

    /// The port that a key of either kind is made of; empty if it is another one.
    static std::string_view port_of(std::string_view key);

    /// Names: the root of one side tells who is on it. `key` says which side, of which port.
    void on_names(Rank owner, std::string_view key, std::vector<Rank> ranks);
    /// Another value. False if it is of no use any more and must not be kept.
    bool on_number(Rank owner, std::string_view key);
    /// Somebody looks for what is not there, or for what is there and is now taken.
    void on_lookup(std::string_view key);
    /// `dead` says of a rank of a side (its vpid may be every_rank) whether it, or one of them, is.
    template <class Dead>
    void on_deaths(Dead dead)
    {
        for (auto &[port, sides] : ports_) {
            for (std::size_t side = 0; side < sides.size(); ++side) {
                Side &mine = sides[side];
                if (!mine.ranks.empty() && !mine.orphaned && !mine.over && dead(mine.root)) {
                    orphan(mine);
                    mine.through = false;
                }
                for (const Rank &rank : mine.ranks) {
                    if (!mine.broken && !mine.through && !mine.over && dead(rank)) {
                        lose(port, side);
                        break;
                    }
                }
            }
        }
    }

    std::vector<Action> take_actions() { return std::exchange(actions_, {}); }

  private:
    struct Side {
        std::vector<Rank> ranks; ///< empty: it has not come
        Rank root;
        bool read = false;     ///< the other side has its names
        bool met = false;      ///< it has the other side's
        bool broken = false;   ///< one of them is dead
        bool alone = false;    ///< the other side, which it has met, is broken
        bool through = false;  ///< has published its last number
        bool over = false;     ///< and the other side has read it
        bool orphaned = false; ///< its root is dead: the runtime forgets what that published
        std::string asked;     ///< what its root waits for
        std::set<std::string, std::less<>> told; ///< keys of its numbers that nobody has read
    };
    using Sides = std::array<Side, 2>; ///< who accepts, who connects

    void lose(const std::string &port, std::size_t side);
    void stand_in(Sides &sides, std::size_t waiting);
    void take_back(Side &side);
    void orphan(Side &side);

    std::map<std::string, Sides, std::less<>> ports_;
    std::vector<Action> actions_;
};

} // namespace ft::radixft
