// How fast datagrams go by themselves: the transports of btl/dgram without anything that would
// make them reliable, one process sending as fast as it is let and another counting what comes.
//
// usage: raw FILE receive|send --network A.B.C.D/N [--provider NAME] [--seconds T] [--copies 0|1]
//   The receiver writes its address to FILE, for the sender (both see the same files). Datagrams
//   are as large as the way carries in one packet and are given to it as many at a time as
//   btl/dgram gives it, from 4 MiB of memory. The receiver prints `bandwidth 1048576 GB/S GB/s
//   SENT`: what came and what was sent, 10^9 bytes a second of all bytes in the datagrams; the
//   second word is only there so that it is found where the bandwidth of 1 MiB messages is. It
//   begins with the first datagram and ends when none has come for a while.
//   --copies 1 adds what no protocol that keeps a message's bytes whole can do without, and nothing
//   else: each datagram has room for pml/dr's headers, its payload is copied from a message of
//   1 MiB of the user's and summed on the way, and the receiver copies it into one, sums and
//   compares. Only payload counts then. Nothing is acknowledged or sent again.
#include "opal/ft/base/crc32c.hpp"
#include "opal/mca/btl/dgram/providers.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace ft::dgram;
using namespace ft::btl;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t least_batch = 64;
constexpr std::size_t memory_bytes = 4 * 1024 * 1024;
/// Of pml/dr, btl/dgram and the checksum, in a fragment of a long message.
constexpr std::size_t header_bytes = 80;
constexpr std::size_t message_bytes = 1024 * 1024;
constexpr std::size_t messages_under_way = 8; ///< as test/bench/p2p has them
constexpr std::size_t most_announced = 1 + Address::most_bytes;
constexpr Seconds silence{0.3};
constexpr Seconds patience{20};
/// The last datagrams say how much was sent.
constexpr std::string_view last_words = "raw: in all ";

struct Options {
    std::string file;
    bool sends = false;
    std::string network;
    std::string provider = "udp";
    double seconds = 0.3;
    bool copies = false;
};

[[noreturn]] void stop(const std::string &why)
{
    std::fprintf(stderr, "raw: %s\n", why.c_str());
    std::exit(1);
}

Options parse(int argc, char **argv)
{
    Options options;
    if (argc < 3 || argc % 2 == 0) {
        stop("usage: raw FILE receive|send --network A.B.C.D/N [--provider NAME] [--seconds T] "
             "[--copies 0|1]");
    }
    options.file = argv[1];
    options.sends = std::string_view(argv[2]) == "send";
    for (int i = 3; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        const char *value = argv[i + 1];
        if (name == "--network") {
            options.network = value;
        } else if (name == "--provider") {
            options.provider = value;
        } else if (name == "--seconds") {
            options.seconds = std::atof(value);
        } else if (name == "--copies") {
            options.copies = std::atoi(value) != 0;
        } else {
            stop("no option " + std::string(name));
        }
    }
    return options;
}

std::unique_ptr<Transport> open(const Options &options)
{
    std::vector<Selector> include;
    std::string bad;
    if (!parse_selectors(options.network, include, bad) || include.empty()) {
        stop("--network: " + options.network);
    }
    UdpSettings settings;
    settings.receive_buffer = 8 * 1024 * 1024;
    settings.send_buffer = 4 * 1024 * 1024;
    std::string why;
    const std::string provider = options.provider == "auto" ? fastest_provider() : options.provider;
    auto all = open_transports(provider, choose(local_interfaces(), include, {}), settings, why);
    if (all.empty()) {
        stop("no transport: " + why);
    }
    return std::move(all.front().transport);
}

void announce(const Options &options, const Address &address)
{
    const std::string fresh = options.file + ".new";
    {
        std::ofstream out(fresh, std::ios::binary);
        out.put(static_cast<char>(address.length));
        out.write(reinterpret_cast<const char *>(address.bytes.data()), address.length);
    }
    std::filesystem::rename(fresh, options.file);
}

Address find(const Options &options)
{
    const auto end = Clock::now() + patience;
    while (!std::filesystem::exists(options.file)) {
        if (Clock::now() > end) {
            stop("no receiver");
        }
    }
    std::ifstream in(options.file, std::ios::binary);
    char bytes[most_announced] = {};
    in.read(bytes, sizeof bytes);
    Address address;
    address.length = static_cast<std::uint8_t>(bytes[0]);
    std::memcpy(address.bytes.data(), bytes + 1, std::min<std::size_t>(address.length, 48));
    return address;
}

/// The user's memory: messages that are sent, or received, one behind the other and over again.
class Messages {
  public:
    explicit Messages(std::size_t payload)
        : payload_(payload), memory_(messages_under_way * message_bytes, std::byte{1})
    {
    }
    /// Where the next datagram's payload is.
    std::span<std::byte> next() noexcept
    {
        const std::span<std::byte> piece(memory_.data() + at_, payload_);
        at_ += payload_;
        at_ = at_ + payload_ > memory_.size() ? 0 : at_;
        return piece;
    }

  private:
    std::size_t payload_;
    std::size_t at_ = 0;
    std::vector<std::byte> memory_;
};

void send(const Options &options)
{
    const auto transport = open(options);
    std::string why;
    const auto channel = transport->connect(find(options), why);
    if (channel == nullptr) {
        stop(why);
    }
    const std::size_t size = transport->largest();
    const std::size_t batch = batch_for(*transport, least_batch);
    const std::size_t slots = std::max(memory_bytes / size / batch, std::size_t{1}) * batch;
    std::vector<std::byte> memory(slots * size, std::byte{1});
    std::vector<Outgoing> datagrams(slots);
    for (std::size_t i = 0; i < slots; ++i) {
        datagrams[i].pieces[0] = {memory.data() + i * size, size};
    }
    const std::size_t payload = options.copies ? size - header_bytes : size;
    Messages messages(payload);
    std::uint64_t sent = 0;
    const auto end = Clock::now() + Seconds(options.seconds);
    for (std::size_t at = 0; Clock::now() < end; at = (at + batch) % slots) {
        for (std::size_t i = 0; options.copies && i < batch; ++i) {
            std::byte *const datagram = memory.data() + (at + i) * size;
            const std::uint32_t sum =
                ft::base::copy_crc32c({datagram + header_bytes, payload}, messages.next());
            std::memcpy(datagram, &sum, sizeof sum);
        }
        std::size_t done = 0;
        while (done < batch) {
            std::size_t taken = 0;
            const auto result =
                channel->send(std::span(datagrams).subspan(at + done, batch - done), taken);
            done += taken;
            sent += taken * payload;
            if (result == SendResult::broken || result == SendResult::too_large) {
                stop("it broke: " + channel->trouble());
            }
        }
    }
    const std::string words = std::string(last_words) + std::to_string(sent) + '\n';
    Outgoing farewell;
    farewell.pieces[0] = {const_cast<char *>(words.data()), words.size()};
    for (int i = 0; i < 3; ++i) {
        std::size_t taken = 0;
        static_cast<void>(channel->send({&farewell, 1}, taken));
    }
}

struct Counter final : Sink {
    std::uint64_t bytes = 0;
    double sent = 0;
    std::uint64_t spoilt = 0;         ///< datagrams whose sum is another
    std::size_t size = 0;             ///< of a datagram
    std::optional<Messages> messages; ///< with --copies
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return std::min(size, stretch.size());
    }
    void take(std::span<const std::byte> datagram) noexcept override
    {
        const std::string_view text(reinterpret_cast<const char *>(datagram.data()),
                                    datagram.size());
        if (text.starts_with(last_words)) {
            sent = std::strtod(text.data() + last_words.size(), nullptr);
            return;
        }
        if (!messages) {
            bytes += datagram.size();
            return;
        }
        const auto payload = datagram.subspan(std::min(header_bytes, datagram.size()));
        const auto to = messages->next();
        std::uint32_t sum = 0;
        std::memcpy(&sum, datagram.data(), sizeof sum);
        spoilt += payload.size() != to.size() || ft::base::copy_crc32c(to, payload) != sum;
        bytes += payload.size();
    }
};

void receive(const Options &options)
{
    const auto transport = open(options);
    announce(options, transport->address());
    Counter counter;
    counter.size = transport->largest();
    if (options.copies) {
        counter.messages.emplace(counter.size - header_bytes);
    }
    auto first = Clock::now();
    const auto limit = first + patience;
    auto last = first;
    for (;;) {
        const bool fresh = counter.bytes == 0;
        const int got = transport->receive(counter);
        const auto now = Clock::now();
        if (got > 0) {
            first = fresh ? now : first;
            last = now;
        } else if (counter.bytes != 0 ? now - last > silence : now > limit) {
            break;
        }
    }
    const double ns = Seconds(last - first).count() * 1e9;
    if (counter.bytes == 0 || ns <= 0) {
        stop("nothing came");
    }
    if (counter.spoilt != 0) {
        stop(std::to_string(counter.spoilt) + " datagrams did not come as they were sent");
    }
    std::printf("bandwidth 1048576 %.4f GB/s %.4f\n", static_cast<double>(counter.bytes) / ns,
                counter.sent / ns);
}

} // namespace

int main(int argc, char **argv)
{
    const Options options = parse(argc, argv);
    (options.sends ? send : receive)(options);
    return 0;
}
