//! Short collective operations on the board: each rank writes to its place, and reads the places of the others.
//!
//! A barrier and a reduction for all ranks wait until all have come; the last one wakes those that sleep. In a broadcast ranks wait
//! for the root alone, in a reduction the root waits for the others. Operands are combined in the order of ranks.

use super::board::{Come, PLACE, Seat};
use super::collective::Operation;
use super::comm::Comm;
use super::engine::Engine;
use super::mark::{Mark, Terms};
use super::run::Name;
use super::{World, run};
use crate::error::Result;
use crate::protocol::Source;
use crate::raw::Span;

/// Most bytes that a rank reads from all others: beyond, messages that go by trees are faster.
const READ: usize = 32 << 10;

/// An operation that is carried out on the board.
struct Short<'a> {
    world: &'a World,
    comm: &'a Comm,
    seat: &'a Seat,
    mark: Mark,
}

impl World {
    /// A barrier on the board. None: there is no board for it.
    pub(super) fn short_barrier(&self, comm: &Comm) -> Option<Result<()>> {
        let short = self.short(comm, Terms::of(Name::Barrier), 0)?;
        Some(short.end(short.meet(&Span::empty())))
    }

    /// A broadcast on the board. None: it is too long, or there is no board for it.
    pub(super) fn short_bcast(&self, span: &Span, root: usize, comm: &Comm) -> Option<Result<()>> {
        let short = self.short(comm, Terms::of(Name::Bcast).root(root), span.bytes())?;
        let done = if comm.rank() as usize == root { short.tell(span) } else { short.hear(span, root) };
        Some(short.end(done))
    }

    /// A reduction for one rank on the board. None: it is too long, or there is no board for it.
    pub(super) fn short_reduce(
        &self,
        own: &Span,
        recv: &Span,
        op: &Operation,
        root: usize,
        comm: &Comm,
    ) -> Option<Result<()>> {
        let short = self.reduction(own, op, comm, Terms::of(Name::Reduce).root(root))?;
        let done = if comm.rank() as usize == root {
            short.collect(own, recv, op, root)
        } else {
            short.hand_in(own, root)
        };
        Some(short.end(done))
    }

    /// A reduction for all ranks on the board. None: it is too long, or there is no board for it.
    pub(super) fn short_allreduce(
        &self,
        own: &Span,
        recv: &Span,
        op: &Operation,
        comm: &Comm,
    ) -> Option<Result<()>> {
        let short = self.reduction(own, op, comm, Terms::of(Name::Allreduce))?;
        let met = short.meet(own).and_then(|()| short.combine(recv, op));
        Some(short.end(met))
    }

    /// Whether a reduction is short says its type and its length, which are the same in all ranks.
    fn reduction<'a>(
        &'a self,
        own: &Span,
        op: &Operation,
        comm: &'a Comm,
        terms: Terms,
    ) -> Option<Short<'a>> {
        let plain = own.block().is_some() && own.kind().extent() == own.kind().size() as i64;
        let all = own.bytes() * comm.size() as usize;
        if !plain || !matches!(op, Operation::Predefined(_)) || all > READ {
            return None;
        }
        self.short(comm, terms.op(op), own.bytes())
    }

    fn short<'a>(&'a self, comm: &'a Comm, terms: Terms, bytes: usize) -> Option<Short<'a>> {
        let seat = comm.seat().filter(|_| bytes <= PLACE)?;
        let mark = Mark::on_board(comm.next_operation(), terms.bytes(bytes));
        seat.begin(mark);
        Some(Short { world: self, comm, seat, mark })
    }

    /// An operation on a communicator with a board is over: ranks that wait until places are free look again.
    pub(super) fn end_on(&self, comm: &Comm, seat: &Seat, number: u32) {
        if seat.end(number) {
            let _ = self.shared.with(|engine| nudge(engine, comm));
        }
    }
}

impl Short<'_> {
    /// The other processes, by rank.
    fn others(&self) -> impl Iterator<Item = usize> {
        others(self.comm)
    }

    fn end<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            // Others may sleep on what this rank has found out.
            let _ = self.world.shared.with(|engine| nudge(engine, self.comm));
        }
        self.world.end_on(self.comm, self.seat, self.mark.number());
        done
    }

    /// Puts a message into this rank's place, as soon as that is free.
    fn give(&self, span: &Span) -> Result<()> {
        if !self.seat.is_free(self.mark.number(), self.others()) {
            self.seat.waits(true);
            let freed = self.world.shared.wait(|engine| {
                let lost =
                    || self.others().find_map(|process| engine.core.why_none(&Source::Process(process)));
                match self.seat.is_free(self.mark.number(), self.others()) {
                    true => Some(Ok(())),
                    false => lost().map(Err),
                }
            });
            self.seat.waits(false);
            freed??;
        }
        self.seat.give(self.mark, span.bytes(), |place| span.pack(0, place));
        Ok(())
    }

    /// Waits until the processes have come.
    fn await_these(&self, mut processes: impl Iterator<Item = usize>) -> Result<()> {
        let mut next = processes.next();
        self.world.shared.wait(|engine| {
            while let Some(process) = next {
                match self.seat.come(self.mark, process) {
                    Come::Yes => next = processes.next(),
                    Come::No => return engine.core.why_none(&Source::Process(process)).map(Err),
                    Come::Elsewhere(other) => {
                        return Some(Err(run::apart(self.comm, process, Some(other), self.mark)));
                    }
                    Come::Past => return Some(Err(run::apart(self.comm, process, None, self.mark))),
                }
            }
            Some(Ok(()))
        })?
    }

    fn all_have_come(&self) -> bool {
        self.others().all(|process| self.seat.come(self.mark, process) == Come::Yes)
    }

    /// Gives a message, and waits until all have given theirs. The last one to come wakes the others.
    fn meet(&self, span: &Span) -> Result<()> {
        self.give(span)?;
        if self.all_have_come() {
            return self.world.shared.with(|engine| nudge(engine, self.comm));
        }
        self.await_these(self.others())
    }

    /// Whether no rank gave something on other terms. Of two that give and wait for none, the later one sees the earlier one's mark,
    /// which stays until every rank is through with the operation: one of them is told of another root.
    fn is_undisputed(&self) -> Result<()> {
        run::disputed(self.comm, self.seat, self.mark)
    }

    /// The root's part of a broadcast.
    fn tell(&self, span: &Span) -> Result<()> {
        self.give(span)?;
        self.is_undisputed()?;
        self.world.shared.with(|engine| nudge(engine, self.comm))
    }

    /// Another rank's part of a broadcast.
    fn hear(&self, span: &Span, root: usize) -> Result<()> {
        let process = self.process(root);
        self.await_these([process].into_iter())?;
        span.unpack(0, self.seat.given(self.mark.number(), process, span.bytes()));
        Ok(())
    }

    /// Another rank's part of a reduction for the root.
    fn hand_in(&self, own: &Span, root: usize) -> Result<()> {
        self.give(own)?;
        self.is_undisputed()?;
        self.world.shared.with(|engine| engine.links.nudge(self.process(root)))
    }

    /// The root's part of a reduction.
    fn collect(&self, own: &Span, recv: &Span, op: &Operation, root: usize) -> Result<()> {
        self.give(own)?;
        let root = self.process(root);
        self.await_these(self.others().filter(|process| *process != root))?;
        self.combine(recv, op)
    }

    /// Combines what all ranks gave, in their order, into the result.
    fn combine(&self, recv: &Span, op: &Operation) -> Result<()> {
        let len = recv.bytes();
        let last = self.comm.size() as usize - 1;
        recv.unpack(0, self.seat.given(self.mark.number(), self.process(last), len));
        let room = Span::zeroes(len);
        let operand = room.part(0, recv.count(), recv.kind());
        for rank in (0..last).rev() {
            operand.unpack(0, self.seat.given(self.mark.number(), self.process(rank), len));
            op.combine(&operand, recv)?;
        }
        Ok(())
    }

    fn process(&self, rank: usize) -> usize {
        self.comm.group().process(rank).expect("a rank of the communicator") as usize
    }
}

/// The other processes of a communicator, by rank.
pub(super) fn others(comm: &Comm) -> impl Iterator<Item = usize> {
    let me = comm.rank() as usize;
    let members = comm.group().members().iter().enumerate();
    members.filter(move |(rank, _)| *rank != me).map(|(_, process)| *process as usize)
}

/// The other processes look again, if they sleep.
pub(super) fn nudge(engine: &mut Engine, comm: &Comm) {
    others(comm).for_each(|process| engine.links.nudge(process));
}
