/// At mpirun, or at the daemon that stands in for it: MPI_Comm_accept and MPI_Comm_connect of which
/// a participant dies.
///
/// The roots of both sides publish who is on their side and look up who is on the other; then they
/// exchange numbers in the same way, step by step, until the communicator has its context id and is
/// activated. The keys are made of the port. mpirun keeps what is published, so it sees how far
/// each meeting is. One call of one side is a visit. When a rank of a visit dies, it is broken: it
/// fails in MPI, and nothing of it may be left for others to wait for, or to take for their own.
///
/// - Nobody has met it: its names are taken back, or the next one to come would be paired with the
///   dead. Its root, if it asks who is on the other side, is told that nobody comes.
/// - It has the other's names and the other not its own: the other's are published again. That one
///   has met nobody, and goes on waiting, since somebody else may come.
/// - The other has its names: that one is alone. It cannot be turned back any more, for its root
///   may have told some of its side and not all. The call succeeds there, with a communicator in
///   which somebody is dead.
///
/// From then on no number passes between the two. What they have published is taken back, what they
/// publish is dropped, and whatever they look up is answered from here, with the number that ends
/// the exchange soonest (spawns.hpp). So nobody waits for one who has left, however far either is,
/// and the keys, which are the same the next time, are free.
///
/// A rank that comes again has left its visit before; if that was not at its end, it is broken too,
/// also when nobody has told of a death yet. Ports of MPI_Comm_spawn are not for this class.
///
/// Actions are to be done before the value or the look-up that they come from is passed on to the
/// server, and at once: nothing may come between. Pure state machine. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ft::radixft {

class Meetings {
  public:
    /// What is told in the place of names or of a number.
    enum class Answer {
        refusal, ///< the text that stands for "nobody"
        number   ///< the number that ends an exchange soonest
    };
    struct Action {
        enum class What {
            refuse,    ///< answer the look-up of `key` that waits, with the refusal
            number,    ///< or with the number
            take_back, ///< of what `owner` has published, `key`
            restore    ///< publish under `key`, as `owner`, the names in `text`
        };
        What what;
        std::string key;
        Rank owner{};
        std::string text{};

        bool operator==(const Action &) const = default;
    };

    /// The port that a key of either kind is made of; empty if it is another one.
    static std::string_view port_of(std::string_view key);
    /// Of a key of one side's names that of the other side's; empty if it is another one.
    static std::string names_other_side(std::string_view key);

    /// Names: the root of one side tells who is on it, `ranks`, in `text`. `key` says which side,
    /// of which port.
    void on_names(Rank owner, std::string_view key, std::vector<Rank> ranks, std::string text);
    /// Another value. False if it is of no use any more and must not be kept.
    bool on_number(Rank owner, std::string_view key);
    /// A rank of the job looks for what is not there, or for what is there and is now taken. An
    /// answer is for this look-up alone, which is not to be passed on.
    std::optional<Answer> on_lookup(std::uint32_t jobid, std::string_view key);
    /// `dead` says of a rank of a side (its vpid may be every_rank) whether it, or one of them, is.
    template <class Dead>
    void on_deaths(Dead dead)
    {
        for (auto &[port, visits] : ports_) {
            for (Visit &visit : visits) {
                if (std::any_of(visit.ranks.begin(), visit.ranks.end(), dead)) {
                    lose(port, visit);
                }
            }
        }
        forget();
    }
    /// Forgets visits of whose root `gone` says that nothing of it will come any more, and that the
    /// server has forgotten it.
    template <class Gone>
    void on_gone(Gone gone)
    {
        for (auto &[port, visits] : ports_) {
            for (Visit &visit : visits) {
                if (gone(visit.root)) {
                    lose(port, visit);
                    visit.over = true;
                }
            }
        }
        forget();
    }
    /// At how many ports somebody waits or a meeting is under way.
    std::size_t size() const { return ports_.size(); }

    std::vector<Action> take_actions() { return std::exchange(actions_, {}); }

  private:
    struct Visit {
        Rank root;
        std::size_t side; ///< who accepts, who connects
        std::vector<Rank> ranks;
        std::string names;
        bool offered = true;   ///< its names are there, and nobody has read them
        bool met = false;      ///< it has the other's
        Visit *peer = nullptr; ///< of the two at least one has the other's names
        bool broken = false;   ///< one of its ranks is dead, or has left
        bool alone = false;    ///< the other is broken
        bool over = false;     ///< it asks for nothing more
        std::string asked{};   ///< what its root waits for
        std::set<std::string, std::less<>> told{}; ///< keys of its numbers that nobody has read
    };
    using Visits = std::list<Visit>; ///< in the order in which they came

    static std::optional<Answer> look_for_names(Visits &visits, std::size_t side,
                                                std::uint32_t jobid, std::string_view key);
    static std::optional<Answer> look_for_number(Visits &visits, std::size_t side,
                                                 std::string_view key, bool last);
    static void pair(Visit &reader, Visit &owner);
    void lose(const std::string &port, Visit &visit);
    void leave_alone(Visit &visit);
    void refuse(Visit &visit);
    void stand_in(Visit &visit);
    void take_back(Visit &visit);
    void forget();

    std::map<std::string, Visits, std::less<>> ports_;
    std::vector<Action> actions_;
};

} // namespace ft::radixft
