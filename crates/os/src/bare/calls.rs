//! System calls on descriptors, time and this process. Each is one call and keeps nothing.

use super::gate::{Errno, syscall};

const NONE: usize = 0;

#[inline(always)]
fn call(number: i64, args: &[usize]) -> Result<usize, Errno> {
    let mut all = [NONE; 6];
    all[..args.len()].copy_from_slice(args);
    // SAFETY: used in this file only, for calls without pointers or with pointers to locals and slices of the caller that
    // are valid for what the call does with them.
    unsafe { syscall(number, all) }
}

/// Closes a descriptor.
///
/// # Errors
/// The kernel's.
pub fn close(fd: i32) -> Result<(), Errno> {
    call(libc::SYS_close, &[fd as usize]).map(drop)
}

/// The file status flags (`O_NONBLOCK` among them).
///
/// # Errors
/// The kernel's.
pub fn status_flags(fd: i32) -> Result<i32, Errno> {
    call(libc::SYS_fcntl, &[fd as usize, libc::F_GETFL as usize]).map(|flags| flags as i32)
}

/// A second descriptor with a number of at least `least`, closed by exec.
///
/// # Errors
/// The kernel's.
pub fn duplicate_from(fd: i32, least: i32) -> Result<i32, Errno> {
    call(libc::SYS_fcntl, &[fd as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize]).map(|fd| fd as i32)
}

/// Reads from a descriptor.
///
/// # Errors
/// The kernel's.
pub fn read(fd: i32, bytes: &mut [u8]) -> Result<usize, Errno> {
    call(libc::SYS_read, &[fd as usize, bytes.as_mut_ptr() as usize, bytes.len()])
}

/// Writes to a descriptor.
///
/// # Errors
/// The kernel's.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    call(libc::SYS_write, &[fd as usize, bytes.as_ptr() as usize, bytes.len()])
}

/// Adds one to an eventfd. Blocks if a peer that shares the open file cleared O_NONBLOCK and filled the counter, as
/// `os/src/eventfd.rs` says of its own.
///
/// # Errors
/// The kernel's.
pub fn ring(fd: i32) -> Result<(), Errno> {
    let one = 1u64;
    call(libc::SYS_write, &[fd as usize, &raw const one as usize, 8]).map(drop)
}

/// Takes what is in an eventfd that does not block; `Ok(0)` if there is nothing.
///
/// # Errors
/// The kernel's.
pub fn drain(fd: i32) -> Result<u64, Errno> {
    let mut word = 0u64;
    match call(libc::SYS_read, &[fd as usize, &raw mut word as usize, 8]) {
        Ok(_) => Ok(word),
        Err(Errno(libc::EAGAIN)) => Ok(0),
        Err(error) => Err(error),
    }
}

/// An ioctl that stores an int.
///
/// # Errors
/// The kernel's.
pub fn ioctl_int(fd: i32, request: u64) -> Result<i32, Errno> {
    let mut value = 0i32;
    call(libc::SYS_ioctl, &[fd as usize, request as usize, &raw mut value as usize]).map(|_| value)
}

/// The soft limit on descriptors.
///
/// # Errors
/// The kernel's.
pub fn descriptor_limit() -> Result<u64, Errno> {
    let mut limit = [0u64; 2];
    let at = &raw mut limit as usize;
    call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE as usize, 0, at]).map(|_| limit[0])
}

fn timespec(ns: u64) -> [i64; 2] {
    [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64]
}

/// Waits for descriptors; `None` waits without limit. `mask` is the kernel's signal mask for the time.
///
/// # Errors
/// The kernel's; `EINTR` after a signal handler, whatever its flags.
pub fn poll(fds: &mut [libc::pollfd], limit_ns: Option<u64>, mask: Option<u64>) -> Result<usize, Errno> {
    let time = limit_ns.map(timespec);
    let at = |at: Option<*const [i64; 2]>| at.map_or(NONE, |at| at as usize);
    let time_at = at(time.as_ref().map(core::ptr::from_ref));
    let mask_at = mask.as_ref().map_or(NONE, |mask| core::ptr::from_ref(mask) as usize);
    call(libc::SYS_ppoll, &[fds.as_mut_ptr() as usize, fds.len(), time_at, mask_at, 8])
}

/// Changes a set of epoll.
///
/// # Errors
/// The kernel's.
#[inline]
pub fn epoll_ctl(
    set: i32,
    operation: i32,
    fd: i32,
    mut event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let at = event.as_mut().map_or(NONE, |event| core::ptr::from_mut(event) as usize);
    call(libc::SYS_epoll_ctl, &[set as usize, operation as usize, fd as usize, at]).map(drop)
}

/// Waits for events of a set; `None` waits without limit.
///
/// # Errors
/// The kernel's.
#[inline]
pub fn epoll_wait(
    set: i32,
    events: &mut [libc::epoll_event],
    limit_ns: Option<u64>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    // Whole milliseconds, upwards, as the older call has it: it is allowed in more sandboxes than the newer one.
    let limit = limit_ns.map_or(-1, |ns| ns.div_ceil(1_000_000).min(i32::MAX as u64) as isize);
    let mask_at = mask.as_ref().map_or(NONE, |mask| core::ptr::from_ref(mask) as usize);
    let args = [set as usize, events.as_mut_ptr() as usize, events.len(), limit as usize, mask_at, 8];
    call(libc::SYS_epoll_pwait, &args)
}

/// Lets another task of this CPU run.
pub fn yield_now() {
    let _ = call(libc::SYS_sched_yield, &[]);
}

/// This process.
pub fn process_id() -> u32 {
    call(libc::SYS_getpid, &[]).unwrap_or(0) as u32
}

/// This thread.
pub fn thread_id() -> u32 {
    call(libc::SYS_gettid, &[]).unwrap_or(0) as u32
}

/// The user on whose behalf this process acts.
pub fn user_id() -> u32 {
    call(libc::SYS_geteuid, &[]).unwrap_or(u32::MAX as usize) as u32
}

/// Whether a process has a thread of this number, one that has ended and was not waited for included.
pub(super) fn has_thread(process: u32, thread: u32) -> bool {
    call(libc::SYS_tgkill, &[process as usize, thread as usize, 0]) != Err(Errno(libc::ESRCH))
}

/// On how many CPUs this thread may run.
pub fn usable_cpus() -> u32 {
    let mut mask = [0u64; 128];
    let at = &raw mut mask as usize;
    let len = call(libc::SYS_sched_getaffinity, &[0, size_of_val(&mask), at]).unwrap_or(0);
    mask[..len / 8].iter().map(|word| word.count_ones()).sum::<u32>().max(1)
}

/// The CPU that runs this thread now, by libc's name: see [`now`].
pub fn current_cpu() -> u32 {
    // SAFETY: takes nothing and answers from the thread's own registration with the kernel, or from the vdso.
    (unsafe { libc::sched_getcpu() }).max(0) as u32
}

/// Nanoseconds of the monotonic clock.
///
/// By libc's name, since memory that the kernel shares answers there, many times sooner than a system call. Another preloaded library
/// may answer in its place (as those do that change the time for a program), so this is for how long to wait, and for nothing that other
/// processes rely on.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the local is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Seconds since this machine was started, suspended times included, as the kernel says: a [lock](super::lock) compares them with what it
/// says of other processes.
pub fn seconds_since_boot() -> u64 {
    let mut time = [0u64; 2];
    let _ = call(libc::SYS_clock_gettime, &[libc::CLOCK_BOOTTIME as usize, &raw mut time as usize]);
    time[0]
}

/// Appends to a file, which is made if it is not there.
///
/// # Errors
/// The kernel's.
pub fn append(path: &core::ffi::CStr, bytes: &[u8]) -> Result<(), Errno> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    let fd =
        call(libc::SYS_openat, &[libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0o666])?;
    let written = call(libc::SYS_write, &[fd, bytes.as_ptr() as usize, bytes.len()]);
    let _ = close(fd as i32);
    written.map(drop)
}

/// In seconds since boot, when a process was started; `None` if there is none, or no /proc.
pub(super) fn start_of(process: u32) -> Option<u64> {
    let mut path = Path::new();
    path.add(b"/proc/").number(process).add(b"/stat");
    stat(&path, |fields| {
        let ticks = fields.split(|&byte| byte == b' ').nth(19)?.iter().try_fold(0u64, |sum, &digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit.checked_sub(b'0')?))
        })?;
        Some(ticks / 100)
    })
}

/// The state of a thread (`Z`: it has ended); `None` if its process has none of this number, or there is no /proc.
pub(super) fn state_of(process: u32, thread: u32) -> Option<u8> {
    let mut path = Path::new();
    path.add(b"/proc/").number(process).add(b"/task/").number(thread).add(b"/stat");
    stat(&path, |fields| fields.first().copied())
}

/// The name of a file of /proc. All zeros is the empty one, with the zero that ends it.
struct Path {
    bytes: [u8; 48],
    len: usize,
}

impl Path {
    fn new() -> Path {
        Path { bytes: [0; 48], len: 0 }
    }

    fn add(&mut self, part: &[u8]) -> &mut Path {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        self
    }

    fn number(&mut self, number: u32) -> &mut Path {
        if number >= 10 {
            self.number(number / 10);
        }
        self.add(&[b'0' + (number % 10) as u8])
    }
}

/// Reads a file `stat` of /proc and finds something in its fields, from the third on, which is the state.
fn stat<T>(path: &Path, find: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let at = path.bytes.as_ptr() as usize;
    let fd = call(libc::SYS_openat, &[libc::AT_FDCWD as usize, at, flags, 0]).ok()?;
    let mut text = [0u8; 1024];
    let len = call(libc::SYS_read, &[fd, text.as_mut_ptr() as usize, text.len()]);
    let _ = close(fd as i32);
    let text = &text[..len.ok()?];
    // The name may hold anything; fields are counted from the last parenthesis on.
    let after = text.iter().rposition(|&byte| byte == b')')?;
    find(text.get(after + 2..)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_known() {
        let now = seconds_since_boot();
        let start = start_of(process_id()).unwrap();
        assert!(start <= now && now - start < 3600, "{start} {now}");
        assert_eq!(start_of(0x3f_ffff), None);
    }

    #[test]
    fn a_thread_is_looked_for_in_its_process() {
        let (process, thread) = (process_id(), thread_id());
        assert!(has_thread(process, thread) && state_of(process, thread).is_some_and(|state| state != b'Z'));
        assert!(
            !has_thread(1, thread) && state_of(1, thread).is_none(),
            "it is not one of the first process"
        );
        assert!(!has_thread(process, 0x3f_ffff) && !has_thread(0x3f_ffff, thread));
    }

    #[test]
    fn this_process_exists() {
        assert_eq!(process_id(), std::process::id());
        assert!(usable_cpus() >= 1);
        assert!(now() > 0 && status_flags(0).is_ok());
        assert_eq!(close(-1), Err(Errno(libc::EBADF)));
    }
}
