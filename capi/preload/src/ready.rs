//! poll, select, epoll.

use libc::{c_int, c_void, epoll_event, nfds_t, pollfd, size_t, timespec, timeval};
use viaduct_intercept::table::{self, Kind};
use viaduct_intercept::{epoll, poll as engine, room, route, settings, wait as spin};
use viaduct_os::bare::{Errno, calls, cancel, syscall};

use crate::{blocking, give_int};

unsafe extern "C" {
    fn __chk_fail() -> !;
}

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn of_milliseconds(limit: c_int) -> Option<u64> {
    u64::try_from(limit).ok().map(|limit| limit * MILLISECOND)
}

/// # Safety
/// Null or valid for reads.
unsafe fn of_timespec(limit: *const timespec) -> Result<Option<u64>, Errno> {
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
unsafe fn of_mask(mask: *const libc::sigset_t) -> Option<u64> {
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

const NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// A copy for the kernel, which changes it where libc's function does not. Its address, or null.
///
/// # Safety
/// Null or valid for reads.
#[inline(always)]
unsafe fn copied(limit: *const timespec, copy: &mut timespec) -> usize {
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

/// The three sets of select, as words.
struct Sets {
    at: [*mut u64; 3],
    words: usize,
}

const ASKED: [i16; 3] = [libc::POLLIN | libc::POLLRDHUP, libc::POLLOUT, libc::POLLPRI];
/// What makes a descriptor a member of each set, as the kernel has it.
const MEMBER: [i16; 3] = [
    libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP,
    libc::POLLOUT | libc::POLLERR,
    libc::POLLPRI,
];
/// Sets with more descriptors than libc's type holds are the kernel's, and what is in them stays on TCP.
const MOST: usize = 1024;

impl Sets {
    /// # Safety
    /// Each is null or valid for reads and writes of `count` bits, in whole words.
    #[inline(always)]
    unsafe fn new(count: c_int, sets: [*mut libc::fd_set; 3]) -> Sets {
        Sets { at: sets.map(|set| set.cast()), words: (count.max(0) as usize).div_ceil(64) }
    }

    #[inline(always)]
    fn word(&self, set: usize, word: usize) -> u64 {
        // SAFETY: the promise of `new`.
        if self.at[set].is_null() { 0 } else { unsafe { self.at[set].add(word).read_unaligned() } }
    }

    /// Whether all of their descriptors are the kernel's alone, or more than are looked after.
    #[inline(always)]
    fn are_plain(&self) -> bool {
        if self.words > MOST / 64 {
            return true;
        }
        for word in 0..self.words {
            let mut bits = self.word(0, word) | self.word(1, word) | self.word(2, word);
            while bits != 0 {
                if table::kind((word * 64) as c_int | bits.trailing_zeros() as c_int) != Kind::Plain {
                    return false;
                }
                bits &= bits - 1;
            }
        }
        true
    }

    /// The events that are asked for.
    fn asked(&self, fd: usize) -> i16 {
        (0..3)
            .filter(|&set| self.word(set, fd / 64) >> (fd % 64) & 1 != 0)
            .fold(0, |all, set| all | ASKED[set])
    }

    fn clear(&self) {
        for (set, word) in (0..3).flat_map(|set| (0..self.words).map(move |word| (set, word))) {
            if !self.at[set].is_null() {
                // SAFETY: the promise of `new`.
                unsafe { self.at[set].add(word).write_unaligned(0) };
            }
        }
    }

    fn add(&self, set: usize, fd: usize) {
        let word = self.word(set, fd / 64) | 1 << (fd % 64);
        // SAFETY: the promise of `new`; only sets in which the descriptor was asked for are added to.
        unsafe { self.at[set].add(fd / 64).write_unaligned(word) };
    }
}

/// select over descriptors of which some have rings; `None` if none has.
#[inline(never)]
fn select_rings(
    count: c_int,
    sets: &Sets,
    limit: Option<u64>,
    mask: Option<u64>,
) -> Option<Result<usize, Errno>> {
    let count = (count.max(0) as usize).min(sets.words * 64);
    if count > MOST {
        return None;
    }
    let mut list = [pollfd { fd: -1, events: 0, revents: 0 }; MOST];
    let mut len = 0;
    let mut rings = false;
    for word in 0..sets.words {
        let mut bits = sets.word(0, word) | sets.word(1, word) | sets.word(2, word);
        while bits != 0 {
            let fd = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if fd < count {
                rings |= route(fd as c_int).is_some();
                list[len] = pollfd { fd: fd as c_int, events: sets.asked(fd), revents: 0 };
                len += 1;
            }
        }
    }
    let list = &mut list[..len];
    note_sets(list);
    if !rings {
        return None;
    }
    if let Err(error) = engine::poll(list, limit, mask) {
        return Some(Err(error));
    }
    if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Some(Err(Errno(libc::EBADF)));
    }
    sets.clear();
    let mut members = 0;
    for entry in list.iter() {
        for set in 0..3 {
            if entry.events & ASKED[set] != 0 && entry.revents & MEMBER[set] != 0 {
                sets.add(set, entry.fd as usize);
                members += 1;
            }
        }
    }
    Some(Ok(members))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let sets = unsafe { Sets::new(count, [read, write, except]) };
    if sets.are_plain() {
        let args = [count as usize, read as usize, write as usize, except as usize, limit as usize, 0];
        // SAFETY: the caller's promise.
        return give_int(unsafe { blocking(libc::SYS_select, args) });
    }
    // SAFETY: the caller's promise.
    unsafe { select_slowly(count, &sets, [read, write, except], limit) }
}

/// # Safety
/// As libc's select.
#[inline(never)]
unsafe fn select_slowly(
    count: c_int,
    sets: &Sets,
    [read, write, except]: [*mut libc::fd_set; 3],
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let time = unsafe { limit.as_mut() };
    let ns = time.as_ref().map(|time| {
        (time.tv_sec.max(0) as u64).saturating_mul(SECOND).saturating_add(time.tv_usec.max(0) as u64 * 1000)
    });
    let start = calls::now();
    match select_rings(count, sets, ns, None) {
        Some(done) => {
            if let (Some(time), Some(ns)) = (time, ns) {
                // As Linux does: what is left of it.
                let left = ns.saturating_sub(calls::now() - start);
                (time.tv_sec, time.tv_usec) = ((left / SECOND) as i64, (left % SECOND / 1000) as i64);
            }
            give_int(done)
        }
        None => {
            let args = [count as usize, read as usize, write as usize, except as usize, limit as usize, 0];
            // SAFETY: the caller's promise.
            give_int(unsafe { blocking(libc::SYS_select, args) })
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { select(count, read, write, except, limit) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    limit: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let sets = unsafe { Sets::new(count, [read, write, except]) };
    if !sets.are_plain()
        // SAFETY: the caller's promise.
        && let Some(done) = unsafe { pselect_slowly(count, &sets, limit, mask) }
    {
        return give_int(done);
    }
    let mut copy = NO_TIME;
    // SAFETY: the caller's promise.
    let at = unsafe { copied(limit, &mut copy) };
    let sixth = [mask as usize, 8];
    let args = [count as usize, read as usize, write as usize, except as usize, at, sixth.as_ptr() as usize];
    // SAFETY: the caller's promise.
    give_int(unsafe { blocking(libc::SYS_pselect6, args) })
}

/// # Safety
/// As libc's pselect.
#[inline(never)]
unsafe fn pselect_slowly(
    count: c_int,
    sets: &Sets,
    limit: *const timespec,
    mask: *const libc::sigset_t,
) -> Option<Result<usize, Errno>> {
    // SAFETY: the caller's promise.
    match unsafe { of_timespec(limit) } {
        // SAFETY: the caller's promise.
        Ok(time) => select_rings(count, sets, time, unsafe { of_mask(mask) }),
        Err(error) => Some(Err(error)),
    }
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
