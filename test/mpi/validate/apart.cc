// Survivors who part ways: one is in what comes after a failure, or has revoked the communicator,
// while others are still in a call that makes a communicator of it. All come back, and meet.
//
// usage: apart recovers      rank 3 of four dies; rank 2 meets that in a receive and recovers, the
//                            others make communicators
//        apart revokes       the highest rank revokes and never makes one
//        apart in_flight     several calls of one process are under way when another revokes
//        apart frees         who knows of the revocation frees the communicator at once
//        apart repeated      MPI_Comm_create_group again and again, until another revokes
//        apart across        an intercommunicator is revoked
//        apart paired        MPI_Intercomm_create where a recognised rank is in a group
//        apart acknowledges  what fails between MPIX_Comm_get_failed and MPIX_Comm_ack_failed
//        apart hints         MPI_Comm_dup_with_info into a variable that holds something
#include "check.hpp"

#include <array>
#include <cstring>
#include <map>

using namespace check;

namespace {

struct Maker {
    const char *name;
    int (*make)(MPI_Comm comm, MPI_Comm *fresh);
};

int dup(MPI_Comm comm, MPI_Comm *fresh)
{
    return MPI_Comm_dup(comm, fresh);
}

int idup(MPI_Comm comm, MPI_Comm *fresh)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Comm_idup(comm, fresh, &request);
    return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

int split(MPI_Comm comm, MPI_Comm *fresh)
{
    return MPI_Comm_split(comm, 0, me, fresh);
}

template <int (*Create)(MPI_Comm, MPI_Group, MPI_Comm *)>
int create(MPI_Comm comm, MPI_Comm *fresh)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(comm, &all);
    const int code = Create(comm, all, fresh);
    MPI_Group_free(&all);
    return code;
}

int create_tagged(MPI_Comm comm, MPI_Group group, MPI_Comm *fresh)
{
    return MPI_Comm_create_group(comm, group, 5, fresh);
}

int cart(MPI_Comm comm, MPI_Comm *fresh)
{
    const int dims[] = {size};
    const int periods[] = {0};
    return MPI_Cart_create(comm, 1, dims, periods, 0, fresh);
}

constexpr std::array makers{
    Maker{"dup", dup},     Maker{"idup", idup},
    Maker{"split", split}, Maker{"create", create<MPI_Comm_create>},
    Maker{"cart", cart},
};

void sound(MPI_Comm comm, int members, const char *what)
{
    int one = 1;
    int sum = 0;
    if (is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS, what)) {
        that(sum == members, "%s: the sum is %d instead of %d", what, sum, members);
    }
}

void shrink(MPI_Comm comm, int members, const char *what)
{
    MPI_Comm left = MPI_COMM_NULL;
    if (is(MPIX_Comm_shrink(comm, &left), MPI_SUCCESS, what)) {
        MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
        sound(left, members, what);
        is(MPI_Comm_free(&left), MPI_SUCCESS, "free");
    }
}

/// Two under way at once.
void shrink_later(MPI_Comm comm, int members, const char *what)
{
    MPI_Comm left[2] = {comm, comm};
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int i = 0; i < 2; ++i) {
        is(MPIX_Comm_ishrink(comm, &left[i], &requests[i]), MPI_SUCCESS, what);
    }
    for (int i = 0; i < 2; ++i) {
        if (is(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPI_SUCCESS, what)) {
            MPI_Comm_set_errhandler(left[i], MPI_ERRORS_RETURN);
            sound(left[i], members, what);
            is(MPI_Comm_free(&left[i]), MPI_SUCCESS, "free");
        }
    }
}

void validate(MPI_Comm comm, int members, const char *what)
{
    int failures = 0;
    if (is(MPI_Comm_validate_all(comm, &failures), MPI_SUCCESS, what)) {
        that(failures == size - members, "%s: %d failures", what, failures);
        sound(comm, members, what);
    }
}

void validate_later(MPI_Comm comm, int members, const char *what)
{
    int failures = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPI_Icomm_validate_all(comm, &failures, &request), MPI_SUCCESS, what);
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, what);
    sound(comm, members, what);
}

void agree(MPI_Comm comm, int members, const char *what)
{
    int flag = me == 2 ? 5 : 7;
    const int cls = class_of(MPIX_Comm_agree(comm, &flag));
    that(cls == MPI_SUCCESS || cls == MPIX_ERR_PROC_FAILED, "%s: class %d", what, cls);
    that(flag == 5, "%s: the flag is %d", what, flag);
    shrink(comm, members, what);
}

void agree_later(MPI_Comm comm, int members, const char *what)
{
    int flag = me == 2 ? 5 : 7;
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPIX_Comm_iagree(comm, &flag, &request), MPI_SUCCESS, what);
    const int cls = class_of(MPI_Wait(&request, MPI_STATUS_IGNORE));
    that(cls == MPI_SUCCESS || cls == MPIX_ERR_PROC_FAILED, "%s: class %d", what, cls);
    that(flag == 5, "%s: the flag is %d", what, flag);
    validate(comm, members, what);
}

/// Two under way, of which the first has to go on.
void both_later(MPI_Comm comm, int members, const char *what)
{
    int failures = 0;
    int flag = 0xf0 | (me == 2 ? 5 : 7);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    is(MPI_Icomm_validate_all(comm, &failures, &requests[0]), MPI_SUCCESS, what);
    is(MPIX_Comm_iagree(comm, &flag, &requests[1]), MPI_SUCCESS, what);
    is(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_SUCCESS, what);
    is(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED, what);
    that(failures == size - members && flag == 0xf5, "%s: %d failures, flag %x", what, failures,
         static_cast<unsigned>(flag));
    sound(comm, members, what);
}

void revoke_and_shrink(MPI_Comm comm, int members, const char *what)
{
    is(MPIX_Comm_revoke(comm), MPI_SUCCESS, what);
    shrink(comm, members, what);
}

constexpr std::array recoveries{
    shrink, shrink_later, validate,   validate_later,
    agree,  agree_later,  both_later, revoke_and_shrink,
};

void recovers()
{
    const int dead = size - 1;
    const int alone = size - 2;
    std::vector<MPI_Comm> comms;
    for (std::size_t i = 0; i < makers.size() * recoveries.size(); ++i) {
        comms.push_back(twin());
    }
    all_through({dead});
    if (me == dead) {
        die();
    }
    for (std::size_t i = 0; i < comms.size(); ++i) {
        const Maker &maker = makers[i % makers.size()];
        if (me == alone) {
            int nothing = 0;
            is(MPI_Recv(&nothing, 1, MPI_INT, dead, 1, comms[i], MPI_STATUS_IGNORE),
               MPI_ERR_RANK_FAIL_STOP, "receive");
        } else {
            MPI_Comm fresh = MPI_COMM_NULL;
            const int cls = class_of(maker.make(comms[i], &fresh));
            that(cls == MPI_ERR_RANK_FAIL_STOP || cls == MPIX_ERR_REVOKED, "%s: class %d",
                 maker.name, cls);
            that(fresh == MPI_COMM_NULL, "%s: made something", maker.name);
        }
        recoveries[i / makers.size()](comms[i], size - 1, maker.name);
    }
    for (MPI_Comm &comm : comms) {
        is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    }
}

/// Everybody learns of it in the call. What is revoked is let go, and all meet on what it is of.
void revokes()
{
    std::vector<Maker> all(makers.begin(), makers.end());
    all.push_back({"create_group", create<create_tagged>});
    for (const Maker &maker : all) {
        MPI_Comm comm = twin();
        if (me == size - 1) {
            for (int rank = 0; rank < size - 1; ++rank) {
                wait_for_word(rank); // it is about to call
            }
            is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
        } else {
            send_word(size - 1);
            for (int again = 0; again < 2; ++again) { // the second may know it before
                MPI_Comm fresh = MPI_COMM_NULL;
                is(maker.make(comm, &fresh), MPIX_ERR_REVOKED, maker.name);
                that(fresh == MPI_COMM_NULL, "%s: made something", maker.name);
            }
        }
        int flag = 1;
        is(MPIX_Comm_agree(comm, &flag), MPI_SUCCESS, "agree");
        that(flag == 1, "the flag is %d", flag);
        shrink(comm, size, maker.name);
        is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
        sound(MPI_COMM_WORLD, size, "afterwards");
    }
}

/// So many calls that make one, of a process that does not know.
void idups_in_flight(std::size_t number)
{
    MPI_Comm comm = twin();
    if (me == 0) {
        std::vector<MPI_Comm> fresh(number, MPI_COMM_NULL);
        std::vector<MPI_Request> requests(number, MPI_REQUEST_NULL);
        for (std::size_t i = 0; i < number; ++i) {
            is(MPI_Comm_idup(comm, &fresh[i], &requests[i]), MPI_SUCCESS, "idup");
        }
        send_word(1);
        for (std::size_t i = 0; i < number; ++i) {
            is(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "its wait");
            that(fresh[i] == MPI_COMM_NULL, "idup made something");
        }
    } else if (me == 1) {
        wait_for_word(0);
        is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
    }
    shrink(comm, size, "behind idups");
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
}

/// Two that recover, begun before and after the revocation.
void recoveries_in_flight(bool validates)
{
    MPI_Comm comm = twin();
    int failures = -1;
    int flags[] = {0xff0f, 0xf0ff};
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    const auto begin = [&] {
        if (validates) {
            is(MPI_Icomm_validate_all(comm, &failures, &requests[0]), MPI_SUCCESS, "first");
        } else {
            is(MPIX_Comm_iagree(comm, &flags[0], &requests[0]), MPI_SUCCESS, "first");
        }
        is(MPIX_Comm_iagree(comm, &flags[1], &requests[1]), MPI_SUCCESS, "second");
    };
    MPI_Comm fresh = MPI_COMM_NULL;
    MPI_Request made = MPI_REQUEST_NULL;
    if (me == 0) {
        begin();
        send_word(1);
    } else if (me == 1) {
        wait_for_word(0);
        is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
        begin();
    } else {
        is(MPI_Comm_idup(comm, &fresh, &made), MPI_SUCCESS, "idup");
        begin();
        is(MPI_Wait(&made, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "its wait");
    }
    is(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for the first");
    is(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for the second");
    that(flags[0] == 0xff0f && flags[1] == 0xf0ff, "flags %x and %x",
         static_cast<unsigned>(flags[0]), static_cast<unsigned>(flags[1]));
    that(!validates || failures == 0, "%d failures", failures);
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
}

void in_flight()
{
    for (const std::size_t number : {1, 2, 5, 40}) { // more than are begun at once
        idups_in_flight(number);
    }
    recoveries_in_flight(false);
    recoveries_in_flight(true);
}

void until_revoked(MPI_Comm comm)
{
    int flag = 0;
    while (flag == 0) {
        int there = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        is(MPIX_Comm_is_revoked(comm, &flag), MPI_SUCCESS, "is revoked");
    }
}

/// \param agreed something on it before
/// \param tagged with MPI_Comm_create_group, which has agreements of its own
void freed_at_once(bool agreed, bool tagged)
{
    MPI_Comm comm = twin();
    int flag = 1;
    if (agreed) {
        is(MPIX_Comm_agree(comm, &flag), MPI_SUCCESS, "agree");
    }
    if (me == 0 && tagged) {
        MPI_Comm fresh = MPI_COMM_NULL;
        send_word(1);
        is(create<create_tagged>(comm, &fresh), MPIX_ERR_REVOKED, "create_group");
    } else if (me == 0) {
        MPI_Comm fresh = MPI_COMM_NULL;
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Comm_idup(comm, &fresh, &request), MPI_SUCCESS, "idup");
        send_word(1);
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "its wait");
    } else if (me == 1) {
        wait_for_word(0);
        is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
    } else {
        until_revoked(comm);
    }
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    shrink(MPI_COMM_WORLD, size, "behind what is freed");
}

/// An intercommunicator of those of odd and of even rank.
MPI_Comm two_sides(MPI_Comm *own)
{
    MPI_Comm pair = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, own), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(*own, 0, MPI_COMM_WORLD, 1 - me % 2, 3, &pair), MPI_SUCCESS,
       "MPI_Intercomm_create");
    MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
    return pair;
}

/// What is shrunk may be freed before it has an heir.
void freed_and_shrunk(MPI_Comm comm)
{
    const auto is_inter = [](MPI_Comm one) {
        int flag = -1;
        MPI_Comm_test_inter(one, &flag);
        return flag;
    };
    MPI_Comm left = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    const int inter = is_inter(comm);
    is(MPIX_Comm_ishrink(comm, &left, &request), MPI_SUCCESS, "ishrink");
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    if (is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "its wait")) {
        that(is_inter(left) == inter, "it is of another kind");
        is(MPI_Barrier(left), MPI_SUCCESS, "barrier");
        is(MPI_Comm_free(&left), MPI_SUCCESS, "free of what it gave");
    }
}

void frees()
{
    freed_and_shrunk(twin());
    MPI_Comm own = MPI_COMM_NULL;
    freed_and_shrunk(two_sides(&own));
    is(MPI_Comm_free(&own), MPI_SUCCESS, "free");
    for (int round = 0; round < 20; ++round) {
        freed_at_once((round & 1) != 0, (round & 2) != 0);
    }
}

/// The others are in it for the first time, or for one more, or between two.
void repeated()
{
    const int revoker = size - 1;
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_excl(all, 1, &revoker, &some);
    for (int round = 0; round < 100; ++round) {
        MPI_Comm comm = twin();
        if (me == revoker) {
            wait_for_word(round % revoker);
            is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
        }
        int cls = MPI_SUCCESS;
        for (int made = 0; me != revoker && cls == MPI_SUCCESS; ++made) {
            if (me == round % revoker && made == round / revoker % 4) {
                send_word(revoker);
            }
            MPI_Comm fresh = MPI_COMM_NULL;
            cls = class_of(MPI_Comm_create_group(comm, some, 4, &fresh));
            if (cls == MPI_SUCCESS) {
                is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
            }
        }
        that(me == revoker || cls == MPIX_ERR_REVOKED, "class %d", cls);
        shrink(comm, size, "afterwards");
        is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);
}

/// What runs on a communicator of the own group waits for somebody of it.
void across()
{
    for (int what = 0; what < 3; ++what) {
        MPI_Comm own = MPI_COMM_NULL;
        MPI_Comm pair = two_sides(&own);
        if (me == size - 1) {
            wait_for_word(0);
            is(MPIX_Comm_revoke(pair), MPI_SUCCESS, "revoke");
        } else if (me % 2 == (size - 1) % 2 || me == 0) {
            if (me == 0) {
                send_word(size - 1);
            }
            MPI_Comm fresh = MPI_COMM_NULL;
            std::vector<int> all(static_cast<std::size_t>(size));
            const int code = what == 0 ? MPI_Barrier(pair)
                             : what == 1
                                 ? MPI_Allgather(&me, 1, MPI_INT, all.data(), 1, MPI_INT, pair)
                                 : MPI_Intercomm_merge(pair, 0, &fresh);
            is(code, MPIX_ERR_REVOKED, "over the pair");
        }
        MPI_Comm left = MPI_COMM_NULL;
        is(MPIX_Comm_shrink(pair, &left), MPI_SUCCESS, "shrink");
        for (MPI_Comm *comm : {&left, &pair, &own}) {
            is(MPI_Comm_free(comm), MPI_SUCCESS, "free");
        }
    }
}

void paired()
{
    const int dead = size - 1;
    MPI_Comm own = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &own), MPI_SUCCESS, "split");
    all_through({dead});
    if (me == dead) {
        die();
    }
    hear_of(MPI_COMM_WORLD, {dead});
    int failures = 0;
    is(MPI_Comm_validate_all(own, &failures), MPI_SUCCESS, "of the group");
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &failures), MPI_SUCCESS, "of all");
    MPI_Comm pair = MPI_COMM_NULL;
    if (is(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - me % 2, 3, &pair), MPI_SUCCESS,
           "MPI_Intercomm_create")) {
        MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
        int others = 0; // whose sum it is
        for (int rank = 0; rank < size; ++rank) {
            others += rank % 2 != me % 2 && rank != dead ? 1 : 0;
        }
        sound(pair, others, "over the pair");
        is(MPI_Comm_free(&pair), MPI_SUCCESS, "free");
    }
    is(MPI_Comm_free(&own), MPI_SUCCESS, "free");
}

/// The last of the even ranks revokes their communicator and never pairs it, before or after it has
/// heard that others do: each time their call ends at all of them, and in the other group.
void never_paired()
{
    const int absent = (size - 1) / 2 * 2;
    for (int round = 0; round < 12; ++round) {
        MPI_Comm own = MPI_COMM_NULL;
        is(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &own), MPI_SUCCESS, "split");
        MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        if (me == absent) {
            int there = 0;
            for (int look = 0; look < round * round * 40; ++look) {
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
            }
            is(MPIX_Comm_revoke(own), MPI_SUCCESS, "revoke");
        } else {
            MPI_Comm pair = MPI_COMM_NULL;
            const int code = MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - me % 2, 3, &pair);
            if (me % 2 == 0) {
                is(code, MPIX_ERR_REVOKED, "MPI_Intercomm_create of what is revoked");
            } else {
                is(code, MPI_ERR_RANK_FAIL_STOP, "MPI_Intercomm_create, whose other group is");
            }
        }
        shrink(MPI_COMM_WORLD, size, "behind the pair");
        // Once more where it was declined: whoever is called in vain comes back as well.
        MPI_Comm pair = MPI_COMM_NULL;
        that(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - me % 2, 4, &pair) != MPI_SUCCESS,
             "a pair with a group that is revoked");
        is(MPI_Comm_free(&own), MPI_SUCCESS, "free");
    }
}

/// Rank 3 dies first, then rank 1; rank 0 has been told of the first only.
void acknowledges()
{
    if (me == 3) {
        die();
    }
    if (me == 1) {
        wait_for_word(0);
        die();
    }
    if (me == 0) {
        hear_of(MPI_COMM_WORLD, {3});
        MPI_Group told = MPI_GROUP_NULL;
        is(MPIX_Comm_get_failed(MPI_COMM_WORLD, &told), MPI_SUCCESS, "get_failed");
        int number = 0;
        MPI_Group_size(told, &number);
        that(number == 1, "told of %d", number);
        send_word(1);
        hear_of(MPI_COMM_WORLD, {1});
        int acknowledged = 0;
        is(MPIX_Comm_ack_failed(MPI_COMM_WORLD, number, &acknowledged), MPI_SUCCESS, "ack_failed");
        MPI_Group are = MPI_GROUP_NULL;
        is(MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &are), MPI_SUCCESS, "get_acked");
        int same = MPI_UNEQUAL;
        MPI_Group_compare(told, are, &same);
        that(acknowledged == 1 && same == MPI_IDENT,
             "acknowledged somebody of whom it was not told");
        // All that are known, in the order in which they became known.
        MPI_Group all = MPI_GROUP_NULL;
        is(MPIX_Comm_get_failed(MPI_COMM_WORLD, &all), MPI_SUCCESS, "get_failed");
        MPI_Group world = MPI_GROUP_NULL;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        const int places[] = {0, 1};
        int ranks[] = {-1, -1};
        MPI_Group_translate_ranks(all, 2, places, world, ranks);
        that(ranks[0] == 3 && ranks[1] == 1, "failed in the order %d, %d", ranks[0], ranks[1]);
        for (MPI_Group *group : {&told, &are, &all, &world}) {
            MPI_Group_free(group);
        }
    }
    hear_of(MPI_COMM_WORLD, {1, 3});
    validate(MPI_COMM_WORLD, size - 2, "afterwards");
}

std::string hint_of(MPI_Comm comm)
{
    char value[32] = "";
    MPI_Info its = MPI_INFO_NULL;
    is(MPI_Comm_get_info(comm, &its), MPI_SUCCESS, "get_info");
    if (its != MPI_INFO_NULL) {
        int there = 0;
        MPI_Info_get(its, "mpi_ft_semantics", sizeof value - 1, value, &there);
        MPI_Info_free(&its);
    }
    return value;
}

void hints()
{
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_ft_semantics", "loose");
    MPI_Comm garbage;
    std::memset(&garbage, 0x5a, sizeof garbage);
    MPI_Comm older = twin();
    for (MPI_Comm variable : {garbage, older, MPI_COMM_NULL}) {
        is(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &variable), MPI_SUCCESS, "dup_with_info");
        that(hint_of(variable) == "loose", "the hint is \"%s\"", hint_of(variable).c_str());
        is(MPI_Comm_free(&variable), MPI_SUCCESS, "free");
    }
    that(hint_of(older) != "loose", "the older communicator has the hint");
    is(MPI_Comm_free(&older), MPI_SUCCESS, "free");
    MPI_Info_free(&info);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::map<std::string, void (*)()> modes{
        {"recovers", recovers},   {"revokes", revokes},
        {"in_flight", in_flight}, {"repeated", repeated},
        {"across", across},       {"paired", paired},
        {"hints", hints},         {"acknowledges", acknowledges},
        {"frees", frees},         {"never_paired", never_paired},
    };
    modes.at(argc > 1 ? argv[1] : "recovers")();
    return finish();
}
