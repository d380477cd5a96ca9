// Every collective while ranks die, and after their failures are recognised.
//
// usage: collectives recognised DEAD   the ranks die; validate_all; every collective, in each form,
//                                      must give what it gives on a communicator of the survivors
//        collectives refused DEAD      the ranks die, and all know: every collective must end with
//                                      the error at every survivor
//        collectives entry FIRST [root]  ranks 1, 2, ... die one after the other at the entry of
//                                      collective FIRST, FIRST + 1, ...; nobody may hang; then
//                                      validate_all, then the same collective must be right. With
//                                      "root", the one that dies is its root
//        collectives trusted FIRST     the lowest rank dies in an MPI_Allgatherv, then the highest,
//                                      and so on until two are left; with blocks of length FIRST,
//                                      FIRST + 1, ... of a list. Who is told of success must have
//                                      all blocks, also among the survivors
//        collectives interrupted DEAD  they die and are recognised. Then rank after rank revokes a
//                                      communicator in whose collective the others are. Who is
//                                      told of success must have all
//        collectives large DEAD        blocks whose places are more elements than an int holds
//        collectives kinds DEAD        each rank says in its own datatype what a block is, on an
//                                      intercommunicator too
//        collectives killed FIFO NUMBER   the test kills so many ranks, and reads from the FIFO
//        when
//                                      it may begin; then as with "recognised"
#include "among.hpp"
#include "test/mpi/survivors/mark.hpp"

#include <algorithm>
#include <array>
#include <climits>

#include <sys/mman.h>

using namespace among;

namespace {

constexpr walk::Form forms[] = {walk::Form::blocking, walk::Form::starting, walk::Form::in_place,
                                walk::Form::starting_in_place};
/// Elements of a block. Blocks that are few bytes in all are packed, others stay where they are.
constexpr int blocks[] = {2, 9000};

void all_collectives(const std::set<int> &dead)
{
    const walk::Group mine = world();
    walk::Group theirs = survivors(dead);
    for (int which = 0; which < walk::count(); ++which) {
        for (const walk::Form form : forms) {
            for (const int root : {theirs.world.front(), theirs.world.back()}) {
                for (const int block : blocks) {
                    const walk::Outcome wanted = walk::call(which, theirs, root, form, block);
                    const walk::Outcome got = walk::call(which, mine, root, form, block);
                    compare(which, form, got, wanted, dead);
                }
            }
        }
        if (walk::rooted(which) && !dead.empty()) {
            const walk::Outcome none = walk::call(which, mine, *dead.begin(), walk::Form::blocking);
            is(none.code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
        }
    }
    MPI_Comm_free(&theirs.comm);
}

void recognised(const std::set<int> &doomed)
{
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    validate(doomed.size());
    all_collectives(doomed);
}

/// What validate_all recognised. A rank that failed since is not in it.
std::set<int> failed_by_agreement()
{
    std::set<int> ranks;
    for (const int rank : failed(MPI_COMM_WORLD)) {
        if (state(MPI_COMM_WORLD, rank) == MPI_RANK_NULL) {
            ranks.insert(rank);
        }
    }
    return ranks;
}

void refused(const std::set<int> &doomed)
{
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    const walk::Group mine = world();
    for (int which = 0; which < walk::count(); ++which) {
        for (const walk::Form form : forms) {
            for (const int root : {0, size - 1}) {
                is(walk::call(which, mine, root, form).code, MPI_ERR_RANK_FAIL_STOP,
                   walk::name(which));
            }
        }
    }
    validate(doomed.size());
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

void entry(int first, bool roots)
{
    const walk::Group mine = world();
    std::set<int> dead;
    for (int victim = 1; victim < size - 1; ++victim) {
        const int which = (first + victim - 1) % walk::count();
        const walk::Form form = victim % 2 == 0 ? walk::Form::starting : walk::Form::blocking;
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier before");
        await_all(victim, dead);
        if (me == victim) {
            die();
        }
        dead.insert(victim);
        // Who did not need the dead one may be through; the next meets the failure.
        int code = walk::call(which, mine, roots ? victim : 0, form).code;
        while (code == MPI_SUCCESS) {
            code = MPI_Barrier(MPI_COMM_WORLD);
        }
        is(code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
        validate(dead.size());
        walk::Group theirs = survivors(dead);
        compare(which, form, walk::call(which, mine, 0, form), walk::call(which, theirs, 0, form),
                dead);
        MPI_Comm_free(&theirs.comm);
    }
}

/// One for each range in which coll/tuned has another algorithm for up to 31 ranks.
constexpr int lengths[] = {1, 40, 200, 1500, 3000, 9000, 70000};

void allgatherv_is_right(int code, const std::vector<int> &into, int length,
                         const std::set<int> &dead)
{
    if (code != MPI_SUCCESS) {
        return;
    }
    for (int rank = 0; rank < size; ++rank) {
        const int wanted = dead.count(rank) != 0 ? walk::untouched : rank;
        const auto first = into.begin() + static_cast<std::ptrdiff_t>(rank) * length;
        that(std::count(first, first + length, wanted) == length,
             "success, but in blocks of %d that of rank %d begins with %d", length, rank, *first);
    }
}

void trusted(std::size_t first)
{
    std::set<int> dead;
    for (std::size_t step = 0; size - static_cast<int>(dead.size()) > 2; ++step) {
        int victim = step % 2 == 0 ? 0 : size - 1;
        while (dead.count(victim) != 0) {
            victim += step % 2 == 0 ? 1 : -1;
        }
        const int length = lengths[(first + step) % std::size(lengths)];
        const bool in_place = step / 2 % 2 != 0;
        const std::vector<int> counts(static_cast<std::size_t>(size), length);
        std::vector<int> places;
        for (int rank = 0; rank < size; ++rank) {
            places.push_back(rank * length);
        }
        const std::vector<int> mine(static_cast<std::size_t>(length), me);
        const auto gather = [&] {
            std::vector<int> into(mine.size() * static_cast<std::size_t>(size), walk::untouched);
            if (in_place) {
                std::copy(mine.begin(), mine.end(),
                          into.begin() + places[static_cast<std::size_t>(me)]);
            }
            const int code =
                MPI_Allgatherv(in_place ? MPI_IN_PLACE : mine.data(), length, MPI_INT, into.data(),
                               counts.data(), places.data(), MPI_INT, MPI_COMM_WORLD);
            allgatherv_is_right(code, into, length, dead);
            return code;
        };
        is(gather(), MPI_SUCCESS, "allgatherv before");
        await_all(victim, dead);
        if (me == victim) {
            die();
        }
        int code = gather();
        while (code == MPI_SUCCESS) {
            code = MPI_Barrier(MPI_COMM_WORLD);
        }
        is(code, MPI_ERR_RANK_FAIL_STOP, "allgatherv in which a rank has died");
        dead.insert(victim);
        validate(dead.size());
    }
}

/// One that revokes is missing in the collective, so nobody else can have what depends on it.
void interrupted(const std::set<int> &doomed)
{
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    if (!doomed.empty()) {
        validate(doomed.size());
    }
    const walk::Group mine = world();
    walk::Group left = survivors(doomed);
    for (int which = 0; which < walk::count(); ++which) {
        for (const walk::Form form : forms) {
            for (int place = 0; place < left.size(); ++place) {
                const int missing = left.world[static_cast<std::size_t>(place)];
                const int root =
                    left.world[static_cast<std::size_t>((place + which) % left.size())];
                const walk::Outcome wanted = walk::call(which, left, root, form);
                walk::Group twin = mine;
                int failures = 0;
                is(MPI_Comm_dup(MPI_COMM_WORLD, &twin.comm), MPI_SUCCESS, "dup");
                MPI_Comm_set_errhandler(twin.comm, MPI_ERRORS_RETURN);
                is(MPI_Comm_validate_all(twin.comm, &failures), MPI_SUCCESS, "of the twin");
                await_all(missing, doomed);
                if (me == missing) {
                    is(MPIX_Comm_revoke(twin.comm), MPI_SUCCESS, "MPIX_Comm_revoke");
                } else if (const walk::Outcome got = walk::call(which, twin, root, form);
                           got.code == MPI_SUCCESS) {
                    compare(which, form, got, wanted, doomed);
                } else {
                    is(got.code, MPIX_ERR_REVOKED, walk::name(which));
                }
                MPI_Comm_free(&twin.comm);
            }
        }
    }
    MPI_Comm_free(&left.comm);
}

/// Until so many have been killed all work together; each time somebody is, they agree.
void killed(const std::string &fifo, std::size_t wanted)
{
    marks::mark(fifo.c_str(), "ready " + std::to_string(me));
    const walk::Group mine = world();
    int which = 0;
    std::set<int> dead;
    while (dead.size() < wanted) {
        int root = 0;
        while (dead.count(root) != 0) {
            ++root;
        }
        const int code = walk::call(which, mine, root, walk::Form::blocking).code;
        which = (which + 1) % walk::count();
        if (code != MPI_SUCCESS) {
            is(code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
            int count = 0;
            is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
            dead = failed_by_agreement();
            that(static_cast<int>(dead.size()) == count, "%d failures, but %zu known", count,
                 dead.size());
            which = 0; // all are at one place again
        }
    }
    std::printf("rank %d set %s\n", me, text_of(dead).c_str());
    all_collectives(dead);
}

constexpr const char *equal_blocks[] = {"gather", "scatter", "allgather", "alltoall"};
constexpr std::size_t rooted = 2; ///< so many have a root: the first

struct Blocks {
    const void *from;
    int from_count;
    MPI_Datatype from_type;
    void *into;
    int count;
    MPI_Datatype type;
};

/// One of the four that have a block for each rank, all of one length.
void exchange(std::size_t which, bool starting, const Blocks &b, int root, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
#define CALL(Name, name, ...)                                                                      \
    code = starting ? MPI_I##name(b.from, b.from_count, b.from_type, b.into, b.count, b.type,      \
                                  __VA_ARGS__, &request)                                           \
                    : MPI_##Name(b.from, b.from_count, b.from_type, b.into, b.count, b.type,       \
                                 __VA_ARGS__)
    switch (which) {
    case 0:
        CALL(Gather, gather, root, comm);
        break;
    case 1:
        CALL(Scatter, scatter, root, comm);
        break;
    case 2:
        CALL(Allgather, allgather, comm);
        break;
    default:
        CALL(Alltoall, alltoall, comm);
        break;
    }
#undef CALL
    if (is(code, MPI_SUCCESS, equal_blocks[which]) && starting) {
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, equal_blocks[which]);
    }
}

/// The place of rank 2 is more than INT_MAX.
constexpr std::size_t large_block = INT_MAX / 2 + 9;

/// A large block for each rank, of which only the two ends are memory of their own: what is between
/// is one little piece, again and again.
unsigned char *large_blocks()
{
    constexpr std::size_t piece = 1 << 20;
    const std::size_t all = large_block * static_cast<std::size_t>(size);
    void *const room = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int file = memfd_create("piece", MFD_CLOEXEC);
    if (!that(room != MAP_FAILED && ftruncate(file, piece) == 0, "no room")) {
        std::abort();
    }
    auto *const bytes = static_cast<unsigned char *>(room);
    for (std::size_t at = piece; at + piece < all; at += piece) {
        if (at / large_block == (at + piece) / large_block) {
            that(mmap(bytes + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
                     MAP_FAILED,
                 "the piece does not go there");
        }
    }
    close(file);
    return bytes;
}

/// Elements of no bytes, but each at a place of its own.
void large_of_nothing(int root)
{
    const int block = static_cast<int>(large_block);
    MPI_Datatype none = MPI_DATATYPE_NULL;
    MPI_Datatype empty = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(0, MPI_BYTE, &none);
    MPI_Type_create_resized(none, 0, 1, &empty);
    MPI_Type_commit(&empty);
    unsigned char nothing = 0;
    for (std::size_t which = 0; which < std::size(equal_blocks); ++which) {
        for (const walk::Form form : forms) {
            const bool starting =
                form == walk::Form::starting || form == walk::Form::starting_in_place;
            const bool in_place =
                (form == walk::Form::in_place || form == walk::Form::starting_in_place) &&
                (which >= rooted || me == root);
            Blocks b = {&nothing, block, empty, &nothing, block, empty};
            if (in_place && which == 1) {
                b.into = MPI_IN_PLACE;
            } else if (in_place) {
                b.from = MPI_IN_PLACE;
            }
            exchange(which, starting, b, root, MPI_COMM_WORLD);
        }
    }
    MPI_Type_free(&empty);
    MPI_Type_free(&none);
}

/// The first and the last byte of a block tell whose it is.
void large_of_bytes(int root, const std::set<int> &dead)
{
    const int block = static_cast<int>(large_block);
    unsigned char *const from = large_blocks();
    unsigned char *const into = large_blocks();
    const auto ends = [](unsigned char *all, int rank) {
        unsigned char *const first = all + large_block * static_cast<std::size_t>(rank);
        return std::array{first, first + large_block - 1};
    };
    for (std::size_t which = 0; which < std::size(equal_blocks) && failures == 0; ++which) {
        for (int rank = 0; rank < size; ++rank) {
            for (int end = 0; end < 2; ++end) {
                *ends(from, rank)[end] = static_cast<unsigned char>(20 * me + 2 * rank + end);
                *ends(into, rank)[end] = 255;
            }
        }
        const bool starting = which % 2 == 1;
        exchange(which, starting, {from, block, MPI_BYTE, into, block, MPI_BYTE}, root,
                 MPI_COMM_WORLD);
        for (int rank = 0; rank < size; ++rank) {
            const bool written = dead.count(rank) == 0 && (which == 0 ? me == root : which != 1);
            // A scatter's block is the only one, and stands first.
            const bool scattered = which == 1 && rank == 0;
            const int sender = scattered ? root : rank;
            const int receiver = which == 1 || which == 3 ? me : 0;
            for (int end = 0; end < 2; ++end) {
                const int wanted = written || scattered ? 20 * sender + 2 * receiver + end : 255;
                const int got = *ends(into, rank)[end];
                that(got == wanted, "%s: block %d has %d instead of %d", equal_blocks[which], rank,
                     got, wanted);
            }
        }
    }
}

void large(const std::set<int> &doomed)
{
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    validate(doomed.size());
    large_of_nothing(size - 2);
    large_of_bytes(size - 2, doomed);
}

/// \param others ranks in the world of the group that this process exchanges with
/// \param root how this process names the world's rank 0, which is the root
void kinds_on(MPI_Comm comm, const std::vector<int> &others, int root, const std::set<int> &dead)
{
    constexpr int block = 9000;
    const bool inter = others.size() != static_cast<std::size_t>(size);
    MPI_Datatype whole = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(block, MPI_INT, &whole);
    MPI_Type_commit(&whole);
    const bool one = me / 2 % 2 == 1;
    const int count = one ? 1 : block;
    MPI_Datatype type = one ? whole : MPI_INT;
    for (std::size_t which = 0; which < std::size(equal_blocks); ++which) {
        for (const bool starting : {false, true}) {
            std::vector<int> from;
            for (const int to : others) {
                from.insert(from.end(), block, 100 * me + to);
            }
            std::vector<int> into(from.size(), walk::untouched);
            Blocks b = {from.data(), count, type, into.data(), block, MPI_INT};
            if (which == 1) {
                b = {from.data(), block, MPI_INT, into.data(), count, type};
            }
            exchange(which, starting, b, root, comm);
            const int first = inter ? me % 2 : 0; // of whom the others' first block is for
            for (std::size_t i = 0; i < others.size(); ++i) {
                int wanted = 100 * others[i] + (which == 3 ? me : first);
                bool written = dead.count(others[i]) == 0;
                if (which == 0) {
                    written = written && me == 0;
                } else if (which == 1) {
                    written = i == 0 && root >= 0;
                    wanted = me;
                }
                wanted = written ? wanted : walk::untouched;
                that(std::count(into.begin() + static_cast<std::ptrdiff_t>(i) * block,
                                into.begin() + static_cast<std::ptrdiff_t>(i + 1) * block,
                                wanted) == block,
                     "%s, %s: block of rank %d is not %d", equal_blocks[which],
                     inter ? "other group" : "own group", others[i], wanted);
            }
        }
    }
    MPI_Type_free(&whole);
}

void kinds(const std::set<int> &doomed)
{
    MPI_Comm side = MPI_COMM_NULL;
    MPI_Comm both = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &side), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, 1 - me % 2, 3, &both), MPI_SUCCESS,
       "MPI_Intercomm_create");
    MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
    all_through(doomed);
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    validate(doomed.size());
    int count = 0;
    is(MPI_Comm_validate_all(both, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    kinds_on(MPI_COMM_WORLD, world().world, 0, doomed);
    std::vector<int> others;
    for (int rank = 1 - me % 2; rank < size; rank += 2) {
        others.push_back(rank);
    }
    const int root = me == 0 ? MPI_ROOT : MPI_PROC_NULL;
    kinds_on(both, others, me % 2 == 0 ? root : 0, doomed);
    MPI_Comm_free(&both);
    MPI_Comm_free(&side);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "recognised";
    const std::string which = argc > 2 ? argv[2] : "none";
    if (what == "killed") {
        killed(which, static_cast<std::size_t>(std::atoi(argv[3])));
    } else if (what == "trusted") {
        trusted(static_cast<std::size_t>(std::atoi(which.c_str())));
    } else if (what == "interrupted") {
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
        all_through(ranks_of(which));
        interrupted(ranks_of(which));
    } else if (what == "entry") {
        entry(std::atoi(which.c_str()), argc > 3);
    } else {
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
        all_through(ranks_of(which));
        if (what == "large" || what == "kinds") {
            (what == "large" ? large : kinds)(ranks_of(which));
        } else {
            (what == "refused" ? refused : recognised)(ranks_of(which));
        }
    }
    return finish();
}
