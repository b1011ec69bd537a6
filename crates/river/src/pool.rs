//! A fixed number of buffers (Millennium Sort, section 3.2, MemPool and DiskMemPool).
//!
//! The memory of a pool is one arena, aligned for direct I/O and backed by huge pages. Its size bounds the memory of an
//! edge: a producer that finds no free buffer waits, which is all there is to back-pressure. Give each edge a pool of its own:
//! two edges that wait for buffers of one pool can each hold what the other needs.
//!
//! A pool for edges over VIA lies in memory that is registered with a NIC, as a whole or in windows of a settable size
//! (section 5, which registered windows because more than 80 % of the memory in one piece did not go well). Its buffers serve
//! files as well: what is read from a disk into one leaves for another node from where it lies.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

struct Shared {
    free: Mutex<Vec<Slot>>,
    returned: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free", self.free.lock().unwrap_or_else(PoisonError::into_inner).len())
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
    /// `port`: in one region, or in regions of at most `window` bytes.
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
        let shared = Shared { free: Mutex::new(free), returned: Condvar::new() };
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
