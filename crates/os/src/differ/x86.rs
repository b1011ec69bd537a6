//! The comparison for x86-64: AVX2 where there is some, else SSE2, which every such CPU has.
//!
//! In assembly because the memory may change while it is compared: the compiler can neither repeat a load nor split it.

use std::arch::asm;

use super::{BLOCK, Differs};

/// As [`super::next`].
///
/// # Safety
/// As [`super::next`], and there is a block at `from`.
pub(super) unsafe fn next(now: *const u8, old: *const u8, len: usize, from: usize) -> Option<Differs> {
    // The answer is remembered: a load and a branch.
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promise, and the CPU has AVX2.
        unsafe { avx2(now, old, len, from) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { sse2(now, old, len, from) }
    }
}

/// # Safety
/// As [`next`], on a CPU with AVX2.
unsafe fn avx2(now: *const u8, old: *const u8, len: usize, from: usize) -> Option<Differs> {
    let (mut at, mut equal, mut bytes) = (from, u32::MAX, [0; BLOCK]);
    // SAFETY: blocks of both from `from` to `len`, of which there is one at least; `bytes` has a block.
    unsafe {
        asm!(
            "2:",
            "vmovdqu ymm0, [{now} + {at}]",
            "vpcmpeqb ymm1, ymm0, [{old} + {at}]",
            "vpmovmskb {equal:e}, ymm1",
            "cmp {equal:e}, -1",
            "jne 3f",
            "add {at}, 32",
            "cmp {at}, {len}",
            "jb 2b",
            "3:",
            "vmovdqu [{bytes}], ymm0",
            "vzeroupper",
            now = in(reg) now, old = in(reg) old, len = in(reg) len, bytes = in(reg) bytes.as_mut_ptr(),
            at = inout(reg) at, equal = inout(reg) equal,
            out("xmm0") _, out("xmm1") _,
            options(nostack)
        );
    }
    (at < len).then_some(Differs { at, mask: !equal, bytes })
}

/// # Safety
/// As [`next`].
unsafe fn sse2(now: *const u8, old: *const u8, len: usize, from: usize) -> Option<Differs> {
    for at in (from..len).step_by(BLOCK) {
        let (mut bytes, mut equal) = ([0_u8; BLOCK], 0);
        for half in [0, BLOCK / 2] {
            let mask: u32;
            // SAFETY: half a block of both, by the caller's promise, and of `bytes`.
            unsafe {
                asm!(
                    "movdqu {now}, [{n}]",
                    "movdqu {old}, [{o}]",
                    "movdqu [{b}], {now}",
                    "pcmpeqb {old}, {now}",
                    "pmovmskb {mask:e}, {old}",
                    n = in(reg) now.add(at + half), o = in(reg) old.add(at + half),
                    b = in(reg) bytes.as_mut_ptr().add(half), mask = out(reg) mask,
                    now = out(xmm_reg) _, old = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
            }
            equal |= mask << half;
        }
        if equal != u32::MAX {
            return Some(Differs { at, mask: !equal, bytes });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kernels_say_the_same() {
        let old: Vec<u8> = (0..8 * BLOCK).map(|at| (at * 7) as u8).collect();
        for changed in 0..old.len() {
            let mut now = old.clone();
            now[changed] ^= 0x80;
            now[(changed * 5 + 3) % old.len()] ^= 1;
            for from in (0..old.len()).step_by(BLOCK) {
                // SAFETY: both are as long, with a block at `from`.
                let [plain, chosen] =
                    [sse2, next].map(|kernel| unsafe { kernel(now.as_ptr(), old.as_ptr(), old.len(), from) });
                assert_eq!(plain, chosen, "byte {changed} from {from}");
            }
        }
    }
}
