//! Where a thread's stack stands, and which of its frames a jump leaves behind.

use core::ptr::null_mut;

use super::gate::syscall;

/// The stack pointer: the same everywhere in one frame, and lower in all that it calls.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn here() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// The stack pointer: the same everywhere in one frame, and lower in all that it calls.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn here() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, sp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// Whether the frame at an address is gone when this thread goes on with its stack at `target`. Handlers of signals run below what
/// they interrupt, or on the alternate stack; a thread that goes on above a frame, or has left the alternate stack, never returns
/// to it. A frame that was not noted yet (0) is not known to be gone: what holds something may go on after the handler, and must
/// not lose it, which is worse than a lock that a jump in just that moment leaves behind.
pub fn is_left(frame: usize, target: usize) -> bool {
    if frame == 0 {
        return false;
    }
    let mut stack = libc::stack_t { ss_sp: null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: changes nothing, and writes to the local.
    let asked = unsafe { syscall(libc::SYS_sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]) };
    let size = if asked.is_ok() && stack.ss_flags & libc::SS_DISABLE == 0 { stack.ss_size } else { 0 };
    left_beside(stack.ss_sp as usize, size, frame, target)
}

fn left_beside(alternate: usize, size: usize, frame: usize, target: usize) -> bool {
    let on_it = |at: usize| at.wrapping_sub(alternate) < size;
    match (on_it(frame), on_it(target)) {
        (true, false) => true,
        (false, true) => false,
        _ => target > frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn below(above: usize) -> (bool, bool) {
        (is_left(above, here()), is_left(here(), above))
    }

    #[test]
    fn a_frame_is_left_upward() {
        assert_eq!(below(here()), (false, true));
        assert!(!is_left(here(), here()) && !is_left(0, here()), "a frame that was not noted");
    }

    #[test]
    fn a_handler_on_the_alternate_stack_leaves_no_other_frame() {
        for alternate in [1000, 9000] {
            let on_it = alternate + 50;
            assert!(!left_beside(alternate, 100, 5000, on_it), "a handler begins");
            assert!(left_beside(alternate, 100, on_it, 5000), "a handler is over");
            assert!(
                left_beside(alternate, 100, on_it, on_it + 8)
                    && !left_beside(alternate, 100, on_it, on_it - 8)
            );
        }
    }
}
