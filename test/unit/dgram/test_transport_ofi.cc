// Datagrams through libfabric over the loopback interface, by its provider udp.
#include "opal/mca/btl/dgram/ofi_errors.hpp"
#include "opal/mca/btl/dgram/providers.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/dgram/receive_memory.hpp"

#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

using namespace ft::dgram;
using ft::btl::IpAddress;
using ft::btl::local_interfaces;
using ft::test::in_receive_memory;
using ft::test::note_receive_memory;
using ft::test::receive_memory;

// In place of the C library's own: libfabric's provider udp calls this one, with what the transport
// has posted.
extern "C" ssize_t recvmsg(int fd, msghdr *message, int flags)
{
    for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
        const iovec &piece = message->msg_iov[i];
        note_receive_memory(piece.iov_base, piece.iov_len);
    }
    return syscall(SYS_recvmsg, fd, message, flags);
}

namespace {

struct Kept final : Sink {
    std::vector<std::vector<std::byte>> datagrams;
    bool in_place = true; ///< all so far lay where the kernel had put them
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return stretch.size(); // libfabric joins none
    }
    void take(std::span<const std::byte> datagram) noexcept override
    {
        in_place = in_place && in_receive_memory(datagram);
        datagrams.emplace_back(datagram.begin(), datagram.end());
    }
};

std::vector<Interface> loopback(bool v6 = false)
{
    std::vector<Interface> found;
    for (const Interface &interface : local_interfaces()) {
        if (interface.loopback && interface.address.is_v4() != v6) {
            found.push_back(interface);
        }
    }
    return found;
}

std::unique_ptr<Transport> opened(std::string &why, std::uint32_t largest = 0, bool v6 = false)
{
    UdpSettings settings;
    settings.largest = largest;
    auto all = open_transports("ofi:udp", loopback(v6), settings, why);
    return all.empty() ? nullptr : std::move(all.front().transport);
}

std::vector<std::byte> content(std::size_t index, std::size_t bytes)
{
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        all[i] = static_cast<std::byte>(i * 31 + index);
    }
    return all;
}

/// Sends one datagram of each size, a few at a time so that no buffer runs over, and waits for all.
/// \return whether the same came, and was handed on without a copy
bool passes(const std::vector<std::size_t> &sizes, bool v6 = false)
{
    std::string why;
    const auto here = opened(why, 0, v6);
    const auto there = opened(why, 0, v6);
    const auto channel =
        here == nullptr || there == nullptr ? nullptr : here->connect(there->address(), why);
    if (channel == nullptr) {
        return false;
    }
    Kept kept;
    receive_memory.clear();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    bool same = true;
    for (std::size_t i = 0; i < sizes.size() && same; ++i) {
        auto bytes = content(i, sizes[i]);
        Outgoing one;
        const std::size_t front = std::min<std::size_t>(sizes[i], 16);
        one.pieces[0] = {bytes.data(), front};
        one.pieces[1] = {bytes.data() + front, sizes[i] - front};
        std::size_t taken = 0;
        while (taken == 0 && same) {
            const SendResult result = channel->send({&one, 1}, taken);
            same = (result == SendResult::ok || result == SendResult::full) &&
                   std::chrono::steady_clock::now() < end;
        }
        while (kept.datagrams.empty() && std::chrono::steady_clock::now() < end) {
            static_cast<void>(there->receive(kept));
        }
        same = same && kept.datagrams.size() == 1 && kept.datagrams.front() == bytes;
        kept.datagrams.clear();
    }
    return same && kept.in_place;
}

void datagrams_of_all_sizes_come_as_they_went(void **)
{
    assert_true(passes({1, 16, 17, 1255, 1256, 1257, 1472, 700, 20, 9}));
}

void more_than_the_ring_holds_pass(void **)
{
    assert_true(passes(std::vector<std::size_t>(5000, 1400)));
}

void over_ipv6_they_come_as_well(void **)
{
    // A kernel without IPv6 has no such address.
    assert_true(loopback(true).empty() || passes({1, 16, 1452, 1472, 9}, true));
}

void they_fit_the_packets_of_the_interface(void **)
{
    std::size_t largest[2] = {1472, 1452};
    for (const bool v6 : {false, true}) {
        auto interfaces = loopback(v6);
        std::string why;
        for (Interface &interface : interfaces) {
            interface.mtu = 1500;
            const auto all = open_transports("ofi:udp", {interface}, UdpSettings{}, why);
            largest[v6 ? 1 : 0] = all.empty() ? 0 : all.front().transport->largest();
        }
    }
    assert_int_equal(largest[0], 1472);
    assert_int_equal(largest[1], 1452);
}

void it_says_what_it_is(void **)
{
    std::string why;
    const auto here = opened(why, 1000);
    const std::string provider = here == nullptr ? "" : here->provider();
    const std::size_t largest = here == nullptr ? 0 : here->largest();
    assert_string_equal(provider.c_str(), "ofi:udp");
    assert_int_equal(largest, 1000);
}

void what_is_too_large_is_told(void **)
{
    std::string why;
    const auto here = opened(why);
    auto channel = here->connect(here->address(), why);
    auto bytes = content(0, here->largest() + 1);
    Outgoing one;
    one.pieces[0] = {bytes.data(), bytes.size()};
    std::size_t taken = 0;
    const SendResult result = channel->send({&one, 1}, taken);
    channel.reset();
    assert_true(result == SendResult::too_large && taken == 0);
}

void a_closed_peer_is_loss_and_not_an_error(void **)
{
    std::string why;
    const auto here = opened(why);
    auto there = opened(why);
    auto channel = here->connect(there->address(), why);
    there.reset();
    auto bytes = content(0, 1400);
    bool ok = true;
    for (int i = 0; i < 1000; ++i) {
        Outgoing one;
        one.pieces[0] = {bytes.data(), bytes.size()};
        std::size_t taken = 0;
        SendResult result = SendResult::full;
        while (result == SendResult::full) {
            result = channel->send({&one, 1}, taken);
        }
        ok = ok && result == SendResult::ok;
    }
    channel.reset();
    assert_true(ok);
}

void an_address_of_another_kind_is_refused(void **)
{
    std::string why;
    const auto here = opened(why);
    const bool refused = here->connect(Address{}, why) == nullptr;
    assert_true(refused && !why.empty());
}

void words_of_a_user_are_judged(void **)
{
    for (const char *good : {"auto", "udp", "ofi", "ofi:udp", "ofi:tcp;ofi_rxm"}) {
        assert_true(is_provider(good));
    }
    for (const char *bad : {"", "ofi:", "UDP", "pigeons", "udp,ofi", "ofiudp"}) {
        assert_false(is_provider(bad));
    }
}

void what_has_no_datagrams_is_told_from_what_is_not_there(void **)
{
    const std::string there = unusable("ofi:udp");
    const std::string pigeons = unusable("ofi:pigeons");
    const std::string connected = unusable("ofi:tcp");
    const std::string reliable = unusable("ofi:udp;ofi_rxd");
    assert_true(there.empty());
    assert_non_null(std::strstr(pigeons.c_str(), "no provider of that name"));
    assert_non_null(std::strstr(pigeons.c_str(), "ofi:udp"));
    assert_non_null(std::strstr(connected.c_str(), "no datagram endpoint"));
    assert_non_null(std::strstr(reliable.c_str(), "no datagram endpoint"));
}

void an_address_that_is_not_ours_has_no_endpoint(void **)
{
    auto foreign = loopback();
    foreign.front().address = IpAddress::v4(0xc0000201); // 192.0.2.1, for documentation
    foreign.resize(1);
    std::string why;
    const bool none = open_transports("ofi:udp", foreign, UdpSettings{}, why).empty();
    assert_true(none && !why.empty());
}

void the_ring_fits_what_the_provider_offers(void **)
{
    assert_int_equal(receives_for(8U << 20U, 1472, 4096), 4096);
    assert_int_equal(receives_for(65536, 1472, 4096), 44);
    assert_int_equal(receives_for(4096, 1472, 4096), 16);
    assert_int_equal(receives_for(8U << 20U, 1472, 1U << 20U), 4096);
    // Fewer than we would have at least.
    assert_int_equal(receives_for(8U << 20U, 1472, 8), 8);
    assert_int_equal(receives_for(0, 1472, 8), 8);
    assert_int_equal(receives_for(8U << 20U, 1472, 0), 1);
}

void a_receive_that_failed_is_loss_or_the_end(void **)
{
    assert_true(fate_of_receive(FI_ETRUNC) == ReceiveFate::truncated);
    for (const int loss : std::initializer_list<int>{FI_ECONNREFUSED, FI_EHOSTUNREACH, FI_ENETDOWN,
                                                     FI_EOVERRUN, FI_EINTR}) {
        assert_true(fate_of_receive(loss) == ReceiveFate::lost);
    }
    for (const int end : std::initializer_list<int>{FI_ECANCELED, FI_EIO, FI_EBADF, FI_EOTHER}) {
        assert_true(fate_of_receive(end) == ReceiveFate::broken);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(datagrams_of_all_sizes_come_as_they_went),
        cmocka_unit_test(more_than_the_ring_holds_pass),
        cmocka_unit_test(over_ipv6_they_come_as_well),
        cmocka_unit_test(they_fit_the_packets_of_the_interface),
        cmocka_unit_test(it_says_what_it_is),
        cmocka_unit_test(what_is_too_large_is_told),
        cmocka_unit_test(a_closed_peer_is_loss_and_not_an_error),
        cmocka_unit_test(an_address_of_another_kind_is_refused),
        cmocka_unit_test(words_of_a_user_are_judged),
        cmocka_unit_test(what_has_no_datagrams_is_told_from_what_is_not_there),
        cmocka_unit_test(an_address_that_is_not_ours_has_no_endpoint),
        cmocka_unit_test(the_ring_fits_what_the_provider_offers),
        cmocka_unit_test(a_receive_that_failed_is_loss_or_the_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
