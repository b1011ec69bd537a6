//! The instruction that enters the kernel.

/// What the kernel said instead of doing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Makes a system call. A result between -4095 and -1 is an error number.
///
/// # Safety
/// Whatever the call asks of its arguments: pointers among them must be valid for what the kernel does with them.
#[inline(always)]
pub unsafe fn syscall(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let value = unsafe { enter(number, args) };
    if (-4095..0).contains(&value) { Err(Errno(-value as i32)) } else { Ok(value as usize) }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn enter(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let value: isize;
    // SAFETY: the caller's promise; the kernel changes rax, rcx and r11 and no other register, and leaves the stack alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => value,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    value
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn enter(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let value: isize;
    // SAFETY: the caller's promise; the kernel changes x0 and no other register, and leaves the stack alone.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => value,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    value
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the instruction that enters the kernel is known for x86-64 and aarch64 only");
