/* Every blocking collective operation, with data that show where each part came from; in place, too. */
#include "check.h"

static int counts[64], displs[64];

static void moves(int count)
{
    int *all = malloc(size * count * sizeof(int)), *own = malloc(size * count * sizeof(int));
    for (int root = 0; root < size; root++) {
        for (int i = 0; i < count; i++)
            own[i] = rank == root ? root * 7 + i : -1;
        MPI_Bcast(own, count, MPI_INT, root, MPI_COMM_WORLD);
        CHECK(own[0] == root * 7 && own[count - 1] == root * 7 + count - 1);
        for (int i = 0; i < count; i++)
            own[i] = rank * 1000 + i;
        memset(all, 0, size * count * sizeof(int));
        MPI_Gather(own, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root)
            for (int r = 0; r < size; r++)
                CHECK(all[r * count] == r * 1000 && all[(r + 1) * count - 1] == r * 1000 + count - 1);
        memset(own, 0, count * sizeof(int));
        MPI_Scatter(all, count, MPI_INT, own, count, MPI_INT, root, MPI_COMM_WORLD);
        CHECK(own[0] == rank * 1000 && own[count - 1] == rank * 1000 + count - 1);
        if (rank == root)
            MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
        else
            MPI_Gather(own, count, MPI_INT, NULL, 0, MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root)
            CHECK(all[root * count] == root * 1000 && all[(size - 1) * count] == (size - 1) * 1000);
    }
    MPI_Allgather(own, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        CHECK(all[r * count] == r * 1000 && all[(r + 1) * count - 1] == r * 1000 + count - 1);
    for (int i = 0; i < size * count; i++)
        own[i] = rank * 10000 + i / count * 100 + i % count % 100;
    MPI_Alltoall(own, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        CHECK(all[r * count] == r * 10000 + rank * 100);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, own, count, MPI_INT, MPI_COMM_WORLD);
    CHECK(memcmp(own, all, size * count * sizeof(int)) == 0);
    free(all);
    free(own);
}

/* Rank r has r + 1 numbers. */
static void uneven(void)
{
    int total = 0, *own = malloc((size + 1) * sizeof(int));
    for (int r = 0; r < size; r++) {
        counts[r] = r + 1;
        displs[r] = total;
        total += r + 1;
    }
    int *all = malloc(total * sizeof(int));
    for (int i = 0; i <= rank; i++)
        own[i] = rank * 100 + i;
    memset(all, 0, total * sizeof(int));
    MPI_Allgatherv(own, rank + 1, MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        CHECK(all[displs[r]] == r * 100 && all[displs[r] + r] == r * 100 + r);
    for (int root = 0; root < size; root++) {
        memset(all, 0, total * sizeof(int));
        MPI_Gatherv(own, rank + 1, MPI_INT, all, counts, displs, MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root)
            CHECK(all[total - 1] == (size - 1) * 101);
        memset(own, 0, (rank + 1) * sizeof(int));
        MPI_Scatterv(all, counts, displs, MPI_INT, own, rank + 1, MPI_INT, root, MPI_COMM_WORLD);
        CHECK(own[0] == rank * 100 && own[rank] == rank * 101);
    }
    /* Every rank sends r + 1 numbers to rank r. */
    int *out = malloc(total * sizeof(int)), *in = malloc(size * (rank + 1) * sizeof(int));
    int *in_counts = malloc(size * sizeof(int)), *in_displs = malloc(size * sizeof(int));
    MPI_Datatype *types = malloc(size * sizeof(MPI_Datatype));
    int *bytes_out = malloc(size * sizeof(int)), *bytes_in = malloc(size * sizeof(int));
    for (int i = 0; i < total; i++)
        out[i] = rank * 1000 + i;
    for (int r = 0; r < size; r++) {
        in_counts[r] = rank + 1;
        in_displs[r] = r * (rank + 1);
        types[r] = MPI_INT;
        bytes_out[r] = displs[r] * (int)sizeof(int);
        bytes_in[r] = in_displs[r] * (int)sizeof(int);
    }
    MPI_Alltoallv(out, counts, displs, MPI_INT, in, in_counts, in_displs, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        CHECK(in[in_displs[r]] == r * 1000 + displs[rank] && in[in_displs[r] + rank] == r * 1000 + displs[rank] + rank);
    memset(in, 0, size * (rank + 1) * sizeof(int));
    MPI_Alltoallw(out, counts, bytes_out, types, in, in_counts, bytes_in, types, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
        CHECK(in[in_displs[r]] == r * 1000 + displs[rank]);
    free(own), free(all), free(out), free(in), free(in_counts), free(in_displs), free(types);
    free(bytes_out), free(bytes_in);
}

/* Products of 2x2 matrices do not commute. */
static void matrices(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
    long *a = in, *b = inout;
    (void)datatype;
    for (int i = 0; i < *count; i++, a += 4, b += 4) {
        long c[4] = { a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                      a[2] * b[1] + a[3] * b[3] };
        for (int k = 0; k < 4; k++)
            b[k] = c[k] % 10007;
    }
}

static void reductions(int count)
{
    double *own = malloc(count * size * sizeof(double)), *sum = malloc(count * size * sizeof(double));
    int commutes;
    for (int i = 0; i < count * size; i++)
        own[i] = rank + i % 5;
    for (int root = 0; root < size; root++) {
        MPI_Reduce(own, sum, count, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root)
            CHECK(sum[0] == size * (size - 1) / 2 && sum[count - 1] == size * (size - 1) / 2 + size * ((count - 1) % 5));
    }
    MPI_Allreduce(own, sum, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    CHECK(sum[0] == size - 1);
    memcpy(sum, own, count * sizeof(double));
    MPI_Allreduce(MPI_IN_PLACE, sum, count, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    CHECK(sum[0] == 0);
    MPI_Scan(own, sum, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum[0] == rank * (rank + 1) / 2);
    MPI_Exscan(own, sum, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank > 0)
        CHECK(sum[0] == rank * (rank - 1) / 2);
    MPI_Reduce_scatter_block(own, sum, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum[0] == size * (size - 1) / 2 + size * (rank * count % 5));
    for (int r = 0; r < size; r++)
        counts[r] = r % 2 ? count : 1;
    int before = 0;
    for (int r = 0; r < rank; r++)
        before += counts[r];
    MPI_Reduce_scatter(own, sum, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum[0] == size * (size - 1) / 2 + size * (before % 5));
    sum[0] = 2;
    MPI_Reduce_local(own, sum, 1, MPI_DOUBLE, MPI_PROD);
    CHECK(sum[0] == 2 * own[0]);

    long own_matrix[4] = { 1, rank + 1, rank + 2, 3 }, product[4], expected[4] = { 1, 0, 0, 1 };
    MPI_Op op;
    MPI_Datatype matrix;
    MPI_Type_contiguous(4, MPI_LONG, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create(matrices, 0, &op);
    MPI_Op_commutative(op, &commutes);
    CHECK(!commutes);
    for (int r = 0; r < size; r++) {
        long next[4] = { 1, r + 1, r + 2, 3 };
        int one = 1;
        matrices(expected, next, &one, NULL);
        memcpy(expected, next, sizeof expected);
    }
    MPI_Allreduce(own_matrix, product, 1, matrix, op, MPI_COMM_WORLD);
    CHECK(memcmp(product, expected, sizeof product) == 0);
    MPI_Reduce(own_matrix, product, 1, matrix, op, size - 1, MPI_COMM_WORLD);
    if (rank == size - 1)
        CHECK(memcmp(product, expected, sizeof product) == 0);
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);
    MPI_Type_free(&matrix);

    struct {
        double value;
        int at;
    } mine = { (rank * 3) % size, rank }, best;
    MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK((best.at * 3) % size == (int)best.value);
    free(own);
    free(sum);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    moves(1);
    moves(5000);
    uneven();
    reductions(1);
    reductions(3000);
    end("collectives");
    return 0;
}
