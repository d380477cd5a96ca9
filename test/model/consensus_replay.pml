/* What a send is in a replay (-DREPLAY): part of consensus.pml. */

/* The trace, how far it is read, and what is open of the sends of the step. */
#define ANY 254
#define CALLS 0
#define HEARS 1
#define IS_SURE 2
#define DIES 3
#define SUSPECTS 4
hidden byte tape[LENGTH], todo[16];
hidden byte sends, o, returns;
hidden byte died;
hidden short out;

/* One send: the trace must have it, or the process died before it came to it. */
inline tell(te_to, te_what, te_tree, te_yes, te_s, te_c, te_v, te_vn)
{
    if
    :: HAS(dead, self) || HAS(dead, te_to) || CUT(self, te_to)
    :: else ->
        o = 0;
        do
        :: o < sends && !(todo[o] && tape[out + o * 7] == te_what && tape[out + o * 7 + 1] == te_to &&
               tape[out + o * 7 + 2] == te_tree && tape[out + o * 7 + 3] == te_yes &&
               (tape[out + o * 7 + 4] == ANY || tape[out + o * 7 + 4] == te_s) &&
               tape[out + o * 7 + 5] == te_v && tape[out + o * 7 + 6] == te_vn) -> o++
        :: else -> break
        od;
        if
        :: o < sends ->
            todo[o] = 0;
            assert(nfull(wire[self * N + te_to]));
            wire[self * N + te_to]!te_what,te_tree,te_yes,te_s,te_c,te_v,te_vn
        :: else ->
            if
            :: !died -> printf("the model sends %e %d %d %d %d %d to %d, the engine does not\n", te_what, te_tree, te_yes, te_s, te_v, te_vn, te_to)
            :: else
            fi;
            assert(died)
        fi
    fi
}
