// How fast datagrams go by themselves: the transports of btl/dgram without anything that would
// make them reliable, one process sending as fast as it is let and another counting what comes.
//
// usage: raw FILE receive|send --network A.B.C.D/N [--provider NAME] [--seconds T]
//   The receiver writes its address to FILE, for the sender (both see the same files). Datagrams
//   are as large as the way carries in one packet and are given to it as many at a time as
//   btl/dgram gives it, from 4 MiB of memory. The receiver prints `bandwidth 1048576 GB/S GB/s
//   SENT`: what came and what was sent, 10^9 bytes a second of all bytes in the datagrams; the
//   second word is only there so that it is found where the bandwidth of 1 MiB messages is. It
//   begins with the first datagram and ends when none has come for a while.
#include "opal/mca/btl/dgram/providers.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
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
        stop("usage: raw FILE receive|send --network A.B.C.D/N [--provider NAME] [--seconds T]");
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
    std::uint64_t sent = 0;
    const auto end = Clock::now() + Seconds(options.seconds);
    for (std::size_t at = 0; Clock::now() < end; at = (at + batch) % slots) {
        std::size_t done = 0;
        while (done < batch) {
            std::size_t taken = 0;
            const auto result =
                channel->send(std::span(datagrams).subspan(at + done, batch - done), taken);
            done += taken;
            sent += taken * size;
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
    std::size_t size = 0; ///< of a datagram
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
        bytes += datagram.size();
    }
};

void receive(const Options &options)
{
    const auto transport = open(options);
    announce(options, transport->address());
    Counter counter;
    counter.size = transport->largest();
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
