//! Whether this machine has userfaultfd as Viaduct needs it, asked of the kernel without Viaduct: a test that finds it here may
//! fail where Viaduct does not use it, instead of being skipped.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The first Linux that maps a page write-protected (UFFDIO_CONTINUE_MODE_WP).
const SINCE: (u32, u32) = (6, 4);
const USER_MODE_ONLY: libc::c_int = 1;
const IOCTL_API: u64 = 0xC018_AA3F;
/// Faults as SIGBUS, minor faults of shared memory, write protection of shared memory.
const FEATURES: u64 = 1 << 7 | 1 << 10 | 1 << 12;

/// Why userfaultfd cannot be used here: an old kernel, one that was built without it, or a container that refuses it. None: a
/// process of any user can use it.
pub fn lacks() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    if version(release).is_none_or(|version| version < SINCE) {
        return Some(format!("Linux {release} maps no page write-protected by userfaultfd"));
    }
    // SAFETY: the call takes flags and makes a descriptor.
    let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    if raw < 0 {
        return Some(format!("userfaultfd is refused here: {}", io::Error::last_os_error()));
    }
    // SAFETY: a descriptor that was just made and belongs to nothing else.
    let fd = unsafe { OwnedFd::from_raw_fd(raw as libc::c_int) };
    // Without wishes the kernel answers with all it has: its version of the interface, features, calls.
    let mut api: [u64; 3] = [0xAA, 0, 0];
    // SAFETY: the structure that belongs to the number, on this stack.
    if unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_API as libc::Ioctl, api.as_mut_ptr()) } < 0 {
        return Some(format!("userfaultfd has another interface here: {}", io::Error::last_os_error()));
    }
    (api[1] & FEATURES != FEATURES).then(|| format!("userfaultfd has only the features {:#x} here", api[1]))
}

/// The first two numbers of a kernel's name.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart_by_their_first_two_numbers() {
        let names =
            [("6.18.5-cloud", (6, 18)), ("6.4", (6, 4)), ("5.15.0-91-generic", (5, 15)), ("6.12+", (6, 12))];
        for (name, wanted) in names {
            assert_eq!(version(name), Some(wanted), "{name}");
        }
        assert_eq!((version(""), version("linux")), (None, None));
        assert!((6, 18) > SINCE && (6, 3) < SINCE && (5, 19) < SINCE);
    }
}
