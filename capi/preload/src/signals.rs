//! What the program does with signals is libc's; the library notes that it has changed.

use libc::c_int;
use viaduct_intercept::wait::signals;

use crate::spawn::{SIGNALS, original};

/// The functions of libc with which a program sets handlers, by their place among the names that ours end in. Words are passed
/// on as they came.
macro_rules! sets_a_handler {
    ($($place:expr, $name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(signal: c_int, one: usize, other: usize) -> usize {
            type Set = unsafe extern "C-unwind" fn(c_int, usize, usize) -> usize;
            // SAFETY: the caller's promise; the type takes and gives what that of the function does, in registers.
            let done = unsafe { original::<Set>(SIGNALS + $place) };
            // SAFETY: as above.
            let done = done.map_or(usize::MAX, |set| unsafe { set(signal, one, other) });
            signals::changed();
            done
        }
    )*};
}

sets_a_handler! {
    0, sigaction;
    1, __sigaction;
    2, signal;
    3, ssignal;
    4, bsd_signal;
    5, sysv_signal;
    6, __sysv_signal;
    7, sigset;
    8, siginterrupt;
}
