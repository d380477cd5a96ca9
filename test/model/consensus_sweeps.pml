/* The exchange along a tree (-DFAST -DFAN=n): part of consensus_exchange.pml. What all bring goes up and what comes of it
 * down, twice. The tree is counted out among those outside the tag, with FAN below each: 1 makes a chain, 2 of three
 * a flat one. A flat one of three or more has two ends: the second sweep has the last for its top, who is told nothing
 * in the first one, and the first sweep's top says nothing in the second one. sweeps.hpp does the same. */
#define UP 13
#define DOWN 14
#define FROM_ABOVE 128 /* of got: the others are those below, by their ranks */
#define WENT_UP 1      /* of sent */
#define WENT_DOWN 2

#define PLACE(q) ((q > 0 && !HAS(ME.tag, 0)) + (q > 1 && !HAS(ME.tag, 1)) + (q > 2 && !HAS(ME.tag, 2)))
/* Whoever knows of a doubtful one at the call may be the only one, and at the top it would tell nobody. */
#define CALLS_FOR_ROOT (DOUBTED != 0)
#ifdef LOOSE
#define TWO_ENDED false
#else
#define TWO_ENDED (LEFT > 2 && LEFT - 1 <= FAN)
#endif
#define FIRST (PLACE(self) == 0)
#define LAST (PLACE(self) == LEFT - 1)

/* w: who is above, N at the top; below: who speaks to here from below; under: who is told from here. */
inline look_around(la_which)
{
    w = N;
    below = 0;
    under = 0;
    d = 0;
    do
    :: d < N ->
        if
        :: HAS(ME.tag, d) || d == self
        :: !HAS(ME.tag, d) && d != self && TWO_ENDED ->
            if
            :: la_which == 0 && FIRST ->
                below = below | BIT(d);
                under = under | (PLACE(d) < LEFT - 1) * BIT(d)
            :: la_which == 1 && LAST ->
                below = below | (PLACE(d) > 0) * BIT(d);
                under = under | BIT(d)
            :: (la_which == 0 && !FIRST && PLACE(d) == 0) || (la_which == 1 && !LAST && PLACE(d) == LEFT - 1) -> w = d
            :: else
            fi
        :: !HAS(ME.tag, d) && !TWO_ENDED && d < self && PLACE(d) == (PLACE(self) - 1) / FAN -> w = d
        :: !HAS(ME.tag, d) && !TWO_ENDED && d > self && (PLACE(d) - 1) / FAN == PLACE(self) ->
            below = below | BIT(d);
            under = below
        :: else
        fi;
        d++
    :: else -> break
    od;
    d = 0
}

inline look_away()
{
    w = 0;
    below = 0;
    under = 0
}

/* Whoever may still count on this process's steps gets the value instead. */
inline release()
{
    if
    :: ME.exchanging && TWO_ENDED ->
        look_around(0);
        if
        :: !LAST && w < N && !(ME.sent & WENT_UP) -> tell(w, decide, 0, 0, 0, 0, ME.returned, 0)
        :: else
        fi;
        if
        :: !(ME.sent & WENT_DOWN) -> to_others(below, decide, 0, 0, 0, ME.returned)
        :: else
        fi;
        look_around(1);
        if
        :: !FIRST && w < N && !(ME.sent2 & WENT_UP) -> tell(w, decide, 0, 0, 0, 0, ME.returned, 0)
        :: else
        fi;
        if
        :: !(ME.sent2 & WENT_DOWN) -> to_others(under, decide, 0, 0, 0, ME.returned)
        :: else
        fi;
        look_away();
        ME.exchanging = 0;
        ME.ask = 0
    :: ME.exchanging && !TWO_ENDED ->
        look_around(0);
#ifndef LOOSE
        ME.sent = ME.sent & ME.sent2;
#endif
        if
        :: w < N && !(ME.sent & WENT_UP) -> tell(w, decide, 0, 0, 0, 0, ME.returned, 0)
        :: else
        fi;
        if
        :: !(ME.sent & WENT_DOWN) -> to_others(under, decide, 0, 0, 0, ME.returned)
        :: else
        fi;
        look_away();
        ME.exchanging = 0;
        ME.ask = 0
    :: else
    fi
}

/* One way up and down as far as it goes. */
inline sweep(sw_sent, sw_got, sw_which)
{
    if
    :: IN(below, sw_got) && w < N && !(sw_sent & WENT_UP) ->
        sw_sent = sw_sent | WENT_UP;
        if
        :: TWO_ENDED && sw_which == 1 && FIRST
        :: else -> tell(w, exchange, sw_which * 16 + UP, 0, ME.tag, ME.tag & ME.confirmed, NOTHING, 0)
        fi
    :: else
    fi
}
#define SWEPT(got) (IN(below, got) && (w == N || (got & FROM_ABOVE)) && !HAS(dead, self))
#define KNOWN (TWO_ENDED && LAST && ME.got2 != 0)

inline hand_down(sw_sent, sw_which)
{
    if
    :: !(sw_sent & WENT_DOWN) ->
        sw_sent = sw_sent | WENT_DOWN;
        to_others(under, exchange, sw_which * 16 + DOWN, ME.tag, ME.tag & ME.confirmed, NOTHING)
    :: else
    fi
}

inline advance()
{
    if
    :: ME.exchanging && !GONE && ME.returned == NOTHING ->
        look_around(0);
        if
        :: ME.ask ->
            ME.ask = 0;
            if
            :: w < N -> tell(w, exchange, QUESTION, 0, ME.tag, ME.tag, NOTHING, 0)
            :: else
            fi;
            to_others(below, exchange, QUESTION, ME.tag, ME.tag, NOTHING)
        :: else
        fi;
        sweep(ME.sent, ME.got, 0);
        if
        :: SWEPT(ME.got) || (KNOWN && !HAS(dead, self)) ->
            if
            :: ME.in_tree == 0 -> ME.in_tree = EXCHANGED; ME.value = ME.tag
            :: else
            fi;
            hand_down(ME.sent, 0);
#if defined(LOOSE) || defined(NO_COMMIT)
            return_with(ME.value);
            release()
#else
            if
            :: FENCE ->
                look_around(1);
                sweep(ME.sent2, ME.got2, 1);
                if
                :: SWEPT(ME.got2) ->
                    hand_down(ME.sent2, 1);
                    return_with(ME.value);
                    release()
                :: else
                fi
            :: else
            fi
#endif
        :: else
        fi;
        look_away()
    :: else
    fi
}

/* A step of another's. */
inline take_step(f)
{
    if
    :: t_ == UP -> ME.got = ME.got | BIT(f)
    :: t_ == DOWN -> ME.got = ME.got | FROM_ABOVE
    :: t_ == 16 + UP -> ME.got2 = ME.got2 | BIT(f)
    :: t_ == 16 + DOWN -> ME.got2 = ME.got2 | FROM_ABOVE
    :: else
    fi
}
