/* Two ranks exchange messages until the first path of rank 0's, after it failed, carries long and
 * short messages again, as MPI_T tells.
 *
 * usage: fast_path down|doubted
 * It has failed when it was taken out and taken back, or when it has carried no short message for
 * some rounds: for one, a busy machine may be enough. While it is out it must carry nothing, and
 * the others all; unless these are in doubt themselves, when what answers carries, though it be
 * held down (PROTOCOL.md, Paths). Needs a fault that kills that path and revives it; fails when
 * none does.
 */
#include "test/mpi/semantics/cases.hpp"

#include <array>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

namespace {

using cases::check;
using cases::world;

constexpr std::size_t paths_of_a_peer = 16;
constexpr double deadline_seconds = 40;
constexpr double wanted_bytes = 1 << 20; // of long messages, on the path that is back
constexpr int short_messages = 200;      // a round
constexpr int short_bytes = 8;
constexpr int long_messages = 5;
constexpr int long_bytes = 100000;
constexpr int silent_rounds = 3;
constexpr double silent_seconds = 0.1; // in which it has carried no short message
constexpr double bytes_of_a_round = short_messages * short_bytes + long_messages * long_bytes;
MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
bool taken_out = true; // that is waited for

/* One figure of the paths to the other rank. */
class Figure {
  public:
    explicit Figure(const char *name)
    {
        int index = 0;
        check(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_LEVEL, &index) == MPI_SUCCESS, name);
        MPI_Comm comm = MPI_COMM_WORLD;
        int count = 0;
        MPI_T_pvar_handle_alloc(session, index, &comm, &handle_, &count);
        values_.resize(2 * paths_of_a_peer);
        check(count == static_cast<int>(values_.size()), name, count);
    }
    /* Of the first path. */
    double read()
    {
        MPI_T_pvar_read(session, handle_, values_.data());
        return *first();
    }
    /* Of the other paths together, as of the last read(). */
    double others() const { return std::accumulate(first() + 1, first() + paths_of_a_peer, 0.0); }

  private:
    std::vector<double>::const_iterator first() const
    {
        return values_.begin() +
               static_cast<std::ptrdiff_t>(world().right()) * std::ptrdiff_t{paths_of_a_peer};
    }

    MPI_T_pvar_handle handle_ = MPI_T_PVAR_HANDLE_NULL;
    std::vector<double> values_;
};

/* How often this process has doubted that something arrived: what makes a path suspect. */
class Doubts {
  public:
    Doubts()
    {
        for (std::size_t i = 0; i < names.size(); ++i) {
            int index = 0;
            int count = 0;
            check(MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS,
                  names[i]);
            MPI_T_pvar_handle_alloc(session, index, nullptr, &handles_[i], &count);
        }
    }
    unsigned long long read()
    {
        unsigned long long all = 0;
        for (MPI_T_pvar_handle handle : handles_) {
            unsigned long long one = 0;
            MPI_T_pvar_read(session, handle, &one);
            all += one;
        }
        return all;
    }

  private:
    static constexpr std::array names{"pml_dr_retransmitted_timeout", "pml_dr_retransmitted_tail",
                                      "pml_dr_retransmitted_watchdog", "pml_dr_questions_sent"};
    std::array<MPI_T_pvar_handle, names.size()> handles_{};
};

void exchange(int size, int times)
{
    const auto out = cases::pattern(static_cast<std::size_t>(size), 1);
    for (int i = 0; i < times; ++i) {
        std::vector<unsigned char> in(out.size());
        MPI_Sendrecv(out.data(), size, MPI_BYTE, world().right(), 0, in.data(), size, MPI_BYTE,
                     world().left(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        cases::expect(in, 1, "wrong byte");
    }
}

/* What becomes of the path, round by round. */
class Watch {
  public:
    /* \return whether it has failed, and carries again */
    bool round()
    {
        const double returned = returns_.read();
        const bool was_out = failovers_.read() != returned;
        const double before = bytes_.read();
        const double others_before = bytes_.others();
        exchange(short_bytes, short_messages);
        const double between = bytes_.read();
        exchange(long_bytes, long_messages);
        const double after = bytes_.read();
        const double others = bytes_.others() - others_before;
        const double failovers = failovers_.read();
        const double returns = returns_.read();
        const unsigned long long doubts = doubts_.read();
        const bool others_were_well = doubts == doubts_before_last_;
        doubts_before_last_ = std::exchange(doubts_last_, doubts);
        if (was_out && returns == returned && others_were_well) {
            check(after == before, "bytes over a path that is out",
                  static_cast<long>(after - before));
            check(others >= bytes_of_a_round, "bytes over the others", static_cast<long>(others));
            ++rounds_without_;
        }
        // A short message goes the quickest way: by this path, if it counts as that.
        const double taken = (between - before) / short_bytes;
        failed_ = failed_ || (taken_out ? returns != 0 : silent_for_long(taken == 0));
        if (!failed_ || returns != failovers) {
            carried_ = 0;
            return false;
        }
        carried_ += after - between;
        if (carried_ < wanted_bytes || taken <= short_messages / 2) {
            return false;
        }
        if (world().rank == 0) {
            std::printf("# failovers %.0f, returns %.0f, short messages %.0f of %d\n", failovers,
                        returns, taken, short_messages);
            std::printf("# %d rounds while it was out\n", rounds_without_);
            check(!taken_out || rounds_without_ != 0, "no round while it was out");
        }
        return true;
    }

  private:
    bool silent_for_long(bool silent)
    {
        silent_rounds_ = silent ? silent_rounds_ + 1 : 0;
        silent_since_ = silent_rounds_ <= 1 ? MPI_Wtime() : silent_since_;
        return silent_rounds_ > silent_rounds && MPI_Wtime() - silent_since_ > silent_seconds;
    }

    Doubts doubts_;
    unsigned long long doubts_last_ = 0;        // after the last round
    unsigned long long doubts_before_last_ = 0; // before it
    int silent_rounds_ = 0;                     // one behind the other
    double silent_since_ = 0;
    Figure failovers_{"pml_dr_path_failovers"};
    Figure returns_{"pml_dr_path_returns"};
    Figure bytes_{"pml_dr_path_bytes"};
    int rounds_without_ = 0; // from end to end
    bool failed_ = false;
    double carried_ = 0;
};

enum Verdict : int { go_on, back, never_came };

void comes_back()
{
    Watch watch;
    const double end = MPI_Wtime() + deadline_seconds;
    int verdict = go_on;
    while (verdict == go_on) {
        const bool carries = watch.round();
        verdict = carries ? back : MPI_Wtime() > end ? never_came : go_on;
        MPI_Bcast(&verdict, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    check(verdict == back, "it did not fail, or does not carry again");
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}

constexpr std::array all{
    cases::Case{"a path that failed carries again", comes_back},
};

} // namespace

int main(int argc, char **argv)
{
    taken_out = argc < 2 || std::string_view(argv[1]) == "down";
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}
