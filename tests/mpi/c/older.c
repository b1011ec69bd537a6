/* Names that later versions of MPI took away and programs still call, and handles between C and Fortran. */
#include "check.h"

static int copies, deletions, handled;

static int copy_fn(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_fn(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handled = *code;
}

static void types(void)
{
    int numbers[12], lengths[] = {1, 2}, all[] = {2, 1, 1};
    MPI_Aint places[] = {0, 16}, base, at, extent, bound;
    MPI_Datatype vector, indexed, joined, kinds[] = {MPI_INT, MPI_CHAR, MPI_UB};
    MPI_Address(&numbers[0], &base);
    MPI_Address(&numbers[5], &at);
    CHECK(at - base == 20);
    MPI_Type_hvector(3, 1, 16, MPI_INT, &vector);
    MPI_Type_extent(vector, &extent);
    CHECK(extent == 36);
    MPI_Type_hindexed(2, lengths, places, MPI_INT, &indexed);
    MPI_Type_ub(indexed, &bound);
    CHECK(bound == 24);
    MPI_Aint where[] = {4, 0, 32};
    MPI_Type_struct(3, all, where, kinds, &joined);
    MPI_Type_lb(joined, &bound);
    CHECK(bound == 0);
    MPI_Type_ub(joined, &bound);
    MPI_Type_extent(joined, &extent);
    CHECK(bound == 32 && extent == 32);
    MPI_Type_commit(&indexed);
    int in[6] = {0};
    for (int i = 0; i < 12; i++)
        numbers[i] = rank * 100 + i;
    MPI_Sendrecv(numbers, 1, indexed, (rank + 1) % size, 0, in, 3, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    int from = (rank + size - 1) % size * 100;
    CHECK(in[0] == from && in[1] == from + 4 && in[2] == from + 5);
    MPI_Type_free(&vector);
    MPI_Type_free(&indexed);
    MPI_Type_free(&joined);
}

static void attributes(void)
{
    MPI_Comm copy;
    int key, flag, mark, *found = NULL;
    MPI_Keyval_create(copy_fn, delete_fn, &key, NULL);
    MPI_Attr_put(MPI_COMM_WORLD, key, &mark);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Attr_get(copy, key, &found, &flag);
    CHECK(flag && found == &mark && copies == 1);
    MPI_Attr_delete(MPI_COMM_WORLD, key);
    MPI_Attr_get(MPI_COMM_WORLD, key, &found, &flag);
    CHECK(!flag && deletions == 1);
    MPI_Comm_free(&copy);
    CHECK(deletions == 2);
    MPI_Keyval_free(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
}

static void errors(void)
{
    MPI_Errhandler made, before;
    int nothing = 0;
    MPI_Errhandler_get(MPI_COMM_WORLD, &before);
    CHECK(before == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_create(handler, &made);
    MPI_Errhandler_set(MPI_COMM_WORLD, made);
    CHECK(MPI_Send(&nothing, 1, MPI_INT, size, 0, MPI_COMM_WORLD) == handled && handled == MPI_ERR_RANK);
    MPI_Group group;
    CHECK(MPI_Comm_remote_size(MPI_COMM_WORLD, &nothing) == MPI_ERR_COMM);
    CHECK(MPI_Comm_remote_group(MPI_COMM_WORLD, &group) == MPI_ERR_COMM);
    MPI_Errhandler_set(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&made);
}

static void fortran(void)
{
    MPI_Comm comm = MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD));
    CHECK(comm == MPI_COMM_WORLD);
    CHECK(MPI_Errhandler_f2c(MPI_Errhandler_c2f(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN);
    CHECK(MPI_File_f2c(MPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL);
    CHECK(MPI_Group_f2c(MPI_Group_c2f(MPI_GROUP_EMPTY)) == MPI_GROUP_EMPTY);
    CHECK(MPI_Info_f2c(MPI_Info_c2f(MPI_INFO_NULL)) == MPI_INFO_NULL);
    CHECK(MPI_Message_f2c(MPI_Message_c2f(MPI_MESSAGE_NO_PROC)) == MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Op_f2c(MPI_Op_c2f(MPI_SUM)) == MPI_SUM);
    CHECK(MPI_Request_f2c(MPI_Request_c2f(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);
    CHECK(MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE)) == MPI_DOUBLE);
    CHECK(MPI_Win_f2c(MPI_Win_c2f(MPI_WIN_NULL)) == MPI_WIN_NULL);
    int out = rank, in = -1, count = 0;
    MPI_Fint there[sizeof(MPI_Status) / sizeof(MPI_Fint)];
    MPI_Status status, back;
    MPI_Sendrecv(&out, 1, MPI_INT, (rank + 1) % size, 6, &in, 1, MPI_INT, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &status);
    CHECK(MPI_Status_c2f(&status, there) == MPI_SUCCESS && MPI_Status_f2c(there, &back) == MPI_SUCCESS);
    MPI_Get_count(&back, MPI_INT, &count);
    CHECK(back.MPI_SOURCE == in && back.MPI_TAG == 6 && count == 1);
    MPI_F08_status newer, again;
    MPI_Fint here[sizeof(MPI_Status) / sizeof(MPI_Fint)];
    memset(&back, 0, sizeof back);
    CHECK(MPI_Status_c2f08(&status, &newer) == MPI_SUCCESS && newer.MPI_TAG == 6);
    CHECK(MPI_Status_f082f(&newer, here) == MPI_SUCCESS && MPI_Status_f2f08(here, &again) == MPI_SUCCESS);
    CHECK(MPI_Status_f082c(&again, &back) == MPI_SUCCESS);
    MPI_Get_count(&back, MPI_INT, &count);
    CHECK(back.MPI_SOURCE == in && back.MPI_TAG == 6 && count == 1);
    CHECK(MPI_F08_STATUS_IGNORE && MPI_F08_STATUSES_IGNORE && MPI_F08_STATUS_IGNORE != MPI_F08_STATUSES_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Status_f082c(MPI_F08_STATUS_IGNORE, &back) != MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    types();
    attributes();
    errors();
    fortran();
    end("older");
    return 0;
}
