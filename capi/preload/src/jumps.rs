//! longjmp and its kin are libc's. Before one, what the calls that it leaves hold is given back.

use libc::{c_int, c_void};
use viaduct_intercept::leave;
use viaduct_os::bare::syscall;

use crate::spawn::{JUMPS, original};

/// Where the stack will stand after a jump. libc keeps the word with its bits turned, and mixed with a number that each
/// thread finds beside its own memory.
///
/// # Safety
/// The buffer was filled by setjmp.
#[cfg(target_arch = "x86_64")]
unsafe fn target(buffer: *const c_void) -> usize {
    const STACK: usize = 6;
    let mixed: usize;
    // SAFETY: reads a word of the thread's own block, as libc does.
    unsafe {
        core::arch::asm!("mov {}, fs:[0x30]", out(reg) mixed, options(nostack, readonly, preserves_flags));
    }
    // SAFETY: the caller's promise.
    (unsafe { buffer.cast::<usize>().add(STACK).read() }).rotate_right(17) ^ mixed
}

/// Where libc keeps what it mixes is its own secret here: a jump counts as one that leaves all frames.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn target(_buffer: *const c_void) -> usize {
    usize::MAX
}

/// The functions of libc that jump, by their place among the names that ours end in.
macro_rules! jumps {
    ($($place:expr, $name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(buffer: *mut c_void, value: c_int) -> ! {
            type Jump = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> !;
            // SAFETY: the caller's promise.
            leave::leave(unsafe { target(buffer) });
            // SAFETY: the type is that of the function.
            if let Some(jump) = unsafe { original::<Jump>(JUMPS + $place) } {
                // SAFETY: the caller's promise; no frame here has a destructor.
                unsafe { jump(buffer, value) }
            }
            loop {
                // SAFETY: no pointers. A libc without the name was never called for it.
                let _ = unsafe { syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
            }
        }
    )*};
}

jumps! {
    0, longjmp;
    1, _longjmp;
    2, siglongjmp;
    3, __longjmp_chk;
}
