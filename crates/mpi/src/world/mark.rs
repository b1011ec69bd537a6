//! The mark of a collective operation: what the ranks of a communicator have to agree about, in one word.
//!
//! ```text
//!   bits 0-31    the number of the operation in the communicator
//!   bits 32-35   its name, which is never 0, so that no mark is 0
//!   bits 36-39   the reduction: 1 to 14 one of the standard's, 15 one of the program's; 0: there is none
//!   bits 40-46   the root modulo 128; 0 where there is none
//!   bit 47       set if the operation goes by messages and not on the board
//!   bits 48-63   its length in bytes where all ranks have the same, else 0; the largest value stands for itself and more
//! ```
//!
//! The tag of a message of the operation has bits 0-15 and 32-46 of the mark.

use super::collective::Operation;
use super::run::Name;
use crate::op::Op;

const NAME: u32 = 32;
const OP: u32 = 36;
const ROOT: u32 = 40;
const MESSAGES: u64 = 1 << 47;
const BYTES: u32 = 48;
const MOST: u64 = (1 << (64 - BYTES)) - 1;
/// Roots that differ by this are not told apart.
const ROOTS: usize = 1 << 7;
/// A reduction of the program's.
const OF_PROGRAM: u64 = 15;

/// Bits of the number in a tag; name, reduction and root are above them.
const NUMBER_IN_TAG: u32 = 16;
const TERMS_IN_TAG: u64 = 0x7fff_0000;

/// What ranks have to agree about in one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms(u64);

impl Terms {
    /// An operation with this name.
    #[inline]
    pub(super) fn of(name: Name) -> Terms {
        Terms((name as u64) << NAME)
    }

    /// With a root.
    #[inline]
    pub(super) fn root(self, root: usize) -> Terms {
        Terms(self.0 | ((root % ROOTS) as u64) << ROOT)
    }

    /// With a reduction.
    #[inline]
    pub(super) fn op(self, op: &Operation) -> Terms {
        let code = match op {
            Operation::Predefined(op) => *op as u64 & 0xf,
            Operation::User { .. } => OF_PROGRAM,
        };
        Terms(self.0 | code << OP)
    }

    /// With a length that all ranks have.
    #[inline]
    pub(super) fn bytes(self, bytes: usize) -> Terms {
        Terms(self.0 | (bytes as u64).min(MOST) << BYTES)
    }
}

/// The mark of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// An operation on the board.
    #[inline]
    pub(super) fn on_board(number: u32, terms: Terms) -> Mark {
        Mark(terms.0 | u64::from(number))
    }

    /// An operation that goes by messages.
    pub(super) fn by_messages(number: u32, terms: Terms) -> Mark {
        Mark(Mark::on_board(number, terms).0 | MESSAGES)
    }

    /// What another rank has written. None: it was in no operation yet.
    pub(super) fn read(word: u64) -> Option<Mark> {
        Some(Mark(word)).filter(|mark| mark.name() != 0)
    }

    /// The operation that a message with this tag belongs to, as far as a rank with the mark `self` can say: a tag has no
    /// length, and the lowest bits of the number only.
    pub(super) fn of_tag(self, tag: i32) -> Mark {
        let tag = tag as u32;
        let apart = (tag as u16).wrapping_sub(self.0 as u16) as i16;
        let number = self.number().wrapping_add(i32::from(apart) as u32);
        let terms = u64::from(tag) & TERMS_IN_TAG;
        Mark(self.0 & !0x7fff_ffff_ffff | terms << (NAME - NUMBER_IN_TAG) | u64::from(number))
    }

    /// The tag of the operation's messages.
    pub(super) fn tag(self) -> i32 {
        let terms = self.0 >> (NAME - NUMBER_IN_TAG) & TERMS_IN_TAG;
        (terms as u32 | self.number() & ((1 << NUMBER_IN_TAG) - 1)) as i32
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// The number of the operation in its communicator.
    #[inline]
    pub(super) fn number(self) -> u32 {
        self.0 as u32
    }

    /// The name of the operation, which may be none if another rank wrote it.
    pub(super) fn name(self) -> u8 {
        (self.0 >> NAME) as u8 & 0xf
    }

    /// Whether operations of its name have a root.
    pub(super) fn is_rooted(self) -> bool {
        [Name::Bcast, Name::Gather, Name::Scatter, Name::Reduce].iter().any(|name| *name as u8 == self.name())
    }

    /// Whether it goes by messages.
    pub(super) fn is_by_messages(self) -> bool {
        self.0 & MESSAGES != 0
    }

    /// Its root modulo 128, or 0.
    pub(super) fn root(self) -> usize {
        (self.0 >> ROOT) as usize % ROOTS
    }

    /// Its root in words, in a communicator of so many ranks.
    pub(super) fn root_of(self, size: i32) -> String {
        format!("{}{}", self.root(), if size as usize > ROOTS { " modulo 128" } else { "" })
    }

    /// The name of its reduction.
    pub(super) fn op(self) -> &'static str {
        match self.0 >> OP & 0xf {
            0 => "none",
            OF_PROGRAM => "one of the program",
            code => Op::of(Op::Max as u32 & !0xf | code as u32).map_or("none", op_name),
        }
    }

    /// Its length, or 0 where ranks may have different ones.
    pub(super) fn bytes(self) -> u64 {
        self.0 >> BYTES
    }

    /// Its length in words.
    pub(super) fn length(self) -> String {
        format!("{} bytes{}", self.bytes(), if self.bytes() == MOST { " or more" } else { "" })
    }
}

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Max => "MPI_MAX",
        Op::Min => "MPI_MIN",
        Op::Sum => "MPI_SUM",
        Op::Prod => "MPI_PROD",
        Op::Land => "MPI_LAND",
        Op::Band => "MPI_BAND",
        Op::Lor => "MPI_LOR",
        Op::Bor => "MPI_BOR",
        Op::Lxor => "MPI_LXOR",
        Op::Bxor => "MPI_BXOR",
        Op::Minloc => "MPI_MINLOC",
        Op::Maxloc => "MPI_MAXLOC",
        Op::Replace => "MPI_REPLACE",
        Op::NoOp => "MPI_NO_OP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_operations_apart() {
        let scan = Terms::of(Name::Scan);
        let mark = Mark::on_board(u32::MAX, scan.bytes(7));
        assert_eq!((mark.number(), mark.name(), mark.bytes()), (u32::MAX, Name::Scan as u8, 7));
        assert_ne!(mark, Mark::by_messages(u32::MAX, scan.bytes(7)));
        assert_ne!(mark, Mark::on_board(u32::MAX, scan.bytes(8)));
        assert_ne!(mark, Mark::on_board(u32::MAX, scan.bytes(7).root(1)));
        assert_ne!(mark, Mark::on_board(u32::MAX, scan.bytes(7).op(&Operation::predefined(Op::Max))));
        assert_eq!(Mark::read(mark.word()), Some(mark));
        assert_eq!(Mark::read(0), None);
    }

    #[test]
    fn a_length_that_does_not_fit_is_the_largest() {
        let long = Mark::by_messages(3, Terms::of(Name::Bcast).bytes(usize::MAX >> 20).root(130));
        assert_eq!((long.number(), long.name(), long.root()), (3, Name::Bcast as u8, 2));
        assert!(long.is_rooted() && !Mark::on_board(3, Terms::of(Name::Allgather)).is_rooted());
        assert_eq!((&*long.length(), &*long.root_of(131)), ("65535 bytes or more", "2 modulo 128"));
        assert_eq!(Mark::on_board(0, Terms::of(Name::Bcast).bytes(80)).length(), "80 bytes");
    }

    #[test]
    fn every_reduction_has_its_name() {
        for op in Op::ALL {
            let mark = Mark::on_board(1, Terms::of(Name::Reduce).op(&Operation::predefined(op)));
            assert_eq!(mark.op(), op_name(op));
        }
        let own = Operation::user(true, Box::new(|_, _, _| ()));
        assert_eq!(Mark::on_board(1, Terms::of(Name::Reduce).op(&own)).op(), "one of the program");
        assert_eq!(Mark::on_board(1, Terms::of(Name::Bcast)).op(), "none");
    }

    #[test]
    fn a_tag_has_all_of_a_mark_but_its_length() {
        let terms = Terms::of(Name::Making).root(127).op(&Operation::predefined(Op::NoOp));
        let mark = |number| Mark::by_messages(number, terms.bytes(50));
        for number in [0, 1, 0xffff, 0x1_0000, 0xffff_fff0, u32::MAX] {
            assert!(mark(number).tag() >= 0);
            assert_eq!(mark(number).of_tag(mark(number).tag()), mark(number));
            // A message of an operation a little before or behind.
            for other in [number.wrapping_sub(9), number.wrapping_add(20)] {
                assert_eq!(mark(number).of_tag(mark(other).tag()), mark(other), "{number} {other}");
            }
        }
        let bcast = Mark::by_messages(6, Terms::of(Name::Bcast).root(3));
        let theirs = mark(5).of_tag(bcast.tag());
        assert_eq!((theirs.number(), theirs.name(), theirs.root()), (6, Name::Bcast as u8, 3));
        assert_eq!((theirs.op(), theirs.bytes()), ("none", 50), "its length is not known");
    }
}
