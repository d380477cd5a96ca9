#include "around.hpp"

#include <array>

namespace around {

namespace {

using check::me;
using check::size;

constexpr int untouched = -7;
constexpr int block = 2;

int left()
{
    return (me + size - 1) % size;
}
int right()
{
    return (me + 1) % size;
}
int length(int from)
{
    return 1 + from % 3;
}
int between(int from, int to)
{
    return 1 + (from + to) % 3;
}
int value(int from, int to, int i)
{
    return from * 10000 + to * 100 + i;
}

/// Two blocks, one behind the other, of these lengths.
struct Two {
    int lengths[2];
    int places[2];
    std::vector<int> data;

    Two(int first, int second)
        : lengths{first, second},
          places{0, first},
          data(static_cast<std::size_t>(first + second), untouched)
    {
    }
    std::vector<int> of(int which) const
    {
        const auto begin = data.begin() + places[which];
        return {begin, begin + lengths[which]};
    }
    void fill(int which, int to)
    {
        for (int i = 0; i < lengths[which]; ++i) {
            data[static_cast<std::size_t>(places[which] + i)] = value(me, to, i);
        }
    }
};

struct Arguments {
    MPI_Comm comm;
    bool starting;
    Outcome out;

    void finish(int code, MPI_Request request, const Two &into)
    {
        out.code = code;
        if (code == MPI_SUCCESS && starting) {
            out.code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        out.from[0] = into.of(0);
        out.from[1] = into.of(1);
    }
};

#define CALL(a, into, name, ...)                                                                   \
    MPI_Request request = MPI_REQUEST_NULL;                                                        \
    const int code = (a).starting ? MPI_Ineighbor_##name(__VA_ARGS__, (a).comm, &request)          \
                                  : MPI_Neighbor_##name(__VA_ARGS__, (a).comm);                    \
    (a).finish(code, request, into)

std::vector<int> own(int n)
{
    std::vector<int> mine;
    for (int i = 0; i < n; ++i) {
        mine.push_back(value(me, 99, i));
    }
    return mine;
}

void allgather(Arguments &a)
{
    const std::vector<int> mine = own(block);
    Two into(block, block);
    CALL(a, into, allgather, mine.data(), block, MPI_INT, into.data.data(), block, MPI_INT);
}

void allgatherv(Arguments &a)
{
    const std::vector<int> mine = own(length(me));
    Two into(length(left()), length(right()));
    CALL(a, into, allgatherv, mine.data(), length(me), MPI_INT, into.data.data(), into.lengths,
         into.places, MPI_INT);
}

Two outgoing(int to_left, int to_right)
{
    Two from(to_left, to_right);
    from.fill(0, left());
    from.fill(1, right());
    return from;
}

void alltoall(Arguments &a)
{
    const Two from = outgoing(block, block);
    Two into(block, block);
    CALL(a, into, alltoall, from.data.data(), block, MPI_INT, into.data.data(), block, MPI_INT);
}

void alltoallv(Arguments &a)
{
    const Two from = outgoing(between(me, left()), between(me, right()));
    Two into(between(left(), me), between(right(), me));
    CALL(a, into, alltoallv, from.data.data(), from.lengths, from.places, MPI_INT, into.data.data(),
         into.lengths, into.places, MPI_INT);
}

void alltoallw(Arguments &a)
{
    const Two from = outgoing(between(me, left()), between(me, right()));
    Two into(between(left(), me), between(right(), me));
    const MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    const auto bytes = [](const Two &two) {
        return std::array<MPI_Aint, 2>{0, static_cast<MPI_Aint>(sizeof(int)) *
                                              static_cast<MPI_Aint>(two.places[1])};
    };
    const std::array<MPI_Aint, 2> there = bytes(from);
    const std::array<MPI_Aint, 2> here = bytes(into);
    CALL(a, into, alltoallw, from.data.data(), from.lengths, there.data(), types, into.data.data(),
         into.lengths, here.data(), types);
}

#undef CALL

struct Entry {
    const char *name;
    bool personal; ///< each neighbour gets its own
    void (*call)(Arguments &);
};

constexpr std::array entries = {
    Entry{"neighbor_allgather", false, allgather}, Entry{"neighbor_allgatherv", false, allgatherv},
    Entry{"neighbor_alltoall", true, alltoall},    Entry{"neighbor_alltoallv", true, alltoallv},
    Entry{"neighbor_alltoallw", true, alltoallw},
};

} // namespace

MPI_Comm make_ring()
{
    const int periodic = 1;
    MPI_Comm ring = MPI_COMM_NULL;
    check::is(MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring), MPI_SUCCESS, "cart");
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    return ring;
}

int count()
{
    return static_cast<int>(entries.size());
}

const char *name(int which)
{
    return entries[static_cast<std::size_t>(which)].name;
}

Outcome call(int which, MPI_Comm ring, bool starting)
{
    Arguments arguments{ring, starting, {}};
    entries[static_cast<std::size_t>(which)].call(arguments);
    return std::move(arguments.out);
}

void must_be_right(int which, const Outcome &outcome, const std::set<int> &dead)
{
    check::is(outcome.code, MPI_SUCCESS, name(which));
    for (int side = 0; side < 2; ++side) {
        const int from = side == 0 ? left() : right();
        const int to = entries[static_cast<std::size_t>(which)].personal ? me : 99;
        std::vector<int> wanted;
        for (std::size_t i = 0; i < outcome.from[side].size(); ++i) {
            wanted.push_back(dead.count(from) != 0 ? untouched
                                                   : value(from, to, static_cast<int>(i)));
        }
        check::that(outcome.from[side] == wanted, "%s: the block of rank %d is wrong", name(which),
                    from);
    }
}

} // namespace around
