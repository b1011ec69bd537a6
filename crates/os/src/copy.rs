//! The one routine that moves payload.
//!
//! Design, section 2.5: glibc's memcpy is up to 14 times slower for 2 KiB to 1 MiB at common alignments on AMD, and
//! section 2.3: either side may be changed by another process while it is copied. A copy in Rust's own terms of memory
//! that changes is undefined behaviour; here the loads and stores are in inline assembly (or volatile, in the portable
//! kernel), about which the compiler assumes nothing. What arrives may be a mixture of old and new, and never more
//! than that.
//!
//! Bytes are stored in ascending order of address in every kernel: a thread that sees the last byte on x86-64 (where
//! stores are not reordered), or has synchronised with the copier elsewhere, sees all before it. The streaming kernel
//! gives up that order *inside* the copy, and restores it before its last bytes and before it returns. A byte may
//! be stored twice where blocks overlap.
//!
//! | length | kernel |
//! |---|---|
//! | up to 64 | inlined: two or four loads, then as many stores, overlapping |
//! | up to 128 | the same with eight, not inlined |
//! | up to half the last-level cache | AVX2, 128 bytes a turn, destination aligned |
//! | beyond | AVX2 with non-temporal stores: they spare the caches of the copying CPU |
//! | from 2 KiB on, to memory of a far CPU ([`copy_over`]), not on Intel's | the same: it need not be taken from that one first |

mod portable;
mod tail;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

pub use tail::copy_release_tail;

/// Which loop copies. For tests and benchmarks; [`copy`] chooses by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Word by word, on any CPU.
    Portable,
    /// 32 bytes at a time through the caches.
    Avx2,
    /// 32 bytes at a time past the caches.
    Stream,
}

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// `src` must be valid for reads and `dst` for writes of `len` bytes (other processes may write to both meanwhile), the
/// two must not overlap, and no Rust reference to the bytes at `dst` may be alive.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if len <= x86::SMALL {
        // SAFETY: the caller's promise, and `len` is small.
        return unsafe { x86::small(dst, src, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { large(dst, src, len) }
}

/// Stores a word at `dst`, in one go where the machine can.
///
/// # Safety
/// As for [`copy`], for eight bytes at `dst`.
#[inline(always)]
pub unsafe fn store_word(dst: *mut u8, word: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: the caller's promise.
    unsafe {
        x86::store(dst, word)
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    // SAFETY: the caller's promise; the source is a word.
    unsafe {
        copy(dst, (&raw const word).cast::<u8>(), 8)
    };
}

/// Lines that are asked for at once: more than a core can have on their way.
const OWNED: usize = 128;

/// Asks for the first lines of a block that will be written soon, which takes them away from other CPUs. It
/// has no effect but on the caches.
#[inline(always)]
pub fn own(dst: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    for line in 0..len.div_ceil(64).min(OWNED) {
        x86::own(dst.wrapping_add(line * 64));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = (dst, len, OWNED);
}

/// As [`own`], for a block that will be written as a whole, on CPUs that gain from it: those of Intel fetch no line that
/// is overwritten from end to end, unless they are asked to, and a copy between far cores takes half as long again then.
/// Nor does [`copy_over`] from [`OVER`] bytes on.
#[inline]
pub fn own_target(dst: *const u8, len: usize) {
    if len < OVER && fetches_what_it_overwrites() {
        own(dst, len);
    }
}

/// From which length on [`copy_over`] may go past the caches.
pub const OVER: usize = 2048;
/// One in so many of those copies goes through the caches and is timed.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
const TIMED: u32 = 32;
/// Bytes in a nanosecond that such a copy has at least where the two CPUs share a cache: five times as many are usual there,
/// and half as many where lines have to be taken from afar.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
const NEAR: u64 = 10;
/// Copies since the last one that was timed, and in the uppermost bit whether the other CPU was far then. It is a note: threads
/// that write it at the same time do no harm.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
static OVERS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
const FAR: u32 = 1 << 31;

/// As [`copy`], to memory that another CPU has in its caches and will read next, such as a receive that it has posted.
///
/// A store through the caches first takes its line away from the other CPU, and fetches what it overwrites. CPUs of Intel do
/// without the latter; on AMD's, stores past the caches do without both, and between far cores a message of 16 to 256 KiB takes half
/// the time. Where the two CPUs share a cache it takes twice the time. Which it is may change while a virtual machine runs,
/// so a copy is timed now and then.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn copy_over(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if len >= OVER && goes_past_caches() {
        // SAFETY: the caller's promise, AVX2 was detected, and the length is above the kernels' least.
        return unsafe { over(dst, src, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy(dst, src, len) }
}

/// A copy of at least [`OVER`] bytes, the way that was faster lately.
///
/// # Safety
/// As [`copy`], `len >= OVER`, and AVX2 was detected.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[inline(never)]
unsafe fn over(dst: *mut u8, src: *const u8, len: usize) {
    let note = OVERS.load(Ordering::Relaxed);
    let (far, count) = (note & FAR, (note & !FAR) + 1);
    if count < TIMED {
        OVERS.store(far | count, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        return unsafe { if far == 0 { copy(dst, src, len) } else { x86::stream(dst, src, len) } };
    }
    let start = crate::clock::now_ns();
    // SAFETY: the caller's promise.
    unsafe { copy(dst, src, len) };
    // The stores have their lines then.
    std::sync::atomic::fence(Ordering::SeqCst);
    let took = crate::clock::now_ns().saturating_sub(start);
    OVERS.store(if took.saturating_mul(NEAR) > len as u64 { FAR } else { 0 }, Ordering::Relaxed);
}

/// Whether [`copy_over`] goes past the caches here, if the other CPU is far.
#[inline]
pub fn goes_past_caches() -> bool {
    fetches_what_it_overwrites() && detected() == AVX2
}

/// Whether the lines of a block that is overwritten are fetched all the same.
fn fetches_what_it_overwrites() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        const YES: u8 = 1;
        const NO: u8 = 2;
        // Words and no lock: calls of a foreign application come here.
        static FETCHES: AtomicU8 = AtomicU8::new(0);
        match FETCHES.load(Ordering::Relaxed) {
            YES => true,
            NO => false,
            _ => {
                let fetches = !x86::is_intel();
                FETCHES.store(if fetches { YES } else { NO }, Ordering::Relaxed);
                fetches
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    true
}

/// Loads a word from `src`, in one go where the machine can.
///
/// # Safety
/// As for [`copy`], for eight bytes at `src`.
#[inline(always)]
pub unsafe fn load_word(src: *const u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: the caller's promise.
    unsafe {
        x86::load(src)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    {
        let mut word = 0u64;
        // SAFETY: the caller's promise; the destination is a word.
        unsafe { copy((&raw mut word).cast::<u8>(), src, 8) };
        word
    }
}

/// Copies with a given kernel, or with the portable one if this CPU lacks it.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_with(kernel: Kernel, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY (all arms): the caller's promise; the AVX2 kernels run only where it was detected.
    match kernel {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        // SAFETY: see above.
        Kernel::Avx2 | Kernel::Stream if detected() == AVX2 => unsafe {
            match kernel {
                _ if len <= x86::SMALL => x86::small(dst, src, len),
                _ if len <= x86::MID => x86::mid(dst, src, len),
                Kernel::Stream if len >= x86::STREAM_MIN => x86::stream(dst, src, len),
                _ => x86::avx2(dst, src, len),
            }
        },
        // SAFETY: see above.
        _ => unsafe { portable::copy(dst, src, len) },
    }
}

/// From which length on [`copy`] goes past the caches: half of the last-level cache.
pub fn stream_threshold() -> usize {
    detected();
    STREAM_AT.load(Ordering::Relaxed)
}

/// Finds out now what this CPU can do, without asking the kernel for the size of its cache: it opens no file.
pub fn detect() {
    if DETECTED.load(Ordering::Acquire) == UNKNOWN {
        DETECTED.store(kind(), Ordering::Release);
    }
}

/// Whether [`copy`] uses AVX2 here.
pub fn has_avx2() -> bool {
    detected() == AVX2
}

const UNKNOWN: u8 = 0;
const PORTABLE: u8 = 1;
const AVX2: u8 = 2;

static DETECTED: AtomicU8 = AtomicU8::new(UNKNOWN);
static STREAM_AT: AtomicUsize = AtomicUsize::new(DEFAULT_LLC / 2);
const DEFAULT_LLC: usize = 32 << 20;

#[inline]
fn detected() -> u8 {
    match DETECTED.load(Ordering::Acquire) {
        UNKNOWN => detect_all(),
        known => known,
    }
}

fn kind() -> u8 {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    let kind = if std::arch::is_x86_feature_detected!("avx2") { AVX2 } else { PORTABLE };
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let kind = PORTABLE;
    kind
}

#[cold]
fn detect_all() -> u8 {
    let kind = kind();
    if let Some(size) = last_level_cache() {
        // A machine that reports a tiny cache (or none, as some guests do) must not stream small copies.
        STREAM_AT.store((size / 2).max(1 << 20), Ordering::Relaxed);
    }
    DETECTED.store(kind, Ordering::Release);
    kind
}

/// More than the inlined kernel takes.
#[inline(never)]
unsafe fn large(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    if len <= x86::MID {
        // SAFETY: the caller's promise; `copy` has taken the small ones.
        return unsafe { x86::mid(dst, src, len) };
    } else if detected() == AVX2 {
        // SAFETY: the caller's promise, AVX2 was detected, and the length is above the least of both kernels.
        return unsafe {
            if len >= STREAM_AT.load(Ordering::Relaxed) {
                x86::stream(dst, src, len)
            } else {
                x86::avx2(dst, src, len)
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { portable::copy(dst, src, len) }
}

/// The largest cache the kernel reports for the first CPU.
fn last_level_cache() -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        parse_size(std::fs::read_to_string(path).ok()?.trim())
    };
    (0..8).filter_map(size).max()
}

fn parse_size(text: &str) -> Option<usize> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text, ""),
    };
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    digits.parse::<usize>().ok().filter(|&n| n > 0 && n < 1 << 30).map(|n| n << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("8M"), Some(8 << 20));
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("x"), None);
        assert!(stream_threshold() >= 1 << 20);
    }
}
