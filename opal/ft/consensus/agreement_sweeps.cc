// The exchange along a tree (Algorithm::tree): a combining tree (Yew, Tzeng and Lawrie,
// "Distributing hot-spot addressing in large-scale multiprocessors", IEEE ToC 36, 1987) used as a
// vote. What all bring goes up, what comes of it goes down: whoever hears it accepts it, as whoever
// has heard everybody does in the ring. Then the same again, to tell that all have accepted.
//
// The tree is counted out among those outside the tag: below the one at place p are those at
// p * fan_out + 1 and on. So everybody knows it without a word.
#include "opal/ft/consensus/agreement.hpp"

#include <algorithm>

namespace ft::consensus {

namespace {

constexpr std::uint32_t heard_above = std::uint32_t{1} << most_fan_out;
constexpr std::uint8_t went_up = 1;
constexpr std::uint8_t went_down = 2;

} // namespace

std::uint32_t Agreement::count_below() const
{
    const std::uint64_t first = first_below();
    return first >= exchange_.alive ? 0
                                    : static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                          settings_.fan_out, exchange_.alive - first));
}

/// Which neighbour a step has come from; 0 if it is none that takes such a step.
std::uint32_t Agreement::neighbour_bit(Rank from, std::uint8_t step) const
{
    if (step == step_down) {
        return exchange_.place != 0 && from == above() ? heard_above : 0;
    }
    const Rank at = shape_->position_of(from);
    const std::uint64_t place = at - exchange_.tag_positions.count_below(at);
    const std::uint64_t first = first_below();
    return place >= first && place < first + settings_.fan_out ? std::uint32_t{1} << (place - first)
                                                               : 0;
}

void Agreement::advance_sweeps(Actions &out)
{
    if (std::exchange(exchange_.ask, false) && settings_.mutation != Mutation::ask_nobody) {
        ask_neighbours(out);
    }
    const std::uint32_t below = count_below();
    const std::uint32_t all_below = (std::uint32_t{1} << below) - 1;
    for (const Stage stage : {Stage::ballot, Stage::commit}) {
        const auto sweep = static_cast<unsigned>(stage);
        if (stage == Stage::commit) {
            if (settings_.semantics == Semantics::loose ||
                settings_.mutation == Mutation::return_at_commit) {
                break;
            }
            if (!fence_open()) {
                return;
            }
        }
        if ((exchange_.got[sweep] & all_below) != all_below) {
            return;
        }
        if (exchange_.place != 0) {
            if ((exchange_.sent[sweep] & went_up) == 0) {
                exchange_.sent[sweep] |= went_up;
                send_exchange(above(), stage, step_up, out);
            }
            if ((exchange_.got[sweep] & heard_above) == 0) {
                return;
            }
        }
        if (stage == Stage::ballot) {
            accept_exchanged();
        }
        if ((exchange_.sent[sweep] & went_down) == 0) {
            exchange_.sent[sweep] |= went_down;
            for (std::uint32_t i = 0; i < below; ++i) {
                send_exchange(at_place(first_below() + i), stage, step_down, out);
            }
        }
    }
    decide(accepted_->value, no_rank, Kind::decide, out);
}

void Agreement::release_neighbours(Actions &out)
{
    const bool strict = settings_.semantics == Semantics::strict;
    const auto owed = [&](std::uint8_t way) {
        return (exchange_.sent[0] & way) == 0 || (strict && (exchange_.sent[1] & way) == 0);
    };
    if (exchange_.place != 0 && owed(went_up)) {
        answer_with_decision(above(), out);
    }
    for (std::uint32_t i = 0; owed(went_down) && i < count_below(); ++i) {
        answer_with_decision(at_place(first_below() + i), out);
    }
}

void Agreement::ask_neighbours(Actions &out)
{
    if (exchange_.place != 0) {
        ask(above(), out);
    }
    for (std::uint32_t i = 0; i < count_below(); ++i) {
        ask(at_place(first_below() + i), out);
    }
}

} // namespace ft::consensus
