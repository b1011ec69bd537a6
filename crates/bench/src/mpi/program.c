/* The MPI benchmarks of chapter 4 of the thesis: program CASE SECONDS CORE0 CORE1 [SIZE[:X]...]
 *
 * Ranks 0 and 1 measure on the two cores; further ranks are connected with rank 0 and idle. For each point one line,
 *     point SERIES SIZE X VALUE
 * with microseconds one way or 10^6 bytes a second, the median over batches that together take SECONDS; the first fifth
 * warms up. Before a point is timed, its data are checked byte by byte; if they are wrong the value is "wrong". Both ranks read every
 * byte that they receive, in the timed region. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define WINDOW 16
#define MOST 20000
/* A batch takes about this long, so that reading the clock and agreeing on the next batch do not count. */
#define BATCH 500e-6
#define POOL (16u << 20)

enum { GO = 1, DATA = 2, IDLE = 3 };

static int rank, size;
static double seconds;
static volatile unsigned long sum;

/* One way to exchange messages. `out` and `in` are large enough for everything; `turn` counts messages. */
struct way {
    int bytes, x, source, window;
    size_t places; /* buffers to send from, each another one */
    MPI_Datatype kind;
    int packs; /* the program packs and unpacks by itself */
    char *out, *in, *packed;
};

static void *memory(size_t bytes)
{
    void *found = NULL;
    if (posix_memalign(&found, 4096, bytes + 64) != 0)
        MPI_Abort(MPI_COMM_WORLD, 4);
    memset(found, 0, bytes + 64);
    return found;
}

static void read_all(const char *data, size_t bytes)
{
    unsigned long total = 0, word;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        total += word;
    }
    for (; at < bytes; at++)
        total += (unsigned char)data[at];
    sum += total;
}

/* Where piece by piece the bytes of a message lie: x pieces, a gap as long as a piece behind each. */
static size_t place_of(const struct way *way, size_t at)
{
    if (way->kind == MPI_BYTE && !way->packs)
        return at;
    size_t piece = way->bytes / way->x;
    return at / piece * 2 * piece + at % piece;
}

static void send_one(struct way *way, size_t turn)
{
    char *from = way->out + turn % way->places * way->bytes;
    int other = 1 - rank;
    if (way->packs) {
        int piece = way->bytes / way->x, at = 0;
        for (int i = 0; i < way->x; i++, at += piece)
            memcpy(way->packed + at, from + 2 * at, piece);
        MPI_Send(way->packed, way->bytes, MPI_BYTE, other, DATA, MPI_COMM_WORLD);
    } else if (way->kind != MPI_BYTE)
        MPI_Send(from, 1, way->kind, other, DATA, MPI_COMM_WORLD);
    else
        MPI_Send(from, way->bytes, MPI_BYTE, other, DATA, MPI_COMM_WORLD);
}

static void receive_one(struct way *way)
{
    if (way->packs) {
        int piece = way->bytes / way->x, at = 0;
        MPI_Recv(way->packed, way->bytes, MPI_BYTE, way->source, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < way->x; i++, at += piece)
            memcpy(way->in + 2 * at, way->packed + at, piece);
    } else if (way->kind != MPI_BYTE)
        MPI_Recv(way->in, 1, way->kind, way->source, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Recv(way->in, way->bytes, MPI_BYTE, way->source, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (way->kind == MPI_BYTE && !way->packs)
        read_all(way->in, way->bytes);
    else
        for (int i = 0, piece = way->bytes / way->x; i < way->x; i++)
            read_all(way->in + 2 * i * piece, piece);
}

/* Microseconds one way. */
static double ping_pong(struct way *way, int count)
{
    static size_t turn;
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            send_one(way, turn++);
        receive_one(way);
        if (rank == 1)
            send_one(way, turn++);
    }
    return (MPI_Wtime() - start) * 1e6 / count / 2;
}

/* 10^6 bytes a second. */
static double stream(struct way *way, int count)
{
    MPI_Request requests[WINDOW];
    int done = 0;
    double start = MPI_Wtime();
    for (int n = 0; n < count; n++) {
        for (int i = 0; i < way->window; i++) {
            size_t at = (size_t)i * way->bytes;
            if (rank == 0)
                MPI_Isend(way->out + at, way->bytes, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(way->in + at, way->bytes, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &requests[i]);
        }
        if (rank == 0) {
            MPI_Waitall(way->window, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(&done, 1, MPI_INT, 1, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (int i = 0; i < way->window; i++) {
                MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
                read_all(way->in + (size_t)i * way->bytes, way->bytes);
            }
            MPI_Send(&done, 1, MPI_INT, 0, DATA, MPI_COMM_WORLD);
        }
    }
    return (double)way->bytes * way->window * count / (MPI_Wtime() - start) / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rank 0 says how many messages the next batch has; none ends the point. */
static int agree(int count)
{
    if (rank == 0)
        MPI_Send(&count, 1, MPI_INT, 1, GO, MPI_COMM_WORLD);
    else
        MPI_Recv(&count, 1, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return count;
}

/* One message each way, every byte of it checked; both ranks know the result. */
static int delivers(struct way *way)
{
    int good = 1, theirs = 0;
    size_t all = way->places * way->bytes, length = way->bytes;
    memset(way->out, 0, all);
    for (size_t i = 0; i < length; i++)
        way->out[place_of(way, i)] = (char)(i * 7 + i / 251 + rank + 1);
    if (rank == 0)
        send_one(way, 0);
    receive_one(way);
    if (rank == 1)
        send_one(way, 0);
    for (size_t i = 0; i < length; i++)
        good &= way->in[place_of(way, i)] == (char)(i * 7 + i / 251 + (1 - rank) + 1);
    MPI_Sendrecv(&good, 1, MPI_INT, 1 - rank, GO, &theirs, 1, MPI_INT, 1 - rank, GO, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    return good && theirs;
}

static void point(const char *series, struct way *way)
{
    static double values[MOST];
    int n = 0, next = 1, count;
    if (!delivers(way)) {
        if (rank == 0)
            printf("point %s %d %d wrong\n", series, way->bytes, way->x);
        return;
    }
    double start = MPI_Wtime();
    while ((count = agree(next)) > 0) {
        double begun = MPI_Wtime();
        double value = way->window > 1 ? stream(way, count) : ping_pong(way, count);
        double now = MPI_Wtime();
        if (now - start > seconds / 5 && n < MOST)
            values[n++] = value;
        if (now - begun < BATCH / 2 && next < 1 << 20)
            next *= 2;
        if ((now - start > seconds && n > 0) || n == MOST)
            next = 0;
    }
    if (rank == 0) {
        qsort(values, n, sizeof values[0], by_value);
        printf("point %s %d %d %.6g\n", series, way->bytes, way->x, values[n / 2]);
        fflush(stdout);
    }
}

/* The curves of a case at one size and place on its axis. */
static void points(const char *which, struct way way)
{
    if (strcmp(which, "bandwidth") == 0) {
        way.window = WINDOW;
        point("-", &way);
    } else if (strcmp(which, "buffers") == 0) {
        point("same", &way);
        way.places = way.bytes > 0 && way.bytes < (int)POOL ? POOL / way.bytes : 1;
        point("new", &way);
    } else if (strcmp(which, "segments") == 0) {
        int piece = way.bytes / way.x;
        point("contiguous", &way);
        MPI_Type_vector(way.x, piece, 2 * piece, MPI_BYTE, &way.kind);
        MPI_Type_commit(&way.kind);
        point("derived", &way);
        MPI_Type_free(&way.kind);
        way.kind = MPI_BYTE;
        way.packs = 1;
        point("packed", &way);
    } else if (strcmp(which, "any") == 0) {
        point("named", &way);
        way.source = MPI_ANY_SOURCE;
        point("any", &way);
    } else
        point("-", &way);
}

/* A rank beside the two: it has a connection with rank 0, and takes no time from the others until it is told to end. */
static void idle(void)
{
    MPI_Request request;
    int flag = 0;
    MPI_Send(&flag, 1, MPI_INT, 0, IDLE, MPI_COMM_WORLD);
    MPI_Irecv(&flag, 1, MPI_INT, 0, IDLE, MPI_COMM_WORLD, &request);
    for (int done = 0; !done; usleep(50000))
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

static void must(int good)
{
    if (!good) {
        fprintf(stderr, "crowd: rank %d of %d has wrong data\n", rank, size);
        MPI_Abort(MPI_COMM_WORLD, 5);
    }
}

/* As IMB-MPI1 -npmin SIZE -iter 50 -iter_policy off -msglog 0:12 Barrier Allreduce Bcast Alltoall Sendrecv, for libraries on which that
 * program does not run. The data of each operation are checked at each length. */
static void crowd(void)
{
    enum { TIMES = 50, LONGEST = 4096 };
    char *out = memory((size_t)LONGEST * size), *in = memory((size_t)LONGEST * size);
    int *numbers = memory(LONGEST), *sums = memory(LONGEST), next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int i = 0; i < TIMES; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    for (int bytes = 0; bytes <= LONGEST; bytes = bytes ? 2 * bytes : 1) {
        int count = bytes / (int)sizeof *numbers;
        for (int i = 0; i < count; i++)
            numbers[i] = rank + i;
        for (int i = 0; i < TIMES; i++)
            MPI_Allreduce(numbers, sums, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++)
            must(sums[i] == size * (size - 1) / 2 + i * size);
        for (int i = 0; i < TIMES; i++) {
            int root = i % size;
            memset(in, rank == root ? root + 1 : 0, bytes);
            MPI_Bcast(in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
            must(bytes == 0 || (in[0] == root + 1 && in[bytes - 1] == root + 1));
        }
        for (int to = 0; to < size; to++)
            memset(out + to * bytes, rank * 3 + to, bytes);
        for (int i = 0; i < TIMES; i++)
            MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < size; from++)
            for (int i = 0; i < bytes; i++)
                must(in[from * bytes + i] == (char)(from * 3 + rank));
        memset(out, rank + 1, bytes);
        for (int i = 0; i < TIMES; i++)
            MPI_Sendrecv(out, bytes, MPI_BYTE, next, DATA, in, bytes, MPI_BYTE, last, DATA, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        for (int i = 0; i < bytes; i++)
            must(in[i] == (char)(last + 1));
    }
    if (rank == 0)
        printf("crowd: %d ranks have done everything\n", size);
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc > 1 && strcmp(argv[1], "empty") == 0) {
        MPI_Init(&argc, &argv);
        MPI_Finalize();
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && strcmp(argv[1], "crowd") == 0) {
        crowd();
        MPI_Finalize();
        return 0;
    }
    if (argc < 6 || size < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    seconds = atof(argv[2]);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(argv[3 + rank % 2]), &core);
    if (sched_setaffinity(0, sizeof core, &core) != 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    int word = 0;
    if (rank > 1)
        idle();
    else {
        for (int other = 2; rank == 0 && other < size; other++)
            MPI_Recv(&word, 1, MPI_INT, other, IDLE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int largest = 0;
        for (int i = 5; i < argc; i++)
            largest = atoi(argv[i]) > largest ? atoi(argv[i]) : largest;
        size_t all = (size_t)largest * WINDOW > POOL ? (size_t)largest * WINDOW : POOL;
        struct way way = {.source = 1 - rank, .window = 1, .places = 1, .kind = MPI_BYTE};
        way.out = memory(all);
        way.in = memory(all);
        way.packed = memory(largest);
        for (int i = 5; i < argc; i++) {
            char *colon = strchr(argv[i], ':');
            way.bytes = atoi(argv[i]);
            way.x = colon ? atoi(colon + 1) : size - 1;
            points(argv[1], way);
        }
        for (int other = 2; rank == 0 && other < size; other++)
            MPI_Send(&word, 1, MPI_INT, other, IDLE, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
