// Fragments of btl/vader that a dead receiver keeps: taken back when nobody can write to them any
// more, and not before. What vader does to a header is done here by hand, as its source says it.
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

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_in_a_fast_box_is_taken_back),
        cmocka_unit_test(the_last_in_a_queue_is_kept_until_another_is_behind_it),
        cmocka_unit_test(one_that_the_receiver_was_putting_back_is_kept),
        cmocka_unit_test(one_that_vader_was_not_given_is_kept),
        cmocka_unit_test(another_layout_is_left_alone),
    };
    return cmocka_run_group_tests_name("vader_fragment", tests, nullptr, nullptr);
}
