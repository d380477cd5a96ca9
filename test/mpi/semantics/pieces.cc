/* Messages into scattered types whose elements are of unlike sizes, so that fragments end within
 * them: to be run where fragments are small, and come in another order than they were sent in.
 * Every byte is compared, gaps included.
 */
#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>

namespace {

using cases::check;
using cases::world;

constexpr int turns = 3;
constexpr std::size_t bytes_of_each = 300000;

/* A type of these members; what is behind the last one counts as part of it. */
template <std::size_t n>
MPI_Datatype structure(const std::array<int, n> &lengths, const std::array<MPI_Aint, n> &places,
                       const std::array<MPI_Datatype, n> &types, MPI_Aint extent)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(static_cast<int>(n), lengths.data(), places.data(), types.data(), &type);
    MPI_Type_create_resized(type, 0, extent, &resized);
    MPI_Type_free(&type);
    return resized;
}

MPI_Datatype pair_of(MPI_Datatype first, MPI_Datatype second, MPI_Aint place, MPI_Aint extent)
{
    return structure<2>({1, 1}, {0, place}, {first, second}, extent);
}

MPI_Datatype vector_of(MPI_Datatype inner, int count, int length, int stride)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(count, length, stride, inner, &type);
    return type;
}

/* The message, and what its receiver is to have then. */
struct Message {
    std::vector<unsigned char> source;
    std::vector<unsigned char> packed;
    std::vector<unsigned char> wanted;
};

Message make(MPI_Datatype type, int count, std::size_t span, int seed)
{
    Message message;
    message.source = cases::pattern(span, static_cast<std::uint64_t>(seed));
    int size = 0;
    MPI_Pack_size(count, type, MPI_COMM_SELF, &size);
    message.packed.resize(static_cast<std::size_t>(size));
    int position = 0;
    MPI_Pack(message.source.data(), count, type, message.packed.data(), size, &position,
             MPI_COMM_SELF);
    message.packed.resize(static_cast<std::size_t>(position));
    message.wanted.assign(span, 0x33);
    int read = 0;
    MPI_Unpack(message.packed.data(), position, &read, message.wanted.data(), count, type,
               MPI_COMM_SELF);
    return message;
}

/* Each to the right; sent as it lies, and packed by the program. Frees the type. */
void move(MPI_Datatype type)
{
    MPI_Type_commit(&type);
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    int size = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_size(type, &size);
    const int count = std::max(1, static_cast<int>(bytes_of_each) / size);
    const auto span = static_cast<std::size_t>(extent * count);
    for (int turn = 0; turn < turns; ++turn) {
        const Message mine = make(type, count, span, turn * world().size + world().rank);
        const Message theirs = make(type, count, span, turn * world().size + world().left());
        for (const bool packed : {false, true}) {
            std::vector<unsigned char> in(span, 0x33);
            std::array<MPI_Request, 2> requests{};
            std::array<MPI_Status, 2> statuses{};
            MPI_Irecv(in.data(), count, type, world().left(), 1, MPI_COMM_WORLD, requests.data());
            if (packed) {
                MPI_Isend(mine.packed.data(), static_cast<int>(mine.packed.size()), MPI_PACKED,
                          world().right(), 1, MPI_COMM_WORLD, &requests[1]);
            } else {
                MPI_Isend(mine.source.data(), count, type, world().right(), 1, MPI_COMM_WORLD,
                          &requests[1]);
            }
            MPI_Waitall(2, requests.data(), statuses.data());
            const auto wrong = std::ranges::mismatch(in, theirs.wanted).in1 - in.begin();
            check(static_cast<std::size_t>(wrong) == span, "wrong byte", wrong);
            check(cases::count_of(statuses[0], type) == count, "count", count);
        }
    }
    MPI_Type_free(&type);
}

struct Particle {
    char kind;
    double place;
};

MPI_Datatype particle()
{
    return pair_of(MPI_CHAR, MPI_DOUBLE, offsetof(Particle, place), sizeof(Particle));
}

void char_and_double()
{
    move(particle());
}

void short_and_long_double()
{
    move(pair_of(MPI_SHORT, MPI_LONG_DOUBLE, 16, 48));
}

/* Loops within a loop, and something before and behind them. */
void nested()
{
    MPI_Datatype inner = particle();
    MPI_Datatype middle = vector_of(inner, 3, 2, 3);
    MPI_Datatype outer = vector_of(middle, 4, 1, 2);
    move(structure<3>({1, 1, 5}, {0, 16, 1024}, {MPI_INT, outer, MPI_CHAR}, 1040));
    MPI_Type_free(&inner);
    MPI_Type_free(&middle);
    MPI_Type_free(&outer);
}

using Complex = std::complex<long double>;

/* 32 bytes, the largest element that there is. */
void complex_column()
{
    constexpr int rows = static_cast<int>(bytes_of_each / sizeof(Complex));
    move(vector_of(MPI_C_LONG_DOUBLE_COMPLEX, rows, 1, 2));
}

void char_and_complex()
{
    move(pair_of(MPI_CHAR, MPI_C_LONG_DOUBLE_COMPLEX, 16, 16 + sizeof(Complex)));
}

/* To itself a scattered message goes in pieces, too. */
void complex_to_itself()
{
    MPI_Datatype type = pair_of(MPI_CHAR, MPI_C_LONG_DOUBLE_COMPLEX, 16, 16 + sizeof(Complex));
    MPI_Type_commit(&type);
    constexpr int count = 5000;
    constexpr std::size_t span = count * (16 + sizeof(Complex));
    const Message message = make(type, count, span, 1);
    for (const bool packed : {false, true}) {
        std::vector<unsigned char> in(span, 0x33);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Irecv(in.data(), count, type, 0, 1, MPI_COMM_SELF, &request);
        if (packed) {
            MPI_Send(message.packed.data(), static_cast<int>(message.packed.size()), MPI_PACKED, 0,
                     1, MPI_COMM_SELF);
        } else {
            MPI_Send(message.source.data(), count, type, 0, 1, MPI_COMM_SELF);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(in == message.wanted, "wrong bytes", packed ? 1 : 0);
    }
    MPI_Type_free(&type);
}

/* The receive is shorter than the message. */
void truncated()
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Datatype type = pair_of(MPI_CHAR, MPI_C_LONG_DOUBLE_COMPLEX, 16, 16 + sizeof(Complex));
    MPI_Type_commit(&type);
    constexpr int sent = 5000;
    constexpr int taken = 3000;
    constexpr std::size_t each = 16 + sizeof(Complex);
    const Message mine = make(type, sent, sent * each, world().rank);
    const Message theirs = make(type, taken, taken * each, world().left());
    std::vector<unsigned char> in(sent * each, 0x33);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(mine.source.data(), sent, type, world().right(), 1, MPI_COMM_WORLD, &request);
    const int rc =
        MPI_Recv(in.data(), taken, type, world().left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int error_class = 0;
    MPI_Error_class(rc, &error_class);
    check(error_class == MPI_ERR_TRUNCATE, "class", error_class);
    const auto end = in.begin() + static_cast<std::ptrdiff_t>(taken * each);
    check(std::equal(in.begin(), end, theirs.wanted.begin()), "wrong bytes");
    check(std::all_of(end, in.end(), [](unsigned char byte) { return byte == 0x33; }),
          "wrote beyond the end");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

constexpr std::array all{
    cases::Case{"char and double", char_and_double},
    cases::Case{"short and long double", short_and_long_double},
    cases::Case{"vectors of vectors", nested},
    cases::Case{"a column of long double complex", complex_column},
    cases::Case{"char and long double complex", char_and_complex},
    cases::Case{"long double complex to itself", complex_to_itself},
    cases::Case{"long double complex, truncated", truncated},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}
