// A rank dies between the two steps of adding a message to another's queue under btl/vader
// (orte_glue/radixft/vader_queue.hpp). What it would have left behind it leaves for certain: it
// takes the first step by its own hand, into the memory that it shares with the other.
//
// usage: half_added waits FILE     rank 0 comes to the gap inside MPI
//        half_added empty FILE     its queue was empty
//        half_added computes FILE  it is outside MPI all the time
// Ranks 1 and 3 send to rank 0, before and behind rank 2, which dies. FILE holds one word that all
// of them share.
#include "ompi/mca/ompi_prelude.hpp"

#include "orte_glue/radixft/vader_queue.hpp"
#include "orte_glue/radixft/watch.hpp"
#include "test/mpi/validate/check.hpp"

#include <atomic>
#include <chrono>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

using namespace check;
using ft::radixft::VaderQueue;

namespace {

constexpr int reader = 0;
constexpr int first = 1;
constexpr int victim = 2;
constexpr int second = 3;
constexpr auto patience = std::chrono::seconds(30);

template <class Condition, class Turn>
void until(Condition met, const char *what, Turn turn)
{
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!met()) {
        if (std::chrono::steady_clock::now() > end) {
            std::fprintf(stderr, "rank %d: wrong: waited for %s\n", me, what);
            std::exit(1);
        }
        turn();
    }
}

/// Outside MPI.
template <class Condition>
void until(Condition met, const char *what)
{
    until(met, what, sched_yield);
}

void progress()
{
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

/// The step that the four have come to.
class Steps {
  public:
    explicit Steps(const char *path)
    {
        const int file = open(path, O_RDWR);
        void *const memory =
            mmap(nullptr, sizeof(std::uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED) {
            std::perror(path);
            std::exit(1);
        }
        word_ = static_cast<std::uint32_t *>(memory);
    }
    [[nodiscard]] bool come_to(std::uint32_t step) const
    {
        return std::atomic_ref(*word_).load() >= step;
    }
    void await(std::uint32_t step, const char *what) const
    {
        until([&] { return come_to(step); }, what);
    }
    void next() const { std::atomic_ref(*word_).fetch_add(1); }
    void set(std::uint32_t step) const { std::atomic_ref(*word_).store(step); }

  private:
    std::uint32_t *word_;
};

VaderQueue queue_of(int rank)
{
    return VaderQueue::of(ft::radixft::contents("/proc/self/maps"), OMPI_PROC_MY_NAME->jobid,
                          static_cast<std::uint32_t>(rank));
}

/// Where the victim's message would lie: in the last page of its own segment, which is not in use.
VaderQueue::Place last_page()
{
    constexpr std::uint32_t segment = 4 * 1024 * 1024; // btl_vader_segment_size
    const auto place = static_cast<VaderQueue::Place>(static_cast<std::uint64_t>(victim) << 32 |
                                                      (segment - 4096U));
    const VaderQueue mine = queue_of(victim);
    VaderQueue::Link const link = mine.at(place);
    that(link != nullptr && *link == 0, "the last page is in use");
    *link = VaderQueue::nobody;
    return place;
}

[[noreturn]] void add_half(const Steps &steps, std::uint32_t after)
{
    steps.await(after, "one's turn to die");
    VaderQueue::Link const tail = queue_of(reader).head() + 1;
    const VaderQueue::Place before = std::atomic_ref(*tail).exchange(last_page());
    std::printf("the queue %s\n", before == VaderQueue::nobody ? "was empty" : "had messages");
    std::fflush(stdout);
    std::fflush(stderr);
    steps.set(after + 1);
    die();
}

void send(const Steps &steps, std::uint32_t after)
{
    steps.await(after, "one's turn to send");
    is(MPI_Send(&me, 1, MPI_INT, reader, 5, MPI_COMM_WORLD), MPI_SUCCESS, "send");
    steps.set(after + 1);
}

/// What the others have told this rank, who are outside MPI now, has come. A pass may take as long
/// as somebody else keeps the core to whom it is left: they are few, but each takes all that is
/// there.
void drain(const VaderQueue &mine)
{
    constexpr int passes = 100;
    for (int quiet = 0; quiet < passes; ++quiet) {
        progress();
        if (mine.look().kind != VaderQueue::Finding::whole) {
            quiet = 0;
        }
    }
}

void receive()
{
    for (const int rank : {first, second}) {
        int word = -1;
        is(MPI_Recv(&word, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
           "receive");
        that(word == rank, "rank %d has sent %d", rank, word);
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string how = argc > 2 ? argv[1] : "";
    const Steps steps(argc > 2 ? argv[2] : "");
    const bool empty = how == "empty";
    that(size == 4, "%d ranks", size);
    // Nothing of the barrier is under way when rank 0 says that it stays out.
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    constexpr std::uint32_t others_out = 3; // all but the reader are outside MPI
    constexpr std::uint32_t out = 4;        // and the reader, too
    constexpr std::uint32_t over = 7;
    if (me != reader) {
        steps.next();
    }
    if (me == victim) {
        add_half(steps, empty ? out : out + 1);
    } else if (me == first) {
        send(steps, empty ? over - 1 : out);
    } else if (me == second) {
        send(steps, empty ? over - 2 : over - 1);
    } else {
        const VaderQueue mine = queue_of(reader);
        that(mine.usable(), "there is no queue");
        until([&] { return steps.come_to(others_out); }, "the others' end of the barrier",
              progress);
        drain(mine);
        steps.set(out);
        steps.await(over, "the others");
        if (how == "computes") {
            until([&] { return mine.look().kind == VaderQueue::Finding::whole; }, "a whole queue");
        }
        receive();
    }
    int failed = 0;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &failed), MPI_SUCCESS, "validate_all");
    that(failed == 1, "%d failed", failed);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    return finish();
}
