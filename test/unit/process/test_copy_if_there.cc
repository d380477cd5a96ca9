// Memory that may be gone is copied if it is there, and nobody crashes if it is not.
#include "ompi/mca/pml/dr/copy_if_there.hpp"
#include "test/unit/cmocka.hpp"

#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>

using namespace ft;
using dr::Copied;

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t pages = 40; // more than a pipe takes at once

using Way = Copied (*)(std::byte *to, std::span<const std::byte> from);

void with(Way way)
{
    void *const memory =
        mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    auto *const bytes = static_cast<std::byte *>(memory);
    for (std::size_t i = 0; i < pages * page; ++i) {
        bytes[i] = static_cast<std::byte>(i * 37 + (i >> 8));
    }
    std::vector<std::byte> to(pages * page);
    assert_true(way(to.data(), {bytes, to.size()}) == Copied::whole);
    assert_memory_equal(to.data(), bytes, to.size());
    assert_true(way(to.data(), {bytes + 5, 1}) == Copied::whole);
    assert_true(to[0] == bytes[5]);

    // Its end, its middle, and all of it.
    assert_int_equal(mprotect(bytes + (pages - 1) * page, page, PROT_NONE), 0);
    assert_true(way(to.data(), {bytes, to.size()}) == Copied::gone);
    assert_int_equal(munmap(bytes + 20 * page, page), 0);
    assert_true(way(to.data(), {bytes + 19 * page, 3 * page}) == Copied::gone);
    assert_true(way(to.data(), {bytes + page, page}) == Copied::whole);
    assert_int_equal(munmap(bytes, pages * page), 0);
    assert_true(way(to.data(), {bytes, to.size()}) == Copied::gone);
    assert_true(way(to.data(), {bytes + 7, 1}) == Copied::gone);
}

void as_it_comes(void **)
{
    with(dr::copy_if_there);
}

void as_to_another_process(void **)
{
    std::byte from{1};
    std::byte to{};
    if (dr::detail::copy_as_to_another(&to, {&from, 1}) == Copied::not_now) {
        return; // not permitted here
    }
    with(dr::detail::copy_as_to_another);
}

void by_a_pipe(void **)
{
    with(dr::detail::copy_by_pipe);
}

void without_file_descriptors_it_is_tried_again(void **)
{
    rlimit before{};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    std::byte from{1};
    std::byte to{};
    const Copied copied = dr::detail::copy_by_pipe(&to, {&from, 1});
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(copied == Copied::not_now);
    assert_true(dr::detail::copy_by_pipe(&to, {&from, 1}) == Copied::whole);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(as_it_comes),
        cmocka_unit_test(as_to_another_process),
        cmocka_unit_test(by_a_pipe),
        cmocka_unit_test(without_file_descriptors_it_is_tried_again),
    };
    return cmocka_run_group_tests_name("copy_if_there", tests, nullptr, nullptr);
}
