/*
 * A manager (rank 0) hands out tasks; workers die with theirs, and others get them.
 *
 * Only the manager cares who has died. A receive from any source ends with an error when a worker
 * has died; MPI_Comm_validate tells who, and MPI_Comm_validate_clear, which is local, makes it like
 * MPI_PROC_NULL: the receive goes on without it. Nothing collective is needed.
 *
 * usage: manager TASKS [RANK:N...]     each of these workers kills itself with its Nth task in
 * hand, or, RANK:-N, as soon as it has sent the result of that
 */
#include <mpi.h>
#include <mpi_ft.h>
#include <stdio.h>
#include <stdlib.h>

#include "doomed.h"

enum { tag_task = 1, tag_result = 2, no_task = -1 };

static long work(int task)
{
    return (long)task * task;
}

/* Takes the tasks of those back that have died since the last call. */
static void take_back(int size, int *task_of, int *stack, int *waiting)
{
    MPI_Rank_info *dead = malloc((size_t)size * sizeof *dead);
    int count = 0;
    MPI_Comm_validate(MPI_COMM_WORLD, size, &count, dead);
    for (int i = 0; i < count; ++i) {
        const int worker = dead[i].rank;
        if (dead[i].state == MPI_RANK_FAILED && task_of[worker] != no_task) {
            printf("worker %d died with task %d in hand\n", worker, task_of[worker]);
            stack[(*waiting)++] = task_of[worker];
            task_of[worker] = no_task;
        }
    }
    MPI_Comm_validate_clear(MPI_COMM_WORLD, count, dead);
    free(dead);
}

static int manage(int size, int tasks)
{
    int *stack = malloc((size_t)tasks * sizeof *stack); /* what nobody works on */
    int *task_of = malloc((size_t)size * sizeof *task_of);
    int waiting = 0;
    int finished = 0;
    long sum = 0;
    long wanted = 0;
    for (int task = 0; task < tasks; ++task) {
        stack[waiting++] = task;
        wanted += work(task);
    }
    for (int worker = 0; worker < size; ++worker) {
        task_of[worker] = no_task;
    }
    while (finished < tasks) {
        int alive = 0;
        for (int worker = 1; worker < size; ++worker) {
            MPI_Rank_info info;
            MPI_Comm_validate_rank(MPI_COMM_WORLD, worker, &info);
            alive += info.state == MPI_RANK_OK;
            if (info.state == MPI_RANK_OK && task_of[worker] == no_task && waiting > 0) {
                const int task = stack[--waiting];
                task_of[worker] = task; /* if the send fails it is taken back below */
                MPI_Send(&task, 1, MPI_INT, worker, tag_task, MPI_COMM_WORLD);
            }
        }
        long result = 0;
        MPI_Status status;
        const int rc =
            MPI_Recv(&result, 1, MPI_LONG, MPI_ANY_SOURCE, tag_result, MPI_COMM_WORLD, &status);
        if (rc == MPI_SUCCESS && task_of[status.MPI_SOURCE] == no_task) {
            continue; /* its task was taken back: somebody else's result counts */
        }
        if (rc == MPI_SUCCESS) {
            sum += result;
            ++finished;
            task_of[status.MPI_SOURCE] = no_task;
        } else {
            take_back(size, task_of, stack, &waiting);
            if (alive == 0) {
                printf("no worker is left\n");
                return 1;
            }
        }
    }
    for (int worker = 1; worker < size; ++worker) {
        const int none = no_task;
        MPI_Send(&none, 1, MPI_INT, worker, tag_task, MPI_COMM_WORLD); /* the dead get nothing */
    }
    printf("%d tasks done, the sum is %s\n", finished, sum == wanted ? "right" : "WRONG");
    free(stack);
    free(task_of);
    return sum == wanted ? 0 : 1;
}

static void be_worker(int argc, char **argv, int rank)
{
    for (int count = 1;; ++count) {
        int task = no_task;
        if (MPI_Recv(&task, 1, MPI_INT, 0, tag_task, MPI_COMM_WORLD, MPI_STATUS_IGNORE) !=
                MPI_SUCCESS ||
            task == no_task) {
            return; /* nothing left to do, or no manager */
        }
        die_if_doomed(argc, argv, rank, count);
        const long result = work(task);
        MPI_Send(&result, 1, MPI_LONG, 0, tag_result, MPI_COMM_WORLD);
        die_if_doomed(argc, argv, rank, -count);
    }
}

int main(int argc, char **argv)
{
    int rank = 0;
    int size = 0;
    int code = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        code = manage(size, argc > 1 ? atoi(argv[1]) : 100);
    } else {
        be_worker(argc, argv, rank);
    }
    MPI_Finalize();
    return code;
}
