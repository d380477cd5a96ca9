// How fast 8 bytes go to and fro when two programs do nothing but send() and recv(): what the
// kernel alone takes of a datagram's half round trip.
//
// usage: bare answer PORT
//        bare ask ADDRESS PORT [SECONDS]
//   Both look for the next datagram without a break. The asker prints `latency 8 MEDIAN us BEST`,
//   half a round trip, over batches; the answerer ends when nothing has come for two seconds
//   after the first, or when nobody has asked for twenty.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Datagram = std::array<char, 8>;

constexpr Seconds patience{20};
constexpr Seconds silence{2};
constexpr Seconds repeat_after{0.1};
constexpr int most_attempts = 200;
constexpr int batch = 200;

[[noreturn]] void stop(const char *why)
{
    std::fprintf(stderr, "bare: %s: %s\n", why, std::strerror(errno));
    std::exit(1);
}

sockaddr_in place(const char *address, const char *port)
{
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (address != nullptr && inet_pton(AF_INET, address, &at.sin_addr) != 1) {
        stop(address);
    }
    return at;
}

void connect_to(int socket, const sockaddr_in &at)
{
    if (connect(socket, reinterpret_cast<const sockaddr *>(&at), sizeof at) != 0) {
        stop("connect");
    }
}

/// Looks until something comes. The clock is not asked while it comes soon.
template <typename Look>
bool comes_within(Seconds limit, Look look)
{
    constexpr unsigned rarely = 1024;
    Clock::time_point began{};
    for (unsigned looks = 1; !look(); ++looks) {
        if (looks % rarely == 0) {
            const auto now = Clock::now();
            began = looks == rarely ? now : began;
            if (now - began > limit) {
                return false;
            }
        }
    }
    return true;
}

bool received(int socket, Datagram &datagram)
{
    return recv(socket, datagram.data(), datagram.size(), MSG_DONTWAIT) > 0;
}

void answer(int socket, const char *port)
{
    const sockaddr_in here = place(nullptr, port);
    if (bind(socket, reinterpret_cast<const sockaddr *>(&here), sizeof here) != 0) {
        stop("bind");
    }
    Datagram datagram{};
    sockaddr_in asker{};
    if (!comes_within(patience, [&] {
            socklen_t length = sizeof asker;
            return recvfrom(socket, datagram.data(), datagram.size(), MSG_DONTWAIT,
                            reinterpret_cast<sockaddr *>(&asker), &length) > 0;
        })) {
        stop("nobody asks");
    }
    connect_to(socket, asker);
    do {
        send(socket, datagram.data(), datagram.size(), 0);
    } while (comes_within(silence, [&] { return received(socket, datagram); }));
}

/// One there and back; sent again when nothing comes, since nobody may listen yet.
void round_trip(int socket, Datagram &datagram)
{
    for (int attempts = 0; attempts < most_attempts; ++attempts) {
        send(socket, datagram.data(), datagram.size(), 0);
        if (comes_within(repeat_after, [&] { return received(socket, datagram); })) {
            return;
        }
    }
    stop("no answer");
}

void ask(int socket, const sockaddr_in &whom, Seconds seconds)
{
    connect_to(socket, whom);
    Datagram datagram{};
    round_trip(socket, datagram);
    std::vector<double> times;
    const auto began = Clock::now();
    while (times.size() < 3 || Clock::now() - began < seconds) {
        const auto start = Clock::now();
        for (int i = 0; i < batch; ++i) {
            round_trip(socket, datagram);
        }
        times.push_back(Seconds(Clock::now() - start).count() / batch / 2 * 1e6);
    }
    std::sort(times.begin(), times.end());
    std::printf("latency 8 %.4f us %.4f\n", times[times.size() / 2], times.front());
}

} // namespace

int main(int argc, char **argv)
{
    const bool asks = argc >= 4 && std::strcmp(argv[1], "ask") == 0;
    if (!asks && (argc != 3 || std::strcmp(argv[1], "answer") != 0)) {
        std::fprintf(stderr, "usage: bare answer PORT | bare ask ADDRESS PORT [SECONDS]\n");
        return 1;
    }
    const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    if (datagrams < 0) {
        stop("socket");
    }
    if (asks) {
        ask(datagrams, place(argv[2], argv[3]), Seconds(argc > 4 ? std::atof(argv[4]) : 0.3));
    } else {
        answer(datagrams, argv[2]);
    }
    return 0;
}
