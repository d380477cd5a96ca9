// What btl/dgram makes of a provider of libfabric that fails, or takes its time.
#include "opal/mca/btl/dgram/providers.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/dgram/ofi_faults.hpp"

#include <rdma/fi_errno.h>

#include <chrono>
#include <cstring>
#include <vector>

using namespace ft::dgram;
using ft::test::ofi_counts;
using ft::test::ofi_faults;
using ft::test::OfiCounts;
using ft::test::OfiFaults;

namespace {

constexpr std::size_t length = 1000; // not injected here

struct Kept final : Sink {
    std::vector<std::vector<std::byte>> datagrams;
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return stretch.size();
    }
    void take(std::span<const std::byte> datagram) noexcept override
    {
        datagrams.emplace_back(datagram.begin(), datagram.end());
    }
};

std::vector<std::byte> content(std::size_t index)
{
    std::vector<std::byte> all(length);
    for (std::size_t i = 0; i < length; ++i) {
        all[i] = static_cast<std::byte>(i * 31 + index * 7 + (index >> 8));
    }
    return all;
}

/// Two transports, a channel from one to each of the two, and a provider that has those faults.
struct Pair {
    std::unique_ptr<Transport> here;
    std::unique_ptr<Transport> there;
    std::unique_ptr<Channel> way;   ///< to `there`
    std::unique_ptr<Channel> other; ///< to `here` itself
    Kept kept;
    std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);

    explicit Pair(const OfiFaults &faults, std::uint32_t receive_buffer = 8U << 20U)
    {
        ofi_faults() = faults;
        ofi_faults().inject = 64;
        ofi_counts() = {};
        here = open(receive_buffer);
        there = open(receive_buffer);
        std::string why;
        way = here->connect(there->address(), why);
        other = here->connect(here->address(), why);
    }
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;
    ~Pair()
    {
        way.reset();
        other.reset();
        here.reset();
        there.reset();
        ofi_faults() = {};
    }
    static std::unique_ptr<Transport> open(std::uint32_t receive_buffer)
    {
        UdpSettings settings;
        settings.receive_buffer = receive_buffer;
        std::string why;
        for (const Interface &interface : ft::btl::local_interfaces()) {
            if (interface.loopback && interface.address.is_v4()) {
                auto all = open_transports("ofi:udp", {interface}, settings, why);
                return all.empty() ? nullptr : std::move(all.front().transport);
            }
        }
        return nullptr;
    }
    [[nodiscard]] bool late() const { return std::chrono::steady_clock::now() > end; }

    static SendResult try_to_send(Channel &channel, std::size_t index)
    {
        auto bytes = content(index);
        Outgoing one;
        one.pieces[0] = {bytes.data(), 100};
        one.pieces[1] = {bytes.data() + 100, length - 100};
        std::size_t taken = 0;
        const SendResult result = channel.send({&one, 1}, taken);
        return (result == SendResult::ok) == (taken == 1) ? result : SendResult::too_large;
    }
    /// Waits for room.
    SendResult send(Channel &channel, std::size_t index)
    {
        SendResult result = SendResult::full;
        while (result == SendResult::full && !late()) {
            result = try_to_send(channel, index);
        }
        return result;
    }
    /// Waits for so many, and for a failure of receiving.
    void receive(std::size_t count)
    {
        while (kept.datagrams.size() < count && there->trouble().empty() && !late()) {
            here->tend();
            static_cast<void>(there->receive(kept));
        }
    }
    /// Sends one after the other. \return whether they came, each as it was
    bool passes(std::size_t from, std::size_t count)
    {
        bool same = true;
        for (std::size_t i = from; i < from + count && same; ++i) {
            kept.datagrams.clear();
            same = send(*way, i) == SendResult::ok;
            receive(1);
            same = same && kept.datagrams.size() == 1 && kept.datagrams.front() == content(i);
        }
        return same;
    }
    /// Sends until a way is broken, at most so many. \return what broke it
    std::string broken_after(Channel &channel, std::size_t most)
    {
        for (std::size_t i = 0; i < most; ++i) {
            if (send(channel, i) == SendResult::broken) {
                return channel.trouble();
            }
            here->tend();
        }
        return "";
    }
};

void long_ones_are_sent_and_short_ones_injected(void **)
{
    Pair pair({});
    const bool passed = pair.passes(0, 1000);
    auto bytes = content(0);
    Outgoing one;
    one.pieces[0] = {bytes.data(), 64};
    std::size_t taken = 0;
    const bool ok = pair.way->send({&one, 1}, taken) == SendResult::ok;
    const OfiCounts counts = ofi_counts();
    assert_true(passed && ok);
    assert_int_equal(counts.sends, 1000);
    assert_int_equal(counts.injects, 1);
}

// Bursts of many more than the provider takes, which sends them out of our memory later.
void full_queues_lose_and_mix_up_nothing(void **)
{
    OfiFaults faults;
    faults.queue = 5;
    Pair pair(faults);
    constexpr std::size_t bursts = 100;
    constexpr std::size_t burst = 40;
    std::size_t full = 0;
    bool same = true;
    for (std::size_t i = 0; i < bursts && same; ++i) {
        pair.kept.datagrams.clear();
        for (std::size_t j = 0; j < burst; ++j) {
            SendResult result = Pair::try_to_send(*pair.way, i * burst + j);
            if (result == SendResult::full) {
                ++full;
                result = pair.send(*pair.way, i * burst + j);
            }
            same = same && result == SendResult::ok;
        }
        pair.receive(burst);
        same = same && pair.kept.datagrams.size() == burst;
        for (std::size_t j = 0; j < burst && same; ++j) {
            same = pair.kept.datagrams[j] == content(i * burst + j);
        }
    }
    const OfiCounts counts = ofi_counts();
    assert_true(same);
    assert_true(full > bursts && counts.no_room >= full);
    assert_int_equal(counts.sends, bursts * burst);
}

// More wait with the provider than there are rooms for.
void rooms_run_out_and_come_back(void **)
{
    OfiFaults faults;
    faults.queue = 100000;
    Pair pair(faults);
    std::size_t rooms = 0;
    while (rooms < 100000 && Pair::try_to_send(*pair.way, rooms) == SendResult::ok &&
           ofi_counts().send_completions == 0) {
        ++rooms;
    }
    pair.here->tend();
    while (pair.there->receive(pair.kept) > 0) {
    }
    // More than its socket holds: the rest is lost, but what came is as it was, and in order.
    bool same = pair.kept.datagrams.size() > 8;
    std::size_t next = 0;
    for (const auto &datagram : pair.kept.datagrams) {
        while (next <= rooms && datagram != content(next)) {
            ++next;
        }
        same = same && next <= rooms;
        ++next;
    }
    const bool again = pair.passes(7, 3 * rooms);
    const OfiCounts counts = ofi_counts();
    assert_true(same && again);
    assert_true(rooms > 8);
    assert_int_equal(counts.no_room, 0);
    assert_true(counts.send_completions >= 4 * rooms);
}

void what_waits_goes_when_it_is_tended(void **)
{
    OfiFaults faults;
    faults.queue = 5;
    Pair pair(faults);
    const bool sent = pair.send(*pair.way, 1) == SendResult::ok;
    const auto done = ofi_counts().send_completions;
    pair.receive(1);
    const bool came = pair.kept.datagrams.size() == 1 && pair.kept.datagrams.front() == content(1);
    assert_true(sent && came);
    assert_int_equal(done, 0);
}

void a_send_that_completes_with_an_error_breaks_its_way_alone(void **)
{
    OfiFaults faults;
    faults.send_error = FI_EIO;
    faults.after = 20;
    Pair pair(faults);
    const std::string why = pair.broken_after(*pair.way, 100);
    const auto failed = ofi_counts().failed;
    const bool stays = Pair::try_to_send(*pair.way, 0) == SendResult::broken;
    const bool other = pair.broken_after(*pair.other, 100).empty();
    assert_string_equal(why.c_str(), "completion of fi_send: Input/output error");
    assert_int_equal(failed, 1);
    assert_true(stays && other);
}

void a_send_that_the_network_lost_is_loss_and_gives_its_room_back(void **)
{
    OfiFaults faults;
    faults.send_error = FI_EHOSTUNREACH;
    faults.count = 2000; // more than there are rooms
    Pair pair(faults);
    const std::string why = pair.broken_after(*pair.way, 3000);
    const auto refused = pair.here->counters().refused;
    pair.kept.datagrams.clear();
    pair.receive(10); // of the socket
    while (pair.there->receive(pair.kept) > 0) {
    }
    const bool passed = pair.passes(5, 10);
    assert_true(why.empty() && passed);
    assert_int_equal(refused, 2000);
}

void an_error_for_a_way_that_is_gone_harms_nothing(void **)
{
    OfiFaults faults;
    faults.send_error = FI_EIO;
    faults.queue = 10;
    faults.count = 3;
    Pair pair(faults);
    bool sent = true;
    for (std::size_t i = 0; i < 3; ++i) {
        sent = sent && Pair::try_to_send(*pair.way, i) == SendResult::ok;
    }
    pair.way.reset();
    pair.here->tend();
    const auto failed = ofi_counts().failed;
    const bool other = pair.broken_after(*pair.other, 1000).empty();
    assert_true(sent && other);
    assert_int_equal(failed, 3);
}

void a_queue_of_sends_that_fails_breaks_every_way(void **)
{
    OfiFaults faults;
    faults.send_queue_error = FI_EIO;
    faults.after = 10;
    Pair pair(faults);
    const std::string why = pair.broken_after(*pair.way, 1000);
    const std::string other = pair.broken_after(*pair.other, 1);
    assert_string_equal(why.c_str(), "fi_cq_read of sends: Input/output error");
    assert_string_equal(other.c_str(), why.c_str());
}

void a_queue_that_does_not_tell_its_error_does_not_hang_us(void **)
{
    OfiFaults faults;
    faults.send_error = FI_EOTHER;
    faults.receive_error = FI_EOTHER;
    faults.after = 10;
    faults.mute = true;
    Pair pair(faults);
    const std::string why = pair.broken_after(*pair.way, 100);
    pair.receive(100);
    const std::string there = pair.there->trouble();
    assert_string_equal(why.c_str(), "fi_cq_readerr of sends: Input/output error");
    assert_string_equal(there.c_str(), "fi_cq_readerr of receives: Input/output error");
}

void a_send_that_is_refused_for_good_breaks_its_way(void **)
{
    OfiFaults faults;
    faults.post_error = FI_EIO;
    faults.after = 3;
    Pair pair(faults);
    const std::string why = pair.broken_after(*pair.way, 10);
    ofi_faults().post_error = FI_EMSGSIZE;
    bool too_large = true;
    for (std::size_t i = 0; i < 1000; ++i) { // takes no rooms
        too_large = too_large && Pair::try_to_send(*pair.other, i) == SendResult::too_large;
    }
    ofi_faults().post_error = 0;
    const bool other = pair.broken_after(*pair.other, 10).empty();
    assert_string_equal(why.c_str(), "fi_send: Input/output error");
    assert_true(too_large && other);
}

void a_receive_that_completes_with_an_error_ends_receiving(void **)
{
    OfiFaults faults;
    faults.receive_error = FI_EIO;
    faults.after = 20;
    Pair pair(faults);
    const bool before = pair.passes(0, 20);
    const bool sent = pair.send(*pair.way, 20) == SendResult::ok;
    pair.receive(2);
    const std::string why = pair.there->trouble();
    const bool silent = pair.here->trouble().empty();
    assert_true(before && sent && silent);
    assert_string_equal(why.c_str(), "completion of fi_recv: Input/output error");
}

void a_receive_that_failed_otherwise_is_posted_again(void **)
{
    for (const int error : {FI_ETRUNC, FI_EOVERRUN}) {
        OfiFaults faults;
        faults.receive_error = static_cast<std::uint64_t>(error);
        faults.count = 200; // of a ring that is smaller
        Pair pair(faults, 65536);
        const std::size_t ring = pair.there->receive_room() / pair.there->largest();
        for (std::size_t i = 0; i < 200 && !pair.late(); ++i) {
            const auto failed = ofi_counts().failed;
            static_cast<void>(pair.send(*pair.way, i));
            while (ofi_counts().failed == failed && !pair.late()) {
                static_cast<void>(pair.there->receive(pair.kept));
            }
        }
        // What failed last is looked at now.
        static_cast<void>(pair.there->receive(pair.kept));
        const TransportCounters counters = pair.there->counters();
        const bool passed = pair.passes(0, 2 * ring);
        assert_true(ring < 200 && passed);
        assert_int_equal(counters.truncated, error == FI_ETRUNC ? 200 : 0);
        assert_int_equal(counters.refused, error == FI_ETRUNC ? 0 : 200);
        assert_int_equal(counters.datagrams_received, 0);
    }
}

void a_queue_of_receives_that_fails_ends_receiving(void **)
{
    OfiFaults faults;
    faults.receive_queue_error = FI_EIO;
    faults.after = 5;
    Pair pair(faults);
    const bool before = pair.passes(0, 5);
    pair.receive(2);
    const std::string why = pair.there->trouble();
    assert_true(before);
    assert_string_equal(why.c_str(), "fi_cq_read of receives: Input/output error");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(long_ones_are_sent_and_short_ones_injected),
        cmocka_unit_test(full_queues_lose_and_mix_up_nothing),
        cmocka_unit_test(rooms_run_out_and_come_back),
        cmocka_unit_test(what_waits_goes_when_it_is_tended),
        cmocka_unit_test(a_send_that_completes_with_an_error_breaks_its_way_alone),
        cmocka_unit_test(a_send_that_the_network_lost_is_loss_and_gives_its_room_back),
        cmocka_unit_test(an_error_for_a_way_that_is_gone_harms_nothing),
        cmocka_unit_test(a_queue_of_sends_that_fails_breaks_every_way),
        cmocka_unit_test(a_queue_that_does_not_tell_its_error_does_not_hang_us),
        cmocka_unit_test(a_send_that_is_refused_for_good_breaks_its_way),
        cmocka_unit_test(a_receive_that_completes_with_an_error_ends_receiving),
        cmocka_unit_test(a_receive_that_failed_otherwise_is_posted_again),
        cmocka_unit_test(a_queue_of_receives_that_fails_ends_receiving),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
