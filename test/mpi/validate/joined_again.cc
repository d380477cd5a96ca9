// Two halves of a job join by MPI_Comm_accept and MPI_Comm_connect, one rank revokes what joins
// them, all free it without a word, and they join again. Open MPI's context ids come again, and
// with them the intercommunicator's name; and who hears of the revocation last tells those who have
// freed it long since.
//
// usage: joined_again FIFO
//   Rank 0 opens FIFO0, FIFO1 and so on to write when it has freed what joined them.
#include "check.hpp"

#include <array>

#include <fcntl.h>

using namespace check;

int main(int argc, char **argv)
{
    constexpr int rounds = 4;
    constexpr int revokes = 2;
    constexpr int hears_last = 3;
    start(&argc, &argv);
    const bool accepts = me < size / 2;
    MPI_Comm half = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, accepts ? 0 : 1, me, &half), MPI_SUCCESS, "split");
    MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
    std::array<char, MPI_MAX_PORT_NAME> port{};
    if (me == 0) {
        MPI_Open_port(MPI_INFO_NULL, port.data());
    }
    MPI_Bcast(port.data(), port.size(), MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int round = 0; round < rounds; ++round) {
        MPI_Comm both = MPI_COMM_NULL;
        const int code = accepts ? MPI_Comm_accept(port.data(), MPI_INFO_NULL, 0, half, &both)
                                 : MPI_Comm_connect(port.data(), MPI_INFO_NULL, 0, half, &both);
        if (!is(code, MPI_SUCCESS, accepts ? "accept" : "connect")) {
            break;
        }
        MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
        MPI_Barrier(MPI_COMM_WORLD); // nobody is in accept or connect any more
        if (me == revokes) {
            is(MPIX_Comm_revoke(both), MPI_SUCCESS, "revoke");
        }
        const std::string freed = argv[1] + std::to_string(round);
        if (me == hears_last) {
            close(open(freed.c_str(), O_RDONLY)); // until rank 0 has come there
        }
        int token = 0;
        is(MPI_Recv(&token, 1, MPI_INT, 0, 5, both, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED,
           "a receive");
        MPI_Comm_free(&both);
        if (me == 0) {
            close(open(freed.c_str(), O_WRONLY)); // until rank 3 waits for it
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return finish();
}
