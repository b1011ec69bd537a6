//! Matching: which receive a message belongs to (section 3.5 of the standard). Pure: envelopes and values, no bytes.
//!
//! Messages of one sender on one communicator match in the order they were sent, receives in the order they were posted.
//! A message looks at the fronts of at most four queues (source and tag given, one of them open, both open) and takes the
//! receive that was posted first; a receive looks at one. The cost is the same for ten entries and for ten thousand, in
//! whatever order they are matched.

mod lists;

use lists::{Key, Lists};

/// What a message says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The communicator's context.
    pub context: u32,
    /// The sender's rank in the communicator.
    pub source: i32,
    /// The tag, not negative.
    pub tag: i32,
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The communicator's context.
    pub context: u32,
    /// The sender's rank. None: any.
    pub source: Option<i32>,
    /// The tag. None: any.
    pub tag: Option<i32>,
}

impl Pattern {
    /// Whether the receive takes the message.
    #[inline]
    pub fn takes(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }

    #[inline]
    fn key(&self) -> Key {
        Key::new(self.context, self.source, self.tag)
    }
}

impl Envelope {
    /// The queues of receives that may take this message.
    fn keys(&self) -> [Key; 4] {
        let (source, tag) = (Some(self.source), Some(self.tag));
        [(source, tag), (source, None), (None, tag), (None, None)]
            .map(|(source, tag)| Key::new(self.context, source, tag))
    }
}

/// Names an entry of a queue as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry(lists::EntryAt);

/// Receives that wait for their message.
#[derive(Debug)]
pub struct Posted<T> {
    lists: Lists<T, 1>,
    /// Receives with an open source or tag; while there are none, a message looks at one queue.
    open: usize,
}

impl<T> Posted<T> {
    /// Without receives.
    pub fn new() -> Posted<T> {
        Posted { lists: Lists::new(), open: 0 }
    }

    /// How many receives wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether none does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A receive was posted.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, value: T) -> Entry {
        self.open += usize::from(pattern.source.is_none() || pattern.tag.is_none());
        Entry(self.lists.push([pattern.key()], value))
    }

    /// A message came: takes the receive that was posted first among those that take it.
    #[inline]
    pub fn take(&mut self, envelope: &Envelope) -> Option<T> {
        if self.is_empty() { None } else { self.take_first(envelope) }
    }

    #[inline]
    fn take_first(&mut self, envelope: &Envelope) -> Option<T> {
        if self.open == 0 {
            let exact = Key::new(envelope.context, Some(envelope.source), Some(envelope.tag));
            return self.lists.take_front(exact);
        }
        let keys = envelope.keys();
        let fronts = keys.iter().filter_map(|key| self.lists.front(*key, 0));
        let first = fronts.min_by_key(|place| self.lists.order(*place))?;
        self.remove(first)
    }

    /// A receive was cancelled. None: it has been matched already.
    pub fn cancel(&mut self, entry: Entry) -> Option<T> {
        self.remove(entry.0)
    }

    fn remove(&mut self, place: lists::EntryAt) -> Option<T> {
        let ([key], value) = self.lists.remove(place)?;
        self.open -= usize::from(key.is_open());
        Some(value)
    }
}

impl<T> Default for Posted<T> {
    fn default() -> Posted<T> {
        Posted::new()
    }
}

/// Messages that came before their receive.
#[derive(Debug)]
pub struct Unexpected<T> {
    lists: Lists<(Envelope, T), 4>,
}

impl<T> Unexpected<T> {
    /// Most bytes that a message takes here, beside what its value refers to.
    pub const ENTRY: usize = Lists::<(Envelope, T), 4>::ENTRY;

    /// Without messages.
    pub fn new() -> Unexpected<T> {
        Unexpected { lists: Lists::new() }
    }

    /// How many messages wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether none does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A message came that no receive takes.
    pub fn push(&mut self, envelope: Envelope, value: T) -> Entry {
        Entry(self.lists.push(envelope.keys(), (envelope, value)))
    }

    /// The first message that a receive would take: what a probe sees.
    pub fn find(&self, pattern: &Pattern) -> Option<Entry> {
        let list = match (pattern.source, pattern.tag) {
            (Some(_), Some(_)) => 0,
            (Some(_), None) => 1,
            (None, Some(_)) => 2,
            (None, None) => 3,
        };
        self.lists.front(pattern.key(), list).map(Entry)
    }

    /// A message that waits.
    pub fn get(&self, entry: Entry) -> Option<(&Envelope, &T)> {
        self.lists.get(entry.0).map(|(envelope, value)| (envelope, value))
    }

    /// A message that waits, to be changed.
    pub fn get_mut(&mut self, entry: Entry) -> Option<&mut T> {
        self.lists.get_mut(entry.0).map(|(_, value)| value)
    }

    /// Takes a message out.
    pub fn remove(&mut self, entry: Entry) -> Option<(Envelope, T)> {
        self.lists.remove(entry.0).map(|(_, value)| value)
    }

    /// A receive was posted: takes the first message for it.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, T)> {
        if self.is_empty() {
            return None;
        }
        let entry = self.find(pattern)?;
        self.remove(entry)
    }
}

impl<T> Default for Unexpected<T> {
    fn default() -> Unexpected<T> {
        Unexpected::new()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
