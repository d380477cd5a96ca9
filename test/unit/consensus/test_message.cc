#include "../cmocka.hpp"
#include "opal/ft/base/rng.hpp"
#include "opal/ft/consensus/message.hpp"

namespace {

using namespace ft::consensus;

constexpr Rank size = 1000;

RankSet random_set(ft::base::Rng &rng)
{
    RankSet set;
    switch (rng.below(4)) {
    case 0:
        break;
    case 1:
        for (std::uint64_t i = rng.below(4); i-- > 0;) {
            set.insert(static_cast<Rank>(rng.below(size)));
        }
        break;
    case 2: {
        const auto first = static_cast<Rank>(rng.below(size));
        set = RankSet::range(first, static_cast<Rank>(rng.between(first, size)));
        break;
    }
    default: {
        RankSet::Builder builder;
        for (Rank rank = 0; rank < size; rank += 1 + static_cast<Rank>(rng.below(5))) {
            builder.add(rank, rank + 1);
        }
        set = builder.take();
    }
    }
    return set;
}

Number random_number(ft::base::Rng &rng)
{
    return {1 + static_cast<std::uint32_t>(rng.below(100)), static_cast<Rank>(rng.below(size)),
            static_cast<std::uint32_t>(rng.below(10))};
}

Message random_message(ft::base::Rng &rng)
{
    Message m(static_cast<Kind>(1 + rng.below(9)));
    m.instance = {rng.chance(0.5) ? rng.next() : 0, static_cast<std::uint32_t>(rng.next())};
    if (m.kind == Kind::stop || m.kind == Kind::stopped) {
        return m;
    }
    m.suspects = random_set(rng);
    m.unconfirmed = m.suspects.common(random_set(rng));
    if (m.kind != Kind::exchange && (m.kind != Kind::report || rng.chance(0.5))) {
        m.number = random_number(rng);
    }
    if (m.kind == Kind::refuse) {
        m.seen = random_number(rng);
    }
    if (m.kind == Kind::ballot || (m.kind == Kind::commit && rng.chance(0.5))) {
        const auto begin = static_cast<Rank>(rng.below(size));
        m.below = Range{begin, static_cast<Rank>(rng.between(begin, size))};
    }
    if (m.kind == Kind::exchange || m.kind == Kind::answer) {
        m.stage = rng.chance(0.5) ? Stage::ballot : Stage::commit;
        m.step = static_cast<std::uint8_t>(rng.below(32));
        m.flags = rng.chance(0.5) ? ~std::uint64_t{0} : rng.next();
        m.acknowledged = random_set(rng);
        m.ok = m.kind == Kind::answer && rng.chance(0.5);
    }
    if (m.kind == Kind::commit || m.kind == Kind::decide ||
        (m.kind == Kind::answer && rng.chance(0.5))) {
        m.accepted = Accepted{
            rng.chance(0.2) ? Number{} : random_number(rng),
            {random_set(rng), rng.chance(0.5) ? ~std::uint64_t{0} : rng.next(), random_set(rng)}};
    }
    return m;
}

void what_is_written_is_read(void **)
{
    ft::base::Rng rng(1);
    int wrong = 0;
    for (int i = 0; i < 1500; ++i) {
        const Message m = random_message(rng);
        const auto read = decode(encode(m), size);
        wrong += !read || *read != m || instance_of(encode(m)) != m.instance;
    }
    assert_int_equal(wrong, 0);
}

void every_truncation_and_every_excess_is_refused(void **)
{
    ft::base::Rng rng(2);
    int wrong = 0;
    for (int i = 0; i < 150; ++i) {
        auto bytes = encode(random_message(rng));
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            wrong += decode(std::span(bytes).first(length), size).has_value();
        }
        wrong += instance_of(std::span(bytes).first(7)).has_value();
        bytes.push_back(std::byte{0});
        wrong += decode(bytes, size).has_value();
    }
    assert_int_equal(wrong, 0);
}

/// Whatever bytes come: no crash, and what is taken is a message of this group.
void damaged_bytes_give_nothing_outside_the_group(void **)
{
    ft::base::Rng rng(3);
    int wrong = 0;
    int taken = 0;
    for (int i = 0; i < 2500; ++i) {
        auto bytes = encode(random_message(rng));
        for (std::uint64_t hits = 1 + rng.below(4); hits-- > 0;) {
            bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
        }
        const auto m = decode(bytes, size);
        if (!m) {
            continue;
        }
        ++taken;
        const auto outside = [](const RankSet &set) {
            return !set.empty() && set.runs().back().end > size;
        };
        wrong += outside(m->suspects) || outside(m->unconfirmed) || outside(m->acknowledged) ||
                 m->number.root >= size || m->seen.root >= size;
        wrong += m->below && (m->below->begin > m->below->end || m->below->end > size);
        wrong += m->accepted &&
                 (outside(m->accepted->value.failed) || outside(m->accepted->value.acknowledged));
        wrong += (m->kind == Kind::ballot) && !m->below;
        wrong += (m->kind == Kind::commit || m->kind == Kind::decide) && !m->accepted;
    }
    assert_int_equal(wrong, 0);
    assert_true(taken > 0);
}

void no_failure_costs_nothing_and_few_cost_little(void **)
{
    std::size_t none = 0;
    std::size_t one = 0;
    std::size_t half = 0;
    std::size_t every_other = 0;
    {
        Message m(Kind::ballot, {1, 0, 1});
        m.below = Range{1, size};
        none = encode(m).size();
        m.suspects = {17};
        one = encode(m).size();
        m.suspects = RankSet::range(0, size / 2);
        half = encode(m).size();
        RankSet::Builder builder;
        for (Rank rank = 0; rank < size; rank += 2) {
            builder.add(rank, rank + 1);
        }
        m.suspects = builder.take();
        every_other = encode(m).size();
    }
    assert_int_equal(none, 8 + 12 + 8);
    assert_true(one - none <= 13);         // one run, or a bitmap of one byte
    assert_true(half - none <= 13);        // one run
    assert_true(every_other - none < 140); // a bitmap: 125 bytes and its head
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_truncation_and_every_excess_is_refused),
        cmocka_unit_test(damaged_bytes_give_nothing_outside_the_group),
        cmocka_unit_test(no_failure_costs_nothing_and_few_cost_little),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
