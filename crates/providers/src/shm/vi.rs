//! An endpoint: one VI's end of a lane, and how a message is handed over.
//!
//! In order of preference a message travels inside the ring, is pushed into the receive buffer the peer has posted, is
//! offered for the peer to pull out of our shareable memory, or goes through bounce buffers from which it is pulled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use viaduct_os::barrier;
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_via::provider::{Endpoint, Submit};
use viaduct_via::{Counter, Error, Op, Queues, Reliability, RemoteAttributes, Status, Vi, Work};

use zerocopy::IntoBytes;

use super::bounce::{BOUNCE, BOUNCES};
use super::directory::tag_number;
use super::doorbell::BITS;
use super::lane::LaneId;
use super::map::{Lookup, Why};
use super::nic::{Core, LaneRecord, wait_while_busy};
use super::pair::{Pair, lock};
use super::progress::{gather_word, gather_words, push_into};
use super::rdma::RemoteOp;
use super::ring::{
    CONTINUES, Consumer, HAS_IMMEDIATE, Head, INLINE_BYTES, Kind, Producer, USERS, entries_for,
};
use super::shared::{Direction, NicPage, RECVS, Slots, View, direction};
use super::sync::Ordering;
use super::wire::{Note, WANT_SLAB, note};

/// Tries for a mapping that is on its way after which the owner sleeps for a moment.
const TRIES: u32 = 1024;
/// How long: enough for a control thread to deal with a note.
const MOMENT: Duration = Duration::from_micros(50);

/// Where a connection's shared memory lies.
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) segment: Arc<Segment>,
    pub(crate) slots: usize,
    pub(crate) client: bool,
}

/// Something the peer is to fetch from our memory.
pub(crate) enum Offered {
    /// A whole message, out of the user's buffer: ledger index, length, number of the message.
    Whole(u32, u32, u64),
    /// So many pieces, out of bounce buffers, which the pool takes back by itself.
    Pieces(u64),
}

/// One end of a connection.
pub(crate) struct ShmVi {
    pub(crate) core: Arc<Core>,
    pub(crate) pair: Arc<Pair>,
    lane: LaneId,
    /// The peer's bell, which every message looks at.
    peer_page: View<NicPage>,
    /// The direction we send in.
    pub(crate) out: View<Direction>,
    pub(crate) tx: Producer<Slots>,
    /// The direction we receive in.
    pub(crate) inn: View<Direction>,
    pub(crate) rx: Consumer<Slots>,
    pub(crate) reliability: Reliability,
    vi: Vi,
    peer_vi: u32,
    pub(crate) peer_tag: u64,
    /// Messages sent that use up a receive descriptor.
    pub(crate) sent: u64,
    /// Receive descriptors the peer is known to have published.
    peer_recvs: u64,
    /// Receive descriptors published and used up on our side.
    pub(crate) published: u64,
    pub(crate) received: u64,
    pub(crate) offered: VecDeque<Offered>,
    /// Offers made so far.
    pub(crate) offers: u64,
    /// Offers the peer is known to have fetched.
    pub(crate) fetched: u64,
    /// Messages that are done when the peer says so: ledger index, length, number of the message.
    pub(crate) awaited: VecDeque<(u32, u32, u64)>,
    /// Messages the peer has said are done.
    pub(crate) acknowledged: u64,
    /// How much of a message in pieces was sent: ledger index, bytes.
    partial: Option<(u32, u32)>,
    /// How much of a message in pieces has come.
    pub(crate) filled: u32,
    pub(crate) pulled: u64,
    busy: u32,
    pub(crate) waiting: bool,
    /// The ring had no room for what was to be sent last.
    pub(crate) starved: bool,
    /// The peer's slabs used last, for sending and for receiving.
    target: Option<(u32, Arc<Segment>)>,
    pub(crate) source: Option<(u32, Arc<Segment>)>,
    /// Tries for a mapping that was on its way.
    in_vain: u32,
    pub(crate) remote_ops: VecDeque<RemoteOp>,
    pub(crate) broken: bool,
    /// The last look found the ring empty.
    pub(crate) idle: bool,
    closed: bool,
}

impl ShmVi {
    pub(crate) fn new(
        core: &Arc<Core>,
        pair: &Arc<Pair>,
        lane: Lane,
        vi: Vi,
        ours: &RemoteAttributes,
        theirs: &RemoteAttributes,
        peer_vi: u32,
    ) -> Result<ShmVi, Error> {
        let (to, from) = if lane.client { (0, 1) } else { (1, 0) };
        let open = |which| {
            direction(&lane.segment, lane.id.offset as usize, lane.slots, which)
                .ok_or(Error::Protocol("the lane does not fit into its segment"))
        };
        let ((out, tx), (inn, rx)) = (open(to)?, open(from)?);
        let index = vi.raw().index;
        let record = LaneRecord {
            inbound: inn.clone(),
            pair: pair.clone(),
            vi: index,
            tag: tag_number(ours.ptag),
            rdma_write: ours.rdma_write,
            rdma_read: ours.rdma_read,
        };
        lock(&core.lanes).insert((pair.id, lane.id), record);
        lock(&core.bells).entry(index % BITS).or_default().push(vi);
        point("endpoint.recorded");
        Ok(ShmVi {
            core: core.clone(),
            pair: pair.clone(),
            lane: lane.id,
            peer_page: pair.page.clone(),
            out,
            tx: Producer::new(tx),
            inn,
            rx: Consumer::new(rx),
            reliability: ours.reliability,
            vi,
            peer_vi,
            peer_tag: tag_number(theirs.ptag),
            sent: 0,
            peer_recvs: 0,
            published: 0,
            received: 0,
            offered: VecDeque::with_capacity(BOUNCES),
            offers: 0,
            fetched: 0,
            awaited: VecDeque::new(),
            acknowledged: 0,
            partial: None,
            filled: 0,
            pulled: 0,
            busy: 0,
            waiting: false,
            starved: false,
            target: None,
            source: None,
            in_vain: 0,
            remote_ops: VecDeque::new(),
            broken: false,
            idle: true,
            closed: false,
        })
    }

    pub(crate) fn lane(&self) -> LaneId {
        self.lane
    }

    /// Tells the peer that something new is in the ring.
    #[inline]
    pub(crate) fn published(&self) {
        barrier::light();
        if self.out.flags.armed.load(Ordering::Relaxed) != 0 {
            self.ring_doorbell();
        }
        if !self.peer_page.bell.is_awake() {
            self.wake_peer();
        }
    }

    #[cold]
    pub(crate) fn wake_peer(&self) {
        self.core.counters.add(Counter::Wakes, 1);
        self.pair.ring();
    }

    #[cold]
    fn ring_doorbell(&self) {
        self.core.counters.add(Counter::Doorbells, 1);
        self.pair.page.doorbells.ring(self.peer_vi);
        // The look at the bell comes after the bit, also where the processor would swap the two.
        barrier::light();
    }

    /// Whether the ring has room; if not, the peer is asked to wake us when it has.
    #[inline]
    pub(crate) fn room(&mut self, entries: u64) -> bool {
        match self.tx.room(entries, &self.out.counts.consumed) {
            Ok(true) => true,
            Ok(false) => self.wait_for_room(entries),
            Err(_) => {
                self.broken = true;
                false
            }
        }
    }

    #[cold]
    fn wait_for_room(&mut self, entries: u64) -> bool {
        self.set_waiting();
        // The flag may have come too late for the entries used up meanwhile.
        let room = matches!(self.tx.room(entries, &self.out.counts.consumed), Ok(true));
        self.starved = !room;
        room
    }

    /// Asks the peer to ring when it has taken something.
    pub(crate) fn set_waiting(&mut self) {
        if self.waiting {
            return;
        }
        self.waiting = true;
        self.out.tx.waiting.store(1, Ordering::Relaxed);
        if self.core.signal.is_announced() {
            // The barrier that makes the flag visible was before: whoever is about to sleep begins again.
            self.core.ring();
        }
    }

    /// Nothing is under way any more that the peer has to ring for, unless room is wanted and there is none.
    pub(crate) fn stop_waiting(&mut self) {
        let most = entries_for(super::ring::INLINE_WORDS);
        if self.starved && !matches!(self.tx.room(most, &self.out.counts.consumed), Ok(true)) {
            return;
        }
        (self.waiting, self.starved) = (false, false);
        self.out.tx.waiting.store(0, Ordering::Relaxed);
    }

    fn send_inline(&mut self, words: &[u64], len: u32, immediate: Option<u32>) -> bool {
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

    fn send_large(&mut self, work: &mut Work, index: u32) -> Submit {
        if self.partial.is_none_or(|(i, _)| i != index) {
            if !self.room(1) {
                return Submit::Busy;
            }
            match self.push(work) {
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
    fn push(&mut self, work: &Work) -> Option<bool> {
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
        if work.total > len {
            // Not copied: the receiver finds it too long for its descriptor and says so.
            self.put_large(Kind::Pushed, 0, work.total, work.immediate, 0, &[]);
            return Some(true);
        }
        let segment = match self.target_segment(slab) {
            Ok(Some(segment)) => segment,
            Ok(None) => return Some(false),
            Err(_) => return None,
        };
        let end = offset.checked_add(u64::from(work.total));
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
        push_into(&segment, offset as usize, work);
        point("push.copied");
        self.leave_copy();
        point("push.left");
        self.core.counters.add(Counter::DirectCopies, 1);
        self.put_large(Kind::Pushed, 0, work.total, work.immediate, 0, &[]);
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
    fn give_way(&mut self) {
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
        while done < work.total {
            if !self.room(1) {
                self.partial = Some((index, done));
                return Submit::Busy;
            }
            let taken = lock(&self.core.bounce).take(&self.pair, &self.out, self.offers + 1);
            let Ok(taken) = taken else {
                tracing::warn!("no memory for bounce buffers");
                return Submit::Failed(Status::TransportError);
            };
            let Some((slab, offset, memory)) = taken else {
                self.partial = Some((index, done));
                self.set_waiting();
                return Submit::Busy;
            };
            let len = (work.total - done).min(BOUNCE as u32);
            point("bounce.taken");
            super::progress::gather_piece(work, done, memory, len);
            point("bounce.filled");
            done += len;
            let (flags, immediate) = if done < work.total { (CONTINUES, None) } else { (0, work.immediate) };
            self.offers += 1;
            match self.offered.back_mut() {
                Some(Offered::Pieces(n)) => *n += 1,
                _ => self.offered.push_back(Offered::Pieces(1)),
            }
            self.put_large(Kind::Pull, flags, len, immediate, slab, &[offset]);
            point("bounce.offered");
        }
        self.core.counters.add(Counter::StagedCopies, 1);
        self.partial = None;
        self.set_waiting();
        self.handed_over(work, index)
    }

    /// The message is on its way: done, or done when the peer says so.
    #[inline]
    fn handed_over(&mut self, work: &Work, index: u32) -> Submit {
        if self.reliability != Reliability::ReliableReception {
            return Submit::Done;
        }
        self.awaited.push_back((index, work.total, self.sent - 1));
        self.set_waiting();
        Submit::Pending
    }

    /// Sends a few bytes by value.
    #[inline(never)]
    fn submit_bytes(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        if !self.is_free() {
            return Submit::Busy;
        }
        let mut words = [0u64; super::ring::INLINE_WORDS];
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
        if self.send_inline(&words[..used], bytes.len() as u32, immediate) {
            Submit::Done
        } else {
            Submit::Busy
        }
    }

    /// Whether messages may be sent: an operation at the peer's control thread keeps its place in the order.
    #[inline]
    fn is_free(&self) -> bool {
        !self.broken && self.remote_ops.is_empty()
    }

    /// Whether one entry can be written at once.
    #[inline]
    fn sends_straight(&self) -> bool {
        self.is_free() && self.tx.has_room()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.broken || self.pair.is_dead()
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

impl Endpoint for ShmVi {
    #[inline]
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit {
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
        let mut words = [0u64; super::ring::INLINE_WORDS];
        let used = gather_words(work, &mut words);
        if !self.send_inline(&words[..used], work.total, work.immediate) {
            return Submit::Busy;
        }
        self.handed_over(work, index)
    }

    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        match <[u8; 8]>::try_from(bytes) {
            Ok(word) if immediate.is_none() && self.sends_straight() => {
                self.tx.put_word(0, 8, 0, u64::from_ne_bytes(word));
                self.sent += 1;
                self.published();
                Submit::Done
            }
            _ => self.submit_bytes(bytes, immediate),
        }
    }

    fn tell_receives_from(&self) -> u32 {
        // What fits into the ring is never pushed, so a buffer that takes no more need not be told of.
        INLINE_BYTES as u32 + 1
    }

    fn recv_posted(&mut self, work: &Work, number: u32) {
        // Those before it that have not been used up are less than 2^32.
        let ahead = number.wrapping_sub(self.received as u32);
        self.publish_recv(self.received + u64::from(ahead), work);
    }

    #[inline]
    fn take_small(&mut self, work: &Work) -> Option<u32> {
        if self.waiting || self.reliability == Reliability::ReliableReception {
            return None;
        }
        match self.take_word(work) {
            Some((len, burst)) => {
                self.idle = !burst;
                Some(len)
            }
            None => self.take_words(work),
        }
    }

    #[inline]
    fn poll(&mut self, queues: &mut Queues<'_>) {
        self.progress(queues);
    }

    fn set_armed(&mut self, armed: bool) {
        self.inn.flags.armed.store(u32::from(armed), Ordering::Relaxed);
    }

    fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        point("close.begin");
        // From here on the peer may not start to copy into our buffers; one copy may be under way.
        self.inn.flags.closed.store(1, Ordering::Release);
        let told = self.out.tx.closed.load(Ordering::Relaxed);
        if told == 0 {
            self.out.tx.closed.store(1, Ordering::Release);
        }
        point("close.told");
        barrier::heavy();
        wait_while_busy(&self.inn, &self.pair);
        point("close.quiet");
        self.published();
        lock(&self.core.lanes).remove(&(self.pair.id, self.lane));
        if let Some(vis) = lock(&self.core.bells).get_mut(&(self.vi.raw().index % BITS)) {
            vis.retain(|v| *v != self.vi);
        }
        self.forget_remote_ops();
        point("close.removed");
        if lock(&self.pair.lanes).let_go(self.lane) || !self.pair.is_dead() {
            // Also wakes the peer's control thread, which tells those who wait for errors.
            let mut detach = Note::new(note::DETACH);
            detach.a = self.lane.slab;
            detach.b = u64::from(self.lane.offset);
            detach.c = u64::from(self.lane.ours);
            self.pair.send(&detach, &[]);
        }
        point("close.detached");
    }

    fn provider(&self) -> &'static str {
        "shm"
    }
}

impl Drop for ShmVi {
    fn drop(&mut self) {
        // A forked child has no lane: the segment is not mapped there.
        if viaduct_os::fork::generation() == self.core.generation {
            self.close();
        }
    }
}
