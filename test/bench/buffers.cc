// How fast bytes go from one core to another through shared memory, by the number of buffers that
// take turns and by the way they are written: what a BTL over shared memory can reach at best.
//
// usage: buffers [SECONDS]
//   Two processes, one on each of the first two processors. One copies 32 KiB from its own memory
//   into the next buffer, the other one copies them out. For each number of buffers, with a sum at
//   both ends and without, it prints `buffers N WAY SUM GB/s`: the median over the rounds that
//   began and ended with cores of the same class, between brackets the least and the most. The
//   ways: memcpy at both ends (strings, by which glibc copies 32 KiB), memcpy at the writer's end
//   only, vectors at both, and past the caches at the writer's. Before it stands the class: near
//   when a cache line goes over and back in less than 120 ns each way, else far.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opal/ft/base/copy.hpp"
#include "opal/ft/base/crc32c.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t bytes = std::size_t{32} * 1024;
constexpr std::size_t apart = bytes + 4096 + 64;
constexpr std::size_t most_buffers = 72;
constexpr std::size_t message = std::size_t{256} * 1024;
constexpr int fragments = 4000;
constexpr int turns = 2000;
constexpr double near_below_ns = 120;

struct alignas(64) Number {
    std::atomic<int> value{0};
};

struct Shared {
    Number ping, pong, written, read, sum, end_ping, end_pong;
};

enum class Way { strings, reading_by_vectors, vectors, past_caches };
constexpr std::array way_names{"strings", "reading-by-vectors", "vectors", "past-caches"};

struct Case {
    int buffers;
    Way way;
    bool sums;
};

[[noreturn]] void stop(const char *why)
{
    std::perror(why);
    std::exit(1);
}

void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        stop("sched_setaffinity");
    }
}

void answer(Number &ping, Number &pong)
{
    for (int i = 1; i <= turns; ++i) {
        while (ping.value.load() < i) {
        }
        pong.value.store(i);
    }
}

/// \return one way, ns
double ask(Number &ping, Number &pong)
{
    const auto turn = [&](int i) {
        ping.value.store(i);
        while (pong.value.load() < i) {
        }
    };
    turn(1); // the other process may have to begin first
    const auto start = Clock::now();
    for (int i = 2; i <= turns; ++i) {
        turn(i);
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() /
           (2.0 * (turns - 1));
}

std::span<std::byte> piece(std::vector<std::byte> &memory, int i)
{
    return std::span(memory).subspan(static_cast<std::size_t>(i) * bytes % message, bytes);
}

void read_all(Shared &shared, std::byte *buffers, const Case &what)
{
    std::vector<std::byte> own(message);
    answer(shared.ping, shared.pong);
    for (int i = 0; i < fragments; ++i) {
        while (shared.written.value.load(std::memory_order_acquire) <= i) {
        }
        const std::span<const std::byte> from(buffers + apart * (i % what.buffers), bytes);
        if (what.sums) {
            shared.sum.value.store(static_cast<int>(
                ft::base::copy_crc32c_shared(piece(own, i), from, ft::base::Summed::copy)));
        } else if (what.way == Way::strings) {
            std::memcpy(piece(own, i).data(), from.data(), bytes);
        } else {
            ft::base::copy_by_vectors(piece(own, i).data(), from);
        }
        shared.read.value.store(i + 1, std::memory_order_release);
    }
    answer(shared.end_ping, shared.end_pong);
}

/// \return GB/s of the second half, when all buffers have had their turn
double write_all(Shared &shared, std::byte *buffers, const Case &what)
{
    std::vector<std::byte> own(message, std::byte{7});
    Clock::time_point half;
    std::uint32_t sum = 0;
    for (int i = 0; i < fragments; ++i) {
        if (i == fragments / 2) {
            half = Clock::now();
        }
        while (shared.read.value.load(std::memory_order_acquire) + what.buffers <= i) {
        }
        const std::span<std::byte> to(buffers + apart * (i % what.buffers), bytes);
        if (what.sums) {
            sum ^= what.way == Way::past_caches
                       ? ft::base::copy_crc32c_past_caches(to, piece(own, i))
                       : ft::base::copy_crc32c_shared(to, piece(own, i), ft::base::Summed::source);
        } else if (what.way == Way::past_caches) {
            ft::base::copy_past_caches(to.data(), piece(own, i));
        } else if (what.way == Way::vectors) {
            ft::base::copy_by_vectors(to.data(), piece(own, i));
        } else {
            std::memcpy(to.data(), piece(own, i).data(), bytes);
        }
        shared.written.value.store(i + 1, std::memory_order_release);
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - half).count();
    shared.sum.value.store(static_cast<int>(sum));
    return static_cast<double>(bytes) * fragments / 2 / ns;
}

void *share(std::size_t size)
{
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        stop("mmap");
    }
    return memory;
}

/// \param rate is set \return the class of the cores, empty when it changed meanwhile
std::string round_of(const Case &what, double &rate)
{
    auto *const shared = new (share(sizeof(Shared))) Shared;
    auto *const buffers = static_cast<std::byte *>(share(apart * most_buffers));
    std::memset(buffers, 0, apart * most_buffers);
    const pid_t reader = fork();
    if (reader < 0) {
        stop("fork");
    }
    if (reader == 0) {
        stay_on(1);
        read_all(*shared, buffers, what);
        _exit(0);
    }
    const double before = ask(shared->ping, shared->pong);
    rate = write_all(*shared, buffers, what);
    const double after = ask(shared->end_ping, shared->end_pong);
    waitpid(reader, nullptr, 0);
    munmap(buffers, apart * most_buffers);
    munmap(shared, sizeof(Shared));
    const bool is_near = before < near_below_ns;
    return is_near != (after < near_below_ns) ? "" : is_near ? "near" : "far";
}

} // namespace

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? std::atof(argv[1]) : 30;
    if (seconds <= 0) {
        std::fprintf(stderr, "usage: buffers [SECONDS]\n");
        return 2;
    }
    stay_on(0);
    std::vector<Case> cases;
    for (const int buffers : {2, 4, 8, 16, 32, 60}) {
        for (const Way way :
             {Way::strings, Way::reading_by_vectors, Way::vectors, Way::past_caches}) {
            cases.push_back({buffers, way, false});
        }
        for (const Way way : {Way::vectors, Way::past_caches}) { // sums are made with vectors
            cases.push_back({buffers, way, true});
        }
    }
    std::map<std::pair<std::string, std::size_t>, std::vector<double>> rates;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end) {
        for (std::size_t i = 0; i < cases.size(); ++i) {
            double rate = 0;
            if (const std::string cores = round_of(cases[i], rate); !cores.empty()) {
                rates[{cores, i}].push_back(rate);
            }
        }
    }
    for (auto &[key, seen] : rates) {
        std::sort(seen.begin(), seen.end());
        const Case &what = cases[key.second];
        std::printf("%s buffers %d %s %s %.1f GB/s [%.1f, %.1f] of %zu\n", key.first.c_str(),
                    what.buffers, way_names[static_cast<std::size_t>(what.way)],
                    what.sums ? "sum" : "no-sum", seen[seen.size() / 2], seen.front(), seen.back(),
                    seen.size());
    }
    return 0;
}
