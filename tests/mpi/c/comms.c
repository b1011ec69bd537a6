/* Communicators, groups and topologies. */
#include "check.h"

static void groups(void)
{
    MPI_Group world, some, others, both;
    int ranks[3] = { 0, size - 1, size / 2 }, n = size >= 3 ? 3 : size >= 2 ? 2 : 1, have, result, translated[3];
    int range[1][3] = { { 0, size - 1, 2 } };
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(world, &have);
    CHECK(have == size);
    MPI_Group_rank(world, &have);
    CHECK(have == rank);
    MPI_Group_incl(world, n, ranks, &some);
    MPI_Group_excl(world, n, ranks, &others);
    MPI_Group_union(some, others, &both);
    MPI_Group_compare(world, both, &result);
    CHECK(result == MPI_SIMILAR || result == MPI_IDENT);
    MPI_Group_free(&both);
    MPI_Group_intersection(some, others, &both);
    CHECK(both == MPI_GROUP_EMPTY);
    MPI_Group_difference(world, some, &both);
    MPI_Group_compare(both, others, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_translate_ranks(world, n, ranks, some, translated);
    for (int i = 0; i < n; i++)
        CHECK(translated[i] == i);
    int mixed[4] = { MPI_PROC_NULL, 0, MPI_PROC_NULL, size - 1 }, places[4];
    MPI_Group_translate_ranks(world, 4, mixed, some, places);
    CHECK(places[0] == MPI_PROC_NULL && places[1] == 0 && places[2] == MPI_PROC_NULL);
    CHECK(size == 1 ? places[3] == 0 : places[3] == 1);
    if (size > 3) {
        mixed[3] = 1;
        MPI_Group_translate_ranks(world, 4, mixed, some, places);
        CHECK(places[1] == 0 && places[3] == MPI_UNDEFINED);
    }
    MPI_Group_free(&some);
    CHECK(some == MPI_GROUP_NULL);
    MPI_Group_range_incl(world, 1, range, &some);
    MPI_Group_size(some, &have);
    CHECK(have == (size + 1) / 2);
    MPI_Group_free(&some);
    MPI_Group_range_excl(world, 1, range, &some);
    MPI_Group_size(some, &have);
    CHECK(have == size / 2);
}

static int sum_over(MPI_Comm comm)
{
    int sum;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static void communicators(void)
{
    MPI_Comm copy, part, even, shared, none, parent;
    MPI_Group world, half;
    MPI_Info info;
    int result, own, len, flag, expected = 0;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_compare(MPI_COMM_WORLD, copy, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_compare(copy, copy, &result);
    CHECK(result == MPI_IDENT);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &len);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0);
    MPI_Comm_set_name(copy, "copy");
    MPI_Comm_get_name(copy, name, &len);
    CHECK(len == 4 && strcmp(name, "copy") == 0);
    /* A message in one communicator is not received in the other. */
    int out = 1, in = 0;
    MPI_Request request;
    MPI_Isend(&out, 1, MPI_INT, rank, 5, copy, &request);
    MPI_Iprobe(rank, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Recv(&in, 1, MPI_INT, rank, 5, copy, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == 1);

    MPI_Comm_split(copy, rank % 2, -rank, &part);
    MPI_Comm_rank(part, &own);
    MPI_Comm_size(part, &len);
    CHECK(len == (size + 1 - rank % 2) / 2 && own == len - 1 - rank / 2);
    for (int r = rank % 2; r < size; r += 2)
        expected += r;
    CHECK(sum_over(part) == expected);
    MPI_Comm_split(copy, rank == 0 ? MPI_UNDEFINED : 1, 0, &none);
    CHECK((none == MPI_COMM_NULL) == (rank == 0));
    if (none != MPI_COMM_NULL)
        MPI_Comm_free(&none);
    MPI_Comm_split_type(copy, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &shared);
    MPI_Comm_size(shared, &len);
    CHECK(len >= 1 && len <= size);
    const char *here = getenv("RANKS_OF_A_HOST");
    CHECK(len == (here ? atoi(here) : size));
    sum_over(shared);

    int range[1][3] = { { 0, size - 1, 2 } };
    MPI_Comm_group(copy, &world);
    MPI_Group_range_incl(world, 1, range, &half);
    MPI_Comm_create(copy, half, &even);
    CHECK((even == MPI_COMM_NULL) == (rank % 2 == 1));
    if (even != MPI_COMM_NULL) {
        sum_over(even);
        MPI_Comm_free(&even);
        MPI_Comm_create_group(copy, half, 17, &even);
        MPI_Comm_rank(even, &own);
        CHECK(own == rank / 2);
        sum_over(even);
        MPI_Comm_disconnect(&even);
        CHECK(even == MPI_COMM_NULL);
    }
    MPI_Comm_test_inter(copy, &flag);
    CHECK(!flag);
    MPI_Comm_get_parent(&parent);
    CHECK(parent == MPI_COMM_NULL);
    MPI_Info_create(&info);
    MPI_Info_set(info, "hint", "value");
    MPI_Comm_set_info(copy, info);
    MPI_Info_free(&info);
    MPI_Comm_get_info(copy, &info);
    MPI_Comm_dup_with_info(copy, info, &even);
    MPI_Info_free(&info);
    MPI_Comm_free(&even);
    MPI_Comm_free(&shared);
    MPI_Comm_free(&part);
    MPI_Comm_free(&copy);
    CHECK(copy == MPI_COMM_NULL);
    for (int i = 0; i < 40; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        CHECK(sum_over(copy) == size * (size - 1) / 2);
        MPI_Comm_free(&copy);
    }
}

static void grids(void)
{
    MPI_Comm cart, row;
    int dims[2] = { 0, 0 }, periods[2] = { 1, 0 }, coords[2], have[2], cyclic[2], own, source, dest, kind, n, other;
    MPI_Dims_create(size, 2, dims);
    CHECK(dims[0] * dims[1] == size && dims[0] >= dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    MPI_Topo_test(cart, &kind);
    CHECK(kind == MPI_CART);
    MPI_Cartdim_get(cart, &n);
    MPI_Cart_get(cart, 2, have, cyclic, coords);
    CHECK(n == 2 && have[0] == dims[0] && cyclic[0] && !cyclic[1]);
    MPI_Cart_rank(cart, coords, &own);
    CHECK(own == rank);
    MPI_Cart_coords(cart, rank, 2, have);
    CHECK(have[0] == coords[0] && have[1] == coords[1]);
    MPI_Cart_shift(cart, 0, 1, &source, &dest);
    CHECK(dest == ((coords[0] + 1) % dims[0]) * dims[1] + coords[1]);
    MPI_Sendrecv(&rank, 1, MPI_INT, dest, 0, &other, 1, MPI_INT, source, 0, cart, MPI_STATUS_IGNORE);
    CHECK(other == source);
    MPI_Cart_shift(cart, 1, 1, &source, &dest);
    CHECK((dest == MPI_PROC_NULL) == (coords[1] == dims[1] - 1));
    int remain[2] = { 0, 1 };
    MPI_Cart_sub(cart, remain, &row);
    MPI_Comm_size(row, &n);
    MPI_Comm_rank(row, &own);
    CHECK(n == dims[1] && own == coords[1]);
    MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &own);
    CHECK(own == rank);
    MPI_Comm_free(&row);
    MPI_Comm_free(&cart);
}

static void graphs(void)
{
    /* A ring. */
    MPI_Comm ring;
    int *index = malloc(size * sizeof(int)), *edges = malloc(2 * size * sizeof(int)), n, m, kind, own, pair[2];
    for (int r = 0; r < size; r++) {
        index[r] = 2 * (r + 1);
        edges[2 * r] = (r + size - 1) % size;
        edges[2 * r + 1] = (r + 1) % size;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &ring);
    MPI_Topo_test(ring, &kind);
    CHECK(kind == MPI_GRAPH);
    MPI_Graphdims_get(ring, &n, &m);
    CHECK(n == size && m == 2 * size);
    MPI_Graph_get(ring, n, m, index, edges);
    MPI_Graph_neighbors_count(ring, rank, &n);
    MPI_Graph_neighbors(ring, rank, 2, pair);
    CHECK(n == 2 && pair[0] == (rank + size - 1) % size && pair[1] == (rank + 1) % size);
    MPI_Graph_map(MPI_COMM_WORLD, size, index, edges, &own);
    CHECK(own == rank);
    MPI_Comm_free(&ring);

    int source = (rank + size - 1) % size, dest = (rank + 1) % size, in, out, weighted, weight = rank + 5, got = 0, one = 1;
    int to = 0, from = 0;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &source, MPI_UNWEIGHTED, 1, &dest, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &ring);
    MPI_Topo_test(ring, &kind);
    MPI_Dist_graph_neighbors_count(ring, &in, &out, &weighted);
    CHECK(kind == MPI_DIST_GRAPH && in == 1 && out == 1 && !weighted);
    MPI_Dist_graph_neighbors(ring, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED);
    CHECK(from == source && to == dest);
    MPI_Comm_free(&ring);
    /* Each names the edge that begins at its right neighbour. */
    int start = dest;
    int end_of = (rank + 2) % size;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &start, &one, &end_of, &weight, MPI_INFO_NULL, 0, &ring);
    MPI_Dist_graph_neighbors_count(ring, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && weighted);
    MPI_Dist_graph_neighbors(ring, 1, &from, &got, 1, &to, &weight);
    CHECK(from == source && to == dest && weight == source + 5 && got == (rank + 2 * size - 2) % size + 5);
    MPI_Comm_free(&ring);
    free(index);
    free(edges);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    groups();
    communicators();
    grids();
    graphs();
    end("comms");
    return 0;
}
