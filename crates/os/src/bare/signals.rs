//! What this process does with signals, and a descriptor that is readable while some of them wait to be delivered. A set of
//! signals is a word with bit 0 for signal 1, as the kernel has it.

use super::gate::{Errno, syscall};

/// Those of libc itself.
const OF_LIBC: [usize; 2] = [32, 33];

/// Signals with a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handlers {
    /// With `SA_RESTART`: calls that it interrupts go on.
    pub restarting: u64,
    /// Without: they end with `EINTR`.
    pub interrupting: u64,
}

/// Asks the kernel for the handlers of all signals but those of libc itself.
pub fn handlers() -> Handlers {
    // The kernel's structure: handler, flags, restorer, mask.
    let mut action = [0usize; 4];
    let mut all = Handlers::default();
    for signal in (1..=64).filter(|signal| !OF_LIBC.contains(signal)) {
        let at = &raw mut action as usize;
        // SAFETY: the local is valid for writes of the kernel's structure.
        let known = unsafe { syscall(libc::SYS_rt_sigaction, [signal, 0, at, 8, 0, 0]) }.is_ok();
        if known && action[0] > 1 {
            let restarts = action[1] & libc::SA_RESTART as usize != 0;
            let set = if restarts { &mut all.restarting } else { &mut all.interrupting };
            *set |= 1 << (signal - 1);
        }
    }
    all
}

/// The signals that this thread has blocked.
pub fn blocked() -> u64 {
    let mut mask = 0u64;
    let args = [libc::SIG_BLOCK as usize, 0, &raw mut mask as usize, 8, 0, 0];
    // SAFETY: the local is valid for writes.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
    mask
}

/// A descriptor that is readable while one of these signals waits to be delivered to the thread that asks.
///
/// # Errors
/// The kernel's.
pub fn descriptor(signals: u64) -> Result<i32, Errno> {
    let flags = (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) as usize;
    let args = [usize::MAX, &raw const signals as usize, 8, flags, 0, 0];
    // SAFETY: the local is valid for reads.
    unsafe { syscall(libc::SYS_signalfd4, args) }.map(|fd| fd as i32)
}

#[cfg(test)]
mod tests {
    use super::super::calls;
    use super::*;

    extern "C" fn nothing(_: i32) {}

    #[test]
    fn handlers_are_told_apart_and_a_signal_that_waits_is_seen() {
        for (signal, flags) in [(libc::SIGUSR1, libc::SA_RESTART), (libc::SIGUSR2, 0)] {
            // SAFETY: a structure of numbers, for which zeros are good.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = flags;
            // SAFETY: the structure is valid for reads.
            assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
        }
        let [one, two] = [libc::SIGUSR1, libc::SIGUSR2].map(|signal| 1u64 << (signal - 1));
        let found = handlers();
        assert!(found.restarting & one != 0 && found.interrupting & two != 0);
        assert!(found.restarting & two == 0 && found.interrupting & one == 0);
        let fd = descriptor(one).unwrap();
        let mask = blocked() | one;
        let mut entry = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        assert_eq!(calls::poll(&mut entry, Some(0), Some(mask)), Ok(0));
        // SAFETY: no pointers; the handler does nothing.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::raise(libc::SIGUSR1);
        }
        assert!(blocked() & one != 0);
        assert_eq!(calls::poll(&mut entry, Some(0), Some(mask)), Ok(1));
        calls::close(fd).unwrap();
    }
}
