/* level: asks for a level of threads, exchanges a message with the other rank, and ends.
 *
 * usage: level single|funneled|serialized|multiple
 */
#include <mpi.h>

#include <cstdio>
#include <map>
#include <string_view>

int main(int argc, char **argv)
{
    static const std::map<std::string_view, int> levels{{"single", MPI_THREAD_SINGLE},
                                                        {"funneled", MPI_THREAD_FUNNELED},
                                                        {"serialized", MPI_THREAD_SERIALIZED},
                                                        {"multiple", MPI_THREAD_MULTIPLE}};
    const auto wanted = levels.find(argc == 2 ? argv[1] : "");
    if (wanted == levels.end()) {
        std::fprintf(stderr, "usage: level single|funneled|serialized|multiple\n");
        return 2;
    }
    int provided = -1;
    MPI_Init_thread(&argc, &argv, wanted->second, &provided);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int other = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 0, &other, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Finalize();
    return provided == wanted->second && other == 1 - rank ? 0 : 1;
}
