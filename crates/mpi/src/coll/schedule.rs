//! What a schedule is made of, and the builder that the algorithms share.

use super::{Data, Me};
use crate::datatype::Datatype;

/// Which memory a chunk lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The send buffer of the call.
    Send,
    /// The receive buffer of the call.
    Recv,
    /// Memory of the schedule, [`Schedule::temp`] bytes.
    Temp,
}

/// What the elements of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The type of the call's send side.
    Send,
    /// The type of the call's receive side.
    Recv,
    /// The type that the send side has for this rank (`MPI_Alltoallw`).
    SendOf(usize),
    /// The type that the receive side has for this rank (`MPI_Alltoallw`).
    RecvOf(usize),
    /// Bytes in packed form.
    Bytes,
}

/// Elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which memory.
    pub place: Place,
    /// Displacement of the first element in bytes.
    pub at: i64,
    /// How many elements.
    pub count: usize,
    /// What they are.
    pub kind: Kind,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// To a rank.
    Send {
        /// The rank.
        to: usize,
        /// What.
        chunk: Chunk,
    },
    /// From a rank.
    Recv {
        /// The rank.
        from: usize,
        /// Into what.
        chunk: Chunk,
    },
}

/// A step without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Moves elements; the two chunks have equal packed forms.
    Copy {
        /// Source.
        from: Chunk,
        /// Target.
        to: Chunk,
    },
    /// `into = from op into`: `from` belongs to lower ranks.
    Combine {
        /// The left operand.
        from: Chunk,
        /// The right operand, and the result.
        into: Chunk,
    },
}

/// Transfers that go on at the same time, and what is done when all are over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Posted together.
    pub transfers: Vec<Transfer>,
    /// Carried out in order afterwards.
    pub locals: Vec<Local>,
}

/// The part of one rank in a collective operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In order.
    pub rounds: Vec<Round>,
    /// How many bytes of memory it needs beside the buffers.
    pub temp: usize,
}

impl Schedule {
    /// Begins a round. Transfers and local steps go to the last round.
    pub(super) fn round(&mut self) -> &mut Round {
        self.rounds.push(Round::default());
        self.last()
    }

    /// The round that was begun last, or the first.
    pub(super) fn last(&mut self) -> &mut Round {
        if self.rounds.is_empty() {
            self.rounds.push(Round::default());
        }
        self.rounds.last_mut().expect("pushed just now if there was none")
    }

    /// Room for packed bytes in the schedule's memory.
    pub(super) fn bytes(&mut self, count: usize) -> Chunk {
        let at = self.temp as i64;
        self.temp += count;
        Chunk { place: Place::Temp, at, count, kind: Kind::Bytes }
    }

    /// Room for elements in the layout of the receive side's type, which reductions compute in.
    pub(super) fn elements(&mut self, count: usize, kind: &Datatype) -> Chunk {
        let (low, high) = span(count, kind);
        let start = self.temp.next_multiple_of(16);
        self.temp = start + (high - low) as usize;
        Chunk { place: Place::Temp, at: start as i64 - low, count, kind: Kind::Recv }
    }
}

/// The lowest and the highest displacement of the bytes of `count` elements.
fn span(count: usize, kind: &Datatype) -> (i64, i64) {
    let (low, len) = kind.true_extent();
    let far = kind.extent() * count.saturating_sub(1) as i64;
    if count == 0 { (0, 0) } else { (low + far.min(0), low + len + far.max(0)) }
}

impl Round {
    pub(super) fn send(&mut self, to: usize, chunk: Chunk) -> &mut Round {
        self.transfers.push(Transfer::Send { to, chunk });
        self
    }

    pub(super) fn recv(&mut self, from: usize, chunk: Chunk) -> &mut Round {
        self.transfers.push(Transfer::Recv { from, chunk });
        self
    }

    pub(super) fn copy(&mut self, from: Chunk, to: Chunk) -> &mut Round {
        self.locals.push(Local::Copy { from, to });
        self
    }

    /// Combines what came from another rank with what this one has, in the order of ranks, into `own`. The result is in
    /// `own` in either case; `other` is used up.
    pub(super) fn combine(&mut self, other: Chunk, other_is_lower: bool, own: Chunk) -> &mut Round {
        if other_is_lower {
            self.locals.push(Local::Combine { from: other, into: own });
        } else {
            self.locals.push(Local::Combine { from: own, into: other });
            self.locals.push(Local::Copy { from: other, to: own });
        }
        self
    }
}

impl Chunk {
    /// All elements of a call's send buffer.
    pub(super) fn of_send(data: &Data<'_>) -> Chunk {
        Chunk { place: Place::Send, at: 0, count: data.count, kind: Kind::Send }
    }

    /// All elements of a call's receive buffer.
    pub(super) fn of_recv(data: &Data<'_>) -> Chunk {
        Chunk { place: Place::Recv, at: 0, count: data.count, kind: Kind::Recv }
    }

    /// The chunk moved by a displacement.
    pub(super) fn moved(self, by: i64) -> Chunk {
        Chunk { at: self.at + by, ..self }
    }

    /// `count` elements from element `first` on, which are `extent` bytes apart.
    pub(super) fn part(self, first: usize, count: usize, extent: i64) -> Chunk {
        Chunk { at: self.at + first as i64 * extent, count, ..self }
    }

    /// Bytes of a packed chunk.
    pub(super) fn slice(self, first: usize, count: usize) -> Chunk {
        debug_assert_eq!(self.kind, Kind::Bytes);
        self.part(first, count, 1)
    }

    /// No elements.
    pub(super) const NOTHING: Chunk = Chunk { place: Place::Temp, at: 0, count: 0, kind: Kind::Bytes };
}

/// A schedule whose first local step brings this rank's own contribution where the result goes, unless it is there.
pub(super) fn start(own: Option<(Chunk, Chunk)>) -> Schedule {
    let mut schedule = Schedule::default();
    if let Some((from, to)) = own {
        schedule.last().copy(from, to);
    }
    schedule
}

impl Me {
    /// The largest power of two that is not above the number of ranks.
    pub(super) fn power(self) -> usize {
        1 << self.size.ilog2()
    }
}
