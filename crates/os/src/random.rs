//! Random numbers from the kernel.
//!
//! Design, section 2.7: handles carry a random generation, so that a stale or guessed one is refused. For that they must
//! be unpredictable, so they come from `getrandom` and nowhere else. Not for benchmarks: every call is a system call.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` with random bytes.
///
/// # Panics
/// If the kernel has no generator, which no kernel that runs this library lacks: without one no handle is safe.
pub fn fill(bytes: &mut [u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(n) => rest = &mut rest[n..],
            Err(Errno::INTR) => {} // early in the boot, or for a long buffer
            Err(e) => panic!("getrandom failed: {e}; a sandbox that forbids it cannot run Viaduct"),
        }
    }
}

/// A random number.
pub fn u32() -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// A random number.
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_buffers_are_filled_to_the_end() {
        let mut bytes = vec![0u8; 5000];
        fill(&mut bytes);
        assert!(bytes[..32].iter().any(|&b| b != 0) && bytes[4968..].iter().any(|&b| b != 0));
        fill(&mut []);
    }

    #[test]
    fn numbers_differ() {
        assert_ne!(u64(), u64());
        let first = u32();
        assert!((0..8).any(|_| u32() != first));
    }
}
