//! Completion queues, and which VIs are looked at when one is polled.
//!
//! An entry says which VI and which queue; the completion itself is taken from the head of that queue, which is done
//! by then. Every post reserves its entry, so that none is ever lost, and the queue can be resized while in use.
//!
//! Polling stays flat in the number of VIs: a few recently active ones are *hot* and polled directly; the others are
//! *cold*, that is armed, so that the peer announces an arrival through the provider's doorbells. Going cold races
//! with a peer that looked at the flag just before; therefore every so many polls one cold VI is looked at in turn,
//! and before sleeping all those cooled before the sleeper's barrier, which ends such races. What cools after it stays
//! on the list for the next one.

use std::collections::VecDeque;

use crate::handle::{RawHandle, Table, Vi};
use crate::provider::Signal;
use crate::vi::{Queue, ViCore};

/// Members of a queue that are so few that all are polled, whether something came or not.
const FEW: usize = 4;
/// Most VIs polled without being asked, unless their sends are under way or an arrival could not be taken yet. Those that
/// bring nothing cool, so that it is only as many as really have something.
const HOT_MAX: usize = 64;
/// Full looks without an arrival after which a hot VI cools when the queue has more VIs than fit. While nothing else
/// is under way only one poll in [`SCRUB_EVERY`] is a full look.
const COOL_AFTER: u32 = 4;
/// Messages taken past the list from one VI or another before all are polled: a VI that always has one does not keep
/// the rest from being polled.
const MOST_PAST_LIST: u32 = 64;
/// One cold VI is looked at every so many polls.
const SCRUB_EVERY: u32 = 256;

/// Which queue of which VI has a completion, as one number: what is written in parts and then read as a whole makes the
/// processor wait until the parts have left its store buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry(u64);

impl Entry {
    #[inline]
    fn new(vi: Vi, queue: Queue) -> Entry {
        let RawHandle { index, generation } = vi.raw();
        Entry(u64::from(generation) << 32 | u64::from(index) << 1 | u64::from(queue == Queue::Receive))
    }

    #[inline]
    fn vi(self) -> Vi {
        Vi::from_raw(RawHandle { index: self.0 as u32 >> 1, generation: (self.0 >> 32) as u32 })
    }

    #[inline]
    fn queue(self) -> Queue {
        if self.0 & 1 == 0 { Queue::Send } else { Queue::Receive }
    }
}

#[derive(Debug)]
pub(crate) struct CqCore {
    entries: VecDeque<Entry>,
    capacity: usize,
    reserved: usize,
    members: Vec<Vi>,
    pub(crate) hot: Vec<Vi>,
    /// Where among the hot ones the next message is looked for first: a guess, good or not.
    pub(crate) start: usize,
    /// The VI of the last message that was taken past the list.
    last: Option<Vi>,
    /// With the number of barriers begun when the flag of the VI went up.
    cooling: Vec<(Vi, u64)>,
    /// Whether some were listed since that was asked.
    cooled: bool,
    polls: u32,
    scrub: usize,
    /// Messages taken past the list since all were asked.
    past_list: u32,
}

impl CqCore {
    pub(crate) fn new(capacity: usize) -> CqCore {
        CqCore {
            entries: VecDeque::with_capacity(capacity),
            capacity,
            reserved: 0,
            members: Vec::new(),
            hot: Vec::new(),
            start: 0,
            last: None,
            cooling: Vec::new(),
            cooled: false,
            polls: 0,
            scrub: 0,
            past_list: 0,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn in_use(&self) -> bool {
        !self.members.is_empty()
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    pub(crate) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.entries.reserve(capacity.saturating_sub(self.entries.len()));
    }

    /// Reserves the entry of a descriptor about to be posted. Returns false if the queue has no room for it.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        if self.reserved >= self.capacity {
            return false;
        }
        self.reserved += 1;
        true
    }

    /// The descriptor is back with its owner.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// A receive of the hot VI at this place was taken past the list, and is back with its owner. The next message is
    /// looked for at a VI that brought two in a row; where several take turns, at the one behind it.
    #[inline]
    pub(crate) fn release_past_list(&mut self, at: usize, vi: Vi) {
        self.release();
        self.past_list += 1;
        if self.last == Some(vi) {
            self.start = at;
        } else {
            self.last = Some(vi);
            self.start = if at + 1 < self.hot.len() { at + 1 } else { 0 };
        }
    }

    /// The VI that is most likely to have a message.
    #[inline]
    pub(crate) fn likely(&self) -> Option<Vi> {
        self.hot.get(self.start).copied()
    }

    /// Whether so many messages were taken past the list that the other VIs come first.
    #[inline]
    pub(crate) fn others_are_due(&self) -> bool {
        self.past_list >= MOST_PAST_LIST
    }

    /// Whether the other VIs come first now, in which case the caller polls them: the count starts again.
    #[inline]
    pub(crate) fn asks_the_others(&mut self) -> bool {
        let due = self.others_are_due();
        if due {
            self.past_list = 0;
        }
        due
    }

    #[inline]
    pub(crate) fn push(&mut self, vi: Vi, queue: Queue) {
        self.entries.push_back(Entry::new(vi, queue));
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Vi, Queue)> {
        self.entries.pop_front().map(|entry| (entry.vi(), entry.queue()))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is only one VI to look at.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.members.len() == 1
    }

    /// Removes the oldest entry of this queue, because its completion was taken directly.
    pub(crate) fn forget(&mut self, vi: Vi, queue: Queue) {
        if let Some(i) = self.entries.iter().position(|e| *e == Entry::new(vi, queue)) {
            self.entries.remove(i);
        }
    }

    pub(crate) fn join(&mut self, vi: Vi) {
        // A VI joins when it is made, with one queue or both.
        if self.members.last() != Some(&vi) {
            self.members.push(vi);
            self.hot.reserve((HOT_MAX + 1).min(self.members.len()).saturating_sub(self.hot.len()));
            self.cooling.reserve((2 * self.members.len() + 1).saturating_sub(self.cooling.len()));
        }
    }

    /// A VI is destroyed: its entries go too.
    pub(crate) fn leave(&mut self, vi: Vi) {
        self.members.retain(|m| *m != vi);
        self.hot.retain(|m| *m != vi);
        self.cooling.retain(|(m, _)| *m != vi);
        self.entries.retain(|entry| entry.vi() != vi);
    }

    /// Whether a VI that connects now is polled directly from the start.
    pub(crate) fn few(&self) -> bool {
        self.members.len() <= FEW
    }

    /// Makes a VI hot; another one may have to cool for it.
    pub(crate) fn heat(&mut self, vi: Vi, vis: &mut Table<ViCore>, signal: &Signal) {
        if let Some(at) = self.hot.iter().position(|h| *h == vi) {
            self.hot[..=at].rotate_right(1);
            return;
        }
        if let Some(core) = vis.get_mut(vi.0) {
            core.hot = true;
            core.idle_polls = 0;
            if let Some(endpoint) = core.endpoint.as_mut() {
                endpoint.set_armed(false);
            }
        }
        self.hot.insert(0, vi);
        if self.hot.len() > HOT_MAX {
            let coolest = self.hot.iter().rposition(|h| vis.get(h.0).is_none_or(|c| !c.stays_hot()));
            if let Some(at) = coolest.filter(|at| *at > 0) {
                self.cool(at, vis, signal);
            }
        }
    }

    /// After a poll that brought a hot VI nothing. Returns true if the VI is no longer hot, so that the next one stands at its place.
    #[inline]
    pub(crate) fn note_idle(&mut self, at: usize, vis: &mut Table<ViCore>, signal: &Signal) -> bool {
        if self.few() {
            return false;
        }
        let Some(core) = vis.get_mut(self.hot[at].0) else { return false };
        core.idle_polls += 1;
        if core.idle_polls < COOL_AFTER || core.stays_hot() {
            return false;
        }
        self.cool(at, vis, signal);
        true
    }

    fn cool(&mut self, at: usize, vis: &mut Table<ViCore>, signal: &Signal) {
        let vi = self.hot.remove(at);
        if let Some(core) = vis.get_mut(vi.0) {
            core.hot = false;
            if let Some(endpoint) = core.endpoint.as_mut() {
                endpoint.set_armed(true);
            }
        }
        self.list_cooling(vi, signal);
    }

    /// The flag of a VI went up just now.
    pub(crate) fn list_cooling(&mut self, vi: Vi, signal: &Signal) {
        // A program that never sleeps never looks at these: keep each once, with its latest number.
        if self.cooling.len() >= 2 * self.members.len() {
            self.cooling.sort_unstable_by(|a, b| b.cmp(a));
            self.cooling.dedup_by_key(|(vi, _)| *vi);
        }
        self.cooling.push((vi, signal.barriers_begun()));
        self.cooled = true;
    }

    /// Whether some member is not polled without being asked.
    #[inline]
    pub(crate) fn has_cold(&self) -> bool {
        self.hot.len() < self.members.len()
    }

    /// Counts a poll that looks at hot VIs only: whether the next one has to look further.
    #[inline]
    pub(crate) fn is_scrub_due(&mut self) -> bool {
        if self.polls.wrapping_add(1).is_multiple_of(SCRUB_EVERY) {
            return true;
        }
        self.polls = self.polls.wrapping_add(1);
        false
    }

    /// Every so often, a cold VI to look at, in case its peer missed the flag.
    #[inline]
    pub(crate) fn scrub(&mut self) -> Option<Vi> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(SCRUB_EVERY) || !self.has_cold() {
            return None;
        }
        self.scrub = (self.scrub + 1) % self.members.len();
        Some(self.members[self.scrub])
    }

    /// Whether some VI was cooled since the last call. A thread that sleeps already cannot know that the peer of such a VI
    /// may have missed the flag: it has to look again.
    #[inline]
    pub(crate) fn take_cooled(&mut self) -> bool {
        std::mem::take(&mut self.cooled)
    }

    /// One of the VIs cooled before the barrier of this number, which was passed.
    pub(crate) fn next_cooling(&mut self, passed: u64) -> Option<Vi> {
        let at = self.cooling.iter().position(|(_, begun)| *begun < passed)?;
        Some(self.cooling.swap_remove(at).0)
    }
}
