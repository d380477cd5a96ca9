// The UDP transport over the loopback interface: what goes in comes out, in whichever batches.
#include "opal/mca/btl/dgram/transport_udp.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/dgram/receive_memory.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

using namespace ft::dgram;
using ft::btl::IpAddress;
using ft::btl::local_interfaces;
using ft::test::in_receive_memory;
using ft::test::note_receive_memory;
using ft::test::receive_memory;

/// How often each socket was looked at for one datagram.
static std::map<int, unsigned> looks_at;
/// What happens just before such a look.
static std::function<void(int)> before_look;

// In place of the C library's own.

extern "C" long syscall(long number, ...) noexcept
{
    using Call = long (*)(long, ...);
    static const auto real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
    std::array<long, 6> words{}; // whatever call it is, as the C library's own takes them
    va_list list;
    va_start(list, number);
    for (long &word : words) {
        word = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_recvfrom) {
        ++looks_at[static_cast<int>(words[0])];
        if (const auto now = before_look) {
            now(static_cast<int>(words[0]));
        }
        note_receive_memory(reinterpret_cast<void *>(words[1]), static_cast<std::size_t>(words[2]));
    }
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

extern "C" int recvmmsg(int fd, mmsghdr *messages, unsigned count, int flags, timespec *end)
{
    for (unsigned i = 0; i < count; ++i) {
        const iovec &piece = messages[i].msg_hdr.msg_iov[0];
        note_receive_memory(piece.iov_base, piece.iov_len);
    }
    return static_cast<int>(syscall(SYS_recvmmsg, fd, messages, count, flags, end));
}

namespace {

struct Kept final : Sink {
    explicit Kept(const std::vector<std::vector<std::byte>> &sent) : expected(sent) {}
    const std::vector<std::vector<std::byte>> &expected;
    std::vector<std::vector<std::byte>> datagrams;
    bool in_place = true; ///< all so far lay where the kernel had put them
    /// What comes is what is due, which says its length.
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return datagrams.size() < expected.size() ? expected[datagrams.size()].size()
                                                  : stretch.size();
    }
    void take(std::span<const std::byte> datagram) noexcept override
    {
        in_place = in_place && in_receive_memory(datagram);
        datagrams.emplace_back(datagram.begin(), datagram.end());
    }
};

Interface loopback()
{
    for (const Interface &interface : local_interfaces()) {
        if (interface.loopback) {
            return interface;
        }
    }
    return {};
}

std::vector<std::byte> content(std::size_t index, std::size_t bytes)
{
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        all[i] = static_cast<std::byte>(i * 31 + index);
    }
    return all;
}

/// Sends one datagram of each size in one go, three at a time one behind the other in memory, and
/// waits for all. \return whether the same came, and was handed on without a copy
bool passes_over(const Interface &interface, const std::vector<std::size_t> &sizes,
                 const UdpSettings &settings)
{
    std::string why;
    auto here = open_udp(interface, settings, why);
    auto there = open_udp(interface, settings, why);
    if (here == nullptr || there == nullptr) {
        return false;
    }
    auto channel = here->connect(there->address(), why);
    if (channel == nullptr) {
        return false;
    }
    std::vector<std::vector<std::byte>> contents;
    std::vector<Outgoing> out(sizes.size());
    std::vector<std::byte> memory(std::accumulate(sizes.begin(), sizes.end(), sizes.size()));
    std::byte *at = memory.data();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        contents.push_back(content(i, sizes[i]));
        std::copy(contents[i].begin(), contents[i].end(), at);
        const std::size_t front = std::min<std::size_t>(sizes[i], 16);
        out[i].pieces[0] = {at, front};
        out[i].pieces[1] = {at + front, sizes[i] - front};
        at += sizes[i] + (i % 3 == 2 ? 1 : 0);
    }
    Kept kept(contents);
    receive_memory.clear();
    std::size_t done = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (kept.datagrams.size() < sizes.size() && std::chrono::steady_clock::now() < end) {
        std::size_t taken = 0;
        if (done < sizes.size()) {
            const SendResult result = channel->send(std::span(out).subspan(done), taken);
            if (result != SendResult::ok && result != SendResult::full) {
                return false;
            }
        }
        done += taken;
        static_cast<void>(there->receive(kept));
    }
    return kept.in_place && kept.datagrams == contents;
}

/// Over every address that leads to this host itself: 127.0.0.1, and ::1 where there is one.
bool passes(const std::vector<std::size_t> &sizes, const UdpSettings &settings)
{
    bool all = !loopback().address.none();
    for (const Interface &interface : local_interfaces()) {
        all = all && (!interface.loopback || passes_over(interface, sizes, settings));
    }
    return all;
}

UdpSettings settings_with(bool offload)
{
    UdpSettings settings;
    settings.offload = offload;
    return settings;
}

void datagrams_of_all_sizes_come_as_they_went(void **)
{
    const std::vector<std::size_t> mixed{1, 16, 17, 1472, 1472, 1472, 700, 1472, 65507, 20, 20, 9};
    assert_true(passes(mixed, settings_with(true)));
    assert_true(passes(mixed, settings_with(false)));
}

void many_of_one_size_are_cut_apart_and_put_together(void **)
{
    std::vector<std::size_t> sizes(1000, 1400);
    sizes.push_back(33);
    assert_true(passes(sizes, settings_with(true)));
    assert_true(passes(sizes, settings_with(false)));
}

/// One that receives, and others that send to it, one datagram at a time.
struct Gathering {
    Gathering()
    {
        std::string why;
        const UdpSettings settings = settings_with(true);
        here = open_udp(loopback(), settings, why);
        for (Peer &peer : peers) {
            peer.transport = open_udp(loopback(), settings, why);
            peer.channel = peer.transport->connect(here->address(), why);
        }
    }
    /// The next datagram. \return whether it came, and it alone
    bool from(std::size_t peer, bool waits = true)
    {
        sent.push_back(content(sent.size(), 8));
        Outgoing one;
        one.pieces[0] = {sent.back().data(), 8};
        std::size_t taken = 0;
        const bool went = peers.at(peer).channel->send({&one, 1}, taken) == SendResult::ok;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (waits && kept.datagrams.size() < sent.size() &&
               std::chrono::steady_clock::now() < end) {
            static_cast<void>(here->receive(kept));
            static_cast<void>(here->receive(kept)); // and an idle look
        }
        return went && (!waits || kept.datagrams == sent);
    }
    /// Sockets that were looked at meanwhile.
    template <class Do>
    std::size_t sockets(Do what)
    {
        looks_at.clear();
        what();
        return looks_at.size();
    }
    struct Peer {
        std::unique_ptr<Transport> transport;
        std::unique_ptr<Channel> channel;
    };
    std::unique_ptr<Transport> here;
    std::array<Peer, 2> peers;
    std::vector<std::vector<std::byte>> sent;
    Kept kept{sent};
};

constexpr unsigned until_near = 17 * 10;

/// A peer that sends all that comes has a socket of its own, and others come by theirs.
void one_peer_alone_comes_by_its_own_socket(void **)
{
    Gathering g;
    bool right = true;
    assert_int_equal(g.sockets([&] { right = right && g.from(0); }), 1);
    for (unsigned i = 0; i < until_near; ++i) {
        right = right && g.from(0);
    }
    assert_int_equal(g.sockets([&] {
        for (unsigned i = 0; i < 8; ++i) {
            right = right && g.from(0);
        }
    }),
                     2);
    // Somebody else is heard, and what the first sent before that is not lost.
    right = right && g.from(0, false) && g.from(1);
    assert_int_equal(g.kept.datagrams.size(), g.sent.size());
    assert_int_equal(g.sockets([&] { right = right && g.from(0) && g.from(1); }), 1);
    assert_true(right);
}

/// What comes by it while the others' is looked at, which ends it, is not lost with it.
void what_waits_at_a_socket_that_is_closed_is_taken(void **)
{
    looks_at.clear();
    Gathering g;
    bool right = g.from(0);
    const int common = looks_at.begin()->first;
    for (unsigned i = 0; i < until_near; ++i) {
        right = right && g.from(0);
    }
    right = right && g.from(1, false); // waits where all others' do
    before_look = [&](int socket) {
        if (socket == common) {
            before_look = nullptr;
            right = g.from(0, false) && right;
        }
    };
    const std::size_t all = g.sent.size() + 1;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (g.kept.datagrams.size() < all && std::chrono::steady_clock::now() < end) {
        static_cast<void>(g.here->receive(g.kept));
    }
    before_look = nullptr;
    assert_true(right);
    assert_true(g.kept.datagrams == g.sent);
    assert_int_equal(g.sent.size(), all);
}

/// A child that lives on has a copy of the socket that is closed here.
void a_forked_child_keeps_nothing_of_a_peer_from_its_parent(void **)
{
    Gathering g;
    bool right = true;
    for (unsigned i = 0; i <= until_near; ++i) {
        right = right && g.from(0);
    }
    std::array<int, 2> life{};
    right = pipe2(life.data(), O_CLOEXEC) == 0 && right;
    const pid_t child = fork();
    if (child == 0) {
        close(life[1]);
        char end = 0;
        static_cast<void>(!read(life[0], &end, 1));
        _exit(0);
    }
    right = right && child > 0 && g.from(1);
    for (unsigned i = 0; i < 20; ++i) {
        right = right && g.from(0) && g.from(1);
    }
    close(life[0]);
    close(life[1]);
    int status = -1;
    right = waitpid(child, &status, 0) == child && status == 0 && right;
    assert_true(right);
}

void peers_who_take_turns_share_one_socket(void **)
{
    Gathering g;
    bool right = true;
    assert_int_equal(g.sockets([&] {
        for (unsigned i = 0; i < 2 * until_near; ++i) {
            right = right && g.from(i % 2);
        }
    }),
                     1);
    assert_true(right);
}

void a_closed_peer_is_loss_and_not_an_error(void **)
{
    std::string why;
    auto here = open_udp(loopback(), settings_with(true), why);
    auto there = open_udp(loopback(), settings_with(true), why);
    auto channel = here->connect(there->address(), why);
    there.reset();
    auto bytes = content(0, 100);
    bool ok = true;
    for (int i = 0; i < 100; ++i) {
        Outgoing one;
        one.pieces[0] = {bytes.data(), bytes.size()};
        std::size_t taken = 0;
        ok = ok && channel->send({&one, 1}, taken) == SendResult::ok && taken == 1;
    }
    const bool quiet = channel->trouble().empty();
    const std::uint64_t refused = here->counters().refused;
    assert_true(ok && quiet);
    assert_true(refused <= 100);
}

void what_is_too_large_is_told(void **)
{
    std::string why;
    auto here = open_udp(loopback(), settings_with(true), why);
    auto channel = here->connect(here->address(), why);
    auto bytes = content(0, 65508);
    Outgoing one;
    one.pieces[0] = {bytes.data(), bytes.size()};
    std::size_t taken = 0;
    const SendResult result = channel->send({&one, 1}, taken);
    assert_true(result == SendResult::too_large && taken == 0);
}

void an_address_of_another_kind_is_refused(void **)
{
    std::string why;
    auto here = open_udp(loopback(), settings_with(true), why);
    const bool refused = here->connect(Address{}, why) == nullptr;
    assert_true(refused && !why.empty());
}

void an_address_that_is_not_ours_is_refused(void **)
{
    Interface foreign = loopback();
    foreign.address = IpAddress::v4(0xc0000201); // 192.0.2.1, for documentation
    std::string why;
    const bool refused = open_udp(foreign, settings_with(true), why) == nullptr;
    assert_true(refused && why.find("bind") == 0);
}

/// The headers of IPv6 are longer, and a packet as long.
void the_family_decides_how_much_fits(void **)
{
    std::size_t largest[2] = {};
    std::string why;
    Interface interface = loopback();
    interface.mtu = 1500;
    if (const auto v4 = open_udp(interface, UdpSettings{}, why); v4 != nullptr) {
        largest[0] = v4->largest();
    }
    interface.address = IpAddress{};
    interface.address.bytes[15] = 1;
    const auto v6 = open_udp(interface, UdpSettings{}, why);
    largest[1] = v6 == nullptr ? 0 : v6->largest();
    const bool without = v6 == nullptr && !why.empty(); // a kernel without IPv6 says so
    assert_int_equal(largest[0], 1472);
    assert_true(largest[1] == 1452 || without);
}

/// A piece holds 44 datagrams of Ethernet.
void whole_pieces_are_gathered(void **)
{
    std::string why;
    Interface interface = loopback();
    interface.mtu = 1500;
    const auto ethernet = open_udp(interface, settings_with(true), why);
    const auto singly = open_udp(interface, settings_with(false), why);
    interface.mtu = 65536;
    const auto large = open_udp(interface, settings_with(true), why);
    std::vector<std::size_t> batches;
    if (ethernet != nullptr && singly != nullptr && large != nullptr) {
        for (const std::size_t wanted : {1, 43, 44, 64, 89, 128}) {
            batches.push_back(batch_for(*ethernet, wanted));
        }
        batches.push_back(batch_for(*singly, 64));
        batches.push_back(batch_for(*large, 64));
    }
    const bool right = batches == std::vector<std::size_t>{1, 43, 44, 88, 88, 88, 64, 64};
    batches = {};
    assert_true(right);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(datagrams_of_all_sizes_come_as_they_went),
        cmocka_unit_test(many_of_one_size_are_cut_apart_and_put_together),
        cmocka_unit_test(one_peer_alone_comes_by_its_own_socket),
        cmocka_unit_test(what_waits_at_a_socket_that_is_closed_is_taken),
        cmocka_unit_test(a_forked_child_keeps_nothing_of_a_peer_from_its_parent),
        cmocka_unit_test(peers_who_take_turns_share_one_socket),
        cmocka_unit_test(a_closed_peer_is_loss_and_not_an_error),
        cmocka_unit_test(what_is_too_large_is_told),
        cmocka_unit_test(an_address_of_another_kind_is_refused),
        cmocka_unit_test(an_address_that_is_not_ours_is_refused),
        cmocka_unit_test(the_family_decides_how_much_fits),
        cmocka_unit_test(whole_pieces_are_gathered),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
