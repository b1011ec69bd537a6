//! A hint to the CPU: these bytes are needed soon.

/// Asks for the first `len` bytes (at most 256) of `bytes` to be brought into the cache.
#[inline(always)]
pub fn prefetch(bytes: &[u8], len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let len = len.min(bytes.len()).min(256);
        let mut at = 0;
        while at < len {
            // SAFETY: the address lies inside the slice, and a prefetch changes nothing that can be seen.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().add(at).cast()) };
            at += 64;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, len);
}
