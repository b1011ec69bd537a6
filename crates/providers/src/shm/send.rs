//! Handing a message over: inside the ring, pushed into the receive buffer that the peer has posted, offered for the
//! peer to pull out of our shareable memory, or through bounce buffers from which it is pulled.

use std::sync::Arc;
use std::time::Duration;

use viaduct_os::barrier;
use viaduct_os::copy::copy;
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_via::provider::Submit;
use viaduct_via::{Counter, Error, Op, Reliability, Status, Work};
use zerocopy::IntoBytes;

use super::bounce::{BOUNCE, Taken};
use super::map::{Lookup, Why};
use super::pair::lock;
use super::parts::{gather_word, gather_words};
use super::ring::{
    CONTINUES, FIRST_WORDS, HAS_IMMEDIATE, Head, INLINE_BYTES, INLINE_WORDS, Kind, USERS, entries_for,
};
use super::shared::RECVS;
use super::sync::Ordering;
use super::value::{Payload, push_into};
use super::vi::{Offered, ShmVi};
use super::wire::{Note, WANT_SLAB, note};

/// Tries for a mapping that is on its way after which the owner sleeps for a moment.
const TRIES: u32 = 1024;
/// How long: enough for a control thread to deal with a note.
const MOMENT: Duration = Duration::from_micros(50);

impl ShmVi {
    /// Hands over whatever is not just a word.
    #[inline(never)]
    pub(crate) fn submit_work(&mut self, work: &mut Work, index: u32) -> Submit {
        // A dead peer is found out by the next poll, and everything is flushed.
        if !self.is_free() {
            return Submit::Busy;
        }
        if work.op != Op::Send {
            return self.submit_rdma(work, index);
        }
        if work.total as usize > INLINE_BYTES {
            return self.send_large(work, index);
        }
        if work.total <= 8 {
            if !self.room(1) {
                return Submit::Busy;
            }
            let flags = if work.immediate.is_some() { HAS_IMMEDIATE } else { 0 };
            self.tx.put_word(flags, work.total, work.immediate.unwrap_or(0), gather_word(work));
            self.sent += 1;
            self.published();
            return self.handed_over(work, index);
        }
        let mut words = [0u64; INLINE_WORDS];
        let used = gather_words(work, &mut words);
        if !self.put_inline(&words[..used], work.total, work.immediate) {
            return Submit::Busy;
        }
        self.handed_over(work, index)
    }

    pub(crate) fn put_inline(&mut self, words: &[u64], len: u32, immediate: Option<u32>) -> bool {
        if !self.room(entries_for(words.len())) {
            return false;
        }
        let flags = if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
        point("inline.before");
        self.tx.put(Head { kind: Kind::Inline, flags, len }, immediate.unwrap_or(0), 0, words);
        self.sent += 1;
        point("inline.put");
        self.published();
        point("inline.rung");
        true
    }

    pub(crate) fn send_large(&mut self, work: &mut Work, index: u32) -> Submit {
        if self.partial.is_none_or(|(i, _)| i != index) {
            if !self.room(1) {
                return Submit::Busy;
            }
            match self.push(&*work) {
                Some(true) => return self.handed_over(work, index),
                Some(false) => return Submit::Busy,
                None => {}
            }
            if let Some(at) = work.locator.filter(|_| self.pair.direct) {
                point("pull.before-offer");
                self.put_large(Kind::Pull, USERS, work.total, work.immediate, at.slab, &[at.offset]);
                self.core.counters.add(Counter::PulledCopies, 1);
                self.offers += 1;
                self.offered.push_back(Offered::Whole(index, work.total, self.sent - 1));
                point("pull.offered");
                self.set_waiting();
                return Submit::Pending;
            }
            self.partial = Some((index, 0));
        }
        self.send_pieces(work, index)
    }

    /// Copies the message into the receive buffer it will meet. None if that buffer cannot be reached.
    #[inline]
    pub(crate) fn push(&mut self, payload: &impl Payload) -> Option<bool> {
        let (total, immediate) = (payload.total(), payload.immediate());
        if !self.pair.direct || !self.reliability.is_reliable() {
            return None;
        }
        if self.sent >= self.peer_recvs {
            let told = self.out.counts.receives.load(Ordering::Acquire);
            if told < self.peer_recvs || told.saturating_sub(self.sent) > RECVS as u64 {
                self.broken = true;
                return Some(false);
            }
            self.peer_recvs = told;
            if self.sent >= told {
                return None;
            }
        }
        let posted = &self.out.posted[(self.sent % RECVS as u64) as usize];
        let place = posted.place.load(Ordering::Relaxed);
        let offset = posted.offset.load(Ordering::Relaxed);
        let (len, slab) = (place as u32, (place >> 32) as u32);
        if slab == u32::MAX {
            return None;
        }
        if total > len {
            // Not copied: the receiver finds it too long for its descriptor and says so.
            self.put_large(Kind::Pushed, 0, total, immediate, 0, &[]);
            return Some(true);
        }
        let segment = match self.target_segment(slab) {
            Ok(Some(segment)) => segment,
            Ok(None) => return Some(false),
            Err(_) => return None,
        };
        let end = offset.checked_add(u64::from(total));
        if end.is_none_or(|end| end > segment.len() as u64) {
            self.broken = true;
            return Some(false);
        }
        point("push.before");
        if !self.enter_copy() {
            self.leave_copy();
            return Some(false);
        }
        point("push.entered");
        push_into(&segment, offset as usize, payload);
        point("push.copied");
        self.leave_copy();
        point("push.left");
        self.core.counters.add(Counter::DirectCopies, 1);
        self.put_large(Kind::Pushed, 0, total, immediate, 0, &[]);
        Some(true)
    }

    /// The peer's slab: mapped, on its way (`None`), or not to be had.
    pub(crate) fn target_segment(&mut self, slab: u32) -> Result<Option<Arc<Segment>>, Why> {
        if let Some((id, segment)) = &self.target
            && *id == slab
        {
            self.core.counters.add(Counter::MapHits, 1);
            return Ok(Some(segment.clone()));
        }
        let found = self.map(slab)?;
        if let Some(segment) = &found {
            self.target = Some((slab, segment.clone()));
        }
        Ok(found)
    }

    /// Looks the slab up in the NIC's mapping cache and asks the peer for it if need be.
    pub(crate) fn map(&mut self, slab: u32) -> Result<Option<Arc<Segment>>, Why> {
        let found = lock(&self.core.maps).find(self.pair.id, slab);
        match found {
            Lookup::Mapped(segment) => {
                self.core.counters.add(Counter::MapHits, 1);
                Ok(Some(segment))
            }
            Lookup::Asked => {
                self.give_way();
                Ok(None)
            }
            Lookup::Ask => {
                self.core.counters.add(Counter::MapMisses, 1);
                let mut ask = Note::new(note::WANT);
                ask.a = WANT_SLAB;
                ask.b = u64::from(slab);
                point("map.before-ask");
                self.pair.send(&ask, &[]);
                point("map.asked");
                Ok(None)
            }
            Lookup::Never(why) => Err(why),
        }
    }

    /// A mapping comes by way of two control threads. An owner that polls under a real-time policy may leave them no
    /// CPU, and to yield would give way to its equals only.
    #[cold]
    pub(crate) fn give_way(&mut self) {
        self.in_vain = self.in_vain.wrapping_add(1);
        if self.in_vain.is_multiple_of(TRIES) {
            std::thread::sleep(MOMENT);
        }
    }

    /// Says that we are about to copy into the peer's memory. Whether the peer still lets us.
    pub(crate) fn enter_copy(&mut self) -> bool {
        self.busy = self.busy.wrapping_add(1);
        // Release: a peer that waits for the copy before this one may see this word in place of the last one's.
        self.out.tx.busy.store(self.busy, Ordering::Release);
        // The peer raises its flag, runs a barrier on every CPU, then looks at busy: one of us sees the other.
        barrier::light();
        self.out.flags.closed.load(Ordering::Acquire) == 0
    }

    pub(crate) fn leave_copy(&mut self) {
        self.busy = self.busy.wrapping_add(1);
        self.out.tx.busy.store(self.busy, Ordering::Release);
    }

    fn put_large(
        &mut self,
        kind: Kind,
        flags: u8,
        len: u32,
        immediate: Option<u32>,
        slab: u32,
        words: &[u64],
    ) {
        let flags = flags | if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
        self.tx.put(Head { kind, flags, len }, immediate.unwrap_or(0), slab, words);
        self.sent += u64::from(flags & CONTINUES == 0);
        point("large.put");
        self.published();
    }

    /// An RDMA write with immediate data is done; this uses up a receive descriptor of the peer.
    pub(crate) fn put_written(&mut self, total: u32, immediate: u32) {
        self.put_large(Kind::Written, 0, total, Some(immediate), 0, &[]);
    }

    /// Sends the rest of a message through bounce buffers, as far as there are some.
    fn send_pieces(&mut self, work: &mut Work, index: u32) -> Submit {
        let mut done = self.partial.map_or(0, |(_, done)| done);
        match self.announce_bounces() {
            Ok(true) => {}
            Ok(false) => {
                self.set_waiting();
                return Submit::Busy;
            }
            Err(_) => {
                tracing::warn!("no memory for bounce buffers");
                return Submit::Failed(Status::TransportError);
            }
        }
        while done < work.total {
            if !self.room(1) {
                self.partial = Some((index, done));
                return Submit::Busy;
            }
            let (lane, offer) = (self.lane(), self.offers + 1);
            let taken = lock(&self.core.bounce).take(&self.pair, lane, &self.out, offer);
            let Some(taken) = taken else {
                self.partial = Some((index, done));
                self.set_waiting();
                return Submit::Busy;
            };
            done += self.offer_piece(&*work, done, &taken);
        }
        self.core.counters.add(Counter::StagedCopies, 1);
        self.partial = None;
        self.set_waiting();
        self.handed_over(work, index)
    }

    /// Copies the piece of a message after the first `done` bytes into a bounce buffer and offers it. How long it is.
    pub(crate) fn offer_piece(&mut self, payload: &impl Payload, done: u32, taken: &Taken) -> u32 {
        let len = (payload.total() - done).min(BOUNCE as u32);
        point("bounce.taken");
        payload.gather(done, taken.at, len);
        point("bounce.filled");
        let last = done + len == payload.total();
        let (flags, immediate) = if last { (0, payload.immediate()) } else { (CONTINUES, None) };
        self.offers += 1;
        match self.offered.back_mut() {
            Some(Offered::Pieces(n)) => *n += 1,
            _ => self.offered.push_back(Offered::Pieces(1)),
        }
        self.put_large(Kind::Pull, flags, len, immediate, taken.slab, &[taken.offset]);
        point("bounce.offered");
        len
    }

    /// Makes sure that the peer has, or will get, our bounce buffers, whatever becomes of us: a message in them is
    /// complete when it is offered. False while that waits for room in the channel, or if the peer is dead.
    pub(crate) fn announce_bounces(&mut self) -> Result<bool, Error> {
        if !self.announced {
            let pool = lock(&self.core.bounce).slab(&self.pair)?;
            point("bounce.before-announce");
            self.announced = pool.is_some_and(|(slab, segment)| self.pair.announce(slab, &segment));
            point("bounce.announced");
        }
        Ok(self.announced)
    }

    /// The message is on its way: done, or done when the peer says so.
    #[inline]
    pub(crate) fn handed_over(&mut self, work: &Work, index: u32) -> Submit {
        if self.reliability != Reliability::ReliableReception {
            return Submit::Done;
        }
        self.awaited.push_back((index, work.total, self.sent - 1));
        self.set_waiting();
        Submit::Pending
    }

    /// Sends a few bytes by value.
    #[inline(never)]
    pub(crate) fn submit_bytes(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        if !self.is_free() {
            return Submit::Busy;
        }
        if bytes.len() <= FIRST_WORDS * 8 && bytes.len() > 8 && self.tx.has_room() {
            let mut words = [0u64; FIRST_WORDS];
            // SAFETY: the words have room for so many bytes.
            unsafe { copy(words.as_mut_ptr().cast(), bytes.as_ptr(), bytes.len()) };
            let flags = if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
            point("inline.before");
            self.tx.put_line(flags, bytes.len() as u32, immediate.unwrap_or(0), &words);
            self.sent += 1;
            point("inline.put");
            self.published();
            point("inline.rung");
            return Submit::Done;
        }
        let mut words = [0u64; INLINE_WORDS];
        let Some(room) = words.as_mut_bytes().get_mut(..bytes.len()) else { return Submit::Busy };
        room.copy_from_slice(bytes);
        if bytes.len() <= 8 {
            if !self.room(1) {
                return Submit::Busy;
            }
            let flags = if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
            self.tx.put_word(flags, bytes.len() as u32, immediate.unwrap_or(0), words[0]);
            self.sent += 1;
            self.published();
            return Submit::Done;
        }
        let used = bytes.len().div_ceil(8);
        if self.put_inline(&words[..used], bytes.len() as u32, immediate) {
            Submit::Done
        } else {
            Submit::Busy
        }
    }

    /// Completions for RDMA with immediate data at the reliable-reception level.
    pub(crate) fn await_written(&mut self, index: u32, total: u32) -> Submit {
        if self.reliability != Reliability::ReliableReception {
            return Submit::Done;
        }
        self.awaited.push_back((index, total, self.sent - 1));
        self.set_waiting();
        Submit::Pending
    }
}
