//! The table in which the two ends of one connection meet. Pure: what is handed out is the caller's, time is an argument.
//!
//! A connection is known by its two names. An end is known by the kernel's cookie of its socket, so that a second claim of
//! the same end (another process that holds it, or the program after exec) gets what the first got, and a new connection
//! between the same names does not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use viaduct_os::bare::sockets::Name;

/// How long a connection is remembered that the kernel does not list: it may just be on its way there.
const YOUNG: Duration = Duration::from_secs(10);

/// The names of a socket's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    pub(crate) own: Name,
    pub(crate) peer: Name,
}

impl Tuple {
    /// The names in an order that is equal for both ends.
    fn key(self) -> Tuple {
        if self.own <= self.peer { self } else { Tuple { own: self.peer, peer: self.own } }
    }

    /// Which of the two ends this is.
    fn end(self) -> usize {
        usize::from(self.own > self.peer)
    }
}

/// Where a connection stands in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(Tuple);

/// What a claim got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) place: Place,
    pub(crate) id: u64,
    pub(crate) side: u32,
    /// The other end was here before.
    pub(crate) second: bool,
    /// This end was here before.
    pub(crate) again: bool,
}

#[derive(Debug)]
struct Entry<T> {
    id: u64,
    /// The cookies of the two ends, by [`Tuple::end`].
    cookies: [Option<u64>; 2],
    /// The end that has side 0.
    first: usize,
    since: Instant,
    thing: T,
}

/// The table. `T` is what both ends of a connection are given.
#[derive(Debug)]
pub(crate) struct Connections<T> {
    entries: HashMap<Tuple, Entry<T>>,
    most: usize,
    next: u64,
}

impl<T> Connections<T> {
    /// An empty one. Numbers of connections start at `first`, which no table before this one has reached: processes may still have
    /// connections of that one.
    pub(crate) fn new(most: usize, first: u64) -> Connections<T> {
        Connections { entries: HashMap::new(), most, next: first }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, place: Place) -> Option<&T> {
        self.entries.get(&place.0).map(|entry| &entry.thing)
    }

    /// Takes a claim; `make` makes what a new connection is given. `Err(None)` if the table is full.
    pub(crate) fn claim<E>(
        &mut self,
        tuple: Tuple,
        cookie: u64,
        now: Instant,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Claimed, Option<E>> {
        let (key, end) = (tuple.key(), tuple.end());
        let known = self.entries.get(&key).and_then(|entry| entry.cookies[end]);
        if known.is_some_and(|known| known != cookie) {
            self.entries.remove(&key); // another connection had these names
        }
        if !self.entries.contains_key(&key) {
            if self.entries.len() >= self.most {
                return Err(None);
            }
            let entry = Entry {
                id: self.next,
                cookies: [None; 2],
                first: end,
                since: now,
                thing: make().map_err(Some)?,
            };
            self.next += 1;
            self.entries.insert(key, entry);
        }
        let Some(entry) = self.entries.get_mut(&key) else { return Err(None) };
        let again = entry.cookies[end].replace(cookie).is_some();
        let side = u32::from(entry.first != end);
        let second = entry.cookies[1 - end].is_some();
        Ok(Claimed { place: Place(key), id: entry.id, side, second: second && side == 1, again })
    }

    /// Forgets what is not there any more; `there` says of a socket's names whether the kernel lists it.
    pub(crate) fn sweep(&mut self, now: Instant, there: impl Fn(Tuple) -> bool) {
        self.entries.retain(|&key, entry| {
            let turned = Tuple { own: key.peer, peer: key.own };
            now.duration_since(entry.since) < YOUNG || there(key) || there(turned)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn names(one: u16, other: u16) -> (Tuple, Tuple) {
        let name = |port| Name { address: [1; 16], port };
        let tuple = Tuple { own: name(one), peer: name(other) };
        (tuple, Tuple { own: tuple.peer, peer: tuple.own })
    }

    fn claim(table: &mut Connections<()>, tuple: Tuple, cookie: u64) -> Claimed {
        table.claim(tuple, cookie, Instant::now(), || Ok::<_, Infallible>(())).unwrap()
    }

    #[test]
    fn two_ends_meet_in_either_order() {
        let mut table = Connections::new(8, 1);
        for (client, server) in [names(1, 2), names(4, 3)] {
            let first = claim(&mut table, client, 10);
            let second = claim(&mut table, server, 20);
            assert_eq!((first.side, first.second, first.again), (0, false, false));
            assert_eq!((second.side, second.second, second.again), (1, true, false));
            assert_eq!((first.id, first.place), (second.id, second.place));
        }
    }

    #[test]
    fn the_same_end_gets_the_same_again() {
        let mut table = Connections::new(8, 1);
        let (client, server) = names(1, 2);
        let first = claim(&mut table, client, 10);
        assert_eq!(claim(&mut table, client, 10), Claimed { again: true, ..first });
        let second = claim(&mut table, server, 20);
        assert_eq!(claim(&mut table, server, 20), Claimed { again: true, ..second });
        // The first end does not open by itself, however often it asks.
        assert!(!claim(&mut table, client, 10).second);
    }

    #[test]
    fn a_new_connection_between_the_same_names_is_another() {
        let mut table = Connections::new(8, 1);
        let (client, server) = names(1, 2);
        let old = claim(&mut table, client, 10);
        claim(&mut table, server, 20);
        let new = claim(&mut table, client, 11);
        assert!(new.id != old.id && new.side == 0 && !new.again);
        assert!(claim(&mut table, server, 21).second);
    }

    #[test]
    fn a_connection_that_is_gone_is_forgotten_and_the_table_has_an_end() {
        let mut table = Connections::new(2, 1);
        let (one, _) = names(1, 2);
        let (two, _) = names(3, 4);
        let start = Instant::now();
        claim(&mut table, one, 1);
        claim(&mut table, two, 2);
        let full = table.claim(names(5, 6).0, 3, start, || Ok::<_, Infallible>(()));
        assert_eq!(full, Err(None));
        table.sweep(start, |_| false);
        assert!(!table.is_empty(), "young ones stay");
        table.sweep(start + 2 * YOUNG, |tuple| tuple == one || tuple.key() == one.key());
        assert!(claim(&mut table, one, 1).again && !claim(&mut table, two, 2).again);
    }
}
