#include "walk.hpp"

#include <array>

namespace walk {

namespace {

struct Arguments {
    const Group &group;
    int root; ///< in the group
    Form form;
    int block;
    Outcome out;

    int self() const { return group.slot_of(check::me); }
    bool starting() const { return form == Form::starting || form == Form::starting_in_place; }
    bool in_place() const { return form == Form::in_place || form == Form::starting_in_place; }
    bool is_root() const { return self() == root; }
    int n() const { return group.size(); }
    /// A number that tells where it comes from and goes to.
    int value(int from, int to, int i) const
    {
        return group.world[static_cast<std::size_t>(from)] * 10000000 +
               (to < 0 ? 99 : group.world[static_cast<std::size_t>(to)]) * 100000 + i;
    }
    int length(int slot) const { return 1 + group.world[static_cast<std::size_t>(slot)] % 3; }
    int between(int from, int to) const
    {
        return 1 + (group.world[static_cast<std::size_t>(from)] +
                    group.world[static_cast<std::size_t>(to)]) %
                       3;
    }
    /// Blocks of these lengths, one behind the other.
    std::vector<int> places(const std::vector<int> &lengths) const
    {
        std::vector<int> at(lengths.size());
        for (std::size_t i = 1; i < at.size(); ++i) {
            at[i] = at[i - 1] + lengths[i - 1];
        }
        return at;
    }
    std::vector<int> lengths() const
    {
        std::vector<int> all;
        for (int s = 0; s < n(); ++s) {
            all.push_back(length(s));
        }
        return all;
    }
    void keep(const std::vector<int> &buffer, const std::vector<int> &lengths)
    {
        std::size_t at = 0;
        for (int s = 0; s < n(); ++s) {
            const auto end = at + static_cast<std::size_t>(lengths[static_cast<std::size_t>(s)]);
            out.blocks[group.world[static_cast<std::size_t>(s)]] = {
                buffer.begin() + static_cast<std::ptrdiff_t>(at),
                buffer.begin() + static_cast<std::ptrdiff_t>(end)};
            at = end;
        }
    }
    void keep_one(const std::vector<int> &buffer) { out.blocks[check::me] = buffer; }
    void finish(int code, MPI_Request request)
    {
        out.code = code;
        if (code == MPI_SUCCESS && starting()) {
            out.code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
};

int sum_of(const std::vector<int> &all)
{
    int sum = 0;
    for (const int x : all) {
        sum += x;
    }
    return sum;
}

#define CALL(a, Name, name, ...)                                                                   \
    MPI_Request request = MPI_REQUEST_NULL;                                                        \
    const int code = (a).starting() ? MPI_I##name(__VA_ARGS__, (a).group.comm, &request)           \
                                    : MPI_##Name(__VA_ARGS__, (a).group.comm);                     \
    (a).finish(code, request)

void barrier(Arguments &a)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        a.starting() ? MPI_Ibarrier(a.group.comm, &request) : MPI_Barrier(a.group.comm);
    a.finish(code, request);
}

void bcast(Arguments &a)
{
    std::vector<int> data(3000, untouched);
    if (a.is_root()) {
        for (std::size_t i = 0; i < data.size(); ++i) {
            data[i] = a.value(a.root, -1, static_cast<int>(i));
        }
    }
    CALL(a, Bcast, bcast, data.data(), static_cast<int>(data.size()), MPI_INT, a.root);
    a.keep_one(data);
}

std::vector<int> own(const Arguments &a)
{
    return {a.value(a.self(), -1, 0), a.value(a.self(), -1, 1), a.value(a.self(), -1, 2)};
}

std::vector<int> own_block(const Arguments &a)
{
    std::vector<int> mine;
    for (int i = 0; i < a.block; ++i) {
        mine.push_back(a.value(a.self(), -1, i));
    }
    return mine;
}

/// What goes from one to each.
std::vector<int> blocks_for_all(const Arguments &a, int from)
{
    std::vector<int> all;
    for (int s = 0; s < a.n(); ++s) {
        for (int i = 0; i < a.block; ++i) {
            all.push_back(a.value(from, s, i));
        }
    }
    return all;
}

void reduce(Arguments &a)
{
    std::vector<int> mine = own(a);
    std::vector<int> result(3, untouched);
    const bool here = a.in_place() && a.is_root();
    if (here) {
        result = mine;
    }
    CALL(a, Reduce, reduce, here ? MPI_IN_PLACE : mine.data(), result.data(), 3, MPI_INT, MPI_SUM,
         a.root);
    if (a.is_root()) {
        a.keep_one(result);
    }
}

void allreduce(Arguments &a)
{
    std::vector<int> mine = own(a);
    std::vector<int> result = a.in_place() ? mine : std::vector<int>(3, untouched);
    CALL(a, Allreduce, allreduce, a.in_place() ? MPI_IN_PLACE : mine.data(), result.data(), 3,
         MPI_INT, MPI_SUM);
    a.keep_one(result);
}

void scan(Arguments &a)
{
    std::vector<int> mine = own(a);
    std::vector<int> result = a.in_place() ? mine : std::vector<int>(3, untouched);
    CALL(a, Scan, scan, a.in_place() ? MPI_IN_PLACE : mine.data(), result.data(), 3, MPI_INT,
         MPI_SUM);
    a.keep_one(result);
}

void exscan(Arguments &a)
{
    std::vector<int> mine = own(a);
    std::vector<int> result = a.in_place() ? mine : std::vector<int>(3, untouched);
    CALL(a, Exscan, exscan, a.in_place() ? MPI_IN_PLACE : mine.data(), result.data(), 3, MPI_INT,
         MPI_SUM);
    if (a.self() != 0) { // the lowest one's result is undefined
        a.keep_one(result);
    }
}

void gather(Arguments &a)
{
    std::vector<int> mine = own_block(a);
    std::vector<int> all(static_cast<std::size_t>(a.n() * a.block), untouched);
    const bool here = a.in_place() && a.is_root();
    if (here) {
        std::copy(mine.begin(), mine.end(), all.begin() + a.self() * a.block);
    }
    CALL(a, Gather, gather, here ? MPI_IN_PLACE : mine.data(), a.block, MPI_INT, all.data(),
         a.block, MPI_INT, a.root);
    if (a.is_root()) {
        a.keep(all, std::vector<int>(static_cast<std::size_t>(a.n()), a.block));
    }
}

void gatherv(Arguments &a)
{
    std::vector<int> mine;
    for (int i = 0; i < a.length(a.self()); ++i) {
        mine.push_back(a.value(a.self(), -1, i));
    }
    const std::vector<int> lengths = a.lengths();
    const std::vector<int> places = a.places(lengths);
    std::vector<int> all(static_cast<std::size_t>(sum_of(lengths)), untouched);
    const bool here = a.in_place() && a.is_root();
    if (here) {
        std::copy(mine.begin(), mine.end(),
                  all.begin() + places[static_cast<std::size_t>(a.self())]);
    }
    CALL(a, Gatherv, gatherv, here ? MPI_IN_PLACE : mine.data(), a.length(a.self()), MPI_INT,
         all.data(), lengths.data(), places.data(), MPI_INT, a.root);
    if (a.is_root()) {
        a.keep(all, lengths);
    }
}

void scatter(Arguments &a)
{
    std::vector<int> all = blocks_for_all(a, a.root);
    std::vector<int> mine(static_cast<std::size_t>(a.block), untouched);
    const bool here = a.in_place() && a.is_root();
    CALL(a, Scatter, scatter, all.data(), a.block, MPI_INT, here ? MPI_IN_PLACE : mine.data(),
         a.block, MPI_INT, a.root);
    a.keep_one(mine);
}

void scatterv(Arguments &a)
{
    const std::vector<int> lengths = a.lengths();
    const std::vector<int> places = a.places(lengths);
    std::vector<int> all;
    for (int s = 0; s < a.n(); ++s) {
        for (int i = 0; i < a.length(s); ++i) {
            all.push_back(a.value(a.root, s, i));
        }
    }
    std::vector<int> mine(static_cast<std::size_t>(a.length(a.self())), untouched);
    const bool here = a.in_place() && a.is_root();
    CALL(a, Scatterv, scatterv, all.data(), lengths.data(), places.data(), MPI_INT,
         here ? MPI_IN_PLACE : mine.data(), a.length(a.self()), MPI_INT, a.root);
    a.keep_one(mine);
}

void allgather(Arguments &a)
{
    std::vector<int> mine = own_block(a);
    std::vector<int> all(static_cast<std::size_t>(a.n() * a.block), untouched);
    if (a.in_place()) {
        std::copy(mine.begin(), mine.end(), all.begin() + a.self() * a.block);
    }
    CALL(a, Allgather, allgather, a.in_place() ? MPI_IN_PLACE : mine.data(), a.block, MPI_INT,
         all.data(), a.block, MPI_INT);
    a.keep(all, std::vector<int>(static_cast<std::size_t>(a.n()), a.block));
}

void allgatherv(Arguments &a)
{
    std::vector<int> mine;
    for (int i = 0; i < a.length(a.self()); ++i) {
        mine.push_back(a.value(a.self(), -1, i));
    }
    const std::vector<int> lengths = a.lengths();
    const std::vector<int> places = a.places(lengths);
    std::vector<int> all(static_cast<std::size_t>(sum_of(lengths)), untouched);
    if (a.in_place()) {
        std::copy(mine.begin(), mine.end(),
                  all.begin() + places[static_cast<std::size_t>(a.self())]);
    }
    CALL(a, Allgatherv, allgatherv, a.in_place() ? MPI_IN_PLACE : mine.data(), a.length(a.self()),
         MPI_INT, all.data(), lengths.data(), places.data(), MPI_INT);
    a.keep(all, lengths);
}

void alltoall(Arguments &a)
{
    std::vector<int> from = blocks_for_all(a, a.self());
    std::vector<int> into(from.size(), untouched);
    if (a.in_place()) {
        into = from;
    }
    CALL(a, Alltoall, alltoall, a.in_place() ? MPI_IN_PLACE : from.data(), a.block, MPI_INT,
         into.data(), a.block, MPI_INT);
    a.keep(into, std::vector<int>(static_cast<std::size_t>(a.n()), a.block));
}

struct Traffic {
    std::vector<int> lengths;
    std::vector<int> places;
    std::vector<int> bytes;
    std::vector<int> from;
    std::vector<int> into;

    explicit Traffic(const Arguments &a)
    {
        for (int s = 0; s < a.n(); ++s) {
            lengths.push_back(a.between(a.self(), s));
            for (int i = 0; i < lengths.back(); ++i) {
                from.push_back(a.value(a.self(), s, i));
            }
        }
        places = a.places(lengths);
        for (const int place : places) {
            bytes.push_back(place * static_cast<int>(sizeof(int)));
        }
        into = a.in_place() ? from : std::vector<int>(from.size(), untouched);
    }
};

void alltoallv(Arguments &a)
{
    Traffic t(a);
    CALL(a, Alltoallv, alltoallv, a.in_place() ? MPI_IN_PLACE : t.from.data(), t.lengths.data(),
         t.places.data(), MPI_INT, t.into.data(), t.lengths.data(), t.places.data(), MPI_INT);
    a.keep(t.into, t.lengths);
}

void alltoallw(Arguments &a)
{
    Traffic t(a);
    const std::vector<MPI_Datatype> types(t.lengths.size(), MPI_INT);
    CALL(a, Alltoallw, alltoallw, a.in_place() ? MPI_IN_PLACE : t.from.data(), t.lengths.data(),
         t.bytes.data(), types.data(), t.into.data(), t.lengths.data(), t.bytes.data(),
         types.data());
    a.keep(t.into, t.lengths);
}

void reduce_scatter_block(Arguments &a)
{
    std::vector<int> from = blocks_for_all(a, a.self());
    std::vector<int> into(from.size(), untouched);
    if (a.in_place()) {
        into = from;
    }
    CALL(a, Reduce_scatter_block, reduce_scatter_block, a.in_place() ? MPI_IN_PLACE : from.data(),
         into.data(), a.block, MPI_INT, MPI_SUM);
    into.resize(static_cast<std::size_t>(a.block));
    a.keep_one(into);
}

void reduce_scatter(Arguments &a)
{
    const std::vector<int> lengths = a.lengths();
    std::vector<int> from;
    for (int s = 0; s < a.n(); ++s) {
        for (int i = 0; i < a.length(s); ++i) {
            from.push_back(a.value(a.self(), s, i));
        }
    }
    std::vector<int> into(from.size(), untouched);
    if (a.in_place()) {
        into = from;
    }
    CALL(a, Reduce_scatter, reduce_scatter, a.in_place() ? MPI_IN_PLACE : from.data(), into.data(),
         lengths.data(), MPI_INT, MPI_SUM);
    into.resize(static_cast<std::size_t>(a.length(a.self())));
    a.keep_one(into);
}

#undef CALL

struct Entry {
    const char *name;
    bool rooted;
    void (*call)(Arguments &);
};

constexpr std::array entries = {
    Entry{"barrier", false, barrier},
    Entry{"bcast", true, bcast},
    Entry{"reduce", true, reduce},
    Entry{"allreduce", false, allreduce},
    Entry{"scan", false, scan},
    Entry{"exscan", false, exscan},
    Entry{"gather", true, gather},
    Entry{"gatherv", true, gatherv},
    Entry{"scatter", true, scatter},
    Entry{"scatterv", true, scatterv},
    Entry{"allgather", false, allgather},
    Entry{"allgatherv", false, allgatherv},
    Entry{"alltoall", false, alltoall},
    Entry{"alltoallv", false, alltoallv},
    Entry{"alltoallw", false, alltoallw},
    Entry{"reduce_scatter", false, reduce_scatter},
    Entry{"reduce_scatter_block", false, reduce_scatter_block},
};

} // namespace

int count()
{
    return static_cast<int>(entries.size());
}

const char *name(int which)
{
    return entries[static_cast<std::size_t>(which)].name;
}

bool rooted(int which)
{
    return entries[static_cast<std::size_t>(which)].rooted;
}

Outcome call(int which, const Group &group, int root, Form form, int block)
{
    Arguments arguments{group, group.slot_of(root), form, block, {}};
    entries[static_cast<std::size_t>(which)].call(arguments);
    return std::move(arguments.out);
}

} // namespace walk
