//! The board: memory that the ranks of a host share, for short collective operations without messages.
//!
//! ```text
//!   board of a communicator
//!     waiting      how many ranks wait until a place is free
//!     cell of each rank
//!       marks      which operation each of the two places holds
//!       done       how many operations the rank is through with
//!       notes      the last two operations that the rank was in, whichever way they were carried out
//!       places     two, for operations with even and with odd numbers
//! ```
//!
//! A rank writes its own cell alone. It uses a place again two operations later, when every rank is through with the operation
//! that the place held. Ranks wait as for messages, and wake each other by nudges. Cells are those of the ranks of the job, so that
//! communicators of different ranks may have one board; a board that was used once is not used by another communicator.
//!
//! What other ranks write is believed no more than a message: marks are compared, and bytes are copied before they are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use viaduct_job::Job;
use viaduct_os::segment::Segment;

use super::mark::Mark;
use crate::raw::Common;

/// Longest message of an operation on the board, in bytes.
pub(super) const PLACE: usize = 2 << 10;
/// Boards, by the numbers of communicators.
pub(super) const BOARDS: usize = 64;

const LINE: usize = 64;
const MARKS: usize = 0;
const DONE: usize = 16;
const NOTES: usize = 24;
const PLACES: usize = 2 * LINE;
const CELL: usize = PLACES + 2 * PLACE;

/// The boards of a job whose ranks are all on one host.
#[derive(Debug)]
pub(super) struct Board {
    memory: Common,
    me: usize,
    ranks: usize,
}

/// A communicator's use of its board.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    board: Arc<Board>,
    number: usize,
}

/// How far a rank has come with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Come {
    /// It is not there yet.
    No,
    /// Its place holds what it gives to the operation.
    Yes,
    /// It is in another operation, or in this one on other terms, by this mark.
    Elsewhere(Mark),
    /// It went on to later operations and gave nothing to this one.
    Past,
}

impl Board {
    /// How many bytes the boards of so many ranks take. Pages that are not used take no memory.
    fn bytes(ranks: usize) -> usize {
        BOARDS * (LINE + ranks * CELL)
    }

    /// Shares the boards with the other ranks, all of which are on this host and call this.
    pub(super) fn share(job: &mut Job, folder: &std::path::Path) -> Result<Board, viaduct_job::Error> {
        let (me, ranks) = (job.rank(), job.size());
        let all: Vec<usize> = (0..ranks).collect();
        let segment = job.share_sparse(&all, Board::bytes(ranks), folder)?;
        Ok(Board::new(segment, me, ranks))
    }

    fn new(segment: Segment, me: usize, ranks: usize) -> Board {
        assert!(segment.len() >= Board::bytes(ranks) && me < ranks, "a segment for all boards");
        Board { memory: Common::new(segment), me, ranks }
    }
}

impl Seat {
    /// The board of the communicator with a number, if there is one.
    pub(super) fn new(board: &Arc<Board>, number: u32) -> Option<Seat> {
        let number = number as usize;
        (number < BOARDS).then(|| Seat { board: board.clone(), number })
    }

    fn base(&self) -> usize {
        self.number * (LINE + self.board.ranks * CELL)
    }

    fn cell(&self, process: usize) -> usize {
        assert!(process < self.board.ranks, "a rank of the job");
        self.base() + LINE + process * CELL
    }

    /// This rank is in an operation. Others that are in another one find out.
    pub(super) fn begin(&self, mark: Mark) {
        let word = self.board.memory.word(self.cell(self.board.me) + NOTES + 8 * place(mark.number()));
        word.store(mark.word(), Ordering::Release);
    }

    /// Whether the place of this rank for an operation is free: every process is through with the one that it held.
    pub(super) fn is_free(&self, number: u32, mut processes: impl Iterator<Item = usize>) -> bool {
        number < 2 || processes.all(|process| self.is_through(process, number - 2))
    }

    /// Whether a process is through with an operation.
    fn is_through(&self, process: usize, number: u32) -> bool {
        let done = self.board.memory.word(self.cell(process) + DONE).load(Ordering::SeqCst) as u32;
        done.wrapping_sub(number.wrapping_add(1)) as i32 >= 0
    }

    /// Puts what this rank gives to an operation into its place, which is free.
    pub(super) fn give(&self, mark: Mark, bytes: usize, fill: impl FnOnce(&[AtomicU8])) {
        let (cell, number) = (self.cell(self.board.me), mark.number());
        fill(self.board.memory.bytes(cell + PLACES + place(number) * PLACE, bytes));
        // In one order with the looks at the other marks: of two ranks that come at once, one sees both.
        let word = self.board.memory.word(cell + MARKS + 8 * place(number));
        word.store(mark.word(), Ordering::SeqCst);
    }

    /// What a process gave to an operation, once it has come.
    pub(super) fn given(&self, number: u32, process: usize, bytes: usize) -> &[AtomicU8] {
        self.board.memory.bytes(self.cell(process) + PLACES + place(number) * PLACE, bytes)
    }

    /// How far a process has come with an operation.
    pub(super) fn come(&self, mark: Mark, process: usize) -> Come {
        let held = self.word_of(process, MARKS, mark.number());
        if held.load(Ordering::SeqCst) == mark.word() { Come::Yes } else { self.not_yet(mark, process) }
    }

    /// As `come`, of a process whose mark was not this one.
    #[inline(never)]
    fn not_yet(&self, mark: Mark, process: usize) -> Come {
        let number = mark.number();
        // The note first: a rank that has gone on has left its mark before.
        let noted = Mark::read(self.word_of(process, NOTES, number).load(Ordering::Acquire));
        let held = Mark::read(self.word_of(process, MARKS, number).load(Ordering::SeqCst));
        let of_this = |other: &Mark| other.number() == number;
        match (held.filter(of_this), noted) {
            (Some(held), _) if held == mark => Come::Yes,
            (Some(held), _) => Come::Elsewhere(held),
            (None, Some(noted)) if of_this(&noted) && noted != mark => Come::Elsewhere(noted),
            (None, Some(noted)) if noted.number().wrapping_sub(number) as i32 > 0 => Come::Past,
            _ => Come::No,
        }
    }

    /// The mark of a process that is in an operation on other terms, as far as its cell says so now: what it gave, else its note.
    #[inline]
    pub(super) fn disputes(&self, mark: Mark, process: usize) -> Option<Mark> {
        let of_this = |field| {
            let word = self.word_of(process, field, mark.number()).load(Ordering::SeqCst);
            Mark::read(word).filter(|other| other.number() == mark.number())
        };
        of_this(MARKS).or_else(|| of_this(NOTES)).filter(|other| *other != mark)
    }

    /// The word of a process' cell for an operation.
    #[inline]
    fn word_of(&self, process: usize, field: usize, number: u32) -> &AtomicU64 {
        self.board.memory.word(self.cell(process) + field + 8 * place(number))
    }

    /// This rank is through with an operation. True: a rank waits until places are free, and is to be woken.
    #[must_use]
    pub(super) fn end(&self, number: u32) -> bool {
        let done = self.board.memory.word(self.cell(self.board.me) + DONE);
        done.store(u64::from(number.wrapping_add(1)), Ordering::SeqCst);
        self.board.memory.word(self.base()).load(Ordering::SeqCst) > 0
    }

    /// This rank begins, or ends, to wait until its place is free.
    pub(super) fn waits(&self, begins: bool) {
        let word = self.board.memory.word(self.base());
        if begins {
            word.fetch_add(1, Ordering::SeqCst)
        } else {
            word.fetch_sub(1, Ordering::SeqCst)
        };
    }
}

/// Operations take turns on two places.
fn place(number: u32) -> usize {
    number as usize % 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::mark::Terms;
    use crate::world::run::Name;
    use std::os::fd::AsFd;
    use viaduct_os::segment::Access;

    /// The boards of so many ranks, each with a mapping of its own.
    fn seats(ranks: usize, number: u32) -> Vec<Seat> {
        let first = Segment::create_sparse("board", Board::bytes(ranks)).unwrap();
        let fd = |segment: &Segment| segment.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
        let open = |me| {
            Segment::open_sparse(fd(&first), Access::ReadWrite, first.len()).map(|s| Board::new(s, me, ranks))
        };
        (0..ranks).map(|me| Seat::new(&Arc::new(open(me).unwrap()), number).unwrap()).collect()
    }

    fn mark(number: u32, name: Name) -> Mark {
        Mark::on_board(number, Terms::of(name))
    }

    #[test]
    fn a_rank_has_come_when_its_place_is_filled() {
        let seats = seats(2, 3);
        assert_eq!(seats[0].come(mark(0, Name::Bcast), 1), Come::No);
        seats[1].begin(mark(0, Name::Bcast));
        assert_eq!(seats[0].come(mark(0, Name::Bcast), 1), Come::No);
        seats[1].give(mark(0, Name::Bcast), 3, |place| place[2].store(7, Ordering::Relaxed));
        assert_eq!(seats[0].come(mark(0, Name::Bcast), 1), Come::Yes);
        assert_eq!(seats[0].given(0, 1, 3)[2].load(Ordering::Relaxed), 7);
        assert_eq!(seats[0].come(mark(1, Name::Bcast), 1), Come::No, "the next one is another");
    }

    #[test]
    fn a_rank_in_another_operation_is_found_before_and_after_it_has_come() {
        let seats = seats(3, 0);
        seats[1].begin(mark(4, Name::Barrier));
        assert_eq!(seats[0].come(mark(4, Name::Bcast), 1), Come::Elsewhere(mark(4, Name::Barrier)));
        seats[1].give(mark(4, Name::Barrier), 0, |_| ());
        // It has gone on since; its place still tells.
        seats[1].begin(mark(5, Name::Bcast));
        assert_eq!(seats[0].come(mark(4, Name::Bcast), 1), Come::Elsewhere(mark(4, Name::Barrier)));
        assert_eq!(seats[2].come(mark(4, Name::Barrier), 1), Come::Yes);
    }

    #[test]
    fn a_rank_with_another_length_or_by_messages_is_found() {
        let (seats, bcast) = (seats(2, 0), |bytes| Mark::on_board(2, Terms::of(Name::Bcast).bytes(bytes)));
        let long = Mark::by_messages(2, Terms::of(Name::Bcast).bytes(4000));
        seats[1].begin(bcast(40));
        assert_eq!(seats[0].come(bcast(40), 1), Come::No);
        assert_eq!(seats[0].come(bcast(80), 1), Come::Elsewhere(bcast(40)));
        assert_eq!(seats[0].come(long, 1), Come::Elsewhere(bcast(40)));
        seats[1].give(bcast(40), 40, |_| ());
        seats[1].begin(mark(4, Name::Barrier));
        assert_eq!(seats[0].come(bcast(80), 1), Come::Elsewhere(bcast(40)), "its place still tells");
        assert_eq!(seats[0].come(long, 1), Come::Elsewhere(bcast(40)));
        seats[0].begin(long);
        assert_eq!(seats[1].come(bcast(40), 0), Come::Elsewhere(long));
        assert_eq!(seats[1].come(long, 0), Come::No, "messages will tell");
    }

    #[test]
    fn of_two_roots_the_later_one_sees_the_earlier_one() {
        let (seats, bcast) = (seats(3, 0), |root| Mark::on_board(2, Terms::of(Name::Bcast).root(root)));
        assert_eq!(seats[0].disputes(bcast(0), 1), None);
        seats[1].begin(bcast(1));
        assert_eq!(seats[0].disputes(bcast(0), 1), Some(bcast(1)), "by its note");
        assert_eq!(seats[2].disputes(bcast(1), 1), None);
        seats[1].give(bcast(1), 0, |_| ());
        seats[1].begin(mark(4, Name::Barrier));
        assert_eq!(seats[0].disputes(bcast(0), 1), Some(bcast(1)), "its place still tells");
        assert_eq!(seats[0].disputes(mark(3, Name::Barrier), 1), None, "it may not be there yet");
    }

    #[test]
    fn a_rank_that_went_on_without_giving_anything_is_found() {
        let seats = seats(2, 0);
        seats[1].begin(mark(4, Name::Scan));
        seats[1].begin(mark(5, Name::Barrier));
        assert_eq!(seats[0].come(mark(4, Name::Bcast), 1), Come::Elsewhere(mark(4, Name::Scan)));
        assert_eq!(seats[0].come(mark(4, Name::Scan), 1), Come::No, "by messages, as this rank");
        seats[1].begin(mark(6, Name::Barrier));
        assert_eq!(seats[0].come(mark(4, Name::Bcast), 1), Come::Past);
    }

    #[test]
    fn a_place_is_free_when_every_rank_is_through_with_what_it_held() {
        let seats = seats(3, 1);
        let free = |number| seats[0].is_free(number, [1, 2].into_iter());
        assert!(free(0) && free(1) && !free(2));
        seats[0].waits(true);
        assert!(seats[1].end(0), "a rank waits for it");
        seats[0].waits(false);
        assert!(!seats[1].end(1) && !free(2));
        let _ = seats[2].end(0);
        assert!(free(2) && !free(3));
    }

    #[test]
    fn boards_do_not_overlap() {
        let (one, other) = (seats(2, 0), Seat::new(&seats(2, 0)[0].board, BOARDS as u32 - 1).unwrap());
        other.begin(mark(0, Name::Barrier));
        other.give(mark(0, Name::Barrier), PLACE, |place| {
            place.iter().for_each(|byte| byte.store(1, Ordering::Relaxed))
        });
        assert_eq!(one[1].come(mark(0, Name::Barrier), 0), Come::No);
        assert!(Seat::new(&one[0].board, BOARDS as u32).is_none());
    }
}
