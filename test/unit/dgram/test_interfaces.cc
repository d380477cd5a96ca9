#include "opal/mca/btl/dgram/interfaces.hpp"
#include "test/unit/cmocka.hpp"

#include <string>

using namespace ft::dgram;

namespace {

Interface make(const char *name, std::uint32_t address, bool loopback = false)
{
    return {name, address, 0xffffff00, 1500, loopback};
}

const std::vector<Interface> &host()
{
    static const std::vector<Interface> all{make("lo", 0x7f000001, true), make("eth0", 0x0a010005),
                                            make("eth1", 0x0a020005)};
    return all;
}

/// Names of the interfaces that the lists choose; "!" and the word when a list is wrong.
std::string chosen(const char *include, const char *exclude = "")
{
    std::vector<Selector> in;
    std::vector<Selector> out;
    std::string bad;
    if (!parse_selectors(include, in, bad) || !parse_selectors(exclude, out, bad)) {
        return "!" + bad;
    }
    std::string names;
    for (const Interface &interface : choose(host(), in, out)) {
        names += interface.name + " ";
    }
    return names;
}

void lists_choose_by_name_and_network(void **)
{
    assert_string_equal(chosen("").c_str(), "eth0 eth1 ");
    assert_string_equal(chosen("eth1").c_str(), "eth1 ");
    assert_string_equal(chosen("10.1.0.0/16").c_str(), "eth0 ");
    assert_string_equal(chosen("10.0.0.0/8").c_str(), "eth0 eth1 ");
    assert_string_equal(chosen("10.2.0.5").c_str(), "eth1 ");
    assert_string_equal(chosen("0.0.0.0/0").c_str(), "lo eth0 eth1 ");
    assert_string_equal(chosen("lo,eth1").c_str(), "lo eth1 ");
    assert_string_equal(chosen("ib0,192.168.0.0/24").c_str(), "");
}

void exclusion_leaves_the_rest_and_loopback_last(void **)
{
    assert_string_equal(chosen("", "eth0").c_str(), "eth1 ");
    assert_string_equal(chosen("", "10.0.0.0/8").c_str(), "lo ");
    assert_string_equal(chosen("", "10.0.0.0/8,lo").c_str(), "");
}

void wrong_words_are_named(void **)
{
    assert_string_equal(chosen("eth0,10.1.0.0/33").c_str(), "!10.1.0.0/33");
    assert_string_equal(chosen("10.1.0/16").c_str(), "!10.1.0/16");
    assert_string_equal(chosen("300.1.0.0").c_str(), "!300.1.0.0");
    assert_string_equal(chosen("eth0/24").c_str(), "!eth0/24");
    assert_string_equal(chosen("eth0,,eth1").c_str(), "!");
    assert_string_equal(chosen("", "a-name-that-is-too-long").c_str(), "!a-name-that-is-too-long");
}

void this_host_has_loopback(void **)
{
    bool found = false;
    for (const Interface &interface : local_interfaces()) {
        found = found || (interface.loopback && interface.mtu >= 1500);
    }
    assert_true(found);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(lists_choose_by_name_and_network),
        cmocka_unit_test(exclusion_leaves_the_rest_and_loopback_last),
        cmocka_unit_test(wrong_words_are_named),
        cmocka_unit_test(this_host_has_loopback),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
