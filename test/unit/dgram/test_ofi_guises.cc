// btl/dgram over providers of libfabric that ask for more than udp does: here udp passes for them.
#include "opal/mca/btl/dgram/providers.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/dgram/ofi_faults.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using namespace ft::dgram;
using ft::test::ofi_counts;
using ft::test::ofi_faults;
using ft::test::OfiCounts;
using ft::test::OfiFaults;

namespace {

constexpr std::size_t packet = 1472; // of the provider, whatever is in front of a message
constexpr std::size_t injected = 64;
constexpr std::uint64_t prefix = 40; // as verbs has it

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

/// What a provider in a guise opens at the loopback interface of IPv4.
std::vector<Opened> opened(const OfiFaults &guise, std::string &why,
                           const char *provider = "ofi:udp")
{
    ofi_faults() = guise;
    ofi_faults().inject = injected;
    UdpSettings settings;
    settings.receive_buffer = 65536; // a ring that goes round often
    for (Interface &interface : ft::btl::local_interfaces()) {
        if (interface.loopback && interface.address.is_v4()) {
            interface.mtu = 1500;
            return open_transports(provider, {interface}, settings, why);
        }
    }
    return {};
}

/// Sends datagrams of these sizes, one after the other. \return whether each came as it was
bool passes(Transport &here, Transport &there, const std::vector<std::size_t> &sizes)
{
    std::string why;
    const auto way = here.connect(there.address(), why);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto late = [&] { return std::chrono::steady_clock::now() > end; };
    Kept kept;
    bool same = way != nullptr;
    for (std::size_t i = 0; i < sizes.size() && same; ++i) {
        std::vector<std::byte> bytes(sizes[i]);
        for (std::size_t j = 0; j < bytes.size(); ++j) {
            bytes[j] = static_cast<std::byte>(i * 7 + j * 31);
        }
        Outgoing one;
        const std::size_t front = std::min<std::size_t>(sizes[i], 12);
        one.pieces[0] = {bytes.data(), front};
        one.pieces[1] = {bytes.data() + front, sizes[i] - front};
        std::size_t taken = 0;
        SendResult result = SendResult::full;
        while (result == SendResult::full && !late()) {
            result = way->send({&one, 1}, taken);
        }
        same = result == SendResult::ok && taken == 1;
        while (same && kept.datagrams.empty() && there.trouble().empty() && !late()) {
            here.tend();
            static_cast<void>(there.receive(kept));
        }
        same = same && kept.datagrams.size() == 1 && kept.datagrams.front() == bytes;
        kept.datagrams.clear();
    }
    return same;
}

struct Story {
    bool same = false; ///< every byte came, over each transport to each other one of its domain
    std::vector<std::string> domains;
    std::size_t largest = 0;
    std::size_t rings = 0; ///< receives that stood ready at first
    std::size_t messages = 0;
    OfiCounts counts;
};

/// Two processes' transports in that guise, and datagrams of all sizes between them.
Story in_guise(const OfiFaults &guise)
{
    Story story;
    ofi_counts() = {};
    {
        std::string why;
        const auto here = opened(guise, why);
        const auto there = opened(guise, why);
        story.rings = ofi_counts().receives;
        story.same = !here.empty() && here.size() == there.size() && why.empty();
        for (std::size_t i = 0; i < here.size() && story.same; ++i) {
            const Opened &one = here[i];
            story.domains.push_back(one.interface.name);
            story.largest = one.transport->largest();
            std::vector<std::size_t> sizes(story.largest);
            std::iota(sizes.begin(), sizes.end(), 1);
            story.messages += sizes.size();
            story.same = passes(*one.transport, *there[i].transport, sizes) &&
                         one.transport->provider() == "ofi:udp" &&
                         (guise.domains == 0) == !one.interface.address.none();
        }
    }
    story.counts = ofi_counts();
    ofi_faults() = {};
    return story;
}

/// Of every message, sent or received, the provider got what it asks for.
bool all_as_asked(const Story &story)
{
    const OfiCounts &counts = story.counts;
    return counts.unregistered == 0 && counts.without_prefix == 0 &&
           counts.sends + counts.injects == story.messages && counts.sends > 0 &&
           counts.injects > 0 && counts.receives >= story.rings + story.messages;
}

void as_it_is(void **)
{
    const Story story = in_guise({});
    const bool asked = all_as_asked(story);
    const auto registered = story.counts.registered;
    assert_true(story.same && asked);
    assert_int_equal(story.largest, packet);
    assert_int_equal(registered, 0);
}

/// The provider writes to what is in front of a message.
void with_space_in_front_of_every_message(void **)
{
    OfiFaults guise;
    guise.prefix = prefix;
    const Story story = in_guise(guise);
    const bool asked = all_as_asked(story);
    const auto injects = story.counts.injects;
    assert_true(story.same && asked);
    // Whether a provider counts it among the bytes of a message is a matter of taste.
    assert_int_equal(story.largest, packet - prefix);
    assert_int_equal(injects, injected - prefix);
}

/// What is sent and what is received lies each in one piece.
void with_memory_that_must_be_registered(void **)
{
    OfiFaults guise;
    guise.registers = 1;
    const Story story = in_guise(guise);
    const bool asked = all_as_asked(story);
    assert_true(story.same && asked);
    const OfiCounts counts = story.counts;
    assert_int_equal(counts.registered, 4);
    assert_int_equal(counts.released, 4);
}

/// Each domain once, though the provider lists the first one twice.
void with_domains_that_have_no_address_of_ip(void **)
{
    OfiFaults guise;
    guise.domains = 2;
    const Story story = in_guise(guise);
    const bool asked = all_as_asked(story);
    const bool named = story.domains == std::vector<std::string>{"domain0", "domain1"};
    assert_true(story.same && asked && named);
}

/// Where it answers with all that it has, whatever it is asked for, that is not taken for what
/// stands at the address.
void with_domains_whatever_address_is_asked_for(void **)
{
    OfiFaults guise;
    guise.domains = 2;
    guise.heedless = 1;
    const Story story = in_guise(guise);
    const bool named = story.domains == std::vector<std::string>{"domain0", "domain1"};
    assert_true(story.same && named);
}

/// Where any provider will do the first one is taken, not the first with addresses of IP.
void with_other_providers_behind_it(void **)
{
    OfiFaults guise;
    guise.domains = 1;
    guise.heedless = 1;
    std::string taken;
    {
        std::string why;
        for (const Opened &one : opened(guise, why, "ofi")) {
            taken += one.transport->provider() + " " + one.interface.name + " ";
        }
    }
    ofi_faults() = {};
    assert_string_equal(taken.c_str(), "ofi:udp domain0 ");
}

/// What comes is answered while it is handed on, as it is by a PML.
struct Answering final : Sink {
    static constexpr std::size_t bytes = 200;
    enum class Kind : std::uint8_t { question, answer };

    Answering(Transport &transport, Channel &channel) : place(transport), way(channel) {}
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return stretch.size();
    }
    void take(std::span<const std::byte> datagram) noexcept override
    {
        if (datagram.front() == static_cast<std::byte>(Kind::question)) {
            send(Kind::answer);
        } else {
            ++answered;
        }
    }
    void send(Kind kind)
    {
        std::array<std::byte, bytes> room{static_cast<std::byte>(kind)};
        Outgoing one;
        one.pieces[0] = {room.data(), room.size()};
        SendResult result = SendResult::full;
        while (result == SendResult::full && !late()) {
            const std::lock_guard guard(module);
            std::size_t taken = 0;
            result = way.send({&one, 1}, taken);
            place.tend();
        }
    }
    [[nodiscard]] bool late() const { return std::chrono::steady_clock::now() > end; }

    Transport &place;
    Channel &way;
    std::mutex module; ///< held around every call but receive()
    std::atomic<std::uint64_t> answered = 0;
    const std::chrono::steady_clock::time_point end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
};

/// Though one thread receives while another sends; and while a datagram is handed on the provider
/// may be called.
void with_one_call_at_a_time(void **)
{
    constexpr std::uint64_t questions = 500;
    constexpr std::uint64_t at_once = 8; // no buffer runs over
    OfiFaults guise;
    guise.single = 1;
    ofi_counts() = {};
    std::uint64_t answered = 0;
    {
        std::string why;
        const auto here = opened(guise, why);
        const auto way =
            here.empty() ? nullptr : here[0].transport->connect(here[0].transport->address(), why);
        if (way != nullptr) {
            Answering sink(*here[0].transport, *way);
            std::thread asking([&] {
                for (std::uint64_t i = 0; i < questions && !sink.late(); ++i) {
                    while (i >= sink.answered + at_once && !sink.late()) {
                        std::this_thread::yield();
                    }
                    sink.send(Answering::Kind::question);
                }
            });
            while (sink.answered < questions && !sink.late()) {
                static_cast<void>(here[0].transport->receive(sink));
            }
            asking.join();
            answered = sink.answered;
        }
    }
    const auto overlaps = ofi_counts().overlaps;
    ofi_faults() = {};
    assert_int_equal(answered, questions);
    assert_int_equal(overlaps, 0);
}

/// As verbs is, but for the adapter; and it takes a few sends at a time, which go out later.
void with_all_of_that(void **)
{
    OfiFaults guise;
    guise.prefix = prefix;
    guise.registers = 1;
    guise.domains = 3;
    guise.heedless = 1;
    guise.queue = 4;
    const Story story = in_guise(guise);
    const bool asked = all_as_asked(story);
    const OfiCounts counts = story.counts;
    const std::size_t domains = story.domains.size();
    assert_true(story.same && asked);
    assert_int_equal(domains, 3);
    assert_int_equal(counts.registered, 12);
    assert_int_equal(counts.released, 12);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(as_it_is),
        cmocka_unit_test(with_space_in_front_of_every_message),
        cmocka_unit_test(with_memory_that_must_be_registered),
        cmocka_unit_test(with_domains_that_have_no_address_of_ip),
        cmocka_unit_test(with_domains_whatever_address_is_asked_for),
        cmocka_unit_test(with_other_providers_behind_it),
        cmocka_unit_test(with_one_call_at_a_time),
        cmocka_unit_test(with_all_of_that),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
