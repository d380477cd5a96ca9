// Buffers of btl/vader that rest before they are used again. The BTL is a list of some buffers that
// gives out first what came back last, as Open MPI's free lists do.
#include "ompi/mca/pml/dr/resting.hpp"
#include "test/unit/cmocka.hpp"

#include <deque>
#include <set>
#include <vector>

using namespace ft;
using dr::Resting;

namespace {

constexpr std::size_t fragment_bytes = 32768;
constexpr std::size_t most_resting = 60; // 1920 KiB of them

struct Btl {
    mca_btl_base_module_t module{};
    std::deque<mca_btl_base_descriptor_t> made;
    std::vector<mca_btl_base_descriptor_t *> free;
    std::set<mca_btl_base_descriptor_t *> used;
    unsigned refused = 0;
} btl;

mca_btl_base_descriptor_t *allocate(mca_btl_base_module_t *, mca_btl_base_endpoint_t *,
                                    std::uint8_t, std::size_t, std::uint32_t flags)
{
    if (btl.free.empty()) {
        ++btl.refused;
        return nullptr;
    }
    mca_btl_base_descriptor_t *const des = btl.free.back();
    btl.free.pop_back();
    des->des_flags = static_cast<int>(flags);
    return des;
}

int give_back(mca_btl_base_module_t *, mca_btl_base_descriptor_t *des)
{
    btl.free.push_back(des);
    return OPAL_SUCCESS;
}

void set_up(std::size_t buffers)
{
    btl = Btl{};
    btl.module.btl_max_send_size = fragment_bytes;
    btl.module.btl_alloc = allocate;
    btl.module.btl_free = give_back;
    btl.made.resize(buffers);
    for (mca_btl_base_descriptor_t &des : btl.made) {
        btl.free.push_back(&des);
    }
}

mca_btl_base_descriptor_t *get(Resting &resting)
{
    const Resting::Buffer buffer =
        resting.get(&btl.module, nullptr, fragment_bytes, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    if (buffer.des != nullptr) {
        assert_true(!buffer.used_before || btl.used.contains(buffer.des));
        btl.used.insert(buffer.des);
    }
    return buffer.des;
}

/// With so many on their way at a time. \return after how many others one was used again, at least
std::size_t least_distance(Resting &resting, std::size_t under_way, std::size_t fragments)
{
    std::deque<mca_btl_base_descriptor_t *> sent;
    std::vector<mca_btl_base_descriptor_t *> order;
    std::size_t least = SIZE_MAX;
    for (std::size_t i = 0; i < fragments; ++i) {
        if (sent.size() == under_way) {
            resting.put(&btl.module, sent.front());
            sent.pop_front();
        }
        mca_btl_base_descriptor_t *const des = get(resting);
        assert_non_null(des);
        assert_int_equal(des->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, 0);
        for (std::size_t back = 0; back < order.size(); ++back) {
            if (order[order.size() - 1 - back] == des) {
                least = std::min(least, back);
                break;
            }
        }
        order.push_back(des);
        sent.push_back(des);
    }
    for (mca_btl_base_descriptor_t *des : sent) {
        resting.put(&btl.module, des);
    }
    return least;
}

/// As vader's 72, however many are under way.
void all_of_them_take_turns(void **)
{
    for (const std::size_t under_way : {1UL, 2UL, 11UL, 12UL, 13UL, 40UL, 71UL}) {
        set_up(72);
        Resting resting;
        const std::size_t least = least_distance(resting, under_way, 2000);
        assert_true(least >= most_resting - 1);
        // It costs a search of the BTL's, and is not asked for again and again.
        assert_true(btl.refused <= 1);
        resting.wake_all();
        assert_int_equal(btl.free.size(), 72);
    }
}

void few_take_turns_too(void **)
{
    set_up(5);
    Resting resting;
    assert_int_equal(least_distance(resting, 2, 100), 4);
    assert_true(btl.refused <= 1);
}

void none_left_is_said(void **)
{
    set_up(3);
    Resting resting;
    mca_btl_base_descriptor_t *const first = get(resting);
    assert_non_null(get(resting));
    assert_non_null(get(resting));
    assert_null(get(resting));
    resting.put(&btl.module, first);
    assert_ptr_equal(get(resting), first);
    assert_null(get(resting));
}

/// Others send through the BTL as well, and find some there as long as any rests here, and again
/// after a time when none did.
void some_are_left_to_others(void **)
{
    set_up(72);
    Resting resting;
    least_distance(resting, 59, 500);
    assert_int_equal(btl.free.size(), 72 - most_resting);
    least_distance(resting, 70, 500);
    assert_int_equal(btl.free.size(), 72 - most_resting);
    const std::set<mca_btl_base_descriptor_t *> all(btl.free.begin(), btl.free.end());
    assert_int_equal(all.size(), btl.free.size()); // none was given back twice
}

/// What others had taken is used again once they have given it back and none rests.
void what_others_gave_back_is_found(void **)
{
    set_up(20);
    std::vector<mca_btl_base_descriptor_t *> others;
    while (btl.free.size() > 3) {
        others.push_back(allocate(&btl.module, nullptr, 0, fragment_bytes, 0));
    }
    Resting resting;
    assert_int_equal(least_distance(resting, 2, 100), 2);
    for (mca_btl_base_descriptor_t *des : others) {
        give_back(&btl.module, des);
    }
    std::vector<mca_btl_base_descriptor_t *> sent;
    for (int i = 0; i < 20; ++i) {
        mca_btl_base_descriptor_t *const des = get(resting);
        assert_non_null(des);
        sent.push_back(des);
    }
    for (mca_btl_base_descriptor_t *des : sent) {
        resting.put(&btl.module, des);
    }
    assert_true(least_distance(resting, 2, 100) >= 18);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_of_them_take_turns),
        cmocka_unit_test(few_take_turns_too),
        cmocka_unit_test(none_left_is_said),
        cmocka_unit_test(some_are_left_to_others),
        cmocka_unit_test(what_others_gave_back_is_found),
    };
    return cmocka_run_group_tests_name("resting", tests, nullptr, nullptr);
}
