#include "orte_glue/radixft/queue_mender.hpp"

namespace ft::radixft {

namespace {

/// A queue that never stands still while it is looked at is one that is read: no gap keeps its
/// owner. One that comes later is found when somebody else dies, or not; this many looks are a
/// hundred times what was ever needed.
constexpr int most_looks = 10000;

} // namespace

bool QueueMender::step(QueueSurroundings &around)
{
    const VaderQueue::Finding found = around.look();
    looks_ += found.kind == VaderQueue::Finding::moving ? 1 : 0;
    if (found.kind == VaderQueue::Finding::whole || looks_ > most_looks) {
        looking_ = false;
        gap_ = {};
        return false;
    }
    if (!found.same_gap(gap_)) {
        gap_ = found;
        seen_ = sure_ = 0;
        awaited_.reset();
        if (found.kind == VaderQueue::Finding::gap) {
            around.note_neighbours();
        }
        return false;
    }
    gap_.tail = found.tail; // others may have added since
    return ++seen_ >= patience && around.neighbours_went_on() && close(around);
}

bool QueueMender::close(QueueSurroundings &around)
{
    VaderQueue::Link link = gap_.link;
    if (link == nullptr) {
        const std::optional<VaderQueue::Link> awaited = around.awaited(gap_.tail);
        sure_ = awaited && awaited == awaited_ ? sure_ + 1 : 0;
        awaited_ = awaited;
        if (sure_ < certainty) {
            return false;
        }
        link = *awaited == nullptr ? around.head() : *awaited;
    }
    const VaderQueue::Place tail = gap_.tail;
    gap_ = {};
    return VaderQueue::put(link, tail);
}

} // namespace ft::radixft
