#include "orte_glue/radixft/drops.hpp"

#include <numeric>

namespace ft::radixft {

namespace {

constexpr std::array<const char *, Drops::reasons> names{
    "malformed",      "forged",       "of an old epoch, attempt or life", "taken before",
    "from no member", "out of place", "for which there was no room",
};

} // namespace

Drops Drops::with(const membership::Counters &engine) const
{
    Drops all = *this;
    const auto add = [&all](Why why, std::uint64_t count) {
        all.counts_[static_cast<std::size_t>(why)] += count;
    };
    add(Why::stale, engine.stale);
    add(Why::duplicate, engine.duplicates);
    add(Why::foreign, engine.foreign);
    add(Why::unexpected, engine.unexpected);
    return all;
}

std::uint64_t Drops::total() const
{
    return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

std::string Drops::text() const
{
    std::string all;
    for (std::size_t i = 0; i < reasons; ++i) {
        if (counts_[i] != 0) {
            all += (all.empty() ? "" : ", ") + std::to_string(counts_[i]) + ' ' + names[i];
        }
    }
    return all;
}

} // namespace ft::radixft
