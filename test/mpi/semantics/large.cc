/* One message of more than 2 GiB, in 64-bit words whose every one says where it belongs. */
#include "test/mpi/semantics/cases.hpp"

#include <array>

namespace {

using cases::check;
using cases::world;

constexpr std::size_t words = (std::size_t{2} << 30) / 8 + 12345;

/* From rank 0 to rank 1 only: two such buffers are enough for a small machine. */
void exchange(MPI_Datatype type, int count, std::size_t stride)
{
    std::vector<std::uint64_t> memory(world().rank < 2 ? words : 0);
    if (world().rank == 0) {
        for (std::size_t i = 0; i < words; ++i) {
            memory[i] = i * 0x9e3779b97f4a7c15U;
        }
        MPI_Send(memory.data(), count, type, 1, 1, MPI_COMM_WORLD);
    } else if (world().rank == 1) {
        MPI_Status status;
        MPI_Recv(memory.data(), count, type, 0, 1, MPI_COMM_WORLD, &status);
        check(cases::count_of(status, type) == count, "count", cases::count_of(status, type));
        for (std::size_t i = 0; i < words; ++i) {
            const std::uint64_t wanted = i % stride == 0 ? i * 0x9e3779b97f4a7c15U : 0;
            if (memory[i] != wanted && i < static_cast<std::size_t>(count) * stride) {
                check(false, "wrong word", static_cast<long>(i));
                break;
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

void contiguous()
{
    exchange(MPI_UINT64_T, static_cast<int>(words), 1);
}

/* Every second word: half as many bytes, but the memory of more than 2 GiB. */
void scattered()
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_resized(MPI_UINT64_T, 0, 16, &type);
    MPI_Type_commit(&type);
    exchange(type, static_cast<int>(words / 2), 2);
    MPI_Type_free(&type);
}

constexpr std::array all{
    cases::Case{"a message of more than 2 GiB", contiguous},
    cases::Case{"a scattered message over more than 2 GiB of memory", scattered},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}
