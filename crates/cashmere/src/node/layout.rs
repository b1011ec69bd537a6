//! What lies where in the memory that the processes of a node share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use viaduct_os::segment::Segment;

use crate::ids::{NodeId, PageId, WorkerId};
use crate::protocol::barrier::Local;
use crate::protocol::lock::Lock;
use crate::protocol::page::Page;
use crate::raw::{Guarded, Part, part, wait};

/// Locks, barriers and flags that a program can have.
pub(crate) const NAMES: usize = 1024;
/// Counters of a node.
pub(crate) const COUNTERS: usize = 32;

const CLOCK: usize = 0;
const WORDS: usize = 8;
const SYNCHRONISED: usize = 0;
const SLEEPERS: usize = 1;
const DOWN: usize = 2;
const PARKED: usize = 3;

/// The node's entries, queues and words.
#[derive(Debug)]
pub(crate) struct Meta {
    segment: Segment,
    pages: usize,
    layout: Layout,
}

#[derive(Debug)]
struct Layout {
    words: Part,
    clock: Part,
    counters: Part,
    entries: Part,
    locks: Part,
    barriers: Part,
    flags: Part,
    /// The bins, then for each worker its list and its noticed pages.
    queues: Vec<QueueParts>,
}

#[derive(Clone, Copy, Debug)]
struct QueueParts {
    head: Part,
    items: Part,
    bits: Part,
}

/// Gives out places one after another.
struct Places(usize);

impl Places {
    fn take<T>(&mut self, count: usize) -> Part {
        let at = self.0.next_multiple_of(64);
        self.0 = at + count * size_of::<T>();
        Part { at, count }
    }
}

/// Where everything lies, and how much that is.
fn lay_out(pages: usize, workers: usize) -> (Layout, usize) {
    let mut places = Places(0);
    let words = places.take::<AtomicU32>(WORDS);
    let clock = places.take::<AtomicU64>(1);
    let counters = places.take::<AtomicU64>(COUNTERS);
    let entries = places.take::<Guarded<Page>>(pages);
    let locks = places.take::<Guarded<Lock>>(NAMES);
    let barriers = places.take::<Guarded<Local>>(NAMES);
    let flags = places.take::<AtomicU64>(NAMES);
    let queues = (0..1 + 2 * workers)
        .map(|_| QueueParts {
            head: places.take::<Guarded<u32>>(1),
            items: places.take::<AtomicU32>(pages),
            bits: places.take::<AtomicU64>(pages.div_ceil(64)),
        })
        .collect();
    (Layout { words, clock, counters, entries, locks, barriers, flags, queues }, places.0)
}

impl Meta {
    /// Bytes that the shared entries of a node take.
    pub(crate) fn bytes(pages: usize, workers: usize) -> usize {
        lay_out(pages, workers).1
    }

    pub(crate) fn new(segment: Segment, pages: usize, workers: usize) -> Meta {
        Meta { segment, pages, layout: lay_out(pages, workers).0 }
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        &part::<AtomicU32>(&self.segment, self.layout.words)[index]
    }

    pub(crate) fn tick(&self) -> u64 {
        part::<AtomicU64>(&self.segment, self.layout.clock)[CLOCK].fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn count(&self, counter: usize, by: u64) {
        part::<AtomicU64>(&self.segment, self.layout.counters)[counter].fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Vec<u64> {
        part::<AtomicU64>(&self.segment, self.layout.counters)
            .iter()
            .map(|c| c.load(Ordering::Relaxed))
            .collect()
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

    pub(crate) fn flag(&self, name: u32) -> &AtomicU64 {
        &part(&self.segment, self.layout.flags)[name as usize % NAMES]
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
        let QueueParts { head, items, bits } = self.layout.queues[index];
        let (items, bits) = (part(&self.segment, items), part(&self.segment, bits));
        Queue { head: &part(&self.segment, head)[0], items, bits, meta: self }
    }

    /// The version of locks, barriers and flags.
    pub(crate) fn synchronised(&self) -> u64 {
        u64::from(self.word(SYNCHRONISED).load(Ordering::Acquire))
    }

    /// A lock, barrier or flag has changed: wakes those that wait for one.
    pub(crate) fn bump(&self) {
        self.word(SYNCHRONISED).fetch_add(1, Ordering::SeqCst);
        if self.word(SLEEPERS).load(Ordering::SeqCst) != 0 {
            viaduct_os::futex::wake(self.word(SYNCHRONISED), u32::MAX);
        }
    }

    pub(crate) fn wait_synchronised(&self, seen: u64) -> bool {
        wait(self.word(SYNCHRONISED), self.word(SLEEPERS), seen as u32)
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

    pub(crate) fn alive(&self) -> bool {
        self.down().is_none()
    }

    /// Whether the server has parked requests, which a change of a page may let it answer.
    pub(crate) fn parked(&self) -> bool {
        self.word(PARKED).load(Ordering::SeqCst) != 0
    }

    pub(crate) fn set_parked(&self, count: usize) {
        self.word(PARKED).store(count as u32, Ordering::SeqCst);
    }
}

/// A queue of pages without duplicates, with room for all of them.
pub(crate) struct Queue<'a> {
    head: &'a Guarded<u32>,
    items: &'a [AtomicU32],
    bits: &'a [AtomicU64],
    meta: &'a Meta,
}

impl Queue<'_> {
    pub(crate) fn push(&self, page: PageId) {
        let len = self.head.lock(&|| self.meta.alive());
        let bit = 1 << (page.0 % 64);
        let before = self.bits[page.0 as usize / 64].fetch_or(bit, Ordering::Relaxed);
        let len = if before & bit == 0 && (len as usize) < self.meta.pages {
            self.items[len as usize].store(page.0, Ordering::Relaxed);
            len + 1
        } else {
            len
        };
        self.head.unlock(len);
    }

    /// Takes all pages; `each` sees them under the queue's lock.
    pub(crate) fn take(&self, mut each: impl FnMut(PageId)) {
        let len = self.head.lock(&|| self.meta.alive());
        for item in &self.items[..len as usize] {
            let page = item.load(Ordering::Relaxed);
            self.bits[page as usize / 64].fetch_and(!(1 << (page % 64)), Ordering::Relaxed);
            each(PageId(page));
        }
        self.head.unlock(0);
    }
}
