/* The consensus protocol of opal/ft/consensus among N processes, for spin.
 *
 * A model of the rules of PROTOCOL.md: numbers, the three phases, what a new root must carry through,
 * reports, the fence. Trees are flat, as the engine's own are among three. Each input is handled in one
 * atomic step; a death may come before, after and between any two sends of it. Messages between two
 * processes keep their order here; the simulator's do not.
 *
 * -DFAILS=2      how many may die            -DWRONG      one process is suspected though it lives
 * -DLOOSE        return in COMMIT            -DFAST       the exchange first, the three phases when it fails
 * -DFAN=1        with it: along a tree, this many below each
 * -DNO_COMMIT, -DFORGET, -DNO_FENCE, -DNO_REPORT, -DACCEPT_ANY, -DANEW_ANYHOW
 *                mistakes that spin must find
 * -DREPLAY       does what a trace of the real engine says, and nothing else (replay.py)
 */
#ifndef N
#define N 3
#endif
#ifndef FAILS
#define FAILS 2
#endif

#define ALL ((1 << N) - 1)
#define BIT(p) (1 << (p))
#define HAS(s, p) (((s) >> (p)) & 1)
#define NOTHING 255
#define ATTEMPTS 16
#define ROOT_OF(tree) ((tree) / ATTEMPTS)
#define CAP 12

#define EXCHANGED 1 /* the number under which the exchange's value is accepted: below any tree's */

mtype = { ballot, commit, decide, answer, report, halt, halted, exchange };

/* kind, tree, yes, suspects, confirmed ones, value, tree it was accepted in */
chan wire[N * N] = [CAP] of { mtype, byte, bit, byte, byte, byte, byte };

byte dead, stopped;
byte deaths; /* those that came, and those that never will */
bit calm;    /* nobody is going to be wronged any more */
byte wronged = NOTHING;
byte accuser = NOTHING;

typedef Process {
    byte suspects; byte confirmed; byte own; byte entry;
    byte returned; byte value; byte in_tree;  /* what it returned; what it accepted, and where */
    byte promised;
    byte parent; byte excluded; bit owes;     /* a COMMIT not yet answered */
    byte stage; byte tree; byte pending; bit all_yes; byte best; byte best_tree; byte attempt;
    byte told;                                /* the suspects it has reported */
    bit called
#ifdef FAST
    ; bit exchanging; bit trouble; bit ask; byte tag; byte got; byte sent; byte got2; byte sent2
#endif
}
Process p[N];

#define ME p[self]
#define GONE (HAS(dead, self) || HAS(stopped, self))
#define DOUBTED (ME.suspects & ~ME.confirmed)
/* The lowest rank that is not in the set, without branches; N if all are. */
#define ROOT (HAS(ME.suspects, 0) * (1 + HAS(ME.suspects, 1) * (1 + HAS(ME.suspects, 2) * (1 + (N > 3) * HAS(ME.suspects, 3)))))
#define IN(s, e) (((s) & ~(e)) == 0)
#ifdef NO_FENCE
#define FENCE true
#else
#define FENCE IN(DOUBTED, ME.own)
#endif
#ifdef WRONG
/* Somebody who suspects neither side and is suspected by none must live. */
#define MAY_DIE(q) (deaths < FAILS && (wronged == NOTHING || q == wronged || q == accuser))
#define ALL_LIVE(q) (!HAS(dead | stopped, q))
#else
#define MAY_DIE(q) (deaths < FAILS)
#endif
#if defined(WRONG) || defined(REPLAY)
#define CUT(f, t) (wronged != NOTHING && ((f == accuser && t == wronged) || (t == accuser && f == wronged)))
#else
#define CUT(f, t) false
#endif

/* Scratch of one atomic step; zero between steps. */
hidden byte i, j, k, news;
hidden byte t_, s_, c_, v_, n_;
hidden byte y_;
hidden mtype kind;
#ifdef FAST
#define EXCHANGING (ME.exchanging && !ME.trouble)
hidden byte w, d, steps, below, under;
#else
#define EXCHANGING false
#endif

inline die()
{
    dead = dead | BIT(self);
    deaths++;
    j = 0;
    do
    :: j < N ->
        do
        :: nempty(wire[j * N + self]) -> wire[j * N + self]?_,_,_,_,_,_,_
        :: empty(wire[j * N + self]) -> break
        od;
        j++
    :: else -> break
    od;
    j = 0
}

#ifdef REPLAY
#include "consensus_replay.pml"
#else
/* One send: this process may die just before it. */
inline tell(te_to, te_what, te_tree, te_yes, te_s, te_c, te_v, te_vn)
{
    if
    :: !HAS(dead, self) && MAY_DIE(self) -> die()
    :: true
    fi;
    if
    :: HAS(dead, self) || HAS(dead, te_to) || CUT(self, te_to)
    :: else ->
        assert(nfull(wire[self * N + te_to]));
        wire[self * N + te_to]!te_what,te_tree,te_yes,te_s,te_c,te_v,te_vn
    fi
}
#endif

inline to_others(to_set, to_what, to_tree, to_s, to_c, to_v)
{
    k = 0;
    do
    :: k < N ->
        if
        :: HAS(to_set, k) && k != self -> tell(k, to_what, to_tree, 0, to_s, to_c, to_v, 0)
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* The call returns v; then all who wait for this process hear it. */
inline return_with(re_v)
{
    if
    :: !HAS(dead, self) ->
        ME.returned = re_v;
        ME.value = re_v;
#ifndef LOOSE
        i = 0;
        do
        :: i < N ->
            assert(p[i].returned == NOTHING || p[i].returned == re_v);         /* agreement */
            assert(!HAS(re_v, i) || HAS(dead, i) || HAS(stopped, i));          /* fence */
            i++
        :: else -> break
        od;
        i = 0;
#endif
    :: else
    fi
}

#ifdef FAST
#include "consensus_exchange.pml"
#else
inline release() { skip }
#endif

inline learn(le_s, le_c)
{
    ME.confirmed = ME.confirmed | le_c;
    news = le_s & ~ME.suspects;
    ME.suspects = ME.suspects | le_s;
#ifdef FAST
    if
    :: news && ME.called && ME.returned == NOTHING ->
        if
        :: CAN_BEGIN_ANEW ->
            begin_exchange();
#ifdef LOOSE
            ME.ask = 1
#endif
        :: else -> ME.trouble = 1
        fi
    :: else
    fi;
#endif
    to_others(news & ~ME.confirmed & ~ME.own, halt, 0, 0, 0, NOTHING);
    news = 0
}

inline stop_here(f)
{
    stopped = stopped | BIT(self);
    tell(f, halted, 0, 0, 0, 0, NOTHING, 0)
}

inline lead()
{
    ME.attempt++;
    assert(ME.attempt < ATTEMPTS);                                          /* termination */
#ifdef FAST
    ME.exchanging = 0;
#endif
    ME.tree = self * ATTEMPTS + ME.attempt;
    ME.promised = ME.tree;
    ME.excluded = ME.suspects;
    ME.pending = ALL & ~ME.suspects & ~BIT(self);
    ME.all_yes = 1;
    ME.owes = 0;
    if
    :: ME.in_tree > EXCHANGED && ROOT_OF(ME.in_tree) == self ->
        ME.stage = 2;
        ME.in_tree = ME.tree;
        to_others(ME.pending, commit, ME.tree, ME.excluded, ME.excluded & ME.confirmed, ME.value)
    :: else ->
        ME.stage = 1;
#ifdef FORGET
        ME.best_tree = 0;
#else
        ME.best = ME.value;
        ME.best_tree = ME.in_tree;
#endif
        to_others(ME.pending, ballot, ME.tree, ME.excluded, ME.excluded & ME.confirmed, NOTHING)
    fi
}

inline put_forward()
{
    if
    :: ME.best_tree != 0 -> ME.value = ME.best
    :: else -> ME.value = ME.excluded
    fi;
    ME.in_tree = ME.tree;
    if
    :: HAS(ME.value, self) -> stopped = stopped | BIT(self)
    :: else ->
#if defined(LOOSE) || defined(NO_COMMIT)
        return_with(ME.value);
        to_others(ALL & ~ME.excluded, commit, ME.tree, ME.excluded, ME.excluded & ME.confirmed, ME.value)
#else
        ME.pending = ALL & ~ME.excluded & ~BIT(self);
        if
        :: ME.pending & ME.suspects -> lead()
        :: else ->
            ME.stage = 2;
            ME.all_yes = 1;
            to_others(ME.pending, commit, ME.tree, ME.excluded, ME.excluded & ME.confirmed, ME.value)
        fi
#endif
    fi
}

inline react()
{
#ifdef FAST
    advance();
#endif
    do
    :: GONE || ME.returned != NOTHING -> break
    :: else ->
        if
        :: ME.owes && FENCE && !HAS(ME.suspects, ME.parent) ->
            ME.owes = 0;
            if
            :: IN(DOUBTED, ME.excluded) -> tell(ME.parent, answer, ME.in_tree, 1, 0, 0, NOTHING, 0)
            :: else -> tell(ME.parent, answer, ME.in_tree, 0, ME.suspects, ME.confirmed, NOTHING, 0)
            fi
        :: else ->
            if
            :: ROOT == self && self * ATTEMPTS + ME.attempt + 1 > ME.promised && ME.stage == 0 && !EXCHANGING -> lead()
            :: ROOT == self && ME.stage != 0 &&
               ((ME.pending & ME.suspects) || !IN(DOUBTED, ME.excluded)) -> lead()
            :: ROOT == self && ME.stage == 1 && ME.pending == 0 ->
                if
#ifndef ACCEPT_ANY
                :: !ME.all_yes || !IN(ME.suspects, ME.excluded) -> lead()
#endif
                :: else -> put_forward()
                fi
            :: ROOT == self && ME.stage == 2 && ME.pending == 0 && FENCE &&
               !(ME.pending & ME.suspects) && IN(DOUBTED, ME.excluded) ->
                if
                :: !ME.all_yes -> lead()
                :: else ->
                    return_with(ME.value);
                    to_others(ALL & ~ME.excluded, decide, 0, 0, 0, ME.value)
                fi
#ifndef NO_REPORT
            :: ROOT != self && !IN(ME.suspects, ME.told) && ROOT < N && !EXCHANGING ->
                ME.told = ME.suspects;
                tell(ROOT, report, 0, 0, ME.suspects, ME.confirmed, NOTHING, 0)
#endif
            :: else -> break
            fi
        fi
    od
}

inline hear_undecided(f)
{
    if
    :: kind == ballot && t_ > ME.promised ->
        ME.promised = t_;
        ME.excluded = s_;
        ME.owes = 0;
#ifdef FAST
        ME.exchanging = 0;
#endif
        if
        :: IN(ME.suspects, s_) -> ME.told = ME.suspects
        :: else
        fi;
#ifdef FORGET
        tell(f, answer, t_, IN(ME.suspects, s_), ME.suspects, ME.confirmed, NOTHING, 0)
#elif defined(ACCEPT_ANY)
        tell(f, answer, t_, 1, 0, 0, ME.value, ME.in_tree)
#else
        tell(f, answer, t_, IN(ME.suspects, s_), ME.suspects, ME.confirmed, ME.value, ME.in_tree)
#endif
    :: kind == commit && t_ >= ME.promised && t_ != ME.in_tree ->
        if
        :: t_ > ME.promised && IN(ME.suspects, s_) -> ME.told = ME.suspects
        :: else
        fi;
        ME.promised = t_;
        ME.excluded = s_;
        ME.value = v_;
        ME.in_tree = t_;
#ifdef FAST
        ME.exchanging = 0;
#endif
        if
        :: HAS(v_, self) -> stop_here(f)
        :: else ->
#if defined(LOOSE) || defined(NO_COMMIT)
            return_with(v_)
#else
            ME.parent = f;
            ME.owes = 1
#endif
        fi
    :: kind == answer && ME.stage != 0 && t_ == ME.tree && HAS(ME.pending, f) &&
       (ME.stage == 1 || v_ == NOTHING) ->
        ME.pending = ME.pending & ~BIT(f);
        ME.all_yes = ME.all_yes & y_;
        if
        :: ME.stage == 1 && n_ > ME.best_tree -> ME.best = v_; ME.best_tree = n_
        :: else
        fi
    :: kind == decide ->
        if
        :: HAS(v_, self) -> stop_here(f)
        :: else ->
            return_with(v_);
            release();
            if
            :: ME.stage != 0 && ME.promised == ME.tree -> /* from another, while its own tree waits */
                to_others(ALL & ~ME.excluded, decide, 0, 0, 0, v_)
            :: else
            fi
        fi
#ifdef FAST
    :: kind == exchange && ME.exchanging ->
        if
        :: s_ != ME.tag ->
            if
            :: !CAN_BEGIN_ANEW -> ME.trouble = 1
            :: else
            fi
        :: else -> take_step(f)
        fi
    :: kind == report -> ME.trouble = 1
#endif
    :: else
    fi
}

/* A message kind,t_,y_,s_,c_,v_,n_ from f. */
inline hear(f)
{
    if
    :: HAS(stopped, self) ->
        if
        :: kind != halted -> tell(f, halted, 0, 0, 0, 0, NOTHING, 0)
        :: else
        fi
    :: else ->
        if
        :: kind == halted -> learn(BIT(f), BIT(f))
        :: kind == halt ->
            if
            :: !HAS(ME.suspects, f) || f < self -> stop_here(f)
            :: else
            fi
        :: kind != halt && kind != halted && HAS(ME.suspects, f) ->
            tell(f, halt, 0, 0, 0, 0, NOTHING, 0)
        :: kind != halt && kind != halted && !HAS(ME.suspects, f) && HAS(s_, self) -> stop_here(f)
        :: else ->
            learn(s_, c_);
            if
            :: ME.returned != NOTHING ->
                if
                :: kind == ballot || kind == commit || kind == report || kind == exchange ->
                    if
                    :: DOUBTED -> tell(f, decide, 0, 0, ME.suspects, ME.confirmed, ME.returned, 0)
                    :: else -> tell(f, decide, 0, 0, 0, 0, ME.returned, 0)
                    fi
                :: else
                fi
            :: else -> hear_undecided(f)
            fi
        fi
    fi
}

#if N > 3
#define MAIL (len(wire[self]) + len(wire[N + self]) + len(wire[2 * N + self]) + len(wire[3 * N + self]))
#else
#define MAIL (len(wire[self]) + len(wire[N + self]) + len(wire[2 * N + self]))
#endif

inline call()
{
    ME.called = 1;
    ME.entry = ME.suspects;
    if
    :: DOUBTED == 0 -> ME.told = ME.suspects /* the dead everybody notices, or the ballot is refused */
    :: else
    fi;
#ifdef FAST
    begin_exchange();
    ME.trouble = CALLS_FOR_ROOT;
#endif
    react()
}

proctype Member(byte self)
{
    byte f;

    do
    /* calls */
    :: atomic { !ME.called && !GONE ->
        call() }
    /* dies */
    :: atomic { !HAS(dead, self) && MAY_DIE(self) -> die(); break }
    /* notices a death */
    :: atomic { !GONE && ((dead | stopped) & ~ME.own) != 0 ->
        f = 0;
        do
        :: HAS((dead | stopped) & ~ME.own, f) -> break
        :: f < N - 1 -> f++
        :: else -> f = N; break
        od;
        if
        :: f < N && HAS((dead | stopped) & ~ME.own, f) ->
            ME.own = ME.own | BIT(f);
            learn(BIT(f), BIT(f));
            if
            :: ME.called -> react()
            :: else
            fi
        :: else
        fi;
        f = 0 }
#ifdef WRONG
    /* suspects somebody who lives */
    :: atomic { !GONE && !calm && wronged == NOTHING && dead == 0 ->
        if
        :: self != 0 && ALL_LIVE(0) -> f = 0
        :: self != 1 && ALL_LIVE(1) -> f = 1
        :: self != 2 && ALL_LIVE(2) -> f = 2
        :: else -> f = N
        fi;
        if
        :: f < N && !HAS(ME.suspects, f) ->
            calm = 1;
            accuser = self;
            wronged = f;
            ME.own = ME.own | BIT(f);
            learn(BIT(f), 0);
            if
            :: ME.called -> react()
            :: else
            fi
        :: else
        fi;
        f = 0 }
#endif
    /* hears */
    :: atomic { (ME.called || HAS(stopped, self)) && !HAS(dead, self) && MAIL > 0 ->
        if
        :: nempty(wire[0 * N + self]) -> f = 0
        :: nempty(wire[1 * N + self]) -> f = 1
        :: nempty(wire[2 * N + self]) -> f = 2
#if N > 3
        :: nempty(wire[3 * N + self]) -> f = 3
#endif
        fi;
        wire[f * N + self]?kind,t_,y_,s_,c_,v_,n_;
        hear(f);
        react();
        f = 0; kind = 0; t_ = 0; y_ = 0; s_ = 0; c_ = 0; v_ = 0; n_ = 0 }
    od
}

#ifdef REPLAY
#include "consensus_player.pml"
#endif

/* When nothing more can happen: termination, validity, and agreement of those that live. */
proctype Judge()
{
    byte q, r;
    atomic {
        timeout ->
        q = 0;
        do
        :: q < N ->
            if
            :: !HAS(dead, q) && !HAS(stopped, q) ->
                assert(p[q].returned != NOTHING);
                assert(IN(p[q].returned, dead | stopped));
                r = 0;
                do
                :: r < N ->
                    if
                    :: !HAS(dead, r) && !HAS(stopped, r) ->
                        assert(p[r].returned != NOTHING);
                        assert(p[r].returned == p[q].returned);
                        assert(IN(p[r].entry, p[q].returned))
                    :: else
                    fi;
                    r++
                :: else -> break
                od
            :: else
            fi;
            q++
        :: else -> break
        od
    }
}

init
{
    atomic {
#ifndef REPLAY
        /* How many of the FAILS really die. What must be reached is judged only when no more can. */
        if
        :: deaths = 0
        :: deaths = 1
#if FAILS > 1
        :: deaths = 2
#endif
        fi;
#ifdef WRONG
        if
        :: calm = 0
        :: calm = 1
        fi;
#endif
#endif
        i = 0;
        do
        :: i < N ->
            p[i].returned = NOTHING;
            p[i].value = NOTHING;
            p[i].parent = NOTHING;
            p[i].attempt = EXCHANGED;
            i++
        :: else -> break
        od;
        i = 0;
#ifdef REPLAY
        load();
        dead = OLD_DEAD;
        deaths = FAILS;
        run Player();
#else
        do
        :: i < N -> run Member(i); i++
        :: else -> break
        od;
        i = 0;
#endif
        run Judge()
    }
}
