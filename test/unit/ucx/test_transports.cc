#include "opal/mca/btl/ucx/message.hpp"
#include "opal/mca/btl/ucx/transports.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft::ucx;

namespace {

Resource network(const char *transport, const char *device)
{
    return {nullptr, "domain", transport, device, false};
}
Resource memory(const char *transport)
{
    return {nullptr, "domain", transport, "memory", true};
}

const std::vector<Resource> &ethernet_host()
{
    static const std::vector<Resource> all{network("tcp", "lo"), network("tcp", "eth0"),
                                           memory("sysv"), memory("posix")};
    return all;
}

const std::vector<Resource> &infiniband_host()
{
    static const std::vector<Resource> all{
        network("tcp", "ib0"), memory("posix"), network("rc_mlx5", "mlx5_0:1"),
        network("ud_verbs", "mlx5_0:1"), network("dc_mlx5", "mlx5_0:1")};
    return all;
}

/// What the list chooses; after "!" what it does not know.
std::string chosen(const std::vector<Resource> &all, const char *list)
{
    std::vector<std::string> unknown;
    std::string text;
    for (const Resource &resource : choose(all, list, unknown)) {
        text += resource.transport + "/" + resource.device + " ";
    }
    for (const std::string &word : unknown) {
        text += "!" + word;
    }
    return text;
}

void auto_is_the_best_of_each_kind(void **)
{
    assert_string_equal(chosen(ethernet_host(), "auto").c_str(), "posix/memory tcp/lo tcp/eth0 ");
    assert_string_equal(chosen(infiniband_host(), "auto").c_str(),
                        "posix/memory dc_mlx5/mlx5_0:1 ");
    assert_string_equal(chosen({memory("sysv")}, "auto").c_str(), "sysv/memory ");
    assert_string_equal(chosen({}, "auto").c_str(), "");
}

void lists_choose_in_their_order_and_nothing_twice(void **)
{
    assert_string_equal(chosen(ethernet_host(), "tcp,sysv").c_str(),
                        "tcp/lo tcp/eth0 sysv/memory ");
    assert_string_equal(chosen(infiniband_host(), "auto,tcp,posix").c_str(),
                        "posix/memory dc_mlx5/mlx5_0:1 tcp/ib0 ");
    assert_string_equal(chosen(ethernet_host(), "tcp,tcp").c_str(), "tcp/lo tcp/eth0 ");
}

const std::vector<Resource> &two_adapters()
{
    static const std::vector<Resource> all{
        network("rc_verbs", "mlx5_0:1"), network("ud_verbs", "mlx5_0:1"),
        network("rc_mlx5", "mlx5_0:1"),  network("ud_mlx5", "mlx5_0:1"),
        network("dc_mlx5", "mlx5_0:1"),  network("rc_verbs", "old_0:1"),
        network("ud_verbs", "old_0:1"),  network("tcp", "ib0")};
    return all;
}

void short_words_take_the_best_of_each_device(void **)
{
    assert_string_equal(chosen(two_adapters(), "ud").c_str(), "ud_mlx5/mlx5_0:1 ud_verbs/old_0:1 ");
    assert_string_equal(chosen(two_adapters(), "rc").c_str(), "rc_mlx5/mlx5_0:1 rc_verbs/old_0:1 ");
    assert_string_equal(chosen(two_adapters(), "dc").c_str(), "dc_mlx5/mlx5_0:1 ");
    assert_string_equal(chosen(two_adapters(), "rc,tcp,rc,rc_verbs").c_str(),
                        "rc_mlx5/mlx5_0:1 rc_verbs/old_0:1 tcp/ib0 rc_verbs/mlx5_0:1 ");
    assert_string_equal(chosen(ethernet_host(), "dc,tcp,ud").c_str(), "tcp/lo tcp/eth0 !dc!ud");
}

void a_line_goes_by_the_same_device(void **)
{
    const auto line = [](const std::vector<Resource> &all, const char *transport,
                         const char *device) -> std::string {
        const Resource *resource = line_for(all, network(transport, device));
        return resource == nullptr ? "none" : resource->transport + "/" + resource->device;
    };
    assert_string_equal(line(two_adapters(), "rc_mlx5", "mlx5_0:1").c_str(), "ud_mlx5/mlx5_0:1");
    assert_string_equal(line(two_adapters(), "rc_verbs", "old_0:1").c_str(), "ud_verbs/old_0:1");
    assert_string_equal(line(ethernet_host(), "tcp", "eth0").c_str(), "tcp/eth0");
    assert_string_equal(line(two_adapters(), "rc_verbs", "new_0:1").c_str(), "none");
}

void unknown_words_are_told(void **)
{
    assert_string_equal(chosen(ethernet_host(), "rc_mlx5,tcp,,x").c_str(),
                        "tcp/lo tcp/eth0 !rc_mlx5!!x");
    assert_string_equal(chosen(ethernet_host(), "").c_str(), "");
    assert_string_equal(listed(ethernet_host()).c_str(), "tcp (lo, eth0), sysv, posix");
    assert_string_equal(listed({}).c_str(), "none");
}

void headers_survive_the_way(void **)
{
    const std::uint64_t cookie = 0xfedcba9876543210;
    const Header header = Header::of(Header{cookie, Kind::goodbye, 0x4e}.packed());
    assert_true(header.is_for(cookie));
    assert_true(header.kind == Kind::goodbye);
    assert_int_equal(header.tag, 0x4e);
    assert_false(header.is_for(cookie ^ 0x10000));
    assert_true(Header{}.kind == Kind::fragment);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_the_best_of_each_kind),
        cmocka_unit_test(lists_choose_in_their_order_and_nothing_twice),
        cmocka_unit_test(short_words_take_the_best_of_each_device),
        cmocka_unit_test(a_line_goes_by_the_same_device),
        cmocka_unit_test(unknown_words_are_told),
        cmocka_unit_test(headers_survive_the_way),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
