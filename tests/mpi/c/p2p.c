/* Sends and receives of every kind around a ring, probes, requests, truncation. */
#include "check.h"

enum { SMALL = 3, LARGE = 200000 };

static int next, before;

static void fill(int *data, int count, int seed)
{
    for (int i = 0; i < count; i++)
        data[i] = seed * 1000003 + i;
}

static int is(const int *data, int count, int seed)
{
    for (int i = 0; i < count; i++)
        if (data[i] != seed * 1000003 + i)
            return 0;
    return 1;
}

static void modes(int count)
{
    int *out = malloc(count * sizeof(int)), *in = malloc(count * sizeof(int));
    MPI_Request request;
    MPI_Status status;
    int n, buffered = count * (int)sizeof(int) + MPI_BSEND_OVERHEAD;
    void *room = malloc(buffered), *back;
    fill(out, count, rank);
    for (int mode = 0; mode < 4; mode++) {
        memset(in, 0, count * sizeof(int));
        MPI_Irecv(in, count, MPI_INT, before, mode, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        if (mode == 0)
            MPI_Send(out, count, MPI_INT, next, mode, MPI_COMM_WORLD);
        if (mode == 1)
            MPI_Ssend(out, count, MPI_INT, next, mode, MPI_COMM_WORLD);
        if (mode == 2)
            MPI_Rsend(out, count, MPI_INT, next, mode, MPI_COMM_WORLD);
        if (mode == 3) {
            MPI_Buffer_attach(room, buffered);
            MPI_Bsend(out, count, MPI_INT, next, mode, MPI_COMM_WORLD);
            MPI_Buffer_detach(&back, &n);
            CHECK(back == room && n == buffered);
        }
        MPI_Wait(&request, &status);
        CHECK(request == MPI_REQUEST_NULL && status.MPI_SOURCE == before && status.MPI_TAG == mode);
        MPI_Get_count(&status, MPI_INT, &n);
        CHECK(n == count && is(in, count, before));
    }
    MPI_Request both[2];
    for (int mode = 0; mode < 4; mode++) {
        int done = 0;
        memset(in, 0, count * sizeof(int));
        MPI_Irecv(in, count, MPI_INT, MPI_ANY_SOURCE, 10 + mode, MPI_COMM_WORLD, &both[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        if (mode == 0)
            MPI_Isend(out, count, MPI_INT, next, 10 + mode, MPI_COMM_WORLD, &both[1]);
        if (mode == 1)
            MPI_Issend(out, count, MPI_INT, next, 10 + mode, MPI_COMM_WORLD, &both[1]);
        if (mode == 2)
            MPI_Irsend(out, count, MPI_INT, next, 10 + mode, MPI_COMM_WORLD, &both[1]);
        if (mode == 3) {
            MPI_Buffer_attach(room, buffered);
            MPI_Ibsend(out, count, MPI_INT, next, 10 + mode, MPI_COMM_WORLD, &both[1]);
        }
        while (!done)
            MPI_Testall(2, both, &done, MPI_STATUSES_IGNORE);
        if (mode == 3)
            MPI_Buffer_detach(&back, &n);
        CHECK(is(in, count, before) && both[0] == MPI_REQUEST_NULL && both[1] == MPI_REQUEST_NULL);
    }
    memset(in, 0, count * sizeof(int));
    MPI_Sendrecv(out, count, MPI_INT, next, 7, in, count, MPI_INT, before, 7, MPI_COMM_WORLD, &status);
    CHECK(is(in, count, before));
    MPI_Sendrecv_replace(out, count, MPI_INT, next, 8, before, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(is(out, count, before));
    free(out);
    free(in);
    free(room);
}

static void persistent(void)
{
    int out = 0, in = -1, modes = 0;
    MPI_Request list[2];
    char room[4 + MPI_BSEND_OVERHEAD];
    void *back;
    for (; modes < 4; modes++) {
        MPI_Recv_init(&in, 1, MPI_INT, before, 20, MPI_COMM_WORLD, &list[0]);
        if (modes == 0)
            MPI_Send_init(&out, 1, MPI_INT, next, 20, MPI_COMM_WORLD, &list[1]);
        if (modes == 1)
            MPI_Ssend_init(&out, 1, MPI_INT, next, 20, MPI_COMM_WORLD, &list[1]);
        if (modes == 2)
            MPI_Rsend_init(&out, 1, MPI_INT, next, 20, MPI_COMM_WORLD, &list[1]);
        if (modes == 3) {
            MPI_Buffer_attach(room, sizeof room);
            MPI_Bsend_init(&out, 1, MPI_INT, next, 20, MPI_COMM_WORLD, &list[1]);
        }
        for (int round = 0; round < 3; round++) {
            out = rank * 10 + round;
            MPI_Start(&list[0]);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Startall(1, &list[1]);
            MPI_Waitall(2, list, MPI_STATUSES_IGNORE);
            CHECK(in == before * 10 + round && list[0] != MPI_REQUEST_NULL);
        }
        MPI_Request_free(&list[0]);
        MPI_Request_free(&list[1]);
        CHECK(list[0] == MPI_REQUEST_NULL);
        if (modes == 3) {
            int n;
            MPI_Buffer_detach(&back, &n);
        }
    }
}

static void probes(void)
{
    int out[4] = { rank, 1, 2, 3 }, in[4], flag = 0, n;
    MPI_Status status;
    MPI_Request send, receive;
    MPI_Message message;
    MPI_Isend(out, 3, MPI_INT, next, 30, MPI_COMM_WORLD, &send);
    MPI_Probe(before, 30, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &n);
    CHECK(n == 3 && status.MPI_SOURCE == before);
    MPI_Recv(in, 4, MPI_INT, before, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    CHECK(in[0] == before && status.MPI_TAG == 30);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Isend(out, 4, MPI_INT, next, 31, MPI_COMM_WORLD, &send);
    while (!flag)
        MPI_Iprobe(MPI_ANY_SOURCE, 31, MPI_COMM_WORLD, &flag, &status);
    CHECK(status.MPI_SOURCE == before);
    MPI_Mprobe(before, 31, MPI_COMM_WORLD, &message, &status);
    CHECK(message != MPI_MESSAGE_NULL);
    MPI_Mrecv(in, 4, MPI_INT, &message, &status);
    CHECK(message == MPI_MESSAGE_NULL && in[0] == before && in[3] == 3);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Isend(out, 1, MPI_INT, next, 32, MPI_COMM_WORLD, &send);
    for (flag = 0; !flag;)
        MPI_Improbe(before, 32, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    MPI_Imrecv(in, 1, MPI_INT, &message, &receive);
    for (flag = 0; !flag;)
        MPI_Request_get_status(receive, &flag, &status);
    MPI_Wait(&receive, &status);
    CHECK(in[0] == before && status.MPI_TAG == 32);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL);
    MPI_Mrecv(in, 1, MPI_INT, &message, &status);
    MPI_Recv(in, 1, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &n);
    CHECK(n == 0 && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

static void several(void)
{
    enum { COUNT = 8 };
    int out[COUNT], in[COUNT], index, flag, some, indices[COUNT], left = COUNT, seen[COUNT] = { 0 };
    MPI_Request sends[COUNT], receives[COUNT];
    MPI_Status status, statuses[COUNT];
    for (int i = 0; i < COUNT; i++) {
        out[i] = rank * 100 + i;
        MPI_Irecv(&in[i], 1, MPI_INT, before, 40 + i, MPI_COMM_WORLD, &receives[i]);
    }
    for (int i = COUNT - 1; i >= 0; i--)
        MPI_Isend(&out[i], 1, MPI_INT, next, 40 + i, MPI_COMM_WORLD, &sends[i]);
    MPI_Waitany(COUNT, receives, &index, &status);
    CHECK(index >= 0 && index < COUNT && in[index] == before * 100 + index && status.MPI_TAG == 40 + index);
    seen[index] = 1;
    left--;
    for (flag = 0; !flag;)
        MPI_Testany(COUNT, receives, &index, &flag, &status);
    CHECK(!seen[index] && in[index] == before * 100 + index);
    seen[index] = 1;
    left--;
    MPI_Waitsome(COUNT, receives, &some, indices, statuses);
    CHECK(some >= 1);
    for (int i = 0; i < some; i++) {
        CHECK(!seen[indices[i]] && statuses[i].MPI_TAG == 40 + indices[i]);
        seen[indices[i]] = 1;
    }
    left -= some;
    while (left > 0) {
        MPI_Testsome(COUNT, receives, &some, indices, statuses);
        left -= some;
    }
    MPI_Waitall(COUNT, sends, statuses);
    MPI_Testsome(COUNT, receives, &some, indices, MPI_STATUSES_IGNORE);
    CHECK(some == MPI_UNDEFINED);
    MPI_Waitany(COUNT, receives, &index, &status);
    CHECK(index == MPI_UNDEFINED);
    MPI_Irecv(in, 1, MPI_INT, before, 99, MPI_COMM_WORLD, &receives[0]);
    MPI_Cancel(&receives[0]);
    MPI_Wait(&receives[0], &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    MPI_Status_set_cancelled(&status, 0);
    MPI_Test_cancelled(&status, &flag);
    CHECK(!flag);
    flag = 0;
    MPI_Request none = MPI_REQUEST_NULL;
    MPI_Test(&none, &flag, &status);
    CHECK(flag && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
}

static void truncation(void)
{
    int out[8] = { 0 }, in[8], class;
    MPI_Request send;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Isend(out, 8, MPI_INT, next, 50, MPI_COMM_WORLD, &send);
    int code = MPI_Recv(in, 4, MPI_INT, before, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Error_class(MPI_Send(out, 1, MPI_INT, size, 0, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_RANK);
    MPI_Error_class(MPI_Send(out, -1, MPI_INT, 0, 0, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_COUNT);
    MPI_Error_class(MPI_Send(out, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_TYPE);
    MPI_Error_class(MPI_Send(out, 1, MPI_INT, 0, -5, MPI_COMM_WORLD), &class);
    CHECK(class == MPI_ERR_TAG);
    MPI_Error_class(MPI_Send(out, 1, MPI_INT, 0, 0, MPI_COMM_NULL), &class);
    CHECK(class == MPI_ERR_COMM);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static int heard;

static void hear(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    heard++;
}

/* A handle is used up by its wait, and the error handler of a request's communicator hears of it. */
static void handles(void)
{
    MPI_Comm copy;
    MPI_Errhandler handler;
    MPI_Request requests[3], old;
    int in[3], out[2] = {rank, rank}, class, flag;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_create_errhandler(hear, &handler);
    MPI_Comm_set_errhandler(copy, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int how = 0; how < 4; how++) {
        heard = 0;
        MPI_Irecv(in, 1, MPI_INT, before, 9, copy, &requests[0]);
        old = requests[0];
        MPI_Isend(out, 2, MPI_INT, next, 9, copy, &requests[1]);
        requests[2] = MPI_REQUEST_NULL;
        int code = MPI_SUCCESS;
        if (how == 0) {
            CHECK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS);
            code = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        } else if (how == 1) {
            code = MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        } else if (how == 2) {
            do
                code = MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
            while (code == MPI_SUCCESS && !flag);
            CHECK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS);
        } else {
            CHECK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS);
            code = MPI_Waitany(3, requests, &flag, MPI_STATUS_IGNORE);
            CHECK(flag == 0);
        }
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_TRUNCATE && heard == 1);
        CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
        MPI_Request stale[2] = {MPI_REQUEST_NULL, old};
        MPI_Error_class(MPI_Wait(&old, MPI_STATUS_IGNORE), &class);
        CHECK(class == MPI_ERR_REQUEST);
        MPI_Error_class(MPI_Waitall(2, stale, MPI_STATUSES_IGNORE), &class);
        CHECK(class == MPI_ERR_REQUEST);
        MPI_Error_class(MPI_Test(&old, &flag, MPI_STATUS_IGNORE), &class);
        CHECK(class == MPI_ERR_REQUEST && heard == 1);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&copy);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    next = (rank + 1) % size;
    before = (rank + size - 1) % size;
    modes(SMALL);
    modes(LARGE);
    persistent();
    probes();
    several();
    truncation();
    handles();
    end("p2p");
    return 0;
}
