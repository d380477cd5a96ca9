/* What the programs of this folder share: cases that all ranks run together, and their report.
 *
 * A case is a function that says `check` of everything that must hold. Rank 0 prints TAP; a case
 * has passed when every check held at every rank.
 */
#ifndef TEST_MPI_SEMANTICS_CASES_HPP
#define TEST_MPI_SEMANTICS_CASES_HPP

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cases {

struct World {
    int rank = 0;
    int size = 0;
    int left() const { return (rank + size - 1) % size; }
    int right() const { return (rank + 1) % size; }
};
const World &world();

/* Counts a failure of the running case, and tells about the first few, unless `holds`. */
void check(bool holds, const char *what, long detail = 0);

struct Case {
    const char *name;
    void (*run)();
};

/* How many checks have failed since the running case began. */
long failures();

/* MPI_Init_thread, and `world` filled: for a process that runs no cases but helps those that do. */
void begin(int argc, char **argv, int threads);

/* MPI_Init_thread with `threads`, all cases, MPI_Finalize. Returns what main returns. */
int run(int argc, char **argv, int threads, std::span<const Case> all);

/* Bytes that depend on `seed` and place. */
void fill(std::span<unsigned char> bytes, std::uint64_t seed);
std::vector<unsigned char> pattern(std::size_t size, std::uint64_t seed);
/* Whether the bytes are those of `fill`; checks it too. */
void expect(std::span<const unsigned char> bytes, std::uint64_t seed, const char *what);

/* The largest resident set of this process so far, KiB; -1 if it cannot be told. */
long peak();

/* Whether a process of this machine is stopped (SIGSTOP). */
bool is_stopped(int pid);

/* A performance variable, read between MPI_Init and MPI_T_finalize. */
class Variable {
  public:
    /* of_comm: it has values for each rank of MPI_COMM_WORLD */
    Variable(const char *name, int var_class, bool of_comm);
    ~Variable();
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;
    /* Of all its values. */
    unsigned long long sum();

  private:
    MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
    MPI_T_pvar_handle handle_ = MPI_T_PVAR_HANDLE_NULL;
    std::vector<unsigned long long> values_;
};

int count_of(const MPI_Status &status, MPI_Datatype type = MPI_BYTE);

} // namespace cases

#endif
