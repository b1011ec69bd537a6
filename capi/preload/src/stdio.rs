//! Streams of libc over sockets: their reads, writes and closes do not go through exported names but through a table of
//! functions that libc exports. Three entries of it are replaced, so that a stream on an upgraded connection works.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{FILE, c_int, ssize_t};
use viaduct_intercept::{descriptors, route};
use viaduct_os::bare::syscall;

use crate::data::{receive_into, send_from};

/// The places of read, write and close in the table.
const PLACES: [usize; 3] = [14, 15, 17];
const ERROR_SEEN: c_int = 0x20;
const PAGE: usize = 4096;

static ORIGINALS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

type Transfer = unsafe extern "C-unwind" fn(*mut FILE, *mut c_void, ssize_t) -> ssize_t;
type Close = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;

unsafe extern "C-unwind" fn read(stream: *mut FILE, at: *mut c_void, len: ssize_t) -> ssize_t {
    // SAFETY: libc calls this with a stream of its own and a buffer of that length.
    unsafe {
        let fd = libc::fileno(stream);
        match route(fd) {
            Some(index) => receive_into(fd, index, at, len as usize, 0),
            None => original::<Transfer>(0)(stream, at, len),
        }
    }
}

unsafe extern "C-unwind" fn write(stream: *mut FILE, at: *mut c_void, len: ssize_t) -> ssize_t {
    // SAFETY: libc calls this with a stream of its own and a buffer of that length.
    unsafe {
        let fd = libc::fileno(stream);
        let Some(index) = route(fd) else { return original::<Transfer>(1)(stream, at, len) };
        let mut sent = 0;
        while sent < len {
            let count = send_from(fd, index, at.byte_add(sent as usize), (len - sent) as usize, 0);
            if count < 0 {
                // The first word of a stream has its flags.
                *stream.cast::<c_int>() |= ERROR_SEEN;
                break;
            }
            sent += count;
        }
        sent
    }
}

unsafe extern "C-unwind" fn close(stream: *mut FILE) -> c_int {
    // SAFETY: libc calls this with a stream of its own.
    unsafe {
        descriptors::closing(libc::fileno(stream));
        original::<Close>(2)(stream)
    }
}

/// # Safety
/// `F` is the type of the function at this place, and the table was replaced.
unsafe fn original<F: Copy>(place: usize) -> F {
    let address = ORIGINALS[place].load(Ordering::Acquire);
    // SAFETY: the caller's promise; both are addresses of functions.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Replaces the entries. Called once, while the library is loaded. A libc without these tables is left alone: then
/// streams over sockets see the kernel's alone, so such a process claims nothing (`false`).
pub(crate) fn replace() -> bool {
    let ours = [read as *const () as usize, write as *const () as usize, close as *const () as usize];
    let mut good = true;
    for name in [c"_IO_file_jumps", c"_IO_wfile_jumps"] {
        // SAFETY: looks up a name of libc's.
        let table = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<usize>();
        if table.is_null() {
            good = false;
            continue;
        }
        let start = table as usize & !(PAGE - 1);
        let len = (table.wrapping_add(21) as usize).next_multiple_of(PAGE) - start;
        let protect = |access: c_int| {
            // SAFETY: pages of libc's data; they get the access back that they had.
            unsafe { syscall(libc::SYS_mprotect, [start, len, access as usize, 0, 0, 0]) }
        };
        if protect(libc::PROT_READ | libc::PROT_WRITE).is_err() {
            good = false;
            continue;
        }
        for (slot, (place, ours)) in PLACES.into_iter().zip(ours).enumerate() {
            // SAFETY: the table has 21 entries, which are addresses of functions; it may be written now.
            unsafe {
                let entry = table.add(place);
                // Both tables have the same functions at these places.
                ORIGINALS[slot].store(entry.read(), Ordering::Release);
                entry.write(ours);
            }
        }
        good &= protect(libc::PROT_READ).is_ok();
    }
    good
}
