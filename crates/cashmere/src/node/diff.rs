//! How a diff lies in memory and in messages: runs of changed bytes, each behind its place in the page and its length. And
//! the diffs that are on their way to homes.

use crate::ids::PageId;

/// Diffs that may have to be sent again, by page, until their homes have them. A release has few under way at a time, and their
/// room is used again: it does not grow with the pages of a program.
#[derive(Debug, Default)]
pub(super) struct Kept {
    kept: Vec<(PageId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// Rooms that are kept for the next diffs.
const SPARE: usize = 64;

impl Kept {
    /// The diff of a page, to be looked at and kept again; empty if there is none.
    pub(super) fn take(&mut self, page: PageId) -> Vec<u8> {
        match self.kept.iter().position(|(other, _)| *other == page) {
            Some(at) => self.kept.swap_remove(at).1,
            None => self.spare.pop().unwrap_or_default(),
        }
    }

    /// Keeps the diff of a page.
    pub(super) fn keep(&mut self, page: PageId, diff: Vec<u8>) {
        self.kept.push((page, diff));
    }

    /// The home has the diff of a page.
    pub(super) fn settle(&mut self, page: PageId) {
        let found = self.kept.iter().position(|(other, _)| *other == page);
        let Some((_, mut room)) = found.map(|at| self.kept.swap_remove(at)) else { return };
        if self.spare.len() < SPARE {
            room.clear();
            self.spare.push(room);
        }
    }
}

/// Puts a run at the end of a diff.
pub(super) fn push(diff: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    diff.extend((at as u16).to_le_bytes());
    diff.extend((bytes.len() as u16).to_le_bytes());
    diff.extend(bytes);
}

/// The first run of a diff: its place, its bytes, and what follows. None at the end, and where the bytes are no run.
pub(super) fn run(diff: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let [a, b, c, d, tail @ ..] = diff else { return None };
    let (at, len) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
    let (bytes, rest) = tail.split_at_checked(usize::from(len))?;
    Some((usize::from(at), bytes, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_in_order() {
        let mut diff = Vec::new();
        push(&mut diff, 4095, b"z");
        push(&mut diff, 0, b"abc");
        let (at, bytes, rest) = run(&diff).expect("a run");
        assert_eq!((at, bytes), (4095, &b"z"[..]));
        assert_eq!(run(rest), Some((0, &b"abc"[..], &b""[..])));
        assert_eq!(run(b""), None);
    }

    #[test]
    fn diffs_are_kept_until_their_homes_have_them() {
        let mut kept = Kept::default();
        for turn in 0..10 * SPARE as u32 {
            let page = PageId(turn);
            let mut diff = kept.take(page);
            assert!(diff.is_empty(), "the room of another page");
            push(&mut diff, 1, &[turn as u8; 100]);
            kept.keep(page, diff);
            // Sent once more.
            let again = kept.take(page);
            assert_eq!(run(&again).map(|(_, bytes, _)| bytes), Some(&[turn as u8; 100][..]));
            kept.keep(page, again);
            if turn > 2 {
                kept.settle(PageId(turn - 3));
            }
        }
        assert_eq!((kept.kept.len(), kept.spare.len()), (3, 1), "as many as were under way");
        (0..10 * SPARE as u32).for_each(|page| kept.settle(PageId(page)));
        assert_eq!((kept.kept.len(), kept.spare.len()), (0, 4), "one for each that was under way");
    }

    #[test]
    fn a_run_that_is_cut_off_is_none() {
        let mut diff = Vec::new();
        push(&mut diff, 7, b"abc");
        (0..diff.len()).for_each(|len| assert_eq!(run(&diff[..len]), None));
    }
}
