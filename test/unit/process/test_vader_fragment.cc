// Fragments of btl/vader that a dead receiver keeps: taken back when nobody can write to them any
// more, and not before. What vader does to a header is done here by hand, as its source says it.
#include "ompi/mca/pml/dr/in_list.hpp"
#include "ompi/mca/pml/dr/vader_fragment.hpp"
#include "test/unit/cmocka.hpp"

#include <cstring>

using namespace ft;
using dr::VaderFragment;

namespace {

constexpr mca_btl_base_tag_t our_tag = 79;
constexpr std::intptr_t queue_end = -2;
constexpr std::intptr_t behind = (std::intptr_t{3} << 32) + 4096;
constexpr std::uint8_t complete = 2;
constexpr std::uint8_t sets_up_box = 4;

/// mca_btl_vader_hdr_t of Open MPI 4.1.
struct Header {
    std::intptr_t next;
    void *frag;
    mca_btl_base_tag_t tag;
    std::uint8_t flags;
    std::int32_t len;
    iovec sc_iov;
    std::intptr_t fbox_base;
};

/// One fragment as it comes out of vader's free list, marked.
struct Buffer {
    struct {
        Header header;
        char payload[64];
    } memory{};
    mca_btl_base_segment_t segment{};
    mca_btl_base_descriptor_t des{};

    Buffer()
    {
        memory.header.frag = &des;
        memory.header.next = queue_end; // as its life before has left it
        memory.header.tag = our_tag;
        segment.seg_addr.pval = memory.payload;
        des.super.ptr = &memory;
        des.des_segments = &segment;
        des.des_segment_count = 1;
        mark();
    }
    void mark()
    {
        if (VaderFragment *fragment = VaderFragment::of(des); fragment != nullptr) {
            fragment->mark();
        }
    }
    bool abandoned() const
    {
        const VaderFragment *fragment = VaderFragment::of(des);
        return fragment != nullptr && fragment->abandoned(our_tag);
    }
    void into_box() { memory.header.tag = our_tag; }
    void into_queue()
    {
        memory.header.tag = our_tag;
        memory.header.next = queue_end;
    }
};

void one_in_a_fast_box_is_taken_back(void **)
{
    Buffer buffer;
    buffer.into_box();
    assert_true(buffer.abandoned());
}

void the_last_in_a_queue_is_kept_until_another_is_behind_it(void **)
{
    Buffer buffer;
    buffer.into_queue();
    buffer.memory.header.flags = sets_up_box;
    assert_false(buffer.abandoned());
    buffer.memory.header.next = behind;
    assert_true(buffer.abandoned());
}

void one_that_the_receiver_was_putting_back_is_kept(void **)
{
    Buffer buffer;
    buffer.into_box();
    buffer.memory.header.flags = complete;
    assert_false(buffer.abandoned());
    buffer.memory.header.next = queue_end;
    assert_false(buffer.abandoned());
    buffer.memory.header.next = behind;
    assert_false(buffer.abandoned());
}

// btl/fault keeps some back.
void one_that_vader_was_not_given_is_kept(void **)
{
    Buffer buffer;
    assert_false(buffer.abandoned());
    buffer.into_box();
    assert_true(buffer.abandoned());
    buffer.mark();
    assert_false(buffer.abandoned());
}

void another_layout_is_left_alone(void **)
{
    Buffer elsewhere;
    elsewhere.into_box();
    elsewhere.memory.header.frag = &elsewhere;
    assert_false(elsewhere.abandoned());
    Buffer longer;
    longer.into_box();
    longer.segment.seg_addr.pval = longer.memory.payload + 8;
    const Header before = longer.memory.header;
    longer.mark();
    assert_memory_equal(&before, &longer.memory.header, sizeof before);
    Buffer none;
    none.des.super.ptr = nullptr;
    assert_false(none.abandoned());
}

/// Those for a receiver whose fast box is full, in a list of Open MPI's.
struct Pending {
    opal_list_t list;
    Pending() { OBJ_CONSTRUCT(&list, opal_list_t); }
    ~Pending() { OBJ_DESTRUCT(&list); }
    Pending(const Pending &) = delete;
    Pending &operator=(const Pending &) = delete;
    void append(Buffer &buffer) { opal_list_append(&list, &buffer.des.super.super); }
    void remove_first() { opal_list_remove_first(&list); }
};

void one_is_in_a_list_until_it_is_taken_out(void **)
{
    Pending pending;
    Buffer first, second, third;
    assert_false(dr::in_list(first.des));
    pending.append(first);
    assert_true(dr::in_list(first.des));
    pending.append(second);
    pending.append(third);
    assert_true(dr::in_list(first.des) && dr::in_list(second.des) && dr::in_list(third.des));
    pending.remove_first();
    assert_false(dr::in_list(first.des));
    assert_true(dr::in_list(second.des) && dr::in_list(third.des));
    pending.remove_first();
    pending.remove_first();
    assert_false(dr::in_list(first.des) || dr::in_list(second.des) || dr::in_list(third.des));
}

/// What one was before is in that list again, or in another one.
void one_that_was_taken_out_stays_out(void **)
{
    Pending pending, elsewhere;
    Buffer first, second, third;
    pending.append(first);
    pending.append(second);
    pending.remove_first();
    pending.append(third);
    assert_false(dr::in_list(first.des));
    pending.remove_first();
    elsewhere.append(second);
    assert_false(dr::in_list(first.des));
    assert_true(dr::in_list(second.des) && dr::in_list(third.des));
    elsewhere.append(first);
    assert_true(dr::in_list(first.des));
    elsewhere.remove_first();
    assert_false(dr::in_list(second.des));
    assert_true(dr::in_list(first.des));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_in_a_fast_box_is_taken_back),
        cmocka_unit_test(the_last_in_a_queue_is_kept_until_another_is_behind_it),
        cmocka_unit_test(one_that_the_receiver_was_putting_back_is_kept),
        cmocka_unit_test(one_that_vader_was_not_given_is_kept),
        cmocka_unit_test(another_layout_is_left_alone),
        cmocka_unit_test(one_is_in_a_list_until_it_is_taken_out),
        cmocka_unit_test(one_that_was_taken_out_stays_out),
    };
    return cmocka_run_group_tests_name("vader_fragment", tests, nullptr, nullptr);
}
