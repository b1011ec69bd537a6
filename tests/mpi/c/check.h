/* Checks of the C set: a failed one names itself and ends the job. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            fprintf(stderr, "%s:%d: rank %d of %d: %s\n", __FILE__, __LINE__, rank, size, #what); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                        \
        }                                                                                        \
    } while (0)

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static inline void end(const char *what)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: good with %d\n", what, size);
    MPI_Finalize();
}

#endif
