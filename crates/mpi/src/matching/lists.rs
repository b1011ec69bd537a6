//! Entries in queues that are found by key: an entry is in `N` queues at once and leaves all of them in constant time.
//!
//! Queues are not kept one by one. Entries whose keys have the same hash form a chain, in the order in which they came, so the first
//! with a key is the front of that key's queue. There are as many chains as entries at least, and those of different queues
//! of an entry are apart: a chain is as long as a queue, or has one or two entries.

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
    #[inline]
    pub(super) fn new(context: u32, source: Option<i32>, tag: Option<i32>) -> Key {
        Key { context, source: source.unwrap_or(OPEN), tag: tag.unwrap_or(OPEN) }
    }

    /// Whether source or tag are open.
    pub(super) fn is_open(&self) -> bool {
        self.source == OPEN || self.tag == OPEN
    }

    /// Mixes three small numbers into the upper bits. They come from the program itself, not from strangers.
    #[inline]
    fn hash(&self) -> u64 {
        let first = u64::from(self.context) << 32 | u64::from(self.source as u32);
        let mixed = first.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29) ^ u64::from(self.tag as u32);
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Where an entry is, and which of the entries that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryAt {
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

/// First and last entry of a chain; both [`NONE`] when it is empty.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// Chains at first, few enough in tests that they are soon too few. There are always a power of two of them.
const CHAINS: usize = if cfg!(test) { 4 } else { 64 };

#[derive(Debug)]
pub(super) struct Lists<T, const N: usize> {
    /// For each of an entry's queues, by the upper bits of the key's hash.
    chains: [Box<[Ends]>; N],
    nodes: Vec<Node<T, N>>,
    free: Vec<u32>,
    /// Grows with every entry: the order in which they came.
    orders: u64,
    /// Chains and entries that were looked at: what matching costs.
    #[cfg(test)]
    looks: std::cell::Cell<u64>,
}

impl<T, const N: usize> Lists<T, N> {
    /// Most bytes that an entry takes: its node, its place among the free ones, and chains, of which there are up to twice as many as entries.
    pub(super) const ENTRY: usize = size_of::<Node<T, N>>() + size_of::<u32>() + 2 * N * size_of::<Ends>();

    pub(super) fn new() -> Lists<T, N> {
        Lists {
            chains: std::array::from_fn(|_| empty(CHAINS)),
            nodes: Vec::new(),
            free: Vec::new(),
            orders: 0,
            #[cfg(test)]
            looks: std::cell::Cell::new(0),
        }
    }

    /// Chains and entries that were looked at so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// Chains or entries are looked at.
    #[inline]
    fn looking(&self, _count: u64) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + _count);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Puts an entry at the end of its queues.
    #[inline]
    pub(super) fn push(&mut self, keys: [Key; N], value: T) -> EntryAt {
        self.orders += 1;
        let links = [Link { before: NONE, after: NONE }; N];
        let (order, value) = (self.orders, Some(value));
        let place = match self.free.pop() {
            Some(index) => {
                let node = &mut self.nodes[index as usize];
                let generation = node.generation;
                *node = Node { order, generation, keys, links, value };
                EntryAt { index, generation }
            }
            None => {
                self.nodes.push(Node { order, generation: 0, keys, links, value });
                EntryAt { index: self.nodes.len() as u32 - 1, generation: 0 }
            }
        };
        if self.nodes.len() > self.chains[0].len() {
            self.spread();
        } else {
            self.append(place.index);
        }
        place
    }

    /// Puts an entry at the ends of its chains.
    #[inline]
    fn append(&mut self, index: u32) {
        for list in 0..N {
            self.looking(2);
            let ends = ends(&mut self.chains[list], &self.nodes[index as usize].keys[list]);
            let before = std::mem::replace(&mut ends.last, index);
            if before == NONE {
                ends.first = index;
            } else {
                self.nodes[before as usize].links[list].after = index;
                self.nodes[index as usize].links[list].before = before;
            }
        }
    }

    /// Twice as many chains, when there are more entries than chains.
    #[cold]
    fn spread(&mut self) {
        let count = self.chains[0].len() * 2;
        self.chains = std::array::from_fn(|_| empty(count));
        let used = |index: &u32| self.nodes[*index as usize].value.is_some();
        let mut all: Vec<u32> = (0..self.nodes.len() as u32).filter(used).collect();
        all.sort_unstable_by_key(|index| self.nodes[*index as usize].order);
        for index in all {
            self.nodes[index as usize].links = [Link { before: NONE, after: NONE }; N];
            self.append(index);
        }
    }

    /// The entry that came first of those in a queue, which is the `list`th of each of its entries.
    #[inline]
    pub(super) fn front(&self, key: Key, list: usize) -> Option<EntryAt> {
        self.looking(1);
        let chains = &self.chains[list];
        let mut index = chains[chain(chains, &key)].first;
        while let Some(node) = self.nodes.get(index as usize) {
            self.looking(1);
            if node.keys[list] == key {
                return Some(EntryAt { index, generation: node.generation });
            }
            index = node.links[list].after;
        }
        None
    }

    /// Smaller for entries that came earlier.
    pub(super) fn order(&self, place: EntryAt) -> u64 {
        self.nodes[place.index as usize].order
    }

    pub(super) fn get(&self, place: EntryAt) -> Option<&T> {
        let node = self.nodes.get(place.index as usize).filter(|node| node.generation == place.generation)?;
        node.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: EntryAt) -> Option<&mut T> {
        let node =
            self.nodes.get_mut(place.index as usize).filter(|node| node.generation == place.generation)?;
        node.value.as_mut()
    }

    /// Takes an entry out of all its queues. None: it is not there any more.
    #[inline]
    pub(super) fn remove(&mut self, place: EntryAt) -> Option<([Key; N], T)> {
        let node =
            self.nodes.get_mut(place.index as usize).filter(|node| node.generation == place.generation)?;
        let value = node.value.take()?;
        node.generation = node.generation.wrapping_add(1);
        let (keys, links) = (node.keys, node.links);
        for (list, link) in links.into_iter().enumerate() {
            self.looking(3);
            match link.before {
                NONE => ends(&mut self.chains[list], &keys[list]).first = link.after,
                before => self.nodes[before as usize].links[list].after = link.after,
            }
            match link.after {
                NONE => ends(&mut self.chains[list], &keys[list]).last = link.before,
                after => self.nodes[after as usize].links[list].before = link.before,
            }
        }
        self.free.push(place.index);
        Some((keys, value))
    }
}

impl<T> Lists<T, 1> {
    /// Takes the entry that came first of those in a queue. The usual one is the first of its chain.
    #[inline]
    pub(super) fn take_front(&mut self, key: Key) -> Option<T> {
        let at = chain(&self.chains[0], &key);
        let index = self.chains[0][at].first;
        let node = self.nodes.get_mut(index as usize)?;
        if node.keys[0] != key {
            let place = self.front(key, 0)?;
            return self.remove(place).map(|(_, value)| value);
        }
        let value = node.value.take()?;
        node.generation = node.generation.wrapping_add(1);
        let after = node.links[0].after;
        self.chains[0][at].first = after;
        match self.nodes.get_mut(after as usize) {
            Some(next) => next.links[0].before = NONE,
            None => self.chains[0][at].last = NONE,
        }
        self.looking(3);
        self.free.push(index);
        Some(value)
    }
}

/// Empty chains.
fn empty(count: usize) -> Box<[Ends]> {
    vec![Ends { first: NONE, last: NONE }; count].into_boxed_slice()
}

/// Which of the chains a key belongs to.
#[inline]
fn chain(chains: &[Ends], key: &Key) -> usize {
    (key.hash() >> (64 - chains.len().trailing_zeros())) as usize
}

#[inline]
fn ends<'a>(chains: &'a mut [Ends], key: &Key) -> &'a mut Ends {
    let chain = chain(chains, key);
    &mut chains[chain]
}
