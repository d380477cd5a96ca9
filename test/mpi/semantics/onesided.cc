/* One-sided communication over osc/pt2pt, which sends everything through the PML.

 * With btl_fault_drop given, dr must have sent some again in the end.
 */
#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>

namespace {

using cases::check;
using cases::world;

constexpr std::array<int, 6> counts{1, 7, 500, 520, 9000, 200000};

std::size_t at(int index)
{
    return static_cast<std::size_t>(index);
}

long word(int rank, int i, int turn = 0)
{
    return rank * 1000003L + i * 7L + turn;
}

/* A window over `size` longs of its own memory, all of `value` at first. */
class Window {
  public:
    explicit Window(int size, long value = -1) : memory(at(size), value)
    {
        MPI_Win_create(memory.data(), static_cast<MPI_Aint>(memory.size() * sizeof(long)),
                       sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &handle);
    }
    ~Window() { MPI_Win_free(&handle); }
    Window(const Window &) = delete;
    Window &operator=(const Window &) = delete;

    std::vector<long> memory;
    MPI_Win handle = MPI_WIN_NULL;
};

std::vector<long> words(int count, int rank, int turn = 0)
{
    std::vector<long> all(at(count));
    for (int i = 0; i < count; ++i) {
        all[at(i)] = word(rank, i, turn);
    }
    return all;
}

void expect(const long *got, int count, int rank, int turn, const char *what)
{
    for (int i = 0; i < count; ++i) {
        if (got[i] != word(rank, i, turn)) {
            check(false, what, i);
            return;
        }
    }
}

/* Every rank puts to its right and gets from its left, between fences. */
void fence()
{
    for (const int count : counts) {
        Window window(2 * count);
        for (int turn = 0; turn < 3; ++turn) {
            const auto out = words(count, world().rank, turn);
            std::vector<long> in(at(count));
            MPI_Win_fence(MPI_MODE_NOPRECEDE, window.handle);
            MPI_Put(out.data(), count, MPI_LONG, world().right(), 0, count, MPI_LONG,
                    window.handle);
            MPI_Win_fence(0, window.handle);
            expect(window.memory.data(), count, world().left(), turn, "put");
            // What the left one got from its own left.
            MPI_Get(in.data(), count, MPI_LONG, world().left(), 0, count, MPI_LONG, window.handle);
            MPI_Win_fence(MPI_MODE_NOSUCCEED, window.handle);
            expect(in.data(), count, (world().left() + world().size - 1) % world().size, turn,
                   "get");
            check(window.memory[at(count)] == -1, "wrote beyond the end", count);
        }
    }
}

/* Columns of a matrix at the target, scattered words at the origin; and nowhere. */
void datatypes()
{
    constexpr int rows = 300;
    constexpr int columns = 11;
    Window window(rows * columns);
    MPI_Datatype column = MPI_DATATYPE_NULL;
    MPI_Type_vector(rows, 1, columns, MPI_LONG, &column);
    MPI_Type_commit(&column);
    const auto out = words(2 * rows, world().rank);
    MPI_Datatype every_second = MPI_DATATYPE_NULL;
    MPI_Type_vector(rows, 1, 2, MPI_LONG, &every_second);
    MPI_Type_commit(&every_second);
    MPI_Win_fence(0, window.handle);
    for (int target = 0; target < world().size; ++target) {
        MPI_Put(out.data(), 1, every_second, target, world().rank, 1, column, window.handle);
    }
    MPI_Put(out.data(), 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, window.handle);
    MPI_Win_fence(0, window.handle);
    for (int row = 0; row < rows; ++row) {
        for (int c = 0; c < columns; ++c) {
            const long wanted = c < world().size ? word(c, 2 * row) : -1;
            if (window.memory[at(row * columns + c)] != wanted) {
                check(false, "word of a column", row * columns + c);
                row = rows;
                break;
            }
        }
    }
    MPI_Type_free(&column);
    MPI_Type_free(&every_second);
}

/* Everybody adds to everybody, in one epoch: element-wise atomic, whatever the order. */
void accumulate()
{
    for (const int count : counts) {
        Window sums(count, 0);
        Window most(count, -1);
        const auto mine = words(count, world().rank);
        MPI_Win_fence(0, sums.handle);
        MPI_Win_fence(0, most.handle);
        for (int target = 0; target < world().size; ++target) {
            MPI_Accumulate(mine.data(), count, MPI_LONG, target, 0, count, MPI_LONG, MPI_SUM,
                           sums.handle);
            MPI_Accumulate(mine.data(), count, MPI_LONG, target, 0, count, MPI_LONG, MPI_MAX,
                           most.handle);
        }
        MPI_Win_fence(0, sums.handle);
        MPI_Win_fence(0, most.handle);
        for (int i = 0; i < count; ++i) {
            long sum = 0;
            for (int rank = 0; rank < world().size; ++rank) {
                sum += word(rank, i);
            }
            if (sums.memory[at(i)] != sum || most.memory[at(i)] != word(world().size - 1, i)) {
                check(false, "accumulated", i);
                break;
            }
        }
    }
}

/* A ticket counter: every number is drawn once, and each rank's rise. */
void fetch_and_op()
{
    constexpr int draws = 200;
    Window window(1, 0);
    std::vector<long> drawn;
    const long one = 1;
    MPI_Win_lock_all(0, window.handle);
    for (int i = 0; i < draws; ++i) {
        long ticket = -1;
        MPI_Fetch_and_op(&one, &ticket, MPI_LONG, 0, 0, MPI_SUM, window.handle);
        MPI_Win_flush(0, window.handle);
        check(drawn.empty() || ticket > drawn.back(), "a ticket before an earlier one", ticket);
        drawn.push_back(ticket);
    }
    MPI_Win_unlock_all(window.handle);
    std::vector<long> all(at(draws * world().size));
    MPI_Allgather(drawn.data(), draws, MPI_LONG, all.data(), draws, MPI_LONG, MPI_COMM_WORLD);
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
        check(all[i] == static_cast<long>(i), "ticket", all[i]);
    }
}

void get_accumulate()
{
    constexpr int count = 3000;
    Window window(count, 5);
    const std::vector<long> add(count, world().rank + 1);
    std::vector<long> before(count, -1);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle);
    MPI_Get_accumulate(add.data(), count, MPI_LONG, before.data(), count, MPI_LONG, 0, 0, count,
                       MPI_LONG, MPI_SUM, window.handle);
    MPI_Win_unlock(0, window.handle);
    const long sum = world().size * (world().size + 1L) / 2;
    for (int i = 0; i < count; ++i) {
        check(before[at(i)] >= 5 && before[at(i)] <= 5 + sum - (world().rank + 1), "before",
              before[at(i)]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<long> now(count);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle);
    MPI_Get_accumulate(nullptr, 0, MPI_LONG, now.data(), count, MPI_LONG, 0, 0, count, MPI_LONG,
                       MPI_NO_OP, window.handle);
    MPI_Win_unlock(0, window.handle);
    check(std::all_of(now.begin(), now.end(), [&](long v) { return v == 5 + sum; }), "sum",
          now.front());
}

/* A lock made of compare-and-swap guards a counter that is got and put. */
void compare_and_swap()
{
    constexpr int turns = 15;
    Window window(2, 0); // of rank 0: the lock, the counter
    const long free = 0;
    const long taken = world().rank + 1;
    MPI_Win_lock_all(0, window.handle);
    for (int i = 0; i < turns; ++i) {
        long seen = -1;
        while (seen != free) {
            MPI_Compare_and_swap(&taken, &free, &seen, MPI_LONG, 0, 0, window.handle);
            MPI_Win_flush(0, window.handle);
        }
        long counter = -1;
        MPI_Get(&counter, 1, MPI_LONG, 0, 1, 1, MPI_LONG, window.handle);
        MPI_Win_flush(0, window.handle);
        ++counter;
        MPI_Put(&counter, 1, MPI_LONG, 0, 1, 1, MPI_LONG, window.handle);
        MPI_Win_flush(0, window.handle);
        MPI_Compare_and_swap(&free, &taken, &seen, MPI_LONG, 0, 0, window.handle);
        MPI_Win_flush(0, window.handle);
        check(seen == taken, "the lock was somebody else's", seen);
    }
    MPI_Win_unlock_all(window.handle);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world().rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle);
        check(window.memory[1] == static_cast<long>(turns) * world().size, "counter",
              window.memory[1]);
        MPI_Win_unlock(0, window.handle);
    }
}

MPI_Group group_of(int rank)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group one = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &rank, &one);
    MPI_Group_free(&all);
    return one;
}

/* Post, start, complete and wait round the ring; every other time with MPI_Win_test. */
void post_start_complete_wait()
{
    MPI_Group left = group_of(world().left());
    MPI_Group right = group_of(world().right());
    for (const int count : counts) {
        Window window(count);
        for (int turn = 0; turn < 4; ++turn) {
            const auto out = words(count, world().rank, turn);
            MPI_Win_post(left, 0, window.handle);
            MPI_Win_start(right, 0, window.handle);
            MPI_Put(out.data(), count, MPI_LONG, world().right(), 0, count, MPI_LONG,
                    window.handle);
            MPI_Win_complete(window.handle);
            int flag = turn % 2 == 0 ? 1 : 0;
            if (flag != 0) {
                MPI_Win_wait(window.handle);
            }
            while (flag == 0) {
                MPI_Win_test(window.handle, &flag);
            }
            expect(window.memory.data(), count, world().left(), turn, "put");
        }
    }
    MPI_Group_free(&left);
    MPI_Group_free(&right);
}

/* Read, change, write under an exclusive lock, at every rank in turn. */
void exclusive_locks()
{
    constexpr int turns = 20;
    Window window(1, 0);
    for (int i = 0; i < turns; ++i) {
        const int target = (world().rank + i) % world().size;
        long value = -1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window.handle);
        MPI_Get(&value, 1, MPI_LONG, target, 0, 1, MPI_LONG, window.handle);
        MPI_Win_flush(target, window.handle);
        value += world().rank + 1;
        MPI_Put(&value, 1, MPI_LONG, target, 0, 1, MPI_LONG, window.handle);
        MPI_Win_unlock(target, window.handle);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world().rank, 0, window.handle);
    const long mine = window.memory[0];
    MPI_Win_unlock(world().rank, window.handle);
    long sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(sum == turns * (world().size * (world().size + 1L) / 2), "sum", sum);
}

/* What was flushed is there when a message says so; request-based calls; a target that is passive.
 */
void flush()
{
    for (const int count : counts) {
        Window window(count);
        const auto out = words(count, world().rank);
        std::vector<long> in(at(count));
        MPI_Win_lock_all(0, window.handle);
        MPI_Put(out.data(), count, MPI_LONG, world().right(), 0, count, MPI_LONG, window.handle);
        MPI_Win_flush_local(world().right(), window.handle);
        MPI_Win_flush(world().right(), window.handle);
        int token = 0;
        MPI_Sendrecv(&token, 1, MPI_INT, world().right(), 1, &token, 1, MPI_INT, world().left(), 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_sync(window.handle);
        expect(window.memory.data(), count, world().left(), 0, "put and flush");
        std::array<MPI_Request, 2> requests{};
        MPI_Rget(in.data(), count, MPI_LONG, world().right(), 0, count, MPI_LONG, window.handle,
                 requests.data());
        MPI_Wait(requests.data(), MPI_STATUS_IGNORE);
        expect(in.data(), count, world().rank, 0, "got back");
        MPI_Barrier(MPI_COMM_WORLD);
        const auto second = words(count, world().rank, 1);
        MPI_Rput(second.data(), count, MPI_LONG, world().right(), 0, count, MPI_LONG, window.handle,
                 requests.data());
        MPI_Wait(requests.data(), MPI_STATUS_IGNORE);
        MPI_Win_flush_all(window.handle);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(window.handle);
        expect(window.memory.data(), count, world().left(), 1, "request-based put");
        MPI_Win_unlock_all(window.handle);
    }
}

/* Memory that is attached to a window made without any. */
void dynamic_window()
{
    constexpr int count = 5000;
    MPI_Win window = MPI_WIN_NULL;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    std::vector<long> memory(count, -1);
    MPI_Win_attach(window, memory.data(), static_cast<MPI_Aint>(memory.size() * sizeof(long)));
    MPI_Aint mine = 0;
    MPI_Get_address(memory.data(), &mine);
    std::vector<MPI_Aint> all(at(world().size));
    MPI_Allgather(&mine, 1, MPI_AINT, all.data(), 1, MPI_AINT, MPI_COMM_WORLD);
    const auto out = words(count, world().rank);
    MPI_Win_fence(0, window);
    MPI_Put(out.data(), count, MPI_LONG, world().right(), all[at(world().right())], count, MPI_LONG,
            window);
    MPI_Win_fence(0, window);
    expect(memory.data(), count, world().left(), 0, "put");
    MPI_Win_detach(window, memory.data());
    MPI_Win_free(&window);
}

constexpr std::array causes{"timeout", "gap", "tail", "nack", "watchdog"};
MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
std::array<MPI_T_pvar_handle, causes.size()> handles{};

/* dr's counters of what was sent again; they count from here on. */
void begin_counting()
{
    for (std::size_t i = 0; i < causes.size(); ++i) {
        const std::string name = std::string("pml_dr_retransmitted_") + causes[i];
        int index = 0;
        int count = 0;
        check(MPI_T_pvar_get_index(name.c_str(), MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS,
              causes[i]);
        check(MPI_T_pvar_handle_alloc(session, index, nullptr, &handles[i], &count) == MPI_SUCCESS,
              causes[i]);
    }
}

void faults_struck()
{
    unsigned long long mine = 0;
    for (const MPI_T_pvar_handle handle : handles) {
        unsigned long long value = 0;
        check(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS, "reading a variable");
        mine += value;
    }
    unsigned long long of_all = 0;
    MPI_Allreduce(&mine, &of_all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(of_all > 10, "fragments sent again", static_cast<long>(of_all));
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}

const std::vector<cases::Case> all{
    cases::Case{"put and get between fences", fence},
    cases::Case{"derived datatypes at both ends", datatypes},
    cases::Case{"accumulate by all to all", accumulate},
    cases::Case{"fetch_and_op draws every ticket once", fetch_and_op},
    cases::Case{"get_accumulate under a shared lock", get_accumulate},
    cases::Case{"a lock of compare_and_swap", compare_and_swap},
    cases::Case{"post, start, complete, wait and test", post_start_complete_wait},
    cases::Case{"exclusive locks", exclusive_locks},
    cases::Case{"flush, and request-based calls", flush},
    cases::Case{"a dynamic window", dynamic_window},
};

} // namespace

int main(int argc, char **argv)
{
    auto chosen = all;
    if (std::getenv("OMPI_MCA_btl_fault_drop") != nullptr) { // as mpirun hands it on
        int provided = 0;
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        MPI_T_pvar_session_create(&session);
        chosen.insert(chosen.begin(), {"counters", begin_counting});
        chosen.push_back({"fragments were lost and sent again", faults_struck});
    }
    // osc/pt2pt refuses MPI_THREAD_MULTIPLE.
    return cases::run(argc, argv, MPI_THREAD_SINGLE, chosen);
}
