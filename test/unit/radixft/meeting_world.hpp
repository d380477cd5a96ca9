/// What mpirun's Meetings lives among, in virtual time: the server that keeps what is published,
/// the roots of two sides as Open MPI has them meet (names, then numbers until both agree), ranks
/// that die, and who hears of it when. What happens next is drawn by lot.
#pragma once

#include "orte_glue/radixft/meetings.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace meeting_world {

using namespace ft::radixft;

/// A value's sender: the call (from 1 on) of a side, or who stands in for it.
constexpr int from_mpirun = 0;
constexpr int nobody_comes = -1;

struct Message {
    enum class What { publish, lookup, purge } what;
    std::string key;
    bool zero = false; ///< of a number: not all of the side have said theirs
};

/// One call of MPI_Comm_accept or MPI_Comm_connect by one side, as its root goes through it.
struct Call {
    int id = 0;
    std::size_t side = 0;
    std::vector<Rank> ranks; ///< the first is the root
    int partner = 0;         ///< whose names it has read
    std::string step = "names";
    int iteration = 0;
    bool asks = false;   ///< has published, and is to look up
    bool waits = false;  ///< for what it has looked up
    bool failed = false; ///< came back with the error
    bool done = false;
    bool mixed = false; ///< has read what was not its partner's
    bool said_zero = false;
};

class World {
  public:
    explicit World(std::uint64_t seed, int deaths)
        : lot_(seed), deaths_(deaths), purges_(seed % 2 == 0)
    {
        for (std::size_t side = 0; side < 2; ++side) {
            for (std::uint32_t vpid = 0; vpid < 3; ++vpid) {
                living_[side].push_back({static_cast<std::uint32_t>(side + 1), vpid});
            }
            begin(side);
        }
    }

    /// Until nothing can happen any more. \return what is wrong; empty if nothing is
    std::string run()
    {
        for (int events = 0; events < 3000; ++events) {
            if (!happen()) {
                return verdict();
            }
        }
        return "no end";
    }

    std::string story;

  private:
    struct Value {
        std::string key;
        Rank owner;
        int from;
        bool zero;
    };
    struct Waiting {
        std::string key;
        int call;
    };

    static constexpr const char *port = "1.0:77";

    bool alive(Rank who) const { return std::find(dead_.begin(), dead_.end(), who) == dead_.end(); }
    Call &call(int id) { return calls_[static_cast<std::size_t>(id - 1)]; }
    Call &last(std::size_t side) { return call(last_[side]); }
    bool broken(const Call &c) const
    {
        return std::any_of(c.ranks.begin(), c.ranks.end(), [this](Rank r) { return !alive(r); });
    }
    bool over(const Call &c) const { return c.failed || c.done; }
    std::uint64_t draw(std::uint64_t below) { return lot_() % below; }
    void tell(const std::string &text) { story += text + "\n"; }

    void begin(std::size_t side)
    {
        Call c;
        c.id = static_cast<int>(calls_.size()) + 1;
        c.side = side;
        c.ranks = living_[side];
        calls_.push_back(c);
        last_[side] = c.id;
        lines_.emplace_back();
    }

    std::string key(const Call &c, bool own) const
    {
        const bool accepts = (c.side == 0) == own;
        if (c.step == "names") {
            return std::string(port) + (accepts ? ":accept" : ":connect");
        }
        return std::string(port) + ":" + c.step + (accepts ? ":recv:" : ":send:") +
               std::to_string(c.iteration);
    }

    /// One of what can happen now.
    bool happen()
    {
        std::vector<std::pair<char, int>> can;
        for (const Call &c : calls_) {
            const bool root_lives = alive(c.ranks.front());
            if (!over(c) && root_lives && !c.waits) {
                can.emplace_back('s', c.id);
            }
            if (!over(c) && broken(c) && (!root_lives || !c.waits) && c.step != "published") {
                can.emplace_back('f', c.id);
            }
            if (!lines_[static_cast<std::size_t>(c.id - 1)].empty()) {
                can.emplace_back('m', c.id);
            }
            if (c.id == last_[c.side] && over(c) && !satisfied(c) &&
                lines_[static_cast<std::size_t>(c.id - 1)].empty()) {
                can.emplace_back('b', c.id);
            }
        }
        if (deaths_ > 0) {
            can.emplace_back('d', 0);
        }
        if (told_ < dead_.size()) {
            can.emplace_back('t', 0);
        }
        if (can.empty()) {
            return false;
        }
        const auto [what, id] = can[draw(can.size())];
        switch (what) {
        case 's':
            go_on(call(id));
            break;
        case 'f':
            call(id).failed = true;
            tell("call " + std::to_string(id) + " fails");
            break;
        case 'm':
            handle(id);
            break;
        case 'b':
            begin(call(id).side);
            break;
        case 'd':
            die();
            break;
        default:
            ++told_;
            tell("mpirun hears of it");
            meetings_.on_deaths([this](Rank r) {
                return std::find(dead_.begin(), dead_.begin() + static_cast<std::ptrdiff_t>(told_),
                                 r) != dead_.begin() + static_cast<std::ptrdiff_t>(told_);
            });
            act();
        }
        return true;
    }

    /// It is done, and so is or will be who it met: neither comes again.
    bool satisfied(const Call &c) const
    {
        if (!c.done || c.partner <= 0 || broken(c)) {
            return false;
        }
        const Call &other = calls_[static_cast<std::size_t>(c.partner - 1)];
        return !other.failed && !broken(other) && other.partner == c.id;
    }

    void die()
    {
        --deaths_;
        std::vector<Rank> candidates;
        for (const auto &side : living_) {
            if (side.size() > 1) {
                candidates.insert(candidates.end(), side.begin(), side.end());
            }
        }
        // Who dies afterwards is of no interest.
        std::erase_if(candidates, [this](Rank r) { return last(r.jobid - 1).done; });
        if (candidates.empty()) {
            return;
        }
        const Rank who = candidates[draw(candidates.size())];
        tell("rank " + std::to_string(who.vpid) + " of " + std::to_string(who.jobid) + " dies");
        std::erase(living_[who.jobid - 1], who);
        dead_.push_back(who);
        for (const Call &c : calls_) {
            if (purges_ && c.ranks.front() == who && c.id == last_[c.side]) {
                send(c, {Message::What::purge, "", false});
            }
        }
    }

    void send(const Call &c, Message message)
    {
        lines_[static_cast<std::size_t>(c.id - 1)].push_back(std::move(message));
    }

    void go_on(Call &c)
    {
        if (!c.asks) {
            c.said_zero = c.step != "names" && broken(c);
            send(c, {Message::What::publish, key(c, true), c.said_zero});
            c.asks = true;
            c.waits = true; // for the acknowledgement
            return;
        }
        send(c, {Message::What::lookup, key(c, false), false});
        c.asks = false;
        c.waits = true;
    }

    /// The next message of this call's root comes to mpirun.
    void handle(int id)
    {
        auto &line = lines_[static_cast<std::size_t>(id - 1)];
        const Message message = line.front();
        line.pop_front();
        const Call c = call(id);
        const Rank root = c.ranks.front();
        switch (message.what) {
        case Message::What::publish: {
            tell("call " + std::to_string(id) + " publishes " + message.key);
            bool wanted = true;
            if (Meetings::names_other_side(message.key).empty()) {
                wanted = meetings_.on_number(root, message.key);
            } else {
                meetings_.on_names(root, message.key, c.ranks, std::to_string(id));
            }
            act();
            if (wanted) {
                put({message.key, root, id, message.zero});
            }
            call(id).waits = false;
            break;
        }
        case Message::What::lookup: {
            tell("call " + std::to_string(id) + " looks up " + message.key);
            const auto told = meetings_.on_lookup(root.jobid, message.key);
            act();
            if (told) {
                answer(id, {message.key,
                            {},
                            *told == Meetings::Answer::number ? from_mpirun : nobody_comes,
                            false});
                break;
            }
            const auto found = std::find_if(store_.begin(), store_.end(),
                                            [&](const Value &v) { return v.key == message.key; });
            if (found != store_.end()) {
                const Value value = *found;
                store_.erase(found);
                answer(id, value);
            } else {
                waiting_.push_back({message.key, id});
            }
            break;
        }
        case Message::What::purge:
            tell("what call " + std::to_string(id) + " published is forgotten");
            std::erase_if(store_, [root](const Value &v) { return v.owner == root; });
            meetings_.on_gone([root](Rank r) { return r == root; });
            act();
            break;
        }
        if (told_ > 0) { // as after every publication
            meetings_.on_deaths([this](Rank r) {
                return std::find(dead_.begin(), dead_.begin() + static_cast<std::ptrdiff_t>(told_),
                                 r) != dead_.begin() + static_cast<std::ptrdiff_t>(told_);
            });
            act();
        }
    }

    void put(const Value &value)
    {
        const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                        [&](const Waiting &w) { return w.key == value.key; });
        if (found == waiting_.end()) {
            store_.push_back(value);
            return;
        }
        const int id = found->call;
        waiting_.erase(found);
        answer(id, value);
    }

    void answer(int id, const Value &value)
    {
        Call &c = call(id);
        if (!alive(c.ranks.front()) || over(c)) {
            return;
        }
        tell("call " + std::to_string(id) + " has " + value.key + " of " +
             std::to_string(value.from));
        c.waits = false;
        if (c.step == "names") {
            c.failed = value.from == nobody_comes;
            c.partner = value.from;
            c.step = "nextcid";
            return;
        }
        c.mixed = c.mixed || value.from != c.partner;
        if (c.step == "activate") {
            c.done = true;
        } else if (++c.iteration % 2 == 0 && !value.zero && !c.said_zero) {
            c.step = "activate";
            c.iteration = 0;
        }
    }

    void act()
    {
        for (const Meetings::Action &action : meetings_.take_actions()) {
            using What = Meetings::Action::What;
            if (action.what == What::take_back) {
                tell("mpirun takes back " + action.key);
                std::erase_if(store_, [&](const Value &v) {
                    return v.key == action.key && v.owner == action.owner;
                });
            } else if (action.what == What::restore) {
                tell("mpirun publishes again " + action.key);
                put({action.key, action.owner, std::stoi(action.text), false});
            } else {
                tell("mpirun answers " + action.key);
                put({action.key,
                     {},
                     action.what == What::number ? from_mpirun : nobody_comes,
                     false});
            }
        }
    }

    std::string verdict()
    {
        for (std::size_t side = 0; side < 2; ++side) {
            if (!last(side).done || !satisfied(last(side))) {
                return "call " + std::to_string(last_[side]) + " waits for ever";
            }
            if (last(side).mixed) {
                return "call " + std::to_string(last_[side]) + " has read what is of another one";
            }
        }
        if (!store_.empty()) {
            return "left behind: " + store_.front().key;
        }
        if (!waiting_.empty()) {
            return "still looked up: " + waiting_.front().key;
        }
        return meetings_.size() == 0 ? "" : "a meeting is not forgotten";
    }

    std::mt19937_64 lot_;
    int deaths_;
    bool purges_; ///< the runtime forgets what a rank has published when it dies
    Meetings meetings_;
    std::vector<Value> store_;
    std::vector<Waiting> waiting_;
    std::vector<Call> calls_;
    std::vector<std::deque<Message>> lines_; ///< to mpirun, by call
    std::vector<Rank> living_[2];
    std::vector<Rank> dead_;
    std::size_t told_ = 0; ///< how many of these mpirun knows
    int last_[2] = {0, 0};
};

} // namespace meeting_world
