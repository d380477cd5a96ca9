#include "../cmocka.hpp"
#include "opal/ft/base/rng.hpp"
#include "opal/ft/consensus/lazy_agreement.hpp"

namespace {

using namespace ft::consensus;
using ft::base::Rng;

bool same(const Actions &a, const Actions &b)
{
    if (a.size() != b.size()) {
        return false;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i].kind != b[i].kind || a[i].to != b[i].to || a[i].message != b[i].message) {
            return false;
        }
    }
    return true;
}

struct Flying {
    Rank from;
    Rank to;
    Message message;
};

struct Tally {
    int decided = 0;
    int with_engine = 0;
};

/// A group in which every input is given to an engine and to one that is built when it must be:
/// each must do the same. Messages overtake each other; where `failures`, suspicions turn up
/// anywhere, messages come twice, and some bring what does not fit. \param dead of which all know
/// before anything else, and which do nothing
bool alike(Rng &rng, Rank size, const Settings &settings, bool failures, Tally &tally,
           const RankSet &dead = {})
{
    const InstanceId id{0, 3};
    const auto shape = TreeShape::binomial(size);
    std::vector<Agreement> engines;
    std::vector<LazyAgreement> lazies(size);
    std::vector<bool> called(size, false);
    for (Rank rank = 0; rank < size; ++rank) {
        engines.emplace_back(rank, id, settings, shape);
        lazies[rank].begin(rank, id, settings, shape);
    }
    std::vector<Flying> flying;
    Rank to_call = size - dead.count();
    Rank at_call = no_rank; // one of the dead, of which each learns with its call or before
    for (const Rank gone : dead.members()) {
        called[gone] = true;
        if (failures && at_call == no_rank && rng.chance(0.5)) {
            at_call = gone;
            continue;
        }
        for (Rank rank = 0; rank < size; ++rank) {
            Actions one;
            Actions other;
            if (!dead.contains(rank)) {
                engines[rank].on_suspects(RankSet{gone}, Certainty::confirmed, one);
                lazies[rank].on_suspects(RankSet{gone}, Certainty::confirmed, other);
            }
            if (!same(one, other)) {
                return false;
            }
        }
    }
    for (int steps = 0; steps < 4000; ++steps) {
        const Rank who = static_cast<Rank>(rng.below(size));
        Actions one;
        Actions other;
        Rank target = who;
        if (!called[who] && rng.chance(0.3)) {
            Contribution brought;
            brought.flags = rng.chance(0.5) ? rng.next() : ~std::uint64_t{0};
            if (failures && rng.chance(0.05)) {
                brought.acknowledged.insert(static_cast<Rank>(rng.below(size)));
            }
            if (at_call != no_rank) {
                brought.suspects.insert(at_call);
            }
            called[who] = true;
            --to_call;
            engines[who].start(brought, one);
            lazies[who].start(brought, other);
        } else if (failures && size > 1 && rng.chance(0.01)) {
            const auto whom = static_cast<Rank>(rng.below(size));
            const Certainty sure = rng.chance(0.7) ? Certainty::confirmed : Certainty::unconfirmed;
            engines[who].on_suspects(RankSet{whom}, sure, one);
            lazies[who].on_suspects(RankSet{whom}, sure, other);
        } else if (!flying.empty()) {
            const std::size_t at = rng.below(flying.size());
            Flying it = flying[at];
            if (!failures || !rng.chance(0.05)) {
                flying[at] = flying.back();
                flying.pop_back();
            }
            if (failures && rng.chance(0.01)) {
                it.message.step = static_cast<std::uint8_t>(rng.below(32));
            }
            target = it.to;
            engines[it.to].on_message(it.from, it.message, one);
            lazies[it.to].on_message(it.from, it.message, other);
        } else if (to_call == 0) {
            break;
        }
        const Value *a = engines[target].decision();
        const Value *b = lazies[target].decision();
        if (!same(one, other) || (a == nullptr) != (b == nullptr) || (a != nullptr && *a != *b)) {
            return false;
        }
        for (const Action &action : one) {
            if (action.kind == Action::Kind::send) {
                flying.push_back({target, action.to, action.message});
            }
        }
    }
    for (const LazyAgreement &lazy : lazies) {
        tally.decided += lazy.decision() != nullptr ? 1 : 0;
        tally.with_engine += lazy.has_engine() ? 1 : 0;
    }
    return true;
}

Settings any_settings(Rng &rng)
{
    Settings settings;
    settings.algorithm = rng.chance(0.5) ? Algorithm::fast : Algorithm::tree;
    settings.semantics = rng.chance(0.5) ? Semantics::strict : Semantics::loose;
    constexpr std::uint32_t fan_outs[] = {1, 2, 3, most_fan_out};
    settings.fan_out = fan_outs[rng.below(4)];
    return settings;
}

/// At most all but one.
RankSet any_dead(Rng &rng, Rank size)
{
    RankSet dead;
    const double share = rng.chance(0.5) ? 0.1 : 0.6;
    for (Rank rank = 0; rank < size && dead.count() + 1 < size; ++rank) {
        if (rng.chance(share)) {
            dead.insert(rank);
        }
    }
    return dead;
}

/// Groups in which nobody fails after the first input decide, and count steps alone.
void count_steps_alone(bool some_are_dead)
{
    int different = 0;
    int members = 0;
    Tally tally;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        Rng rng(seed);
        const auto size = static_cast<Rank>(1 + rng.below(40));
        const RankSet dead = some_are_dead ? any_dead(rng, size) : RankSet{};
        members += static_cast<int>(size - dead.count());
        different += !alike(rng, size, any_settings(rng), false, tally, dead);
    }
    assert_int_equal(different, 0);
    assert_int_equal(tally.decided, members);
    assert_int_equal(tally.with_engine, 0);
}

void without_failures_no_engine_is_built(void **)
{
    count_steps_alone(false);
}

/// Where each learns of all the dead before it hears of anything.
void of_failures_known_before_no_engine_is_built(void **)
{
    count_steps_alone(true);
}

void it_does_what_an_engine_does(void **)
{
    int different = 0;
    Tally tally;
    for (std::uint64_t seed = 1; seed <= 8000; ++seed) {
        Rng rng(seed);
        const auto size = static_cast<Rank>(1 + rng.below(12));
        const RankSet dead = seed % 2 == 0 ? RankSet{} : any_dead(rng, size);
        different += !alike(rng, size, any_settings(rng), true, tally, dead);
    }
    assert_int_equal(different, 0);
    assert_true(tally.with_engine > 1000);
    assert_true(tally.decided > 1000);
}

void the_papers_way_has_an_engine(void **)
{
    Settings settings;
    settings.algorithm = Algorithm::paper;
    Rng rng(1);
    Tally tally;
    const bool right = alike(rng, 7, settings, false, tally);
    assert_true(right);
    assert_int_equal(tally.decided, 7);
    assert_int_equal(tally.with_engine, 7);
}

void a_plain_step_has_the_bytes_of_its_message(void **)
{
    Rng rng(5);
    int wrong = 0;
    for (int i = 0; i < 1000; ++i) {
        Message m(Kind::exchange);
        m.instance = {rng.chance(0.5) ? rng.next() : 0, static_cast<std::uint32_t>(rng.next())};
        m.stage = rng.chance(0.5) ? Stage::ballot : Stage::commit;
        m.step = static_cast<std::uint8_t>(rng.below(32));
        m.flags = rng.chance(0.5) ? ~std::uint64_t{0} : rng.next();
        m.suspects = rng.chance(0.5) ? RankSet{} : any_dead(rng, 100);
        const auto bytes = encode(m);
        const Tag tag(m.suspects);
        std::vector<std::byte> plain(longest_plain + tag.bytes().size());
        plain.resize(encode_plain(m.instance, tag, {m.stage, m.step, m.flags}, plain));
        wrong += plain != bytes;
        InstanceId id;
        PlainStep step;
        wrong += !decode_plain(bytes, tag, id, step) || id != m.instance || step.stage != m.stage ||
                 step.step != m.step || step.flags != m.flags;
    }
    assert_int_equal(wrong, 0);
}

void what_is_no_plain_step_is_not_taken_for_one(void **)
{
    Message m(Kind::exchange);
    m.flags = 5;
    InstanceId id;
    PlainStep step;
    int taken = 0;
    for (const Tag &tag : {Tag(), Tag(RankSet{1, 7})}) {
        m.suspects = tag.set();
        const auto bytes = encode(m);
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            taken += decode_plain(std::span(bytes).first(length), tag, id, step);
        }
        // Version, kind, which fields, stage, step.
        for (const std::size_t at : {0, 1, 2, 3, 8, 9}) {
            auto bad = bytes;
            bad[at] ^= std::byte{0xe0};
            taken += decode_plain(bad, tag, id, step);
        }
        for (const RankSet &other : {RankSet{}, RankSet{1}, RankSet{1, 8}, RankSet{1, 7, 9}}) {
            if (other != tag.set()) {
                taken += decode_plain(bytes, Tag(other), id, step);
            }
        }
    }
    assert_int_equal(taken, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(without_failures_no_engine_is_built),
        cmocka_unit_test(of_failures_known_before_no_engine_is_built),
        cmocka_unit_test(it_does_what_an_engine_does),
        cmocka_unit_test(the_papers_way_has_an_engine),
        cmocka_unit_test(a_plain_step_has_the_bytes_of_its_message),
        cmocka_unit_test(what_is_no_plain_step_is_not_taken_for_one),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
