/* hashring: ranks exchange messages of many sizes, shapes and modes and check every byte.
 *
 * Exits 0 only when all data was right at all ranks, nothing came twice and nothing was left over;
 * 1 when something was wrong; 2 for a bad option; 3 when the awaited file did not come in time;
 * 4 when no round ended within the time of --stall: the run then ends by exit(), so that what is
 * loaded into it can still say what it did.
 *
 * Everything that happens follows from the seed and the round's number. With --marks rank 0 writes
 * one line per event to a file or FIFO, "<seconds> <event>" in CLOCK_MONOTONIC, so that a test can
 * make a fault while a known kind of round is under way.
 */
#include "test/mpi/programs/path_counts.hpp"
#include "test/mpi/programs/ring.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

namespace {

constexpr const char *usage =
    "usage: hashring [options]\n"
    "  --seconds S   go on for S seconds (default 2)\n"
    "  --rounds N    end after N rounds, whatever the time\n"
    "  --until FILE  go on until FILE exists, for --seconds at most, then fail\n"
    "  --kinds LIST  comma-separated kinds of rounds (default all)\n"
    "  --max BYTES   largest message (default 2097152)\n"
    "  --seed N      (default 1)\n"
    "  --marks FILE  where rank 0 tells of its progress\n"
    "  --stall S     exit with 4 when a rank finishes no round for S seconds\n"
    "  --paths N     with 1, each rank prints in the end how often paths failed and came back\n";

struct Options {
    double seconds = 2.0;
    long rounds = 0;
    std::string until;
    std::string kinds;
    std::size_t largest = 2U << 20U;
    std::uint64_t seed = 1;
    std::string marks;
    double stall = 0.0;
    int paths = 0;
};

template <class Number>
bool read_number(const char *text, Number low, Number high, Number &value)
{
    char *end = nullptr;
    const double number = std::strtod(text, &end);
    if (end == text || *end != '\0' || number < static_cast<double>(low) ||
        number > static_cast<double>(high)) {
        return false;
    }
    value = static_cast<Number>(number);
    return true;
}

bool read_option(Options &options, std::string_view name, const char *value)
{
    if (name == "--seconds") {
        return read_number(value, 0.0, 86400.0, options.seconds);
    }
    if (name == "--stall") {
        return read_number(value, 0.001, 86400.0, options.stall);
    }
    if (name == "--paths") {
        return read_number(value, 0, 1, options.paths);
    }
    if (name == "--rounds") {
        return read_number(value, 0L, 1L << 40, options.rounds);
    }
    if (name == "--max") {
        return read_number(value, std::size_t{1}, std::size_t{1} << 30U, options.largest);
    }
    if (name == "--seed") {
        return read_number(value, std::uint64_t{0}, std::uint64_t{1} << 50U, options.seed);
    }
    if (name == "--until") {
        options.until = value;
    } else if (name == "--kinds") {
        options.kinds = value;
    } else if (name == "--marks") {
        options.marks = value;
    } else {
        return false;
    }
    return true;
}

std::optional<Options> read_options(std::span<char *> arguments)
{
    Options options;
    for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
        if (!read_option(options, arguments[i], arguments[i + 1])) {
            return std::nullopt;
        }
    }
    return arguments.size() % 2 == 0 ? std::optional(options) : std::nullopt;
}

/* The kinds named, in their order; empty when a name is unknown. */
std::vector<ring::Kind> choose_kinds(const std::string &list)
{
    const std::span<const ring::Kind> all = ring::all_kinds();
    if (list.empty()) {
        return {all.begin(), all.end()};
    }
    std::vector<ring::Kind> chosen;
    std::size_t begin = 0;
    while (begin <= list.size()) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const std::string name = list.substr(begin, end - begin);
        const auto found =
            std::find_if(all.begin(), all.end(), [&](const auto &k) { return k.name == name; });
        if (found == all.end()) {
            return {};
        }
        chosen.push_back(*found);
        begin = end + 1;
    }
    return chosen;
}

double now()
{
    std::timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/* Rank 0's progress, a line an event. */
class Marks {
  public:
    /* Opened for reading too, so that a FIFO without a reader does not stop us. */
    explicit Marks(const std::string &path)
        : fd_(path.empty() ? -1
                           : open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_APPEND, 0644))
    {
    }
    Marks(const Marks &) = delete;
    Marks &operator=(const Marks &) = delete;
    ~Marks()
    {
        if (fd_ >= 0) {
            close(fd_);
        }
    }

    void tell(const std::string &event) const
    {
        if (fd_ < 0) {
            return;
        }
        std::array<char, 200> line{};
        const int length =
            std::snprintf(line.data(), line.size(), "%.6f %s\n", now(), event.c_str());
        /* A full FIFO means that nobody reads: then nobody misses this line. */
        if (write(fd_, line.data(), static_cast<std::size_t>(length)) < 0 && errno != EAGAIN) {
            std::perror("hashring: --marks");
        }
    }

  private:
    int fd_;
};

/* Ends the process when it is neither fed nor destroyed for some time. */
class Watchdog {
  public:
    explicit Watchdog(double seconds)
    {
        if (seconds > 0.0) {
            thread_ = std::thread([this, seconds] { watch(seconds); });
        }
    }
    Watchdog(const Watchdog &) = delete;
    Watchdog &operator=(const Watchdog &) = delete;
    ~Watchdog()
    {
        if (thread_.joinable()) {
            tell(Word::leave);
            thread_.join();
        }
    }
    void feed()
    {
        if (thread_.joinable()) {
            tell(Word::alive);
        }
    }

  private:
    enum class Word { none, alive, leave };

    void tell(Word word)
    {
        {
            const std::scoped_lock lock(mutex_);
            word_ = word;
        }
        changed_.notify_all();
    }

    void watch(double seconds)
    {
        std::unique_lock lock(mutex_);
        while (word_ != Word::leave) {
            word_ = Word::none;
            if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                   [this] { return word_ != Word::none; })) {
                std::fputs("hashring: stalled\n", stderr);
                std::exit(4);
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    Word word_ = Word::none;
    std::thread thread_;
};

enum class Verdict : int { go_on, finished, never_came };

Verdict decide(const Options &options, const ring::Ring &ring, double end)
{
    if (options.rounds > 0 && ring.round >= options.rounds) {
        return Verdict::finished;
    }
    if (!options.until.empty()) {
        if (access(options.until.c_str(), F_OK) == 0) {
            return Verdict::finished;
        }
        return now() < end ? Verdict::go_on : Verdict::never_came;
    }
    return options.rounds > 0 || now() < end ? Verdict::go_on : Verdict::finished;
}

/* Rank 0 decides whether there is another round; everybody hears of it. */
Verdict agree(const Options &options, const ring::Ring &ring, double end)
{
    int verdict = 0;
    if (ring.rank == 0) {
        verdict = static_cast<int>(decide(options, ring, end));
    }
    MPI_Bcast(&verdict, 1, MPI_INT, 0, ring.comm);
    return static_cast<Verdict>(verdict);
}

Verdict run_rounds(const Options &options, std::span<const ring::Kind> kinds, ring::Ring &ring,
                   const Marks &marks, Watchdog &watchdog)
{
    const double end = now() + options.seconds;
    MPI_Comm comms[2] = {MPI_COMM_WORLD, MPI_COMM_NULL};
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    Verdict verdict = Verdict::go_on;
    while ((verdict = agree(options, ring, end)) == Verdict::go_on) {
        const auto number = static_cast<std::size_t>(ring.round);
        const ring::Kind &kind = kinds[number % kinds.size()];
        ring.comm = comms[(number / kinds.size()) % 2];
        ring.offset = ring.size == 1 ? 0 : 1 + static_cast<int>(ring.round % (ring.size - 1));
        if (ring.rank == 0) {
            marks.tell("round " + std::to_string(ring.round) + " " + kind.name);
        }
        kind.run(ring);
        ++ring.round;
        watchdog.feed();
    }
    for (MPI_Comm comm : comms) {
        ring.comm = comm;
        MPI_Barrier(comm);
        int left_over = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &left_over, MPI_STATUS_IGNORE);
        if (left_over != 0) {
            ring.complain("a message is left over at the end: it came twice");
        }
    }
    MPI_Comm_free(&comms[1]);
    ring.comm = MPI_COMM_WORLD;
    return verdict;
}

int report(const ring::Ring &ring, Verdict verdict, const Marks &marks)
{
    const std::array<std::uint64_t, 3> mine{ring.messages, ring.bytes, ring.wrong};
    std::array<std::uint64_t, 3> total{};
    MPI_Allreduce(mine.data(), total.data(), 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (ring.rank == 0) {
        std::printf("hashring: %d ranks, %ld rounds, %" PRIu64 " messages, %" PRIu64
                    " bytes, %" PRIu64 " wrong\n",
                    ring.size, ring.round, total[0], total[1], total[2]);
        std::fflush(stdout);
        marks.tell("done " + std::to_string(total[2]) + " wrong");
        if (verdict == Verdict::never_came) {
            std::fprintf(stderr, "hashring: the file of --until did not come in time\n");
        }
    }
    /* Our own count too: the sum came over the network that is on trial. */
    if (total[2] != 0 || ring.wrong != 0) {
        return 1;
    }
    return verdict == Verdict::never_came ? 3 : 0;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    ring::Ring ring;
    MPI_Comm_rank(MPI_COMM_WORLD, &ring.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ring.size);
    ring.comm = MPI_COMM_WORLD;

    const std::span arguments(argv, static_cast<std::size_t>(argc));
    const std::optional<Options> options = read_options(arguments.subspan(1));
    const std::vector<ring::Kind> kinds =
        options ? choose_kinds(options->kinds) : std::vector<ring::Kind>{};
    if (kinds.empty()) {
        if (ring.rank == 0) {
            std::fputs(usage, stderr);
        }
        MPI_Finalize();
        return 2;
    }
    ring.seed = options->seed;
    ring.largest = options->largest;
    int result = 0;
    {
        Watchdog watchdog(options->stall);
        const PathCounts counts(options->paths != 0);
        const Marks marks(ring.rank == 0 ? options->marks : std::string{});
        const Verdict verdict = run_rounds(*options, kinds, ring, marks, watchdog);
        result = report(ring, verdict, marks);
        counts.print(ring.rank);
    }
    MPI_Finalize();
    return result;
}
