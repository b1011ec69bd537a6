//! select and pselect: over plain descriptors the kernel's, which are looked at word by word; else a poll.

use libc::{c_int, pollfd, timespec, timeval};
use viaduct_intercept::raw::Scratch;
use viaduct_intercept::table::{self, Kind};
use viaduct_intercept::{descriptors, epoll, poll as engine, route};
use viaduct_os::bare::{Errno, calls, files};

use crate::ready::{NO_TIME, SECOND, copied, of_mask, of_timespec};
use crate::{blocking, give_int};

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
/// Sets of so many bits are what libc's type holds. Callers may name more than that, and more than their sets have.
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

    /// How many words may name a descriptor that is not the kernel's alone.
    fn own_words(&self) -> usize {
        if self.words <= MOST / 64 { self.words } else { self.words.min(table::highest() as usize / 64 + 1) }
    }

    /// Whether all of their descriptors are the kernel's alone.
    #[inline(always)]
    fn are_plain(&self) -> bool {
        if self.words > MOST / 64 {
            return self.are_long_and_plain();
        }
        // Not by `members`: this is all that a call over plain descriptors passes through.
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

    #[cold]
    #[inline(never)]
    fn are_long_and_plain(&self) -> bool {
        self.members(self.own_words()).all(|fd| table::kind(fd as c_int) == Kind::Plain)
    }

    /// The descriptors in the first words of all sets.
    fn members(&self, words: usize) -> impl Iterator<Item = usize> {
        let bits = |word| self.word(0, word) | self.word(1, word) | self.word(2, word);
        (0..words).flat_map(move |word| {
            let mut left = bits(word);
            std::iter::from_fn(move || {
                let lowest = (left != 0).then(|| word * 64 + left.trailing_zeros() as usize);
                left &= left.wrapping_sub(1);
                lowest
            })
        })
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

    /// What select gives for what poll has found, with the sets changed.
    fn report(&self, list: &[pollfd]) -> Result<usize, Errno> {
        if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        self.clear();
        let mut members = 0;
        for entry in list {
            for set in 0..3 {
                if entry.events & ASKED[set] != 0 && entry.revents & MEMBER[set] != 0 {
                    self.add(set, entry.fd as usize);
                    members += 1;
                }
            }
        }
        Ok(members)
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
    let below = |count: usize| move |fd: &usize| *fd < count;
    let mut count = count.max(0) as usize;
    let mut rings = false;
    for fd in sets.members(sets.own_words()).filter(below(count)) {
        rings |= route(fd as c_int).is_some();
        epoll::polled(fd as c_int);
    }
    if !rings {
        return None;
    }
    if count > MOST {
        let Some(named) = named(count) else {
            leave_to_kernel(sets);
            return None;
        };
        count = named;
    }
    let sets = &Sets { at: sets.at, words: count.div_ceil(64) };
    let all = || sets.members(sets.words).filter(below(count));
    let Some(mut scratch) = Scratch::new(all().count()) else { return Some(Err(Errno(libc::ENOMEM))) };
    let list = scratch.entries();
    for (fd, entry) in all().zip(list.iter_mut()) {
        *entry = pollfd { fd: fd as c_int, events: sets.asked(fd), revents: 0 };
    }
    let done = engine::poll(list, limit, mask).and_then(|_| sets.report(list));
    scratch.free();
    Some(done)
}

/// How many of so many bits a caller's sets have. One that names its highest descriptor has them all. Others name the most that
/// there might be, and have what the kernel would look at: up to its highest descriptor, and not up to ours, which are above. `None`
/// without /proc.
fn named(count: usize) -> Option<usize> {
    let last = count as c_int - 1;
    if files::is_closed_by_exec(last).is_some() && !descriptors::is_internal(last) {
        return Some(count);
    }
    let highest = files::highest_descriptor(descriptors::is_internal)?;
    Some(count.min((highest as usize / 64 + 1) * 64))
}

/// Without /proc the length of long sets is not known: their members are the kernel's alone from now on.
#[cold]
fn leave_to_kernel(sets: &Sets) {
    for fd in sets.members(sets.own_words()) {
        let _ = descriptors::keep_plain(fd as c_int, "waited for with many others, without /proc");
    }
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
