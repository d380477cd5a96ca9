/* The only process of a replay (-DREPLAY): part of consensus.pml. */

/* Feeds the inputs of the trace to the rules above, and holds what comes of each against it. Of a step the tape says: who;
 * what it has returned by then; whether it dies in it, and before or between which sends cannot matter, since those it
 * did not come to are not on the tape; the sends; and the inputs, more than one when messages waited for the call. */
proctype Player()
{
    byte self, f, inputs, input;
    bit stops; /* it has been told to by the end of the step */
    short at;

    atomic {
    do
    :: at < LENGTH ->
        self = tape[at];
        returns = tape[at + 1];
        died = tape[at + 2] & 1;
        stops = tape[at + 2] >> 1;
        sends = tape[at + 3];
        out = at + 4;
        at = out + 7 * sends;
        o = 0;
        do
        :: o < sends -> todo[o] = 1; o++
        :: else -> break
        od;
        inputs = tape[at];
        at++;
        do
        :: inputs > 0 ->
            input = tape[at];
            f = tape[at + 1];
            at = at + 2;
            inputs--;
            if
            :: input == IS_SURE || input == CALLS ->
                ME.own = ME.own | f;
                learn(f, f);
                if
                :: input == CALLS ->
                    call()
                :: input == IS_SURE && ME.called -> react()
                :: else
                fi
            :: input == SUSPECTS ->
                accuser = self;
                wronged = 0;
                do
                :: wronged < N && !HAS(f, wronged) -> wronged++
                :: else -> break
                od;
                ME.own = ME.own | f;
                learn(f, 0);
                if
                :: ME.called && !GONE -> react()
                :: else
                fi
            :: input == HEARS ->
                assert(nempty(wire[f * N + self]));
                wire[f * N + self]?kind,t_,y_,s_,c_,v_,n_;
                if
                :: !(kind == tape[at] && t_ == tape[at + 1] && v_ == tape[at + 2]) ->
                    printf("the model's %e of %d comes, not the engine's\n", kind, t_)
                :: else
                fi;
                assert(kind == tape[at] && t_ == tape[at + 1] && v_ == tape[at + 2]);
                at = at + 3;
                hear(f);
                react();
                kind = 0; t_ = 0; y_ = 0; s_ = 0; c_ = 0; v_ = 0; n_ = 0
            :: else
            fi
        :: else -> break
        od;
        f = 0;
        o = 0;
        do
        :: o < sends ->
            if
            :: todo[o] -> printf("the engine sends %e of %d to %d, the model does not\n",
                                 tape[out + o * 7], tape[out + o * 7 + 2], tape[out + o * 7 + 1])
            :: else
            fi;
            assert(!todo[o]);
            o++
        :: else -> break
        od;
        assert(died || ME.returned == returns);
        assert(died || HAS(stopped, self) == stops);
        if
        :: died && !HAS(dead, self) ->
            ME.returned = returns; /* it may have died before the model's return */
            die()
        :: else
        fi
    :: else -> break
    od;
    printf("replayed\n")
    }
}
