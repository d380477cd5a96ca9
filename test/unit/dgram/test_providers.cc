// Which way out a host gets by default, and what a user's words stand for.
#include "opal/mca/btl/dgram/providers.hpp"
#include "test/unit/cmocka.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace ft::dgram;

namespace {

void software_of_libfabric_is_never_taken(void **)
{
    assert_string_equal(fastest_of({}).c_str(), "udp");
    assert_string_equal(fastest_of({"udp"}).c_str(), "udp");
    assert_string_equal(fastest_of({"sockets", "udp", "net", "shm"}).c_str(), "udp");
    assert_string_equal(fastest_of({"udp;ofi_rxd", "verbs;ofi_rxm"}).c_str(), "udp");
    assert_string_equal(fastest_of({"somebody's new one"}).c_str(), "udp");
}

void a_provider_that_drives_an_adapter_is_taken(void **)
{
    for (const char *name : {"verbs", "efa", "psm2", "psm3", "opx", "usnic"}) {
        assert_string_equal(fastest_of({"udp", name}).c_str(),
                            (std::string(ofi_prefix) + name).c_str());
    }
    assert_string_equal(fastest_of({"efa", "verbs"}).c_str(), "ofi:efa"); // libfabric's order
}

void adapters_are_what_the_kernel_lists(void **)
{
    char pattern[] = "/tmp/test_providers.XXXXXX";
    const std::string root = mkdtemp(pattern);
    const std::string missing = root + "/missing";
    const bool without = any_adapter({missing, root});
    std::ofstream(root + "/mlx5_0") << "";
    const bool with = any_adapter({missing, root});
    std::filesystem::remove_all(root);
    assert_false(without);
    assert_true(with);
}

/// This host's own default is one that it can use.
void the_default_can_be_used(void **)
{
    const std::string chosen = fastest_provider();
    const bool right =
        is_provider(chosen) && chosen != "auto" && chosen != "ofi:udp" && unusable(chosen).empty();
    assert_true(right);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(software_of_libfabric_is_never_taken),
        cmocka_unit_test(a_provider_that_drives_an_adapter_is_taken),
        cmocka_unit_test(adapters_are_what_the_kernel_lists),
        cmocka_unit_test(the_default_can_be_used),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
