/* Ping-pong and stream over MPI: pingpong latency|bandwidth BYTES SECONDS CORE0 CORE1
 * Prints "result N": microseconds one way, or 10^6 bytes a second; the median over batches. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define WINDOW 16
#define MOST 100000

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reads every byte, so that a transfer that leaves the work to the reader has to do it here. */
static unsigned long read_all(const char *data, size_t bytes)
{
    unsigned long sum = 0, word;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        sum += word;
    }
    for (; at < bytes; at++)
        sum += (unsigned char)data[at];
    return sum;
}

static double ping_pong(int rank, char *data, int bytes, int count)
{
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(data, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - start) * 1e6 / count / 2;
}

static double stream(int rank, char *data, int bytes, volatile unsigned long *sum)
{
    MPI_Request requests[WINDOW];
    int done = 0;
    double start = MPI_Wtime();
    for (int i = 0; i < WINDOW; i++) {
        char *part = data + (size_t)i * bytes;
        if (rank == 0)
            MPI_Isend(part, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(part, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0) {
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(&done, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (int i = 0; i < WINDOW; i++) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            *sum += read_all(data + (size_t)i * bytes, bytes);
        }
        MPI_Send(&done, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
    return (double)bytes * WINDOW / (MPI_Wtime() - start) / 1e6;
}

int main(int argc, char **argv)
{
    static double values[MOST];
    int rank, size, n = 0, go = 1;
    volatile unsigned long sum = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 6 || size != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int latency = strcmp(argv[1], "latency") == 0, bytes = atoi(argv[2]);
    double seconds = atof(argv[3]);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(argv[4 + rank]), &core);
    if (sched_setaffinity(0, sizeof core, &core) != 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    char *data = malloc((size_t)bytes * WINDOW + 1);
    if (!data)
        MPI_Abort(MPI_COMM_WORLD, 4);
    memset(data, rank + 1, (size_t)bytes * WINDOW + 1);
    double start = MPI_Wtime();
    while (go) {
        double value = latency ? ping_pong(rank, data, bytes, 100) : stream(rank, data, bytes, &sum);
        /* The first fifth warms up. */
        if (MPI_Wtime() - start > seconds / 5 && n < MOST)
            values[n++] = value;
        go = MPI_Wtime() - start < seconds && n < MOST;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    /* The data came from the other rank, or nothing is printed. */
    int good = rank == 0 || data[0] == 1, all;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0 && all && n > 0) {
        qsort(values, n, sizeof values[0], by_value);
        printf("result %.6g\n", values[n / 2]);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
