#include "orte_glue/radixft/stalls.hpp"

#include <algorithm>

namespace ft::radixft {

unsigned Stalls::look(base::Time now, NodeId id, const Progress &progress)
{
    if (!progress.waits) {
        waiting_.erase(id);
        return 0;
    }
    const auto [at, first] = waiting_.try_emplace(id, Since{progress.mark, now, patience, 0});
    Since &since = at->second;
    if (since.mark != progress.mark) {
        since = {progress.mark, now, patience, 0};
    }
    if (first || now - since.time < since.patience) {
        return 0;
    }
    since.time = now;
    since.patience = std::min(since.patience * 2, most_patience);
    return ++since.times;
}

bool is_broken(unsigned times, const Progress &progress)
{
    // A daemon may be long in answering a greeting.
    return progress.greeting ? times > 2 : times > 1 && progress.resends;
}

std::optional<std::size_t> better_address(std::span<const Knock> answers, std::size_t used,
                                          bool broken)
{
    if (broken && used < answers.size() && answers[used] == Knock::accepted) {
        return used;
    }
    const auto other = std::find(answers.begin(), answers.end(), Knock::accepted);
    if (used >= answers.size() || answers[used] != Knock::silent || other == answers.end()) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(other - answers.begin());
}

} // namespace ft::radixft
