//! Other processes: their memory, and whether they live.
//!
//! Design, section 3 (shm): memory that was registered but is not shareable is reached with `process_vm_readv` and
//! `process_vm_writev` where a probe at connect succeeds; and section 2.6: the death of a peer is the kernel's truth (a
//! pidfd), never a timeout. No signals are sent and nothing is traced.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::OsError;

/// Reads `len` bytes at address `remote` of process `pid` into `local`; says how many it got.
///
/// Fewer than `len` only if the rest is not readable there.
///
/// # Errors
/// The kernel's, if not even the first byte could be read.
///
/// # Safety
/// `local` must be valid for writes of `len` bytes, and no reference to them may exist.
pub unsafe fn vm_read(pid: i32, local: *mut u8, remote: u64, len: usize) -> io::Result<usize> {
    // SAFETY: the caller vouches for `local`; the kernel checks `remote` against the other process.
    transfer(local, remote, len, |ours, theirs| unsafe { libc::process_vm_readv(pid, ours, 1, theirs, 1, 0) })
}

/// Writes `len` bytes at `local` to address `remote` of process `pid`; says how many it wrote.
///
/// Fewer than `len` only if the rest is not writable there.
///
/// # Errors
/// The kernel's, if not even the first byte could be written.
///
/// # Safety
/// `local` must be valid for reads of `len` bytes.
pub unsafe fn vm_write(pid: i32, local: *const u8, remote: u64, len: usize) -> io::Result<usize> {
    // SAFETY: as above; the call only reads our side.
    transfer(local.cast_mut(), remote, len, |ours, theirs| unsafe {
        libc::process_vm_writev(pid, ours, 1, theirs, 1, 0)
    })
}

/// Writes as [`vm_write`] does, the last word (8, 4, 2 or 1 bytes, the widest that ends at a border of its own size) by
/// itself after all others: a thread that spins on it sees everything before it.
///
/// # Errors
/// As [`vm_write`].
///
/// # Safety
/// As [`vm_write`].
pub unsafe fn vm_write_tail(pid: i32, local: *const u8, remote: u64, len: usize) -> io::Result<usize> {
    let end = remote.wrapping_add(len as u64);
    let width = [8, 4, 2, 1].into_iter().find(|&w| w <= len && end.is_multiple_of(w as u64)).unwrap_or(0);
    let body = len - width;
    if body > 0 {
        // SAFETY: by the caller's promise; body is less than len.
        let moved = unsafe { vm_write(pid, local, remote, body)? };
        if moved < body {
            return Ok(moved);
        }
    }
    // A call of its own: the kernel takes and gives back locks between the two, so their stores stay in order. A word
    // that ends at its border lies in one page and is stored at once.
    // SAFETY: by the caller's promise; body + width is len.
    match unsafe { vm_write(pid, local.wrapping_add(body), remote.wrapping_add(body as u64), width) } {
        Ok(moved) => Ok(body + moved),
        Err(e) if body == 0 => Err(e),
        Err(_) => Ok(body),
    }
}

/// A descriptor that tells of the end of a process. The number may by then be another's: the caller knows that it lives.
///
/// # Errors
/// The kernel's: there is no such process.
pub fn pidfd(pid: u32) -> Result<OwnedFd, OsError> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
    pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .map_err(|error| OsError::sys("pidfd_open", error))
}

/// Whether the process behind a pidfd still lives. A stopped one does, a zombie does not.
pub fn pid_alive(pidfd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&now)) {
            Ok(n) => return n == 0,
            Err(Errno::INTR) => {}
            Err(_) => return true, // out of memory, say: nothing was learnt, and a false death is the worse mistake
        }
    }
}

/// When process `pid` started, in clock ticks since boot: with the pid it names one process only.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn exe_start_time(pid: i32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    start_time(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn start_time(stat: &str) -> Option<u64> {
    // The program's name, in brackets, may hold anything, brackets and blanks too; field 3 follows the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Repeats a transfer until all is done: the kernel moves at most 2 GiB at a time and may stop at any page.
fn transfer(
    local: *mut u8,
    remote: u64,
    len: usize,
    call: impl Fn(*const libc::iovec, *const libc::iovec) -> isize,
) -> io::Result<usize> {
    let Ok(remote) = usize::try_from(remote) else { return Err(Errno::FAULT.into()) };
    let mut done = 0;
    while done < len {
        let ours = libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: len - done };
        let there = remote.wrapping_add(done) as *mut libc::c_void;
        let theirs = libc::iovec { iov_base: there, iov_len: len - done };
        match call(&raw const ours, &raw const theirs) {
            0 => break,
            n if n > 0 => done += n as usize,
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                _ if done > 0 => break, // the part that worked is the answer
                e => return Err(e),
            },
        }
    }
    Ok(done)
}

/// The user this process acts as.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The number of a user, given by that or by its name, if there is one.
pub fn user_number(user: &str) -> Option<u32> {
    if user.is_empty() {
        return None; // no user has an empty name: the system need not be asked
    }
    user.parse().ok().or_else(|| named_user(user))
}

fn named_user(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: zero is a value of every field.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut text = vec![0; 16 << 10];
    let mut found = std::ptr::null_mut();
    // SAFETY: a name that ends with zero, room for an entry and its texts, and a place for the answer.
    let code = unsafe {
        libc::getpwnam_r(name.as_ptr(), &raw mut entry, text.as_mut_ptr(), text.len(), &raw mut found)
    };
    (code == 0 && !found.is_null()).then_some(entry.pw_uid)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio, id};

    use super::*;

    #[test]
    fn our_own_memory_can_be_read_and_written() {
        let theirs = *b"somewhere else";
        let mut ours = [0u8; 14];
        // SAFETY: `ours` has 14 bytes.
        let n = unsafe { vm_read(id() as i32, ours.as_mut_ptr(), theirs.as_ptr() as u64, 14) };
        match n {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                viaduct_kit::skip!("process_vm_readv is forbidden here");
            }
            n => assert_eq!(n.unwrap(), 14),
        }
        assert_eq!(ours, theirs);
        let mut target = [0u8; 14];
        // SAFETY: `ours` has 14 bytes.
        let n = unsafe { vm_write(id() as i32, ours.as_ptr(), target.as_mut_ptr() as u64, 14) };
        assert_eq!((n.unwrap(), target), (14, theirs));
        for len in 0..=14 {
            let mut target = [0u8; 16];
            // SAFETY: `ours` has 14 bytes.
            let n = unsafe { vm_write_tail(id() as i32, ours.as_ptr(), target.as_mut_ptr() as u64 + 1, len) };
            assert_eq!((n.unwrap(), &target[1..=len], target[len + 1]), (len, &theirs[..len], 0));
        }
        // SAFETY: nothing is written, the remote address is unmapped.
        assert!(unsafe { vm_read(id() as i32, ours.as_mut_ptr(), 8, 14) }.is_err());
    }

    #[test]
    fn death_shows_in_the_pidfd() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(pid_alive(pidfd.as_fd()));
        assert!(exe_start_time(pid.as_raw_nonzero().get()).unwrap() > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!pid_alive(pidfd.as_fd()));
    }

    /// The kernel copies by number: what tells that the number is another process's by now is the pidfd.
    #[test]
    fn a_number_that_is_given_again_does_not_bring_the_dead_back() {
        let sleeper = || Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let mut first = sleeper();
        let (number, pidfd) = (first.id(), pidfd(first.id()).unwrap());
        first.kill().unwrap();
        first.wait().unwrap();
        for _ in 0..500 {
            if fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).is_err() {
                viaduct_kit::skip!("numbers of processes cannot be chosen here");
            }
            let mut second = sleeper();
            let (same, alive) = (second.id() == number, pid_alive(pidfd.as_fd()));
            second.kill().unwrap();
            second.wait().unwrap();
            assert!(!alive);
            if same {
                return;
            }
        }
        viaduct_kit::skip!("others took the number each time");
    }

    #[test]
    fn names_with_brackets_do_not_confuse() {
        let tail: Vec<String> = (4..=30).map(|n| n.to_string()).collect();
        let stat = format!("7 (a) b (c) S {}", tail.join(" "));
        assert_eq!(start_time(&stat), Some(22));
        assert_eq!(start_time("garbage"), None);
    }
}
