/* The exchange (-DFAST): part of consensus.pml. Everybody hears from everybody in two sweeps of two steps, with no root;
 * begun anew when a death is confirmed. agreement_exchange.cc does the same. With -DFAN=n it goes along a tree:
 * consensus_sweeps.pml. */
/* Of a confirmed death everybody hears; who has accepted stays with what it has accepted. */
#ifdef ANEW_ANYHOW
#define CAN_BEGIN_ANEW (ME.exchanging && !ME.trouble && DOUBTED == 0)
#else
#define CAN_BEGIN_ANEW (ME.exchanging && !ME.trouble && DOUBTED == 0 && ME.in_tree == 0)
#endif

inline begin_exchange()
{
    ME.exchanging = 1;
    ME.tag = ME.suspects;
    ME.got = 0;
    ME.sent = 0;
    ME.got2 = 0;
    ME.sent2 = 0
}

#define LEFT (!HAS(ME.tag, 0) + !HAS(ME.tag, 1) + !HAS(ME.tag, 2) + (N > 3 && !HAS(ME.tag, 3)))
#define QUESTION 15

#ifdef FAN
#include "consensus_sweeps.pml"
#else

/* w: who is so many places ahead in the ring. */
inline ahead(places)
{
    w = self;
    d = places;
    do
    :: d > 0 ->
        w = (w + 1) % N;
        if
        :: !HAS(ME.tag, w) -> d--
        :: else
        fi
    :: else -> break
    od
}

#define HEARD(bits) (((bits) & 1) * (1 + (((bits) >> 1) & 1)))

/* One sweep as far as it goes: step k + 1 is taken when step k was heard. */
inline sweep(sw_sent, sw_got, sw_which)
{
    do
    :: sw_sent < steps && sw_sent <= HEARD(sw_got) ->
        ahead(BIT(sw_sent));
        tell(w, exchange, sw_which * 16 + sw_sent, 0, ME.tag, ME.tag & ME.confirmed, NOTHING, 0);
        sw_sent++
    :: else -> break
    od
}

/* Whoever may still count on this process's steps gets the value instead. */
inline release()
{
    if
    :: ME.exchanging ->
        steps = (LEFT > 1) + (LEFT > 2);
        i = 0;
        do
        :: i < steps ->
#ifdef LOOSE
            if
            :: ME.sent <= i -> ahead(BIT(i)); tell(w, decide, 0, 0, 0, 0, ME.returned, 0)
            :: else
            fi;
#else
            if
            :: ME.sent <= i || ME.sent2 <= i -> ahead(BIT(i)); tell(w, decide, 0, 0, 0, 0, ME.returned, 0)
            :: else
            fi;
#endif
            i++
        :: else -> break
        od;
        i = 0;
        steps = 0;
        w = 0;
        ME.exchanging = 0;
        ME.ask = 0
    :: else
    fi
}

inline advance()
{
    if
    :: ME.exchanging && !GONE && ME.returned == NOTHING ->
        steps = (LEFT > 1) + (LEFT > 2);
        if
        :: ME.ask ->
            ME.ask = 0;
            i = 0;
            do
            :: i < steps ->
                ahead(LEFT - BIT(i));
                tell(w, exchange, QUESTION, 0, ME.tag, ME.tag, NOTHING, 0);
                i++
            :: else -> break
            od;
            i = 0
        :: else
        fi;
        sweep(ME.sent, ME.got, 0);
        if
        :: HEARD(ME.got) >= steps && !HAS(dead, self) ->
            if
            :: ME.in_tree == 0 -> ME.in_tree = EXCHANGED; ME.value = ME.tag
            :: else
            fi;
#if defined(LOOSE) || defined(NO_COMMIT)
            return_with(ME.value);
            release()
#else
            if
            :: FENCE ->
                sweep(ME.sent2, ME.got2, 1);
                if
                :: HEARD(ME.got2) >= steps ->
                    return_with(ME.value);
                    release()
                :: else
                fi
            :: else
            fi
#endif
        :: else
        fi;
        steps = 0;
        w = 0
    :: else
    fi
}

/* An exchange of another's step. */
inline take_step(f)
{
    if
    :: t_ < QUESTION -> ME.got = ME.got | BIT(t_)
    :: t_ > QUESTION -> ME.got2 = ME.got2 | BIT(t_ - 16)
    :: else
    fi
}
#define CALLS_FOR_ROOT 0
#endif
