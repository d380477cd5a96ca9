/* The attached buffer has room for one message, and acknowledgements are late. Who hears, by way of
 * a third rank, that a message was received may send the next one; who does not is told that there
 * is no room.
 *
 * usage: buffered    three ranks
 */
#include "test/mpi/semantics/cases.hpp"

#include <array>

namespace {

using cases::check;
using cases::world;

constexpr int size = 300000;
constexpr int turns = 50;
constexpr int sender = 0;
constexpr int receiver = 1;
constexpr int messenger = 2;
constexpr int word_tag = 1;

std::vector<unsigned char> space(size + MPI_BSEND_OVERHEAD);

int bsend(std::vector<unsigned char> &bytes, int turn)
{
    cases::fill(bytes, static_cast<std::uint64_t>(turn));
    const int rc = MPI_Bsend(bytes.data(), size, MPI_BYTE, receiver, 0, MPI_COMM_WORLD);
    int error_class = 0;
    MPI_Error_class(rc, &error_class);
    return error_class;
}

void receive(int turn)
{
    std::vector<unsigned char> bytes(size);
    MPI_Recv(bytes.data(), size, MPI_BYTE, sender, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    cases::expect(bytes, static_cast<std::uint64_t>(turn), "wrong byte");
}

void send_word(int to)
{
    const int word = 0;
    MPI_Send(&word, 1, MPI_INT, to, word_tag, MPI_COMM_WORLD);
}

void wait_for_word(int from)
{
    int word = 0;
    MPI_Recv(&word, 1, MPI_INT, from, word_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void has_room_again()
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::vector<unsigned char> bytes(size);
    if (world().rank == sender) {
        MPI_Buffer_attach(space.data(), static_cast<int>(space.size()));
    }
    for (int turn = 0; turn < turns; ++turn) {
        if (world().rank == sender) {
            int error_class = bsend(bytes, turn);
            check(error_class == MPI_SUCCESS, "no room after the last was received", turn);
            while (error_class != MPI_SUCCESS) { // or the others would wait for ever
                error_class = bsend(bytes, turn);
            }
            wait_for_word(messenger);
        } else if (world().rank == receiver) {
            receive(turn);
            send_word(messenger);
        } else if (world().rank == messenger) {
            wait_for_word(receiver);
            send_word(sender);
        }
    }
}

/* The buffer is attached still, and full of a message that nobody receives before. */
void has_none_before()
{
    std::vector<unsigned char> bytes(size);
    if (world().rank == sender) {
        int error_class = bsend(bytes, turns);
        while (error_class != MPI_SUCCESS) { // that of the last turn may not be out
            error_class = bsend(bytes, turns);
        }
        error_class = bsend(bytes, 0);
        check(error_class == MPI_ERR_BUFFER, "class", error_class);
        send_word(receiver);
        void *address = nullptr;
        int length = 0;
        MPI_Buffer_detach(&address, &length);
    } else if (world().rank == receiver) {
        wait_for_word(sender);
        receive(turns);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

constexpr std::array all{
    cases::Case{"there is room again for who hears of the receipt", has_room_again},
    cases::Case{"there is none before", has_none_before},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}
