//! Moving things on: entries of the ring into receive descriptors, the peer's word on what we sent, and the copies.

use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::copy::{copy, store_word};
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_via::provider::Small;
use viaduct_via::raw::WatchWord;
use viaduct_via::{Fault, Op, Queues, Reliability, Status, Work};

use super::map::Why;
use super::parts::{scatter, scatter_at};
use super::ring::{
    BURSTING, CONTINUES, Extras, HAS_IMMEDIATE, Head, INLINE_BYTES, INLINE_WORDS, Kind, USERS,
};
use super::shared::RECVS;
use super::sync::Ordering;
use super::vi::{Offered, ShmVi};

/// Entries taken from the ring by one poll, so that a busy peer does not keep the caller without end.
const BATCH: u64 = 16;

/// Added to a status in the word that says "closed".
const CLOSED_STATUS: u32 = 2;

/// What became of an entry.
enum Step {
    Next,
    Stop,
}

impl ShmVi {
    #[inline]
    pub(crate) fn progress(&mut self, queues: &mut Queues<'_>) {
        if self.idle && self.try_complete_word(queues) {
            if !self.idle {
                self.rx.fetch_burst();
            }
            return;
        }
        // One at a time while messages come one by one: to look at the entry behind the first would take its line away
        // from a sender that is about to write it. In a burst, as many as are there.
        let most = if self.idle { 1 } else { BATCH };
        let ready = self.rx.ready(most);
        let mut end = self.rx.position() + ready;
        let mut empty = ready < most;
        while self.rx.position() < end {
            if self.try_complete_word(queues) {
                continue;
            }
            let step = match self.rx.peek() {
                Ok(Some(head)) => self.take(head, queues),
                // Cannot be: the entry was there.
                Ok(None) => Step::Stop,
                Err(_) => {
                    queues.broken(Fault::Protocol);
                    return;
                }
            };
            if let Step::Stop = step {
                empty = false;
                queues.stalled();
                break;
            }
            // A piece completes nothing, so the owner may go to sleep: the rest that is there is taken too.
            if (self.filled > 0 || self.skipping) && self.rx.position() >= end {
                let more = self.rx.ready(BATCH);
                (end, empty) = (self.rx.position() + more, more < BATCH);
            }
        }
        if ready == 0 && self.rx.peek().is_err() {
            queues.broken(Fault::Protocol);
            return;
        }
        if self.waiting {
            self.hear_of_sends(queues);
        }
        if ready > 0 {
            // The waiter for this message gets it first; the rest is the next poll's.
            self.idle = empty && !self.rx.fetch_burst();
            self.after_taking(empty);
        } else if empty {
            self.look_for_the_end(queues);
            if !self.waiting {
                queues.watch(self.next_word());
            }
        }
    }

    /// What shows that the next message is there, while nothing else is waited for.
    pub(crate) fn next_word(&self) -> WatchWord {
        let (word, lap) = self.rx.next_word();
        // SAFETY: the ring is kept mapped by this endpoint, and its position changes only when it is polled.
        unsafe { WatchWord::new(word, lap) }
    }

    /// The shortest way for what the owner may be waiting for: a word, into one buffer. False if it is not that; then
    /// nothing was done.
    #[inline]
    fn try_complete_word(&mut self, queues: &mut Queues<'_>) -> bool {
        if self.waiting || self.reliability == Reliability::ReliableReception {
            return false;
        }
        let Some(extras) = self.rx.full_word() else { return false };
        let Some(work) = queues.next_recv() else { return false };
        let Some(small) = self.take_word(work, extras) else { return false };
        queues.complete_recv(Op::Receive, Status::Success, small.length(), small.immediate());
        true
    }

    /// Takes a message of one word into the only segment of a descriptor: what it was. None if the descriptor is another;
    /// then nothing was done.
    #[inline(always)]
    pub(crate) fn take_word(&mut self, work: &Work, extras: Extras) -> Option<Small> {
        let [only] = work.segments() else { return None };
        if work.verdict != Status::Success || work.total < 8 {
            return None;
        }
        let word = self.rx.word();
        // SAFETY: the segment is valid while posted and holds eight bytes.
        unsafe { store_word(only.addr, word) };
        let immediate = extras.has_immediate().then(|| self.rx.numbers().0);
        self.pop_message(1, Small::new(8, immediate), extras.in_burst())
    }

    /// Takes a message that is shorter or longer than a word and still inside the ring, or in its receive buffer already.
    #[inline(never)]
    pub(crate) fn take_words(&mut self, work: &Work) -> Option<Small> {
        let head = self.rx.peek().ok()??;
        if head.flags & !(BURSTING | HAS_IMMEDIATE) != 0
            || work.verdict != Status::Success
            || head.len > work.total
        {
            return None;
        }
        let immediate = (head.flags & HAS_IMMEDIATE != 0).then(|| self.rx.numbers().0);
        if head.kind == Kind::Pushed && head.len >> 31 == 0 {
            // It is in the descriptor's memory already, whatever the number of its segments.
            return self.pop_message(0, Small::new(head.len, immediate), head.flags & BURSTING != 0);
        }
        let [only] = work.segments() else { return None };
        if head.kind != Kind::Inline || head.len as usize > INLINE_BYTES {
            return None;
        }
        let used = (head.len as usize).div_ceil(8);
        let mut words = [0u64; INLINE_WORDS];
        self.rx.words(&mut words[..used]);
        // SAFETY: the segment is valid while posted and holds len bytes; so do the words.
        unsafe { copy(only.addr, words.as_ptr().cast::<u8>(), head.len as usize) };
        self.pop_message(used, Small::new(head.len, immediate), head.flags & BURSTING != 0)
    }

    /// A message of `words` words is in its buffer: what it was.
    #[inline(always)]
    fn pop_message(&mut self, words: usize, small: Small, burst: bool) -> Option<Small> {
        self.rx.pop(words);
        if burst {
            self.rx.fetch_ahead();
        } else {
            self.tx.own_next();
            self.tx.pause();
        }
        self.idle = !burst;
        self.received += 1;
        // A tail call, so that what is before it needs no stack.
        if self.rx.must_tell() { self.tell_taken(small) } else { Some(small) }
    }

    /// Tells the sender of the room there is again, and wakes it if it sleeps until there is some. Gives back `small`.
    #[cold]
    #[inline(never)]
    fn tell_taken(&mut self, small: Small) -> Option<Small> {
        self.rx.tell(&self.inn.counts.consumed, false);
        barrier::light();
        if self.inn.tx.waiting.load(Ordering::Relaxed) != 0 {
            self.wake_peer();
        }
        Some(small)
    }

    /// Deals with the entry at the head of the ring.
    #[inline]
    fn take(&mut self, head: Head, queues: &mut Queues<'_>) -> Step {
        if self.skipping {
            return self.skip(head, queues);
        }
        if queues.must_hold() {
            self.look_over(queues);
            return Step::Stop;
        }
        let Some(work) = queues.next_recv() else {
            // A receive completed in this very poll may be posted again before the next message is judged.
            return if queues.received() == 0 { self.nothing_posted(head, queues) } else { Step::Stop };
        };
        point("take.seen");
        let immediate = if head.flags & HAS_IMMEDIATE != 0 { Some(self.rx.numbers().0) } else { None };
        match head.kind {
            Kind::Inline => {
                let len = head.len as usize;
                if len > INLINE_BYTES {
                    queues.broken(Fault::Protocol);
                    return Step::Stop;
                }
                let used = len.div_ceil(8);
                let status = work.judge_message(u64::from(head.len));
                if status.is_success() {
                    if used <= 1 {
                        let word = self.rx.word();
                        scatter(work, (&raw const word).cast::<u8>(), head.len);
                    } else {
                        let mut words = [0u64; INLINE_WORDS];
                        self.rx.words(&mut words[..used]);
                        scatter(work, words.as_ptr().cast::<u8>(), head.len);
                    }
                }
                self.rx.pop(used);
                self.complete(queues, Op::Receive, status, head.len, immediate)
            }
            Kind::Pushed | Kind::Written => {
                let (op, status) = match head.kind {
                    Kind::Written => (Op::RemoteRdmaWrite, Status::Success),
                    _ => (Op::Receive, work.judge_message(u64::from(head.len))),
                };
                self.rx.pop(0);
                self.complete(queues, op, status, head.len, immediate)
            }
            Kind::Pull => self.pull(head, immediate, queues),
            Kind::More => {
                queues.broken(Fault::Protocol);
                Step::Stop
            }
        }
    }

    /// Fetches a message, or a piece of one, out of the sender's memory.
    fn pull(&mut self, head: Head, immediate: Option<u32>, queues: &mut Queues<'_>) -> Step {
        let (slab, offset, len) = (self.rx.numbers().1, self.rx.word(), u64::from(head.len));
        let segment = match self.source_segment(slab, head.flags & USERS != 0) {
            Ok(Some(segment)) => segment,
            Ok(None) => {
                // On its way; a dead peer answers no question of ours.
                if head.flags & USERS != 0 && self.pair.is_dead() {
                    queues.broken(Fault::Lost);
                }
                return Step::Stop;
            }
            Err(why) => {
                // Without the memory to map it in, the message cannot be had: no fault of the peer's.
                queues.broken(if why == Why::Failed { Fault::Lost } else { Fault::Protocol });
                return Step::Stop;
            }
        };
        let nothing = head.flags & CONTINUES != 0 && len == 0;
        if nothing || offset.checked_add(len).is_none_or(|end| end > segment.len() as u64) {
            queues.broken(Fault::Protocol);
            return Step::Stop;
        }
        let Some(work) = queues.next_recv() else { return Step::Stop };
        let status = work.judge_message(u64::from(self.filled) + len);
        if status.is_success() {
            // SAFETY: the range lies inside the mapped segment, checked above.
            let from = unsafe { segment.as_ptr().add(offset as usize) };
            point("take.before-fetch");
            scatter_at(work, self.filled, from, head.len);
            point("take.fetched");
            // A sender that closes gives the user's memory back before it was fetched; then what we copied is nothing.
            std::sync::atomic::fence(Ordering::Acquire);
            if head.flags & USERS != 0 && self.inn.tx.closed.load(Ordering::Acquire) != 0 {
                queues.broken(Fault::Disconnected);
                return Step::Stop;
            }
        }
        self.rx.pop(1);
        self.pulled += 1;
        self.inn.counts.pulled.store(self.pulled, Ordering::Release);
        point("take.told");
        self.filled += head.len;
        if head.flags & CONTINUES != 0 && status.is_success() {
            return Step::Next;
        }
        // What is left of the message has lost its receive, and is not taken for another message.
        self.skipping = head.flags & CONTINUES != 0;
        let total = std::mem::take(&mut self.filled);
        self.complete(queues, Op::Receive, status, total, immediate)
    }

    /// Completes the receive descriptor and judges whether the connection goes on.
    #[inline(always)]
    fn complete(
        &mut self,
        queues: &mut Queues<'_>,
        op: Op,
        status: Status,
        len: u32,
        imm: Option<u32>,
    ) -> Step {
        let length = if status.is_success() { len } else { 0 };
        point("take.before-complete");
        queues.complete_recv(op, status, length, imm);
        self.received += 1;
        if self.reliability == Reliability::ReliableReception && status.is_success() {
            self.inn.counts.messages.store(self.received, Ordering::Release);
        }
        point("take.completed");
        if !status.is_success() && self.reliability.is_reliable() {
            self.tell_failure(Status::RemoteDescriptorError);
            queues.broken(Fault::of_receive(status));
            return Step::Stop;
        }
        Step::Next
    }

    /// A message met no receive descriptor.
    #[cold]
    fn nothing_posted(&mut self, head: Head, queues: &mut Queues<'_>) -> Step {
        if self.reliability.is_reliable() {
            self.tell_failure(Status::RemoteDescriptorError);
            queues.broken(Fault::ReceiveQueueEmpty);
            return Step::Stop;
        }
        queues.dropped();
        match head.kind {
            Kind::Inline => self.rx.pop((head.len as usize).min(INLINE_BYTES).div_ceil(8)),
            Kind::Pull => return self.skip(head, queues),
            _ => self.rx.pop(0),
        }
        Step::Next
    }

    /// Passes over a piece of a message that has no receive.
    #[cold]
    fn skip(&mut self, head: Head, queues: &mut Queues<'_>) -> Step {
        if head.kind != Kind::Pull {
            queues.broken(Fault::Protocol);
            return Step::Stop;
        }
        self.rx.pop(1);
        self.pulled += 1;
        self.inn.counts.pulled.store(self.pulled, Ordering::Release);
        self.skipping = head.flags & CONTINUES != 0;
        Step::Next
    }

    /// Tells the sender that its message failed here.
    fn tell_failure(&self, status: Status) {
        self.out.tx.closed.store(CLOSED_STATUS + status as u32, Ordering::Release);
    }

    /// Entries were taken: the sender may want to know.
    #[inline]
    fn after_taking(&mut self, empty: bool) {
        self.rx.tell(&self.inn.counts.consumed, false);
        point("take.consumed");
        // First the count, then the look whether the sender waits for it: the other way round both sides could miss each other.
        barrier::light();
        if self.inn.tx.waiting.load(Ordering::Relaxed) != 0 {
            self.rx.tell(&self.inn.counts.consumed, empty);
            self.wake_peer();
        }
    }

    /// Publishes a receive buffer that was posted as number `index`. Those before it that were not worth publishing
    /// are said not to be reachable; what lies too far ahead is not published, and will be fetched instead of pushed.
    pub(crate) fn publish_recv(&mut self, index: u64, work: &Work) {
        self.published = self.published.max(self.received);
        if index - self.received >= RECVS as u64 {
            return;
        }
        while self.published < index {
            self.publish(None);
        }
        self.publish(Some(work));
    }

    /// Tells the sender where the next receive buffer lies, or that it cannot be reached from outside.
    #[inline]
    fn publish(&mut self, work: Option<&Work>) {
        let posted = &self.inn.posted[(self.published % RECVS as u64) as usize];
        let reachable =
            work.filter(|w| w.verdict == Status::Success).and_then(|w| Some((w.total, w.locator?)));
        let (place, offset) = match reachable {
            Some((len, at)) => (u64::from(len) | u64::from(at.slab) << 32, at.offset),
            None => (u64::from(u32::MAX) << 32, 0),
        };
        posted.place.store(place, Ordering::Relaxed);
        posted.offset.store(offset, Ordering::Relaxed);
        point("receive.written");
        self.published += 1;
        self.inn.counts.receives.store(self.published, Ordering::Release);
    }

    /// Looks at what the peer says of our messages.
    fn hear_of_sends(&mut self, queues: &mut Queues<'_>) {
        if !self.offered.is_empty() {
            let told = self.out.counts.pulled.load(Ordering::Acquire);
            if told < self.fetched || told > self.offers {
                queues.broken(Fault::Protocol);
                return;
            }
            while self.fetched < told {
                self.fetched += 1;
                if let Some(Offered::Pieces(n @ 2..)) = self.offered.front_mut() {
                    *n -= 1;
                    continue;
                }
                match self.offered.pop_front() {
                    Some(Offered::Whole(index, len, number)) => {
                        if self.reliability == Reliability::ReliableReception {
                            // Fetched, but not yet said to be received.
                            self.awaited.push_back((index, len, number));
                        } else {
                            queues.complete_send(index, Status::Success, len);
                        }
                    }
                    Some(Offered::Pieces(_)) | None => {}
                }
            }
        }
        if !self.awaited.is_empty() {
            let told = self.out.counts.messages.load(Ordering::Acquire);
            if told < self.acknowledged || told > self.sent {
                queues.broken(Fault::Protocol);
                return;
            }
            self.acknowledged = told;
            self.awaited.retain(|(index, len, number)| {
                let done = *number < told;
                if done {
                    queues.complete_send(*index, Status::Success, *len);
                }
                !done
            });
        }
        if !self.remote_ops.is_empty() {
            self.hear_of_remote_ops(queues);
        }
        if self.offered.is_empty() && self.awaited.is_empty() && self.remote_ops.is_empty() {
            self.stop_waiting();
        }
    }

    /// A message cannot be taken before its receiver has made room. If the other side is gone, what we sent and it has
    /// not dealt with must not wait for that: the thread that waits for those sends may be the one that would make room.
    /// The message stays, and what lies behind it: its sender was told that it is done.
    #[cold]
    fn look_over(&mut self, queues: &mut Queues<'_>) {
        if !self.is_over() && self.inn.tx.closed.load(Ordering::Acquire) == 0 {
            return;
        }
        self.hear_of_sends(queues);
        if self.broken {
            queues.broken(Fault::Protocol);
            return;
        }
        self.offered.clear();
        self.awaited.clear();
        self.forget_remote_ops();
        (self.partial, self.starved) = (None, false);
        self.stop_waiting();
        // Also those that were never handed over: a receive of a peer that has closed cannot be written to, and nothing
        // is waited for then.
        queues.flush_sends();
    }

    /// Nothing is in the ring: has the other side closed, or died?
    #[inline]
    fn look_for_the_end(&mut self, queues: &mut Queues<'_>) {
        let closed = self.inn.tx.closed.load(Ordering::Acquire);
        if closed == 0 && !self.is_over() {
            return;
        }
        self.the_end(closed, queues);
    }

    #[cold]
    fn the_end(&mut self, closed: u32, queues: &mut Queues<'_>) {
        // What was sent before the end is delivered first.
        if matches!(self.rx.peek(), Ok(Some(_))) && !self.broken {
            return;
        }
        self.hear_of_sends(queues);
        if self.broken {
            queues.broken(Fault::Protocol);
        } else if closed >= CLOSED_STATUS {
            let status = u8::try_from(closed - CLOSED_STATUS).ok().and_then(Status::from_number);
            let status = status.unwrap_or(Status::TransportError);
            // The oldest one not said to be done is the one that failed.
            if let Some((index, _, _)) = self.awaited.pop_front() {
                queues.complete_send(index, status, 0);
            }
            queues.broken(Fault::Remote(status));
        } else if closed == 1 {
            queues.broken(Fault::Disconnected);
        } else {
            queues.broken(Fault::Lost);
        }
    }

    /// The peer's slab that a message lies in: one of its user's memory, or that of its bounce buffers. None while it
    /// is on its way.
    fn source_segment(&mut self, slab: u32, users: bool) -> Result<Option<Arc<Segment>>, Why> {
        if let Some((id, segment)) = &self.source
            && *id == slab
        {
            self.core.counters.add(viaduct_via::Counter::MapHits, 1);
            return Ok(Some(segment.clone()));
        }
        let found = if users {
            self.map(slab)?
        } else {
            let found = self.pair.bounces(slab)?;
            if found.is_none() {
                self.give_way();
            }
            found
        };
        if let Some(segment) = &found {
            self.source = Some((slab, segment.clone()));
        }
        Ok(found)
    }
}
