//! The program's signal handlers, kept while a library is loaded.
//!
//! One part of libfabric takes over the signals of crashes when it is loaded, and then writes a file into the current
//! folder whenever the program aborts. What becomes of its signals is the program's business, so they get back what they
//! had.

use std::mem::MaybeUninit;
use std::ptr;

use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGTERM, c_int};

/// The signals that libraries are known to take over.
const TAKEN: [c_int; 7] = [SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE, SIGINT, SIGTERM];

/// What the signals had; they get it back when this goes.
pub(super) struct Handlers([(c_int, libc::sigaction); TAKEN.len()]);

impl Handlers {
    /// As they are now.
    pub(super) fn kept() -> Handlers {
        Handlers(TAKEN.map(|signal| (signal, handler(signal))))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            if handler(*signal).sa_sigaction != before.sa_sigaction {
                // SAFETY: the handler was in place before, with these flags.
                unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
            }
        }
    }
}

fn handler(signal: c_int) -> libc::sigaction {
    let mut now = MaybeUninit::zeroed();
    // SAFETY: only asks, and writes to what it is given; all zeroes are a valid one too.
    unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr());
        now.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn intruder(_signal: c_int) {}

    #[test]
    #[cfg_attr(miri, ignore = "signals")]
    fn handlers_that_were_taken_over_are_given_back() {
        let before = handler(SIGFPE).sa_sigaction;
        let kept = Handlers::kept();
        // SAFETY: a handler that does nothing.
        unsafe { libc::signal(SIGFPE, intruder as *const () as libc::sighandler_t) };
        assert_ne!(handler(SIGFPE).sa_sigaction, before);
        drop(kept);
        assert_eq!(handler(SIGFPE).sa_sigaction, before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "uses a library")]
    fn libfabric_leaves_the_signals_alone() {
        let before = TAKEN.map(|signal| handler(signal).sa_sigaction);
        let Ok(fi) = super::super::sys::Fi::load(&crate::config::OfiConfig::default().library) else {
            viaduct_kit::packages::skip("libfabric is not installed");
            return;
        };
        let _ = super::super::info::Info::find(fi, Some("tcp"), super::super::abi::FI_MSG).unwrap();
        assert_eq!(TAKEN.map(|signal| handler(signal).sa_sigaction), before);
    }
}
