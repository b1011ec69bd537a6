//! Where in a file the buffers of a sink belong, and which of its bytes have come.
//!
//! Buffers with a place go there; a place that is taken already is an error, because one of two buffers would be lost. Buffers without
//! one go behind each other. Both kinds in one sink are an error, too: what is appended has no place among the others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The places of one sink.
#[derive(Debug, Default)]
pub(super) struct Places {
    state: Mutex<PlacesState>,
    appending: bool,
}

#[derive(Debug, Default)]
struct PlacesState {
    /// Stretches that have come, from start to end; none touches another.
    stretches: BTreeMap<u64, u64>,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Placed,
    Appended,
}

/// What sinks say of buffers with and without a place.
pub(super) const MIXED: &str =
    "some buffers say where they belong and others do not; hint: let the sink append all of them";

/// What sinks say of a place that is taken.
pub(super) fn taken(position: u64) -> String {
    format!(
        "two buffers belong at offset {position}; hint: flows of several sources go through one RiverSink, or to a sink that appends"
    )
}

impl Places {
    /// Every buffer goes behind those before it, whatever it says.
    pub(super) fn appending() -> Places {
        Places { appending: true, ..Places::default() }
    }

    /// Where a payload of `len` bytes goes, which from now on has come. The error has words for it.
    pub(super) fn of(&self, position: Option<u64>, len: u64) -> Result<u64, String> {
        let position = position.filter(|_| !self.appending);
        let mut state = self.state();
        if len == 0 {
            return Ok(position.unwrap_or(0));
        }
        let kind = if position.is_some() { Kind::Placed } else { Kind::Appended };
        if *state.kind.get_or_insert(kind) != kind {
            return Err(MIXED.into());
        }
        let start = position.unwrap_or_else(|| state.end());
        if state.add(start, len) { Ok(start) } else { Err(taken(start)) }
    }

    /// How long the file is; or where its first byte is missing, and the first that is there behind it.
    pub(super) fn whole(&self) -> Result<u64, (u64, u64)> {
        let state = self.state();
        let mut stretches = state.stretches.iter();
        match (stretches.next(), stretches.next()) {
            (None, _) => Ok(0),
            (Some((0, &end)), None) => Ok(end),
            (Some((0, &end)), Some((&next, _))) => Err((end, next)),
            (Some((&first, _)), _) => Err((0, first)),
        }
    }

    /// The bytes that have come if they are one stretch; or the first that is missing between two, and the first behind it.
    pub(super) fn stretch(&self) -> Result<Range<u64>, (u64, u64)> {
        let state = self.state();
        let mut stretches = state.stretches.iter();
        match (stretches.next(), stretches.next()) {
            (None, _) => Ok(0..0),
            (Some((&start, &end)), None) => Ok(start..end),
            (Some((_, &end)), Some((&next, _))) => Err((end, next)),
        }
    }

    fn state(&self) -> MutexGuard<'_, PlacesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlacesState {
    fn end(&self) -> u64 {
        self.stretches.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// Notes that these bytes have come; false if some of them had.
    fn add(&mut self, start: u64, len: u64) -> bool {
        let Some(mut end) = start.checked_add(len) else { return false };
        let mut from = start;
        if let Some((&before, &until)) = self.stretches.range(..=start).next_back() {
            if until > start {
                return false;
            }
            if until == start {
                from = before;
            }
        }
        if let Some((&next, &until)) = self.stretches.range(start..).next() {
            if next < end {
                return false;
            }
            if next == end {
                self.stretches.remove(&next);
                end = until;
            }
        }
        self.stretches.insert(from, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_join_whatever_their_order_and_none_is_given_twice() {
        let places = Places::default();
        assert_eq!((places.whole(), places.stretch()), (Ok(0), Ok(0..0)));
        for n in [5u64, 1, 3, 2, 7] {
            assert_eq!(places.of(Some(n * 10), 10), Ok(n * 10));
        }
        assert_eq!((places.whole(), places.stretch()), (Err((0, 10)), Err((40, 50))));
        assert_eq!(places.of(Some(0), 10), Ok(0));
        assert_eq!(places.whole(), Err((40, 50)));
        for (position, len) in [(0, 1), (5, 10), (39, 2), (45, 6), (45, 100), (59, 1), (79, 5)] {
            assert_eq!(places.of(Some(position), len), Err(taken(position)), "{position} and {len}");
        }
        assert_eq!(places.of(Some(u64::MAX), 2), Err(taken(u64::MAX)));
        assert_eq!((places.of(Some(40), 10), places.of(Some(60), 10)), (Ok(40), Ok(60)));
        assert_eq!((places.of(Some(3), 0), places.whole()), (Ok(3), Ok(80)), "nothing has no place");
        assert_eq!(places.of(None, 1), Err(MIXED.into()));
    }

    #[test]
    fn appended_buffers_follow_what_came() {
        let (places, all) = (Places::default(), Places::appending());
        assert_eq!([3, 0, 4, 1].map(|len| places.of(None, len)), [Ok(0), Ok(0), Ok(3), Ok(7)]);
        assert_eq!(places.of(Some(8), 1), Err(MIXED.into()));
        assert_eq!([(0, 5), (0, 5), (90, 5)].map(|(at, len)| all.of(Some(at), len)), [Ok(0), Ok(5), Ok(10)]);
        assert_eq!((places.whole(), all.whole()), (Ok(8), Ok(15)));
        let part = Places::default();
        assert_eq!([70, 60].map(|at| part.of(Some(at), 10)), [Ok(70), Ok(60)]);
        assert_eq!(
            (part.whole(), part.stretch()),
            (Err((0, 60)), Ok(60..80)),
            "a part of a file that others write, too"
        );
    }
}
