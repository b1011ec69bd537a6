//! Every copy kernel against a byte-by-byte oracle: all small sizes, all alignments, guards on both sides.

use proptest::prelude::*;
use viaduct_os::copy::{Kernel, OVER, copy, copy_over, copy_release_tail, copy_with, stream_threshold};

const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xa5;
const BIG: usize = 3 << 20;

type Copy = unsafe fn(*mut u8, *const u8, usize);

/// All ways to copy, by name.
const WAYS: [(&str, Copy); 6] = [
    ("default", copy),
    ("over", copy_over),
    ("release tail", copy_release_tail),
    ("portable", portable),
    ("avx2", avx2),
    ("stream", stream),
];

unsafe fn portable(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_with(Kernel::Portable, dst, src, len) }
}

unsafe fn avx2(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_with(Kernel::Avx2, dst, src, len) }
}

unsafe fn stream(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_with(Kernel::Stream, dst, src, len) }
}

/// Source and destination with room for any alignment and guards.
struct Arena {
    src: Vec<u8>,
    dst: Vec<u8>,
}

impl Arena {
    fn new(len: usize) -> Arena {
        let mut x = 1u32;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        let src = (0..len + 4 * GUARD).map(|_| next()).collect();
        Arena { src, dst: vec![UNTOUCHED; len + 4 * GUARD] }
    }

    fn check(&mut self, (name, copy): (&str, Copy), to: usize, from: usize, len: usize) {
        // Offsets count from a border of 64, wherever the allocator put the vectors.
        let to = self.dst.as_ptr().align_offset(64) + GUARD + to;
        let from = self.src.as_ptr().align_offset(64) + from;
        assert!(to + len + GUARD <= self.dst.len() && from + len <= self.src.len());
        // SAFETY: both ranges lie in their vectors, which do not overlap.
        unsafe { copy(self.dst.as_mut_ptr().add(to), self.src.as_ptr().add(from), len) };
        let context = || format!("{name}: {len} bytes, destination {}, source {from}", to % 64);
        assert!(self.dst[to..to + len] == self.src[from..from + len], "{}", context());
        let around = self.dst[to - GUARD..to].iter().chain(&self.dst[to + len..to + len + GUARD]);
        assert!(around.copied().all(|byte| byte == UNTOUCHED), "{}", context());
        self.dst[to..to + len].fill(UNTOUCHED);
    }
}

#[test]
fn all_small_sizes_at_all_alignments() {
    let mut arena = Arena::new(300);
    for way in WAYS {
        for len in 0..300 {
            for to in 0..64 {
                for from in [0, 1, 8, 31, to] {
                    arena.check(way, to, from, len);
                }
            }
        }
    }
}

#[test]
fn borders_of_the_kernels() {
    let mut arena = Arena::new(9000);
    for way in WAYS {
        let over = [OVER - 1, OVER, OVER + 1];
        let others =
            [320, 383, 384, 385, 511, 512, 513, 575, 576, 577, 640, 704, 1000, 4095, 4096, 4097, 8192, 8999];
        for len in others.into_iter().chain(over) {
            for to in 0..64 {
                arena.check(way, to, (to * 7) % 64, len);
            }
        }
    }
}

#[test]
fn large_sizes() {
    let mut arena = Arena::new(BIG);
    for way in WAYS {
        for len in [65_535, 65_536, 1 << 20, (1 << 20) + 1, BIG - 1, BIG] {
            for (to, from) in [(0, 0), (1, 0), (0, 1), (16, 0), (32, 5), (0, 63)] {
                arena.check(way, to, from, len);
            }
        }
    }
}

#[test]
fn the_default_streams_above_its_threshold() {
    let len = stream_threshold() + 13;
    if len > 64 << 20 {
        viaduct_kit::skip!("the last-level cache is too large for a test");
    }
    Arena::new(len).check(("default", copy), 3, 5, len);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_size_and_alignment(len in 0usize..20_000, to in 0usize..64, from in 0usize..64) {
        let mut arena = Arena::new(len);
        for way in WAYS {
            arena.check(way, to, from, len);
        }
    }
}
