//! What a worker has borrowed of shared memory in an epoch, so that nothing is borrowed twice and changed.
//!
//! A worker that goes through its data has one borrow at a time, or a few: the last one has a place of its own, and
//! costs some compares.

use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Addresses that are borrowed, and whether they are to be changed.
#[derive(Default)]
pub(crate) struct Borrowed {
    /// One of them; an empty range is none.
    one: Cell<(usize, usize, bool)>,
    /// The others, and how many.
    more: RefCell<Vec<(usize, usize, bool)>>,
    count: Cell<usize>,
}

fn clash(a: (usize, usize, bool), b: (usize, usize, bool)) -> bool {
    // What both have; empty if one of them is.
    (a.2 || b.2) && a.0.max(b.0) < a.1.min(b.1)
}

impl Borrowed {
    /// Borrows a range.
    ///
    /// # Panics
    /// If some of it is borrowed, and one of the two is to be changed.
    #[inline]
    pub(crate) fn add(&self, place: Range<usize>, writes: bool) {
        let (new, one) = ((place.start, place.end, writes), self.one.get());
        let twice = clash(new, one) || (self.count.get() > 0 && self.is_borrowed(new));
        assert!(!twice, "shared values are borrowed twice, once to be changed");
        if one.0 == one.1 {
            self.one.set(new);
        } else if new.0 != new.1 {
            self.count.set(self.count.get() + 1);
            self.more.borrow_mut().push(new);
        }
    }

    #[cold]
    fn is_borrowed(&self, new: (usize, usize, bool)) -> bool {
        self.more.borrow().iter().any(|other| clash(new, *other))
    }

    /// Gives a range back.
    #[inline]
    pub(crate) fn give_back(&self, place: &Range<usize>, writes: bool) {
        let gone = (place.start, place.end, writes);
        if self.one.get() == gone {
            self.one.set((0, 0, false));
        } else if self.count.get() > 0 {
            let mut more = self.more.borrow_mut();
            if let Some(index) = more.iter().position(|other| *other == gone) {
                more.swap_remove(index);
                self.count.set(more.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a borrow is granted; what is refused panics.
    fn add(borrowed: &Borrowed, place: Range<usize>, writes: bool) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| borrowed.add(place, writes))).is_ok()
    }

    #[test]
    fn values_are_read_by_many_and_changed_by_one() {
        let borrowed = Borrowed::default();
        assert!(add(&borrowed, 0..8, false) && add(&borrowed, 4..12, false) && add(&borrowed, 12..16, true));
        assert!(!add(&borrowed, 4..5, true) && !add(&borrowed, 10..13, false) && !add(&borrowed, 0..1, true));
        borrowed.give_back(&(0..8), false);
        assert!(add(&borrowed, 0..4, true), "the first one is back");
        assert!(!add(&borrowed, 4..5, true), "the second one is not");
        borrowed.give_back(&(4..12), false);
        borrowed.give_back(&(12..16), true);
        assert!(add(&borrowed, 4..16, true) && !add(&borrowed, 0..16, false));
        assert!(add(&borrowed, 7..7, true), "nothing is no part of anything");
    }
}
