/* The only path of rank 1 dies in the middle of everything: long messages are half there in both
 * directions, and the others wait for it in MPI_Ssend, MPI_Buffer_detach, MPI_Mprobe and in a
 * receive from any source of a communicator of two. All of that ends, and what is begun later too,
 * with MPIX_ERR_UNREACHABLE; the living go on, receives from any source included, and MPI_Finalize
 * returns.
 *
 * Needs six ranks, and a fault that lets the path of rank 1 carry some hundreds of fragments, not
 * more than a long message has; it fails when nothing is cut, or not in the middle. Prints `rank N
 * survived` for each.
 */
#include "ompi/mpi_ft/mpi_ft.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

namespace {

constexpr int victim = 1;
constexpr int half_way = 0; ///< sends and receives a long message when the path dies
constexpr int in_ssend = 2; ///< the others wait in these
constexpr int in_detach = 3;
constexpr int in_mprobe = 4; ///< and has matched a message that it takes only when all is over
constexpr int in_pair = 5;   ///< receives from any source of a communicator of two
constexpr int ranks = 6;
constexpr int long_bytes = 3000000;

constexpr int long_tag = 1;
constexpr int ready_tag = 2;   ///< all before has been begun
constexpr int silent_tag = 3;  ///< of what is never matched
constexpr int matched_tag = 4; ///< of what is matched and not taken
constexpr int kept_tag = 5;    ///< of what has come and is received later
constexpr int nobodys_tag = 6; ///< that nobody sends with
constexpr int living_tag = 7;

int rank = 0;
long failures = 0;

void check(bool holds, const char *what, int detail)
{
    if (!holds) {
        ++failures;
        std::fprintf(stderr, "# rank %d: %s (%d)\n", rank, what, detail);
    }
}

int class_of(int code)
{
    int error_class = -1;
    MPI_Error_class(code, &error_class);
    return error_class;
}

void unreachable(int code, const char *what, int other)
{
    check(class_of(code) == MPIX_ERR_UNREACHABLE, what, class_of(code) * 100 + other);
}

/* Every byte differs from that of a buffer that nothing has come into. */
char byte_at(int i)
{
    return static_cast<char>(i * 7 % 251 + 1);
}

std::vector<char> long_message()
{
    std::vector<char> bytes(long_bytes);
    for (int i = 0; i < long_bytes; ++i) {
        bytes[static_cast<std::size_t>(i)] = byte_at(i);
    }
    return bytes;
}

/* Some of a message has come, not all of it, and nothing else. */
void is_half_there(const std::vector<char> &in, const char *what)
{
    int came = 0;
    int wrong = 0;
    for (int i = 0; i < long_bytes; ++i) {
        const char byte = in[static_cast<std::size_t>(i)];
        came += byte != 0 ? 1 : 0;
        wrong += byte != 0 && byte != byte_at(i) ? 1 : 0;
    }
    check(came > 0 && came < long_bytes, what, came);
    check(wrong == 0, "wrong bytes", wrong);
}

/* Each must have ended with the error, and is let go. By itself: of several MPI_Waitall may say
 * that the others are pending still when the first has failed. */
void all_unreachable(std::vector<MPI_Request> &requests, const char *what, int other)
{
    for (std::size_t i = 0; i < requests.size(); ++i) {
        MPI_Status status;
        unreachable(MPI_Wait(&requests[i], &status), what, static_cast<int>(i) * 10 + other);
    }
}

std::vector<char> attached(4 * (long_bytes + MPI_BSEND_OVERHEAD));

void detach()
{
    void *address = nullptr;
    int size = 0;
    const int rc = MPI_Buffer_detach(&address, &size);
    check(rc == MPI_SUCCESS && address == attached.data(), "detach", class_of(rc));
}

/* Requests to and from a process that never matches them. */
class Unmatched {
  public:
    explicit Unmatched(int other) : other_(other)
    {
        requests_.resize(3);
        MPI_Isend(out_.data(), long_bytes, MPI_CHAR, other, silent_tag, MPI_COMM_WORLD,
                  requests_.data());
        MPI_Issend(out_.data(), 1, MPI_CHAR, other, silent_tag, MPI_COMM_WORLD, &requests_[1]);
        MPI_Irecv(in_.data(), 1, MPI_CHAR, other, nobodys_tag, MPI_COMM_WORLD, &requests_[2]);
        start_persistent();
    }
    int other() const { return other_; }
    /* Open MPI frees each that ends with an error, persistent ones too. */
    void end()
    {
        all_unreachable(requests_, "begun before", other_);
        requests_.clear();
        start_persistent();
        all_unreachable(requests_, "started later", other_);
    }

  private:
    void start_persistent()
    {
        std::array<MPI_Request, 3> made{};
        MPI_Send_init(out_.data(), long_bytes, MPI_CHAR, other_, silent_tag, MPI_COMM_WORLD,
                      made.data());
        MPI_Ssend_init(out_.data(), 1, MPI_CHAR, other_, silent_tag, MPI_COMM_WORLD, &made[1]);
        MPI_Recv_init(&in_[1], 1, MPI_CHAR, other_, nobodys_tag, MPI_COMM_WORLD, &made[2]);
        check(MPI_Startall(static_cast<int>(made.size()), made.data()) == MPI_SUCCESS, "start",
              other_);
        requests_.insert(requests_.end(), made.begin(), made.end());
    }

    int other_;
    std::vector<char> out_ = std::vector<char>(long_bytes);
    std::array<char, 2> in_{};
    std::vector<MPI_Request> requests_;
};

/* What is begun when it is known that the other one is lost. */
void all_kinds_fail(int other)
{
    const std::vector<char> big(long_bytes);
    char byte = 0;
    for (const int size : {0, 1, long_bytes}) {
        const auto to = [&](auto send) {
            return send(big.data(), size, MPI_CHAR, other, silent_tag, MPI_COMM_WORLD);
        };
        unreachable(to(MPI_Send), "send", other);
        unreachable(to(MPI_Ssend), "synchronous send", other);
        unreachable(to(MPI_Rsend), "ready send", other);
        unreachable(to(MPI_Bsend), "buffered send", other);
    }
    MPI_Message message = MPI_MESSAGE_NULL;
    int there = 0;
    unreachable(MPI_Mprobe(other, nobodys_tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE),
                "matched probe", other);
    unreachable(
        MPI_Improbe(other, nobodys_tag, MPI_COMM_WORLD, &there, &message, MPI_STATUS_IGNORE),
        "matched probe that does not wait", other);
    unreachable(MPI_Probe(other, nobodys_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "probe", other);
    unreachable(MPI_Iprobe(other, nobodys_tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE),
                "probe that does not wait", other);
    unreachable(MPI_Recv(&byte, 1, MPI_CHAR, other, nobodys_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                "receive", other);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Bsend_init(big.data(), long_bytes, MPI_CHAR, other, silent_tag, MPI_COMM_WORLD, &request);
    check(MPI_Start(&request) == MPI_SUCCESS, "start of a buffered send", other);
    unreachable(MPI_Wait(&request, MPI_STATUS_IGNORE), "persistent buffered send", other);
}

/* Two messages that have come before the path dies, each way: a short one, which is received all
 * the same, and a long one that is matched, but whose bytes are asked for only then. */
class Left {
  public:
    explicit Left(int other) : other_(other)
    {
        MPI_Send(&rank, 1, MPI_INT, other, kept_tag, MPI_COMM_WORLD);
        MPI_Isend(out_.data(), long_bytes, MPI_CHAR, other, matched_tag, MPI_COMM_WORLD, &given_);
        MPI_Mprobe(other, matched_tag, MPI_COMM_WORLD, &matched_, MPI_STATUS_IGNORE);
    }
    void end()
    {
        std::vector<char> in(long_bytes);
        unreachable(MPI_Mrecv(in.data(), long_bytes, MPI_CHAR, &matched_, MPI_STATUS_IGNORE),
                    "message matched before", other_);
        unreachable(MPI_Wait(&given_, MPI_STATUS_IGNORE), "and its send", other_);
        int kept = -1;
        const int rc =
            MPI_Recv(&kept, 1, MPI_INT, other_, kept_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(rc == MPI_SUCCESS && kept == other_, "message that came before", class_of(rc));
    }

  private:
    int other_;
    std::vector<char> out_ = std::vector<char>(long_bytes);
    MPI_Message matched_ = MPI_MESSAGE_NULL;
    MPI_Request given_ = MPI_REQUEST_NULL;
};

/* What a rank waits in when the path dies. \param pair the communicator of the victim and in_pair
 */
void wait_for_victim(MPI_Comm pair)
{
    const auto out = long_message();
    std::vector<char> in(long_bytes);
    std::vector<MPI_Request> both(2);
    if (rank == half_way) {
        // The victim has asked for this one when it is told to go on with its own.
        MPI_Irecv(in.data(), long_bytes, MPI_CHAR, victim, long_tag, MPI_COMM_WORLD, both.data());
        MPI_Isend(out.data(), long_bytes, MPI_CHAR, victim, long_tag, MPI_COMM_WORLD, &both[1]);
    } else if (rank == in_detach) {
        MPI_Bsend(out.data(), long_bytes, MPI_CHAR, victim, silent_tag, MPI_COMM_WORLD);
    }
    MPI_Send(nullptr, 0, MPI_CHAR, victim, ready_tag, MPI_COMM_WORLD);
    char byte = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    switch (rank) {
    case half_way:
        all_unreachable(both, "half there", victim);
        is_half_there(in, "of the long message to half_way there are bytes");
        break;
    case in_ssend:
        unreachable(MPI_Ssend(&byte, 1, MPI_CHAR, victim, silent_tag, MPI_COMM_WORLD),
                    "waits in MPI_Ssend", victim);
        break;
    case in_detach:
        detach();
        MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
        break;
    case in_mprobe:
        unreachable(MPI_Mprobe(victim, nobodys_tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE),
                    "waits in MPI_Mprobe", victim);
        break;
    default:
        unreachable(
            MPI_Recv(&byte, 1, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, pair, MPI_STATUS_IGNORE),
            "waits for anybody of two", victim);
    }
}

void be_lost(MPI_Comm pair)
{
    const auto out = long_message();
    std::vector<char> in(long_bytes);
    char byte = 0;
    MPI_Request any = MPI_REQUEST_NULL;
    MPI_Irecv(&byte, 1, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, pair, &any);
    for (int other = 0; other < ranks; ++other) {
        if (other != victim) {
            MPI_Recv(nullptr, 0, MPI_CHAR, other, ready_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    std::vector<MPI_Request> all(2);
    // In this order: what the other one sends begins behind its answer to this.
    MPI_Isend(out.data(), long_bytes, MPI_CHAR, half_way, long_tag, MPI_COMM_WORLD, all.data());
    MPI_Irecv(in.data(), long_bytes, MPI_CHAR, half_way, long_tag, MPI_COMM_WORLD, &all[1]);
    all_unreachable(all, "half there", half_way);
    is_half_there(in, "of the long message to the victim there are bytes");
    unreachable(MPI_Wait(&any, MPI_STATUS_IGNORE), "anybody of two, waited for before", in_pair);
}

/* Those that are left exchange with each other, each from any source. */
void go_on(MPI_Request &any, const int &late)
{
    constexpr std::array living{0, 2, 3, 4, 5};
    const auto place =
        static_cast<std::size_t>(std::find(living.begin(), living.end(), rank) - living.begin());
    const int right = living[(place + 1) % living.size()];
    const int left = living[(place + living.size() - 1) % living.size()];
    MPI_Send(&rank, 1, MPI_INT, right, living_tag, MPI_COMM_WORLD);
    check(MPI_Wait(&any, MPI_STATUS_IGNORE) == MPI_SUCCESS, "earlier receive from any source", 0);
    check(late == left, "value of an earlier receive from any source", late);
    const auto out = long_message();
    for (int turn = 0; turn < 3; ++turn) {
        std::vector<char> in(long_bytes);
        MPI_Status status;
        const int rc = MPI_Sendrecv(out.data(), long_bytes, MPI_CHAR, right, living_tag + 1 + turn,
                                    in.data(), long_bytes, MPI_CHAR, MPI_ANY_SOURCE,
                                    living_tag + 1 + turn, MPI_COMM_WORLD, &status);
        check(rc == MPI_SUCCESS && status.MPI_SOURCE == left && in == out, "the living", turn);
    }
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(size == ranks, "ranks", size);
    MPI_Comm pair = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == victim || rank == in_pair ? 0 : MPI_UNDEFINED, rank,
                   &pair); // with the error handler of the other
    MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
    // For one of the living, whoever else is lost.
    int late = -1;
    MPI_Request any = MPI_REQUEST_NULL;
    MPI_Irecv(&late, 1, MPI_INT, MPI_ANY_SOURCE, living_tag, MPI_COMM_WORLD, &any);
    std::vector<std::unique_ptr<Unmatched>> unmatched;
    for (int other = 0; other < ranks; ++other) {
        if (other != rank && (rank == victim || other == victim)) {
            unmatched.push_back(std::make_unique<Unmatched>(other));
        }
    }
    std::unique_ptr<Left> left;
    if (rank == victim || rank == in_mprobe) {
        left = std::make_unique<Left>(rank == victim ? in_mprobe : victim);
    }
    rank == victim ? be_lost(pair) : wait_for_victim(pair);
    for (const auto &requests : unmatched) {
        requests->end();
        all_kinds_fail(requests->other());
    }
    if (left != nullptr) {
        left->end();
    }
    detach();
    if (rank == victim) {
        unreachable(MPI_Wait(&any, MPI_STATUS_IGNORE), "anybody, waited for before", victim);
    } else {
        go_on(any, late);
    }
    MPI_Finalize();
    if (failures == 0) {
        std::printf("rank %d survived\n", rank);
    }
    return failures == 0 ? 0 : 1;
}
