#include "opal/ft/datagram/reassembly.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

using namespace ft::dgram;

namespace {

bool no_memory = false;

} // namespace

// In place of the library's own.
void *operator new(std::size_t bytes)
{
    if (void *memory = no_memory ? nullptr : std::malloc(bytes); memory != nullptr) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void *memory) noexcept
{
    std::free(memory);
}
void operator delete(void *memory, std::size_t /*bytes*/) noexcept
{
    std::free(memory);
}

namespace {

constexpr std::uint32_t total = 1000;
constexpr std::uint32_t step = 300;

std::vector<std::byte> content(std::uint32_t number)
{
    std::vector<std::byte> bytes(total);
    for (std::uint32_t i = 0; i < total; ++i) {
        bytes[i] = static_cast<std::byte>(i * 7 + number);
    }
    return bytes;
}

/// \return the bytes of what became whole
std::size_t give(Reassembly &reassembly, std::uint32_t sender, std::uint32_t number,
                 std::uint32_t index, bool &right)
{
    Header header;
    header.kind = Kind::part;
    header.sender = sender;
    header.number = number;
    header.total = total;
    header.offset = index * step;
    const auto bytes = content(number + sender);
    const auto piece =
        std::span(bytes).subspan(header.offset, std::min(step, total - header.offset));
    const auto whole = reassembly.take(header, piece);
    right = right && (whole.empty() || std::equal(whole.begin(), whole.end(), bytes.begin()));
    return whole.size();
}

void parts_in_any_order_make_the_fragment_once(void **)
{
    bool right = true;
    bool once = true;
    std::vector<std::uint32_t> order{0, 1, 2, 3};
    std::uint32_t number = 0;
    Reassembly reassembly;
    do {
        ++number;
        for (std::size_t i = 0; i < order.size(); ++i) {
            const std::size_t whole = give(reassembly, 5, number, order[i], right);
            once = once && whole == (i == 3 ? total : 0);
        }
    } while (std::next_permutation(order.begin(), order.end()));
    assert_true(right && once);
    assert_int_equal(reassembly.given_up(), 0);
}

void a_part_that_comes_twice_completes_nothing(void **)
{
    Reassembly reassembly;
    bool right = true;
    std::size_t whole = 0;
    for (const std::uint32_t index : {0U, 0U, 1U, 1U, 2U, 2U}) {
        whole += give(reassembly, 5, 1, index, right);
    }
    const std::size_t last = give(reassembly, 5, 1, 3, right);
    assert_int_equal(whole, 0);
    assert_int_equal(last, total);
    assert_true(right);
}

void senders_and_numbers_do_not_mix(void **)
{
    Reassembly reassembly;
    bool right = true;
    std::size_t whole = 0;
    for (std::uint32_t index = 0; index < 4; ++index) {
        for (std::uint32_t sender = 0; sender < 4; ++sender) {
            for (std::uint32_t number = 0; number < 4; ++number) {
                whole += give(reassembly, sender, number, index, right);
            }
        }
    }
    assert_int_equal(whole, 16 * total);
    assert_true(right);
}

void the_oldest_gives_way_and_memory_is_bounded(void **)
{
    Reassembly reassembly;
    bool right = true;
    for (std::uint32_t number = 0; number < 1000; ++number) {
        static_cast<void>(give(reassembly, 5, number, 1, right));
    }
    std::size_t whole = 0;
    for (const std::uint32_t index : {0U, 2U, 3U}) {
        whole += give(reassembly, 5, 999, index, right); // among the newest: still there
    }
    for (const std::uint32_t index : {0U, 2U, 3U}) {
        whole += give(reassembly, 5, 0, index, right); // long gone: its first part is missing
    }
    assert_int_equal(whole, total);
    assert_true(right);
    assert_int_equal(reassembly.given_up(), 1000 - Reassembly::most_of_a_sender);
}

/// A switch hands on the packets of all senders in turn.
void many_senders_at_once_take_no_place_from_each_other(void **)
{
    constexpr std::uint32_t senders = 1000;
    Reassembly reassembly;
    bool right = true;
    std::size_t whole = 0;
    for (std::uint32_t number = 0; number < 3; ++number) {
        for (std::uint32_t index = 0; index < 4; ++index) {
            for (std::uint32_t sender = 0; sender < senders; ++sender) {
                whole += give(reassembly, sender, number, index, right);
            }
        }
    }
    assert_int_equal(whole, 3 * senders * total);
    assert_true(right);
    assert_int_equal(reassembly.given_up(), 0);
}

/// What others have lost parts of takes no more than so many bytes, and none from who comes last.
void all_together_are_bounded_in_bytes(void **)
{
    constexpr std::uint32_t fitting = Reassembly::most_bytes / most_fragment_bytes;
    Reassembly reassembly;
    std::vector<std::byte> half(most_fragment_bytes / 2);
    Header header;
    header.kind = Kind::part;
    header.total = most_fragment_bytes;
    for (header.sender = 0; header.sender < fitting + 10; ++header.sender) {
        static_cast<void>(reassembly.take(header, half));
    }
    assert_int_equal(reassembly.given_up(), 10);
    header.offset = most_fragment_bytes / 2;
    std::size_t whole = 0;
    for (const std::uint32_t sender : {fitting + 9, 10U, 9U}) { // the last was given up
        header.sender = sender;
        whole += reassembly.take(header, half).size();
    }
    assert_int_equal(whole, 2 * most_fragment_bytes);
}

void contradicting_parts_are_dropped(void **)
{
    Reassembly reassembly;
    bool right = true;
    static_cast<void>(give(reassembly, 5, 1, 0, right));
    Header header;
    header.kind = Kind::part;
    header.sender = 5;
    header.number = 1;
    header.total = 100;
    const std::vector<std::byte> bytes(100);
    const std::size_t whole = reassembly.take(header, bytes).size();
    assert_int_equal(whole, 0);
}

/// Of a fragment that finds no memory nothing may be left that a later part is written to.
void a_fragment_without_memory_is_as_if_it_were_lost(void **)
{
    bool thrown = false;
    bool right = true;
    std::size_t whole[2] = {};
    std::uint64_t given_up = 0;
    {
        Reassembly reassembly;
        Header header;
        header.kind = Kind::part;
        header.number = 1;
        header.total = total;
        const std::vector<std::byte> bytes(step);
        no_memory = true;
        try {
            static_cast<void>(reassembly.take(header, bytes));
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        no_memory = false;
        for (const std::uint32_t index : {1U, 2U, 3U}) {
            whole[0] += give(reassembly, 0, 1, index, right);
        }
        whole[1] = give(reassembly, 0, 1, 0, right); // sent again
        given_up = reassembly.given_up();
    }
    assert_true(thrown && right);
    assert_int_equal(whole[0], 0);
    assert_int_equal(whole[1], total);
    assert_int_equal(given_up, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(parts_in_any_order_make_the_fragment_once),
        cmocka_unit_test(a_part_that_comes_twice_completes_nothing),
        cmocka_unit_test(senders_and_numbers_do_not_mix),
        cmocka_unit_test(the_oldest_gives_way_and_memory_is_bounded),
        cmocka_unit_test(many_senders_at_once_take_no_place_from_each_other),
        cmocka_unit_test(all_together_are_bounded_in_bytes),
        cmocka_unit_test(contradicting_parts_are_dropped),
        cmocka_unit_test(a_fragment_without_memory_is_as_if_it_were_lost),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
