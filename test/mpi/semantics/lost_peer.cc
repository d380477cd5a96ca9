/* Rank 1 is cut off from everybody while all talk to all. What concerns it ends with
 * MPIX_ERR_UNREACHABLE, what does not goes on, and MPI_Finalize returns. MPI knows the error
 * classes of mpi_ft.h.
 *
 * usage: lost_peer [FIFO]
 * Needs three ranks, a fault that cuts off rank 1, and MPI_ERRORS_RETURN; it fails when nothing is
 * cut. With an argument rank 1 writes a line to that FIFO once it has talked to rank 0.
 */
#include "ompi/mpi_ft/mpi_ft.h"

#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

int rank = 0;
long failures = 0;
const char *marks = nullptr;

void check(bool holds, const char *what, int detail)
{
    if (!holds) {
        ++failures;
        std::fprintf(stderr, "# rank %d: %s (%d)\n", rank, what, detail);
    }
}

// Two names of one class: what is written for either compiles and compares alike.
static_assert(MPI_ERR_RANK_FAIL_STOP == MPIX_ERR_PROC_FAILED);

struct ErrorClass {
    int value;
    const char *name;
};
constexpr std::array error_classes{
    ErrorClass{MPI_ERR_RANK_FAIL_STOP, "MPI_ERR_RANK_FAIL_STOP:"},
    ErrorClass{MPIX_ERR_PROC_FAILED_PENDING, "MPIX_ERR_PROC_FAILED_PENDING:"},
    ErrorClass{MPIX_ERR_REVOKED, "MPIX_ERR_REVOKED:"},
    ErrorClass{MPIX_ERR_UNREACHABLE, "MPIX_ERR_UNREACHABLE:"},
};

void mark()
{
    constexpr std::array text{'0', ' ', 't', 'a', 'l', 'k', 's', '\n'};
    const int fd = open(marks, O_WRONLY);
    check(fd >= 0 && write(fd, text.data(), text.size()) > 0, "the mark", fd);
    close(fd);
}

int class_of(int code)
{
    int error_class = -1;
    MPI_Error_class(code, &error_class);
    return error_class;
}

/* The PML alone has made them known: this program does without the library. The numbers are part
 * of its binary interface. */
void classes_are_known()
{
    int value = 75;
    for (const ErrorClass &one : error_classes) {
        check(one.value == value, one.name, one.value);
        check(class_of(value) == value, one.name, class_of(value));
        std::array<char, MPI_MAX_ERROR_STRING> text{};
        int length = 0;
        check(MPI_Error_string(value, text.data(), &length) == MPI_SUCCESS, one.name, length);
        check(std::strncmp(text.data(), one.name, std::strlen(one.name)) == 0, text.data(), value);
        check(static_cast<std::size_t>(length) == std::strlen(text.data()), "length", length);
        ++value;
    }
}

/* Exchanges until it fails. \return the class of the error */
int talk_until_lost(int other)
{
    std::vector<char> out(20000, 'x');
    std::vector<char> in(20000);
    for (int i = 0; i < 1000000; ++i) {
        const int size = i % 3 == 0 ? 20000 : 10;
        const int rc = MPI_Sendrecv(out.data(), size, MPI_CHAR, other, 1, in.data(), size, MPI_CHAR,
                                    other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS) {
            return class_of(rc);
        }
        if (i == 100 && rank == 1 && other == 0 && marks != nullptr) {
            mark();
        }
    }
    return MPI_SUCCESS;
}

void all_kinds_fail(int other)
{
    std::vector<char> big(3000000);
    int value = 0;
    check(class_of(MPI_Send(&value, 1, MPI_INT, other, 2, MPI_COMM_WORLD)) == MPIX_ERR_UNREACHABLE,
          "send", other);
    check(class_of(MPI_Send(big.data(), 3000000, MPI_CHAR, other, 2, MPI_COMM_WORLD)) ==
              MPIX_ERR_UNREACHABLE,
          "long send", other);
    check(class_of(MPI_Recv(&value, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) ==
              MPIX_ERR_UNREACHABLE,
          "receive", other);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Recv_init(&value, 1, MPI_INT, other, 2, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    check(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPIX_ERR_UNREACHABLE, "persistent",
          other);
    if (request != MPI_REQUEST_NULL) {
        MPI_Request_free(&request);
    }
    check(class_of(MPI_Probe(other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPIX_ERR_UNREACHABLE,
          "probe", other);
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    marks = argc > 1 ? argv[1] : nullptr;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    classes_are_known();
    int value = 7;
    // Posted while all are well, and waited for when rank 1 is lost.
    int late = -1;
    MPI_Request any = MPI_REQUEST_NULL;
    MPI_Irecv(&late, 1, MPI_INT, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &any);
    if (rank == 1) {
        check(talk_until_lost(0) == MPIX_ERR_UNREACHABLE, "rank 0 was not lost", 0);
        check(talk_until_lost(2) == MPIX_ERR_UNREACHABLE, "rank 2 was not lost", 2);
        all_kinds_fail(0);
        // Nobody is left who could send.
        int rc = MPI_Wait(&any, MPI_STATUS_IGNORE);
        check(class_of(rc) == MPIX_ERR_UNREACHABLE, "earlier receive from any", class_of(rc));
        rc = MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE);
        check(class_of(rc) == MPIX_ERR_UNREACHABLE, "receive from any source", class_of(rc));
    } else {
        check(talk_until_lost(1) == MPIX_ERR_UNREACHABLE, "rank 1 was not lost", 1);
        all_kinds_fail(1);
        // The two others go on, wildcards included.
        const int other = 2 - rank;
        MPI_Send(&rank, 1, MPI_INT, other, 6, MPI_COMM_WORLD);
        check(MPI_Wait(&any, MPI_STATUS_IGNORE) == MPI_SUCCESS, "earlier receive from any", 0);
        check(late == other, "value of an earlier receive from any", late);
        for (int i = 0; i < 200; ++i) {
            int in = -1;
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &request);
            MPI_Send(&i, 1, MPI_INT, other, 5, MPI_COMM_WORLD);
            check(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && in == i, "value", in);
        }
    }
    MPI_Finalize();
    if (failures == 0) {
        std::printf("rank %d survived\n", rank);
    }
    return failures == 0 ? 0 : 1;
}
