// How long fragments are copied into shared memory: through the caches or past them, by the times
// that copies take. Speeds in bytes per nanosecond (GB/s).
#include "ompi/mca/pml/dr/copy_way.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft;
using dr::CopyWay;

namespace {

constexpr std::size_t bytes = 32704;
constexpr double near_cores = 30;
constexpr double far_cores = 2;

struct Seen {
    unsigned past_caches = 0;
    unsigned timed = 0;
};

/// \param speed of a copy through the caches
Seen copy(CopyWay &way, unsigned fragments, double speed)
{
    Seen seen;
    for (unsigned i = 0; i < fragments; ++i) {
        const CopyWay::Next next = way.next();
        seen.past_caches += next.past_caches ? 1 : 0;
        seen.timed += next.timed ? 1 : 0;
        assert_false(next.past_caches && next.timed); // what went past them says nothing of them
        if (next.timed) {
            way.took(bytes, base::Duration::from_ns(static_cast<std::int64_t>(bytes / speed)));
        }
    }
    return seen;
}

void near_cores_copy_through_their_caches(void **)
{
    CopyWay way;
    const Seen seen = copy(way, 8000, near_cores);
    assert_int_equal(seen.past_caches, 0);
    assert_int_equal(seen.timed, 1000);
}

void far_cores_go_past_them_after_three_looks(void **)
{
    CopyWay way;
    assert_int_equal(copy(way, 24, far_cores).past_caches, 0);
    const Seen seen = copy(way, 6400, far_cores);
    assert_int_equal(seen.past_caches + seen.timed, 6400);
    assert_int_equal(seen.timed, 100);
}

void a_process_that_was_put_aside_is_slow_once(void **)
{
    CopyWay way;
    for (unsigned i = 0; i < 100; ++i) {
        assert_int_equal(copy(way, 16, 0.01).past_caches, 0); // two looks
        assert_int_equal(copy(way, 8, near_cores).past_caches, 0);
    }
}

void cores_that_come_nearer_are_noticed(void **)
{
    CopyWay way;
    copy(way, 100, far_cores);
    assert_true(copy(way, 64, far_cores).past_caches != 0);
    copy(way, 3 * 64, near_cores);
    assert_int_equal(copy(way, 1000, near_cores).past_caches, 0);
    copy(way, 3 * 8, far_cores);
    assert_true(copy(way, 64, far_cores).past_caches != 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(near_cores_copy_through_their_caches),
        cmocka_unit_test(far_cores_go_past_them_after_three_looks),
        cmocka_unit_test(a_process_that_was_put_aside_is_slow_once),
        cmocka_unit_test(cores_that_come_nearer_are_noticed),
    };
    return cmocka_run_group_tests_name("copy_way", tests, nullptr, nullptr);
}
