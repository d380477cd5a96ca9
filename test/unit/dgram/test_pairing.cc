// Which addresses of two processes are paired.
#include "opal/mca/btl/base/pairing.hpp"
#include "test/unit/cmocka.hpp"

#include <memory>
#include <string>
#include <vector>

using namespace ft::btl;

namespace {

class Module {
  public:
    explicit Module(const Selector &where)
    {
        network_.address = where.network;
        network_.bits = where.bits;
        network_.loopback = printed(where.network).starts_with("127.");
    }
    [[nodiscard]] const Interface &network() const noexcept { return network_; }

  private:
    Interface network_;
};

struct Place {
    IpAddress address;
    bool loopback = false;
};

/// \param addresses "10.1.0.2/24,fd00:1::2/64" \return a module for each
std::vector<std::unique_ptr<Module>> modules_of(const char *addresses)
{
    std::vector<Selector> all;
    std::string bad;
    std::vector<std::unique_ptr<Module>> modules;
    if (parse_selectors(addresses, all, bad)) {
        for (const Selector &each : all) {
            modules.push_back(std::make_unique<Module>(each));
        }
    }
    return modules;
}

/// Whom each of our modules leads to, in their order, "-" for nobody, as btl/dgram asks for it.
std::string ways(const char *ours, const char *theirs, bool same_host = false)
{
    const auto modules = modules_of(ours);
    std::vector<Place> places;
    for (const auto &module : modules_of(theirs)) {
        places.push_back({module->network().address, module->network().loopback});
    }
    std::string all;
    for (const auto &mine : modules) {
        const auto usable = [&](const Place &place) {
            return place.loopback == mine->network().loopback && (!place.loopback || same_host) &&
                   place.address.is_v4() == mine->network().address.is_v4();
        };
        const Place *place = partner(
            *mine, modules, places, usable, [](const Module &) { return true; }, same_host);
        all += (all.empty() ? "" : " ") + (place == nullptr ? "-" : printed(place->address));
    }
    return all;
}

void each_leads_to_its_neighbour_whatever_the_order(void **)
{
    assert_string_equal(ways("10.1.0.1/24,10.2.0.1/24", "10.2.0.2/24,10.1.0.2/24").c_str(),
                        "10.1.0.2 10.2.0.2");
    assert_string_equal(ways("10.1.0.1/24,fd00::1/64", "fd00::2/64,10.1.0.2/24").c_str(),
                        "10.1.0.2 fd00::2");
}

void several_addresses_in_one_network_are_different_ways(void **)
{
    const char *one = "10.0.0.1/24,10.0.0.2/24";
    const char *other = "10.0.0.3/24,10.0.0.4/24";
    assert_string_equal(ways(one, other).c_str(), "10.0.0.3 10.0.0.4");
    assert_string_equal(ways(other, one).c_str(), "10.0.0.1 10.0.0.2");
    // Others between them change nothing.
    assert_string_equal(
        ways("10.0.0.1/24,10.9.0.1/24,10.0.0.2/24", "10.0.0.3/24,10.0.0.4/24,10.9.0.2/24").c_str(),
        "10.0.0.3 10.9.0.2 10.0.0.4");
}

void who_has_fewer_addresses_in_a_network_begins_anew(void **)
{
    const char *three = "10.0.0.1/24,10.0.0.2/24,10.0.0.3/24";
    const char *two = "10.0.0.4/24,10.0.0.5/24";
    assert_string_equal(ways(three, two).c_str(), "10.0.0.4 10.0.0.5 10.0.0.4");
    assert_string_equal(ways(two, three).c_str(), "10.0.0.1 10.0.0.2");
}

void routed_ones_take_turns_among_themselves(void **)
{
    const char *one = "10.1.0.1/24,10.2.0.1/24,10.3.0.1/24";
    const char *other = "10.1.0.2/24,10.4.0.2/24,10.5.0.2/24";
    assert_string_equal(ways(one, other).c_str(), "10.1.0.2 10.4.0.2 10.5.0.2");
    assert_string_equal(ways(other, one).c_str(), "10.1.0.1 10.2.0.1 10.3.0.1");
    assert_string_equal(ways("10.1.0.1/24,10.2.0.1/24", "10.3.0.1/24").c_str(), "10.3.0.1 -");
}

/// Those of the other family, and loopback's, have other places to choose from.
void nobody_waits_for_the_turn_of_who_chooses_elsewhere(void **)
{
    const char *one = "127.0.0.1/8,fd00:1::1/64,10.2.0.1/24";
    const char *other = "127.0.0.1/8,fd00:2::2/64,10.3.0.2/24";
    assert_string_equal(ways(one, other).c_str(), "- fd00:2::2 10.3.0.2");
    assert_string_equal(ways(one, other, true).c_str(), "127.0.0.1 fd00:2::2 10.3.0.2");
}

/// The bridge of a host's containers has the same address everywhere.
void a_network_that_each_host_has_for_itself_leads_to_no_other_host(void **)
{
    const char *one = "172.17.0.1/16,10.1.0.1/24,10.2.0.1/24";
    const char *other = "172.17.0.1/16,10.1.0.2/24,10.3.0.2/24";
    assert_string_equal(ways(one, other).c_str(), "- 10.1.0.2 10.3.0.2");
    assert_string_equal(ways(other, one).c_str(), "- 10.1.0.1 10.2.0.1");
    assert_string_equal(ways(one, one, true).c_str(), "172.17.0.1 10.1.0.1 10.2.0.1");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_leads_to_its_neighbour_whatever_the_order),
        cmocka_unit_test(several_addresses_in_one_network_are_different_ways),
        cmocka_unit_test(who_has_fewer_addresses_in_a_network_begins_anew),
        cmocka_unit_test(routed_ones_take_turns_among_themselves),
        cmocka_unit_test(nobody_waits_for_the_turn_of_who_chooses_elsewhere),
        cmocka_unit_test(a_network_that_each_host_has_for_itself_leads_to_no_other_host),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
