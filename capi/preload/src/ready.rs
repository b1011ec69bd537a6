//! poll and epoll.

use libc::{c_int, c_void, epoll_event, nfds_t, pollfd, size_t, timespec};
use viaduct_intercept::table::{self, Kind};
use viaduct_intercept::{epoll, poll as engine, room, settings, wait as spin};
use viaduct_os::bare::{Errno, calls, cancel, syscall};

use crate::{blocking, give_int};

unsafe extern "C" {
    fn __chk_fail() -> !;
}

const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

fn of_milliseconds(limit: c_int) -> Option<u64> {
    u64::try_from(limit).ok().map(|limit| limit * MILLISECOND)
}

/// # Safety
/// Null or valid for reads.
pub(crate) unsafe fn of_timespec(limit: *const timespec) -> Result<Option<u64>, Errno> {
    // SAFETY: the caller's promise.
    let Some(limit) = (unsafe { limit.as_ref() }) else { return Ok(None) };
    let good = limit.tv_sec >= 0 && (0..SECOND as i64).contains(&limit.tv_nsec);
    let ns = (limit.tv_sec as u64).saturating_mul(SECOND).saturating_add(limit.tv_nsec as u64);
    if good { Ok(Some(ns)) } else { Err(Errno(libc::EINVAL)) }
}

/// The kernel's mask: the first 64 signals of libc's.
///
/// # Safety
/// Null or valid for reads.
pub(crate) unsafe fn of_mask(mask: *const libc::sigset_t) -> Option<u64> {
    // SAFETY: the caller's promise; libc's set is an array of words.
    (!mask.is_null()).then(|| unsafe { mask.cast::<u64>().read_unaligned() })
}

/// # Safety
/// Valid for reads and writes of so many entries.
unsafe fn entries<'a>(fds: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if count == 0 || fds.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(fds, count as usize) }
}

/// Whether all of these are the kernel's alone.
#[inline(always)]
fn are_plain(fds: &[pollfd]) -> bool {
    fds.iter().all(|entry| entry.fd < 0 || table::kind(entry.fd) == Kind::Plain)
}

/// Sets of epoll among them have to ring for what is in them.
fn note_sets(fds: &[pollfd]) {
    for entry in fds.iter().filter(|entry| matches!(table::kind(entry.fd), Kind::Epoll(_))) {
        epoll::polled(entry.fd);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let all = unsafe { entries(fds, count) };
    if !are_plain(all) || settings::spins_on_tcp() {
        // SAFETY: the caller's promise.
        return unsafe { poll_slowly(fds, count, limit) };
    }
    // SAFETY: the caller's promise.
    give_int(unsafe { blocking(libc::SYS_poll, [fds as usize, count as usize, limit as usize, 0, 0, 0]) })
}

/// # Safety
/// As libc's poll.
#[inline(never)]
unsafe fn poll_slowly(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let all = unsafe { entries(fds, count) };
    note_sets(all);
    if all.is_empty() || !engine::concerns(all) {
        if settings::spins_on_tcp() && limit != 0 {
            spin::spin_on(all);
        }
        // SAFETY: the caller's promise.
        return give_int(unsafe {
            blocking(libc::SYS_poll, [fds as usize, count as usize, limit as usize, 0, 0, 0])
        });
    }
    give_int(engine::poll(all, of_milliseconds(limit), None))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, count: nfds_t, limit: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { poll(fds, count, limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: ends the program, as libc's own check does.
        unsafe { __chk_fail() }
    }
    // SAFETY: the caller's promise.
    unsafe { poll(fds, count, limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let all = unsafe { entries(fds, count) };
    if !are_plain(all) {
        // SAFETY: the caller's promise.
        return unsafe { ppoll_slowly(all, limit, mask) };
    }
    let mut copy = NO_TIME;
    // SAFETY: the caller's promise.
    let limit = unsafe { copied(limit, &mut copy) };
    // SAFETY: the caller's promise.
    give_int(unsafe { blocking(libc::SYS_ppoll, [fds as usize, count as usize, limit, mask as usize, 8, 0]) })
}

/// # Safety
/// As libc's ppoll.
#[inline(never)]
unsafe fn ppoll_slowly(all: &mut [pollfd], limit: *const timespec, mask: *const libc::sigset_t) -> c_int {
    // SAFETY: the caller's promise.
    let (time, mask) = unsafe { (of_timespec(limit), of_mask(mask)) };
    let time = match time {
        Ok(time) => time,
        Err(error) => return give_int(Err(error)),
    };
    note_sets(all);
    if all.is_empty() || !engine::concerns(all) {
        return give_int(cancel::point(|| calls::poll(all, time, mask)));
    }
    give_int(engine::poll(all, time, mask))
}

pub(crate) const NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// A copy for the kernel, which changes it where libc's function does not. Its address, or null.
///
/// # Safety
/// Null or valid for reads.
#[inline(always)]
pub(crate) unsafe fn copied(limit: *const timespec, copy: &mut timespec) -> usize {
    if limit.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    *copy = unsafe { *limit };
    std::ptr::from_mut(copy) as usize
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const libc::sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: ends the program, as libc's own check does.
        unsafe { __chk_fail() }
    }
    // SAFETY: the caller's promise.
    unsafe { ppoll(fds, count, limit, mask) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return give_int(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: no pointers.
    unsafe { epoll_create1(0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: no pointers.
    let made = room::open(|| unsafe { syscall(libc::SYS_epoll_create1, [flags as usize, 0, 0, 0, 0, 0]) });
    if let Ok(fd) = made {
        epoll::note_set(fd as c_int);
    }
    give_int(made)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if event.is_null() && operation != libc::EPOLL_CTL_DEL {
        // SAFETY: the caller's promise.
        return give_int(unsafe {
            syscall(libc::SYS_epoll_ctl, [set as usize, operation as usize, fd as usize, 0, 0, 0])
        });
    }
    // SAFETY: the caller's promise.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    give_int(epoll::control(set, operation, fd, event).map(|()| 0))
}

/// # Safety
/// Events are valid for writes of so many.
unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: Option<u64>,
    mask: Option<u64>,
) -> c_int {
    if most <= 0 || events.is_null() {
        let limit = limit.map_or(-1isize as usize, |ns| (ns / MILLISECOND) as usize);
        // SAFETY: the caller's promise.
        return give_int(unsafe {
            blocking(libc::SYS_epoll_pwait, [set as usize, events as usize, most as usize, limit, 0, 8])
        });
    }
    // SAFETY: the caller's promise; events are plain numbers, valid whatever they are.
    let events = unsafe { std::slice::from_raw_parts_mut(events, most as usize) };
    if settings::spins_on_tcp() && limit != Some(0) && mask.is_none() {
        match spin::spin_on_set(set, events) {
            Ok(0) => {}
            done => return give_int(done),
        }
    }
    match table::kind(set) {
        Kind::Epoll(index) => give_int(epoll::wait(index, set, events, limit, mask)),
        _ => give_int(cancel::point(|| calls::epoll_wait(set, events, limit, mask))),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: c_int,
) -> c_int {
    // Where nothing of ours is in the set, arguments that make no sense are the kernel's to refuse.
    if cancel::single_threaded()
        && let Kind::Epoll(index) = table::kind(set)
        && epoll::enter(index)
    {
        let args = [set as usize, events as usize, most as usize, limit as usize, 0, 8];
        // SAFETY: the caller's promise.
        let slept = unsafe { syscall(WAIT, args) };
        return match epoll::leave(index) {
            None => give_int(slept),
            // SAFETY: the caller's promise.
            Some(others) => unsafe {
                changed(index, others, slept, events, most)
                    .unwrap_or_else(|| wait_limited(set, events, most, limit))
            },
        };
    }
    // SAFETY: the caller's promise.
    unsafe { wait_with_threads(set, events, most, limit) }
}

/// What libc's epoll_wait is for the kernel.
#[cfg(target_arch = "x86_64")]
const WAIT: i64 = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const WAIT: i64 = libc::SYS_epoll_pwait;

/// # Safety
/// As libc's epoll_wait.
#[inline(never)]
unsafe fn wait_with_threads(set: c_int, events: *mut epoll_event, most: c_int, limit: c_int) -> c_int {
    if let Kind::Epoll(index) = table::kind(set)
        && epoll::enter(index)
    {
        let args = [set as usize, events as usize, most as usize, limit as usize, 0, 8];
        // SAFETY: the caller's promise.
        let slept = unsafe { blocking(WAIT, args) };
        return match epoll::leave(index) {
            None => give_int(slept),
            // SAFETY: the caller's promise.
            Some(others) => unsafe {
                changed(index, others, slept, events, most)
                    .unwrap_or_else(|| wait_limited(set, events, most, limit))
            },
        };
    }
    // SAFETY: the caller's promise.
    unsafe { wait_limited(set, events, most, limit) }
}

/// A connection of the set was upgraded while the kernel waited for the set. `None` if the caller is to wait again.
///
/// # Safety
/// Events are valid for writes of so many.
#[cold]
#[inline(never)]
unsafe fn changed(
    index: u32,
    others: u32,
    slept: Result<usize, Errno>,
    events: *mut epoll_event,
    most: c_int,
) -> Option<c_int> {
    let Ok(count @ 1..) = slept else { return Some(give_int(slept)) };
    // SAFETY: the caller's promise; events are plain numbers, valid whatever they are.
    let all = unsafe { std::slice::from_raw_parts_mut(events, most as usize) };
    epoll::changed(index, all, count, others).map(give_int)
}

/// # Safety
/// Events are valid for writes of so many.
#[inline(never)]
unsafe fn wait_limited(set: c_int, events: *mut epoll_event, most: c_int, limit: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(set, events, most, of_milliseconds(limit), None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    if let Kind::Epoll(index) = table::kind(set)
        && epoll::enter(index)
    {
        let args = [set as usize, events as usize, most as usize, limit as usize, mask as usize, 8];
        // SAFETY: the caller's promise.
        let slept = unsafe { blocking(libc::SYS_epoll_pwait, args) };
        return match epoll::leave(index) {
            None => give_int(slept),
            // SAFETY: the caller's promise.
            Some(others) => unsafe {
                changed(index, others, slept, events, most)
                    .unwrap_or_else(|| epoll_pwait_limited(set, events, most, limit, mask))
            },
        };
    }
    // SAFETY: the caller's promise.
    unsafe { epoll_pwait_limited(set, events, most, limit, mask) }
}

/// # Safety
/// As libc's epoll_pwait.
#[inline(never)]
unsafe fn epoll_pwait_limited(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(set, events, most, of_milliseconds(limit), of_mask(mask)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of_timespec(limit) } {
        // SAFETY: the caller's promise.
        Ok(limit) => unsafe { wait(set, events, most, limit, of_mask(mask)) },
        Err(error) => give_int(Err(error)),
    }
}

const _: () = assert!(size_of::<*mut c_void>() == 8, "words are pointers here");
