#include "orte_glue/radixft/queue_mender.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <cstring>
#include <utility>

using namespace ft::radixft;
using Place = VaderQueue::Place;
using Link = VaderQueue::Link;
using Finding = VaderQueue::Finding;

namespace {

constexpr std::size_t ranks = 3;
constexpr std::size_t own = 1;
constexpr std::size_t bytes = 4096;
constexpr std::size_t before_offsets = 8;

constexpr Place place(std::size_t rank, std::uint32_t offset)
{
    return static_cast<Place>(static_cast<std::uint64_t>(rank) << 32 | offset);
}
constexpr Place a = place(0, 128);
constexpr Place b = place(2, 256);
constexpr Place lost = place(0, 512);
constexpr Place c = place(1, 1024);

/// Three processes' segments, and a queue in the second.
class Node : public QueueSurroundings {
  public:
    Node() : queue_(segments(), own, {1000, 2000})
    {
        *queue_.head() = *(queue_.head() + 1) = VaderQueue::nobody;
    }

    VaderQueue &queue() { return queue_; }
    /// Both steps of adding, or the first only.
    void add(Place fragment, bool whole = true)
    {
        Link const tail = queue_.head() + 1;
        *queue_.at(fragment) = VaderQueue::nobody;
        const Place last = std::exchange(*tail, fragment);
        if (whole) {
            *(last == VaderQueue::nobody ? queue_.head() : queue_.at(last)) = fragment;
        }
    }
    /// As the owner does: whom it takes, nobody when it waits for a link.
    Place read()
    {
        const Place taken = std::exchange(*queue_.head(), VaderQueue::nobody);
        if (taken == VaderQueue::nobody) {
            return taken;
        }
        if (*queue_.at(taken) != VaderQueue::nobody) {
            *queue_.head() = *queue_.at(taken);
        } else if (*(queue_.head() + 1) == taken) {
            *(queue_.head() + 1) = VaderQueue::nobody;
        } else {
            waits_for = queue_.at(taken);
            return VaderQueue::nobody;
        }
        return taken;
    }
    /// So many steps; how many gaps were closed.
    int steps(QueueMender &mender, int count)
    {
        int closed = 0;
        for (; count > 0 && mender.looking(); --count) {
            closed += mender.step(*this) ? 1 : 0;
        }
        return closed;
    }

    Finding look() override { return queue_.look(); }
    void note_neighbours() override { ++noted; }
    bool neighbours_went_on() override { return went_on; }
    std::optional<Link> awaited(Place) override
    {
        return known ? std::optional(waits_for) : std::nullopt;
    }
    Link head() override { return queue_.head(); }

    int noted = 0;
    bool went_on = true;
    bool known = true;
    Link waits_for = nullptr;

  private:
    std::vector<VaderQueue::Segment> segments()
    {
        std::vector<VaderQueue::Segment> all;
        for (auto &segment : memory_) {
            all.push_back({segment.data(), bytes});
        }
        return all;
    }

    alignas(64) std::array<std::array<std::byte, bytes>, ranks> memory_{};
    VaderQueue queue_;
};

QueueMender told()
{
    QueueMender mender;
    mender.on_death();
    return mender;
}

constexpr int plenty = 10 * QueueMender::patience;

void nothing_is_missing(void **)
{
    Node node;
    assert_int_equal(node.queue().look().kind, Finding::whole);
    node.add(a);
    node.add(b);
    assert_int_equal(node.queue().look().kind, Finding::whole);
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, 1), 0);
    assert_false(mender.looking());
    assert_int_equal(node.read(), a);
    assert_int_equal(node.read(), b);
    assert_int_equal(node.queue().look().kind, Finding::whole);
}

/// The owner has not come to the gap: where it is stands in the queue.
void ahead_of_the_owner(void **)
{
    Node node;
    node.add(a);
    node.add(b);
    node.add(lost, false);
    node.add(c);
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, QueueMender::patience), 0);
    assert_int_equal(node.noted, 1);
    assert_int_equal(node.steps(mender, plenty), 1);
    assert_false(mender.looking());
    assert_int_equal(node.read(), a);
    assert_int_equal(node.read(), b);
    assert_int_equal(node.read(), c);
    assert_int_equal(node.read(), VaderQueue::nobody);
    assert_null(node.waits_for);
}

/// The owner has taken the fragment before the gap, and waits.
void under_the_owner(void **)
{
    Node node;
    node.add(a);
    node.add(lost, false);
    assert_int_equal(node.read(), VaderQueue::nobody);
    assert_non_null(node.waits_for);
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, QueueMender::patience + QueueMender::certainty), 0);
    node.add(b); // that of somebody who lives comes behind
    assert_int_equal(node.steps(mender, plenty), 1);
    assert_int_equal(*node.queue().at(a), b);
    assert_int_equal(*node.head(), VaderQueue::nobody);
}

/// Nobody waits: the queue was empty.
void at_the_head(void **)
{
    Node node;
    node.add(lost, false);
    node.add(b);
    assert_int_equal(node.read(), VaderQueue::nobody);
    assert_null(node.waits_for);
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, plenty), 1);
    assert_int_equal(node.read(), b);
}

/// Who lives may be between both steps.
void not_while_it_may_be_a_living_one(void **)
{
    Node node;
    node.add(a);
    node.add(b, false);
    node.went_on = false;
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, plenty), 0);
    assert_true(mender.looking());
    *node.queue().at(a) = b; // it goes on
    assert_int_equal(node.steps(mender, plenty), 0);
    assert_false(mender.looking());
}

/// Another gap is watched from the beginning.
void each_gap_for_itself(void **)
{
    Node node;
    node.add(a);
    node.add(b, false);
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, QueueMender::patience), 0);
    *node.queue().at(a) = b;
    node.add(c, false);
    assert_int_equal(node.steps(mender, QueueMender::patience), 0);
    assert_int_equal(node.noted, 2);
    assert_int_equal(node.steps(mender, plenty), 1);
}

/// A thread that does not say where it stands may wait.
void not_when_nobody_knows_who_waits(void **)
{
    Node node;
    node.add(a);
    node.add(lost, false);
    node.read();
    node.known = false;
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, plenty), 0);
    assert_true(mender.looking());
    node.known = true;
    assert_int_equal(node.steps(mender, plenty), 1);
    assert_int_equal(*node.queue().at(a), lost);
}

void what_may_be_a_missing_link(void **)
{
    Node node;
    VaderQueue &queue = node.queue();
    node.add(a);
    node.add(lost, false);
    const auto address = reinterpret_cast<std::uintptr_t>(queue.at(a));
    assert_ptr_equal(queue.missing_at(address, lost), queue.at(a));
    assert_null(queue.missing_at(address, a)); // the last has none
    assert_null(queue.missing_at(address + 4, lost));
    assert_null(queue.missing_at(address - 128, lost)); // the queue itself
    assert_null(queue.missing_at(0, lost));
    *queue.at(a) = lost;
    assert_null(queue.missing_at(address, lost)); // there it is
    assert_true(queue.is_code(1000) && queue.is_code(1999));
    assert_false(queue.is_code(999) || queue.is_code(2000));
}

void places_that_are_none(void **)
{
    Node node;
    for (const Place wrong : {place(3, 128), place(0, 120), place(0, 132), place(0, bytes - 48),
                              Place{-1}, VaderQueue::nobody}) {
        assert_null(node.queue().at(wrong));
    }
    assert_non_null(node.queue().at(place(0, bytes - before_offsets - 48)));
    // A queue that leads nowhere is looked at again, and left alone in the end.
    node.add(a);
    *node.queue().head() = place(9, 128);
    QueueMender mender = told();
    assert_int_equal(node.steps(mender, 100000), 0);
    assert_false(mender.looking());
}

void found_in_the_maps(void **)
{
    static const char text[] =
        "55aa0ae38000-55aa0afb0000 rw-p 00000000 00:00 0                          [heap]\n"
        "7f0ba8dfc000-7f0ba91fd000 rw-s 00000000 00:1b 30220   "
        "/dev/shm/vader_segment.vm.0.24d20001.3\n"
        "7f0ba91fd000-7f0ba95fe000 rw-s 00000000 00:1b 30222   "
        "/dev/shm/vader_segment.n.1.0.24d20001.2 (deleted)\n"
        "7f0ba95fe000-7f0ba99ff000 rw-s 00000000 00:1b 30221   "
        "/dev/shm/vader_segment.vm.0.24d20002.1\n"
        "7f0bb01ec000-7f0bb01ee000 r--p 00000000 fe:00 148     /usr/lib/openmpi3/mca_btl_vader.so\n"
        "7f0bb01ee000-7f0bb01f5000 r-xp 00002000 fe:00 148     /usr/lib/openmpi3/mca_btl_vader.so\n"
        "nonsense\n"
        "7f0bb01f5000";
    const VaderQueue queue = VaderQueue::of(text, 0x24d20001, 3);
    assert_true(queue.usable());
    assert_ptr_equal(queue.head(), reinterpret_cast<void *>(0x7f0ba8dfc008));
    assert_ptr_equal(queue.at(place(2, 128)), reinterpret_cast<void *>(0x7f0ba91fd008 + 128));
    assert_null(queue.at(place(1, 128))); // of another job
    assert_true(queue.is_code(0x7f0bb01f1573));
    assert_false(queue.is_code(0x7f0bb01ec100));
    assert_false(VaderQueue::of(text, 0x24d20001, 1).usable());
    assert_false(VaderQueue::of("", 0x24d20001, 0).usable());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_missing),
        cmocka_unit_test(ahead_of_the_owner),
        cmocka_unit_test(under_the_owner),
        cmocka_unit_test(at_the_head),
        cmocka_unit_test(not_while_it_may_be_a_living_one),
        cmocka_unit_test(each_gap_for_itself),
        cmocka_unit_test(not_when_nobody_knows_who_waits),
        cmocka_unit_test(what_may_be_a_missing_link),
        cmocka_unit_test(places_that_are_none),
        cmocka_unit_test(found_in_the_maps),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
