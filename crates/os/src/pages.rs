//! Fresh memory that takes room only where it was touched.
//!
//! The allocator zeroes what it hands out with an alignment of pages, and so touches all of it. Buffers of which most are
//! never used are better mapped: the kernel gives a page when it is first written, and no huge one in its place.

use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::OsError;

/// Zeroed memory of this process alone.
#[derive(Debug)]
pub struct Pages {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; the code that takes its address answers for what it does with it.
unsafe impl Send for Pages {}
// SAFETY: has nothing to be called but the address and the length.
unsafe impl Sync for Pages {}

impl Pages {
    /// So many bytes, at least one, at the start of a page.
    ///
    /// # Errors
    /// If there is no address space left.
    pub fn new(len: usize) -> Result<Pages, OsError> {
        let len = len.max(1);
        // SAFETY: fresh pages, wherever there is room.
        let memory = unsafe {
            mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let memory = memory.map_err(|e| OsError::sys("mmap", e))?;
        // SAFETY: pages of ours. A kernel without huge pages refuses, and gives none either.
        let _ = unsafe { madvise(memory, len, Advice::LinuxNoHugepage) };
        Ok(Pages { memory: NonNull::new(memory.cast()).expect("the kernel maps nothing at zero"), len })
    }

    /// Where they begin.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: there is at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and unmapped once.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_and_take_memory_where_they_are_touched() {
        let pages = Pages::new(8 << 20).unwrap();
        let resident = |pages: &Pages| {
            let mut seen = vec![0u8; pages.len() / 4096];
            // SAFETY: only looks, at pages that are mapped, with a byte for each of them.
            assert_eq!(unsafe { libc::mincore(pages.as_ptr().cast(), pages.len(), seen.as_mut_ptr()) }, 0);
            seen.iter().filter(|page| **page & 1 != 0).count()
        };
        assert_eq!(resident(&pages), 0);
        // SAFETY: inside of the pages.
        unsafe {
            assert_eq!(pages.as_ptr().add(5000).read(), 0);
            pages.as_ptr().add(6 << 20).write(7);
        }
        assert!((1..=2).contains(&resident(&pages)));
    }
}
