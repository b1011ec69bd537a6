//! loom's atomics under the names the sources ask for, and the ways in which a model may weaken them.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

pub(crate) use loom::hint::spin_loop;
use loom::sync::Condvar;
pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::sync::{Mutex, MutexGuard};

use super::{Without, lacks};

pub(crate) fn fence(ordering: Ordering) {
    if !lacks(Without::Fences) {
        loom::sync::atomic::fence(ordering);
    }
}

fn weakened(ordering: Ordering, what: Without) -> Ordering {
    if lacks(what) { Ordering::Relaxed } else { ordering }
}

/// A word of a ring or of doorbells.
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    word: loom::sync::atomic::AtomicU64,
    credit: bool,
}

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> AtomicU64 {
        AtomicU64 { word: loom::sync::atomic::AtomicU64::new(value), credit: false }
    }

    /// A word by which a consumer gives room back.
    pub(crate) fn credit() -> AtomicU64 {
        AtomicU64 { credit: true, ..AtomicU64::new(0) }
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        let what = if self.credit { Without::CreditAcquire } else { Without::Acquire };
        self.word.load(weakened(ordering, what))
    }

    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        let what = if self.credit { Without::CreditRelease } else { Without::Release };
        self.word.store(value, weakened(ordering, what));
    }

    pub(crate) fn fetch_or(&self, bits: u64, ordering: Ordering) -> u64 {
        self.word.fetch_or(bits, weakened(ordering, Without::RmwOrder))
    }

    pub(crate) fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        if lacks(Without::Swap) {
            let old = self.word.load(Ordering::Acquire);
            self.word.store(value, Ordering::Release);
            return old;
        }
        self.word.swap(value, weakened(ordering, Without::RmwOrder))
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if lacks(Without::Swap) {
            let old = self.word.load(Ordering::Acquire);
            if old != current {
                return Err(old);
            }
            self.word.store(new, Ordering::Release);
            return Ok(old);
        }
        self.word.compare_exchange(current, new, weakened(success, Without::RmwOrder), failure)
    }
}

impl Default for AtomicU64 {
    fn default() -> AtomicU64 {
        AtomicU64::new(0)
    }
}

/// A word of a bell or of the directory. Made by a constant function, which loom has not: loom hears of it when it is
/// first touched, so the first touch has to be the model's main thread's, before it starts others.
pub(crate) struct AtomicU32 {
    initial: u32,
    real: OnceLock<Word>,
}

struct Word {
    word: loom::sync::atomic::AtomicU32,
    queue: (Mutex<()>, Condvar),
}

impl AtomicU32 {
    pub(crate) const fn new(value: u32) -> AtomicU32 {
        AtomicU32 { initial: value, real: OnceLock::new() }
    }

    fn real(&self) -> &Word {
        self.real.get_or_init(|| Word {
            word: loom::sync::atomic::AtomicU32::new(self.initial),
            queue: (Mutex::new(()), Condvar::new()),
        })
    }

    /// The threads that sleep on the word.
    pub(super) fn queue(&self) -> &(Mutex<()>, Condvar) {
        &self.real().queue
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u32 {
        self.real().word.load(weakened(ordering, Without::Acquire))
    }

    pub(crate) fn store(&self, value: u32, ordering: Ordering) {
        self.real().word.store(value, weakened(ordering, Without::Release));
    }

    pub(crate) fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        self.real().word.swap(value, ordering)
    }

    pub(crate) fn fetch_or(&self, bits: u32, ordering: Ordering) -> u32 {
        self.real().word.fetch_or(bits, ordering)
    }

    pub(crate) fn fetch_and(&self, bits: u32, ordering: Ordering) -> u32 {
        self.real().word.fetch_and(bits, ordering)
    }

    pub(crate) fn fetch_add(&self, value: u32, ordering: Ordering) -> u32 {
        self.real().word.fetch_add(value, ordering)
    }
}

impl fmt::Debug for AtomicU32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtomicU32")
    }
}

/// A word of a turn that says yes or no.
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> bool {
        self.0.load(weakened(ordering, Without::Acquire))
    }

    pub(crate) fn store(&self, value: bool, ordering: Ordering) {
        self.0.store(value, weakened(ordering, Without::Release));
    }
}

/// A word of a turn that names a thread.
pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn new(value: usize) -> AtomicUsize {
        AtomicUsize(loom::sync::atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> usize {
        self.0.load(weakened(ordering, Without::Acquire))
    }

    pub(crate) fn store(&self, value: usize, ordering: Ordering) {
        self.0.store(value, weakened(ordering, Without::Release));
    }
}

/// Between two looks.
pub(crate) fn pause(_looks: u32) {
    loom::thread::yield_now();
}

/// A number of the model's thread, not 0.
pub(crate) fn this_thread() -> usize {
    let mut hasher = DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() as usize | 1
}
