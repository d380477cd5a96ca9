/* The view change as dynamic voting: N nodes, DEATHS of them die, SUSPICIONS false suspicions. Checked: no two
 * primary views. opal/ft/membership/PROTOCOL.md has the protocol; here is its core:
 *
 * - whoever is the lowest among those it does not believe dead may attempt a next view: those it believes alive. The
 *   attempt has a number above all that the coordinator has seen;
 * - a member votes for an attempt with a number above all it has taken part in, remembers it, and tells the coordinator
 *   which earlier attempts it voted for that may have been committed;
 * - with all votes the coordinator commits, if the attempt is a quorum of its last view and of every attempt reported;
 * - commits reach the others one by one or never; a crash or another attempt can come at any moment between.
 *
 * The tree is left out: it only carries these messages. Messages are steps: the vote of each member is taken at a moment of
 * its own, in any order, or never; a commit likewise.
 *
 * Objections: a member that is asked for its vote and hears somebody whom the attempt leaves out may refuse; the coordinator
 * takes the attempt and its belief back. OBJECTIONS in all: the protocol has one for each accusation.
 *
 * Proven deaths: a death becomes known as proven to any survivor at any later time. It is clean for a witness that is in
 * the attempt if the dead node voted for no attempt without the witness: what the lease (fence) of the heartbeats guarantees.
 *
 * A proven death is doubtful if the dead node voted for an attempt without a member of this one: the doubt of the protocol,
 * which knows of silence and leases only, is at least that. Who is alone with proofs of all other deaths counts the doubtful.
 *
 * Switches: -DNO_QUORUM  any attempt is a quorum; -DNO_MEMORY votes are not remembered; -DALL_CLEAN every proven death leaves
 * the base; -DNO_DOUBT who is alone with proofs goes on. Each must be found wrong.
 */

#ifndef N
#define N 4
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef SUSPICIONS
#define SUSPICIONS 1
#endif
#ifndef OBJECTIONS
#define OBJECTIONS 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif

#define ALL ((1 << N) - 1)
#define BIT(i) (1 << (i))
#define IN(s, i) (((s) >> (i)) & 1)

typedef Node {
    byte view = ALL;     /* installed: a set of nodes */
    byte epoch = 0;      /* its number */
    byte seen = 0;       /* highest number taken part in */
    byte believes = 0;   /* set of nodes believed dead */
    byte proven = 0;     /* those of them with proof */
};

typedef Attempt {
    byte members;
    byte owner;
    byte base;           /* number of the view that it changes */
    byte votes;          /* who voted */
    byte reported;       /* set of attempts that voters reported */
    bool open;           /* the owner still works on it */
    bool committed;
};

Node node[N];
Attempt attempt[ATTEMPTS + 1]; /* by number; 0 is the initial view */
byte voted[N];                 /* per node: set of attempts voted for */
byte dead = 0;
byte deaths = 0;
byte suspicions = 0;
byte objections = 0;
byte last = 0;                 /* highest number in use */
byte against[N];               /* per node: everybody whom one of its votes left out */

byte i, j, k, w, n, set, base, size, ours, lowest;
bool ok, wins;

inline count(s, result)
{
    result = 0;
    n = s;
    do
    :: n != 0 -> result = result + (n & 1); n = n >> 1
    :: else -> break
    od
}

/* Sets wins: of the set `set` more than half are in the attempt j, or half with the lowest. */
inline count_votes()
{
    count(set, size);
    count(set & attempt[j].members, ours);
    lowest = set & ((~set + 1) & ALL);
    wins = ours != 0 && (2 * ours > size || (2 * ours == size && (lowest & attempt[j].members) != 0))
}

/* Sets ok: the attempt j is a quorum of the set `base`, as its coordinator i sees it. */
inline quorum_of_base()
{
    set = base;
    k = 0;
    do
    :: k < N ->
        if
        :: IN(base, k) && !IN(attempt[j].members, k) && IN(node[i].proven, k) ->
            /* Dead for sure. Clean if some witness in the attempt knows that it never voted against it. */
#ifdef ALL_CLEAN
            set = set & ~BIT(k)
#else
            if
            :: (attempt[j].members & base & ~against[k]) != 0 -> set = set & ~BIT(k)
            :: else
            fi
#endif
        :: else
        fi;
        k++
    :: else -> break
    od;
    count_votes();
    if
    :: !wins && (base & ~attempt[j].members & ~node[i].proven) == 0 ->
        /* Nobody is left who could go another way. Those who may have gone one were too few for it. */
        set = base & attempt[j].members;
#ifndef NO_DOUBT
        k = 0;
        do
        :: k < N ->
            if
            :: IN(base, k) && !IN(attempt[j].members, k) && (against[k] & attempt[j].members) != 0 -> set = set | BIT(k)
            :: else
            fi;
            k++
        :: else -> break
        od;
#endif
        count_votes()
    :: else
    fi;
    ok = ok && wins
}

/* Node i installs attempt w. */
inline install_w()
{
    node[i].view = attempt[w].members;
    node[i].epoch = w;
    node[i].believes = node[i].believes & attempt[w].members;
    node[i].proven = node[i].proven & attempt[w].members;
    if
    :: node[i].seen < w -> node[i].seen = w
    :: else
    fi
}

active proctype world()
{
    attempt[0].members = ALL;
    attempt[0].committed = true;
end:
    do
    /* A node dies. */
    :: atomic { deaths < DEATHS ->
        if
        :: !IN(dead, 0) -> i = 0
        :: !IN(dead, 1) -> i = 1
        :: !IN(dead, 2) -> i = 2
        :: !IN(dead, 3) -> i = 3
        fi;
        dead = dead | BIT(i);
        deaths++;
        /* What it knew is gone with it; the votes that it cast stay. */
        node[i].view = 0;
        node[i].epoch = 0;
        node[i].seen = 0;
        node[i].believes = 0;
        node[i].proven = 0;
        voted[i] = 0;
        i = 0 }

    /* A living node i comes to believe that j is dead: rightly, or one of the false suspicions. */
    :: atomic {
        if
        :: !IN(dead, 0) -> i = 0
        :: !IN(dead, 1) -> i = 1
        :: !IN(dead, 2) -> i = 2
        :: !IN(dead, 3) -> i = 3
        fi;
        if
        :: i != 0 && IN(node[i].view, 0) -> j = 0
        :: i != 1 && IN(node[i].view, 1) -> j = 1
        :: i != 2 && IN(node[i].view, 2) -> j = 2
        :: i != 3 && IN(node[i].view, 3) -> j = 3
        :: else -> j = i
        fi;
        if
        :: j != i && IN(dead, j) && !IN(node[i].believes, j) -> node[i].believes = node[i].believes | BIT(j)
        :: j != i && IN(dead, j) && !IN(node[i].proven, j) ->
            node[i].believes = node[i].believes | BIT(j);
            node[i].proven = node[i].proven | BIT(j)
        :: j != i && !IN(dead, j) && !IN(node[i].believes, j) && suspicions < SUSPICIONS ->
            node[i].believes = node[i].believes | BIT(j);
            suspicions++
        :: else
        fi;
        i = 0; j = 0 }

    /* Somebody attempts: the lowest that it believes alive is itself. */
    :: atomic { last < ATTEMPTS ->
        if
        :: !IN(dead, 0) -> i = 0
        :: !IN(dead, 1) -> i = 1
        :: !IN(dead, 2) -> i = 2
        :: !IN(dead, 3) -> i = 3
        fi;
        set = node[i].view & ~node[i].believes;
        if
        :: (set & (BIT(i) - 1)) == 0 && IN(set, i) && set != node[i].view ->
            last++;
            /* Its earlier attempts are taken back: only it could commit them. */
            j = 1;
            do
            :: j < last ->
                if
                :: attempt[j].owner == i && attempt[j].open ->
                    attempt[j].open = false;
                    attempt[j].reported = 0
                :: else
                fi;
                j++
            :: else -> break
            od;
            attempt[last].members = set;
            attempt[last].owner = i;
            attempt[last].base = node[i].epoch;
            attempt[last].open = true;
            attempt[last].votes = BIT(i);
            attempt[last].reported = voted[i];
            node[i].seen = last;
            against[i] = against[i] | (ALL & ~set)
        :: else
        fi;
        i = 0; j = 0; set = 0 }

    /* A member votes for the newest attempt that asks it. */
    :: atomic {
        if
        :: !IN(dead, 0) -> i = 0
        :: !IN(dead, 1) -> i = 1
        :: !IN(dead, 2) -> i = 2
        :: !IN(dead, 3) -> i = 3
        fi;
        if
        :: last >= 1 -> j = 1
        :: last >= 2 -> j = 2
        :: last >= 3 -> j = 3
        :: last == 0 -> j = 0
        fi;
        if
        :: j != 0 && j > node[i].seen && attempt[j].open && IN(attempt[j].members, i) &&
           attempt[j].base >= node[i].epoch && !IN(attempt[j].votes, i) ->
            set = node[i].view & node[attempt[j].owner].believes & ~attempt[j].members & ~dead;
            if
            /* It hears who is to go, and says so instead: as if never asked, and the coordinator begins anew. */
            :: set != 0 && objections < OBJECTIONS && !IN(dead, attempt[j].owner) ->
                objections++;
                attempt[j].open = false;
                attempt[j].reported = 0;
                node[attempt[j].owner].believes = node[attempt[j].owner].believes & ~set
            :: true ->
            /* The proposal names the view that it changes: that one was committed. */
            if
            :: attempt[j].base > node[i].epoch -> w = attempt[j].base; install_w()
            :: else
            fi;
            node[i].seen = j;
            attempt[j].votes = attempt[j].votes | BIT(i);
            /* What it voted for and may be in force, less what this coordinator takes back by asking anew. */
            k = 1;
            do
            :: k < j ->
                if
                :: IN(voted[i], k) && k > node[i].epoch && attempt[k].owner != attempt[j].owner ->
                    attempt[j].reported = attempt[j].reported | BIT(k)
                :: else
                fi;
                k++
            :: else -> break
            od;
#ifndef NO_MEMORY
            voted[i] = voted[i] | BIT(j);
#endif
            against[i] = against[i] | (ALL & ~attempt[j].members)
            fi
        :: else
        fi;
        i = 0; j = 0; k = 0; w = 0; set = 0 }

    /* The coordinator has all votes: it commits if the attempt is a quorum of all it must be one of. */
    :: atomic {
        if
        :: last >= 1 -> j = 1
        :: last >= 2 -> j = 2
        :: last >= 3 -> j = 3
        :: last == 0 -> j = 0
        fi;
        i = attempt[j].owner;
        if
        :: j != 0 && attempt[j].open && !IN(dead, i) && attempt[j].votes == attempt[j].members &&
           node[i].epoch == attempt[j].base && node[i].seen == j ->
            ok = true;
#ifndef NO_QUORUM
            base = attempt[attempt[j].base].members;
            quorum_of_base();
            w = 1;
            do
            :: w < j ->
                if
                :: IN(attempt[j].reported, w) && w > node[i].epoch && attempt[w].owner != i ->
                    base = attempt[w].members;
                    quorum_of_base()
                :: else
                fi;
                w++
            :: else -> break
            od;
#endif
            if
            :: ok ->
                attempt[j].committed = true;
                attempt[j].open = false;
                w = j;
                install_w();
                /* Never two primary views, also one after the other: whatever is committed shares a member with whatever
                 * was committed before it. (Nobody joins here, so that this holds of all, not of neighbours only.) */
                w = 1;
                do
                :: w <= last ->
                    if
                    :: w != j && attempt[w].committed ->
                        assert((attempt[w].members & attempt[j].members) != 0)
                    :: else
                    fi;
                    w++
                :: else -> break
                od
            :: else
            fi
        :: else
        fi;
        i = 0; j = 0; k = 0; w = 0; n = 0; set = 0; base = 0; size = 0; ours = 0; lowest = 0; ok = false; wins = false }

    /* A commit reaches a member. */
    :: atomic {
        if
        :: !IN(dead, 0) -> i = 0
        :: !IN(dead, 1) -> i = 1
        :: !IN(dead, 2) -> i = 2
        :: !IN(dead, 3) -> i = 3
        fi;
        if
        :: last >= 1 -> j = 1
        :: last >= 2 -> j = 2
        :: last >= 3 -> j = 3
        :: last == 0 -> j = 0
        fi;
        if
        :: j != 0 && attempt[j].committed && IN(attempt[j].members, i) && j > node[i].epoch &&
           IN(attempt[j].votes, i) -> w = j; install_w()
        :: else
        fi;
        i = 0; j = 0; w = 0 }
    od
}
