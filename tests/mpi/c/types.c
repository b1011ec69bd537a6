/* Datatypes: constructors, what can be asked of them, packing, sending with gaps. */
#include "check.h"

#include <stddef.h>

struct particle {
    char kind;
    double place[3];
    int charge;
};

static void extents(MPI_Datatype type, int bytes, MPI_Aint lower, MPI_Aint extent)
{
    int have;
    MPI_Count wide;
    MPI_Aint lb, ex;
    MPI_Count lbx, exx;
    MPI_Type_size(type, &have);
    MPI_Type_size_x(type, &wide);
    MPI_Type_get_extent(type, &lb, &ex);
    MPI_Type_get_extent_x(type, &lbx, &exx);
    CHECK(have == bytes && wide == bytes && lb == lower && ex == extent && lbx == lower && exx == extent);
}

static MPI_Datatype made(MPI_Datatype type, int combiner)
{
    int ni, na, nd, how, integers[64];
    MPI_Aint addresses[16];
    MPI_Datatype types[16];
    MPI_Type_get_envelope(type, &ni, &na, &nd, &how);
    CHECK(how == combiner && ni < 64 && na < 16 && nd < 16);
    MPI_Type_get_contents(type, ni, na, nd, integers, addresses, types);
    CHECK(nd > 0);
    MPI_Type_commit(&type);
    return type;
}

/* Sends one value of a type to ourselves, packed on the way back, and compares. */
static void travels(MPI_Datatype type, int room)
{
    char *out = malloc(room), *in = calloc(room, 1), *packed = malloc(room), *again = calloc(room, 1);
    int bytes, position = 0, need;
    MPI_Status status;
    for (int i = 0; i < room; i++)
        out[i] = (char)(i * 37 + rank);
    MPI_Type_size(type, &bytes);
    MPI_Pack_size(1, type, MPI_COMM_WORLD, &need);
    CHECK(need >= bytes && need <= room);
    MPI_Sendrecv(out, 1, type, (rank + 1) % size, 1, packed, bytes, MPI_BYTE, (rank + size - 1) % size, 1,
                 MPI_COMM_WORLD, &status);
    MPI_Sendrecv_replace(packed, bytes, MPI_BYTE, (rank + size - 1) % size, 2, (rank + 1) % size, 2, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    MPI_Unpack(packed, bytes, &position, in, 1, type, MPI_COMM_WORLD);
    CHECK(position == bytes);
    position = 0;
    MPI_Pack(in, 1, type, again, room, &position, MPI_COMM_WORLD);
    CHECK(position == bytes && memcmp(again, packed, bytes) == 0);
    MPI_Aint external, at = 0;
    MPI_Pack_external_size("external32", 1, type, &external);
    CHECK(external == bytes);
    MPI_Pack_external("external32", in, 1, type, again, room, &at);
    CHECK(at == bytes);
    memset(in, 0, room);
    at = 0;
    MPI_Unpack_external("external32", again, bytes, &at, in, 1, type);
    position = 0;
    MPI_Pack(in, 1, type, again, room, &position, MPI_COMM_WORLD);
    CHECK(memcmp(again, packed, bytes) == 0);
    free(out), free(in), free(packed), free(again);
}

/* Longs have 4 bytes in external32, wide characters 2, and a long double is one of IEEE's with 16. */
static void outside(void)
{
    static const unsigned char longs[12] = { 255, 255, 255, 251, 0, 0, 0, 1, 127, 255, 255, 255 };
    static const unsigned char quads[32] = { 0x3f, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0 };
    long in[3] = { -5, 1, 2147483647 }, back[3] = { 0, 0, 0 };
    long double numbers[2] = { 1.5L, -2.0L }, same[2] = { 0, 0 };
    wchar_t wide = 0xfedc, again = 0;
    unsigned char bytes[32];
    MPI_Aint need, at = 0;
    MPI_Pack_external_size("external32", 3, MPI_LONG, &need);
    CHECK(need == 12);
    MPI_Pack_external("external32", in, 3, MPI_LONG, bytes, sizeof bytes, &at);
    CHECK(at == 12 && memcmp(bytes, longs, 12) == 0);
    at = 0;
    MPI_Unpack_external("external32", bytes, sizeof bytes, &at, back, 3, MPI_LONG);
    CHECK(at == 12 && memcmp(in, back, sizeof in) == 0);
    MPI_Pack_external_size("external32", 2, MPI_LONG_DOUBLE, &need);
    CHECK(need == 32);
    at = 0;
    MPI_Pack_external("external32", numbers, 2, MPI_LONG_DOUBLE, bytes, sizeof bytes, &at);
    CHECK(at == 32 && memcmp(bytes, quads, 32) == 0);
    at = 0;
    MPI_Unpack_external("external32", bytes, sizeof bytes, &at, same, 2, MPI_LONG_DOUBLE);
    CHECK(at == 32 && same[0] == 1.5L && same[1] == -2.0L);
    at = 0;
    MPI_Pack_external("external32", &wide, 1, MPI_WCHAR, bytes, sizeof bytes, &at);
    CHECK(at == 2 && bytes[0] == 0xfe && bytes[1] == 0xdc);
    at = 0;
    MPI_Unpack_external("external32", bytes, 2, &at, &again, 1, MPI_WCHAR);
    CHECK(at == 2 && again == wide);
}

int main(int argc, char **argv)
{
    MPI_Datatype type, other, resized;
    int blocks[3] = { 2, 1, 3 }, places[3] = { 0, 5, 9 }, sizes[2] = { 6, 8 }, sub[2] = { 2, 3 }, starts[2] = { 1, 2 };
    MPI_Aint bytes[3] = { 0, 40, 80 }, lb, ub, extent;
    char name[MPI_MAX_OBJECT_NAME];
    int len;
    begin(&argc, &argv);
    outside();

    MPI_Type_contiguous(4, MPI_INT, &type);
    extents(type, 16, 0, 16);
    travels(made(type, MPI_COMBINER_CONTIGUOUS), 64);
    MPI_Type_free(&type);
    CHECK(type == MPI_DATATYPE_NULL);

    MPI_Type_vector(3, 2, 4, MPI_DOUBLE, &type);
    extents(type, 48, 0, 80);
    travels(made(type, MPI_COMBINER_VECTOR), 128);
    MPI_Type_create_hvector(2, 1, 100, type, &other);
    extents(other, 96, 0, 180);
    travels(made(other, MPI_COMBINER_HVECTOR), 256);
    MPI_Type_free(&other);
    MPI_Type_create_resized(type, -8, 120, &resized);
    extents(resized, 48, -8, 120);
    MPI_Type_get_true_extent(resized, &lb, &extent);
    CHECK(lb == 0 && extent == 80);
    MPI_Count true_lb, true_extent;
    MPI_Type_get_true_extent_x(resized, &true_lb, &true_extent);
    CHECK(true_lb == 0 && true_extent == 80);
    travels(made(resized, MPI_COMBINER_RESIZED), 128);
    MPI_Type_free(&resized);
    MPI_Type_free(&type);

    MPI_Type_indexed(3, blocks, places, MPI_INT, &type);
    extents(type, 24, 0, 48);
    travels(made(type, MPI_COMBINER_INDEXED), 64);
    MPI_Type_free(&type);
    MPI_Type_create_hindexed(3, blocks, bytes, MPI_INT, &type);
    extents(type, 24, 0, 92);
    travels(made(type, MPI_COMBINER_HINDEXED), 128);
    MPI_Type_free(&type);
    MPI_Type_create_indexed_block(3, 2, places, MPI_SHORT, &type);
    extents(type, 12, 0, 22);
    travels(made(type, MPI_COMBINER_INDEXED_BLOCK), 64);
    MPI_Type_free(&type);
    MPI_Type_create_hindexed_block(3, 2, bytes, MPI_SHORT, &type);
    extents(type, 12, 0, 84);
    travels(made(type, MPI_COMBINER_HINDEXED_BLOCK), 128);
    MPI_Type_free(&type);

    MPI_Type_create_subarray(2, sizes, sub, starts, MPI_ORDER_C, MPI_INT, &type);
    extents(type, 24, 0, 192);
    travels(made(type, MPI_COMBINER_SUBARRAY), 192);
    MPI_Type_free(&type);
    int psizes[2] = { 2, 2 }, how[2] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC };
    int dargs[2] = { MPI_DISTRIBUTE_DFLT_DARG, 1 };
    MPI_Type_create_darray(4, 3, 2, sizes, how, dargs, psizes, MPI_ORDER_FORTRAN, MPI_INT, &type);
    extents(type, 48, 0, 192);
    travels(made(type, MPI_COMBINER_DARRAY), 192);
    MPI_Type_free(&type);

    struct particle some[4], got[4];
    MPI_Aint base, at[3];
    int lengths[3] = { 1, 3, 1 };
    MPI_Datatype parts[3] = { MPI_CHAR, MPI_DOUBLE, MPI_INT };
    MPI_Get_address(&some[0], &base);
    MPI_Get_address(&some[0].kind, &at[0]);
    MPI_Get_address(some[0].place, &at[1]);
    MPI_Get_address(&some[0].charge, &at[2]);
    for (int i = 0; i < 3; i++)
        at[i] = MPI_Aint_diff(at[i], base);
    CHECK(MPI_Aint_add(base, at[1]) == base + (MPI_Aint)offsetof(struct particle, place));
    MPI_Type_create_struct(3, lengths, at, parts, &type);
    extents(type, 29, 0, sizeof(struct particle));
    made(type, MPI_COMBINER_STRUCT);
    for (int i = 0; i < 4; i++)
        some[i] = (struct particle){ (char)('a' + i), { i, rank, i * 0.5 }, -i };
    MPI_Status status;
    MPI_Sendrecv(some, 4, type, (rank + 1) % size, 3, got, 4, type, (rank + size - 1) % size, 3, MPI_COMM_WORLD,
                 &status);
    for (int i = 0; i < 4; i++)
        CHECK(got[i].kind == 'a' + i && got[i].place[1] == (rank + size - 1) % size && got[i].charge == -i);
    int elements;
    MPI_Count elements_x;
    MPI_Get_elements(&status, type, &elements);
    MPI_Get_elements_x(&status, type, &elements_x);
    CHECK(elements == 20 && elements_x == 20);
    MPI_Status_set_elements(&status, MPI_INT, 7);
    MPI_Get_count(&status, MPI_INT, &elements);
    CHECK(elements == 7);
    MPI_Status_set_elements_x(&status, MPI_DOUBLE, 3);
    MPI_Get_count(&status, MPI_DOUBLE, &elements);
    CHECK(elements == 3);

    /* Absolute addresses. */
    int one = rank, two = -1;
    MPI_Aint absolute;
    int unit = 1;
    MPI_Get_address(&one, &absolute);
    MPI_Type_create_hindexed(1, &unit, &absolute, MPI_INT, &other);
    MPI_Type_commit(&other);
    MPI_Sendrecv(MPI_BOTTOM, 1, other, (rank + 1) % size, 4, &two, 1, MPI_INT, (rank + size - 1) % size, 4,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(two == (rank + size - 1) % size);
    MPI_Type_free(&other);

    MPI_Type_dup(type, &other);
    MPI_Type_set_name(other, "particles");
    MPI_Type_get_name(other, name, &len);
    CHECK(len == 9 && strcmp(name, "particles") == 0);
    MPI_Type_get_name(MPI_DOUBLE, name, &len);
    CHECK(strcmp(name, "MPI_DOUBLE") == 0);
    made(other, MPI_COMBINER_DUP);
    MPI_Type_free(&other);
    MPI_Type_free(&type);

    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &type);
    MPI_Type_size(type, &len);
    CHECK(len == 8);
    MPI_Type_create_f90_real(15, MPI_UNDEFINED, &type);
    MPI_Type_size(type, &len);
    CHECK(len == 8);
    MPI_Type_create_f90_real(15, MPI_UNDEFINED, &other);
    CHECK(other == type);
    int integers, addresses, types, combiner, request[2];
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    CHECK(integers == 2 && addresses == 0 && types == 0 && combiner == MPI_COMBINER_F90_REAL);
    MPI_Type_get_contents(type, 2, 0, 0, request, NULL, NULL);
    CHECK(request[0] == 15 && request[1] == MPI_UNDEFINED);
    MPI_Type_create_f90_integer(9, &type);
    MPI_Type_size(type, &len);
    CHECK(len == 4);
    MPI_Type_create_f90_complex(6, 30, &type);
    MPI_Type_size(type, &len);
    CHECK(len == 8);
    (void)ub;
    end("types");
    return 0;
}
