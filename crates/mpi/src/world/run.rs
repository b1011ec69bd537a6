//! Carries a schedule of a collective operation out: posts the transfers of a round, waits for them, computes.

use std::sync::atomic::{Ordering, fence};

use super::board::{Come, Seat};
use super::collective::Operation;
use super::comm::{Comm, Context};
use super::engine::Engine;
use super::mark::{Mark, Terms};
use super::short::{nudge, others};
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

/// Where an operation runs: the processes, the context of its messages and their tag.
pub(super) struct Stage<'a> {
    comm: &'a Comm,
    context: u32,
    tag: i32,
    /// Whether a message with another tag shows that the sender is in another operation.
    checked: bool,
    mark: Mark,
    /// The board of the communicator: ranks that are on the board find out too.
    seat: Option<&'a Seat>,
}

impl<'a> Stage<'a> {
    /// The next operation of a communicator, and what its ranks have to agree about.
    pub(super) fn next(comm: &'a Comm, terms: Terms) -> Stage<'a> {
        let mark = Mark::by_messages(comm.next_operation(), terms);
        let seat = comm.seat();
        seat.iter().for_each(|seat| seat.begin(mark));
        Stage { comm, context: comm.context(Context::Collective), tag: mark.tag(), checked: true, mark, seat }
    }

    /// An operation between the processes of `comm`, which is part of a communicator with this context.
    pub(super) fn among(comm: &'a Comm, context: u32, tag: i32) -> Stage<'a> {
        Stage {
            comm,
            context,
            tag,
            checked: false,
            mark: Mark::by_messages(0, Terms::of(Name::Making)),
            seat: None,
        }
    }

    /// What is wrong with a message that came from a rank, which was expected to be so long.
    fn judge(&self, done: &Done, expected: usize, rank: usize) -> Option<Error> {
        let came = &done.status;
        if !self.checked || *came == Status::EMPTY {
            return None;
        }
        if came.tag != self.tag {
            return Some(disagree(self.comm, rank, self.mark.of_tag(came.tag), self.mark));
        }
        // Where ranks have parts of their own, programs may name more room than comes.
        let short = self.mark.bytes() > 0 && came.bytes < expected as u64 && done.error.is_none();
        short
            .then(|| lengths(rank, self.mark, &format!("{} bytes", came.bytes), &format!("{expected} bytes")))
    }

    /// What a process that is waited for is in, if it is in another operation.
    fn elsewhere(&self, rank: usize) -> Option<Error> {
        let process = self.comm.group().process(rank)? as usize;
        match self.seat?.come(self.mark, process) {
            Come::Elsewhere(other) => Some(apart(self.comm, process, Some(other), self.mark)),
            // By messages a rank is through with an operation before others are.
            Come::No | Come::Yes | Come::Past => None,
        }
    }

    /// As `elsewhere`, by a message of this very operation that the rank meant for no receive of it. A process that waits until
    /// the rank takes its own message learns by it that the rank sends where it should receive.
    fn crossed(&self, engine: &Engine, rank: usize) -> Option<Error> {
        if !self.checked {
            return None;
        }
        let pattern = Pattern { context: self.context, source: Some(rank as i32), tag: None };
        let theirs = self.mark.of_tag(engine.core.probe(&pattern)?.tag);
        let crossed = theirs != self.mark && theirs.number() == self.mark.number();
        crossed.then(|| disagree(self.comm, rank, theirs, self.mark))
    }

    /// Fails if a process is in this operation with another root, by the board. Of two roots that only send, neither would hear of
    /// the other; of two that are through with it, the later one sees the note of the other, unless that is two operations ahead.
    /// It comes last, so that ranks which have the root of this process get what they wait for.
    fn look_around(&self) -> Result<()> {
        let Some(seat) = self.seat.filter(|_| self.mark.is_rooted()) else { return Ok(()) };
        // Each has written its note before.
        fence(Ordering::SeqCst);
        disputed(self.comm, seat, self.mark)
    }
}

/// Fails if a process is in this operation of the communicator with other terms, by what the board has of it now.
pub(super) fn disputed(comm: &Comm, seat: &Seat, mark: Mark) -> Result<()> {
    others(comm).try_for_each(|process| match seat.disputes(mark, process) {
        None => Ok(()),
        Some(other) => Err(apart(comm, process, Some(other), mark)),
    })
}

/// A process of the communicator is in another operation than this one, or is past it.
pub(super) fn apart(comm: &Comm, process: usize, theirs: Option<Mark>, ours: Mark) -> Error {
    let rank = comm.group().rank(process as u32).unwrap_or(process);
    match theirs {
        Some(theirs) => disagree(comm, rank, theirs, ours),
        None => differs(rank, (0, ours.number()), (ours.name(), ours.number())),
    }
}

/// A rank has another mark than this process.
fn disagree(comm: &Comm, rank: usize, theirs: Mark, ours: Mark) -> Error {
    if (theirs.name(), theirs.number()) != (ours.name(), ours.number()) {
        return differs(rank, (theirs.name(), theirs.number()), (ours.name(), ours.number()));
    }
    let size = comm.size();
    let (what, theirs, own) = if theirs.root() != ours.root() {
        ("root", theirs.root_of(size), ours.root_of(size))
    } else if theirs.op() != ours.op() {
        ("reduction", theirs.op().into(), ours.op().into())
    } else if theirs.bytes() != ours.bytes() {
        return lengths(rank, ours, &theirs.length(), &ours.length());
    } else {
        // What else decides whether a reduction of some length goes by messages.
        let kind = |mark: Mark| if mark.is_by_messages() { "one with gaps" } else { "one without gaps" };
        ("type", kind(theirs).into(), kind(ours).into())
    };
    unlike(rank, ours, (what, what), &theirs, &own)
}

/// A rank is in the operation of this process with another length.
fn lengths(rank: usize, mark: Mark, theirs: &str, ours: &str) -> Error {
    unlike(rank, mark, ("length", "count of elements"), theirs, ours)
}

/// A rank is in the operation of this process with something else, which is to be the same in all.
fn unlike(rank: usize, mark: Mark, (what, same): (&str, &str), theirs: &str, ours: &str) -> Error {
    let cause = format!(
        "rank {rank} is in {} as operation {} of this communicator with another {what}: {theirs}, this process \
         with {ours}; all processes have to give the same {same}",
        name_of(mark.name()),
        mark.number()
    );
    Error::new(Class::Other, cause)
}

/// A rank is in another operation than this process: names and numbers.
fn differs(rank: usize, theirs: (u8, u32), ours: (u8, u32)) -> Error {
    let cause = format!(
        "rank {rank} is in {} as operation {} of this communicator, this process in {} as operation {}; \
         all processes have to call collective operations in one order, and with the same root",
        name_of(theirs.0),
        theirs.1,
        name_of(ours.0),
        ours.1
    );
    Error::new(Class::Other, cause)
}

fn name_of(name: u8) -> &'static str {
    NAMES.get(usize::from(name).wrapping_sub(1)).copied().unwrap_or("another call")
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
        if let Some(seat) = stage.seat {
            if done.is_err() {
                // Others may sleep on what this rank has found out.
                let _ = self.shared.with(|engine| nudge(engine, stage.comm));
            }
            self.end_on(stage.comm, seat, stage.mark.number());
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
        // Requests with the rank that each depends on, and how long the message of a receive is.
        let mut under_way: Vec<(Request, usize, Option<usize>)> = Vec::new();
        for round in &schedule.rounds {
            // Receives first, so that messages find them.
            let receives = |transfer: &&Transfer| matches!(transfer, Transfer::Recv { .. });
            for transfer in round.transfers.iter().filter(receives) {
                if let Transfer::Recv { from, chunk } = transfer {
                    let span = span(chunk);
                    under_way.push((self.coll_recv(stage, *from, &span)?, *from, Some(span.bytes())));
                }
            }
            for transfer in &round.transfers {
                if let Transfer::Send { to, chunk } = transfer {
                    under_way.push((self.coll_send(stage, *to, &span(chunk))?, *to, None));
                }
            }
            let mut failed = None;
            for (request, rank, expected) in under_way.drain(..) {
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
                let wrong = expected.and_then(|bytes| stage.judge(&done, bytes, rank));
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
        stage.look_around()
    }

    /// Waits for a transfer with a rank. Fails if that rank is in another operation, by the board or by a message of its own.
    fn wait_in(&self, stage: &Stage<'_>, request: Request, rank: usize) -> Result<Done> {
        let gone = || Done { status: Status::EMPTY, error: None };
        self.shared.wait(|engine| match engine.core.is_done(request) {
            true => Some(Ok(engine.core.take(request).unwrap_or_else(gone))),
            false => stage.elsewhere(rank).or_else(|| stage.crossed(engine, rank)).map(Err),
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
