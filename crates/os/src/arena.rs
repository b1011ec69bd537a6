//! A large piece of private memory, aligned for direct I/O and backed by huge pages where the kernel has them.
//!
//! Pages exist from the first touch on, so an arena may be larger than what is used of it. Serves the pools of River
//! (Millennium Sort, section 3.2, DiskMemPool). How the memory is divided, and which thread may touch which part, is the
//! business of the owner.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error::OsError;

/// Alignment and granularity: a huge page.
const HUGE: usize = 2 << 20;

/// Memory that lives until the arena is dropped.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    mapping: (usize, usize),
    len: usize,
}

// SAFETY: an arena is an address range that it alone unmaps; access goes through raw pointers of the caller's making.
unsafe impl Send for Arena {}
// SAFETY: as above; no method touches the memory.
unsafe impl Sync for Arena {}

impl Arena {
    /// At least `len` zeroed bytes, the first on a 4 KiB boundary, on a 2 MiB boundary if `len` is that large.
    pub fn new(len: usize) -> Result<Arena, OsError> {
        let wanted = len.max(1).next_multiple_of(4096);
        let slack = if wanted >= HUGE { HUGE } else { 0 };
        let mapped = wanted + slack;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice disturbs nothing.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(OsError::sys("mmap", std::io::Error::last_os_error()));
        }
        let base = at as usize;
        let aligned = if slack > 0 { base.next_multiple_of(HUGE) } else { base };
        if slack > 0 {
            // SAFETY: the range lies in the mapping made above; the advice changes no contents. Failure costs speed only.
            unsafe { libc::madvise(aligned as *mut libc::c_void, wanted, libc::MADV_HUGEPAGE) };
        }
        let start = NonNull::new(aligned as *mut u8).expect("the kernel does not map address 0");
        Ok(Arena { start, mapping: (base, mapped), len: wanted })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes, a multiple of 4,096.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none; never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives the pages of a range back to the kernel; they read as zeros afterwards.
    ///
    /// # Safety
    /// No reference into the range exists.
    ///
    /// # Panics
    /// If the range lies outside the arena.
    pub unsafe fn discard(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "range outside the arena");
        let first = offset.next_multiple_of(4096);
        let end = (offset + len) & !4095;
        if first < end {
            // SAFETY: whole pages inside the mapping, which is private and anonymous; no references by the caller's promise.
            unsafe { libc::madvise(self.as_ptr().add(first).cast(), end - first, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this address and length, unmapped once.
        unsafe { libc::munmap(self.mapping.0 as *mut libc::c_void, self.mapping.1) };
    }
}

/// A long list of numbers in an arena of its own, zero at first.
#[derive(Debug)]
pub struct Numbers {
    arena: Arena,
    count: usize,
}

impl Numbers {
    /// `count` zeros.
    pub fn new(count: usize) -> Result<Numbers, OsError> {
        Ok(Numbers { arena: Arena::new(count * size_of::<u128>())?, count })
    }
}

impl Deref for Numbers {
    type Target = [u128];

    fn deref(&self) -> &[u128] {
        // SAFETY: the arena has room for `count` numbers, is aligned for them and initialised; it belongs to this value alone.
        unsafe { std::slice::from_raw_parts(self.arena.as_ptr().cast(), self.count) }
    }
}

impl DerefMut for Numbers {
    fn deref_mut(&mut self) -> &mut [u128] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.arena.as_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_aligned_zeroed_and_forgets_what_is_discarded() {
        let arena = Arena::new(5 << 20).unwrap();
        assert!(arena.len() >= 5 << 20 && (arena.as_ptr() as usize).is_multiple_of(HUGE));
        // SAFETY: inside the arena, and no other thread has it.
        unsafe {
            assert_eq!(*arena.as_ptr().add(4 << 20), 0);
            *arena.as_ptr().add(8192) = 7;
            arena.discard(8192, 4096);
            assert_eq!(*arena.as_ptr().add(8192), 0);
        }
        assert_eq!(Arena::new(1).unwrap().len(), 4096);
        let mut numbers = Numbers::new(1000).unwrap();
        numbers[999] = 1 << 100;
        assert_eq!((numbers.len(), numbers[0], numbers[999]), (1000, 0, 1 << 100));
    }
}
