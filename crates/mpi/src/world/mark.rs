//! The mark of a collective operation: what the ranks of a communicator have to agree about, in one word.
//!
//! ```text
//!   bits 0-7     the name of the operation
//!   bits 8-39    its number in the communicator
//!   bit 40       set, so that a mark is never 0
//!   bit 41       set if the operation goes by messages and not on the board
//!   bits 42-63   its length in bytes where all ranks have the same, else 0; the largest value stands for itself and more
//! ```

use super::run::Name;

const MARK: u64 = 1 << 40;
const MESSAGES: u64 = 1 << 41;
const BYTES: u32 = 42;
const MOST: u64 = (1 << (64 - BYTES)) - 1;

/// The mark of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// An operation on the board.
    #[inline]
    pub(super) fn on_board(number: u32, name: Name, bytes: usize) -> Mark {
        Mark(MARK | (bytes as u64).min(MOST) << BYTES | u64::from(number) << 8 | name as u64)
    }

    /// An operation that goes by messages.
    pub(super) fn by_messages(number: u32, name: Name, bytes: usize) -> Mark {
        Mark(Mark::on_board(number, name, bytes).0 | MESSAGES)
    }

    /// What another rank has written. None: it was in no operation yet.
    pub(super) fn read(word: u64) -> Option<Mark> {
        (word & MARK != 0).then_some(Mark(word))
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// The number of the operation in its communicator.
    #[inline]
    pub(super) fn number(self) -> u32 {
        (self.0 >> 8) as u32
    }

    /// The name of the operation, which may be none if another rank wrote it.
    pub(super) fn name(self) -> u8 {
        self.0 as u8
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_operations_apart() {
        let mark = Mark::on_board(u32::MAX, Name::Scan, 7);
        assert_eq!((mark.number(), mark.name(), mark.bytes()), (u32::MAX, Name::Scan as u8, 7));
        assert_ne!(mark, Mark::by_messages(u32::MAX, Name::Scan, 7));
        assert_ne!(mark, Mark::on_board(u32::MAX, Name::Scan, 8));
        assert_eq!(Mark::read(mark.word()), Some(mark));
        assert_eq!(Mark::read(0), None);
    }

    #[test]
    fn a_length_that_does_not_fit_is_the_largest() {
        let long = Mark::by_messages(3, Name::Bcast, usize::MAX >> 20);
        assert_eq!((long.number(), long.name()), (3, Name::Bcast as u8));
        assert_eq!(long.length(), "4194303 bytes or more");
        assert_eq!(Mark::on_board(0, Name::Bcast, 80).length(), "80 bytes");
    }
}
