/// \file
/// The exchange along a tree (Algorithm::tree): whom a process hears, and whom it tells, when what
/// all bring goes up a tree and what comes of it goes down, twice. The tree is counted out among
/// those outside the tag, by their *places*: below the one at place p are those at p * fan_out + 1
/// and on. So everybody knows it without a word.
///
/// Of few processes that are all directly below the top the second sweep has the last place for its
/// top, and either end is spared a message: the last one hears what has come of the first sweep
/// from those who say that they have accepted it, and that the top has accepted it is in what it
/// has told them. Nor need it say that its fence is open: whom the tag holds it suspects itself.
/// (Not under loose semantics, which has one sweep.)
///
/// A pure rule, the same for Agreement and LazyAgreement.
#pragma once

#include "opal/ft/consensus/message.hpp"

#include <algorithm>
#include <cstdint>

namespace ft::consensus {

/// The most that Settings::fan_out may be.
inline constexpr std::uint32_t most_fan_out = 31;

/// So many processes at most have a tree with two ends. Where they share cores the second end is
/// one more process that all others wait for until it has a core: with four the two messages are
/// worth that, with six and more they are not (docs/validate.md).
inline constexpr std::uint32_t most_two_ended = 4;

class Sweeps {
  public:
    /// What a process has done and heard, by sweep.
    struct Done {
        std::uint8_t sent[2] = {0, 0};
        std::uint32_t got[2] = {0, 0}; ///< bits of heard()
    };

    /// \param place of this process among the `alive` \param twice strict semantics
    Sweeps(Rank place, Rank alive, std::uint32_t fan_out, bool twice)
        : place_(place),
          last_(alive - 1),
          fan_out_(fan_out),
          two_ended_(twice && last_ > 1 && last_ <= fan_out && alive <= most_two_ended)
    {
    }

    /// Whose steps of the first sweep this process counts on: `call` is given their places.
    template <class Call>
    void neighbours(Call call) const
    {
        if (place_ != top(Stage::ballot)) {
            call(above(Stage::ballot));
        }
        each_below(Stage::ballot, call);
    }

    /// A step that comes from this place, as a bit; 0 if it is none that this process waits for.
    std::uint32_t heard(Stage stage, std::uint8_t step, Rank from) const
    {
        if (step == step_down) {
            return place_ != top(stage) && from == above(stage) && hears_down(stage) ? from_above
                                                                                     : 0;
        }
        const std::uint64_t first = first_below(stage);
        return step == step_up && from >= first && from < first + count_below(stage) &&
                       speaks_up(stage, from)
                   ? std::uint32_t{1} << (from - first)
                   : 0;
    }

    /// Whether a step has in it what all have brought so far.
    bool carries_value(Stage stage, std::uint8_t step) const
    {
        return stage == Stage::ballot || (two_ended_ && step == step_up);
    }

    /// Goes as far as what was heard allows. `host` says by fence() whether the second sweep may
    /// begin, is told by accept() when the value is known, and sends by send(place, stage, step).
    /// \param twice false: the first sweep is all
    /// \return whether both sweeps have come to their end here
    template <class Host>
    bool advance(Done &done, bool twice, Host &&host) const
    {
        if (!go_up(Stage::ballot, done, host) ||
            (!hears_down(Stage::ballot) && done.got[second] == 0)) {
            return false;
        }
        host.accept();
        go_down(Stage::ballot, done, host);
        if (!twice) {
            return true;
        }
        if (!host.fence() || !go_up(Stage::commit, done, host)) {
            return false;
        }
        go_down(Stage::commit, done, host);
        return true;
    }

    /// Who still counts on steps of this process: `call` is given their places, each once.
    template <class Call>
    void owed(const Done &done, bool twice, Call call) const
    {
        const auto owes = [&](Stage stage, std::uint8_t way) {
            return (stage == Stage::ballot || twice) &&
                   (done.sent[static_cast<unsigned>(stage)] & way) == 0;
        };
        if (!two_ended_) {
            if (place_ != 0 && (owes(Stage::ballot, went_up) || owes(Stage::commit, went_up))) {
                call(above(Stage::ballot));
            }
            if (owes(Stage::ballot, went_down) || owes(Stage::commit, went_down)) {
                each_below(Stage::ballot, call);
            }
            return;
        }
        for (const Stage stage : {Stage::ballot, Stage::commit}) {
            // The last one tells all of them, the top of the first sweep among them, at the end.
            if (place_ != top(stage) && place_ != last_ && speaks_up(stage, place_) &&
                owes(stage, went_up)) {
                call(above(stage));
            }
            if (owes(stage, went_down)) {
                each_below(stage, call);
            }
        }
    }

  private:
    static constexpr std::uint32_t from_above = std::uint32_t{1} << most_fan_out;
    static constexpr std::uint8_t went_up = 1;
    static constexpr std::uint8_t went_down = 2;
    static constexpr unsigned second = 1;

    Rank top(Stage stage) const { return two_ended_ && stage == Stage::commit ? last_ : 0; }
    Rank above(Stage stage) const { return two_ended_ ? top(stage) : (place_ - 1) / fan_out_; }
    std::uint64_t first_below(Stage stage) const
    {
        return two_ended_ ? (stage == Stage::ballot ? 1 : 0) : std::uint64_t{place_} * fan_out_ + 1;
    }
    std::uint32_t count_below(Stage stage) const
    {
        if (two_ended_) {
            return place_ == top(stage) ? last_ : 0;
        }
        const std::uint64_t first = first_below(stage);
        return first > last_ ? 0
                             : static_cast<std::uint32_t>(
                                   std::min<std::uint64_t>(fan_out_, last_ + 1 - first));
    }
    /// Of those that have somebody above them.
    bool speaks_up(Stage stage, Rank place) const
    {
        return !two_ended_ || stage == Stage::ballot || place != 0;
    }
    bool hears_down(Stage stage) const
    {
        return !two_ended_ || stage == Stage::commit || place_ != last_;
    }
    template <class Call>
    void each_below(Stage stage, Call call) const
    {
        const auto first = static_cast<Rank>(first_below(stage));
        const Rank count = count_below(stage);
        for (Rank place = first; place < first + count; ++place) {
            call(place);
        }
    }
    template <class Host>
    bool go_up(Stage stage, Done &done, Host &host) const
    {
        const std::uint32_t got = done.got[static_cast<unsigned>(stage)];
        std::uint8_t &sent = done.sent[static_cast<unsigned>(stage)];
        const std::uint32_t count = count_below(stage);
        std::uint32_t wanted = (std::uint32_t{1} << count) - 1;
        if (count != 0 && !speaks_up(stage, static_cast<Rank>(first_below(stage)))) {
            wanted &= ~std::uint32_t{1};
        }
        if ((got & wanted) != wanted) {
            return false;
        }
        if (place_ == top(stage)) {
            return true;
        }
        if ((sent & went_up) == 0) {
            sent |= went_up;
            if (speaks_up(stage, place_)) {
                host.send(above(stage), stage, step_up);
            }
        }
        return !hears_down(stage) || (got & from_above) != 0;
    }
    template <class Host>
    void go_down(Stage stage, Done &done, Host &host) const
    {
        std::uint8_t &sent = done.sent[static_cast<unsigned>(stage)];
        if ((sent & went_down) != 0) {
            return;
        }
        sent |= went_down;
        each_below(stage, [&](Rank place) {
            if (!two_ended_ || stage == Stage::commit || place != last_) {
                host.send(place, stage, step_down);
            }
        });
    }

    Rank place_;
    Rank last_;
    std::uint32_t fan_out_;
    bool two_ended_;
};

} // namespace ft::consensus
