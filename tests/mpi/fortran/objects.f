C     Objects of the Fortran set: errors and their handlers, groups,
C     communicators, topologies, attributes, datatypes, packing, info.
      program objects
      implicit none
      include 'mpif.h'
      integer ierr, rank, size
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
      call errors(size)
      call groups(rank, size)
      call comms(rank, size)
      call grids(rank, size)
      call graphs(rank, size)
      call attributes
      call types
      call sparse
      call f90
      call packing
      call elements(rank)
      call hints
      call memory
      if (rank .eq. 0) print *, 'objects: good'
      call MPI_FINALIZE(ierr)
      end

      subroutine errors(size)
      implicit none
      include 'mpif.h'
      integer size, ierr, class, code, handler, other, n, handled
      character*(MPI_MAX_ERROR_STRING) text
      external handling
      common /heard/ handled
      call MPI_ADD_ERROR_CLASS(class, ierr)
      call MPI_ADD_ERROR_CODE(class, code, ierr)
      call MPI_ADD_ERROR_STRING(code, 'of our own ', ierr)
      call MPI_ERROR_STRING(code, text, n, ierr)
      call check(n .eq. 10 .and. text .eq. 'of our own', 1)
      call MPI_ERROR_CLASS(code, n, ierr)
      call check(n .eq. class, 2)
      call MPI_COMM_CREATE_ERRHANDLER(handling, handler, ierr)
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, handler, ierr)
      handled = 0
      call MPI_COMM_CALL_ERRHANDLER(MPI_COMM_WORLD, code, ierr)
      call check(handled .eq. code, 3)
      call MPI_COMM_GET_ERRHANDLER(MPI_COMM_WORLD, other, ierr)
      call check(other .eq. handler, 4)
      call MPI_ERRHANDLER_FREE(other, ierr)
      call MPI_ERRHANDLER_FREE(handler, ierr)
      call MPI_ERRHANDLER_CREATE(handling, handler, ierr)
      call MPI_ERRHANDLER_SET(MPI_COMM_WORLD, handler, ierr)
      call MPI_ERRHANDLER_GET(MPI_COMM_WORLD, other, ierr)
      call check(other .eq. handler, 5)
      call MPI_SEND(n, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, ierr)
      call check(handled .eq. ierr .and. ierr .ne. MPI_SUCCESS, 6)
      call MPI_ERRHANDLER_FREE(other, ierr)
      call MPI_ERRHANDLER_FREE(handler, ierr)
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, MPI_ERRORS_RETURN,
     &    ierr)
      call MPI_COMM_REMOTE_SIZE(MPI_COMM_WORLD, n, ierr)
      call check(ierr .ne. MPI_SUCCESS, 7)
      call MPI_COMM_REMOTE_GROUP(MPI_COMM_WORLD, n, ierr)
      call check(ierr .ne. MPI_SUCCESS, 8)
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD,
     &    MPI_ERRORS_ARE_FATAL, ierr)
      end

      subroutine handling(comm, code)
      implicit none
      integer comm, code, handled
      common /heard/ handled
      handled = code
      end

      subroutine groups(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, all, one, rest, both, n, to(1)
      integer ranges(3, 1), list(1)
      call MPI_COMM_GROUP(MPI_COMM_WORLD, all, ierr)
      list(1) = rank
      call MPI_GROUP_INCL(all, 1, list, one, ierr)
      call MPI_GROUP_EXCL(all, 1, list, rest, ierr)
      call MPI_GROUP_SIZE(rest, n, ierr)
      call check(n .eq. size - 1, 11)
      call MPI_GROUP_UNION(one, rest, both, ierr)
      call MPI_GROUP_COMPARE(both, all, n, ierr)
      call check(n .eq. MPI_IDENT .or. n .eq. MPI_SIMILAR, 12)
      call MPI_GROUP_FREE(both, ierr)
      call MPI_GROUP_INTERSECTION(one, all, both, ierr)
      call MPI_GROUP_COMPARE(both, one, n, ierr)
      call check(n .eq. MPI_IDENT, 13)
      call MPI_GROUP_FREE(both, ierr)
      call MPI_GROUP_DIFFERENCE(one, all, both, ierr)
      call MPI_GROUP_SIZE(both, n, ierr)
      call check(n .eq. 0, 14)
      call MPI_GROUP_TRANSLATE_RANKS(all, 1, list, one, to, ierr)
      call check(to(1) .eq. 0, 15)
      call MPI_GROUP_FREE(rest, ierr)
      ranges(1, 1) = size - 1
      ranges(2, 1) = 0
      ranges(3, 1) = -1
      call MPI_GROUP_RANGE_INCL(all, 1, ranges, rest, ierr)
      call MPI_GROUP_RANK(rest, n, ierr)
      call check(n .eq. size - 1 - rank, 16)
      call MPI_GROUP_FREE(rest, ierr)
      call MPI_GROUP_RANGE_EXCL(all, 1, ranges, rest, ierr)
      call MPI_GROUP_SIZE(rest, n, ierr)
      call check(n .eq. 0, 17)
      call MPI_GROUP_FREE(one, ierr)
      call MPI_GROUP_FREE(all, ierr)
      end

      subroutine comms(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, comm, group, n, info
      character*(MPI_MAX_OBJECT_NAME) name
      logical flag
      call MPI_COMM_GROUP(MPI_COMM_WORLD, group, ierr)
      call MPI_COMM_CREATE(MPI_COMM_WORLD, group, comm, ierr)
      call MPI_COMM_COMPARE(comm, MPI_COMM_WORLD, n, ierr)
      call check(n .eq. MPI_CONGRUENT, 21)
      call MPI_COMM_TEST_INTER(comm, flag, ierr)
      call check(.not. flag, 22)
      call MPI_COMM_SET_NAME(comm, 'our own  ', ierr)
      call MPI_COMM_GET_NAME(comm, name, n, ierr)
      call check(n .eq. 7 .and. name .eq. 'our own', 23)
      call MPI_COMM_FREE(comm, ierr)
      call MPI_COMM_CREATE_GROUP(MPI_COMM_WORLD, group, 5, comm, ierr)
      call MPI_COMM_SIZE(comm, n, ierr)
      call check(n .eq. size, 24)
      call MPI_COMM_DISCONNECT(comm, ierr)
      call check(comm .eq. MPI_COMM_NULL, 25)
      call MPI_COMM_GET_INFO(MPI_COMM_WORLD, info, ierr)
      call MPI_COMM_DUP_WITH_INFO(MPI_COMM_WORLD, info, comm, ierr)
      call MPI_COMM_SET_INFO(comm, info, ierr)
      call MPI_COMM_FREE(comm, ierr)
      call MPI_COMM_SPLIT_TYPE(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED,
     &    rank, info, comm, ierr)
      call MPI_COMM_SIZE(comm, n, ierr)
      call check(n .eq. size, 26)
      call MPI_COMM_FREE(comm, ierr)
      call MPI_INFO_FREE(info, ierr)
      call MPI_COMM_GET_PARENT(comm, ierr)
      call check(comm .eq. MPI_COMM_NULL, 27)
      call MPI_GROUP_FREE(group, ierr)
      end

      subroutine grids(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, cart, row, n, from, to, dims(2)
      integer coords(2)
      logical periods(2), keep(2)
      dims(1) = size
      dims(2) = 1
      periods(1) = .true.
      periods(2) = .false.
      call MPI_CART_CREATE(MPI_COMM_WORLD, 2, dims, periods, .true.,
     &    cart, ierr)
      call MPI_TOPO_TEST(cart, n, ierr)
      call check(n .eq. MPI_CART, 31)
      call MPI_CARTDIM_GET(cart, n, ierr)
      call check(n .eq. 2, 32)
      call MPI_COMM_RANK(cart, n, ierr)
      call MPI_CART_COORDS(cart, n, 2, coords, ierr)
      call check(coords(1) .eq. n .and. coords(2) .eq. 0, 33)
      call MPI_CART_SHIFT(cart, 0, 1, from, to, ierr)
      call check(to .eq. mod(n + 1, size), 34)
      call MPI_CART_SHIFT(cart, 1, 1, from, to, ierr)
      call check(from .eq. MPI_PROC_NULL, 35)
      keep(1) = .false.
      keep(2) = .true.
      call MPI_CART_SUB(cart, keep, row, ierr)
      call MPI_COMM_SIZE(row, n, ierr)
      call check(n .eq. 1, 36)
      call MPI_CART_MAP(MPI_COMM_WORLD, 2, dims, periods, n, ierr)
      call check(n .ge. 0 .and. n .lt. size, 37)
      call MPI_COMM_FREE(row, ierr)
      call MPI_COMM_FREE(cart, ierr)
      end

      subroutine graphs(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, graph, n, m, i
      integer indices(40), edges(40), one(1), two(1), w(1), v(1)
      logical flag
      do i = 1, size
        indices(i) = i
        edges(i) = mod(i, size)
      end do
      call MPI_GRAPH_CREATE(MPI_COMM_WORLD, size, indices, edges,
     &    .false., graph, ierr)
      call MPI_GRAPHDIMS_GET(graph, n, m, ierr)
      call check(n .eq. size .and. m .eq. size, 41)
      call MPI_GRAPH_NEIGHBORS_COUNT(graph, rank, n, ierr)
      call check(n .eq. 1, 42)
      call MPI_GRAPH_NEIGHBORS(graph, rank, 1, one, ierr)
      call check(one(1) .eq. mod(rank + 1, size), 43)
      edges(1) = -1
      call MPI_GRAPH_GET(graph, size, size, indices, edges, ierr)
      call check(edges(1) .eq. mod(1, size), 44)
      call MPI_GRAPH_MAP(MPI_COMM_WORLD, size, indices, edges, n, ierr)
      call check(n .ge. 0, 45)
      call MPI_COMM_FREE(graph, ierr)
      one(1) = mod(rank + size - 1, size)
      two(1) = mod(rank + 1, size)
      call MPI_DIST_GRAPH_CREATE_ADJACENT(MPI_COMM_WORLD, 1, one,
     &    MPI_UNWEIGHTED, 1, two, MPI_UNWEIGHTED, MPI_INFO_NULL,
     &    .false., graph, ierr)
      call MPI_DIST_GRAPH_NEIGHBORS_COUNT(graph, n, m, flag, ierr)
      call check(n .eq. 1 .and. m .eq. 1 .and. .not. flag, 46)
      call MPI_COMM_FREE(graph, ierr)
      n = 1
      w(1) = 9
      one(1) = rank
      call MPI_DIST_GRAPH_CREATE(MPI_COMM_WORLD, 1, one, n, two, w,
     &    MPI_INFO_NULL, .false., graph, ierr)
      call MPI_DIST_GRAPH_NEIGHBORS(graph, 1, one, w, 1, two, v, ierr)
      call check(one(1) .eq. mod(rank + size - 1, size), 47)
      call check(w(1) .eq. 9 .and. v(1) .eq. 9, 48)
      call MPI_COMM_FREE(graph, ierr)
      end

      subroutine attributes
      implicit none
      include 'mpif.h'
      integer ierr, key, type, other, number
      integer (kind=MPI_ADDRESS_KIND) extra, value
      logical flag
      call MPI_KEYVAL_CREATE(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN,
     &    key, 0, ierr)
      call MPI_ATTR_PUT(MPI_COMM_WORLD, key, -3, ierr)
      call MPI_ATTR_GET(MPI_COMM_WORLD, key, number, flag, ierr)
      call check(flag .and. number .eq. -3, 51)
      call MPI_ATTR_DELETE(MPI_COMM_WORLD, key, ierr)
      call MPI_ATTR_GET(MPI_COMM_WORLD, key, number, flag, ierr)
      call check(.not. flag, 52)
      call MPI_KEYVAL_FREE(key, ierr)
      extra = 0
      call MPI_COMM_CREATE_KEYVAL(MPI_COMM_NULL_COPY_FN,
     &    MPI_COMM_NULL_DELETE_FN, key, extra, ierr)
      value = 7
      call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, key, value, ierr)
      call MPI_COMM_DELETE_ATTR(MPI_COMM_WORLD, key, ierr)
      call MPI_COMM_FREE_KEYVAL(key, ierr)
      call check(key .eq. MPI_KEYVAL_INVALID, 53)
      call MPI_TYPE_CREATE_KEYVAL(MPI_TYPE_DUP_FN,
     &    MPI_TYPE_NULL_DELETE_FN, key, extra, ierr)
      call MPI_TYPE_CONTIGUOUS(2, MPI_INTEGER, type, ierr)
      value = 2
      value = value ** 40
      call MPI_TYPE_SET_ATTR(type, key, value, ierr)
      call MPI_TYPE_DUP(type, other, ierr)
      extra = 0
      call MPI_TYPE_GET_ATTR(other, key, extra, flag, ierr)
      call check(flag .and. extra .eq. value, 54)
      call MPI_TYPE_DELETE_ATTR(type, key, ierr)
      call MPI_TYPE_FREE_KEYVAL(key, ierr)
      call MPI_TYPE_FREE(type, ierr)
      call MPI_TYPE_FREE(other, ierr)
      end

      subroutine types
      implicit none
      include 'mpif.h'
#ifdef MPIF_OF_MPICH
!     MPICH's mpif.h leaves these two to the program.
      integer(kind=MPI_ADDRESS_KIND) MPI_AINT_ADD, MPI_AINT_DIFF
      external MPI_AINT_ADD, MPI_AINT_DIFF
#endif
      integer ierr, type, other, n, i, d, t, m, place
      integer lengths(2), places(2), wholes(2), parts(2), starts(2)
      integer kinds(2), whole(9)
      integer (kind=MPI_ADDRESS_KIND) lb, extent, far(2)
      lengths(1) = 1
      lengths(2) = 2
      places(1) = 0
      places(2) = 3
      far(1) = 0
      far(2) = 16
      call MPI_TYPE_INDEXED(2, lengths, places, MPI_INTEGER, type, ierr)
      call MPI_TYPE_GET_ENVELOPE(type, i, n, d, t, ierr)
      call check(t .eq. MPI_COMBINER_INDEXED .and. i .eq. 5, 61)
      call MPI_TYPE_GET_CONTENTS(type, i, n, d, whole, far, kinds,
     &    ierr)
      call check(whole(1) .eq. 2 .and. whole(5) .eq. 3, 62)
      call check(kinds(1) .eq. MPI_INTEGER, 63)
      call MPI_TYPE_EXTENT(type, n, ierr)
      call check(n .eq. 20, 64)
      call MPI_TYPE_LB(type, n, ierr)
      call MPI_TYPE_UB(type, m, ierr)
      call check(n .eq. 0 .and. m .eq. 20, 65)
      call MPI_TYPE_CREATE_RESIZED(type, far(1) - 4, far(2) + 16,
     &    other, ierr)
      call MPI_TYPE_GET_EXTENT_X(other, lb, extent, ierr)
      call check(lb .eq. -4 .and. extent .eq. 32, 66)
      call MPI_TYPE_GET_TRUE_EXTENT(other, lb, extent, ierr)
      call check(lb .eq. 0 .and. extent .eq. 20, 67)
      call MPI_TYPE_GET_TRUE_EXTENT_X(other, lb, extent, ierr)
      call check(lb .eq. 0 .and. extent .eq. 20, 68)
      call MPI_TYPE_SIZE_X(other, lb, ierr)
      call check(lb .eq. 12, 69)
      call MPI_TYPE_FREE(type, ierr)
      call MPI_TYPE_FREE(other, ierr)
      wholes(1) = 4
      wholes(2) = 4
      parts(1) = 2
      parts(2) = 2
      starts(1) = 1
      starts(2) = 1
      call MPI_TYPE_CREATE_SUBARRAY(2, wholes, parts, starts,
     &    MPI_ORDER_FORTRAN, MPI_INTEGER, type, ierr)
      call MPI_TYPE_GET_TRUE_EXTENT(type, lb, extent, ierr)
      call check(lb .eq. 20 .and. extent .eq. 24, 70)
      call MPI_TYPE_FREE(type, ierr)
      lengths(1) = MPI_DISTRIBUTE_BLOCK
      places(1) = MPI_DISTRIBUTE_DFLT_DARG
      parts(1) = 2
      call MPI_TYPE_CREATE_DARRAY(2, 1, 1, wholes, lengths, places,
     &    parts, MPI_ORDER_FORTRAN, MPI_INTEGER, type, ierr)
      call MPI_TYPE_SIZE(type, n, ierr)
      call check(n .eq. 8, 71)
      call MPI_TYPE_FREE(type, ierr)
      call MPI_ADDRESS(place, n, ierr)
      lb = 100
      extent = 40
      call check(MPI_AINT_ADD(lb, extent) .eq. 140, 72)
      call check(MPI_AINT_DIFF(lb, extent) .eq. 60, 73)
      end

      subroutine sparse
      implicit none
      include 'mpif.h'
      integer ierr, type, n, lengths(2), near(2), kinds(2)
      integer (kind=MPI_ADDRESS_KIND) far(2), stride
      lengths(1) = 1
      lengths(2) = 2
      near(1) = 0
      near(2) = 16
      far(1) = 0
      far(2) = 16
      kinds(1) = MPI_INTEGER
      kinds(2) = MPI_DOUBLE_PRECISION
      stride = 12
      call MPI_TYPE_CREATE_HINDEXED(2, lengths, far, MPI_INTEGER, type,
     &    ierr)
      call extent(type, 24, 81)
      call MPI_TYPE_CREATE_HINDEXED_BLOCK(2, 2, far, MPI_INTEGER, type,
     &    ierr)
      call extent(type, 24, 82)
      call MPI_TYPE_CREATE_HVECTOR(3, 1, stride, MPI_INTEGER, type,
     &    ierr)
      call extent(type, 28, 83)
      call MPI_TYPE_CREATE_INDEXED_BLOCK(2, 2, near, MPI_INTEGER, type,
     &    ierr)
      call extent(type, 72, 84)
      call MPI_TYPE_HINDEXED(2, lengths, near, MPI_INTEGER, type, ierr)
      call extent(type, 24, 85)
      call MPI_TYPE_HVECTOR(3, 1, 12, MPI_INTEGER, type, ierr)
      call extent(type, 28, 86)
      call MPI_TYPE_STRUCT(2, lengths, near, kinds, type, ierr)
      call extent(type, 32, 87)
      call MPI_TYPE_MATCH_SIZE(MPI_TYPECLASS_REAL, 8, type, ierr)
      call MPI_TYPE_SIZE(type, n, ierr)
      call check(n .eq. 8, 88)
      end

      subroutine extent(type, wanted, number)
      implicit none
      include 'mpif.h'
      integer type, wanted, number, ierr, n
      call MPI_TYPE_EXTENT(type, n, ierr)
      call check(n .eq. wanted, number)
      call MPI_TYPE_FREE(type, ierr)
      end

      subroutine f90
      implicit none
      include 'mpif.h'
      integer ierr, type, n
      call MPI_TYPE_CREATE_F90_REAL(12, 100, type, ierr)
      call MPI_TYPE_SIZE(type, n, ierr)
      call check(n .eq. 8, 91)
      call MPI_TYPE_CREATE_F90_COMPLEX(12, 100, type, ierr)
      call MPI_TYPE_SIZE(type, n, ierr)
      call check(n .eq. 16, 92)
      call MPI_TYPE_CREATE_F90_INTEGER(12, type, ierr)
      call MPI_TYPE_SIZE(type, n, ierr)
      call check(n .eq. 8, 93)
      end

      subroutine packing
      implicit none
      include 'mpif.h'
      integer ierr, at, n, in(3), out(3)
      integer (kind=MPI_ADDRESS_KIND) room, place
      character bytes(100)
      in(1) = 5
      in(2) = 6
      in(3) = 7
      call MPI_PACK_SIZE(3, MPI_INTEGER, MPI_COMM_WORLD, n, ierr)
      call check(n .ge. 12 .and. n .le. 100, 101)
      at = 0
      call MPI_PACK(in, 3, MPI_INTEGER, bytes, 100, at, MPI_COMM_WORLD,
     &    ierr)
      at = 0
      call MPI_UNPACK(bytes, 100, at, out, 3, MPI_INTEGER,
     &    MPI_COMM_WORLD, ierr)
      call check(at .eq. 12 .and. out(3) .eq. 7, 102)
      call MPI_PACK_EXTERNAL_SIZE('external32', 3, MPI_INTEGER, room,
     &    ierr)
      call check(room .eq. 12, 103)
      place = 0
      room = 100
      call MPI_PACK_EXTERNAL('external32', in, 3, MPI_INTEGER, bytes,
     &    room, place, ierr)
      call check(ichar(bytes(4)) .eq. 5, 104)
      place = 0
      out(1) = 0
      call MPI_UNPACK_EXTERNAL('external32', bytes, room, place, out, 3,
     &    MPI_INTEGER, ierr)
      call check(out(1) .eq. 5 .and. place .eq. 12, 105)
      end

      subroutine elements(rank)
      implicit none
      include 'mpif.h'
      integer rank, ierr, n, type, out(3), in(4)
      integer status(MPI_STATUS_SIZE)
      integer (kind=MPI_COUNT_KIND) many
      call MPI_TYPE_CONTIGUOUS(2, MPI_INTEGER, type, ierr)
      call MPI_TYPE_COMMIT(type, ierr)
      call MPI_SENDRECV(out, 3, MPI_INTEGER, 0, 1, in, 2, type, 0, 1,
     &    MPI_COMM_SELF, status, ierr)
      call MPI_GET_ELEMENTS(status, type, n, ierr)
      call check(n .eq. 3, 111)
      call MPI_GET_ELEMENTS_X(status, type, many, ierr)
      call check(many .eq. 3, 112)
      call MPI_STATUS_SET_ELEMENTS(status, MPI_INTEGER, 9, ierr)
      call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
      call check(n .eq. 9, 113)
      many = 11
      call MPI_STATUS_SET_ELEMENTS_X(status, MPI_INTEGER, many, ierr)
      call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
      call check(n .eq. 11, 114)
      call MPI_RECV(in, 1, MPI_INTEGER, MPI_PROC_NULL, 0,
     &    MPI_COMM_WORLD, status, ierr)
      call check(status(MPI_SOURCE) .eq. MPI_PROC_NULL, 115)
      call MPI_TYPE_FREE(type, ierr)
      end

      subroutine hints
      implicit none
      include 'mpif.h'
      integer ierr, info, copy, n
      character*(MPI_MAX_INFO_KEY) key
      logical flag
      call MPI_INFO_CREATE(info, ierr)
      call MPI_INFO_SET(info, 'one', 'first', ierr)
      call MPI_INFO_SET(info, 'two', 'second', ierr)
      call MPI_INFO_DUP(info, copy, ierr)
      call MPI_INFO_DELETE(info, 'one', ierr)
      call MPI_INFO_GET_NKEYS(info, n, ierr)
      call check(n .eq. 1, 121)
      call MPI_INFO_GET_NTHKEY(copy, 0, key, ierr)
      call check(key .eq. 'one', 122)
      call MPI_INFO_GET_VALUELEN(copy, 'two', n, flag, ierr)
      call check(flag .and. n .eq. 6, 123)
      call MPI_INFO_FREE(info, ierr)
      call MPI_INFO_FREE(copy, ierr)
      end

      subroutine memory
      implicit none
      include 'mpif.h'
      integer ierr
      integer (kind=MPI_ADDRESS_KIND) bytes
      integer numbers(1000)
      pointer (where, numbers)
      bytes = 4000
      call MPI_ALLOC_MEM(bytes, MPI_INFO_NULL, where, ierr)
      numbers(1000) = 3
      call MPI_F_SYNC_REG(numbers)
      call handed(MPI_CONVERSION_FN_NULL)
      call check(numbers(1000) .eq. 3, 131)
      call MPI_FREE_MEM(numbers, ierr)
      call check(ierr .eq. MPI_SUCCESS, 132)
      end

      subroutine handed(fn)
      implicit none
      include 'mpif.h'
      external fn
      integer ierr
      integer (kind=MPI_OFFSET_KIND) position
      integer (kind=MPI_ADDRESS_KIND) extra
      position = 0
      extra = 0
      ierr = MPI_SUCCESS
      call fn(ierr, MPI_INTEGER, 0, ierr, position, extra, ierr)
      call check(ierr .ne. MPI_SUCCESS, 133)
      end

      subroutine check(good, number)
      implicit none
      include 'mpif.h'
      logical good
      integer number, ierr
      if (good) return
      print *, 'check', number, 'failed'
      call MPI_ABORT(MPI_COMM_WORLD, 3, ierr)
      end
