#include "opal/mca/btl/fault/plan.hpp"

namespace ft::fault {

namespace {

/// FNV-1a, 64 bits: a path's name decides its stream, not the order in which BTLs were loaded.
std::uint64_t hash(std::string_view text)
{
    std::uint64_t value = 0xcbf29ce484222325U;
    for (const char c : text) {
        value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    return value;
}

} // namespace

bool corrupt_bits(std::uint64_t damage, std::span<std::byte> fragment) noexcept
{
    if (fragment.empty()) {
        return false;
    }
    base::Rng rng(damage);
    const std::uint64_t bits = std::uint64_t{fragment.size()} * 8;
    const std::uint64_t first = rng.below(bits);
    // Bit 0 of the pattern is the first bit flipped: the pattern is never empty.
    const std::uint64_t pattern = rng.chance(0.5) ? 1U : (rng.next() & 0xffffffffU) | 1U;
    for (std::uint64_t i = 0; i < 32 && first + i < bits; ++i) {
        if ((pattern >> i & 1U) != 0) {
            const std::uint64_t bit = first + i;
            fragment[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        }
    }
    return true;
}

Plan::Plan(const Settings &settings, std::uint32_t rank, std::string_view path, Direction direction)
    : drop_(settings.drop),
      duplicate_(settings.duplicate),
      corrupt_(settings.corrupt),
      reorder_(settings.reorder),
      delay_(settings.delay),
      stream_(base::Rng(settings.seed)
                  .fork(rank)
                  .fork(hash(path))
                  .fork(static_cast<std::uint64_t>(direction)))
{
}

Decision Plan::decide(std::uint64_t number) const
{
    base::Rng rng = stream_.fork(number);
    Decision decision;
    // Every fault draws its number whether or not it is asked for, so that switching one on leaves
    // the others where they were.
    decision.drop = rng.chance(drop_);
    decision.duplicate = rng.chance(duplicate_);
    decision.corrupt = rng.chance(corrupt_);
    const bool reorder = rng.chance(reorder_);
    decision.delay = rng.chance(delay_);
    decision.damage = rng.next();
    const auto overtaken_by = static_cast<unsigned>(rng.between(1, most_overtaking));
    if (decision.drop) {
        decision.duplicate = decision.corrupt = decision.delay = false;
    } else if (reorder && !decision.delay) {
        decision.overtaken_by = overtaken_by;
    }
    return decision;
}

bool PathLife::dead(base::Time now)
{
    if (dead_ && now >= back_at_) {
        dead_ = false;
        back_at_ = base::Time::never();
        passed_[0] = passed_[1] = 0;
    }
    return dead_;
}

bool PathLife::strikes(Direction direction, base::Time now)
{
    if (!mortal()) {
        return false;
    }
    if (dead(now)) {
        return true;
    }
    std::uint64_t &passed = passed_[static_cast<std::size_t>(direction)];
    if (passed < kill_after_) {
        ++passed;
        return false;
    }
    dead_ = true;
    ++deaths_;
    if (revive_after_ > base::Duration::zero()) {
        back_at_ = now + revive_after_;
    }
    return true;
}

void PathLife::take_back(Direction direction)
{
    std::uint64_t &passed = passed_[static_cast<std::size_t>(direction)];
    if (passed > 0) {
        --passed;
    }
}

} // namespace ft::fault
