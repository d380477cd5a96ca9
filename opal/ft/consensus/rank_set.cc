#include "opal/ft/consensus/rank_set.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::consensus {

namespace {

const std::vector<RankSet::Run> no_runs;

/// The first run that ends after `rank`.
std::vector<RankSet::Run>::const_iterator run_at(const std::vector<RankSet::Run> &runs, Rank rank)
{
    return std::upper_bound(runs.begin(), runs.end(), rank,
                            [](Rank r, const RankSet::Run &run) { return r < run.end; });
}

} // namespace

void RankSet::Builder::add(Rank first, Rank end)
{
    if (first >= end) {
        return;
    }
    if (runs_.empty()) {
        runs_.push_back({first, end, 0});
        return;
    }
    Run &last = runs_.back();
    FT_ASSERT(first >= last.first);
    if (first <= last.end) {
        last.end = std::max(last.end, end);
    } else {
        runs_.push_back({first, end, last.before + (last.end - last.first)});
    }
}

RankSet RankSet::Builder::take()
{
    return RankSet(std::move(runs_));
}

RankSet::RankSet(Runs runs)
{
    if (!runs.empty()) {
        runs_ = std::make_shared<const Runs>(std::move(runs));
    }
}

RankSet::RankSet(std::initializer_list<Rank> ranks)
{
    for (const Rank rank : ranks) {
        insert(rank);
    }
}

RankSet RankSet::range(Rank first, Rank end)
{
    Builder builder;
    builder.add(first, end);
    return builder.take();
}

const std::vector<RankSet::Run> &RankSet::runs() const
{
    return runs_ ? *runs_ : no_runs;
}

Rank RankSet::count_of(const Runs &runs)
{
    const Run &last = runs.back();
    return last.before + (last.end - last.first);
}

bool RankSet::contains_in(const Runs &runs, Rank rank)
{
    const auto run = run_at(runs, rank);
    return run != runs.end() && run->first <= rank;
}

Rank RankSet::count_below_in(const Runs &runs, Rank rank)
{
    const auto run = run_at(runs, rank);
    if (run == runs.end()) {
        return count_of(runs);
    }
    return run->before + (rank > run->first ? rank - run->first : 0);
}

Rank RankSet::count_in(Rank begin, Rank end) const
{
    return begin < end ? count_below(end) - count_below(begin) : 0;
}

Rank RankSet::absent_in(const Runs &runs, Rank k)
{
    // Ranks absent before a run are run.first - run.before: this rises from run to run.
    const auto run = std::upper_bound(runs.begin(), runs.end(), k, [](Rank wanted, const Run &r) {
        return wanted < r.first - r.before;
    });
    if (run == runs.begin()) {
        return k;
    }
    const Run &last = *std::prev(run);
    return k + last.before + (last.end - last.first);
}

bool RankSet::all_in(const RankSet &other) const
{
    if (runs_ == other.runs_) {
        return true;
    }
    if (!other.runs_ || count() > other.count()) {
        return false;
    }
    return std::all_of(runs_->begin(), runs_->end(), [&](const Run &run) {
        const auto at = run_at(*other.runs_, run.first);
        return at != other.runs_->end() && at->first <= run.first && run.end <= at->end;
    });
}

bool RankSet::insert(Rank rank)
{
    return unite(range(rank, rank + 1));
}

RankSet RankSet::merged(const RankSet &other) const
{
    Builder builder;
    auto a = runs().begin();
    auto b = other.runs().begin();
    while (a != runs().end() || b != other.runs().end()) {
        const bool take_a = b == other.runs().end() || (a != runs().end() && a->first <= b->first);
        const Run &run = take_a ? *a++ : *b++;
        builder.add(run.first, run.end);
    }
    return builder.take();
}

bool RankSet::take_in(const RankSet &other)
{
    if (other.is_subset_of(*this)) {
        return false;
    }
    // Sharing the larger set is what keeps a large group's memory small.
    *this = is_subset_of(other) ? other : united(other);
    return true;
}

RankSet RankSet::without(const RankSet &other) const
{
    if (runs_ == other.runs_) {
        return {};
    }
    Builder builder;
    for (const Run &run : *runs_) {
        Rank from = run.first;
        for (auto cut = run_at(*other.runs_, run.first);
             cut != other.runs_->end() && cut->first < run.end; ++cut) {
            if (cut->first > from) {
                builder.add(from, cut->first);
            }
            from = std::max(from, cut->end);
        }
        builder.add(from, run.end);
    }
    return builder.take();
}

std::vector<Rank> RankSet::members() const
{
    std::vector<Rank> all;
    all.reserve(count());
    for (const Run &run : runs()) {
        for (Rank rank = run.first; rank < run.end; ++rank) {
            all.push_back(rank);
        }
    }
    return all;
}

} // namespace ft::consensus
