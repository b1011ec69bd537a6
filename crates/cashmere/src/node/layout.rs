//! What lies where in the memory that the processes of a node share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use viaduct_os::error::OsError;
use viaduct_os::process::{pid_alive, pidfd};
use viaduct_os::segment::Segment;

use super::wire::SLOTS;
use crate::ids::{NodeId, PageId, WorkerId, WorkerSet};
use crate::protocol::barrier::Local;
use crate::protocol::lock::{Lock, Manager};
use crate::protocol::page::Page;
use crate::raw::{Guarded, Part, part};

/// Locks, barriers and flags that a program can have. No code goes through all of them, and what is not used takes no memory: the
/// segments are sparse.
pub(crate) const NAMES: usize = 1 << 16;
/// Counters of a node.
pub(crate) const COUNTERS: usize = 64;

const CLOCK: usize = 0;
const WORDS: usize = 8;
const SYNCHRONISED: usize = 0;
const DOWN: usize = 1;
const PARKED: usize = 2;
const RETRY: usize = 3;

/// What a worker waits for that a sibling can bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A lock, a barrier or a flag.
    Synchronisation,
    /// The entry of a page.
    Page,
}

/// The node's entries, queues and words.
#[derive(Debug)]
pub(crate) struct Meta {
    segment: Segment,
    pages: usize,
    layout: Layout,
    /// This node, and its other processes, once they are known.
    siblings: (NodeId, Vec<OwnedFd>),
}

#[derive(Debug)]
struct Layout {
    words: Part,
    clock: Part,
    waiting: Part,
    counters: Part,
    entries: Part,
    locks: Part,
    managers: Part,
    barriers: Part,
    test_and_set: Part,
    outgoing: Part,
    incoming: Part,
    claimed: Part,
    pids: Part,
    /// The bins, then for each worker its list and its noticed pages.
    queues: Vec<QueueParts>,
}

#[derive(Clone, Copy, Debug)]
struct QueueParts {
    lock: Part,
    len: Part,
    items: Part,
    bits: Part,
}

/// Gives out places one after another.
pub(super) struct Places(pub(super) usize);

impl Places {
    pub(super) fn take<T>(&mut self, count: usize) -> Part {
        let at = self.0.next_multiple_of(64);
        self.0 = at + count * size_of::<T>();
        Part { at, count }
    }
}

/// Where everything lies, and how much that is.
fn lay_out(pages: usize, workers: usize, nodes: usize) -> (Layout, usize) {
    let mut places = Places(0);
    let words = places.take::<AtomicU32>(WORDS);
    let clock = places.take::<AtomicU64>(1);
    let waiting = places.take::<AtomicU64>(2);
    let counters = places.take::<AtomicU64>((workers + 1) * COUNTERS);
    let entries = places.take::<Guarded<Page>>(pages);
    let locks = places.take::<Guarded<Lock>>(NAMES);
    let managers = places.take::<Guarded<Manager>>(NAMES);
    let barriers = places.take::<Guarded<Local>>(NAMES);
    let test_and_set = places.take::<AtomicU32>(NAMES);
    let outgoing = places.take::<Guarded<Outgoing>>(nodes);
    let incoming = places.take::<Guarded<Incoming>>(nodes);
    let claimed = places.take::<AtomicU64>(nodes * (workers + 1) * SLOTS);
    let pids = places.take::<AtomicU32>(workers + 1);
    let queues = (0..1 + 2 * workers)
        .map(|_| QueueParts {
            lock: places.take::<Guarded<()>>(1),
            len: places.take::<AtomicU32>(1),
            items: places.take::<AtomicU32>(pages),
            bits: places.take::<AtomicU64>(pages.div_ceil(64)),
        })
        .collect();
    let layout = Layout {
        words,
        clock,
        waiting,
        counters,
        entries,
        locks,
        managers,
        barriers,
        test_and_set,
        outgoing,
        incoming,
        claimed,
        pids,
        queues,
    };
    (layout, places.0)
}

/// The end of this node's bin at another node: what its processes have written there by remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// Notices written.
    pub(crate) tail: u64,
    /// Notices that the other node had taken out when this one last looked.
    pub(crate) taken: u64,
    /// How many times the bin was full.
    pub(crate) spilled: u64,
}

/// The beginning of another node's bin at this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) head: u64,
    pub(crate) spilled: u64,
}

impl Meta {
    /// Bytes that the shared entries of a node take.
    pub(crate) fn bytes(pages: usize, workers: usize, nodes: usize) -> usize {
        lay_out(pages, workers, nodes).1
    }

    pub(crate) fn new(segment: Segment, pages: usize, workers: usize, nodes: usize) -> Meta {
        Meta { segment, pages, layout: lay_out(pages, workers, nodes).0, siblings: (NodeId(0), Vec::new()) }
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    fn pids(&self) -> &[AtomicU32] {
        part(&self.segment, self.layout.pids)
    }

    /// Says which process has this place in the node: 0 is the server's.
    pub(crate) fn enter(&self, place: usize) {
        self.pids()[place].store(std::process::id(), Ordering::Release);
    }

    /// Watches the other processes of the node, all of which have entered.
    ///
    /// # Errors
    /// If one of them is gone already.
    pub(crate) fn watch(&mut self, node: NodeId, place: usize) -> Result<(), OsError> {
        let pids = self.pids().iter().enumerate().filter(|(other, _)| *other != place);
        let watched: Result<_, _> = pids.map(|(_, pid)| pidfd(pid.load(Ordering::Acquire))).collect();
        self.siblings = (node, watched?);
        Ok(())
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        &part::<AtomicU32>(&self.segment, self.layout.words)[index]
    }

    pub(crate) fn tick(&self) -> u64 {
        part::<AtomicU64>(&self.segment, self.layout.clock)[CLOCK].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Counts at a process of this node: 0 is the server. It alone stores its counters.
    pub(crate) fn count(&self, place: usize, counter: usize, by: u64) {
        let counter = &part::<AtomicU64>(&self.segment, self.layout.counters)[place * COUNTERS + counter];
        counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    /// The counts of all processes of this node.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let all = part::<AtomicU64>(&self.segment, self.layout.counters);
        let sum =
            |counter| all.iter().skip(counter).step_by(COUNTERS).map(|c| c.load(Ordering::Relaxed)).sum();
        (0..COUNTERS).map(sum).collect()
    }

    pub(crate) fn entry(&self, page: PageId) -> &Guarded<Page> {
        &part(&self.segment, self.layout.entries)[page.0 as usize]
    }

    pub(crate) fn lock(&self, name: u32) -> &Guarded<Lock> {
        &part(&self.segment, self.layout.locks)[name as usize % NAMES]
    }

    pub(crate) fn barrier(&self, name: u32) -> &Guarded<Local> {
        &part(&self.segment, self.layout.barriers)[name as usize % NAMES]
    }

    pub(crate) fn manager(&self, name: u32) -> &Guarded<Manager> {
        &part(&self.segment, self.layout.managers)[name as usize % NAMES]
    }

    /// This node's part of a lock by remote write: 0 free, 1 taken.
    pub(crate) fn test_and_set(&self, name: u32) -> &AtomicU32 {
        &part(&self.segment, self.layout.test_and_set)[name as usize % NAMES]
    }

    pub(crate) fn outgoing(&self, to: NodeId) -> &Guarded<Outgoing> {
        &part(&self.segment, self.layout.outgoing)[usize::from(to.0)]
    }

    pub(crate) fn incoming(&self, from: NodeId) -> &Guarded<Incoming> {
        &part(&self.segment, self.layout.incoming)[usize::from(from.0)]
    }

    fn waiting(&self, waits: Waits) -> &AtomicU64 {
        &part::<AtomicU64>(&self.segment, self.layout.waiting)[usize::from(waits == Waits::Page)]
    }

    /// Says that a worker waits, or does so no longer.
    pub(crate) fn set_waiting(&self, waits: Waits, worker: WorkerId, on: bool) {
        let bit = 1 << worker.0;
        if on {
            self.waiting(waits).fetch_or(bit, Ordering::SeqCst);
        } else {
            self.waiting(waits).fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Workers that wait: the process that changed what they wait for wakes them.
    pub(crate) fn waiters(&self, waits: Waits) -> WorkerSet {
        fence(Ordering::SeqCst);
        WorkerSet::from_bits(self.waiting(waits).load(Ordering::SeqCst))
    }

    /// Workers that wait at a lock, a barrier or a flag, and so poll for a while.
    pub(crate) fn polls(&self) -> WorkerSet {
        WorkerSet::from_bits(self.waiting(Waits::Synchronisation).load(Ordering::Relaxed))
    }

    /// Whether this copy of a request is the first that a process of this node takes. A process uses a slot for one request
    /// after the other, with growing tickets.
    pub(crate) fn claim(&self, rank: usize, slot: u8, ticket: u64) -> bool {
        let word =
            &part::<AtomicU64>(&self.segment, self.layout.claimed)[rank * SLOTS + usize::from(slot) - 1];
        word.fetch_max(ticket, Ordering::AcqRel) < ticket
    }

    pub(crate) fn bins(&self) -> Queue<'_> {
        self.queue(0)
    }

    pub(crate) fn list(&self, worker: WorkerId) -> Queue<'_> {
        self.queue(1 + 2 * usize::from(worker.0))
    }

    pub(crate) fn noticed(&self, worker: WorkerId) -> Queue<'_> {
        self.queue(2 + 2 * usize::from(worker.0))
    }

    fn queue(&self, index: usize) -> Queue<'_> {
        Queue { parts: &self.layout.queues[index], meta: self }
    }

    /// The version of locks, barriers and flags.
    pub(crate) fn synchronised(&self) -> u64 {
        u64::from(self.word(SYNCHRONISED).load(Ordering::Acquire))
    }

    /// A lock, barrier or flag has changed.
    pub(crate) fn bump(&self) {
        self.word(SYNCHRONISED).fetch_add(1, Ordering::SeqCst);
    }

    /// The node that is gone, if one is.
    pub(crate) fn down(&self) -> Option<NodeId> {
        match self.word(DOWN).load(Ordering::Acquire) {
            0 => None,
            node => Some(NodeId((node - 1) as u8)),
        }
    }

    /// A node is gone. The first one stays.
    pub(crate) fn set_down(&self, node: NodeId) {
        let _ =
            self.word(DOWN).compare_exchange(0, u32::from(node.0) + 1, Ordering::AcqRel, Ordering::Relaxed);
        self.bump();
    }

    /// Whether the run can go on. Asked by processes that wait long for a lock: its owner may have died in the middle, and
    /// they hear nothing of their network meanwhile.
    pub(crate) fn alive(&self) -> bool {
        let (node, siblings) = &self.siblings;
        if self.down().is_none() && siblings.iter().any(|sibling| !pid_alive(sibling.as_fd())) {
            self.set_down(*node);
        }
        self.down().is_none()
    }

    /// Whether the server has parked requests, which a change of a page may let it answer.
    pub(crate) fn parked(&self) -> bool {
        self.word(PARKED).load(Ordering::SeqCst) != 0
    }

    pub(crate) fn set_parked(&self, count: usize) {
        self.word(PARKED).store(count as u32, Ordering::SeqCst);
    }

    /// How many times a page has changed while requests were parked.
    pub(crate) fn retries(&self) -> u32 {
        self.word(RETRY).load(Ordering::SeqCst)
    }

    pub(crate) fn ask_retry(&self) {
        self.word(RETRY).fetch_add(1, Ordering::SeqCst);
    }
}

/// A queue of pages without duplicates, with room for all of them.
pub(crate) struct Queue<'a> {
    parts: &'a QueueParts,
    meta: &'a Meta,
}

impl Queue<'_> {
    fn lock(&self) -> &Guarded<()> {
        let lock = &part::<Guarded<()>>(&self.meta.segment, self.parts.lock)[0];
        lock.lock(&|| self.meta.alive());
        lock
    }

    /// How many pages are in it; stored under the lock.
    fn len(&self) -> &AtomicU32 {
        &part(&self.meta.segment, self.parts.len)[0]
    }

    fn items(&self) -> &[AtomicU32] {
        part(&self.meta.segment, self.parts.items)
    }

    /// For each page, whether it is in the queue.
    fn bits(&self) -> &[AtomicU64] {
        part(&self.meta.segment, self.parts.bits)
    }

    pub(crate) fn push(&self, page: PageId) {
        let lock = self.lock();
        let len = self.len().load(Ordering::Relaxed);
        let bit = 1 << (page.0 % 64);
        let before = self.bits()[page.0 as usize / 64].fetch_or(bit, Ordering::Relaxed);
        if before & bit == 0 && (len as usize) < self.meta.pages {
            self.items()[len as usize].store(page.0, Ordering::Relaxed);
            self.len().store(len + 1, Ordering::Release);
        }
        lock.unlock_unawaited(());
    }

    /// Takes all pages; `each` sees them under the queue's lock. An empty queue costs a look: what a caller has to see was pushed
    /// before whatever made it look here.
    #[inline]
    pub(crate) fn take(&self, each: impl FnMut(PageId)) {
        if self.len().load(Ordering::Acquire) != 0 {
            self.take_all(each);
        }
    }

    fn take_all(&self, mut each: impl FnMut(PageId)) {
        let lock = self.lock();
        let (len, bits) = (self.len().load(Ordering::Relaxed), self.bits());
        for item in &self.items()[..len as usize] {
            let page = item.load(Ordering::Relaxed);
            bits[page as usize / 64].fetch_and(!(1 << (page % 64)), Ordering::Relaxed);
            each(PageId(page));
        }
        self.len().store(0, Ordering::Release);
        lock.unlock_unawaited(());
    }
}
