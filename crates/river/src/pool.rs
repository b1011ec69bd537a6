//! A fixed number of buffers (Millennium Sort, section 3.2, MemPool and DiskMemPool).
//!
//! The memory of a pool is one arena, aligned for direct I/O and backed by huge pages. Its size bounds the memory of an
//! edge: a producer that finds no free buffer waits, which is all there is to back-pressure. Give each edge a pool of its own:
//! two edges that wait for buffers of one pool can each hold what the other needs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use viaduct_os::arena::Arena;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::{Slot, slots};

/// Where buffers come from and go back to. Clones share one pool.
#[derive(Clone, Debug)]
pub struct MemPool {
    home: Home,
    size: usize,
    count: usize,
}

/// What a buffer needs to go back.
#[derive(Clone, Debug)]
pub(crate) struct Home(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free: Mutex<Vec<Slot>>,
    returned: Condvar,
}

impl MemPool {
    /// A pool of `count` buffers of `size` bytes, rounded up to whole blocks of 4 KiB. Memory is used from the first touch on.
    pub fn new(count: usize, size: usize) -> Result<MemPool, Error> {
        let size = size.max(1).next_multiple_of(4096);
        let count = count.max(1);
        let len =
            count.checked_mul(size).ok_or_else(|| Error::Memory("more than the address space".into()))?;
        let arena = Arena::new(len).map_err(|error| Error::Memory(error.to_string()))?;
        let mut free = slots(arena, size);
        free.truncate(count);
        // The first to be taken is the last of the list: low addresses first.
        free.reverse();
        let shared = Shared { free: Mutex::new(free), returned: Condvar::new() };
        Ok(MemPool { home: Home(Arc::new(shared)), size, count })
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
        self.home.free().len()
    }

    /// Waits for a free buffer.
    pub fn take(&self) -> Buffer {
        let mut free = self.home.free();
        loop {
            if let Some(slot) = free.pop() {
                return Buffer::pooled(slot, self.home.clone());
            }
            free = self.home.0.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A free buffer, if there is one now.
    pub fn try_take(&self) -> Option<Buffer> {
        let slot = self.home.free().pop()?;
        Some(Buffer::pooled(slot, self.home.clone()))
    }

    /// Waits for a free buffer, at most for `limit`.
    pub fn take_for(&self, limit: Duration) -> Option<Buffer> {
        let end = Instant::now() + limit;
        let mut free = self.home.free();
        loop {
            if let Some(slot) = free.pop() {
                return Some(Buffer::pooled(slot, self.home.clone()));
            }
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            let waited = self.home.0.returned.wait_timeout(free, left);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives the memory of the free buffers back to the kernel; they can be used on.
    pub fn trim(&self) {
        self.home.free().iter_mut().for_each(Slot::discard);
    }
}

impl Home {
    fn free(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give_back(&self, slot: Slot) {
        self.free().push(slot);
        self.0.returned.notify_one();
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
