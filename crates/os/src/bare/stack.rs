//! Where a thread's stack stands, and which of its frames a jump leaves behind.

use core::cell::Cell;
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

thread_local! {
    static ENTERED: Cell<usize> = const { Cell::new(0) };
}

/// A frame of this thread that takes a lock: noted before it has it and until it has given it back, since a handler may come
/// in between.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    /// What the handlers of signals have interrupted that this frame runs in; 0 for none.
    pub outer: usize,
}

impl Entered {
    /// Notes the frame at `here`.
    #[inline(always)]
    pub fn note(here: usize) -> Entered {
        Entered { outer: ENTERED.replace(here) }
    }

    /// The lock is given back.
    #[inline(always)]
    pub fn leave(self) {
        ENTERED.set(self.outer);
    }
}

/// The frame that holds a lock of this thread: the one that is noted with it, or, where none is (0) yet or any more, the
/// one that was about to do that.
pub fn holder(noted: usize) -> usize {
    if noted == 0 { ENTERED.get() } else { noted }
}

/// Whether the frame at an address is gone when this thread goes on with its stack at `target`. Handlers of signals run below what
/// they interrupt, or on the alternate stack; a thread that goes on above a frame, or has left the alternate stack, never returns
/// to it.
pub fn is_left(frame: usize, target: usize) -> bool {
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
        assert!(!is_left(here(), here()));
    }

    #[test]
    fn a_frame_is_known_before_it_is_noted_with_its_lock() {
        let first = Entered::note(5000);
        let inner = Entered::note(4000);
        assert_eq!((first.outer, inner.outer, holder(0), holder(7)), (0, 5000, 4000, 7));
        inner.leave();
        assert_eq!(holder(0), 5000);
        first.leave();
        assert_eq!(holder(0), 0);
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
