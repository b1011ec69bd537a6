//! Carries a schedule of a collective operation out: posts the transfers of a round, waits for them, computes.

use super::board::{Come, Seat};
use super::collective::Operation;
use super::comm::{Comm, Context};
use super::short::nudge;
use super::{Done, Request, Status, World};
use crate::coll::{Chunk, Kind, Local, Place, Schedule, Transfer};
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::matching::{Envelope, Pattern};
use crate::protocol::{Manner, Source};
use crate::raw::{self, Span};

/// Which operation it is: its messages say so, and processes that are in different ones find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Name {
    Barrier = 1,
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
    /// The making of a communicator.
    Making,
}

const NAMES: [&str; 12] = [
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Gather(v)",
    "MPI_Scatter(v)",
    "MPI_Allgather(v)",
    "MPI_Alltoall(v, w)",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Reduce_scatter(_block)",
    "MPI_Scan",
    "MPI_Exscan",
    "a call that makes a communicator",
];

/// Bits of the number of an operation in its tag; the name is above them.
const NUMBER: u32 = 20;

/// Where an operation runs: the processes, the context of its messages and their tag.
pub(super) struct Stage<'a> {
    comm: &'a Comm,
    context: u32,
    tag: i32,
    /// Whether a message with another tag shows that the sender is in another operation.
    checked: bool,
    /// The board of the communicator, with the operation's number and name: ranks that are on the board find out too.
    seat: Option<(&'a Seat, u32, Name)>,
}

impl<'a> Stage<'a> {
    /// The next operation of a communicator.
    pub(super) fn next(comm: &'a Comm, name: Name) -> Stage<'a> {
        let number = comm.next_operation();
        let seat = comm.seat().map(|seat| (seat, number, name));
        seat.iter().for_each(|(seat, ..)| seat.begin(number, name));
        let tag = ((name as u32) << NUMBER | number & ((1 << NUMBER) - 1)) as i32;
        Stage { comm, context: comm.context(Context::Collective), tag, checked: true, seat }
    }

    /// An operation between the processes of `comm`, which is part of a communicator with this context.
    pub(super) fn among(comm: &'a Comm, context: u32, tag: i32) -> Stage<'a> {
        Stage { comm, context, tag, checked: false, seat: None }
    }

    /// What is wrong with a message that has this tag.
    fn judge(&self, tag: i32, rank: usize) -> Option<Error> {
        if tag == self.tag || !self.checked {
            return None;
        }
        let part = |tag: i32| ((tag as u32 >> NUMBER) as u8, tag as u32 & ((1 << NUMBER) - 1));
        Some(differs(rank, part(tag), part(self.tag)))
    }

    /// What a process that is waited for is in, if it is in another operation.
    fn elsewhere(&self, rank: usize) -> Option<Error> {
        let (seat, number, name) = self.seat?;
        let process = self.comm.group().process(rank)? as usize;
        match seat.come(number, name, process) {
            Come::Elsewhere(other) => Some(apart(self.comm, process, number, other, name)),
            // By messages a rank is through with an operation before others are.
            Come::No | Come::Yes | Come::Past => None,
        }
    }
}

/// A process of the communicator is in another operation than this one.
pub(super) fn apart(comm: &Comm, process: usize, number: u32, theirs: u8, ours: Name) -> Error {
    let rank = comm.group().rank(process as u32).unwrap_or(process);
    differs(rank, (theirs, number), (ours as u8, number))
}

/// A rank is in another operation than this process: names and numbers.
fn differs(rank: usize, theirs: (u8, u32), ours: (u8, u32)) -> Error {
    let name = |name: u8| NAMES.get(usize::from(name).wrapping_sub(1)).copied().unwrap_or("another call");
    let cause = format!(
        "rank {rank} is in {} as operation {} of this communicator, this process in {} as operation {}; \
         all processes have to call collective operations in one order",
        name(theirs.0),
        theirs.1,
        name(ours.0),
        ours.1
    );
    Error::new(Class::Other, cause)
}

/// The memory of an operation.
pub(super) struct Memory<'a> {
    pub(super) send: &'a Span,
    pub(super) recv: &'a Span,
    /// Types by rank, of `MPI_Alltoallw`: what is sent, what is received.
    pub(super) kinds: Option<(&'a [Datatype], &'a [Datatype])>,
}

impl World {
    /// Carries a schedule out to its end.
    pub(super) fn run(
        &self,
        stage: &Stage<'_>,
        schedule: &Schedule,
        memory: &Memory<'_>,
        op: Option<&Operation>,
    ) -> Result<()> {
        let done = self.carry_out(stage, schedule, memory, op);
        if let Some((seat, number, _)) = stage.seat {
            if done.is_err() {
                // Others may sleep on what this rank has found out.
                let _ = self.shared.with(|engine| nudge(engine, stage.comm));
            }
            self.end_on(stage.comm, seat, number);
        }
        done
    }

    fn carry_out(
        &self,
        stage: &Stage<'_>,
        schedule: &Schedule,
        memory: &Memory<'_>,
        op: Option<&Operation>,
    ) -> Result<()> {
        let temp = Span::zeroes(schedule.temp);
        let span = |chunk: &Chunk| -> Span {
            let base = match chunk.place {
                Place::Send => memory.send,
                Place::Recv => memory.recv,
                Place::Temp => &temp,
            };
            let byte = Datatype::byte();
            let kind = match chunk.kind {
                Kind::Send => memory.send.kind(),
                Kind::Recv => memory.recv.kind(),
                Kind::SendOf(rank) => memory.kinds.map_or(memory.send.kind(), |(send, _)| &send[rank]),
                Kind::RecvOf(rank) => memory.kinds.map_or(memory.recv.kind(), |(_, recv)| &recv[rank]),
                Kind::Bytes => &byte,
            };
            base.part(chunk.at, chunk.count, kind)
        };
        // Requests with the rank that each depends on, and whether it is a receive.
        let mut under_way: Vec<(Request, usize, bool)> = Vec::new();
        for round in &schedule.rounds {
            // Receives first, so that messages find them.
            let receives = |transfer: &&Transfer| matches!(transfer, Transfer::Recv { .. });
            for transfer in round.transfers.iter().filter(receives) {
                if let Transfer::Recv { from, chunk } = transfer {
                    under_way.push((self.coll_recv(stage, *from, &span(chunk))?, *from, true));
                }
            }
            for transfer in &round.transfers {
                if let Transfer::Send { to, chunk } = transfer {
                    under_way.push((self.coll_send(stage, *to, &span(chunk))?, *to, false));
                }
            }
            let mut failed = None;
            for (request, rank, receives) in under_way.drain(..) {
                let done = match self.wait_in(stage, request, rank) {
                    Ok(done) => done,
                    Err(error) => {
                        // Its message will not come.
                        self.cancel(request);
                        self.free(request);
                        failed = failed.or(Some(error));
                        continue;
                    }
                };
                // A message of another operation may be too long for this one: the cause goes before that.
                let came = receives && done.status != Status::EMPTY;
                let wrong = if came { stage.judge(done.status.tag, rank) } else { None };
                failed = failed.or(wrong.or(done.error));
            }
            if let Some(error) = failed {
                return Err(error);
            }
            for local in &round.locals {
                match local {
                    Local::Copy { from, to } => {
                        let (from, to) = (span(from), span(to));
                        from.copy_to(&to, from.bytes());
                    }
                    Local::Combine { from, into } => match op {
                        Some(op) => op.combine(&span(from), &span(into))?,
                        None => return Err(Error::new(Class::Intern, "a reduction without an operation")),
                    },
                }
            }
        }
        Ok(())
    }

    /// Waits for a transfer with a rank. Fails if that rank is in another operation, by the board.
    fn wait_in(&self, stage: &Stage<'_>, request: Request, rank: usize) -> Result<Done> {
        if stage.seat.is_none() {
            return Ok(self.wait(request));
        }
        let gone = || Done { status: Status::EMPTY, error: None };
        self.shared.wait(|engine| match engine.core.is_done(request) {
            true => Some(Ok(engine.core.take(request).unwrap_or_else(gone))),
            false => stage.elsewhere(rank).map(Err),
        })?
    }

    fn coll_send(&self, stage: &Stage<'_>, to: usize, span: &Span) -> Result<Request> {
        let process = stage.comm.process(to as i32)?.expect("a rank of the schedule");
        let envelope = Envelope { context: stage.context, source: stage.comm.rank(), tag: stage.tag };
        self.shared.with(|engine| {
            engine.core.isend(&mut engine.links, span, process, envelope, Manner::Blocking, None)
        })
    }

    fn coll_recv(&self, stage: &Stage<'_>, from: usize, span: &Span) -> Result<Request> {
        let process = stage.comm.process(from as i32)?.expect("a rank of the schedule");
        let tag = (!stage.checked).then_some(stage.tag);
        let pattern = Pattern { context: stage.context, source: Some(from as i32), tag };
        self.shared.with(|engine| {
            engine.core.irecv(&mut engine.links, span, pattern, Source::Process(process), None)
        })
    }
}

impl Operation {
    /// `into = from op into`.
    pub(super) fn combine(&self, from: &Span, into: &Span) -> Result<()> {
        match self {
            Operation::Predefined(op) => raw::combine(*op, from, into),
            Operation::User { call, .. } => {
                call.run(from.base().cast_const(), into.base(), into.count());
                Ok(())
            }
        }
    }
}
