//! The copy kernels for x86-64.
//!
//! In assembly because the memory may change while it is copied: to the compiler each block is opaque. Every kernel
//! loads and stores in ascending order, with the last block overlapping the one before instead of a loop for the rest.

use std::arch::asm;

/// The longest copy that [`small`] takes.
pub(super) const SMALL: usize = 64;
/// The longest copy that [`mid`] takes.
pub(super) const MID: usize = 128;
/// The shortest copy that [`stream`] takes.
pub(super) const STREAM_MIN: usize = 512;

/// Stores one word.
///
/// # Safety
/// As [`super::copy`], for 8 bytes at `dst`.
#[inline(always)]
pub(super) unsafe fn store(dst: *mut u8, word: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov [{d}], {w}", d = in(reg) dst, w = in(reg) word, options(nostack, preserves_flags)) };
}

/// Whether Intel made this CPU.
pub(super) fn is_intel() -> bool {
    #[allow(unused_unsafe, reason = "older compilers call it unsafe")]
    // SAFETY: every CPU that runs this program has the instruction, and it changes nothing.
    let about = unsafe { std::arch::x86_64::__cpuid(0) };
    [about.ebx, about.edx, about.ecx] == [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes)
}

/// Asks for the line at `dst`, to write to it. (The compiler's intrinsic asks for a line to read, unless told that the
/// CPU has this instruction, and then leaves it with the others as well.)
#[inline(always)]
pub(super) fn own(dst: *const u8) {
    // SAFETY: a prefetch has no effect but on the cache, whatever the address; CPUs that do not know it do nothing.
    unsafe { asm!("prefetchw [{d}]", d = in(reg) dst, options(nostack, preserves_flags, readonly)) };
}

/// Loads one word.
///
/// # Safety
/// As [`super::copy`], for 8 bytes at `src`.
#[inline(always)]
pub(super) unsafe fn load(src: *const u8) -> u64 {
    let word;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("mov {w}, [{s}]", s = in(reg) src, w = lateout(reg) word, options(nostack, preserves_flags, readonly))
    };
    word
}

/// Copies up to [`SMALL`] bytes: two or four loads, then as many stores, overlapping in the middle.
///
/// # Safety
/// As [`super::copy`], and `len <= SMALL`.
#[inline]
pub(super) unsafe fn small(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len <= SMALL);
    // SAFETY: in each arm the blocks lie inside `len` bytes: the first ones start at 0, the last ones end at `len`, and
    // the arm's condition says that a block is not longer than `len`.
    unsafe {
        if len > 32 {
            asm!(
                "movups {a}, [{s}]",
                "movups {b}, [{s} + 16]",
                "movups {c}, [{s} + {n} - 32]",
                "movups {e}, [{s} + {n} - 16]",
                "movups [{d}], {a}",
                "movups [{d} + 16], {b}",
                "movups [{d} + {n} - 32], {c}",
                "movups [{d} + {n} - 16], {e}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        } else if len >= 16 {
            asm!(
                "movups {a}, [{s}]",
                "movups {b}, [{s} + {n} - 16]",
                "movups [{d}], {a}",
                "movups [{d} + {n} - 16], {b}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        } else if len >= 8 {
            asm!(
                "mov {a}, [{s}]",
                "mov {b}, [{s} + {n} - 8]",
                "mov [{d}], {a}",
                "mov [{d} + {n} - 8], {b}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        } else if len >= 4 {
            asm!(
                "mov {a:e}, [{s}]",
                "mov {b:e}, [{s} + {n} - 4]",
                "mov [{d}], {a:e}",
                "mov [{d} + {n} - 4], {b:e}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        } else if len >= 2 {
            asm!(
                "movzx {a:e}, word ptr [{s}]",
                "movzx {b:e}, word ptr [{s} + {n} - 2]",
                "mov [{d}], {a:x}",
                "mov [{d} + {n} - 2], {b:x}",
                s = in(reg) src, d = in(reg) dst, n = in(reg) len,
                a = out(reg) _, b = out(reg) _,
                options(nostack, preserves_flags)
            );
        } else if len == 1 {
            asm!(
                "movzx {a:e}, byte ptr [{s}]",
                "mov [{d}], {a:l}",
                s = in(reg) src, d = in(reg) dst, a = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies more than [`SMALL`] bytes, up to [`MID`]: any CPU of this kind can, and the wide registers do not pay yet.
///
/// # Safety
/// As [`super::copy`], and `SMALL < len <= MID`.
#[inline]
pub(super) unsafe fn mid(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len > SMALL && len <= MID);
    // SAFETY: 64 bytes from 0 on and 64 that end at `len` lie inside `len` bytes.
    unsafe {
        asm!(
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + 32]",
            "movups xmm3, [rsi + 48]",
            "movups xmm4, [rsi + rdx - 64]",
            "movups xmm5, [rsi + rdx - 48]",
            "movups xmm6, [rsi + rdx - 32]",
            "movups xmm7, [rsi + rdx - 16]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + 32], xmm2",
            "movups [rdi + 48], xmm3",
            "movups [rdi + rdx - 64], xmm4",
            "movups [rdi + rdx - 48], xmm5",
            "movups [rdi + rdx - 32], xmm6",
            "movups [rdi + rdx - 16], xmm7",
            in("rsi") src, in("rdi") dst, in("rdx") len,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies more than [`MID`] bytes through the caches.
///
/// # Safety
/// As [`super::copy`], `len > MID`, and the CPU has AVX2.
#[inline]
pub(super) unsafe fn avx2(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len > MID);
    // SAFETY: every block lies inside `len` bytes. Up to 256: four blocks of 32 from 0 on and four that end at `len`.
    // Beyond: one of 32 at 0; then, from the first border of the destination (1 to 32 further) on, blocks of 128 while
    // more than that is left (at least 225 are at first); then 128 bytes that end at `len`. All vector registers are
    // declared lost: the last instruction clears their upper halves.
    unsafe {
        asm!(
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "cmp rdx, 256",
            "ja 3f",
            // 129 to 256
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "vmovdqu ymm4, [rsi + rdx - 128]",
            "vmovdqu ymm5, [rsi + rdx - 96]",
            "vmovdqu ymm6, [rsi + rdx - 64]",
            "vmovdqu ymm7, [rsi + rdx - 32]",
            "vmovdqu [rdi], ymm0",
            "vmovdqu [rdi + 32], ymm1",
            "vmovdqu [rdi + 64], ymm2",
            "vmovdqu [rdi + 96], ymm3",
            "jmp 6f",
            // beyond: one block, then on to the next border of the destination
            "3:",
            "mov rax, rdi",
            "and rax, 31",
            "sub rax, 32",
            "vmovdqu [rdi], ymm0",
            "sub rsi, rax",
            "sub rdi, rax",
            "add rdx, rax",
            ".p2align 5",
            "4:",
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "sub rsi, -128",
            "vmovdqa [rdi], ymm0",
            "vmovdqa [rdi + 32], ymm1",
            "vmovdqa [rdi + 64], ymm2",
            "vmovdqa [rdi + 96], ymm3",
            "sub rdi, -128",
            "add rdx, -128",
            "cmp rdx, 128",
            "ja 4b",
            // 1 to 128 left
            "vmovdqu ymm4, [rsi + rdx - 128]",
            "vmovdqu ymm5, [rsi + rdx - 96]",
            "vmovdqu ymm6, [rsi + rdx - 64]",
            "vmovdqu ymm7, [rsi + rdx - 32]",
            // the last 128 bytes
            "6:",
            "vmovdqu [rdi + rdx - 128], ymm4",
            "vmovdqu [rdi + rdx - 96], ymm5",
            "vmovdqu [rdi + rdx - 64], ymm6",
            "vmovdqu [rdi + rdx - 32], ymm7",
            "vzeroupper",
            inout("rsi") src => _, inout("rdi") dst => _, inout("rdx") len => _, out("rax") _,
            clobber_abi("sysv64"),
            options(nostack)
        );
    }
}

/// Copies at least [`STREAM_MIN`] bytes with stores that go past the caches.
///
/// # Safety
/// As [`super::copy`], `len >= STREAM_MIN`, and the CPU has AVX2.
#[inline(never)]
pub(super) unsafe fn stream(dst: *mut u8, src: *const u8, len: usize) {
    debug_assert!(len >= STREAM_MIN);
    // Whole lines only: a partly written one costs a read of the rest.
    let head = 64 - (dst.addr() & 63);
    let body = (len - head) & !127;
    let rest = len - head - body;
    // SAFETY: head + body + rest = len, and the head is at most 64 bytes. After the head the destination is a multiple
    // of 64, as the aligned stores need, and the body a multiple of the loop's 128 and not 0, as len >= 512. The
    // prefetch may reach past the end of the source: it never faults.
    unsafe {
        small(dst, src, head);
        asm!(
            ".p2align 5",
            "2:",
            "prefetchnta [rsi + 1024]",
            "prefetchnta [rsi + 1088]",
            "vmovdqu ymm0, [rsi]",
            "vmovdqu ymm1, [rsi + 32]",
            "vmovdqu ymm2, [rsi + 64]",
            "vmovdqu ymm3, [rsi + 96]",
            "vmovntdq [rdi], ymm0",
            "vmovntdq [rdi + 32], ymm1",
            "vmovntdq [rdi + 64], ymm2",
            "vmovntdq [rdi + 96], ymm3",
            "sub rsi, -128",
            "sub rdi, -128",
            "add rdx, -128",
            "jnz 2b",
            // Such stores are not ordered with any other; from here on they are done.
            "sfence",
            "vzeroupper",
            inout("rsi") src.add(head) => _, inout("rdi") dst.add(head) => _, inout("rdx") body => _,
            clobber_abi("sysv64"),
            options(nostack)
        );
        let (to, from) = (dst.add(head + body), src.add(head + body));
        if rest > SMALL { mid(to, from, rest) } else { small(to, from, rest) } // fewer than 128
    }
}
