//! What the kernel says of this process' own memory.

use rustix::param::page_size;

/// Pages asked for in one call.
const PAGES: usize = 4096;

/// Whether all of `len` bytes at `address` are mapped. Whether they may be written is not said.
pub fn is_mapped(address: usize, len: usize) -> bool {
    let page = page_size();
    let mut at = address & !(page - 1);
    let Some(end) = address.checked_add(len) else { return false };
    let mut resident = [0u8; PAGES];
    while at < end {
        let piece = (end - at).min(PAGES * page);
        // SAFETY: mincore only looks, fails where nothing is mapped, and writes a byte for each page of the piece.
        if unsafe { libc::mincore(at as *mut libc::c_void, piece, resident.as_mut_ptr()) } != 0 {
            return false;
        }
        at += piece.next_multiple_of(page);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_told_from_none() {
        let bytes = vec![0u8; 40 << 20];
        let here = bytes.as_ptr() as usize;
        assert!(is_mapped(here, bytes.len()) && is_mapped(here + 5, 1));
        assert!(!is_mapped(8, 1) && !is_mapped(usize::MAX - 5, 100) && !is_mapped(here, 1 << 46));
    }
}
