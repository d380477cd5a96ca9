#include "../cmocka.hpp"
#include "opal/ft/base/rng.hpp"
#include "opal/ft/consensus/rank_set.hpp"

#include <set>

namespace {

using ft::consensus::Rank;
using ft::consensus::RankSet;

void empty_set_has_nothing(void **)
{
    const RankSet none;
    const bool good = none.empty() && none.count() == 0 && !none.contains(0) &&
                      none.lowest_absent() == 0 && none.runs().empty() && none == RankSet{};
    assert_true(good);
}

void neighbours_become_one_run(void **)
{
    std::size_t runs = 0;
    {
        RankSet set{3, 5, 4, 9};
        set.insert(8);
        runs = set.runs().size();
    }
    assert_int_equal(runs, 2);
}

void absent_counts_over_the_gaps(void **)
{
    Rank first = 0;
    Rank third = 0;
    Rank far = 0;
    {
        const RankSet set{0, 1, 4, 5, 6};
        first = set.lowest_absent();
        third = set.absent(2);
        far = set.absent(10);
    }
    assert_int_equal(first, 2);
    assert_int_equal(third, 7);
    assert_int_equal(far, 15);
}

void a_copy_is_not_changed_by_the_other(void **)
{
    bool same = true;
    {
        RankSet one{1, 2};
        const RankSet two = one;
        one.insert(7);
        same = two.contains(7);
    }
    assert_false(same);
}

/// Everything against std::set, on random sets within a small range so that they meet.
void agrees_with_a_plain_set(void **)
{
    ft::base::Rng rng(42);
    int wrong = 0;
    for (int round = 0; round < 3000; ++round) {
        std::set<Rank> a;
        std::set<Rank> b;
        RankSet x;
        RankSet y;
        for (std::uint64_t i = rng.below(12); i-- > 0;) {
            const auto rank = static_cast<Rank>(rng.below(24));
            wrong += x.insert(rank) != a.insert(rank).second;
        }
        for (std::uint64_t i = rng.below(12); i-- > 0;) {
            const auto rank = static_cast<Rank>(rng.below(24));
            wrong += y.insert(rank) != b.insert(rank).second;
        }
        const RankSet all = x.united(y);
        const RankSet both = x.common(y);
        const RankSet left = x.minus(y);
        bool subset = true;
        Rank below = 0;
        for (Rank rank = 0; rank < 30; ++rank) {
            const bool in_a = a.count(rank) != 0;
            const bool in_b = b.count(rank) != 0;
            wrong += x.contains(rank) != in_a;
            wrong += all.contains(rank) != (in_a || in_b);
            wrong += both.contains(rank) != (in_a && in_b);
            wrong += left.contains(rank) != (in_a && !in_b);
            wrong += x.count_below(rank) != below;
            subset = subset && (!in_a || in_b);
            if (!in_a) {
                wrong += x.absent(rank - below) != rank;
            }
            below += in_a ? 1 : 0;
        }
        wrong += x.is_subset_of(y) != subset;
        wrong += x.count() != a.size();
        wrong += x.members() != std::vector<Rank>(a.begin(), a.end());
        RankSet grown = x;
        wrong += grown.unite(y) != (all.count() != x.count());
        wrong += !(grown == all);
    }
    assert_int_equal(wrong, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(empty_set_has_nothing),
        cmocka_unit_test(neighbours_become_one_run),
        cmocka_unit_test(absent_counts_over_the_gaps),
        cmocka_unit_test(a_copy_is_not_changed_by_the_other),
        cmocka_unit_test(agrees_with_a_plain_set),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
