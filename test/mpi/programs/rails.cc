/* rails: rank 0 sends long messages to rank 1 in batches of 2 MiB, and tells after each what the
 * paths have carried and are believed to carry.
 *
 * usage: rails MARKS ENOUGH steady|bursts
 *
 * steady: messages of 2 MiB without a pause. bursts: 16 of 128 KiB, then nothing until rank 1 has
 * told that it has them.
 * MARKS is a file or FIFO that gets a line a batch: "<seconds> batch <number> bytes <payload bytes
 * so far, one number for each path> MB/s <bandwidth that each is believed to have>", the time in
 * CLOCK_MONOTONIC; MPI_T tells both. It ends when the file ENOUGH exists. Exits 0 when every word
 * was right at rank 1.
 */
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

namespace {

struct Shape {
    int words;
    unsigned in_flight; // messages at a time
    unsigned batch;     // messages
    bool waits;         // ... for an answer to each batch
};
constexpr Shape steady{2 << 17, 8, 1, false}; // the window of pml/dr, whole
constexpr Shape bursts{1 << 14, 16, 16, true};
constexpr int answer_tag = 2;

using Message = std::vector<std::uint64_t>;

/* A figure of each path from rank 0 to rank 1. */
class Figure {
  public:
    explicit Figure(const char *name)
    {
        int index = 0;
        if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_LEVEL, &index) != MPI_SUCCESS) {
            std::fprintf(stderr, "rails: there is no variable %s: pml/dr is not in use\n", name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        MPI_T_pvar_session_create(&session_);
        MPI_T_pvar_handle_alloc(session_, index, &comm_, &handle_, &count_);
    }
    Figure(const Figure &) = delete;
    Figure &operator=(const Figure &) = delete;
    ~Figure() { MPI_T_pvar_session_free(&session_); }

    void print(std::FILE *out)
    {
        std::vector<double> values(static_cast<std::size_t>(count_));
        MPI_T_pvar_read(session_, handle_, values.data());
        int size = 1;
        MPI_Comm_size(comm_, &size);
        const int paths = count_ / size;
        for (int path = 0; path < paths; ++path) {
            std::fprintf(out, " %.0f", values[static_cast<std::size_t>(paths + path)]);
        }
    }

  private:
    MPI_Comm comm_ = MPI_COMM_WORLD;
    MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
    MPI_T_pvar_handle handle_ = MPI_T_PVAR_HANDLE_NULL;
    int count_ = 0;
};

double seconds()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::uint64_t word_of(std::uint64_t message, int place)
{
    return (message + 1) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(place);
}

/* Messages are numbered; one with tag 1 is the last. */
void send(const Shape &shape, const char *marks, const char *enough)
{
    const auto &[words, in_flight, batch, waits] = shape;
    std::FILE *out = std::fopen(marks, "a");
    if (out == nullptr) {
        std::perror(marks);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    Figure bytes("pml_dr_path_bytes");
    Figure bandwidth("pml_dr_path_bandwidth");
    std::vector<Message> buffers(in_flight, Message(static_cast<std::size_t>(words)));
    std::vector<MPI_Request> requests(in_flight, MPI_REQUEST_NULL);
    const int all = static_cast<int>(in_flight);
    bool last = false;
    for (std::uint64_t number = 0; !last; ++number) {
        int free = static_cast<int>(number % in_flight);
        if (waits && free == 0 && number != 0) {
            MPI_Waitall(all, requests.data(), MPI_STATUSES_IGNORE);
            MPI_Recv(nullptr, 0, MPI_BYTE, 1, answer_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (!waits && number >= in_flight) {
            MPI_Waitany(all, requests.data(), &free, MPI_STATUS_IGNORE);
        }
        Message &message = buffers[static_cast<std::size_t>(free)];
        for (int i = 0; i < words; ++i) {
            message[static_cast<std::size_t>(i)] = word_of(number, i);
        }
        if (number != 0 && number % batch == 0) {
            std::fprintf(out, "%.6f batch %llu bytes", seconds(),
                         static_cast<unsigned long long>(number / batch));
            bytes.print(out);
            std::fprintf(out, " MB/s");
            bandwidth.print(out);
            std::fprintf(out, "\n");
            std::fflush(out);
            last = access(enough, F_OK) == 0;
        }
        MPI_Isend(message.data(), words, MPI_UINT64_T, 1, last ? 1 : 0, MPI_COMM_WORLD,
                  &requests[static_cast<std::size_t>(free)]);
    }
    MPI_Waitall(all, requests.data(), MPI_STATUSES_IGNORE);
    std::fclose(out);
}

std::uint64_t receive(const Shape &shape)
{
    const auto &[words, in_flight, batch, waits] = shape;
    std::vector<Message> buffers(in_flight, Message(static_cast<std::size_t>(words)));
    std::vector<MPI_Request> requests(in_flight, MPI_REQUEST_NULL);
    const auto post = [&](std::size_t place) {
        MPI_Irecv(buffers[place].data(), shape.words, MPI_UINT64_T, 0, MPI_ANY_TAG, MPI_COMM_WORLD,
                  &requests[place]);
    };
    for (std::size_t place = 0; place < in_flight; ++place) {
        post(place);
    }
    std::uint64_t wrong = 0;
    for (std::uint64_t number = 0;; ++number) { // in the order in which they were sent
        const std::size_t place = number % in_flight;
        MPI_Status status;
        MPI_Wait(&requests[place], &status);
        for (int i = 0; i < words; ++i) {
            wrong += buffers[place][static_cast<std::size_t>(i)] == word_of(number, i) ? 0U : 1U;
        }
        if (status.MPI_TAG == 1) {
            break;
        }
        post(place);
        if (waits && number % batch == batch - 1) {
            MPI_Send(nullptr, 0, MPI_BYTE, 0, answer_tag, MPI_COMM_WORLD);
        }
    }
    for (MPI_Request &request : requests) {
        if (request != MPI_REQUEST_NULL) {
            MPI_Cancel(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
    return wrong;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool in_bursts = argc == 4 && std::string_view(argv[3]) == "bursts";
    if (argc != 4 || size != 2 || (!in_bursts && std::string_view(argv[3]) != "steady")) {
        std::fprintf(stderr, "usage: mpirun -np 2 rails MARKS ENOUGH steady|bursts\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const Shape &shape = in_bursts ? bursts : steady;
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    std::uint64_t wrong = 0;
    if (rank == 0) {
        send(shape, argv[1], argv[2]);
    } else {
        wrong = receive(shape);
    }
    MPI_Bcast(&wrong, 1, MPI_UINT64_T, 1, MPI_COMM_WORLD);
    if (rank == 0) {
        std::printf("rails: %llu wrong\n", static_cast<unsigned long long>(wrong));
    }
    MPI_T_finalize();
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}
