/* MPI_THREAD_MULTIPLE: threads of every rank exchange messages, probe, and do collective operations, each on a communicator of its own,
 * all at the same time. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 30, LONG = 30000 };

static MPI_Comm comms[THREADS];

static int value(int thread, int from, int round, int at)
{
    return thread * 1000003 + from * 10007 + round * 101 + at;
}

/* A message around the ring, of a length that changes its protocol from round to round. */
static void exchange(int thread, int round, int *out, int *in)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int count = round % 3 == 2 ? LONG : 1 + round, found;
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < count; i++)
        out[i] = value(thread, rank, round, i);
    /* Threads share MPI_COMM_WORLD: their tags keep them apart. */
    MPI_Isend(out, count, MPI_INT, next, thread, MPI_COMM_WORLD, &request);
    MPI_Probe(before, thread, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &found);
    CHECK(found == count);
    MPI_Recv(in, LONG, MPI_INT, before, thread, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < count; i++)
        CHECK(in[i] == value(thread, before, round, i));
}

/* A message that one matched probe of several threads takes, and the thread that has it receives it. */
static void matched(int round)
{
    int out = round, in = -1, next = (rank + 1) % size;
    MPI_Message message;
    MPI_Request request;
    MPI_Isend(&out, 1, MPI_INT, next, 99, MPI_COMM_WORLD, &request);
    MPI_Mprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    CHECK(in >= 0 && in < ROUNDS);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void *work(void *argument)
{
    int thread = (int)(size_t)argument, sum;
    int *out = malloc(LONG * sizeof(int)), *in = malloc(LONG * sizeof(int));
    for (int round = 0; round < ROUNDS; round++) {
        exchange(thread, round, out, in);
        matched(round);
        MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, comms[thread]);
        CHECK(sum == round * size);
        in[0] = rank == round % size ? thread + round : -1;
        MPI_Bcast(in, 1, MPI_INT, round % size, comms[thread]);
        CHECK(in[0] == thread + round);
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(level == MPI_THREAD_MULTIPLE);
    for (size_t thread = 0; thread < THREADS; thread++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[thread]);
    for (size_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0);
    for (size_t thread = 0; thread < THREADS; thread++) {
        CHECK(pthread_join(threads[thread], NULL) == 0);
        MPI_Comm_free(&comms[thread]);
    }
    end("threads");
    return 0;
}
