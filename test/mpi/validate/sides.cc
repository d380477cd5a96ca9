#include "sides.hpp"

#include <algorithm>
#include <array>

namespace sides {

namespace {

constexpr int block = 2;

std::size_t z(int n)
{
    return static_cast<std::size_t>(n);
}

struct Arguments {
    const Pair &pair;
    int root;
    bool starting;
    Outcome out;

    int self() const { return pair.self; }
    bool is_root() const { return self() == root; }
    bool receives() const // from the root, or is to send to it
    {
        return std::find(pair.remote.begin(), pair.remote.end(), root) != pair.remote.end();
    }
    int root_argument() const
    {
        const auto there = std::find(pair.remote.begin(), pair.remote.end(), root);
        if (there != pair.remote.end()) {
            return static_cast<int>(there - pair.remote.begin());
        }
        return is_root() ? MPI_ROOT : MPI_PROC_NULL;
    }
    static int value(int from, int to, int i) { return from * 10000 + to * 10 + i; }
    static int length(int process) { return 1 + process % 3; }
    static int between(int from, int to) { return 1 + (from + to) % 3; }

    std::vector<int> own(int n) const
    {
        std::vector<int> mine;
        for (int i = 0; i < n; ++i) {
            mine.push_back(value(self(), 999, i));
        }
        return mine;
    }
    std::vector<int> lengths() const
    {
        std::vector<int> all;
        for (const int process : pair.remote) {
            all.push_back(length(process));
        }
        return all;
    }
    static std::vector<int> places(const std::vector<int> &lengths)
    {
        std::vector<int> at(lengths.size());
        for (std::size_t i = 1; i < at.size(); ++i) {
            at[i] = at[i - 1] + lengths[i - 1];
        }
        return at;
    }
    static std::vector<int> empty(const std::vector<int> &lengths)
    {
        int sum = 0;
        for (const int n : lengths) {
            sum += n;
        }
        return std::vector<int>(z(sum), untouched);
    }
    /// Blocks of the other side, one behind the other.
    void keep(const std::vector<int> &buffer, const std::vector<int> &lengths)
    {
        auto at = buffer.begin();
        for (std::size_t i = 0; i < pair.remote.size(); ++i) {
            out.blocks[pair.remote[i]] = {at, at + lengths[i]};
            at += lengths[i];
        }
    }
    void keep_one(const std::vector<int> &buffer) { out.blocks[self()] = buffer; }
    std::vector<int> same(int n) const { return std::vector<int>(pair.remote.size(), n); }
    void finish(int code, MPI_Request request)
    {
        out.code = code;
        if (code == MPI_SUCCESS && starting) {
            out.code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
};

#define CALL(a, Name, name, ...)                                                                   \
    MPI_Request request = MPI_REQUEST_NULL;                                                        \
    const int code = (a).starting ? MPI_I##name(__VA_ARGS__, (a).pair.comm, &request)              \
                                  : MPI_##Name(__VA_ARGS__, (a).pair.comm);                        \
    (a).finish(code, request)

void barrier(Arguments &a)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = a.starting ? MPI_Ibarrier(a.pair.comm, &request) : MPI_Barrier(a.pair.comm);
    a.finish(code, request);
}

void bcast(Arguments &a)
{
    std::vector<int> data = a.is_root() ? a.own(3000) : std::vector<int>(3000, untouched);
    CALL(a, Bcast, bcast, data.data(), 3000, MPI_INT, a.root_argument());
    a.keep_one(data);
}

void reduce(Arguments &a)
{
    const std::vector<int> mine = a.own(3);
    std::vector<int> result(3, untouched);
    CALL(a, Reduce, reduce, mine.data(), result.data(), 3, MPI_INT, MPI_SUM, a.root_argument());
    a.keep_one(result);
}

void allreduce(Arguments &a)
{
    const std::vector<int> mine = a.own(3);
    std::vector<int> result(3, untouched);
    CALL(a, Allreduce, allreduce, mine.data(), result.data(), 3, MPI_INT, MPI_SUM);
    a.keep_one(result);
}

void gather(Arguments &a)
{
    const std::vector<int> mine = a.own(block);
    std::vector<int> all = a.empty(a.same(block));
    CALL(a, Gather, gather, mine.data(), block, MPI_INT, all.data(), block, MPI_INT,
         a.root_argument());
    if (a.is_root()) {
        a.keep(all, a.same(block));
    }
}

void gatherv(Arguments &a)
{
    const int n = a.length(a.self());
    const std::vector<int> mine = a.own(n);
    const std::vector<int> lengths = a.lengths();
    const std::vector<int> places = a.places(lengths);
    std::vector<int> all = a.empty(lengths);
    CALL(a, Gatherv, gatherv, mine.data(), n, MPI_INT, all.data(), lengths.data(), places.data(),
         MPI_INT, a.root_argument());
    if (a.is_root()) {
        a.keep(all, lengths);
    }
}

std::vector<int> for_each_of_them(const Arguments &a, const std::vector<int> &lengths)
{
    std::vector<int> all;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        for (int i = 0; i < lengths[s]; ++i) {
            all.push_back(a.value(a.self(), a.pair.remote[s], i));
        }
    }
    return all;
}

void scatter(Arguments &a)
{
    const std::vector<int> all = for_each_of_them(a, a.same(block));
    std::vector<int> mine(block, untouched);
    CALL(a, Scatter, scatter, all.data(), block, MPI_INT, mine.data(), block, MPI_INT,
         a.root_argument());
    a.keep_one(mine);
}

void scatterv(Arguments &a)
{
    const std::vector<int> lengths = a.lengths();
    const std::vector<int> places = a.places(lengths);
    const std::vector<int> all = for_each_of_them(a, lengths);
    const int n = a.length(a.self());
    std::vector<int> mine(z(n), untouched);
    CALL(a, Scatterv, scatterv, all.data(), lengths.data(), places.data(), MPI_INT, mine.data(), n,
         MPI_INT, a.root_argument());
    a.keep_one(mine);
}

void allgather(Arguments &a)
{
    const std::vector<int> mine = a.own(block);
    std::vector<int> all = a.empty(a.same(block));
    CALL(a, Allgather, allgather, mine.data(), block, MPI_INT, all.data(), block, MPI_INT);
    a.keep(all, a.same(block));
}

void allgatherv(Arguments &a)
{
    const int n = a.length(a.self());
    const std::vector<int> mine = a.own(n);
    const std::vector<int> lengths = a.lengths();
    const std::vector<int> places = a.places(lengths);
    std::vector<int> all = a.empty(lengths);
    CALL(a, Allgatherv, allgatherv, mine.data(), n, MPI_INT, all.data(), lengths.data(),
         places.data(), MPI_INT);
    a.keep(all, lengths);
}

void alltoall(Arguments &a)
{
    const std::vector<int> from = for_each_of_them(a, a.same(block));
    std::vector<int> into(from.size(), untouched);
    CALL(a, Alltoall, alltoall, from.data(), block, MPI_INT, into.data(), block, MPI_INT);
    a.keep(into, a.same(block));
}

std::vector<int> traffic(const Arguments &a)
{
    std::vector<int> lengths;
    for (const int process : a.pair.remote) {
        lengths.push_back(a.between(a.self(), process));
    }
    return lengths;
}

void alltoallv(Arguments &a)
{
    const std::vector<int> lengths = traffic(a);
    const std::vector<int> places = a.places(lengths);
    const std::vector<int> from = for_each_of_them(a, lengths);
    std::vector<int> into(from.size(), untouched);
    CALL(a, Alltoallv, alltoallv, from.data(), lengths.data(), places.data(), MPI_INT, into.data(),
         lengths.data(), places.data(), MPI_INT);
    a.keep(into, lengths);
}

void alltoallw(Arguments &a)
{
    const std::vector<int> lengths = traffic(a);
    std::vector<int> bytes = a.places(lengths);
    for (int &place : bytes) {
        place *= static_cast<int>(sizeof(int));
    }
    const std::vector<MPI_Datatype> types(lengths.size(), MPI_INT);
    const std::vector<int> from = for_each_of_them(a, lengths);
    std::vector<int> into(from.size(), untouched);
    CALL(a, Alltoallw, alltoallw, from.data(), lengths.data(), bytes.data(), types.data(),
         into.data(), lengths.data(), bytes.data(), types.data());
    a.keep(into, lengths);
}

/// Both groups must reduce as many elements; a multiple of both sizes.
int elements(const Pair &pair)
{
    return static_cast<int>(pair.local.size() * pair.remote.size()) * block;
}

void reduce_scatter_block(Arguments &a)
{
    const std::vector<int> from = a.own(elements(a.pair));
    const int n = elements(a.pair) / static_cast<int>(a.pair.local.size());
    std::vector<int> into(z(n + 1), untouched);
    CALL(a, Reduce_scatter_block, reduce_scatter_block, from.data(), into.data(), n, MPI_INT,
         MPI_SUM);
    a.keep_one(into);
}

/// Uneven: everybody but the last has one element less than its share.
std::vector<int> shares(const Pair &pair)
{
    const int n = static_cast<int>(pair.local.size());
    std::vector<int> counts(pair.local.size(), elements(pair) / n - 1);
    counts.back() += n;
    return counts;
}

void reduce_scatter(Arguments &a)
{
    const std::vector<int> from = a.own(elements(a.pair));
    const std::vector<int> counts = shares(a.pair);
    const auto at = std::find(a.pair.local.begin(), a.pair.local.end(), a.self());
    const int n = counts[static_cast<std::size_t>(at - a.pair.local.begin())];
    std::vector<int> into(z(n + 1), untouched);
    CALL(a, Reduce_scatter, reduce_scatter, from.data(), into.data(), counts.data(), MPI_INT,
         MPI_SUM);
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
    return entries[z(which)].name;
}

bool rooted(int which)
{
    return entries[z(which)].rooted;
}

bool comparable(int which)
{
    return entries[z(which)].call != reduce_scatter &&
           entries[z(which)].call != reduce_scatter_block;
}

Outcome call(int which, const Pair &pair, int root, bool starting)
{
    Arguments arguments{pair, root, starting, {}};
    entries[z(which)].call(arguments);
    return std::move(arguments.out);
}

std::vector<int> expected(int which, const Pair &pair, const std::vector<int> &alive)
{
    const bool even = entries[z(which)].call == reduce_scatter_block;
    const std::vector<int> counts =
        even ? std::vector<int>(pair.local.size(),
                                elements(pair) / static_cast<int>(pair.local.size()))
             : shares(pair);
    const std::vector<int> places = Arguments::places(counts);
    const auto mine = static_cast<std::size_t>(
        std::find(pair.local.begin(), pair.local.end(), pair.self) - pair.local.begin());
    std::vector<int> result;
    for (int i = 0; i < counts[mine]; ++i) {
        int sum = 0;
        for (const int process : alive) {
            sum += Arguments::value(process, 999, places[mine] + i);
        }
        result.push_back(sum);
    }
    result.push_back(untouched);
    return result;
}

std::vector<int> left_of(const std::vector<int> &all, const std::set<int> &dead)
{
    std::vector<int> left;
    std::copy_if(all.begin(), all.end(), std::back_inserter(left),
                 [&](int process) { return dead.count(process) == 0; });
    return left;
}

void must_be_right(int which, const Pair &pair, const Pair &survivors, int root, bool starting,
                   const std::set<int> &dead)
{
    using check::is;
    using check::that;
    const Outcome got = call(which, pair, root, starting);
    is(got.code, MPI_SUCCESS, name(which));
    if (!comparable(which)) {
        that(got.blocks.at(pair.self) == expected(which, pair, survivors.remote),
             "%s: another result", name(which));
        return;
    }
    const Outcome wanted = call(which, survivors, root, starting);
    is(wanted.code, MPI_SUCCESS, name(which));
    for (const auto &[process, block] : wanted.blocks) {
        const auto its = got.blocks.find(process);
        that(its != got.blocks.end() && its->second == block, "%s: block of process %d differs",
             name(which), process);
    }
    for (const auto &[process, block] : got.blocks) {
        for (const int x : block) {
            that(dead.count(process) == 0 || x == untouched,
                 "%s: the block of dead process %d was written", name(which), process);
        }
    }
}

} // namespace sides
