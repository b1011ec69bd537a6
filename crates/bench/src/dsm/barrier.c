/* An empty barrier of two ranks, each on a core of its own: microseconds for each of many. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

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
    double begun = MPI_Wtime();
    for (long turn = 0; turn < turns; turn++)
        MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - begun;
    if (rank == 0)
        printf("point barrier %.6f\n", took * 1e6 / turns);
    MPI_Finalize();
    return 0;
}
