#include "opal/mca/btl/base/interfaces.hpp"
#include "test/unit/cmocka.hpp"

#include <string>

using namespace ft::btl;

namespace {

Interface make(const char *name, std::uint32_t address, bool loopback = false)
{
    return {name, IpAddress::v4(address), 96 + 24, 1500, loopback};
}

/// fd00:NET::HOST/64
Interface make_v6(const char *name, std::uint8_t net, std::uint8_t host)
{
    Interface interface {
        name, {}, 64, 1500, false
    };
    interface.address.bytes[0] = 0xfd;
    interface.address.bytes[3] = net;
    interface.address.bytes[15] = host;
    return interface;
}

/// eth0 has one family, eth1 both, eth2 two addresses of the other.
const std::vector<Interface> &host()
{
    static const std::vector<Interface> all{make("lo", 0x7f000001, true), make("eth0", 0x0a010005),
                                            make("eth1", 0x0a020005),     make_v6("eth1", 1, 5),
                                            make_v6("eth2", 2, 5),        make_v6("eth2", 3, 6)};
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
        names += interface.name + (interface.address.is_v4() ? " " : "/6 ");
    }
    return names;
}

void lists_choose_by_name_and_network(void **)
{
    assert_string_equal(chosen("").c_str(), "eth0 eth1 eth2/6 ");
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
    assert_string_equal(chosen("", "eth0").c_str(), "eth1 eth2/6 ");
    assert_string_equal(chosen("", "10.0.0.0/8,eth2").c_str(), "lo ");
    assert_string_equal(chosen("", "10.0.0.0/8,eth2,lo").c_str(), "");
}

void an_address_of_ipv6_is_for_interfaces_without_another(void **)
{
    assert_string_equal(chosen("eth1").c_str(), "eth1 ");
    assert_string_equal(chosen("eth2").c_str(), "eth2/6 ");
    assert_string_equal(chosen("fd00:1::/64").c_str(), "eth1/6 "); // named: its network
    assert_string_equal(chosen("fd00::/16").c_str(), "eth1/6 eth2/6 eth2/6 ");
    assert_string_equal(chosen("fd00:3::6").c_str(), "eth2/6 ");
    assert_string_equal(chosen("::/0,eth0").c_str(), "eth0 eth1/6 eth2/6 eth2/6 ");
    assert_string_equal(chosen("", "fd00:2::/64,10.0.0.0/8").c_str(), "lo ");
    assert_string_equal(chosen("fd00:1::/129").c_str(), "!fd00:1::/129");
    assert_string_equal(chosen("fd00:1:/64").c_str(), "!fd00:1:/64");
}

void an_address_that_passes_is_for_want_of_another(void **)
{
    const auto chosen_of = [](std::vector<Interface> all, const char *include) {
        std::vector<Selector> in;
        std::string bad;
        std::string addresses;
        if (parse_selectors(include, in, bad)) {
            for (const Interface &interface : choose(all, in, {})) {
                addresses += printed(interface.address) + " ";
            }
        }
        return addresses;
    };
    Interface passing = make_v6("eth0", 1, 4);
    passing.passing = true;
    const Interface staying = make_v6("eth0", 1, 5);
    const Interface others = make_v6("eth0", 2, 6);
    assert_string_equal(chosen_of({staying, passing}, "").c_str(), "fd00:1::5 ");
    assert_string_equal(chosen_of({staying, passing}, "fd00:1::/64").c_str(), "fd00:1::5 ");
    assert_string_equal(chosen_of({staying, passing}, "fd00:1::4").c_str(), "fd00:1::4 ");
    const Interface v4 = make("eth0", 0x0a000001);
    assert_string_equal(chosen_of({v4, staying, passing}, "eth0,fd00:1::4").c_str(),
                        "10.0.0.1 fd00:1::4 ");
    assert_string_equal(chosen_of({staying, passing}, "fd00:1::4,fd00:1::/64").c_str(),
                        "fd00:1::5 fd00:1::4 ");
    assert_string_equal(chosen_of({others, passing}, "fd00::/16").c_str(), "fd00:2::6 fd00:1::4 ");
    assert_string_equal(chosen_of({passing}, "").c_str(), "fd00:1::4 ");
}

void networks_are_compared_within_a_family(void **)
{
    const Interface v4 = make("eth0", 0x0a010005);
    const Interface v6 = make_v6("eth1", 1, 5);
    assert_true(v4.same_network(IpAddress::v4(0x0a0100fe)));
    assert_false(v4.same_network(IpAddress::v4(0x0a010105)));
    assert_true(v6.same_network(make_v6("", 1, 200).address));
    assert_false(v6.same_network(make_v6("", 2, 5).address));
    assert_false(v6.same_network(v4.address));
    assert_false(Interface{}.same_network(IpAddress{}));
    assert_string_equal(printed(v4.address).c_str(), "10.1.0.5");
    assert_string_equal(printed(v6.address).c_str(), "fd00:1::5");
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

void blanks_are_no_part_of_a_word(void **)
{
    assert_string_equal(chosen("lo, eth1").c_str(), "lo eth1 ");
    assert_string_equal(chosen(" lo\t, 10.2.0.0/16 ").c_str(), "lo eth1 ");
    assert_string_equal(chosen("", "eth0, eth2").c_str(), "eth1 ");
    assert_string_equal(chosen("eth0, 10.1.0.0/33 ").c_str(), "!10.1.0.0/33");
    assert_string_equal(chosen("eth0, ,eth1").c_str(), "!");
    assert_string_equal(chosen(" ").c_str(), "!");
}

void words_that_match_nothing_are_known(void **)
{
    const auto unknown = [](const char *list, const std::vector<std::string> &devices) {
        std::vector<Selector> in;
        std::string words;
        std::string bad;
        if (parse_selectors(list, in, bad)) {
            for (const std::string &word : unmatched(in, host(), devices)) {
                words += word + " ";
            }
        }
        return words;
    };
    assert_string_equal(unknown("", {}).c_str(), "");
    assert_string_equal(unknown("lo, eht1,10.1.0.0/16", {}).c_str(), "eht1 ");
    assert_string_equal(unknown("10.3.0.0/16, lo ,fd00:2::/64,mlx5_0:1", {}).c_str(),
                        "10.3.0.0/16 mlx5_0:1 ");
    assert_string_equal(unknown("lo, mlx5_0:1,mlx5_1:1", {"mlx5_0:1"}).c_str(), "mlx5_1:1 ");
}

void a_colon_does_not_make_a_network(void **)
{
    assert_string_equal(chosen("mlx5_0:1,eth0").c_str(), "eth0 ");
    assert_string_equal(chosen("eth0:1").c_str(), "");
    assert_string_equal(chosen("mlx5_0:1,eth0:1,fd00:1::/64,fd00:zz::/64").c_str(),
                        "!fd00:zz::/64");
    assert_string_equal(chosen("mlx5_0:1,fd00:1::/64").c_str(), "eth1/6 ");
    assert_string_equal(chosen("fd00:1:2").c_str(), "!fd00:1:2"); // would be an address
    assert_string_equal(chosen("rocep129s0f0v10:1").c_str(), "");
}

void the_name_of_an_interface_is_that_of_its_labels_too(void **)
{
    const auto matches = [](const char *word, const char *name) {
        std::vector<Selector> list;
        std::string bad;
        return parse_selectors(word, list, bad) && list.front().matches(make(name, 0x0a010005));
    };
    assert_true(matches("eth0", "eth0"));
    assert_true(matches("eth0", "eth0:1"));
    assert_true(matches("eth0:1", "eth0:1"));
    assert_false(matches("eth0:1", "eth0"));
    assert_false(matches("eth0:1", "eth0:12"));
    assert_false(matches("eth1", "eth10"));
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
        cmocka_unit_test(an_address_of_ipv6_is_for_interfaces_without_another),
        cmocka_unit_test(an_address_that_passes_is_for_want_of_another),
        cmocka_unit_test(networks_are_compared_within_a_family),
        cmocka_unit_test(wrong_words_are_named),
        cmocka_unit_test(blanks_are_no_part_of_a_word),
        cmocka_unit_test(words_that_match_nothing_are_known),
        cmocka_unit_test(a_colon_does_not_make_a_network),
        cmocka_unit_test(the_name_of_an_interface_is_that_of_its_labels_too),
        cmocka_unit_test(this_host_has_loopback),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
