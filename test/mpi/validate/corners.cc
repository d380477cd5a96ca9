// Collectives after validation where the survivors' part of the arguments is special and the whole
// of it is not.
//
// usage: corners counts DEAD    only failed ranks have elements
//        corners alone DEAD     one rank is left, and its blocks are not at the beginning
//        corners windows DEAD   blocks to send overlap, or stand between each other
//        corners roots DEAD     an intercommunicator of the first three ranks and the others; a
//                               non-blocking collective's root has failed
//        corners adopts DEAD    as a gather ends, others become the survivors: rank 1 dies too. Run
//                               with a gather that copies the root's own block in its turn
#include "among.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include <dlfcn.h>

using namespace among;

namespace {

constexpr double deadline_seconds = 20;
constexpr int untouched = walk::untouched;

/// What a blocking or a non-blocking call gave, at its end.
template <class Start>
int ended(Start start)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = start(&request);
    return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

void fall(const std::set<int> &doomed)
{
    all_through(doomed);
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    validate(doomed.size());
}

void add(void *from, void *into, int *count, MPI_Datatype * /*type*/)
{
    const int *const a = static_cast<int *>(from);
    int *const b = static_cast<int *>(into);
    std::transform(a, a + *count, b, b, std::plus<>());
}

void counts(const std::set<int> &doomed)
{
    fall(doomed);
    MPI_Op own = MPI_OP_NULL;
    MPI_Op_create(add, 0, &own);
    std::vector<int> each(static_cast<std::size_t>(size), 0);
    for (const int rank : doomed) {
        each[static_cast<std::size_t>(rank)] = 2;
    }
    const std::vector<int> from(2 * doomed.size(), 1);
    for (MPI_Op op : {MPI_SUM, own}) {
        int into = untouched;
        is(MPI_Reduce_scatter(from.data(), &into, each.data(), MPI_INT, op, MPI_COMM_WORLD),
           MPI_SUCCESS, "reduce_scatter");
        is(ended([&](MPI_Request *request) {
               return MPI_Ireduce_scatter(from.data(), &into, each.data(), MPI_INT, op,
                                          MPI_COMM_WORLD, request);
           }),
           MPI_SUCCESS, "ireduce_scatter");
        that(into == untouched, "something was written");
    }
    MPI_Op_free(&own);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

void alone(const std::set<int> &doomed)
{
    fall(doomed);
    std::array<int, 64> from{};
    std::iota(from.begin(), from.end(), 0);
    const auto ranks = static_cast<std::size_t>(size);
    const std::vector<int> each(ranks, 1);
    const std::vector<MPI_Datatype> types(ranks, MPI_INT);
    std::vector<int> places(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        places[rank] = static_cast<int>((3 + rank) * sizeof(int));
    }
    for (const bool starting : {false, true}) {
        for (const bool in_place : {false, true}) {
            std::array<int, 64> into{};
            into.fill(untouched);
            std::array<int, 64> wanted = into;
            const auto slot = 3 + static_cast<std::size_t>(me);
            wanted[slot] = in_place ? untouched : from[slot];
            const void *what = in_place ? MPI_IN_PLACE : from.data();
            const int code = starting ? ended([&](MPI_Request *request) {
                return MPI_Ialltoallw(what, each.data(), places.data(), types.data(), into.data(),
                                      each.data(), places.data(), types.data(), MPI_COMM_WORLD,
                                      request);
            })
                                      : MPI_Alltoallw(what, each.data(), places.data(),
                                                      types.data(), into.data(), each.data(),
                                                      places.data(), types.data(), MPI_COMM_WORLD);
            is(code, MPI_SUCCESS, "alltoallw");
            that(into == wanted, "alltoallw%s wrote elsewhere", in_place ? ", in place" : "");
        }
    }
}

/// What stands at element `at` of a rank's buffer.
int element(int rank, int at)
{
    return 1000 * rank + at;
}

/// \param count of the type, in each block
/// \param places of the ints of one of the type, which are one int apart from those of the next
void windows_of(MPI_Datatype type, int count, const std::vector<int> &places,
                const std::set<int> &dead)
{
    const int block = count * static_cast<int>(places.size());
    std::vector<int> from(256);
    for (int at = 0; at < static_cast<int>(from.size()); ++at) {
        from[static_cast<std::size_t>(at)] = element(me, at);
    }
    const auto sent = [&](int sender, int receiver) {
        std::vector<int> all;
        for (int i = 0; i < count; ++i) {
            for (const int place : places) {
                all.push_back(element(sender, receiver * count + i + place));
            }
        }
        return all;
    };
    for (const bool starting : {false, true}) {
        for (const int root : {0, size - 1}) {
            std::vector<int> into(static_cast<std::size_t>(block), untouched);
            const int code = starting ? ended([&](MPI_Request *request) {
                return MPI_Iscatter(from.data(), count, type, into.data(), block, MPI_INT, root,
                                    MPI_COMM_WORLD, request);
            })
                                      : MPI_Scatter(from.data(), count, type, into.data(), block,
                                                    MPI_INT, root, MPI_COMM_WORLD);
            is(code, MPI_SUCCESS, "scatter");
            that(into == sent(root, me), "scatter of %d from %d is wrong", count, root);
        }
        std::vector<int> into(static_cast<std::size_t>(block * size), untouched);
        const int code = starting ? ended([&](MPI_Request *request) {
            return MPI_Ialltoall(from.data(), count, type, into.data(), block, MPI_INT,
                                 MPI_COMM_WORLD, request);
        })
                                  : MPI_Alltoall(from.data(), count, type, into.data(), block,
                                                 MPI_INT, MPI_COMM_WORLD);
        is(code, MPI_SUCCESS, "alltoall");
        for (int rank = 0; rank < size; ++rank) {
            const std::vector<int> wanted =
                dead.count(rank) == 0
                    ? sent(rank, me)
                    : std::vector<int>(static_cast<std::size_t>(block), untouched);
            that(std::equal(wanted.begin(), wanted.end(), into.begin() + rank * block),
                 "alltoall of %d: the block of rank %d is wrong", count, rank);
        }
    }
}

/// Columns of a table go to columns of another: they stand between each other on both sides.
void columns(MPI_Datatype column, const std::vector<int> &places, const std::set<int> &dead)
{
    std::vector<int> from(64);
    std::iota(from.begin(), from.end(), element(me, 0));
    std::vector<int> into(64, untouched);
    std::vector<int> wanted = into;
    for (int rank = 0; rank < size; ++rank) {
        for (const int place : places) {
            if (dead.count(rank) == 0) {
                wanted[static_cast<std::size_t>(rank + place)] = element(rank, me + place);
            }
        }
    }
    is(MPI_Alltoall(from.data(), 1, column, into.data(), 1, column, MPI_COMM_WORLD), MPI_SUCCESS,
       "alltoall");
    that(into == wanted, "alltoall of columns is wrong");
}

void windows(const std::set<int> &doomed)
{
    fall(doomed);
    const auto one_int_apart = [](MPI_Datatype *type) {
        MPI_Datatype apart = MPI_DATATYPE_NULL;
        MPI_Type_create_resized(*type, 0, sizeof(int), &apart);
        MPI_Type_commit(&apart);
        MPI_Type_free(type);
        return apart;
    };
    MPI_Datatype four = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(4, MPI_INT, &four);
    MPI_Datatype window = one_int_apart(&four);
    MPI_Datatype three = MPI_DATATYPE_NULL;
    MPI_Type_vector(3, 1, 10, MPI_INT, &three);
    MPI_Datatype column = one_int_apart(&three);
    for (const int count : {1, 2}) {
        windows_of(window, count, {0, 1, 2, 3}, doomed);
        windows_of(column, count, {0, 10, 20}, doomed);
    }
    columns(column, {0, 10, 20}, doomed);
    MPI_Type_free(&window);
    MPI_Type_free(&column);
}

void roots(const std::set<int> &doomed)
{
    constexpr int first_group = 3;
    const bool first = me < first_group;
    MPI_Comm side = MPI_COMM_NULL;
    MPI_Comm both = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, first ? 0 : 1, 0, &side), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, first ? first_group : 0, 3, &both),
       MPI_SUCCESS, "MPI_Intercomm_create");
    MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
    fall(doomed);
    int count = 0;
    is(MPI_Comm_validate_all(both, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    const int root = first ? MPI_PROC_NULL : *doomed.begin();
    int a = 1;
    std::array<int, 8> b{};
    const std::array<int, 8> ones = {1, 1, 1, 1, 1, 1, 1, 1};
    const std::array<int, 8> nulls{};
    for (int which = 0; which < 6; ++which) {
        const int code = ended([&](MPI_Request *request) {
            switch (which) {
            case 0:
                return MPI_Ibcast(&a, 1, MPI_INT, root, both, request);
            case 1:
                return MPI_Ireduce(&a, b.data(), 1, MPI_INT, MPI_SUM, root, both, request);
            case 2:
                return MPI_Igather(&a, 1, MPI_INT, b.data(), 1, MPI_INT, root, both, request);
            case 3:
                return MPI_Igatherv(&a, 1, MPI_INT, b.data(), ones.data(), nulls.data(), MPI_INT,
                                    root, both, request);
            case 4:
                return MPI_Iscatter(b.data(), 1, MPI_INT, &a, 1, MPI_INT, root, both, request);
            default:
                return MPI_Iscatterv(b.data(), ones.data(), nulls.data(), MPI_INT, &a, 1, MPI_INT,
                                     root, both, request);
            }
        });
        // The root's group is not told who that is.
        is(code, first ? MPI_SUCCESS : MPI_ERR_RANK_FAIL_STOP, "a collective whose root is dead");
        const int mine = 1 << me;
        int sum = 0;
        is(ended([&](MPI_Request *request) {
               return MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, both, request);
           }),
           MPI_SUCCESS, "the next");
        int wanted = 0;
        for (int rank = first ? first_group : 0; rank < (first ? size : first_group); ++rank) {
            wanted += doomed.count(rank) == 0 ? 1 << rank : 0;
        }
        that(sum == wanted, "the next after %d: %d instead of %d", which, sum, wanted);
    }
    MPI_Comm_free(&both);
    MPI_Comm_free(&side);
}

bool armed = false;
MPI_Request validation = MPI_REQUEST_NULL;

void adopts(std::set<int> doomed)
{
    constexpr int root = 2;
    fall(doomed);
    int count = -1;
    if (me != 1) {
        is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &count, &validation), MPI_SUCCESS,
           "MPI_Icomm_validate_all");
    }
    std::vector<int> into(static_cast<std::size_t>(size), untouched);
    armed = me == root;
    const int code = MPI_Gather(&me, 1, MPI_INT, into.data(), 1, MPI_INT, root, MPI_COMM_WORLD);
    if (me == 1) {
        wait_for_word(root);
        die();
    }
    if (me == root) {
        is(code, MPI_SUCCESS, "gather");
        that(!armed && validation == MPI_REQUEST_NULL, "the gather was over before the validation");
        for (int rank = 0; rank < size; ++rank) {
            const int wanted = doomed.count(rank) == 0 ? rank : untouched;
            const int got = into[static_cast<std::size_t>(rank)];
            that(got == wanted, "the block of rank %d is %d", rank, got);
        }
    }
    is(MPI_Wait(&validation, MPI_STATUS_IGNORE), MPI_SUCCESS, "the validation");
    doomed.insert(1);
    that(count == static_cast<int>(doomed.size()), "%d failures", count);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

} // namespace

/// Open MPI's, by which the root of a gather copies its own block: all the others are there.
extern "C" int ompi_datatype_sndrcv(const void *from, int count, const void *type, void *into,
                                    int into_count, const void *into_type)
{
    if (std::exchange(armed, false)) {
        send_word(1);
        const double end = MPI_Wtime() + deadline_seconds;
        for (int done = 0; done == 0 && MPI_Wtime() < end;) {
            is(MPI_Test(&validation, &done, MPI_STATUS_IGNORE), MPI_SUCCESS, "test");
        }
    }
    static auto *const real =
        reinterpret_cast<int (*)(const void *, int, const void *, void *, int, const void *)>(
            dlsym(RTLD_NEXT, "ompi_datatype_sndrcv"));
    return real(from, count, type, into, into_count, into_type);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "";
    const std::set<int> doomed = ranks_of(argc > 2 ? argv[2] : "none");
    if (what == "counts") {
        counts(doomed);
    } else if (what == "alone") {
        alone(doomed);
    } else if (what == "windows") {
        windows(doomed);
    } else if (what == "roots") {
        roots(doomed);
    } else {
        adopts(doomed);
    }
    return finish();
}
