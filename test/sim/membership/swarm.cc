// The swarm: scenarios from seeds, with the real engine. Prints TAP.
//
//   swarm [--first SEED] [--count N] [--mutation NUMBER] [--seed SEED (one run, told in full)]

#include "test/sim/membership/scenario.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

/// With so many runs each kind of message meets its fault.
constexpr std::uint64_t enough_for_each_message = 100000;

double cpu_seconds()
{
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

} // namespace

int main(int argc, char **argv)
{
    std::uint64_t first = 1;
    std::uint64_t count = 1000;
    unsigned mutation = 0;
    bool one = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--first") == 0) {
            first = value;
        } else if (std::strcmp(argv[i], "--count") == 0) {
            count = value;
        } else if (std::strcmp(argv[i], "--mutation") == 0) {
            mutation = static_cast<unsigned>(value);
        } else if (std::strcmp(argv[i], "--seed") == 0) {
            first = value;
            count = 1;
            one = true;
        } else {
            std::fprintf(stderr, "swarm: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    struct {
        std::uint64_t runs = 0, struck = 0, installs = 0, evictions = 0, failed = 0;
    } families[sim::family_count];
    std::array<std::uint64_t, sim::type_count> struck_at{}; // runs, by kind of message
    std::uint64_t events = 0;
    unsigned shown = 0;
    const double start = cpu_seconds();
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const sim::Result r = sim::run_scenario(seed, static_cast<sim::Mutation>(mutation), one);
        auto &f = families[seed % sim::family_count];
        ++f.runs;
        f.struck += r.faults_struck;
        f.installs += r.installs;
        f.evictions += r.evictions;
        events += r.events;
        for (unsigned kind = 1; kind < sim::type_count; ++kind) {
            struck_at[kind] += r.struck_at.test(kind);
        }
        if (!r.violations.empty()) {
            ++f.failed;
            if (++shown <= 10) {
                std::printf(
                    "# seed %llu (%s, %u nodes): %s\n# repeat: %s --mutation %u --seed %llu\n",
                    static_cast<unsigned long long>(seed), r.kind.c_str(), r.nodes,
                    r.violations.front().c_str(), argv[0], mutation,
                    static_cast<unsigned long long>(seed));
            }
        }
    }
    std::uint64_t failed = 0;
    std::printf("1..%u\n", sim::family_count + 1);
    for (unsigned i = 0; i < sim::family_count; ++i) {
        const auto &f = families[i];
        // A family none of whose faults struck would prove nothing.
        const bool good = f.failed == 0 && (f.runs == 0 || f.struck != 0 || one);
        failed += !good;
        std::printf("%s %u - %s: %llu runs, %llu faults, %llu views, %llu evictions, %llu failed\n",
                    good ? "ok" : "not ok", i + 1, sim::family_name(i),
                    static_cast<unsigned long long>(f.runs),
                    static_cast<unsigned long long>(f.struck),
                    static_cast<unsigned long long>(f.installs),
                    static_cast<unsigned long long>(f.evictions),
                    static_cast<unsigned long long>(f.failed));
    }
    // Somebody died or stopped at each kind of message but heartbeats, where there were runs
    // enough.
    bool everywhere = true;
    for (unsigned kind = 1; kind < sim::type_count; ++kind) {
        const auto type = static_cast<sim::Type>(kind);
        if (type != sim::Type::heartbeat) {
            everywhere &= struck_at[kind] != 0;
            std::printf("# at a %s: %llu runs\n", name(type),
                        static_cast<unsigned long long>(struck_at[kind]));
        }
    }
    const bool good = everywhere || count < enough_for_each_message;
    failed += !good;
    std::printf("%s %u - a failure struck at each kind of message\n", good ? "ok" : "not ok",
                sim::family_count + 1);
    std::printf("# seeds %llu to %llu, %.1f million events, %.1f s of processor time\n",
                static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(first + count - 1),
                static_cast<double>(events) / 1e6, cpu_seconds() - start);
    return failed == 0 ? 0 : 1;
}
