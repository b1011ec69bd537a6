/* An empty barrier of two ranks, each on a core of its own: microseconds, the median of batches as long as ours. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 8 };

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[1 + rank % 2]), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    long turns = atol(argv[3]);
    for (long turn = 0; turn < turns / 10 + 1; turn++)
        MPI_Barrier(MPI_COMM_WORLD);
    double *took = malloc((turns / BATCH + 1) * sizeof *took);
    if (took == NULL)
        MPI_Abort(MPI_COMM_WORLD, 4);
    long batches = 0;
    for (long turn = 0; turn < turns; turn += BATCH) {
        double begun = MPI_Wtime();
        for (int inner = 0; inner < BATCH; inner++)
            MPI_Barrier(MPI_COMM_WORLD);
        took[batches++] = MPI_Wtime() - begun;
    }
    qsort(took, batches, sizeof *took, compare);
    if (rank == 0)
        printf("point barrier %.6f\n", took[batches / 2] * 1e6 / BATCH);
    MPI_Finalize();
    return 0;
}
