//! An endpoint: one VI's end of a lane. How a message is handed over is in `send.rs`, how one is taken in `progress.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use viaduct_os::barrier;
use viaduct_os::copy::load_word;
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_via::provider::{Endpoint, Small, Submit};
use viaduct_via::raw::WatchWord;
use viaduct_via::{
    Counter, Error, Op, Queues, Reach, Reliability, RemoteAddress, RemoteAttributes, Vi, Work,
};

use super::bounce::BOUNCES;
use super::doorbell::BITS;
use super::lane::LaneId;
use super::nic::{Core, LaneRecord, wait_while_busy};
use super::pair::{Pair, lock, reach};
use super::rdma::RemoteOp;
use super::ring::{Consumer, HAS_IMMEDIATE, INLINE_BYTES, Producer, entries_for};
use super::shared::{Direction, NicPage, Slots, View, direction};
use super::sync::Ordering;
use super::value::{Value, most_bounced};
use super::wire::{Note, note};
use crate::parties::tag_number;

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
    pub(crate) peer_recvs: u64,
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
    pub(crate) partial: Option<(u32, u32)>,
    /// The longest message by value that goes through bounce buffers.
    pub(crate) most_bounced: u32,
    /// The peer has, or will get, the slab of our bounce buffers.
    pub(crate) announced: bool,
    /// How much of a message in pieces has come.
    pub(crate) filled: u32,
    /// The rest of a message in pieces is passed over: an unreliable one that met no receive, or one too short.
    pub(crate) skipping: bool,
    pub(crate) pulled: u64,
    pub(crate) busy: u32,
    pub(crate) waiting: bool,
    /// The ring had no room for what was to be sent last.
    pub(crate) starved: bool,
    /// The peer's slabs used last, for sending and for receiving.
    pub(crate) target: Option<(u32, Arc<Segment>)>,
    pub(crate) source: Option<(u32, Arc<Segment>)>,
    /// Tries for a mapping that was on its way.
    pub(crate) in_vain: u32,
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
            most_bounced: most_bounced(lane.slots),
            announced: false,
            filled: 0,
            skipping: false,
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
            // The barrier that makes the flag visible was before: an owner that is about to sleep begins again.
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

    /// Whether messages may be sent: an operation at the peer's control thread keeps its place in the order.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        !self.broken && self.remote_ops.is_empty()
    }

    /// Sends a word, for which [there is room](Self::can_send_fast).
    #[inline(always)]
    fn put_fast(&mut self, word: u64, immediate: Option<u32>) -> Submit {
        let flags = if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
        self.tx.put_word(flags, 8, immediate.unwrap_or(0), word);
        self.sent += 1;
        self.published();
        Submit::Done
    }

    /// Whether one entry can be written at once.
    #[inline]
    fn can_send_fast(&self) -> bool {
        self.is_free() && self.tx.has_room()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.broken || self.pair.is_dead()
    }
}

// SAFETY: messages are judged before they are scattered; what a peer may reach of a posted buffer is published within
// `Work::total`, and `close` waits until copies under way are done.
unsafe impl Endpoint for ShmVi {
    #[inline]
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit {
        if let [only] = work.segments()
            && work.op == Op::Send
            && work.total == 8
            && work.immediate.is_none()
            && self.reliability != Reliability::ReliableReception
            && self.can_send_fast()
        {
            // SAFETY: the only segment has as many bytes as the message, and is valid while posted.
            let word = unsafe { load_word(only.addr) };
            return self.put_fast(word, None);
        }
        self.submit_work(work, index)
    }

    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        match <[u8; 8]>::try_from(bytes) {
            Ok(word) if self.can_send_fast() => self.put_fast(u64::from_ne_bytes(word), immediate),
            _ => self.submit_bytes(bytes, immediate),
        }
    }

    fn most_by_value(&self) -> u32 {
        // What is longer than all bounce buffers can only be written into a receive.
        if self.pair.direct && self.reliability.is_reliable() { u32::MAX } else { self.most_bounced }
    }

    fn submit_value(&mut self, parts: &[&[u8]], total: u32, immediate: Option<u32>) -> Submit {
        self.send_value(&Value { parts, total, immediate })
    }

    fn nudge(&mut self) {
        point("nudge.before");
        // What the peer is to see was stored before; now the look whether it sleeps. The other way round both sides could
        // miss each other.
        barrier::light();
        if !self.peer_page.bell.is_awake() {
            self.wake_peer();
        }
        point("nudge.after");
    }

    fn reads_private(&self) -> bool {
        self.pair.vm && !self.is_over()
    }

    fn read_private(&mut self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        self.read_unregistered(address, into)
    }

    fn write_inline(&mut self, bytes: &[u8], to: RemoteAddress, immediate: Option<u32>) -> Submit {
        self.write_bytes(bytes, to, immediate)
    }

    fn tell_receives_from(&self) -> u32 {
        // What fits into the ring is never pushed, so a buffer that takes no more need not be told of. And to whom nothing
        // may be pushed, nothing is told.
        if self.pair.direct { INLINE_BYTES as u32 + 1 } else { u32::MAX }
    }

    fn recv_posted(&mut self, work: &Work, number: u32) {
        // Those before it that have not been used up are less than 2^32.
        let ahead = number.wrapping_sub(self.received as u32);
        self.publish_recv(self.received + u64::from(ahead), work);
    }

    #[inline]
    fn take_small(&mut self, work: &Work) -> Option<Small> {
        if self.waiting || self.reliability == Reliability::ReliableReception {
            return None;
        }
        match self.rx.full_word() {
            Some(extras) => self.take_word(work, extras),
            None => self.take_words(work),
        }
    }

    fn watch(&self) -> WatchWord {
        if self.waiting { WatchWord::NONE } else { self.next_word() }
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
        wait_while_busy(&[(self.inn.clone(), self.pair.clone())]);
        point("close.quiet");
        self.published();
        lock(&self.core.lanes).remove(&(self.pair.id, self.lane));
        if let Some(vis) = lock(&self.core.bells).get_mut(&(self.vi.raw().index % BITS)) {
            vis.retain(|v| *v != self.vi);
        }
        self.forget_remote_ops();
        point("close.removed");
        if lock(&self.pair.lanes).let_go(self.lane) || !self.pair.is_dead() {
            // Also wakes the peer's control thread, which tells the waiters for errors.
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

    fn reach(&self) -> Reach {
        reach(self.pair.direct)
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
