//! Collective operations: each plans its schedule from the arguments of the call, and runs it.
//!
//! Where a buffer is an `Option`, none stands for `MPI_IN_PLACE`, or for one that this rank's call does not look at.

use super::World;
use super::comm::Comm;
use super::mark::Terms;
use super::run::{Memory, Name, Stage};
use crate::coll::{self, Chunk, Data, Kind, Limits, Me, Schedule};
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::op::{self, Op};
use crate::raw::Span;

/// A reduction.
pub enum Operation {
    /// One of the standard's.
    Predefined(Op),
    /// One of the program's.
    User {
        /// Whether operands may change places.
        commutes: bool,
        /// `call(from, into, count)` computes `into = from op into`.
        call: Call,
    },
}

/// A reduction of the program's: operands and how many elements they have.
pub struct Call(Box<dyn Fn(*const u8, *mut u8, usize) + Send + Sync>);

impl Call {
    pub(super) fn run(&self, from: *const u8, into: *mut u8, count: usize) {
        (self.0)(from, into, count);
    }
}

impl Operation {
    /// One of the standard's.
    pub fn predefined(op: Op) -> Operation {
        Operation::Predefined(op)
    }

    /// One of the program's.
    pub fn user(commutes: bool, call: Box<dyn Fn(*const u8, *mut u8, usize) + Send + Sync>) -> Operation {
        Operation::User { commutes, call: Call(call) }
    }

    fn commutes(&self) -> bool {
        match self {
            Operation::Predefined(_) => true,
            Operation::User { commutes, .. } => *commutes,
        }
    }

    fn check(&self, kind: &Datatype) -> Result<()> {
        match self {
            Operation::Predefined(op) => op::check(*op, kind),
            Operation::User { .. } => Ok(()),
        }
    }
}

/// Buffers of `MPI_Alltoallw`: a part for each rank.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The address; its count and type are not looked at.
    pub base: &'a Span,
    /// Elements for each rank.
    pub counts: &'a [i32],
    /// Displacements in bytes.
    pub displs: &'a [i32],
    /// Types.
    pub kinds: &'a [Datatype],
}

impl World {
    /// Waits for all processes.
    ///
    /// # Errors
    /// As every collective operation: if a process is gone, or the processes are in different operations.
    pub fn barrier(&self, comm: &Comm) -> Result<()> {
        if let Some(done) = self.short_barrier(comm) {
            return done;
        }
        let nothing = Span::empty();
        let memory = Memory { send: &nothing, recv: &nothing, kinds: None };
        self.run(&Stage::next(comm, Terms::of(Name::Barrier)), &coll::barrier(me(comm)), &memory, None)
    }

    /// All processes get the root's message.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier), and for a root that is none.
    pub fn bcast(&self, span: &Span, root: i32, comm: &Comm) -> Result<()> {
        let root = root_of(root, comm)?;
        if let Some(done) = self.short_bcast(span, root, comm) {
            return done;
        }
        // In bytes, since the types of the ranks may differ as long as the bytes agree.
        let (bytes, packed) = match span.as_bytes() {
            Some(bytes) => (bytes, false),
            None => (span.packed(), true),
        };
        let schedule = coll::bcast(me(comm), root, data(&bytes), &limits());
        let memory = Memory { send: &bytes, recv: &bytes, kinds: None };
        let terms = Terms::of(Name::Bcast).root(root).bytes(bytes.bytes());
        self.run(&Stage::next(comm, terms), &schedule, &memory, None)?;
        if packed && comm.rank() as usize != root {
            bytes.copy_to(span, span.bytes());
        }
        Ok(())
    }

    /// The root gets a part from each process.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn gather(&self, send: Option<&Span>, recv: Option<&Span>, root: i32, comm: &Comm) -> Result<()> {
        let root = root_of(root, comm)?;
        let any = either(send, recv)?;
        let recv = recv.unwrap_or(any);
        let schedule = coll::gather(me(comm), root, send.map(data), data(recv), &limits());
        self.run_on(comm, Terms::of(Name::Gather).root(root), &schedule, send.unwrap_or(recv), recv)
    }

    /// The root gets a part of another length from each process.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn gatherv(
        &self,
        send: Option<&Span>,
        recv: Option<(&Span, &[i32], &[i32])>,
        root: i32,
        comm: &Comm,
    ) -> Result<()> {
        let root = root_of(root, comm)?;
        let into = recv.map(|(span, ..)| span);
        let any = either(send, into)?;
        let (counts, displs) = lists(recv, comm)?;
        let schedule =
            coll::gatherv(me(comm), root, send.map(data), data(into.unwrap_or(any)), &counts, &displs);
        self.run_on(
            comm,
            Terms::of(Name::Gather).root(root),
            &schedule,
            send.unwrap_or(any),
            into.unwrap_or(any),
        )
    }

    /// Each process gets a part of the root's message.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn scatter(&self, send: Option<&Span>, recv: Option<&Span>, root: i32, comm: &Comm) -> Result<()> {
        let root = root_of(root, comm)?;
        let any = either(recv, send)?;
        let send = send.unwrap_or(any);
        let schedule = coll::scatter(me(comm), root, data(send), recv.map(data), &limits());
        self.run_on(comm, Terms::of(Name::Scatter).root(root), &schedule, send, recv.unwrap_or(send))
    }

    /// Each process gets a part of another length of the root's message.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn scatterv(
        &self,
        send: Option<(&Span, &[i32], &[i32])>,
        recv: Option<&Span>,
        root: i32,
        comm: &Comm,
    ) -> Result<()> {
        let root = root_of(root, comm)?;
        let from = send.map(|(span, ..)| span);
        let any = either(recv, from)?;
        let (counts, displs) = lists(send, comm)?;
        let schedule =
            coll::scatterv(me(comm), root, data(from.unwrap_or(any)), recv.map(data), &counts, &displs);
        self.run_on(
            comm,
            Terms::of(Name::Scatter).root(root),
            &schedule,
            from.unwrap_or(any),
            recv.unwrap_or(any),
        )
    }

    /// All processes get a part from each process.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn allgather(&self, send: Option<&Span>, recv: &Span, comm: &Comm) -> Result<()> {
        let schedule = coll::allgather(me(comm), send.map(data), data(recv), &limits());
        self.run_on(comm, Terms::of(Name::Allgather), &schedule, send.unwrap_or(recv), recv)
    }

    /// All processes get a part of another length from each process.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn allgatherv(
        &self,
        send: Option<&Span>,
        recv: &Span,
        counts: &[i32],
        displs: &[i32],
        comm: &Comm,
    ) -> Result<()> {
        let (counts, displs) = lists(Some((recv, counts, displs)), comm)?;
        let schedule = coll::allgatherv(me(comm), send.map(data), data(recv), &counts, &displs);
        self.run_on(comm, Terms::of(Name::Allgather), &schedule, send.unwrap_or(recv), recv)
    }

    /// Each process gets a part from each process.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn alltoall(&self, send: Option<&Span>, recv: &Span, comm: &Comm) -> Result<()> {
        let schedule = coll::alltoall(me(comm), send.map(data), data(recv), &limits());
        self.run_on(comm, Terms::of(Name::Alltoall), &schedule, send.unwrap_or(recv), recv)
    }

    /// Each process gets a part of another length from each process.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn alltoallv(
        &self,
        send: Option<(&Span, &[i32], &[i32])>,
        recv: (&Span, &[i32], &[i32]),
        comm: &Comm,
    ) -> Result<()> {
        let into = lists(Some(recv), comm)?;
        let size = recv.0.kind().size();
        let from = send.map(|send| lists(Some(send), comm)).transpose()?;
        let in_extents = |(counts, displs): &(Vec<usize>, Vec<i64>), kind: &Datatype, rank: usize| {
            (displs[rank] * kind.extent(), counts[rank])
        };
        let to = |rank: usize| {
            let (at, count) = from
                .as_ref()
                .zip(send)
                .map_or((0, 0), |(lists, (span, ..))| in_extents(lists, span.kind(), rank));
            Chunk::to_rank(at, count, Kind::Send)
        };
        let back = |rank: usize| {
            let (at, count) = in_extents(&into, recv.0.kind(), rank);
            Chunk::from_rank(at, count, Kind::Recv)
        };
        let bytes = |rank: usize| into.0[rank] * size;
        let outgoing: Option<&dyn Fn(usize) -> Chunk> = if send.is_some() { Some(&to) } else { None };
        let schedule = coll::alltoallv(me(comm), outgoing, &back, &bytes);
        self.run_on(comm, Terms::of(Name::Alltoall), &schedule, send.map_or(recv.0, |send| send.0), recv.0)
    }

    /// Each process gets a part of another length and type from each process.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn alltoallw(&self, send: Option<Parts<'_>>, recv: Parts<'_>, comm: &Comm) -> Result<()> {
        recv.check(comm)?;
        send.map_or(Ok(()), |send| send.check(comm))?;
        let out = send.unwrap_or(recv);
        let to = |rank: usize| {
            Chunk::to_rank(i64::from(out.displs[rank]), out.counts[rank] as usize, Kind::SendOf(rank))
        };
        let back = |rank: usize| {
            Chunk::from_rank(i64::from(recv.displs[rank]), recv.counts[rank] as usize, Kind::RecvOf(rank))
        };
        let bytes = |rank: usize| recv.counts[rank] as usize * recv.kinds[rank].size();
        let outgoing: Option<&dyn Fn(usize) -> Chunk> = if send.is_some() { Some(&to) } else { None };
        let schedule = coll::alltoallv(me(comm), outgoing, &back, &bytes);
        let memory = Memory { send: out.base, recv: recv.base, kinds: Some((out.kinds, recv.kinds)) };
        self.run(&Stage::next(comm, Terms::of(Name::Alltoall)), &schedule, &memory, None)
    }

    /// The root gets the reduction of all processes' elements.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast), and for an operation that the type does not have.
    pub fn reduce(
        &self,
        send: Option<&Span>,
        recv: Option<&Span>,
        op: &Operation,
        root: i32,
        comm: &Comm,
    ) -> Result<()> {
        let root = root_of(root, comm)?;
        let any = either(send, recv)?;
        op.check(any.kind())?;
        if let Some(done) = self.short_reduce(any, recv.unwrap_or(any), op, root, comm) {
            return done;
        }
        let in_place = send.is_none();
        let schedule = coll::reduce(me(comm), root, data(any), in_place, op.commutes(), &limits());
        self.compute(
            comm,
            Terms::of(Name::Reduce).root(root).bytes(any.bytes()),
            &schedule,
            any,
            recv.unwrap_or(any),
            op,
        )
    }

    /// All processes get the reduction of all processes' elements.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn allreduce(&self, send: Option<&Span>, recv: &Span, op: &Operation, comm: &Comm) -> Result<()> {
        op.check(recv.kind())?;
        if let Some(done) = self.short_allreduce(send.unwrap_or(recv), recv, op, comm) {
            return done;
        }
        let schedule = coll::allreduce(me(comm), data(recv), send.is_none(), op.commutes(), &limits());
        self.compute(
            comm,
            Terms::of(Name::Allreduce).bytes(recv.bytes()),
            &schedule,
            send.unwrap_or(recv),
            recv,
            op,
        )
    }

    /// Each process gets a part of the reduction, of the length that the counts say.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn reduce_scatter(
        &self,
        send: Option<&Span>,
        recv: &Span,
        counts: &[i32],
        op: &Operation,
        comm: &Comm,
    ) -> Result<()> {
        op.check(recv.kind())?;
        let counts = naturals(counts, comm)?;
        let all = Data { count: counts.iter().sum(), kind: recv.kind() };
        let schedule = coll::reduce_scatter(me(comm), all, &counts, send.is_none(), op.commutes());
        // The parts differ in length.
        self.compute(comm, Terms::of(Name::ReduceScatter), &schedule, send.unwrap_or(recv), recv, op)
    }

    /// Each process gets a part of the reduction, all of one length.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn reduce_scatter_block(
        &self,
        send: Option<&Span>,
        recv: &Span,
        op: &Operation,
        comm: &Comm,
    ) -> Result<()> {
        let counts = vec![recv.count() as i32; comm.size() as usize];
        self.reduce_scatter(send, recv, &counts, op, comm)
    }

    /// Each process gets the reduction of the elements of the processes up to itself.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn scan(&self, send: Option<&Span>, recv: &Span, op: &Operation, comm: &Comm) -> Result<()> {
        op.check(recv.kind())?;
        let schedule = coll::scan(me(comm), data(recv), send.is_none());
        self.compute(
            comm,
            Terms::of(Name::Scan).bytes(recv.bytes()),
            &schedule,
            send.unwrap_or(recv),
            recv,
            op,
        )
    }

    /// Each process gets the reduction of the elements of the processes before itself.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn exscan(&self, send: Option<&Span>, recv: &Span, op: &Operation, comm: &Comm) -> Result<()> {
        op.check(recv.kind())?;
        let schedule = coll::exscan(me(comm), data(recv), send.is_none());
        self.compute(
            comm,
            Terms::of(Name::Exscan).bytes(recv.bytes()),
            &schedule,
            send.unwrap_or(recv),
            recv,
            op,
        )
    }

    /// `into = from op into`, in this process alone.
    ///
    /// # Errors
    /// For an operation that the type does not have.
    pub fn reduce_local(&self, from: &Span, into: &Span, op: &Operation) -> Result<()> {
        op.check(into.kind())?;
        op.combine(from, into)
    }

    fn run_on(&self, comm: &Comm, terms: Terms, schedule: &Schedule, send: &Span, recv: &Span) -> Result<()> {
        self.run(&Stage::next(comm, terms), schedule, &Memory { send, recv, kinds: None }, None)
    }

    fn compute(
        &self,
        comm: &Comm,
        terms: Terms,
        schedule: &Schedule,
        send: &Span,
        recv: &Span,
        op: &Operation,
    ) -> Result<()> {
        self.run(&Stage::next(comm, terms.op(op)), schedule, &Memory { send, recv, kinds: None }, Some(op))
    }
}

impl Parts<'_> {
    fn check(&self, comm: &Comm) -> Result<()> {
        naturals(self.counts, comm)?;
        let size = comm.size() as usize;
        let whole = self.displs.len() == size && self.kinds.len() == size;
        if whole { Ok(()) } else { Err(Error::new(Class::Arg, "a list that is not as long as the group")) }
    }
}

pub(super) fn me(comm: &Comm) -> Me {
    Me { rank: comm.rank() as usize, size: comm.size() as usize }
}

pub(super) fn data(span: &Span) -> Data<'_> {
    Data { count: span.count(), kind: span.kind() }
}

pub(super) fn limits() -> Limits {
    Limits::default()
}

fn root_of(root: i32, comm: &Comm) -> Result<usize> {
    let wrong = || Error::new(Class::Root, format!("root {root} of {} processes", comm.size()));
    usize::try_from(root).ok().filter(|_| root < comm.size()).ok_or_else(wrong)
}

fn either<'a>(one: Option<&'a Span>, other: Option<&'a Span>) -> Result<&'a Span> {
    one.or(other).ok_or_else(|| Error::new(Class::Buffer, "neither a send nor a receive buffer"))
}

fn naturals(counts: &[i32], comm: &Comm) -> Result<Vec<usize>> {
    if counts.len() != comm.size() as usize {
        return Err(Error::new(
            Class::Count,
            format!("{} counts for {} processes", counts.len(), comm.size()),
        ));
    }
    let natural = |count: &i32| usize::try_from(*count);
    let wrong = |_| Error::new(Class::Count, "a count below 0");
    counts.iter().map(natural).collect::<std::result::Result<_, _>>().map_err(wrong)
}

/// Counts and displacements, checked. Empty where the call does not look at them.
fn lists(given: Option<(&Span, &[i32], &[i32])>, comm: &Comm) -> Result<(Vec<usize>, Vec<i64>)> {
    let Some((_, counts, displs)) = given else { return Ok((Vec::new(), Vec::new())) };
    if displs.len() != counts.len() {
        return Err(Error::new(
            Class::Arg,
            format!("{} displacements for {} counts", displs.len(), counts.len()),
        ));
    }
    Ok((naturals(counts, comm)?, displs.iter().map(|displ| i64::from(*displ)).collect()))
}
