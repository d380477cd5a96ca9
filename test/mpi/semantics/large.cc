/* One message of more than 2 GiB, in 64-bit words whose every one says where it belongs.
 *
 * usage: large [beyond]
 * With the word: of more than 4 GiB, beyond what 32 bits count. The receiver has memory for all of
 * it, the sender for a part of it only, which stands for many.
 */
#include "test/mpi/semantics/cases.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

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

/* What the sender has: whole pages, and so many that what lies 2^32 bytes further on is another
 * word. */
constexpr std::size_t part_bytes = (std::size_t{97} << 20) + 65536;
constexpr std::size_t parts = 43;
static_assert(part_bytes * parts > std::size_t{1} << 32 &&
              (std::size_t{1} << 32) % part_bytes != 0);

std::uint64_t word_of(std::size_t i)
{
    return (i % (part_bytes / 8) + 1) * 0x9e3779b97f4a7c15U;
}

/* The same pages again and again, one behind the other. */
class Repeated {
  public:
    Repeated()
    {
        const int memory = memfd_create("large", 0);
        check(memory >= 0 && ftruncate(memory, part_bytes) == 0, "memory", memory);
        base_ = mmap(nullptr, part_bytes * parts, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (std::size_t i = 0; base_ != MAP_FAILED && i < parts; ++i) {
            const void *part = mmap(static_cast<std::byte *>(base_) + i * part_bytes, part_bytes,
                                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0);
            check(part != MAP_FAILED, "mapping", static_cast<long>(i));
        }
        close(memory);
        for (std::size_t i = 0; i < part_bytes / 8; ++i) {
            static_cast<std::uint64_t *>(base_)[i] = word_of(i);
        }
    }
    ~Repeated() { munmap(base_, part_bytes * parts); }
    Repeated(const Repeated &) = delete;
    Repeated &operator=(const Repeated &) = delete;
    const void *data() const { return base_; }

  private:
    void *base_ = nullptr;
};

/* The receiver's half of both. */
void receive_beyond()
{
    std::vector<std::uint64_t> memory(part_bytes / 8 * parts);
    MPI_Status status;
    MPI_Recv(memory.data(), static_cast<int>(memory.size()), MPI_UINT64_T, 0, 1, MPI_COMM_WORLD,
             &status);
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    check(bytes == static_cast<MPI_Count>(part_bytes * parts), "bytes", static_cast<long>(bytes));
    for (std::size_t i = 0; i < memory.size(); ++i) {
        if (memory[i] != word_of(i)) {
            check(false, "wrong word", static_cast<long>(i));
            return;
        }
    }
}

void contiguous_beyond()
{
    if (world().rank == 0) {
        const Repeated memory;
        MPI_Send(memory.data(), static_cast<int>(part_bytes / 8 * parts), MPI_UINT64_T, 1, 1,
                 MPI_COMM_WORLD);
    } else if (world().rank == 1) {
        receive_beyond();
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The part so many times by a datatype that never goes on, so that it is packed. */
void packed_beyond()
{
    if (world().rank == 0) {
        std::vector<std::uint64_t> memory(part_bytes / 8);
        for (std::size_t i = 0; i < memory.size(); ++i) {
            memory[i] = word_of(i);
        }
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_Type_create_hvector(static_cast<int>(parts), static_cast<int>(memory.size()), 0,
                                MPI_UINT64_T, &type);
        MPI_Type_commit(&type);
        MPI_Send(memory.data(), 1, type, 1, 1, MPI_COMM_WORLD);
        MPI_Type_free(&type);
    } else if (world().rank == 1) {
        receive_beyond();
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

constexpr std::array beyond{
    cases::Case{"a message of more than 4 GiB", contiguous_beyond},
    cases::Case{"a message of more than 4 GiB, packed", packed_beyond},
};

} // namespace

int main(int argc, char **argv)
{
    const bool large = argc > 1 && std::strcmp(argv[1], "beyond") == 0;
    return cases::run(argc, argv, MPI_THREAD_SINGLE,
                      large ? std::span<const cases::Case>(beyond) : all);
}
