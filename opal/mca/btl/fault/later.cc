#include "opal/mca/btl/fault/later.hpp"

#include <utility>

namespace ft::fault {

void LaterQueue::after_overtaken(unsigned count, base::Time latest, Later later)
{
    waiting_.push_back(Waiting{count, latest, std::move(later)});
}

void LaterQueue::overtaken(Direction direction, const void *endpoint)
{
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (it->later.direction != direction || it->later.endpoint != endpoint || --it->count > 0) {
            ++it;
            continue;
        }
        timed_.emplace(base::Time::zero(), std::move(it->later));
        it = waiting_.erase(it);
    }
}

std::optional<Later> LaterQueue::pop_due(base::Time now)
{
    std::optional<Later> due;
    if (!timed_.empty() && timed_.begin()->first <= now) {
        due = std::move(timed_.begin()->second);
        timed_.erase(timed_.begin());
    } else if (!waiting_.empty() && waiting_.front().latest <= now) {
        due = std::move(waiting_.front().later);
        waiting_.pop_front();
    }
    return due;
}

void LaterQueue::abandon(const void *endpoint)
{
    const auto concerns = [endpoint](const Later &later) {
        return endpoint == nullptr || later.endpoint == endpoint;
    };
    const auto give_up = [](const Later &later) {
        if (later.abandon) {
            later.abandon();
        }
    };
    for (auto it = timed_.begin(); it != timed_.end();) {
        if (!concerns(it->second)) {
            ++it;
            continue;
        }
        give_up(it->second);
        it = timed_.erase(it);
    }
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (!concerns(it->later)) {
            ++it;
            continue;
        }
        give_up(it->later);
        it = waiting_.erase(it);
    }
}

} // namespace ft::fault
