//! The ring of one direction of a connection: entries of one cache line, one producer, one consumer.
//!
//! The first word of an entry says what it is and carries the lap it was written in; it is stored last, with release,
//! so that flag and payload arrive in one cache line. The consumer never writes the ring: it tells elsewhere how many
//! entries it has used up, now and then. Both sides keep their own positions in private memory; what the other side
//! says is checked before it is believed.

use std::ops::Deref;

use super::sync::{AtomicU64, Ordering};

/// Payload words in the first entry of a message.
pub(crate) const FIRST_WORDS: usize = 6;
/// Payload words in the second.
const SECOND_WORDS: usize = 7;
/// Most words that travel inside the ring.
pub(crate) const INLINE_WORDS: usize = FIRST_WORDS + SECOND_WORDS;
/// Most bytes that travel inside the ring.
pub(crate) const INLINE_BYTES: usize = INLINE_WORDS * 8;

/// One entry.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// Length (32 bits), kind (8), flags (8), lap (16).
    head: AtomicU64,
    /// Immediate data and a spare number, then payload.
    body: [AtomicU64; 7],
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The payload is here.
    Inline = 1,
    /// The payload is in the receive buffer already.
    Pushed = 2,
    /// The payload, or a piece of it, is to be fetched from the sender's memory.
    Pull = 3,
    /// An RDMA write with immediate data was carried out.
    Written = 4,
    /// Second half of the entry before it.
    More = 5,
}

impl Kind {
    #[inline]
    fn from_number(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::Inline,
            2 => Kind::Pushed,
            3 => Kind::Pull,
            4 => Kind::Written,
            5 => Kind::More,
            _ => return None,
        })
    }
}

/// The entry has immediate data.
pub(crate) const HAS_IMMEDIATE: u8 = 1;
/// More pieces of the same message follow.
pub(crate) const CONTINUES: u8 = 2;
/// The memory to fetch from is the user's own and goes back to the user when the sender closes.
pub(crate) const USERS: u8 = 4;

/// The entry is one of a burst: more are likely to follow at once.
pub(crate) const BURSTING: u8 = 8;

/// The first word of an entry, taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) len: u32,
}

/// The other side wrote something impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Corrupt;

/// Size of a ring, in the forms the data path needs.
#[derive(Clone, Copy)]
struct Shape {
    mask: u64,
    shift: u32,
}

impl Shape {
    fn of(slots: &[Slot]) -> Shape {
        assert!(slots.len().is_power_of_two(), "a ring has a power of two of slots");
        Shape { mask: slots.len() as u64 - 1, shift: slots.len().trailing_zeros() }
    }

    #[inline]
    fn slots(self) -> u64 {
        self.mask + 1
    }

    #[inline]
    fn lap(self, index: u64) -> u64 {
        ((index >> self.shift) + 1) & 0xffff
    }

    #[inline]
    fn at(self, slots: &[Slot], index: u64) -> &Slot {
        debug_assert_eq!(slots.len() as u64, self.slots());
        // SAFETY: the shape was taken from these slots, whose number is a power of two and never changes.
        unsafe { slots.get_unchecked((index & self.mask) as usize) }
    }
}

#[inline]
fn pack(kind: Kind, flags: u8, len: u32, lap: u64) -> u64 {
    u64::from(len) | (kind as u64) << 32 | u64::from(flags) << 40 | lap << 48
}

/// Entries needed for a payload of this many words.
#[inline]
pub(crate) fn entries_for(words: usize) -> u64 {
    1 + u64::from(words > FIRST_WORDS)
}

/// [`BURSTING`] in the first word of an entry.
const IN_BURST: u64 = (BURSTING as u64) << 40;
/// [`HAS_IMMEDIATE`] in the first word of an entry.
const WITH_IMMEDIATE: u64 = (HAS_IMMEDIATE as u64) << 40;
/// Messages in a row that make a burst.
const BURST: u32 = 4;
/// Lines the consumer asks for behind the last entry of a burst.
const FETCH: u64 = 16;
/// How far ahead of the producer lines are fetched for writing: between far cores a line takes as long as several
/// messages, and much further ahead the consumer still has them.
const AHEAD: u64 = 16;

/// Asks for the line of a slot that will be written soon, so that a burst does not wait for each line in turn. The
/// consumer is not there yet, so nothing is taken away from it.
#[inline(always)]
fn own_soon(slot: &Slot) {
    viaduct_os::copy::own((&raw const *slot).cast::<u8>(), size_of::<Slot>());
}

/// Asks for the line of a slot that will be read soon.
#[inline(always)]
fn fetch_soon(slot: &Slot) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: a prefetch has no effect but on the cache.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>((slot as *const Slot).cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = slot;
}

/// The writing end.
pub(crate) struct Producer<S> {
    slots: S,
    shape: Shape,
    next: u64,
    /// Entries known to be used up by the consumer.
    consumed: u64,
    /// Messages written since [`pause`](Producer::pause).
    run: u32,
    /// [`BURSTING`], where it stands in the first word, if this run or the one before is a burst.
    bursting: u64,
    /// The last message took two entries.
    wide: bool,
}

impl<S: Deref<Target = [Slot]>> Producer<S> {
    pub(crate) fn new(slots: S) -> Producer<S> {
        Producer { shape: Shape::of(&slots), slots, next: 0, consumed: 0, run: 0, bursting: 0, wide: false }
    }

    /// Something came the other way: an answer, or a word between two parts of a stream.
    #[inline]
    pub(crate) fn pause(&mut self) {
        self.bursting = if self.run >= BURST { IN_BURST } else { 0 };
        self.run = 0;
    }

    /// A message has come that may be answered, as those before it were: asks for the lines of the answer, one of which
    /// the peer looks at meanwhile. They would be asked for when a store waits for them else, after all the work that is
    /// between message and answer; between far cores that is the larger part of a message's time.
    #[inline(always)]
    pub(crate) fn own_next(&self) {
        if self.run != 0 {
            if self.wide {
                // Written first.
                own_soon(self.shape.at(&self.slots, self.next + 1));
            }
            own_soon(self.shape.at(&self.slots, self.next));
        }
    }

    /// Whether one more fits, as far as is known.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.next - self.consumed < self.shape.slots()
    }

    /// Whether `entries` more fit; asks the consumer's counter only when those known of do not suffice.
    #[inline]
    pub(crate) fn room(&mut self, entries: u64, consumed: &AtomicU64) -> Result<bool, Corrupt> {
        let slots = self.shape.slots();
        if self.next + entries - self.consumed <= slots {
            return Ok(true);
        }
        // Acquire: the consumer's reads of the entries come before we overwrite them.
        let told = consumed.load(Ordering::Acquire);
        if told < self.consumed || told > self.next {
            return Err(Corrupt);
        }
        self.consumed = told;
        Ok(self.next + entries - told <= slots)
    }

    /// Writes a message of at most one word; the caller has checked that there is [`room`](Self::room).
    #[inline(always)]
    pub(crate) fn put_word(&mut self, flags: u8, len: u32, immediate: u32, word: u64) {
        let slot = self.shape.at(&self.slots, self.next);
        slot.body[1].store(word, Ordering::Relaxed);
        if flags != 0 {
            slot.body[0].store(u64::from(immediate), Ordering::Relaxed);
        }
        let head = pack(Kind::Inline, flags, len, self.shape.lap(self.next)) | self.bursting;
        slot.head.store(head, Ordering::Release);
        self.run += 1;
        // An exchange of single messages would gain nothing from it.
        if self.bursting != 0 {
            own_soon(self.shape.at(&self.slots, self.next + AHEAD));
        } else if self.run >= BURST {
            self.bursting = IN_BURST;
        }
        self.next += 1;
    }

    /// Writes a message of one entry, `len` bytes of these words; the caller has checked that there is [`room`](Self::room).
    #[inline]
    pub(crate) fn put_line(&mut self, flags: u8, len: u32, immediate: u32, words: &[u64; FIRST_WORDS]) {
        let slot = self.shape.at(&self.slots, self.next);
        // All of them, whatever the length: the line travels as a whole.
        for (to, from) in slot.body[1..].iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        slot.body[0].store(u64::from(immediate), Ordering::Relaxed);
        slot.head.store(pack(Kind::Inline, flags, len, self.shape.lap(self.next)), Ordering::Release);
        self.run += 1;
        self.wide = false;
        self.next += 1;
    }

    /// Writes one message; the caller has checked that there is [`room`](Self::room).
    #[inline]
    pub(crate) fn put(&mut self, head: Head, immediate: u32, spare: u32, words: &[u64]) {
        let shape = self.shape;
        if words.len() > FIRST_WORDS {
            let index = self.next + 1;
            let second = shape.at(&self.slots, index);
            for (to, from) in second.body.iter().zip(&words[FIRST_WORDS..]) {
                to.store(*from, Ordering::Relaxed);
            }
            // Published together with the first entry.
            second.head.store(pack(Kind::More, 0, 0, shape.lap(index)), Ordering::Relaxed);
        }
        let first = shape.at(&self.slots, self.next);
        for (to, from) in first.body[1..].iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        first.body[0].store(u64::from(immediate) | u64::from(spare) << 32, Ordering::Relaxed);
        first.head.store(pack(head.kind, head.flags, head.len, shape.lap(self.next)), Ordering::Release);
        self.run += 1;
        self.wide = words.len() > FIRST_WORDS;
        self.next += entries_for(words.len());
    }
}

/// What a message of one word may be beside that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras(u64);

impl Extras {
    /// One of a burst.
    #[inline(always)]
    pub(crate) fn in_burst(self) -> bool {
        self.0 & IN_BURST != 0
    }

    /// With immediate data.
    #[inline(always)]
    pub(crate) fn has_immediate(self) -> bool {
        self.0 & WITH_IMMEDIATE != 0
    }
}

/// The reading end.
pub(crate) struct Consumer<S> {
    slots: S,
    shape: Shape,
    next: u64,
    told: u64,
    /// Where it is worth to tell the producer what was used up: a quarter of the ring further.
    tell_at: u64,
}

impl<S: Deref<Target = [Slot]>> Consumer<S> {
    pub(crate) fn new(slots: S) -> Consumer<S> {
        let shape = Shape::of(&slots);
        Consumer { shape, slots, next: 0, told: 0, tell_at: shape.slots() / 4 }
    }

    /// How many entries are there, up to `most`. The look-ups do not depend on each other, so that the cache lines of
    /// a burst travel side by side instead of one after the other.
    #[inline]
    pub(crate) fn ready(&self, most: u64) -> u64 {
        let mut count = 0;
        while count < most {
            let index = self.next + count;
            if self.shape.at(&self.slots, index).head.load(Ordering::Acquire) >> 48 != self.shape.lap(index) {
                break;
            }
            count += 1;
        }
        count
    }

    /// Whether the last entry taken was one of a burst; then the lines behind it are asked for.
    #[inline]
    pub(crate) fn fetch_burst(&self) -> bool {
        let index = self.next.wrapping_sub(1);
        let burst =
            (self.shape.at(&self.slots, index).head.load(Ordering::Relaxed) >> 40) as u8 & BURSTING != 0;
        if burst {
            for further in 0..FETCH {
                fetch_soon(self.slot(further));
            }
        }
        burst
    }

    /// Position in the stream of entries.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.next
    }

    /// The next message, if one is there.
    #[inline]
    pub(crate) fn peek(&self) -> Result<Option<Head>, Corrupt> {
        let word = self.slot(0).head.load(Ordering::Acquire);
        let expected = self.shape.lap(self.next);
        if word >> 48 != expected {
            // Only the lap before (or a fresh ring) may stand here.
            let stale = expected.wrapping_sub(1) & 0xffff;
            return if word >> 48 == stale { Ok(None) } else { Err(Corrupt) };
        }
        // The most frequent kind is told apart first.
        if (word >> 32) as u8 == Kind::Inline as u8 {
            return Ok(Some(Head { kind: Kind::Inline, flags: (word >> 40) as u8, len: word as u32 }));
        }
        match Kind::from_number((word >> 32) as u8) {
            None | Some(Kind::More) => Err(Corrupt),
            Some(kind) => Ok(Some(Head { kind, flags: (word >> 40) as u8, len: word as u32 })),
        }
    }

    /// The word in which the next message will show, and the lap it will carry.
    pub(crate) fn next_word(&self) -> (&AtomicU64, u64) {
        (&self.slot(0).head, self.shape.lap(self.next))
    }

    /// Whether the next message is there and has just a word of payload; if so, what its first word says beside that.
    #[inline(always)]
    pub(crate) fn full_word(&self) -> Option<Extras> {
        let word = self.slot(0).head.load(Ordering::Acquire);
        let extras = word & (IN_BURST | WITH_IMMEDIATE);
        let plain = pack(Kind::Inline, 0, 8, self.shape.lap(self.next));
        (word ^ extras == plain).then_some(Extras(extras))
    }

    /// Asks for a line of a burst that is further on.
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self) {
        fetch_soon(self.slot(FETCH));
    }

    /// Immediate data and the spare number of the next message.
    #[inline]
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let word = self.slot(0).body[0].load(Ordering::Relaxed);
        (word as u32, (word >> 32) as u32)
    }

    /// The first payload word of the next message.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.slot(0).body[1].load(Ordering::Relaxed)
    }

    /// The payload words of the next message.
    pub(crate) fn words(&self, into: &mut [u64]) {
        let slot = self.slot(0);
        for (to, from) in into.iter_mut().zip(&slot.body[1..]) {
            *to = from.load(Ordering::Relaxed);
        }
        if into.len() > FIRST_WORDS {
            let second = self.slot(1);
            for (to, from) in into[FIRST_WORDS..].iter_mut().zip(&second.body) {
                *to = from.load(Ordering::Relaxed);
            }
        }
    }

    /// The next message is dealt with.
    #[inline]
    pub(crate) fn pop(&mut self, words: usize) {
        self.next += entries_for(words);
    }

    /// Whether it is worth to [`tell`](Self::tell) the producer what was used up.
    #[inline]
    pub(crate) fn must_tell(&self) -> bool {
        self.next >= self.tell_at
    }

    /// Tells the producer what was used up, if that is worth a store (a quarter of the ring) or `now`.
    #[inline]
    pub(crate) fn tell(&mut self, consumed: &AtomicU64, now: bool) -> bool {
        if (!now && self.next < self.tell_at) || self.next == self.told {
            return false;
        }
        self.told = self.next;
        self.tell_at = self.next + self.shape.slots() / 4;
        consumed.store(self.next, Ordering::Release);
        true
    }

    #[inline]
    fn slot(&self, further: u64) -> &Slot {
        self.shape.at(&self.slots, self.next + further)
    }
}

/// A ring that was never written to.
#[cfg(test)]
pub(crate) fn fresh(slots: usize) -> Vec<Slot> {
    (0..slots)
        .map(|_| Slot { head: AtomicU64::new(0), body: std::array::from_fn(|_| AtomicU64::new(0)) })
        .collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::test_runner::Config;
    use std::sync::Arc;

    type Shared = Arc<[Slot]>;

    fn ends(slots: usize) -> (Producer<Shared>, Consumer<Shared>, AtomicU64) {
        let ring: Arc<[Slot]> = fresh(slots).into();
        (Producer::new(ring.clone()), Consumer::new(ring), AtomicU64::new(0))
    }

    fn head(len: u32) -> Head {
        Head { kind: Kind::Inline, flags: 0, len }
    }

    proptest::proptest! {
        // Miri is slow, and has no files to keep failures in.
        #![proptest_config(match cfg!(miri) {
            true => Config { failure_persistence: None, ..Config::with_cases(4) },
            false => Config::default(),
        })]

        /// Any mix of sizes, over many laps, arrives as it was sent.
        #[test]
        fn arrives_as_sent(steps in proptest::collection::vec((0usize..=INLINE_WORDS, proptest::bool::ANY), 1..300)) {
            let (mut tx, mut rx, consumed) = ends(8);
            let mut sent = std::collections::VecDeque::new();
            let mut n = 0u64;
            for (words, drain) in steps {
                let payload: Vec<u64> = (0..words as u64).map(|i| n << 8 | i).collect();
                if tx.room(entries_for(words), &consumed).unwrap() {
                    tx.put(head(words as u32 * 8), n as u32, 7, &payload);
                    sent.push_back((n, payload));
                    n += 1;
                }
                while let Some(h) = rx.peek().unwrap().filter(|_| drain) {
                    let (number, payload) = sent.pop_front().expect("nothing arrives that was not sent");
                    let mut got = vec![0; h.len as usize / 8];
                    rx.words(&mut got);
                    proptest::prop_assert_eq!(got, payload);
                    proptest::prop_assert_eq!(rx.numbers(), (number as u32, 7));
                    rx.pop(h.len as usize / 8);
                    rx.tell(&consumed, false);
                }
            }
        }
    }

    #[test]
    fn impossible_counters_and_laps_are_refused() {
        let (mut tx, rx, consumed) = ends(8);
        (0..8).for_each(|_| tx.put(head(0), 0, 0, &[]));
        consumed.store(9, Ordering::Relaxed);
        assert_eq!(tx.room(1, &consumed), Err(Corrupt));
        consumed.store(4, Ordering::Relaxed);
        assert_eq!(tx.room(1, &consumed), Ok(true));
        rx.slots[0].head.store(u64::MAX, Ordering::Relaxed);
        assert!(rx.peek().is_err());
        rx.slots[0].head.store(pack(Kind::More, 0, 0, 1), Ordering::Relaxed);
        assert!(rx.peek().is_err());
    }
}
