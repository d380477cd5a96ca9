// The exchange along a tree (Algorithm::tree): a combining tree (Yew, Tzeng and Lawrie,
// "Distributing hot-spot addressing in large-scale multiprocessors", IEEE ToC 36, 1987) used as a
// vote. What all bring goes up, what comes of it goes down: whoever hears it accepts it, as whoever
// has heard everybody does in the ring. Then the same again, to tell that all have accepted. Who
// tells whom is in sweeps.hpp.
#include "opal/ft/consensus/agreement.hpp"

namespace ft::consensus {

Sweeps Agreement::sweeps() const
{
    return {exchange_.place, exchange_.alive, settings_.fan_out,
            settings_.semantics == Semantics::strict};
}

/// Which step of a sweep it is, as a bit; 0 if it is none that this process waits for from there.
std::uint32_t Agreement::sweep_bit(Rank from, const Message &message) const
{
    return sweeps().heard(message.stage, message.step, from - exchange_.tag.count_below(from));
}

void Agreement::advance_sweeps(Actions &out)
{
    if (std::exchange(exchange_.ask, false) && settings_.mutation != Mutation::ask_nobody) {
        sweeps().neighbours([&](Rank place) { ask(at_place(place), out); });
    }
    struct Host {
        Agreement &self;
        Actions &out;
        bool fence() const { return self.fence_open(); }
        void accept() const { self.accept_exchanged(); }
        void send(Rank place, Stage stage, std::uint8_t step) const
        {
            self.send_exchange(self.at_place(place), stage, step, out);
        }
    };
    const bool twice = settings_.semantics == Semantics::strict &&
                       settings_.mutation != Mutation::return_at_commit;
    if (sweeps().advance(exchange_.done, twice, Host{*this, out})) {
        decide(accepted_->value, no_rank, Kind::decide, out);
    }
}

void Agreement::release_neighbours(Actions &out)
{
    sweeps().owed(exchange_.done, settings_.semantics == Semantics::strict,
                  [&](Rank place) { answer_with_decision(at_place(place), out); });
}

} // namespace ft::consensus
