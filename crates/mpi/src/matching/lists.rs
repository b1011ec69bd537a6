//! Entries in queues that are found by key: an entry is in `N` queues at once and leaves all of them in constant time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What a queue is found by: a context, a source and a tag, each of the latter possibly open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    context: u32,
    source: i32,
    tag: i32,
}

/// Stands for an open source or tag. Sources and tags of messages are not negative.
const OPEN: i32 = -1;

impl Key {
    pub(super) fn new(context: u32, source: Option<i32>, tag: Option<i32>) -> Key {
        Key { context, source: source.unwrap_or(OPEN), tag: tag.unwrap_or(OPEN) }
    }

    /// Whether source or tag are open.
    pub(super) fn is_open(&self) -> bool {
        self.source == OPEN || self.tag == OPEN
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(u64::from(self.context) << 32 | u64::from(self.source as u32));
        hasher.write_u32(self.tag as u32);
    }
}

/// Mixes three small numbers. They come from the program itself, not from strangers.
#[derive(Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Where an entry is, and which of the entries that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    index: u32,
    generation: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

#[derive(Debug)]
struct Node<T, const N: usize> {
    order: u64,
    generation: u32,
    keys: [Key; N],
    links: [Link; N],
    /// None: the node is free.
    value: Option<T>,
}

/// First and last entry of a queue; both [`NONE`] when it is empty.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

#[derive(Debug)]
pub(super) struct Lists<T, const N: usize> {
    queues: HashMap<Key, Ends, BuildHasherDefault<Mix>>,
    nodes: Vec<Node<T, N>>,
    free: Vec<u32>,
    /// Grows with every entry: the order in which they came.
    orders: u64,
    /// Queues and entries that were looked at: what matching costs.
    #[cfg(test)]
    looks: std::cell::Cell<u64>,
}

impl<T, const N: usize> Lists<T, N> {
    pub(super) fn new() -> Lists<T, N> {
        Lists {
            queues: HashMap::default(),
            nodes: Vec::new(),
            free: Vec::new(),
            orders: 0,
            #[cfg(test)]
            looks: std::cell::Cell::new(0),
        }
    }

    /// Queues and entries that were looked at so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// Queues or entries are looked at.
    #[inline]
    fn looking(&self, _count: u64) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + _count);
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Puts an entry at the end of its queues.
    pub(super) fn push(&mut self, keys: [Key; N], value: T) -> Place {
        self.orders += 1;
        let index = self.free.pop().unwrap_or(self.nodes.len() as u32);
        let mut links = [Link { before: NONE, after: NONE }; N];
        for (list, link) in links.iter_mut().enumerate() {
            self.looking(2);
            let ends = self.queues.entry(keys[list]).or_insert(Ends { first: index, last: NONE });
            link.before = ends.last;
            ends.last = index;
            match link.before {
                NONE => ends.first = index,
                before => self.nodes[before as usize].links[list].after = index,
            }
        }
        let order = self.orders;
        let generation = self.nodes.get(index as usize).map_or(0, |node| node.generation);
        let node = Node { order, generation, keys, links, value: Some(value) };
        match self.nodes.get_mut(index as usize) {
            Some(old) => *old = node,
            None => self.nodes.push(node),
        }
        self.tidy();
        Place { index, generation }
    }

    /// The entry that came first of those in a queue, which is the `list`th of each of its entries.
    pub(super) fn front(&self, key: Key, list: usize) -> Option<Place> {
        self.looking(1);
        let first = self.queues.get(&key)?.first;
        self.looking(1);
        let node = self.nodes.get(first as usize)?;
        debug_assert_eq!(node.keys[list], key);
        Some(Place { index: first, generation: node.generation })
    }

    /// Smaller for entries that came earlier.
    pub(super) fn order(&self, place: Place) -> u64 {
        self.nodes[place.index as usize].order
    }

    pub(super) fn get(&self, place: Place) -> Option<&T> {
        let node = self.nodes.get(place.index as usize).filter(|node| node.generation == place.generation)?;
        node.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let node =
            self.nodes.get_mut(place.index as usize).filter(|node| node.generation == place.generation)?;
        node.value.as_mut()
    }

    /// Takes an entry out of all its queues. None: it is not there any more.
    pub(super) fn remove(&mut self, place: Place) -> Option<([Key; N], T)> {
        let node =
            self.nodes.get_mut(place.index as usize).filter(|node| node.generation == place.generation)?;
        let value = node.value.take()?;
        node.generation = node.generation.wrapping_add(1);
        let (keys, links) = (node.keys, node.links);
        for (list, link) in links.into_iter().enumerate() {
            self.looking(3);
            if let Some(before) = self.nodes.get_mut(link.before as usize) {
                before.links[list].after = link.after;
            }
            if let Some(after) = self.nodes.get_mut(link.after as usize) {
                after.links[list].before = link.before;
            }
            if let Some(ends) = self.queues.get_mut(&keys[list]) {
                ends.first = if ends.first == place.index { link.after } else { ends.first };
                ends.last = if ends.last == place.index { link.before } else { ends.last };
            }
        }
        self.free.push(place.index);
        Some((keys, value))
    }

    /// Empty queues are kept, as programs use few keys again and again; when most of many are empty they go.
    fn tidy(&mut self) {
        if self.queues.len() > 256 + 2 * N * self.len() {
            self.looking(self.queues.len() as u64);
            self.queues.retain(|_, ends| ends.first != NONE);
        }
    }
}
