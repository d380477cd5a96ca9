// Ranks and daemons that die at the same time: whole sessions in virtual time.
//
// usage: swarm [--first SEED] [--count N] [--forget-collecting]
//
// Each run has 2 to 9 daemons with two ranks each, over a channel that delays, reorders and, in
// half of the runs, loses messages. Ranks and daemons die at random within some milliseconds, the
// root among the daemons in half of the runs, so that views change while deaths are being told; in
// some runs daemons die without a word. A daemon does with a view what
// orte_glue/radixft/daemon_events.cc does: its root reports the ranks of all daemons lost. At the
// end the survivors must
//   - hold one view, without the dead;
//   - know the same deaths with the same epochs and causes: of all ranks of lost daemons, and all
//     that the survivors reaped; of no other rank;
//   - have told their ranks each of them once, as they know it.
// With --forget-collecting, messages by which a new root asks what was announced get no answer but
// an empty one, and a violation must be found: the checks can fail. --count 1 tells what happens.
// Prints TAP.
#include "opal/ft/base/rng.hpp"
#include "orte_glue/radixft/session.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

using namespace ft;
using namespace ft::radixft;
using base::Duration;
using base::Time;

namespace {

constexpr unsigned ranks_each = 2;

struct Result {
    std::string violation;
    unsigned views = 0;
    unsigned deaths = 0;
    unsigned roots = 0;
    bool both = false; ///< a rank and a daemon died within a view change
};

class World {
  public:
    World(std::uint64_t seed, bool forget, bool verbose)
        : rng_(seed), forget_(forget), verbose_(verbose)
    {
        config_.heartbeat.suspicion.floor = Duration::from_ms(500);
        const auto n = static_cast<NodeId>(rng_.between(2, 9));
        config_.arity = rng_.below(2) == 0 ? 2 : 4;
        loss_ = rng_.below(2) == 0 ? 0 : 0.1;
        daemons_.resize(n);
        for (NodeId id = 0; id < n; ++id) {
            daemons_[id].session = std::make_unique<Session>(id);
            daemons_[id].session->log_to(nullptr);
            daemons_[id].session->begin(now_, config_, n);
            push(soon(100'000), [this, id] { tick(id); });
            absorb(id);
        }
    }

    Result run()
    {
        plan();
        while (!queue_.empty() && queue_.top().at < Time::from_ns(12'000'000'000)) {
            const Item item = queue_.top();
            queue_.pop();
            now_ = item.at;
            (*item.call)();
        }
        judge();
        return result_;
    }

  private:
    struct Daemon {
        std::unique_ptr<Session> session;
        bool dead = false;
        Time wake = Time::never();
        std::map<NodeId, Epoch> lost; ///< and the view that removed them
        std::map<Rank, RankDeath> told;
        std::set<std::uint32_t> reaped;
    };
    struct Item {
        Time at;
        std::uint64_t order;
        std::shared_ptr<std::function<void()>> call;
        bool operator>(const Item &o) const { return at != o.at ? at > o.at : order > o.order; }
    };

    Time soon(std::uint64_t most_us)
    {
        return now_ + Duration::from_us(static_cast<std::int64_t>(rng_.below(most_us + 1)));
    }
    void push(Time at, std::function<void()> call)
    {
        queue_.push({at, order_++, std::make_shared<std::function<void()>>(std::move(call))});
    }
    NodeId size() const { return static_cast<NodeId>(daemons_.size()); }
    static NodeId host_of(std::uint32_t rank) { return rank / ranks_each; }

    void plan()
    {
        const bool root_dies = rng_.below(2) == 0;
        const auto daemons = rng_.between(root_dies ? 1 : 0, std::max<int>(1, (size() - 1) / 2));
        std::set<NodeId> victims;
        if (root_dies) {
            victims.insert(0);
        }
        while (victims.size() < static_cast<std::size_t>(daemons)) {
            victims.insert(static_cast<NodeId>(rng_.below(size())));
        }
        silent_ = 2 * victims.size() < size() && rng_.below(4) == 0;
        // From all at once to one after the other, each while the last one is being dealt with.
        const std::uint64_t within = std::uint64_t{1} << rng_.between(0, 13);
        const Time begin = Time::from_ns(1'000'000'000);
        now_ = begin;
        for (const NodeId id : victims) {
            push(soon(within), [this, id] { kill(id); });
        }
        const auto ranks = static_cast<int>(rng_.between(1, 4));
        for (int i = 0; i < ranks; ++i) {
            // Preferably one whose daemon dies too, or the daemon that tells of it.
            const NodeId host =
                rng_.below(3) != 0 && !victims.empty()
                    ? *std::next(victims.begin(),
                                 static_cast<std::ptrdiff_t>(rng_.below(victims.size())))
                    : static_cast<NodeId>(rng_.below(size()));
            const auto rank =
                host * ranks_each + static_cast<std::uint32_t>(rng_.below(ranks_each));
            push(soon(within), [this, rank] { reap(rank); });
        }
        result_.both = !victims.empty();
        now_ = Time();
    }

    void reap(std::uint32_t rank)
    {
        Daemon &d = daemons_[host_of(rank)];
        if (!d.dead && d.reaped.insert(rank).second) {
            say("reaps rank " + std::to_string(rank), host_of(rank));
            d.session->report(now_,
                              {{1, rank}, host_of(rank), Cause::signal, 137, 0, now_.ns() / 1000});
            absorb(host_of(rank));
        }
    }

    void kill(NodeId id)
    {
        daemons_[id].dead = true;
        say("dies", id);
        if (silent_) {
            return; // its heartbeats stay away
        }
        // All are connected to it, see that broken, and its host refuses their knocks.
        for (NodeId other = 0; other < size(); ++other) {
            push(soon(3000), [this, id, other] {
                Daemon &d = daemons_[other];
                if (!d.dead && d.session->engine().view()->contains(id)) {
                    d.session->proof(now_, id, membership::ProofKind::refused);
                    absorb(other);
                }
            });
        }
    }

    void tick(NodeId id)
    {
        if (!daemons_[id].dead) {
            daemons_[id].session->tick(now_);
            absorb(id);
            push(now_ + Duration::from_ms(100), [this, id] { tick(id); });
        }
    }

    void wake(NodeId id)
    {
        Daemon &d = daemons_[id];
        if (!d.dead && d.wake <= now_) {
            d.wake = Time::never();
            d.session->time(now_);
            absorb(id);
        }
    }

    Time arrival()
    {
        // Mostly near, sometimes far behind others: a channel that reconnects.
        return soon(rng_.below(8) == 0 ? 5000 : 150);
    }

    void absorb(NodeId id)
    {
        Daemon &d = daemons_[id];
        for (bool more = true; more;) {
            const membership::Output out = d.session->take();
            const auto outgoing = d.session->take_outgoing();
            const auto news = d.session->take_news();
            more =
                !out.messages.empty() || !out.events.empty() || !outgoing.empty() || !news.empty();
            for (const membership::Message &m : out.messages) {
                if (rng_.uniform() >= loss_ && !daemons_[m.to].dead) {
                    push(arrival(), [this, m] { deliver(m); });
                }
            }
            for (const Outgoing &m : outgoing) {
                if (rng_.uniform() >= loss_ && !daemons_[m.to].dead) {
                    push(arrival(), [this, m, id] { deliver(id, m); });
                }
            }
            for (const RankDeath &death : news) {
                say("knows of rank " + std::to_string(death.who.vpid) + ", epoch " +
                        std::to_string(death.epoch) +
                        (death.cause == Cause::node_died ? ", with its daemon" : ""),
                    id);
                if (!d.told.emplace(death.who, death).second) {
                    violation("daemon " + std::to_string(id) + " tells of a death twice");
                }
            }
            for (const membership::Event &e : out.events) {
                if (e.kind == membership::Event::Kind::installed) {
                    installed(id, e);
                } else if (e.kind == membership::Event::Kind::evicted ||
                           e.kind == membership::Event::Kind::ended) {
                    say("is out, and ends its ranks", id); // it had lost too many messages
                    d.dead = true;
                    return;
                }
            }
        }
        const Time next = std::max(d.session->engine().next_deadline(), now_);
        if (next < d.wake) {
            d.wake = next;
            push(next, [this, id] { wake(id); });
        }
    }

    void deliver(const membership::Message &m)
    {
        if (!daemons_[m.to].dead) {
            daemons_[m.to].session->message(now_, m);
            absorb(m.to);
        }
    }

    void deliver(NodeId from, const Outgoing &m)
    {
        if (daemons_[m.to].dead) {
            return;
        }
        if (forget_ && m.type == Type::ranks_known) {
            Bytes nothing(m.body.begin(), m.body.begin() + 8);
            nothing.resize(8 + 4 + 4 + 4);
            daemons_[m.to].session->spread(now_, from, m.type, nothing);
        } else {
            daemons_[m.to].session->spread(now_, from, m.type, m.body);
        }
        absorb(m.to);
    }

    /// What Daemon::on_installed and apply_view do.
    void installed(NodeId id, const membership::Event &e)
    {
        ++result_.views;
        say("installs view " + std::to_string(e.view->epoch()) + " of " +
                std::to_string(e.view->size()) + ", root " + std::to_string(e.view->root()),
            id);
        Daemon &d = daemons_[id];
        for (const membership::Removed &gone : e.change->removed) {
            d.lost.emplace(gone.id, e.view->epoch());
        }
        if (e.view->root() != id) {
            return;
        }
        result_.roots += id != 0;
        std::vector<RankDeath> deaths;
        for (const auto &[lost, epoch] : d.lost) {
            for (unsigned r = 0; r < ranks_each; ++r) {
                deaths.push_back({{1, lost * ranks_each + r},
                                  lost,
                                  Cause::node_died,
                                  137,
                                  epoch,
                                  now_.ns() / 1000});
            }
        }
        d.session->report(now_, deaths);
    }

    void violation(const std::string &what)
    {
        if (result_.violation.empty()) {
            result_.violation = what;
        }
    }

    void judge()
    {
        std::set<Rank> want;
        const Daemon *first = nullptr;
        for (NodeId id = 0; id < size(); ++id) {
            const Daemon &d = daemons_[id];
            for (unsigned r = 0; r < ranks_each; ++r) {
                const std::uint32_t rank = id * ranks_each + r;
                if (d.dead || d.reaped.contains(rank)) {
                    want.insert({1, rank});
                }
            }
        }
        for (NodeId id = 0; id < size(); ++id) {
            const Daemon &d = daemons_[id];
            if (d.dead) {
                continue;
            }
            const std::string who = "daemon " + std::to_string(id);
            const membership::View &view = *d.session->engine().view();
            first = first == nullptr ? &d : first;
            if (view.digest() != first->session->engine().view()->digest()) {
                violation(who + " holds another view");
            }
            for (const NodeId member : view.members()) {
                if (daemons_[member].dead) {
                    violation(who + " holds a view with a dead daemon");
                }
            }
            if (d.session->deaths().known() != first->session->deaths().known()) {
                violation(who + " knows the deaths otherwise");
            }
            if (d.told != d.session->deaths().known()) {
                violation(who + " has told its ranks otherwise than it knows");
            }
            std::set<Rank> known;
            for (const auto &[rank, death] : d.told) {
                known.insert(rank);
            }
            if (known != want) {
                violation(who + " knows " + std::to_string(known.size()) + " deaths of " +
                          std::to_string(want.size()));
            }
            if (d.session->deaths().reports_pending() || !d.session->deaths().everybody_knows()) {
                violation(who + " has not come to rest");
            }
        }
        result_.deaths = static_cast<unsigned>(want.size());
    }

    base::Rng rng_;
    void say(const std::string &what, NodeId id) const
    {
        if (verbose_) {
            std::printf("# %9.3f ms  daemon %u %s\n", static_cast<double>(now_.ns()) / 1e6, id,
                        what.c_str());
        }
    }

    bool forget_;
    bool verbose_;
    bool silent_ = false; ///< the hosts of dead daemons refuse nothing
    double loss_ = 0;
    membership::Config config_;
    std::vector<Daemon> daemons_;
    Time now_;
    std::uint64_t order_ = 0;
    std::priority_queue<Item, std::vector<Item>, std::greater<>> queue_;
    Result result_;
};

} // namespace

int main(int argc, char **argv)
{
    std::uint64_t first = 1;
    std::uint64_t count = 2000;
    bool forget = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--forget-collecting") == 0) {
            forget = true;
        } else if (i + 1 < argc && std::strcmp(argv[i], "--first") == 0) {
            first = std::strtoull(argv[++i], nullptr, 10);
        } else if (i + 1 < argc && std::strcmp(argv[i], "--count") == 0) {
            count = std::strtoull(argv[++i], nullptr, 10);
        } else {
            std::fprintf(stderr, "usage: swarm [--first SEED] [--count N] [--forget-collecting]\n");
            return 2;
        }
    }
    std::uint64_t views = 0;
    std::uint64_t deaths = 0;
    std::uint64_t both = 0;
    unsigned bad = 0;
    std::uint64_t runs = 0;
    // Where one violation is all that is wanted, the first one is the end of it.
    for (std::uint64_t seed = first; seed < first + count && !(forget && bad > 0); ++seed) {
        const Result r = World(seed, forget, count == 1).run();
        ++runs;
        views += r.views;
        deaths += r.deaths;
        both += r.both;
        if (!r.violation.empty() && ++bad <= 5) {
            std::printf("# seed %llu: %s\n", static_cast<unsigned long long>(seed),
                        r.violation.c_str());
        }
    }
    std::printf("# %llu runs, in %llu of them ranks and daemons died at once; %llu installations, "
                "%llu deaths of ranks, %u runs with a violation\n",
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(both),
                static_cast<unsigned long long>(views), static_cast<unsigned long long>(deaths),
                bad);
    std::printf("1..1\n%sok 1 - %s\n", (bad != 0) == forget ? "" : "not ",
                forget ? "a new root that does not ask tells otherwise than the old one, and that "
                         "is found"
                       : "every survivor knows the same deaths with the same epochs, and one view");
    return (bad != 0) == forget ? 0 : 1;
}
