C     The Fortran set: marks by address, text with blanks, indices from
C     one, callbacks, and the calls that NAS programs make.
      program set
      implicit none
      include 'mpif.h'
      integer ierr, rank, size, next, before, n, i, key, copies
      integer status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
      integer requests(2), indices(2), some, idx
      integer data(4), got(4), total, type, comm, op, info, group
      integer dims(2), coords(2), cart, version, subversion, class
      integer (kind=MPI_ADDRESS_KIND) extra, value, lb, extent
      integer (kind=MPI_ADDRESS_KIND) place(1)
      integer lengths(1), types(1)
      logical flag, periods(2)
      double precision start, x, y
      character*20 name
      character*(MPI_MAX_PROCESSOR_NAME) host
      character*(MPI_MAX_ERROR_STRING) text
      external twice, copying
      common /counted/ copies

      copies = 0
      call MPI_INITIALIZED(flag, ierr)
      call check(.not. flag, 1)
      call MPI_INIT(ierr)
      call check(ierr .eq. MPI_SUCCESS, 2)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
      next = mod(rank + 1, size)
      before = mod(rank + size - 1, size)
      call MPI_GET_VERSION(version, subversion, ierr)
      call check(version .eq. 3, 3)
      start = MPI_WTIME()
      call check(MPI_WTICK() .gt. 0.0d0, 4)
      call MPI_GET_PROCESSOR_NAME(host, n, ierr)
      call check(n .gt. 0 .and. host(n+1:n+1) .eq. ' ', 5)

C     Messages, with and without a status.
      do i = 1, 4
        data(i) = rank * 10 + i
      end do
      call MPI_SENDRECV(data, 4, MPI_INTEGER, next, 1, got, 4,
     &    MPI_INTEGER, before, 1, MPI_COMM_WORLD, status, ierr)
      call check(got(4) .eq. before * 10 + 4, 6)
      call check(status(MPI_SOURCE) .eq. before, 7)
      call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
      call check(n .eq. 4, 8)
      call MPI_IRECV(got(1), 1, MPI_INTEGER, before, 2, MPI_COMM_WORLD,
     &    requests(1), ierr)
      call MPI_IRECV(got(2), 1, MPI_INTEGER, before, 3, MPI_COMM_WORLD,
     &    requests(2), ierr)
      call MPI_SEND(data(2), 1, MPI_INTEGER, next, 3, MPI_COMM_WORLD,
     &    ierr)
      call MPI_WAITANY(2, requests, idx, MPI_STATUS_IGNORE, ierr)
      call check(idx .eq. 2 .and. got(2) .eq. before * 10 + 2, 9)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_SEND(data(1), 1, MPI_INTEGER, next, 2, MPI_COMM_WORLD,
     &    ierr)
      call MPI_WAITSOME(2, requests, some, indices, statuses, ierr)
      call check(some .eq. 1 .and. indices(1) .eq. 1, 10)
      call check(statuses(MPI_TAG, 1) .eq. 2, 11)
      call MPI_IRECV(got, 4, MPI_INTEGER, before, 4, MPI_COMM_WORLD,
     &    requests(1), ierr)
      call MPI_ISEND(data, 4, MPI_INTEGER, next, 4, MPI_COMM_WORLD,
     &    requests(2), ierr)
      call MPI_WAITALL(2, requests, MPI_STATUSES_IGNORE, ierr)
      call check(requests(1) .eq. MPI_REQUEST_NULL, 12)

C     Collectives, in place.
      n = rank + 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, n, 1, MPI_INTEGER, MPI_SUM,
     &    MPI_COMM_WORLD, ierr)
      call check(n .eq. size * (size + 1) / 2, 13)
      x = dble(rank)
      call MPI_REDUCE(x, y, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0,
     &    MPI_COMM_WORLD, ierr)
      if (rank .eq. 0) call check(y .eq. dble(size - 1), 14)
      call MPI_BCAST(y, 1, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD,
     &    ierr)
      call check(y .eq. dble(size - 1), 15)
      call MPI_OP_CREATE(twice, .true., op, ierr)
      total = 0
      call MPI_ALLREDUCE(rank, total, 1, MPI_INTEGER, op,
     &    MPI_COMM_WORLD, ierr)
      call check(total .eq. size * (size - 1) / 2, 16)
      call MPI_OP_FREE(op, ierr)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)

C     Absolute addresses at MPI_BOTTOM.
      call MPI_GET_ADDRESS(data, place(1), ierr)
      lengths(1) = 4
      types(1) = MPI_INTEGER
      call MPI_TYPE_CREATE_STRUCT(1, lengths, place, types, type, ierr)
      call MPI_TYPE_COMMIT(type, ierr)
      got(4) = 0
      call MPI_SENDRECV(MPI_BOTTOM, 1, type, next, 5, got, 4,
     &    MPI_INTEGER, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE,
     &    ierr)
      call check(got(4) .eq. before * 10 + 4, 17)
      call MPI_TYPE_FREE(type, ierr)
      call MPI_TYPE_VECTOR(2, 1, 3, MPI_DOUBLE_PRECISION, type, ierr)
      call MPI_TYPE_GET_EXTENT(type, lb, extent, ierr)
      call check(lb .eq. 0 .and. extent .eq. 32, 18)
      call MPI_TYPE_SIZE(type, n, ierr)
      call check(n .eq. 16, 19)

C     Text.
      call MPI_TYPE_SET_NAME(type, 'two of three  ', ierr)
      call MPI_TYPE_GET_NAME(type, name, n, ierr)
      call check(n .eq. 12 .and. name .eq. 'two of three', 20)
      call MPI_TYPE_FREE(type, ierr)
      call MPI_INFO_CREATE(info, ierr)
      call MPI_INFO_SET(info, 'key ', 'value  ', ierr)
      name = 'x'
      call MPI_INFO_GET(info, 'none', 20, name, flag, ierr)
      call check(.not. flag .and. name .eq. 'x', 21)
      call MPI_INFO_GET(info, 'key', 20, name, flag, ierr)
      call check(flag .and. name .eq. 'value', 22)
      call MPI_INFO_FREE(info, ierr)

C     Attributes.
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, MPI_TAG_UB, value, flag,
     &    ierr)
      call check(flag .and. value .ge. 32767, 23)
      extra = 5
      call MPI_COMM_CREATE_KEYVAL(copying, MPI_COMM_NULL_DELETE_FN,
     &    key, extra, ierr)
      value = 100
      call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, key, value, ierr)
      call MPI_COMM_DUP(MPI_COMM_WORLD, comm, ierr)
      value = 0
      call MPI_COMM_GET_ATTR(comm, key, value, flag, ierr)
      call check(flag .and. value .eq. 105 .and. copies .eq. 1, 24)
      call MPI_COMM_FREE(comm, ierr)
      call check(comm .eq. MPI_COMM_NULL, 25)

C     Communicators, groups, grids.
      call MPI_COMM_SPLIT(MPI_COMM_WORLD, mod(rank, 2), rank, comm,
     &    ierr)
      call MPI_COMM_RANK(comm, n, ierr)
      call check(n .eq. rank / 2, 26)
      call MPI_COMM_GROUP(comm, group, ierr)
      call MPI_GROUP_RANK(group, i, ierr)
      call check(i .eq. n, 27)
      call MPI_GROUP_FREE(group, ierr)
      call MPI_COMM_FREE(comm, ierr)
      dims(1) = 0
      dims(2) = 0
      periods(1) = .true.
      periods(2) = .false.
      call MPI_DIMS_CREATE(size, 2, dims, ierr)
      call MPI_CART_CREATE(MPI_COMM_WORLD, 2, dims, periods, .false.,
     &    cart, ierr)
      periods(1) = .false.
      call MPI_CART_GET(cart, 2, dims, periods, coords, ierr)
      call check(periods(1) .and. .not. periods(2), 28)
      call MPI_CART_RANK(cart, coords, n, ierr)
      call check(n .eq. rank, 29)

C     Errors.
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, MPI_ERRORS_RETURN,
     &    ierr)
      call MPI_SEND(data, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, ierr)
      call MPI_ERROR_CLASS(ierr, class, n)
      call check(class .eq. MPI_ERR_RANK, 30)
      call MPI_ERROR_STRING(ierr, text, n, i)
      call check(index(text, 'MPI_Send') .gt. 0, 31)
      call MPI_IBARRIER(MPI_COMM_WORLD, requests(1), ierr)
      call MPI_ERROR_CLASS(ierr, class, n)
      call check(class .eq. MPI_ERR_UNSUPPORTED_OPERATION, 32)
      call check(MPI_WTIME() .ge. start, 33)
      if (rank .eq. 0) print *, 'fortran: good'
      call MPI_FINALIZE(ierr)
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

      subroutine twice(in, inout, count, type)
      implicit none
      integer count, in(count), inout(count), type, i
      do i = 1, count
        inout(i) = inout(i) + in(i)
      end do
      end

      subroutine copying(comm, key, extra, in, out, flag, ierr)
      implicit none
      include 'mpif.h'
      integer comm, key, ierr, copies
      integer (kind=MPI_ADDRESS_KIND) extra, in, out
      logical flag
      common /counted/ copies
      copies = copies + 1
      out = in + extra
      flag = .true.
      ierr = MPI_SUCCESS
      end
