/* For trying the examples out: arguments RANK:STEP make a rank kill itself at a step. */
#ifndef DOOMED_H
#define DOOMED_H

#include <signal.h>
#include <stdio.h>

/** Ends this process, as a crash would, when an argument from the second on says so. */
static void die_if_doomed(int argc, char **argv, int rank, int step)
{
    for (int i = 2; i < argc; ++i) {
        int who = -1;
        int when = -1;
        if (sscanf(argv[i], "%d:%d", &who, &when) == 2 && who == rank && when == step) {
            raise(SIGKILL);
        }
    }
}

#endif
