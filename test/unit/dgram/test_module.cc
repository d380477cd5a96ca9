// What a module of btl/dgram does with its fragments while the network takes no more, and with what
// comes from it.
#include "opal/mca/btl/dgram/dgram.hpp"
#include "test/unit/cmocka.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <utility>
#include <vector>

using namespace ft::dgram;

extern "C" {
/// Which the modules say they belong to; nothing else is asked of it here.
mca_btl_base_component_t mca_btl_dgram_component;
}

namespace {

constexpr std::size_t every_tag = 256;
std::int64_t second = 0; ///< at which the clock stands, 0: it goes

} // namespace

// In place of the C library's own.
extern "C" int clock_gettime(clockid_t clock, timespec *time) noexcept
{
    const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
    if (second != 0) {
        *time = {second, 0};
    }
    return result;
}

// In place of Open MPI's own, which has no entry for the last tag: here it can be seen whether
// somebody looks behind the end.
extern "C" {
extern mca_btl_active_message_callback_t
    receivers[every_tag] __asm__("mca_btl_base_active_message_trigger");
mca_btl_active_message_callback_t receivers[every_tag];
}

namespace {

constexpr std::size_t plenty = 1U << 30U;
constexpr std::size_t datagram_bytes = 1472;
constexpr std::uint32_t batch = 8;
constexpr std::uint64_t key = 0x123456789abcdef;

/// A network with room for so many datagrams.
struct Network {
    std::size_t room = plenty;
    unsigned rests = 0;                            ///< how often the channel was told to
    std::vector<std::vector<std::byte>> datagrams; ///< that it took
    std::vector<std::vector<std::byte>> arriving;  ///< that the next look finds
};

class Way final : public Channel {
  public:
    explicit Way(Network &network) : network_(network) {}
    SendResult send(std::span<const Outgoing> datagrams, std::size_t &taken) noexcept override
    {
        for (taken = 0; taken < datagrams.size(); ++taken, --network_.room) {
            if (network_.room == 0) {
                return SendResult::full;
            }
            std::vector<std::byte> &copy = network_.datagrams.emplace_back();
            for (const iovec &piece : datagrams[taken].pieces) {
                const auto *bytes = static_cast<const std::byte *>(piece.iov_base);
                copy.insert(copy.end(), bytes, bytes + piece.iov_len);
            }
        }
        return SendResult::ok;
    }
    [[nodiscard]] std::string trouble() const override { return {}; }
    void rest() noexcept override { ++network_.rests; }

  private:
    Network &network_;
};

class Carrier final : public Transport {
  public:
    Carrier(Network &network, std::size_t in_one_piece)
        : network_(network), in_one_piece_(in_one_piece)
    {
    }
    [[nodiscard]] const std::string &provider() const noexcept override { return nothing_; }
    [[nodiscard]] const Address &address() const noexcept override { return address_; }
    [[nodiscard]] std::size_t largest() const noexcept override { return datagram_bytes; }
    [[nodiscard]] std::size_t in_one_piece() const noexcept override { return in_one_piece_; }
    [[nodiscard]] std::size_t receive_room() const noexcept override { return 0; }
    [[nodiscard]] std::unique_ptr<Channel> connect(const Address &, std::string &) noexcept override
    {
        return std::make_unique<Way>(network_);
    }
    int receive(Sink &sink) noexcept override
    {
        for (const std::vector<std::byte> &datagram : std::exchange(network_.arriving, {})) {
            sink.take(datagram);
        }
        return 0;
    }
    [[nodiscard]] const TransportCounters &counters() const noexcept override { return counters_; }
    [[nodiscard]] const std::string &trouble() const noexcept override { return nothing_; }

  private:
    Network &network_;
    std::size_t in_one_piece_;
    Address address_;
    std::string nothing_;
    TransportCounters counters_;
};

std::byte content(std::size_t number, std::size_t at)
{
    return static_cast<std::byte>(number * 7 + at * 31);
}

/// Full datagrams, but for a few.
std::size_t bytes_of(std::size_t number)
{
    return number % 5 == 4 ? 20 : datagram_bytes - whole_bytes - number % 3;
}

mca_btl_base_tag_t tag_of(std::size_t number)
{
    return static_cast<mca_btl_base_tag_t>(65 + number % 10);
}

/// A module with one peer.
struct Sender {
    Network network;
    Settings settings;
    std::unique_ptr<Module> module;
    Endpoint *peer = nullptr;

    explicit Sender(std::size_t in_one_piece, std::uint32_t carried = datagram_bytes)
    {
        settings.batch = batch;
        settings.size_interval_ms = 0; // no datagrams but those of the test
        module = std::make_unique<Module>(
            Interface{}, std::make_unique<Carrier>(network, in_one_piece), settings, key, 0);
        peer = module->add_peer(nullptr, Address{}, key, carried);
    }

    /// \param ours the fragment is the module's from now on; else it stays the PML's
    int send(std::size_t number, bool ours = true)
    {
        Fragment *fragment =
            module->allocate(bytes_of(number), ours ? MCA_BTL_DES_FLAGS_BTL_OWNERSHIP : 0);
        std::byte *data = fragment->data();
        for (std::size_t i = 0; i < bytes_of(number); ++i) {
            data[i] = content(number, i);
        }
        const int rc = module->send(*peer, fragment, tag_of(number));
        if (!ours || rc < 0) {
            std::memset(data, 0, bytes_of(number)); // whatever the PML does with it
            module->give_back(fragment);
        }
        return rc;
    }
    /// Fragments that the network took, if they are those from 0 on, each once and in order;
    /// SIZE_MAX if not.
    [[nodiscard]] std::size_t went() const
    {
        for (std::size_t number = 0; number < network.datagrams.size(); ++number) {
            std::uint8_t tag = 0;
            std::span<const std::byte> bytes;
            bool same = parse_whole(network.datagrams[number], key, tag, bytes) &&
                        tag == tag_of(number) && bytes.size() == bytes_of(number);
            for (std::size_t i = 0; same && i < bytes.size(); ++i) {
                same = bytes[i] == content(number, i);
            }
            if (!same) {
                return SIZE_MAX;
            }
        }
        return network.datagrams.size();
    }
};

/// \return what went at each step
std::vector<std::size_t> through_a_full_network(std::size_t in_one_piece, bool ours)
{
    Sender sender(in_one_piece);
    std::vector<std::size_t> steps;
    const auto step = [&] {
        static_cast<void>(sender.module->progress());
        steps.push_back(sender.went());
    };
    sender.network.room = 3;
    std::size_t number = 0;
    while (number < 100 && sender.send(number, ours) == 1) {
        ++number;
    }
    steps.push_back(number);
    step(); // no room, and nothing goes
    sender.network.room = 5;
    step();
    while (number < 100 && sender.send(number, ours) == 1) {
        ++number;
    }
    steps.push_back(number);
    sender.network.room = plenty;
    step();
    step(); // nothing is left
    return steps;
}

/// Two batches wait; the PML keeps what comes after them.
void what_a_full_network_does_not_take_waits_and_goes_once_and_in_order(void **)
{
    const std::vector<std::size_t> wanted{
        3 + 2 * batch, 3, 3 + 5, 3 + 5 + 2 * batch, 3 + 5 + 2 * batch, 3 + 5 + 2 * batch};
    for (const std::size_t in_one_piece : std::array<std::size_t, 2>{1, batch}) {
        for (const bool ours : {true, false}) {
            assert_true(through_a_full_network(in_one_piece, ours) == wanted);
        }
    }
}

void a_flush_tries_again(void **)
{
    std::size_t went[3] = {};
    {
        Sender sender(1);
        sender.network.room = 0;
        static_cast<void>(sender.send(0));
        static_cast<void>(sender.send(1));
        sender.module->flush(*sender.peer);
        went[0] = sender.went();
        sender.network.room = 1;
        sender.module->flush(*sender.peer);
        went[1] = sender.went();
        sender.network.room = plenty;
        sender.module->flush(*sender.peer);
        went[2] = sender.went();
    }
    assert_int_equal(went[0], 0);
    assert_int_equal(went[1], 1);
    assert_int_equal(went[2], 2);
}

/// What is sent at once stays the PML's when there is no room, and must not go later as well.
void what_cannot_go_at_once_is_left_to_the_pml(void **)
{
    int rc[2] = {};
    std::size_t datagrams[2] = {};
    {
        Sender sender(1);
        const std::array<char, 20> header{};
        const auto send = [&] {
            return sender.module->send_now(*sender.peer, nullptr, header.data(), header.size(), 0,
                                           tag_of(0));
        };
        sender.network.room = 0;
        rc[0] = send();
        sender.network.room = plenty;
        static_cast<void>(sender.module->progress());
        datagrams[0] = sender.network.datagrams.size();
        rc[1] = send();
        datagrams[1] = sender.network.datagrams.size();
    }
    assert_int_equal(rc[0], OPAL_ERR_OUT_OF_RESOURCE);
    assert_int_equal(datagrams[0], 0);
    assert_int_equal(rc[1], OPAL_SUCCESS);
    assert_int_equal(datagrams[1], 1);
}

/// Not while it is used or something waits.
void a_channel_rests_that_nothing_was_sent_by(void **)
{
    std::vector<unsigned> rests;
    {
        Sender sender(1);
        const auto at = [&](std::int64_t when) {
            second = when;
            for (int pass = 0; pass < 100; ++pass) {
                static_cast<void>(sender.module->progress());
            }
            rests.push_back(sender.network.rests);
        };
        for (const std::int64_t when : {1000, 1002, 1004}) {
            static_cast<void>(sender.send(0));
            at(when);
        }
        at(1005);
        at(1006);
        sender.network.room = 0;
        static_cast<void>(sender.send(0));
        at(1008);
        at(1010);
        sender.network.room = plenty;
        at(1012);
        at(1014);
        second = 0;
    }
    const std::vector<unsigned> wanted{0, 0, 0, 0, 1, 1, 1, 1, 2};
    const bool right = rests == wanted;
    rests = {};
    assert_true(right);
}

std::vector<unsigned> called; ///< the tags, in order

void receiver(mca_btl_base_module_t * /*btl*/, mca_btl_base_tag_t tag,
              mca_btl_base_descriptor_t * /*descriptor*/, void * /*context*/)
{
    called.push_back(tag);
}

/// The tags below the PML's are for BTLs among themselves, and the last one has no receiver in Open
/// MPI's table.
void a_datagram_calls_no_receiver_but_those_of_the_pml_and_above(void **)
{
    std::vector<unsigned> wanted;
    bool right = false;
    for (mca_btl_active_message_callback_t &entry : receivers) {
        entry.cbfunc = receiver;
    }
    receivers[100].cbfunc = nullptr; // nobody's
    {
        Sender here(1);
        for (unsigned tag = 0; tag < every_tag; ++tag) {
            if (tag >= MCA_BTL_TAG_PML && tag < MCA_BTL_TAG_MAX && tag != 100) {
                wanted.push_back(tag);
            }
            std::vector<std::byte> &datagram = here.network.arriving.emplace_back(whole_bytes + 8);
            write_whole(static_cast<std::uint8_t>(tag), datagram.size(), key,
                        std::span<std::byte, whole_bytes>(datagram.data(), whole_bytes));
        }
        static_cast<void>(here.module->progress());
        right = called == wanted;
    }
    std::fill(std::begin(receivers), std::end(receivers), mca_btl_active_message_callback_t{});
    called = {};
    assert_true(right);
}

std::vector<std::vector<std::byte>> delivered;

void keeper(mca_btl_base_module_t * /*btl*/, mca_btl_base_tag_t /*tag*/,
            mca_btl_base_descriptor_t *descriptor, void * /*context*/)
{
    const auto *bytes = static_cast<const std::byte *>(descriptor->des_segments->seg_addr.pval);
    delivered.emplace_back(bytes, bytes + descriptor->des_segments->seg_len);
}

/// Two modules of a process lead to one of its peer's, where one of the two has fewer addresses.
void parts_of_two_modules_do_not_mix(void **)
{
    bool in_parts = false;
    std::vector<std::vector<std::byte>> wanted;
    {
        Sender senders[2] = {Sender(1, 600), Sender(1, 600)};
        Sender there(1);
        for (std::size_t i = 0; i < 2; ++i) {
            const std::size_t number = i * 30; // of one length and tag, but unlike bytes
            receivers[tag_of(number)].cbfunc = keeper;
            static_cast<void>(senders[i].send(number));
            senders[i].module->flush(*senders[i].peer);
            std::vector<std::byte> &bytes = wanted.emplace_back(bytes_of(number));
            for (std::size_t at = 0; at < bytes.size(); ++at) {
                bytes[at] = content(number, at);
            }
        }
        const auto &one = senders[0].network.datagrams;
        const auto &other = senders[1].network.datagrams;
        in_parts = one.size() > 1 && one.size() == other.size();
        for (std::size_t i = 0; in_parts && i < one.size(); ++i) {
            there.network.arriving.push_back(one[i]);
            there.network.arriving.push_back(other[i]);
        }
        static_cast<void>(there.module->progress());
    }
    std::fill(std::begin(receivers), std::end(receivers), mca_btl_active_message_callback_t{});
    const bool right = delivered == wanted;
    delivered = {};
    wanted = {};
    assert_true(in_parts && right);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_a_full_network_does_not_take_waits_and_goes_once_and_in_order),
        cmocka_unit_test(a_flush_tries_again),
        cmocka_unit_test(what_cannot_go_at_once_is_left_to_the_pml),
        cmocka_unit_test(a_channel_rests_that_nothing_was_sent_by),
        cmocka_unit_test(a_datagram_calls_no_receiver_but_those_of_the_pml_and_above),
        cmocka_unit_test(parts_of_two_modules_do_not_mix),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
