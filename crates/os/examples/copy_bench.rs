//! Our copy against the C library's memcpy, over sizes and alignments.
//!
//! Backs design section 2.5. Both copy the same bytes in turn, in one process, so that a change of the machine's mood hits
//! both; the figure is the median over rounds and the last column the ratio (above 1: ours is faster). The data is
//! checked before a number is printed. `--json` prints one object a line; `--quick` takes fewer rounds.
//!
//! `cargo run --release -p viaduct-os --example copy_bench`

use std::hint::black_box;

use viaduct_os::clock::{Calibration, Tsc};
use viaduct_os::copy::{copy, has_avx2, stream_threshold};

type Copy = unsafe fn(*mut u8, *const u8, usize);

const SIZES: [usize; 24] = [
    8,
    16,
    24,
    32,
    64,
    96,
    128,
    256,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    64 << 20,
];
/// Offsets of destination and source from a border of a page.
const ALIGNMENTS: [(usize, usize); 6] = [(0, 0), (1, 0), (0, 1), (16, 0), (32, 5), (0, 63)];

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let (json, rounds) = (has("--json"), if has("--quick") { 7 } else { 25 });
    let clock = Calibration::measure();
    let mut arena = Arena::new(*SIZES.last().unwrap_or(&0));
    let mut ratios = Vec::new();
    if !json {
        println!("AVX2 {}, streaming from {} bytes", has_avx2(), stream_threshold());
        println!("{:>9}  {:>7}  {:>12}  {:>12}  {:>6}", "bytes", "dst,src", "ours ns", "memcpy ns", "ratio");
    }
    for len in SIZES {
        for (to, from) in ALIGNMENTS {
            let (ours, theirs) = arena.measure(len, to, from, rounds, clock);
            ratios.push(theirs / ours);
            if json {
                println!(
                    "{{\"bytes\":{len},\"dst\":{to},\"src\":{from},\"ours_ns\":{ours:.2},\
                     \"memcpy_ns\":{theirs:.2},\"ratio\":{:.3}}}",
                    theirs / ours
                );
            } else {
                let at = format!("{to},{from}");
                println!("{len:>9}  {at:>7}  {ours:>12.1}  {theirs:>12.1}  {:>6.2}", theirs / ours);
            }
        }
    }
    if !json {
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| ratios[(ratios.len() - 1) * part / 4];
        println!(
            "ratio: least {:.2}, quartiles {:.2} {:.2} {:.2}, most {:.2}",
            at(0),
            at(1),
            at(2),
            at(3),
            at(4)
        );
    }
}

struct Arena {
    src: Vec<u8>,
    dst: Vec<u8>,
}

impl Arena {
    fn new(len: usize) -> Arena {
        let src = (0..len + 3 * PAGE).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        Arena { src, dst: vec![0; len + 3 * PAGE] }
    }

    /// Median nanoseconds per copy: ours and the C library's.
    fn measure(
        &mut self,
        len: usize,
        to: usize,
        from: usize,
        rounds: usize,
        clock: Calibration,
    ) -> (f64, f64) {
        let ways: [Copy; 2] = [copy, memcpy];
        for way in ways {
            self.validate(way, len, to, from);
        }
        let repeat = (256 * 1024 / len).clamp(1, 2000);
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            // Which of the two goes first alternates, so that neither always finds the caches the other left.
            for turn in 0..2 {
                let which = (round + turn) % 2;
                let (dst, src) = self.at(to, from);
                let way = black_box(ways[which]);
                let start = Tsc::cycles();
                for _ in 0..repeat {
                    // SAFETY: the arena has room for `len` bytes at both places, and they are two vectors.
                    unsafe { way(dst, src, black_box(len)) };
                }
                times[which].push(clock.ns(Tsc::cycles() - start) / repeat as f64);
            }
        }
        let [mut ours, mut theirs] = times;
        (median(&mut ours), median(&mut theirs))
    }

    fn validate(&mut self, way: Copy, len: usize, to: usize, from: usize) {
        let (dst, src) = self.at(to, from);
        let offset = dst as usize - self.dst.as_ptr() as usize;
        let start = src as usize - self.src.as_ptr() as usize;
        self.dst[offset - 1..=offset + len].fill(0xee);
        // SAFETY: as in `measure`.
        unsafe { way(dst, src, len) };
        assert!(self.dst[offset..offset + len] == self.src[start..start + len], "{len} bytes: wrong data");
        assert!(self.dst[offset - 1] == 0xee && self.dst[offset + len] == 0xee, "{len} bytes: out of bounds");
    }

    fn at(&mut self, to: usize, from: usize) -> (*mut u8, *const u8) {
        let border = |at: usize| at.next_multiple_of(PAGE) - at + PAGE;
        let dst = self.dst.as_mut_ptr();
        let dst = dst.wrapping_add(border(dst as usize) + to);
        let src = self.src.as_ptr();
        (dst, src.wrapping_add(border(src as usize) + from))
    }
}

const PAGE: usize = 4096;

unsafe fn memcpy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise is the one memcpy asks for.
    unsafe { libc::memcpy(dst.cast(), src.cast(), len) };
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
