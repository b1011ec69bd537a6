//! A fixed number of buffers (Millennium Sort, section 3.2, MemPool and DiskMemPool).
//!
//! The memory of a pool is one arena, aligned for direct I/O and backed by huge pages. Its size bounds the memory of an
//! edge: a producer that finds no free buffer waits, which is all there is to back-pressure. Give each edge a pool of its own:
//! two edges that wait for buffers of one pool can each hold what the other needs.
//!
//! A pool for edges over VIA lies in memory that is registered with a NIC, as a whole or in windows of a settable size
//! (section 5, which registered windows because more than 80 % of the memory in one piece did not go well). Its buffers serve
//! files as well: what is read from a disk into one leaves for another node from where it lies. Then the NIC has it until the
//! send has completed, and no thread watches for that: one that finds no free buffer asks the edges for those that are done.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use viaduct_os::arena::Arena;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::net::Port;
use crate::raw::{Registered, Slot, slots};

/// Sizes and alignment of buffers.
const BLOCK: usize = viaduct_os::files::BLOCK;

/// Where buffers come from and go back to. Clones share one pool.
#[derive(Clone, Debug)]
pub struct MemPool {
    home: Home,
    port: Option<Port>,
    size: usize,
    count: usize,
}

/// What a buffer needs to go back.
#[derive(Clone, Debug)]
pub(crate) struct Home(Arc<Shared>);

/// What tells a pool from all others, without keeping its memory.
pub(crate) struct Mark(Weak<Shared>);

/// What has buffers of pools for a while and learns only when it looks that some are free again.
pub(crate) trait Reclaim: Send + Sync {
    /// Gives back what is free again. Does not wait.
    fn reclaim(&self);
}

struct Shared {
    state: Mutex<PoolState>,
    returned: Condvar,
}

struct PoolState {
    free: Vec<Slot>,
    /// What may have buffers that are free again.
    holders: Vec<Weak<dyn Reclaim>>,
}

/// How long a thread waits until it asks the holders again: from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free", self.state.lock().unwrap_or_else(PoisonError::into_inner).free.len())
    }
}

impl MemPool {
    /// A pool of `count` buffers of `size` bytes, rounded up to whole blocks of 4 KiB. Memory is used from the first touch on.
    pub fn new(count: usize, size: usize) -> Result<MemPool, Error> {
        let size = size.max(1).next_multiple_of(BLOCK);
        let count = count.max(1);
        let len =
            count.checked_mul(size).ok_or_else(|| Error::Memory("more than the address space".into()))?;
        let arena = Arena::new(len).map_err(|error| Error::Memory(error.to_string()))?;
        let mut free = slots(arena, size);
        free.truncate(count);
        // The first to be taken is the last of the list: low addresses first.
        free.reverse();
        Ok(MemPool::of(free, size, None))
    }

    /// A pool of `count` buffers of `size` bytes, rounded up to whole blocks, in memory that is registered with the NIC of
    /// `port`: in one region, or in regions with at most `window` bytes of buffers. A region is up to a block larger than its
    /// buffers, which begin with whole blocks wherever the provider's memory does.
    pub fn registered(
        port: &Port,
        count: usize,
        size: usize,
        window: Option<usize>,
    ) -> Result<MemPool, Error> {
        let size = size.max(1).next_multiple_of(BLOCK);
        let count = count.max(1);
        let each = window.map_or(count, |bytes| bytes / size).clamp(1, count);
        let mut free = Vec::with_capacity(count);
        while free.len() < count {
            let some = each.min(count - free.len());
            let len = some.checked_mul(size).and_then(|len| len.checked_add(BLOCK));
            let len = len.ok_or_else(|| Error::Memory("more than the address space".into()))?;
            let memory = port.memory(len).map_err(|error| Error::Memory(error.to_string()))?;
            // Direct transfers need whole blocks, which not every provider's memory begins with.
            let pad =
                (memory.remote(0).addr as usize).next_multiple_of(BLOCK) - memory.remote(0).addr as usize;
            let (_, memory) = memory.split_at(pad);
            let part = |memory| Slot::Registered(Registered { memory, port: port.clone() });
            free.extend(memory.chunks(size).into_iter().take(some).map(part));
        }
        free.reverse();
        Ok(MemPool::of(free, size, Some(port.clone())))
    }

    fn of(free: Vec<Slot>, size: usize, port: Option<Port>) -> MemPool {
        let count = free.len();
        let state = Mutex::new(PoolState { free, holders: Vec::new() });
        let shared = Shared { state, returned: Condvar::new() };
        MemPool { home: Home(Arc::new(shared)), port, size, count }
    }

    /// Whether its buffers are registered with the NIC of `port`.
    pub fn is_of(&self, port: &Port) -> bool {
        self.port.as_ref().is_some_and(|own| own.is_same(port))
    }

    /// Bytes of each buffer.
    pub fn buffer_size(&self) -> usize {
        self.size
    }

    /// Buffers in all.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Buffers that are free now.
    pub fn free(&self) -> usize {
        self.home.state().free.len()
    }

    /// Waits for a free buffer.
    pub fn take(&self) -> Buffer {
        loop {
            if let Some(buffer) = self.take_until(None) {
                return buffer;
            }
        }
    }

    /// A free buffer, if there is one now.
    pub fn try_take(&self) -> Option<Buffer> {
        if let Some(slot) = self.home.state().free.pop() {
            return Some(Buffer::pooled(slot, self.home.clone()));
        }
        if !self.home.reclaim() {
            return None;
        }
        let slot = self.home.state().free.pop()?;
        Some(Buffer::pooled(slot, self.home.clone()))
    }

    /// Waits for a free buffer, at most for `limit`.
    pub fn take_for(&self, limit: Duration) -> Option<Buffer> {
        self.take_until(Some(Instant::now() + limit))
    }

    fn take_until(&self, end: Option<Instant>) -> Option<Buffer> {
        let mut pause = PAUSES.0;
        loop {
            if let Some(buffer) = self.try_take() {
                return Some(buffer);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let state = self.home.state();
            if !state.free.is_empty() {
                continue;
            }
            // Holders do not say when a buffer is free again.
            let next = (!state.holders.is_empty()).then_some(pause);
            pause = (pause * 2).min(PAUSES.1);
            let returned = &self.home.0.returned;
            match next.into_iter().chain(left).min() {
                Some(limit) => drop(returned.wait_timeout(state, limit)),
                None => drop(returned.wait(state)),
            }
        }
    }

    /// Gives the memory of the free buffers back to the kernel; they can be used on.
    pub fn trim(&self) {
        self.home.state().free.iter_mut().for_each(Slot::discard);
    }
}

impl Home {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give_back(&self, slot: Slot) {
        self.state().free.push(slot);
        self.0.returned.notify_one();
    }

    /// From now on `holder` is asked when no buffer is free, until it is gone.
    pub(crate) fn enrol(&self, holder: Weak<dyn Reclaim>) {
        let mut state = self.state();
        state.holders.retain(|holder| holder.strong_count() > 0);
        state.holders.push(holder);
        drop(state);
        // Threads that found no holder sleep until they are woken.
        self.0.returned.notify_all();
    }

    /// Asks all holders; false if there is none.
    fn reclaim(&self) -> bool {
        let mut number = 0;
        // One at a time, and without the lock: a holder that gives back needs it.
        loop {
            let state = self.state();
            let Some(holder) = state.holders.get(number).map(Weak::upgrade) else { return number > 0 };
            drop(state);
            if let Some(holder) = holder {
                holder.reclaim();
            }
            number += 1;
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(Arc::downgrade(&self.0))
    }
}

impl Mark {
    /// Whether it is that of this pool.
    pub(crate) fn is_of(&self, home: &Home) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&home.0))
    }

    /// Whether the pool still exists.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_back_and_wake_a_waiter() {
        let pool = MemPool::new(1, 5000).unwrap();
        assert_eq!((pool.buffer_size(), pool.count(), pool.free()), (8192, 1, 1));
        let mut buffer = pool.take();
        buffer.push_record(b"one");
        assert_eq!((buffer.data(), buffer.records()), (&b"one"[..], 1));
        assert!(pool.try_take().is_none() && pool.take_for(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| pool.take().capacity());
            std::thread::sleep(Duration::from_millis(5));
            drop(buffer);
            assert_eq!(other.join().unwrap(), 8192);
        });
        assert!(pool.take().is_empty(), "a buffer comes back empty");
        pool.trim();
        assert_eq!(pool.take().room()[..3], [0; 3]);
    }

    #[test]
    fn a_buffer_is_aligned_for_direct_transfers() {
        let pool = MemPool::new(3, 4096).unwrap();
        for buffer in [pool.take(), pool.take(), pool.take()] {
            assert!((buffer.room().as_ptr() as usize).is_multiple_of(4096));
        }
    }
}
