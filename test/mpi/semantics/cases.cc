#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>

namespace cases {

namespace {

World the_world;
std::atomic<long> failed_checks{0};
constexpr long shown = 5;

std::uint64_t word(std::uint64_t seed, std::uint64_t place)
{
    std::uint64_t x = seed * 0x9e3779b97f4a7c15U + place;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

unsigned char byte_at(std::uint64_t seed, std::size_t i)
{
    return static_cast<unsigned char>(word(seed, i / 8) >> (i % 8 * 8));
}

} // namespace

const World &world()
{
    return the_world;
}

void check(bool holds, const char *what, long detail)
{
    if (!holds && failed_checks.fetch_add(1) < shown) {
        std::printf("# rank %d: %s (%ld)\n", the_world.rank, what, detail);
        std::fflush(stdout);
    }
}

void fill(std::span<unsigned char> bytes, std::uint64_t seed)
{
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = byte_at(seed, i);
    }
}

std::vector<unsigned char> pattern(std::size_t size, std::uint64_t seed)
{
    std::vector<unsigned char> bytes(size);
    fill(bytes, seed);
    return bytes;
}

void expect(std::span<const unsigned char> bytes, std::uint64_t seed, const char *what)
{
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != byte_at(seed, i)) {
            check(false, what, static_cast<long>(i));
            return;
        }
    }
}

long peak()
{
    std::ifstream status("/proc/self/status");
    std::string word;
    long kibibytes = -1;
    while (status >> word) {
        if (word == "VmHWM:") {
            status >> kibibytes;
            break;
        }
    }
    return kibibytes;
}

bool is_stopped(int pid)
{
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    const auto behind_name = line.rfind(") ");
    return behind_name != std::string::npos && line.size() > behind_name + 2 &&
           line[behind_name + 2] == 'T';
}

int count_of(const MPI_Status &status, MPI_Datatype type)
{
    int count = -1;
    MPI_Get_count(&status, type, &count);
    return count;
}

long failures()
{
    return failed_checks;
}

void begin(int argc, char **argv, int threads)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, threads, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &the_world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &the_world.size);
    check(provided >= threads, "threads are not supported", provided);
}

int run(int argc, char **argv, int threads, std::span<const Case> all)
{
    begin(argc, argv, threads);
    if (the_world.rank == 0) {
        std::printf("1..%zu\n", all.size());
    }
    long failed_cases = 0;
    int number = 0;
    for (const Case &one : all) {
        one.run();
        const long mine = failed_checks.exchange(0);
        long sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        failed_cases += sum != 0 ? 1 : 0;
        if (the_world.rank == 0) {
            std::printf("%sok %d - %s\n", sum == 0 ? "" : "not ", ++number, one.name);
            std::fflush(stdout);
        }
    }
    MPI_Finalize();
    return failed_cases == 0 ? 0 : 1;
}

Variable::Variable(const char *name, int var_class, bool of_comm)
{
    MPI_T_pvar_session_create(&session_);
    int index = 0;
    check(MPI_T_pvar_get_index(name, var_class, &index) == MPI_SUCCESS, name);
    MPI_Comm comm = MPI_COMM_WORLD;
    int count = 0;
    MPI_T_pvar_handle_alloc(session_, index, of_comm ? &comm : nullptr, &handle_, &count);
    check(count >= 1, name, count);
    values_.resize(static_cast<std::size_t>(std::max(count, 1)));
}

Variable::~Variable()
{
    MPI_T_pvar_session_free(&session_);
}

unsigned long long Variable::sum()
{
    MPI_T_pvar_read(session_, handle_, values_.data());
    return std::accumulate(values_.begin(), values_.end(), 0ULL);
}

} // namespace cases
