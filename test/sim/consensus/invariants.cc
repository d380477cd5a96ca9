#include "invariants.hpp"

namespace sim {

namespace {

std::string rank_text(Rank rank)
{
    return "rank " + std::to_string(rank);
}

std::string agreement(const Plan &plan, const Run &run)
{
    const bool strict = plan.settings.semantics == Semantics::strict;
    const Value *value = nullptr;
    Rank first = no_rank;
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        const Fate &fate = run.fates[rank];
        // Strict counts what the dead returned; loose only what survivors did.
        if (!fate.has_value || (!strict && (fate.dead || fate.stopped))) {
            continue;
        }
        if (value == nullptr) {
            value = &fate.value;
            first = rank;
        } else if (!(*value == fate.value)) {
            return "agreement: " + rank_text(first) + " returned {" + describe(value->failed) +
                   "}, " + rank_text(rank) + " {" + describe(fate.value.failed) + "}" +
                   (value->failed == fate.value.failed ? ", flags differ" : "");
        }
    }
    return {};
}

std::string validity(const Plan &plan, const Run &run)
{
    RankSet wanted;  // what somebody who is still there knew when it called
    RankSet accused; // whom anybody had a reason to suspect
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        const Fate &fate = run.fates[rank];
        const RankSet &knew = plan.members[rank].brings.suspects;
        accused.unite(knew);
        if (fate.dead && !fate.stopped) {
            accused.insert(rank);
        }
        if (!fate.started) {
            continue;
        }
        if (!fate.dead && !fate.stopped) {
            wanted.unite(knew);
        } else {
            // It may have gone before it told, but those that were dead before anybody called
            // cannot have answered anybody.
            for (const Rank failed : knew.members()) {
                if (run.fates[failed].dead && run.fates[failed].died <= run.first_start) {
                    wanted.insert(failed);
                }
            }
        }
    }
    for (const Suspicion &s : plan.false_suspicions) {
        accused.insert(s.victim);
    }
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        const Fate &fate = run.fates[rank];
        if (!fate.has_value || fate.dead || fate.stopped) {
            continue;
        }
        if (!wanted.is_subset_of(fate.value.failed)) {
            return "validity: " + rank_text(rank) + " returned {" + describe(fate.value.failed) +
                   "} without " + describe(wanted.minus(fate.value.failed)) + ", known at entry";
        }
        if (!fate.value.failed.is_subset_of(accused)) {
            return "validity: " + rank_text(rank) + " returned " +
                   describe(fate.value.failed.minus(accused)) + ", which nobody suspected";
        }
    }
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        if (run.fates[rank].stopped && !accused.contains(rank)) {
            return "validity: " + rank_text(rank) + " was told to stop, but nobody suspected it";
        }
    }
    return {};
}

std::string flags(const Plan &plan, const Run &run)
{
    std::uint64_t all = ~std::uint64_t{0};
    std::uint64_t survivors = all;
    std::optional<RankSet> acknowledged;
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        const Fate &fate = run.fates[rank];
        const Contribution &brings = plan.members[rank].brings;
        if (!fate.started) {
            continue;
        }
        all &= brings.flags;
        if (!fate.dead && !fate.stopped) {
            survivors &= brings.flags;
            acknowledged =
                acknowledged ? acknowledged->common(brings.acknowledged) : brings.acknowledged;
        }
    }
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        const Fate &fate = run.fates[rank];
        if (!fate.has_value || fate.dead || fate.stopped) {
            continue;
        }
        if ((fate.value.flags & ~survivors) != 0 || (all & ~fate.value.flags) != 0) {
            return "flags: " + rank_text(rank) +
                   " returned what is not the AND of the survivors' and perhaps others' flags";
        }
        if (!fate.value.acknowledged.is_subset_of(*acknowledged)) {
            return "flags: " + rank_text(rank) +
                   " holds for acknowledged by all what some survivor had not acknowledged";
        }
    }
    return {};
}

std::string termination(const Plan &plan, const Run &run)
{
    if (run.out_of_events) {
        return "termination: no end after " + std::to_string(plan.event_limit) + " events";
    }
    for (Rank rank = 0; rank < run.fates.size(); ++rank) {
        const Fate &fate = run.fates[rank];
        if (fate.started && !fate.dead && !fate.stopped && !fate.has_value) {
            return "termination: " + rank_text(rank) + " waits for ever";
        }
    }
    return {};
}

} // namespace

std::string check(const Plan &plan, const Run &run)
{
    if (!run.broken.empty()) {
        return run.broken;
    }
    for (const auto invariant : {agreement, validity, flags, termination}) {
        std::string broken = invariant(plan, run);
        if (!broken.empty()) {
            return broken;
        }
    }
    return {};
}

} // namespace sim
