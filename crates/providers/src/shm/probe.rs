//! The probe of a new pair: may this process copy from the peer's private memory by the kernel's process_vm calls?

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use viaduct_os::{process, signals};

/// How long a probe of the peer's memory may take. It takes microseconds, unless the peer is hostile.
const PROBE: Duration = Duration::from_secs(1);
/// Probes under way. With so many of them hanging no more are begun.
static PROBING: AtomicUsize = AtomicUsize::new(0);
const MOST: usize = 8;

/// Whether the kernel lets us read the number the peer says stands in its memory. On a thread of its own: at an address
/// that the peer has prepared (userfaultfd, a file of FUSE) the read hangs until the peer dies.
pub(super) fn vm_works(pid: i32, uid: [u8; 16], address: u64) -> bool {
    let (say, hear) = mpsc::sync_channel(1);
    let probe = move || {
        let mut found = [0u8; 16];
        // SAFETY: the local side is an array of 16 bytes; the kernel checks the remote side.
        let n = unsafe { process::vm_read(pid, found.as_mut_ptr(), address, 16) };
        PROBING.fetch_sub(1, Ordering::Relaxed);
        let _ = say.send(matches!(n, Ok(16)) && found == uid);
    };
    if PROBING.fetch_add(1, Ordering::Relaxed) >= MOST {
        PROBING.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    let thread = std::thread::Builder::new().name("viaduct-probe".into()).stack_size(64 << 10);
    match signals::while_blocked(|| thread.spawn(probe)) {
        Ok(_) => hear.recv_timeout(PROBE).unwrap_or(false),
        Err(_) => {
            PROBING.fetch_sub(1, Ordering::Relaxed);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use viaduct_kit::watchdog::Watchdog;

    use super::*;

    /// `_IOWR(0xaa, 0x3f, struct uffdio_api)` and `_IOWR(0xaa, 0, struct uffdio_register)`.
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    const API: u64 = 0xaa;
    const REGISTER_MISSING: u64 = 1;

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn the_number_is_found_where_it_stands_and_not_elsewhere() {
        let (uid, other) = ([7u8; 16], [8u8; 16]);
        let pid = std::process::id() as i32;
        if !vm_works(pid, uid, (&raw const uid) as u64) {
            viaduct_kit::skip!("process_vm_readv is forbidden here");
        }
        assert!(!vm_works(pid, uid, (&raw const other) as u64));
        assert!(!vm_works(pid, uid, 8));
    }

    /// A peer can let a reader of its memory wait as long as it likes.
    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn memory_that_never_answers_ends_the_probe_and_not_the_prober() {
        let _watchdog = Watchdog::arm(Duration::from_secs(60), "a probe that never has an answer");
        // SAFETY: a new mapping where the kernel wants it.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(page, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let Some(guard) = never_answering(page as u64) else {
            viaduct_kit::skip!("faults of the kernel cannot be kept waiting by this user");
        };
        assert!(!vm_works(std::process::id() as i32, [0; 16], page as u64), "a page of zeros was read");
        assert!(PROBING.load(Ordering::Relaxed) > 0, "the probe did not hang");
        // Its thread goes on when the memory's guard ends, as it does when a peer dies.
        drop(guard);
        while PROBING.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        // SAFETY: the mapping of above, which nothing uses any more.
        unsafe { libc::munmap(page, 4096) };
    }

    /// Lets every first touch of a page wait, also one by the kernel, until the descriptor is closed.
    fn never_answering(page: u64) -> Option<OwnedFd> {
        // SAFETY: the call takes flags and makes a descriptor.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        if raw < 0 {
            return None;
        }
        // SAFETY: a descriptor that was just made and belongs to nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw as libc::c_int) };
        let (mut api, mut range) = ([API, 0, 0], [page, 4096, REGISTER_MISSING, 0]);
        // SAFETY: both arguments have the layout and length that the numbers of the calls say.
        unsafe {
            assert_eq!(libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api), 0);
            assert_eq!(libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut range), 0);
        }
        Some(fd)
    }
}
