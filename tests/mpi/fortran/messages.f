C     Messages and collectives of the Fortran set: every mode, persistent
C     and matched ones, probes, tests, and every blocking collective.
      program messages
      implicit none
      include 'mpif.h'
      integer ierr, rank, size
      call MPI_INIT_THREAD(MPI_THREAD_MULTIPLE, rank, ierr)
      call check(rank .eq. MPI_THREAD_MULTIPLE, 1)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
      call level
      call modes(rank, size)
      call persistent(rank, size)
      call probes(rank, size)
      call tests(rank, size)
      call gathers(rank, size)
      call reductions(rank, size)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      if (rank .eq. 0) print *, 'messages: good'
      call MPI_FINALIZE(ierr)
      end

      subroutine level
      implicit none
      include 'mpif.h'
      integer ierr, n
      logical flag
      character*(MPI_MAX_LIBRARY_VERSION_STRING) version
      call MPI_QUERY_THREAD(n, ierr)
      call check(n .eq. MPI_THREAD_MULTIPLE, 2)
      call MPI_IS_THREAD_MAIN(flag, ierr)
      call check(flag, 3)
      call MPI_FINALIZED(flag, ierr)
      call check(.not. flag, 4)
      call MPI_GET_LIBRARY_VERSION(version, n, ierr)
      call check(version(1:7) .eq. 'Viaduct', 5)
      call MPI_PCONTROL(1)
      end

      subroutine modes(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, next, before, request, i, n
      integer out, in(6), back(6), status(MPI_STATUS_SIZE)
      character room(20000)
      common /attached/ room
      next = mod(rank + 1, size)
      before = mod(rank + size - 1, size)
      out = rank + 7
      call MPI_BUFFER_ATTACH(room, 20000, ierr)
      do i = 1, 6
        in(i) = -1
        call MPI_IRECV(in(i), 1, MPI_INTEGER, before, 10 + i,
     &      MPI_COMM_WORLD, back(i), ierr)
      end do
C     Ready sends find their receives.
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_BSEND(out, 1, MPI_INTEGER, next, 11, MPI_COMM_WORLD,
     &    ierr)
      call MPI_RSEND(out, 1, MPI_INTEGER, next, 12, MPI_COMM_WORLD,
     &    ierr)
      call MPI_SSEND(out, 1, MPI_INTEGER, next, 13, MPI_COMM_WORLD,
     &    ierr)
      call MPI_IBSEND(out, 1, MPI_INTEGER, next, 14, MPI_COMM_WORLD,
     &    request, ierr)
      call MPI_WAIT(request, MPI_STATUS_IGNORE, ierr)
      call MPI_IRSEND(out, 1, MPI_INTEGER, next, 15, MPI_COMM_WORLD,
     &    request, ierr)
      call MPI_WAIT(request, MPI_STATUS_IGNORE, ierr)
      call MPI_ISSEND(out, 1, MPI_INTEGER, next, 16, MPI_COMM_WORLD,
     &    request, ierr)
      call MPI_WAIT(request, status, ierr)
      do i = 1, 6
        call MPI_WAIT(back(i), status, ierr)
        call check(in(i) .eq. before + 7, 10 + i)
      end do
      do i = 1, 8
        room(i) = 'x'
      end do
      call MPI_BUFFER_DETACH(room, n, ierr)
      call check(n .eq. 20000 .and. room(1) .eq. 'x', 17)
      call check(room(8) .eq. 'x', 17)
      n = rank
      call MPI_SENDRECV_REPLACE(n, 1, MPI_INTEGER, next, 18, before, 18,
     &    MPI_COMM_WORLD, status, ierr)
      call check(n .eq. before, 18)
      end

      subroutine persistent(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, next, before, round, i
      integer all(5), out, in, statuses(MPI_STATUS_SIZE, 5)
      character room(20000)
      common /attached/ room
      next = mod(rank + 1, size)
      before = mod(rank + size - 1, size)
      call MPI_BUFFER_ATTACH(room, 20000, ierr)
      call MPI_SEND_INIT(out, 1, MPI_INTEGER, next, 21, MPI_COMM_WORLD,
     &    all(1), ierr)
      call MPI_SSEND_INIT(out, 1, MPI_INTEGER, next, 22,
     &    MPI_COMM_WORLD, all(2), ierr)
      call MPI_BSEND_INIT(out, 1, MPI_INTEGER, next, 23,
     &    MPI_COMM_WORLD, all(3), ierr)
      call MPI_RSEND_INIT(out, 1, MPI_INTEGER, next, 24,
     &    MPI_COMM_WORLD, all(4), ierr)
      do round = 1, 3
        out = rank * 10 + round
        do i = 21, 24
          call MPI_RECV_INIT(in, 1, MPI_INTEGER, before, i,
     &        MPI_COMM_WORLD, all(5), ierr)
          call MPI_START(all(5), ierr)
          call MPI_BARRIER(MPI_COMM_WORLD, ierr)
          call MPI_STARTALL(1, all(i - 20), ierr)
          call MPI_WAIT(all(5), MPI_STATUS_IGNORE, ierr)
          call check(in .eq. before * 10 + round, i)
          call MPI_REQUEST_FREE(all(5), ierr)
        end do
        call MPI_WAITALL(4, all, statuses, ierr)
      end do
      do i = 1, 4
        call MPI_REQUEST_FREE(all(i), ierr)
        call check(all(i) .eq. MPI_REQUEST_NULL, 25)
      end do
      call MPI_BUFFER_DETACH(room, i, ierr)
      end

      subroutine probes(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, next, before, out(3), in(3), n
      integer status(MPI_STATUS_SIZE), message, request
      logical flag
      next = mod(rank + 1, size)
      before = mod(rank + size - 1, size)
      out(3) = rank
      call MPI_ISEND(out, 3, MPI_INTEGER, next, 31, MPI_COMM_WORLD,
     &    request, ierr)
      call MPI_PROBE(before, 31, MPI_COMM_WORLD, status, ierr)
      call MPI_GET_COUNT(status, MPI_INTEGER, n, ierr)
      call check(n .eq. 3, 31)
      call MPI_IPROBE(before, 31, MPI_COMM_WORLD, flag, status, ierr)
      call check(flag, 32)
      call MPI_MPROBE(before, 31, MPI_COMM_WORLD, message, status,
     &    ierr)
      call MPI_IPROBE(before, 31, MPI_COMM_WORLD, flag,
     &    MPI_STATUS_IGNORE, ierr)
      call check(.not. flag, 33)
      call MPI_MRECV(in, 3, MPI_INTEGER, message, status, ierr)
      call check(in(3) .eq. before, 34)
      call check(message .eq. MPI_MESSAGE_NULL, 35)
      call MPI_WAIT(request, MPI_STATUS_IGNORE, ierr)
      call MPI_ISEND(out, 3, MPI_INTEGER, next, 32, MPI_COMM_WORLD,
     &    request, ierr)
      flag = .false.
      do while (.not. flag)
        call MPI_IMPROBE(MPI_ANY_SOURCE, 32, MPI_COMM_WORLD, flag,
     &      message, status, ierr)
      end do
      call MPI_IMRECV(in, 3, MPI_INTEGER, message, n, ierr)
      call MPI_WAIT(n, status, ierr)
      call check(status(MPI_SOURCE) .eq. before, 36)
      call MPI_WAIT(request, MPI_STATUS_IGNORE, ierr)
      end

      subroutine tests(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, next, before, out, in(2), all(2)
      integer n, indices(2), done, status(MPI_STATUS_SIZE)
      integer statuses(MPI_STATUS_SIZE, 2)
      logical flag
      next = mod(rank + 1, size)
      before = mod(rank + size - 1, size)
      call MPI_IRECV(in, 1, MPI_INTEGER, before, 41, MPI_COMM_WORLD,
     &    all(1), ierr)
      call MPI_CANCEL(all(1), ierr)
      call MPI_WAIT(all(1), status, ierr)
      call MPI_TEST_CANCELLED(status, flag, ierr)
      call check(flag, 41)
      call MPI_STATUS_SET_CANCELLED(status, .false., ierr)
      call MPI_TEST_CANCELLED(status, flag, ierr)
      call check(.not. flag, 42)
      out = rank
      call start(in, all, before)
      call MPI_TEST(all(1), flag, status, ierr)
      call check(.not. flag, 43)
      call MPI_TESTALL(2, all, flag, statuses, ierr)
      call check(.not. flag, 44)
      call MPI_TESTANY(2, all, n, flag, status, ierr)
      call check(.not. flag, 45)
      call MPI_TESTSOME(2, all, n, indices, statuses, ierr)
      call check(n .eq. 0, 46)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_SEND(out, 1, MPI_INTEGER, next, 43, MPI_COMM_WORLD, ierr)
      flag = .false.
      do while (.not. flag)
        call MPI_TESTANY(2, all, n, flag, status, ierr)
      end do
      call check(n .eq. 2 .and. in(2) .eq. before, 47)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_SEND(out, 1, MPI_INTEGER, next, 42, MPI_COMM_WORLD, ierr)
      flag = .false.
      do while (.not. flag)
        call MPI_REQUEST_GET_STATUS(all(1), flag, status, ierr)
      end do
      call MPI_TESTSOME(2, all, done, indices, MPI_STATUSES_IGNORE,
     &    ierr)
      call check(done .eq. 1 .and. indices(1) .eq. 1, 48)
      call MPI_TESTALL(2, all, flag, MPI_STATUSES_IGNORE, ierr)
      call check(flag, 49)
      end

      subroutine start(in, all, before)
      implicit none
      include 'mpif.h'
      integer in(2), all(2), before, i, ierr
      do i = 1, 2
        call MPI_IRECV(in(i), 1, MPI_INTEGER, before, 41 + i,
     &      MPI_COMM_WORLD, all(i), ierr)
      end do
      end

      subroutine gathers(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, i, n
      integer out(40), in(40), counts(40), places(40), types(40)
      do i = 1, size
        out(i) = rank * 100 + i
        counts(i) = 1
        places(i) = size - i
        types(i) = MPI_INTEGER
      end do
      call MPI_GATHER(rank, 1, MPI_INTEGER, in, 1, MPI_INTEGER, 0,
     &    MPI_COMM_WORLD, ierr)
      if (rank .eq. 0) call check(in(size) .eq. size - 1, 51)
      call MPI_GATHERV(rank, 1, MPI_INTEGER, in, counts, places,
     &    MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      if (rank .eq. 0) call check(in(1) .eq. size - 1, 52)
      call MPI_SCATTER(out, 1, MPI_INTEGER, n, 1, MPI_INTEGER, 0,
     &    MPI_COMM_WORLD, ierr)
      call check(n .eq. rank + 1, 53)
      call MPI_SCATTERV(out, counts, places, MPI_INTEGER, n, 1,
     &    MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      call check(n .eq. size - rank, 54)
      call MPI_ALLGATHER(rank, 1, MPI_INTEGER, in, 1, MPI_INTEGER,
     &    MPI_COMM_WORLD, ierr)
      call check(in(size) .eq. size - 1 .and. in(1) .eq. 0, 55)
      call MPI_ALLGATHERV(rank, 1, MPI_INTEGER, in, counts, places,
     &    MPI_INTEGER, MPI_COMM_WORLD, ierr)
      call check(in(1) .eq. size - 1 .and. in(size) .eq. 0, 56)
      call MPI_ALLTOALL(out, 1, MPI_INTEGER, in, 1, MPI_INTEGER,
     &    MPI_COMM_WORLD, ierr)
      call check(in(size) .eq. (size - 1) * 100 + rank + 1, 57)
      call MPI_ALLTOALLV(out, counts, places, MPI_INTEGER, in, counts,
     &    places, MPI_INTEGER, MPI_COMM_WORLD, ierr)
      call check(in(1) .eq. (size - 1) * 100 + size - rank, 58)
      do i = 1, size
        places(i) = (i - 1) * 4
      end do
      call MPI_ALLTOALLW(out, counts, places, types, in, counts,
     &    places, types, MPI_COMM_WORLD, ierr)
      call check(in(size) .eq. (size - 1) * 100 + rank + 1, 59)
      end

      subroutine reductions(rank, size)
      implicit none
      include 'mpif.h'
      integer rank, size, ierr, i, n, out(40), counts(40)
      logical flag
      do i = 1, size
        out(i) = i
        counts(i) = 1
      end do
      call MPI_REDUCE_SCATTER(out, n, counts, MPI_INTEGER, MPI_SUM,
     &    MPI_COMM_WORLD, ierr)
      call check(n .eq. (rank + 1) * size, 61)
      call MPI_REDUCE_SCATTER_BLOCK(out, n, 1, MPI_INTEGER, MPI_SUM,
     &    MPI_COMM_WORLD, ierr)
      call check(n .eq. (rank + 1) * size, 62)
      call MPI_SCAN(rank, n, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD,
     &    ierr)
      call check(n .eq. rank * (rank + 1) / 2, 63)
      n = 0
      call MPI_EXSCAN(rank, n, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD,
     &    ierr)
      if (rank .gt. 0) call check(n .eq. rank * (rank - 1) / 2, 64)
      n = 5
      call MPI_REDUCE_LOCAL(rank, n, 1, MPI_INTEGER, MPI_SUM, ierr)
      call check(n .eq. rank + 5, 65)
      call MPI_OP_COMMUTATIVE(MPI_SUM, flag, ierr)
      call check(flag, 66)
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
