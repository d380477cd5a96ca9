/* The exchange along a tree (-DFAST -DFAN=n): part of consensus_exchange.pml. What all bring goes up and what comes of it
 * down, twice. The tree is counted out among those outside the tag, with FAN below each: 1 makes a chain, 2 of three
 * a flat one. agreement_sweeps.cc does the same. */
#define UP 13
#define DOWN 14
#define FROM_ABOVE 128 /* of got: the others are those below, by their ranks */
#define WENT_UP 1      /* of sent */
#define WENT_DOWN 2

#define PLACE(q) ((q > 0 && !HAS(ME.tag, 0)) + (q > 1 && !HAS(ME.tag, 1)) + (q > 2 && !HAS(ME.tag, 2)))
/* Whoever knows of a doubtful one at the call may be the only one, and at the top it would tell nobody. */
#define CALLS_FOR_ROOT (DOUBTED != 0)

/* w: who is above, N at the top; below: who is below. */
inline look_around()
{
    w = N;
    below = 0;
    d = 0;
    do
    :: d < N ->
        if
        :: HAS(ME.tag, d) || d == self
        :: !HAS(ME.tag, d) && d < self && PLACE(d) == (PLACE(self) - 1) / FAN -> w = d
        :: !HAS(ME.tag, d) && d > self && (PLACE(d) - 1) / FAN == PLACE(self) -> below = below | BIT(d)
        :: else
        fi;
        d++
    :: else -> break
    od;
    d = 0
}

/* Whoever may still count on this process's steps gets the value instead. */
inline release()
{
    if
    :: ME.exchanging ->
        look_around();
#ifndef LOOSE
        ME.sent = ME.sent & ME.sent2;
#endif
        if
        :: w < N && !(ME.sent & WENT_UP) -> tell(w, decide, 0, 0, 0, 0, ME.returned, 0)
        :: else
        fi;
        if
        :: !(ME.sent & WENT_DOWN) -> to_others(below, decide, 0, 0, 0, ME.returned)
        :: else
        fi;
        w = 0;
        below = 0;
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
        tell(w, exchange, sw_which * 16 + UP, 0, ME.tag, ME.tag & ME.confirmed, NOTHING, 0)
    :: else
    fi
}
#define SWEPT(got) (IN(below, got) && (w == N || (got & FROM_ABOVE)) && !HAS(dead, self))

inline hand_down(sw_sent, sw_which)
{
    if
    :: !(sw_sent & WENT_DOWN) ->
        sw_sent = sw_sent | WENT_DOWN;
        to_others(below, exchange, sw_which * 16 + DOWN, ME.tag, ME.tag & ME.confirmed, NOTHING)
    :: else
    fi
}

inline advance()
{
    if
    :: ME.exchanging && !GONE && ME.returned == NOTHING ->
        look_around();
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
        :: SWEPT(ME.got) ->
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
        w = 0;
        below = 0
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
