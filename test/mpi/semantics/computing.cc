/* Who has sent leaves MPI at once and comes back only when the receiver says, by other means, that
 * it has the message: a sender that computes. And the other way: a receiver that computes until a
 * buffered or a short send is over, or the send of what it has received.
 *
 * usage: computing [meetings [cases [messages]]], or: computing full, or: computing box
 * Without an argument the message is the first contact of the two. With one, they have met that
 * often before, so that a fault can be made to strike the message that matters. Only so many of the
 * cases are run as are asked for, the first with so many messages. With full only the last is, for
 * connections that take little: a short send to who computes waits there, as it may. With box one
 * more case is run, of btl/vader; what is sent again would end its send, too, and must take long.
 */
#include "test/mpi/semantics/cases.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using cases::check;
using cases::world;

constexpr int path_bytes = 256;
int meetings = 0;
int messages = 1;

void meet(int other)
{
    for (int i = 0; i < meetings; ++i) {
        int token = i;
        if (world().rank % 2 == 0) {
            MPI_Send(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
        }
        check(token == i, "token", token);
    }
}

/* The three ways in which a path is told. */
void blocking(const char *path, int other)
{
    MPI_Send(path, path_bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD);
}

void nonblocking(const char *path, int other)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(path, path_bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void persistent(const char *path, int other)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Send_init(path, path_bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

/* A FIFO at whose one end its maker waits, outside of MPI, for the word of the other process. */
class Word {
  public:
    /* Tells the other one its name. */
    explicit Word(int other, decltype(&blocking) send = blocking)
    {
        const char *temporary = std::getenv("TMPDIR");
        folder_ = std::string(temporary == nullptr ? "/tmp" : temporary) + "/computingXXXXXX";
        if (mkdtemp(folder_.data()) == nullptr) {
            check(false, "mkdtemp");
            folder_.clear();
        }
        (folder_ + "/heard").copy(path_.data(), path_bytes - 1);
        check(mkfifo(path_.data(), 0600) == 0, "mkfifo");
        send(path_.data(), other);
    }
    ~Word()
    {
        unlink(path_.data());
        rmdir(folder_.c_str());
    }
    Word(const Word &) = delete;
    Word &operator=(const Word &) = delete;
    void await()
    {
        const int fd = open(path_.data(), O_RDONLY); // until the other one opens it
        char word = 0;
        check(fd >= 0 && read(fd, &word, 1) == 1 && word == 'y', "the other one's word", word);
        close(fd);
    }

  private:
    std::string folder_;
    std::array<char, path_bytes> path_{};
};

/* How often pml/dr has asked a peer what has come. */
class Questions {
  public:
    Questions()
    {
        int provided = 0;
        int index = 0;
        int count = 0;
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        MPI_T_pvar_session_create(&session_);
        known_ = MPI_T_pvar_get_index("pml_dr_questions_sent", MPI_T_PVAR_CLASS_COUNTER, &index) ==
                     MPI_SUCCESS &&
                 MPI_T_pvar_handle_alloc(session_, index, nullptr, &handle_, &count) == MPI_SUCCESS;
    }
    ~Questions()
    {
        if (known_) {
            MPI_T_pvar_handle_free(session_, &handle_);
        }
        MPI_T_pvar_session_free(&session_);
        MPI_T_finalize();
    }
    Questions(const Questions &) = delete;
    Questions &operator=(const Questions &) = delete;
    [[nodiscard]] unsigned long long so_far() const
    {
        unsigned long long value = 0;
        if (known_) {
            MPI_T_pvar_read(session_, handle_, &value);
        }
        return value;
    }

  private:
    MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
    MPI_T_pvar_handle handle_ = MPI_T_PVAR_HANDLE_NULL;
    bool known_ = false;
};

void send_and_compute(int other)
{
    Word(other).await();
}

std::array<char, path_bytes> receive_path(int other)
{
    std::array<char, path_bytes> path{};
    MPI_Recv(path.data(), path_bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return path;
}

void tell(const std::array<char, path_bytes> &path)
{
    const int fd = open(path.data(), O_WRONLY);
    check(fd >= 0 && write(fd, "y", 1) == 1, "telling the one who waits", fd);
    close(fd);
}

void computing_sender()
{
    const int other = world().rank ^ 1;
    if (other >= world().size) {
        return;
    }
    meet(other);
    if (world().rank % 2 != 0) {
        for (int i = 0; i < messages; ++i) {
            tell(receive_path(other));
        }
        return;
    }
    std::printf("# rank %d has met, and begins\n", world().rank);
    std::fflush(stdout);
    const Questions questions;
    unsigned long long asked = 0;
    for (int i = 0; i < messages; ++i) {
        Word word(other);
        const unsigned long long before = questions.so_far();
        word.await();
        asked += questions.so_far() - before;
    }
    std::printf("# rank %d asked %llu times while it computed\n", world().rank, asked);
}

/* Those who have not met yet: with four ranks the first case makes no contact of these. */
void first_contact(int other, decltype(&blocking) send)
{
    if (other >= world().size) {
        return;
    }
    if (world().rank < other) {
        Word(other, send).await();
    } else {
        tell(receive_path(other));
    }
}

void nonblocking_sender()
{
    first_contact(world().rank ^ 2, nonblocking);
    first_contact(world().rank ^ 3, persistent);
}

/* Both have met, and what is sent is more than the connection takes while the receiver is away. */
void many_at_once()
{
    constexpr int size = 1500;
    constexpr std::size_t number = 64;
    const int other = world().rank ^ 1;
    if (other >= world().size) {
        return;
    }
    meet(other);
    if (world().rank % 2 == 0) {
        Word all_are_there(other);
        const auto away = receive_path(other);
        std::array<MPI_Request, number> requests{};
        std::vector<std::vector<unsigned char>> out;
        for (std::size_t i = 0; i < number; ++i) {
            out.push_back(cases::pattern(size, i));
            MPI_Isend(out.back().data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD, &requests.at(i));
        }
        tell(away);
        MPI_Waitall(static_cast<int>(number), requests.data(), MPI_STATUSES_IGNORE);
        all_are_there.await();
        return;
    }
    const auto path = receive_path(other);
    Word(other).await();
    std::vector<unsigned char> in(size);
    for (std::size_t i = 0; i < number; ++i) {
        MPI_Recv(in.data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        cases::expect(in, i, "wrong byte");
    }
    tell(path);
}

constexpr std::array<int, 6> buffered_sizes{8, 500, 1500, 4000, 40000, 300000};
/* What is eager over all BTLs. */
constexpr std::array<int, 8> short_sizes{0, 8, 500, 1500, 2048, 3900, 4096, 8192};

/* Such a send is over while its receiver is away and comes back only when told so. */
void computing_receiver(std::span<const int> sizes, decltype(&MPI_Send) send)
{
    const int other = world().rank ^ 1;
    if (other >= world().size) {
        return;
    }
    meet(other);
    if (world().rank % 2 == 0) {
        send_and_compute(other);
        for (const int size : sizes) {
            std::vector<unsigned char> in(static_cast<std::size_t>(size));
            MPI_Recv(in.data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            cases::expect(in, static_cast<std::uint64_t>(size), "wrong byte");
        }
        return;
    }
    const auto path = receive_path(other);
    for (const int size : sizes) {
        const auto out =
            cases::pattern(static_cast<std::size_t>(size), static_cast<std::uint64_t>(size));
        send(out.data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD);
    }
    tell(path);
}

void buffered()
{
    std::vector<unsigned char> buffer(1 << 20);
    MPI_Buffer_attach(buffer.data(), static_cast<int>(buffer.size()));
    computing_receiver(buffered_sizes, MPI_Bsend);
    void *address = nullptr;
    int size = 0;
    MPI_Buffer_detach(&address, &size);
}

void eager()
{
    computing_receiver(short_sizes, MPI_Send);
}

constexpr std::array<int, 8> awaited_sizes{8, 1500, 4000, 10000, 100000, 300000, 1 << 20, 4 << 20};

/* Who has received computes until the send is over: that takes an answer, which the receiver must
 * not owe when it leaves MPI. */
void received_and_gone()
{
    const int other = world().rank ^ 1;
    if (other >= world().size) {
        return;
    }
    meet(other);
    for (std::size_t i = 0; i < 2 * awaited_sizes.size(); ++i) {
        const int size = awaited_sizes.at(i / 2);
        if (world().rank % 2 == 0) {
            const auto path = receive_path(other);
            const auto out =
                cases::pattern(static_cast<std::size_t>(size), static_cast<std::uint64_t>(size));
            (i % 2 == 0 ? MPI_Send : MPI_Ssend)(out.data(), size, MPI_BYTE, other, 3,
                                                MPI_COMM_WORLD);
            tell(path);
            continue;
        }
        Word word(other);
        std::vector<unsigned char> in(static_cast<std::size_t>(size));
        MPI_Recv(in.data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        word.await();
        cases::expect(in, static_cast<std::uint64_t>(size), "wrong byte");
    }
}

/* A receiver that computes has been silent for long, and what it was sent has been sent again. */
void silent_receiver()
{
    const int other = world().rank ^ 1;
    if (other >= world().size) {
        return;
    }
    meet(other);
    char byte = 'a';
    if (world().rank % 2 == 0) {
        send_and_compute(other);
        for (const char wanted : {'a', 'b'}) {
            MPI_Recv(&byte, 1, MPI_CHAR, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(byte == wanted, "the message", byte);
        }
        return;
    }
    const auto path = receive_path(other);
    MPI_Send(&byte, 1, MPI_CHAR, other, 3, MPI_COMM_WORLD);
    int flag = 0; // timers run in here
    for (const double end = MPI_Wtime() + 0.3; MPI_Wtime() < end;) {
        MPI_Iprobe(other, 4, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    byte = 'b';
    MPI_Send(&byte, 1, MPI_CHAR, other, 3, MPI_COMM_WORLD);
    tell(path);
}

/* A receiver that was away has looked once, and there is room for what its sender still has. The
 * sender hands it over; the receiver need not look again for the send to end. */
void full_box()
{
    constexpr int size = 500;
    constexpr int most = 1000;
    const int other = world().rank ^ 1;
    meet(other);
    if (world().rank % 2 == 0) {
        const auto looked = receive_path(other);
        Word filled(other);
        Word over(other);
        filled.await();
        for (int flag = 0; flag == 0;) {
            MPI_Iprobe(other, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
        tell(looked);
        over.await();
        int sent = 0;
        MPI_Recv(&sent, 1, MPI_INT, other, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < sent; ++i) {
            std::vector<unsigned char> in(size);
            MPI_Recv(in.data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            cases::expect(in, static_cast<std::uint64_t>(i), "wrong byte");
        }
        return;
    }
    Word looked(other);
    const auto filled = receive_path(other);
    const auto over = receive_path(other);
    std::vector<unsigned char> out;
    MPI_Request request = MPI_REQUEST_NULL;
    int sent = 0;
    int flag = 1;
    while (flag != 0 && sent < most) {
        out = cases::pattern(size, static_cast<std::uint64_t>(sent));
        MPI_Isend(out.data(), size, MPI_BYTE, other, 3, MPI_COMM_WORLD, &request);
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        ++sent;
    }
    check(flag == 0, "the box was never full", sent);
    tell(filled);
    looked.await();
    constexpr double deadline = 10;
    for (const double end = MPI_Wtime() + deadline; flag == 0 && MPI_Wtime() < end;) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    check(flag != 0, "the send is not over", sent);
    tell(over);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Send(&sent, 1, MPI_INT, other, 4, MPI_COMM_WORLD);
}

constexpr std::array of_vader{
    cases::Case{"a send ends when its receiver has made room for it, and computes", full_box},
};

constexpr std::array all{
    cases::Case{"who has sent may leave MPI, and the message arrives", computing_sender},
    cases::Case{"a buffered send ends while its receiver computes", buffered},
    cases::Case{"a short send ends while its receiver computes", eager},
    cases::Case{"a send ends while its receiver, who has the message, computes", received_and_gone},
    cases::Case{"who has waited for a send may leave MPI, and the message arrives",
                nonblocking_sender},
    cases::Case{"a short send ends while its receiver, silent for long, computes", silent_receiver},
    cases::Case{"who has waited for many sends may leave MPI, and all arrive", many_at_once},
};

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1 && std::string_view(argv[1]) == "full") {
        meetings = 2;
        return cases::run(argc, argv, MPI_THREAD_SINGLE, std::span(all).last(1));
    }
    if (argc > 1 && std::string_view(argv[1]) == "box") {
        meetings = 32; // by then vader has set the box up
        return cases::run(argc, argv, MPI_THREAD_SINGLE, of_vader);
    }
    meetings = argc > 1 ? std::atoi(argv[1]) : 0;
    const std::size_t number = argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : all.size();
    messages = argc > 3 ? std::atoi(argv[3]) : 1;
    return cases::run(argc, argv, MPI_THREAD_SINGLE, std::span(all).first(number));
}
