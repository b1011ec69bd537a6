//! System calls on files, for looking at a program before it is started.

use core::ffi::CStr;

use super::gate::{Errno, syscall};

/// What the kernel notes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Kind and permissions.
    pub mode: u32,
    /// The owner.
    pub user: u32,
    /// The group.
    pub group: u32,
}

/// Opens a file for reading; exec closes it. `dir` is a folder's descriptor or `AT_FDCWD`.
///
/// # Errors
/// The kernel's.
pub fn open(dir: i32, path: &CStr) -> Result<i32, Errno> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK) as usize;
    // SAFETY: the path ends with a zero.
    unsafe { syscall(libc::SYS_openat, [dir as usize, path.as_ptr() as usize, flags, 0, 0, 0]) }
        .map(|fd| fd as i32)
}

/// Reads from a place of a file, without moving its position.
///
/// # Errors
/// The kernel's.
pub fn read_at(fd: i32, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let args = [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), offset as usize, 0, 0];
    // SAFETY: the slice is valid for writes of its length.
    unsafe { syscall(libc::SYS_pread64, args) }
}

/// The highest open descriptor of this process that is not left out; `None` without /proc.
pub fn highest_descriptor(leave_out: impl Fn(i32) -> bool) -> Option<i32> {
    // Where an entry has its length, and its name.
    const LEN: usize = 16;
    const NAME: usize = 19;
    let folder = open(libc::AT_FDCWD, c"/proc/self/fd").ok()?;
    let mut entries = [0u8; 4096];
    let mut highest = None;
    loop {
        let args = [folder as usize, entries.as_mut_ptr() as usize, entries.len(), 0, 0, 0];
        // SAFETY: the array is valid for writes of its length.
        let Ok(len @ 1..) = (unsafe { syscall(libc::SYS_getdents64, args) }) else { break };
        let mut rest = &entries[..len.min(entries.len())];
        while rest.len() > NAME {
            let len = usize::from(u16::from_ne_bytes([rest[LEN], rest[LEN + 1]])).clamp(NAME, rest.len());
            let digits = rest[NAME..len].iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(None, |sum: Option<i32>, digit| {
                Some(sum.unwrap_or(0).saturating_mul(10).saturating_add(i32::from(digit - b'0')))
            });
            highest = highest.max(number.filter(|&fd| fd != folder && !leave_out(fd)));
            rest = &rest[len..];
        }
    }
    let _ = super::calls::close(folder);
    highest
}

/// What the kernel notes of an open file.
///
/// # Errors
/// The kernel's.
pub fn status(fd: i32) -> Result<Status, Errno> {
    // SAFETY: a plain structure of numbers, for which zeros are good.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the local is valid for writes, and has the kernel's layout on the machines that the gate knows.
    unsafe { syscall(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) }?;
    Ok(Status { mode: stat.st_mode, user: stat.st_uid, group: stat.st_gid })
}

/// Whether a program has capabilities of its own.
pub fn has_capabilities(fd: i32) -> bool {
    let name = c"security.capability";
    // SAFETY: the name ends with a zero; without room the kernel only says how long the value is.
    unsafe { syscall(libc::SYS_fgetxattr, [fd as usize, name.as_ptr() as usize, 0, 0, 0, 0]) }.is_ok()
}

/// Whether this process may start a file as a program.
pub fn is_executable(dir: i32, path: &CStr) -> bool {
    let args = [dir as usize, path.as_ptr() as usize, libc::X_OK as usize, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    unsafe { syscall(libc::SYS_faccessat, args) }.is_ok()
}

/// The real user and group of this process.
pub fn real_ids() -> (u32, u32) {
    // SAFETY: no pointers.
    let ask = |number| unsafe { syscall(number, [0; 6]) }.unwrap_or(0) as u32;
    (ask(libc::SYS_getuid), ask(libc::SYS_getgid))
}

/// Whether exec closes a descriptor; `None` if it is not open.
pub fn is_closed_by_exec(fd: i32) -> Option<bool> {
    let args = [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: no pointers.
    unsafe { syscall(libc::SYS_fcntl, args) }.ok().map(|flags| flags & libc::FD_CLOEXEC as usize != 0)
}

/// Makes `to` a duplicate of `fd`.
///
/// # Errors
/// The kernel's.
pub fn replace(fd: i32, to: i32, closed_by_exec: bool) -> Result<(), Errno> {
    let flags = if closed_by_exec { libc::O_CLOEXEC as usize } else { 0 };
    // SAFETY: no pointers.
    unsafe { syscall(libc::SYS_dup3, [fd as usize, to as usize, flags, 0, 0, 0]) }.map(|_| ())
}

/// Closes every descriptor but these, which are put in order; negative ones are none.
pub fn close_all_but(keep: &mut [i32]) {
    keep.sort_unstable();
    let range = |from: usize, to: usize| {
        // SAFETY: no pointers.
        let _ = unsafe { syscall(libc::SYS_close_range, [from, to, 0, 0, 0, 0]) };
    };
    let mut first = 0;
    for kept in keep.iter().filter_map(|&fd| usize::try_from(fd).ok()) {
        if kept > first {
            range(first, kept - 1);
        }
        first = first.max(kept + 1);
    }
    range(first, u32::MAX as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_at_without_running_it() {
        let fd = open(libc::AT_FDCWD, c"/proc/self/exe").unwrap();
        let mut head = [0; 4];
        assert_eq!((read_at(fd, &mut head, 0), &head), (Ok(4), b"\x7fELF"));
        let status = status(fd).unwrap();
        assert!(status.mode & libc::S_IFMT == libc::S_IFREG && status.mode & 0o100 != 0);
        assert!(!has_capabilities(fd) && is_executable(libc::AT_FDCWD, c"/proc/self/exe"));
        assert_eq!(is_closed_by_exec(fd), Some(true));
        super::super::calls::close(fd).unwrap();
        assert!(!is_executable(libc::AT_FDCWD, c"/etc/passwd"));
        assert_eq!(is_closed_by_exec(-1), None);
    }
}
