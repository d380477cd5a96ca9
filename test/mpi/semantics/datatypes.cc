/* Derived datatypes at either end and at both, with every byte compared, gaps included. */
#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace {

using cases::check;
using cases::world;

/* A datatype, the bytes of one when it is packed, and the memory that several span. */
struct Shape {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int packed = 0;
    long extent = 0;
    long true_lower = 0;
    long true_extent = 0;
    /* Where in that memory the address lies that MPI is given. */
    long origin(int count) const { return std::max(-lowest(count), 0L); }
    std::size_t span(int count) const
    {
        const long last = std::max(extent * (count - 1), 0L) + true_lower + true_extent;
        return static_cast<std::size_t>(std::max({origin(count) + last, extent * count, 0L}));
    }

  private:
    long lowest(int count) const { return std::min(extent * (count - 1), 0L) + true_lower; }
};

Shape measure(MPI_Datatype type)
{
    MPI_Type_commit(&type);
    Shape shape;
    shape.type = type;
    MPI_Type_size(type, &shape.packed);
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    shape.extent = extent;
    MPI_Type_get_true_extent(type, &lower, &extent);
    shape.true_lower = lower;
    shape.true_extent = extent;
    return shape;
}

Shape bytes()
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(24, MPI_BYTE, &type);
    return measure(type);
}

Shape vector()
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &type);
    MPI_Type_create_resized(type, 0, 48, &resized);
    MPI_Type_free(&type);
    return measure(resized);
}

struct Mixed {
    char letter;
    double number;
    short small;
    int last;
    char tail[9];
};

/* 1 + 8 + 2 + 4 + 9 = 24 bytes packed: no fragment ends where an element does. */
Shape structure()
{
    std::array<int, 5> lengths{1, 1, 1, 1, 9};
    std::array<MPI_Aint, 5> places{offsetof(Mixed, letter), offsetof(Mixed, number),
                                   offsetof(Mixed, small), offsetof(Mixed, last),
                                   offsetof(Mixed, tail)};
    std::array<MPI_Datatype, 5> types{MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT, MPI_CHAR};
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(5, lengths.data(), places.data(), types.data(), &type);
    MPI_Type_create_resized(type, 0, sizeof(Mixed), &resized);
    MPI_Type_free(&type);
    return measure(resized);
}

Shape indexed()
{
    std::array<int, 3> lengths{7, 1, 16};
    std::array<int, 3> places{30, 2, 5};
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    MPI_Type_indexed(3, lengths.data(), places.data(), MPI_BYTE, &type);
    MPI_Type_create_resized(type, 0, 40, &resized);
    MPI_Type_free(&type);
    return measure(resized);
}

Shape by_turns(int which)
{
    switch (which) {
    case 0:
        return bytes();
    case 1:
        return vector();
    case 2:
        return structure();
    default:
        return indexed();
    }
}

std::vector<unsigned char> packed_bytes(const unsigned char *memory, int count, MPI_Datatype type,
                                        int size)
{
    std::vector<unsigned char> result(static_cast<std::size_t>(size));
    int position = 0;
    MPI_Pack(memory, count, type, result.data(), size, &position, MPI_COMM_SELF);
    check(position == size, "packed", position);
    return result;
}

/* The message's bytes come to where they belong; what lies between elements stays as it was. */
void move(const Shape &out_shape, const Shape &in_shape, int count, bool late)
{
    const int size = count * out_shape.packed;
    check(out_shape.packed == in_shape.packed, "sizes", in_shape.packed);
    auto out = cases::pattern(out_shape.span(count), static_cast<std::uint64_t>(world().rank));
    auto theirs = cases::pattern(out.size(), static_cast<std::uint64_t>(world().left()));
    std::vector<unsigned char> in(in_shape.span(count), 0xa5);
    auto wanted = in;
    const auto out_at = out_shape.origin(count);
    const auto in_at = in_shape.origin(count);
    auto stream = packed_bytes(theirs.data() + out_at, count, out_shape.type, size);
    int position = 0;
    MPI_Unpack(stream.data(), size, &position, wanted.data() + in_at, count, in_shape.type,
               MPI_COMM_SELF);
    // The types' signatures differ, which MPI allows for bytes only: all go as they lie.
    std::array<MPI_Request, 2> requests{};
    if (!late) {
        MPI_Irecv(in.data() + in_at, count, in_shape.type, world().left(), 1, MPI_COMM_WORLD,
                  requests.data());
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Isend(out.data() + out_at, count, out_shape.type, world().right(), 1, MPI_COMM_WORLD,
              &requests[1]);
    if (late) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Irecv(in.data() + in_at, count, in_shape.type, world().left(), 1, MPI_COMM_WORLD,
                  requests.data());
    }
    MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
    const auto wrong = std::ranges::mismatch(in, wanted).in1 - in.begin();
    check(static_cast<std::size_t>(wrong) == in.size(), "wrong byte", wrong);
}

/* All pairs of types move the same bytes. */
void exchange(int count, bool late)
{
    for (int sent = 0; sent < 4; ++sent) {
        for (int received = 0; received < 4; ++received) {
            Shape out_shape = by_turns(sent);
            Shape in_shape = by_turns(received);
            move(out_shape, in_shape, count, late);
            MPI_Type_free(&out_shape.type);
            MPI_Type_free(&in_shape.type);
        }
    }
}

/* Each of MPI's own types for C, short messages and long ones. */
void predefined()
{
    const std::array types{
        MPI_CHAR,
        MPI_SIGNED_CHAR,
        MPI_UNSIGNED_CHAR,
        MPI_BYTE,
        MPI_WCHAR,
        MPI_SHORT,
        MPI_UNSIGNED_SHORT,
        MPI_INT,
        MPI_UNSIGNED,
        MPI_LONG,
        MPI_UNSIGNED_LONG,
        MPI_LONG_LONG_INT,
        MPI_UNSIGNED_LONG_LONG,
        MPI_FLOAT,
        MPI_DOUBLE,
        MPI_LONG_DOUBLE,
        MPI_C_BOOL,
        MPI_INT8_T,
        MPI_INT16_T,
        MPI_INT32_T,
        MPI_INT64_T,
        MPI_UINT8_T,
        MPI_UINT16_T,
        MPI_UINT32_T,
        MPI_UINT64_T,
        MPI_AINT,
        MPI_COUNT,
        MPI_OFFSET,
        MPI_C_FLOAT_COMPLEX,
        MPI_C_DOUBLE_COMPLEX,
        MPI_C_LONG_DOUBLE_COMPLEX,
        MPI_2INT,
        MPI_SHORT_INT,
        MPI_LONG_INT,
        MPI_FLOAT_INT,
        MPI_DOUBLE_INT,
        MPI_LONG_DOUBLE_INT,
        MPI_PACKED,
    };
    for (const MPI_Datatype type : types) {
        MPI_Datatype copy = MPI_DATATYPE_NULL;
        MPI_Type_dup(type, &copy);
        Shape shape = measure(copy);
        for (const int count : {1, 1003, 20000}) {
            move(shape, shape, count, count == 1003);
        }
        MPI_Type_free(&shape.type);
    }
}

/* Types of all other constructors, each of nothing but bytes. */
std::vector<MPI_Datatype> constructed()
{
    std::vector<MPI_Datatype> types;
    const auto next = [&types]() -> MPI_Datatype * {
        return &types.emplace_back(MPI_DATATYPE_NULL);
    };
    MPI_Type_create_hvector(6, 4, -9, MPI_BYTE, next()); // backwards: most lies before the address
    const std::array<int, 4> lengths{3, 0, 5, 16};
    const std::array<MPI_Aint, 4> places{40, 7, -20, 1};
    MPI_Type_create_hindexed(4, lengths.data(), places.data(), MPI_BYTE, next());
    const int one_piece = 24;
    MPI_Type_create_hindexed(1, &one_piece, places.data(), MPI_BYTE, next()); // behind the address
    const MPI_Aint before = -24;
    MPI_Type_create_hindexed(1, &one_piece, &before, MPI_BYTE, next());
    const std::array<int, 3> steps{9, 0, -30};
    MPI_Type_create_indexed_block(3, 8, steps.data(), MPI_BYTE, next());
    MPI_Type_create_hindexed_block(3, 8, places.data() + 1, MPI_BYTE, next());
    const std::array<int, 3> whole{4, 6, 5};
    const std::array<int, 3> part{2, 4, 3};
    const std::array<int, 3> from{1, 2, 0};
    MPI_Type_create_subarray(3, whole.data(), part.data(), from.data(), MPI_ORDER_C, MPI_BYTE,
                             next());
    MPI_Type_create_subarray(3, whole.data(), part.data(), from.data(), MPI_ORDER_FORTRAN, MPI_BYTE,
                             next());
    const std::array<int, 2> sizes{8, 12};
    const std::array<int, 2> spread{MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    const std::array<int, 2> pieces{1, MPI_DISTRIBUTE_DFLT_DARG};
    const std::array<int, 2> grid{2, 2};
    MPI_Type_create_darray(4, 3, 2, sizes.data(), spread.data(), pieces.data(), grid.data(),
                           MPI_ORDER_C, MPI_BYTE, next());
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(24, MPI_BYTE, &inner);
    MPI_Type_create_resized(inner, -16, 64, next()); // a gap before and behind
    MPI_Type_create_resized(inner, 0, 11, next());   // each overlaps the one before it
    MPI_Type_free(&inner);
    return types;
}

void all_constructors()
{
    for (const MPI_Datatype type : constructed()) {
        Shape shape = measure(type);
        Shape plain = bytes();
        check(shape.packed == 24, "size", shape.packed);
        for (const int count : {1, 300, 5000}) {
            // What overlaps may be sent, but not received.
            const bool overlaps = shape.extent < shape.true_extent && shape.extent == 11;
            move(shape, overlaps ? plain : shape, count, count == 300);
            move(shape, plain, count, count != 300);
            move(plain, overlaps ? plain : shape, count, false);
        }
        MPI_Type_free(&plain.type);
        MPI_Type_free(&shape.type);
    }
}

/* A type of absolute addresses, in several places of memory. */
void absolute_addresses()
{
    std::array<std::vector<unsigned char>, 3> in{};
    std::array<std::vector<unsigned char>, 3> out{};
    std::array<int, 3> lengths{100, 70001, 5};
    std::array<MPI_Aint, 3> from{};
    std::array<MPI_Aint, 3> to{};
    for (std::size_t i = 0; i < 3; ++i) {
        const auto seed = static_cast<std::uint64_t>(world().rank) * 8 + i;
        out[i] = cases::pattern(static_cast<std::size_t>(lengths[i]), seed);
        in[i].resize(out[i].size());
        MPI_Get_address(out[i].data(), &from[i]);
        MPI_Get_address(in[i].data(), &to[i]);
    }
    std::array<MPI_Datatype, 2> types{};
    MPI_Type_create_hindexed(3, lengths.data(), from.data(), MPI_BYTE, types.data());
    MPI_Type_create_hindexed(3, lengths.data(), to.data(), MPI_BYTE, &types[1]);
    for (MPI_Datatype &type : types) {
        MPI_Type_commit(&type);
    }
    MPI_Sendrecv(MPI_BOTTOM, 1, types[0], world().right(), 1, MPI_BOTTOM, 1, types[1],
                 world().left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (std::size_t i = 0; i < 3; ++i) {
        cases::expect(in[i], static_cast<std::uint64_t>(world().left()) * 8 + i, "wrong byte");
    }
    for (MPI_Datatype &type : types) {
        MPI_Type_free(&type);
    }
}

void small()
{
    exchange(5, false);
}
void medium()
{
    exchange(200, true);
}
void around_a_fragment()
{
    for (const int count : {1360, 2720, 2731, 5461}) {
        exchange(count, count % 2 == 0);
    }
}
void large()
{
    exchange(150000, false);
}
void large_late()
{
    exchange(150001, true);
}

/* Long doubles: 16 bytes each, in a column of a matrix. */
void columns()
{
    constexpr int rows = 20000;
    constexpr int width = 5;
    MPI_Datatype column = MPI_DATATYPE_NULL;
    MPI_Type_vector(rows, 1, width, MPI_LONG_DOUBLE, &column);
    MPI_Type_commit(&column);
    std::vector<long double> out(static_cast<std::size_t>(rows * width));
    std::vector<long double> in(out.size(), -1.0L);
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<long double>(i) + world().rank * 0.5L;
    }
    MPI_Sendrecv(out.data(), 1, column, world().right(), 1, in.data() + 2, 1, column,
                 world().left(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (std::size_t i = 0; i < in.size(); ++i) {
        const long double wanted =
            i % width == 2 ? static_cast<long double>(i - 2) + world().left() * 0.5L : -1.0L;
        check(in[i] == wanted, "value", static_cast<long>(i));
    }
    MPI_Type_free(&column);
}

/* A scattered message that is longer than its receive, which ends inside an element. */
void truncated()
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (const int count : {100, 50000}) {
        Shape shape = structure();
        auto out = cases::pattern(static_cast<std::size_t>(shape.extent * count), 1);
        const int room = count / 2 * shape.packed + 5;
        std::vector<unsigned char> in(static_cast<std::size_t>(room) + 64, 0xee);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(out.data(), count, shape.type, world().right(), 1, MPI_COMM_WORLD, &request);
        const int rc = MPI_Recv(in.data(), room, MPI_BYTE, world().left(), 1, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE);
        int error_class = 0;
        MPI_Error_class(rc, &error_class);
        check(error_class == MPI_ERR_TRUNCATE, "class", error_class);
        check(in[static_cast<std::size_t>(room)] == 0xee, "wrote beyond the end", count);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Type_free(&shape.type);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

void to_itself()
{
    for (const int count : {3, 100000}) {
        Shape out_shape = structure();
        Shape in_shape = vector();
        auto out = cases::pattern(static_cast<std::size_t>(out_shape.extent * count), 8);
        std::vector<unsigned char> in(static_cast<std::size_t>(in_shape.extent * count), 0xa5);
        auto wanted = in;
        const int size = count * out_shape.packed;
        auto stream = packed_bytes(out.data(), count, out_shape.type, size);
        int position = 0;
        MPI_Unpack(stream.data(), size, &position, wanted.data(), count, in_shape.type,
                   MPI_COMM_SELF);
        std::array<MPI_Request, 2> requests{};
        MPI_Issend(out.data(), count, out_shape.type, 0, 1, MPI_COMM_SELF, requests.data());
        MPI_Irecv(in.data(), count, in_shape.type, 0, 1, MPI_COMM_SELF, &requests[1]);
        MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
        check(in == wanted, "wrong bytes", count);
        MPI_Type_free(&out_shape.type);
        MPI_Type_free(&in_shape.type);
    }
}

void empty_types()
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(0, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Status status;
    int nothing = 5;
    MPI_Sendrecv(&nothing, 3, type, world().right(), 1, &nothing, 3, type, world().left(), 1,
                 MPI_COMM_WORLD, &status);
    check(nothing == 5 && cases::count_of(status) == 0, "count", cases::count_of(status));
    MPI_Type_free(&type);
}

constexpr std::array all{
    cases::Case{"small messages of all pairs of types", small},
    cases::Case{"medium messages, unexpected", medium},
    cases::Case{"messages around a fragment", around_a_fragment},
    cases::Case{"messages of many VFRAGs", large},
    cases::Case{"messages of many VFRAGs, unexpected", large_late},
    cases::Case{"all predefined types", predefined},
    cases::Case{"all constructors of types", all_constructors},
    cases::Case{"absolute addresses", absolute_addresses},
    cases::Case{"columns of long doubles", columns},
    cases::Case{"truncated inside an element", truncated},
    cases::Case{"to itself", to_itself},
    cases::Case{"types without data", empty_types},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}
