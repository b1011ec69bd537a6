//! Thread cancellation in calls that block: a system call made by its instruction is no cancellation point, so the
//! thread is made cancellable at once for the time of the call, as libc itself does it.
//!
//! No lock may be held and no destructor may be pending in the frames below: the thread may end inside.

const ASYNCHRONOUS: i32 = 1;

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}

unsafe extern "C" {
    static __libc_single_threaded: core::ffi::c_char;
}

/// Whether this process has one thread. It may stay false after the second has ended.
#[inline(always)]
pub fn single_threaded() -> bool {
    // SAFETY: a byte of libc's that is there for being read; it changes only when this thread makes another.
    (unsafe { (&raw const __libc_single_threaded).read_volatile() }) != 0
}

/// Runs one blocking call during which this thread can be cancelled.
#[inline(always)]
pub fn point<R>(call: impl FnOnce() -> R) -> R {
    if single_threaded() {
        return call();
    }
    let mut before = 0;
    // SAFETY: the local is valid for writes; a cancelled thread unwinds through frames without destructors.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut before) };
    let result = call();
    // SAFETY: as above.
    unsafe { pthread_setcanceltype(before, &raw mut before) };
    result
}
