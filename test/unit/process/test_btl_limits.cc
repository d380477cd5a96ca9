// What processes tell each other of the fragments that they can take: whole, or nothing is
// believed.
#include "ompi/mca/pml/dr/btl_limits.hpp"
#include "opal/ft/base/rng.hpp"
#include "test/unit/cmocka.hpp"

#include <array>

using namespace ft;
using dr::BtlLimits;

namespace {

constexpr std::uint64_t tcp_bytes = 600000;
constexpr std::uint64_t vader_bytes = 32768;

std::vector<std::byte> told()
{
    BtlLimits limits;
    limits.add("tcp", tcp_bytes + 1);
    limits.add("tcp", tcp_bytes); // its second module
    limits.add("vader", vader_bytes);
    std::vector<std::byte> blob(1024);
    blob.resize(limits.write(blob));
    return blob;
}

void the_least_of_a_btl_s_modules_holds(void **)
{
    const auto blob = told();
    const BtlLimits limits = BtlLimits::read(blob);
    const std::size_t tcp = limits.over("tcp");
    const std::size_t vader = limits.over("vader");
    const std::size_t other = limits.over("tc");
    assert_int_equal(blob.size(), 4 + 2 * (1 + 3 + 8) + 1 + 5 + 8);
    assert_int_equal(tcp, tcp_bytes);
    assert_int_equal(vader, vader_bytes);
    assert_int_equal(other, BtlLimits::unsaid);
}

void who_needs_no_checksums_of_headers_says_so(void **)
{
    BtlLimits limits;
    limits.add("tcp", tcp_bytes);
    const bool before = limits.trusts();
    limits.add_trust();
    std::vector<std::byte> blob(1024);
    blob.resize(limits.write(blob));
    const BtlLimits there = BtlLimits::read(blob);
    const bool after = there.trusts();
    const bool of_none = BtlLimits::read({}).trusts();
    assert_true(!before && after && !of_none);
    assert_int_equal(there.over("tcp"), tcp_bytes);
}

void what_does_not_fit_is_not_told(void **)
{
    BtlLimits limits;
    for (int i = 0; i < 100; ++i) {
        limits.add("tcp", tcp_bytes);
    }
    std::array<std::byte, 1024> blob;
    assert_int_equal(limits.write(blob), 0);
}

// A process that said something else than it meant must be sent what everybody can take.
void of_a_part_nothing_is_believed(void **)
{
    const auto blob = told();
    unsigned believed = 0;
    for (std::size_t bytes = 0; bytes < blob.size(); ++bytes) {
        const BtlLimits limits = BtlLimits::read(std::span(blob).first(bytes));
        // Where one module's entry ends, those before it are a whole message themselves.
        const bool whole = bytes == 4 || bytes == 16 || bytes == 28;
        believed += !whole && limits.over("tcp") != BtlLimits::unsaid ? 1U : 0U;
    }
    auto longer = blob;
    longer.push_back(std::byte{0});
    const std::size_t with_more = BtlLimits::read(longer).over("tcp");
    auto other = blob;
    other[0] ^= std::byte{1};
    const std::size_t of_others = BtlLimits::read(other).over("tcp");
    const std::size_t of_none = BtlLimits::read({}).over("tcp");
    assert_int_equal(believed, 0);
    assert_int_equal(with_more, BtlLimits::unsaid);
    assert_int_equal(of_others, BtlLimits::unsaid);
    assert_int_equal(of_none, BtlLimits::unsaid);
}

// What is read is what its own form says, or nothing, whatever the bytes are.
void no_bytes_do_harm(void **)
{
    base::Rng rng(1);
    unsigned wrong = 0;
    unsigned believed = 0;
    for (int round = 0; round < 200'000; ++round) {
        auto blob = told();
        const auto changes = rng.between(1, 4);
        for (std::uint64_t i = 0; i < changes; ++i) {
            blob[rng.below(blob.size())] = static_cast<std::byte>(rng.next());
        }
        if (rng.chance(0.3)) {
            blob.resize(rng.below(blob.size() + 1));
        }
        const BtlLimits limits = BtlLimits::read(blob);
        std::vector<std::byte> again(blob.size() + 4);
        again.resize(limits.write(again));
        const bool nothing = again.size() == 4;
        believed += nothing ? 0U : 1U;
        wrong += nothing || again == blob ? 0U : 1U;
        wrong += nothing && limits.over("tcp") != BtlLimits::unsaid ? 1U : 0U;
    }
    assert_int_equal(wrong, 0);
    assert_true(believed > 1000); // sizes that changed are as good as others
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_a_btl_s_modules_holds),
        cmocka_unit_test(who_needs_no_checksums_of_headers_says_so),
        cmocka_unit_test(what_does_not_fit_is_not_told),
        cmocka_unit_test(of_a_part_nothing_is_believed),
        cmocka_unit_test(no_bytes_do_harm),
    };
    return cmocka_run_group_tests_name("btl_limits", tests, nullptr, nullptr);
}
