//! `poll` over descriptors of both kinds: the kernel's answer for its own and for companions, ours for rings.
//!
//! Where all are rings and one of them is ready the kernel is not asked: it could add no more than the end of a stream
//! whose bytes were not read yet. While a ring is full, what the kernel has for a waiter for room is that the peer is gone.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{Errno, calls, cancel};

use crate::endpoint::slot;
use crate::raw::Scratch;
use crate::table::{self, Kind};
use crate::wait::{self, Deadline, Want};
use crate::{back, hangup, receive, route, send};

const READ: i16 = libc::POLLIN | libc::POLLRDNORM;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM;

/// Whether one of these is, or now becomes, a connection with rings. The kernel alone can answer for the others.
pub fn concerns(fds: &[libc::pollfd]) -> bool {
    let mut any = false;
    for entry in fds {
        any |= entry.fd >= 0 && route(entry.fd).is_some();
    }
    any
}

/// Polls as `ppoll` does. `mask` is the kernel's signal mask for the time of sleeping.
///
/// # Errors
/// As `ppoll`.
pub fn poll(fds: &mut [libc::pollfd], limit_ns: Option<u64>, mask: Option<u64>) -> Result<usize, Errno> {
    let Some(mut scratch) = Scratch::new(2 * fds.len()) else { return Err(Errno(libc::ENOMEM)) };
    let done = poll_with(scratch.entries(), fds, limit_ns, mask);
    scratch.free();
    done
}

/// As [`poll`], with room for twice as many entries for the kernel.
fn poll_with(
    kernel: &mut [libc::pollfd],
    fds: &mut [libc::pollfd],
    limit_ns: Option<u64>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    let deadline = Deadline::after(limit_ns);
    let mut spun = false;
    loop {
        let of_rings = in_memory(fds);
        if let Some(count @ 1..) = of_rings {
            return Ok(count);
        }
        // Rings are worth a spin before the kernel is asked, unless the call is not to wait at all.
        if of_rings.is_none() || spun || limit_ns == Some(0) || mask.is_some() {
            let count = look(fds, kernel, Some(0), None)?;
            if count > 0 || deadline.left() == Some(0) {
                return Ok(count);
            }
        }
        if !spun && mask.is_none() {
            spun = true;
            let cpu = fds.iter().find_map(|entry| peer_cpu(entry.fd)).unwrap_or(u32::MAX);
            if wait::spin(cpu, || fds.iter().any(|entry| own(entry) != 0)) {
                continue;
            }
        }
        fds.iter().for_each(|entry| {
            if let Kind::Ring(index) = table::kind(entry.fd) {
                back::serve(entry.fd, index);
            }
            announce(entry, 1);
        });
        let ready = fds.iter().any(|entry| own(entry) != 0);
        let limit = if ready { Some(0) } else { deadline.left() };
        let count = look(fds, kernel, limit, mask);
        fds.iter().for_each(|entry| announce(entry, u32::MAX));
        let count = count?;
        if count > 0 || (!ready && deadline.left() == Some(0)) {
            return Ok(count);
        }
    }
}

/// Answers from memory how many are ready; `None` if the kernel has a say, because one of them is no ring.
fn in_memory(fds: &mut [libc::pollfd]) -> Option<usize> {
    let mut count = 0;
    for entry in fds.iter_mut() {
        entry.revents = 0;
        if entry.fd < 0 {
            continue;
        }
        let Kind::Ring(index) = table::kind(entry.fd) else { return None };
        let slot = slot(index);
        if entry.events & !(READ | WRITE | libc::POLLRDHUP) != 0 {
            return None;
        }
        if entry.events & READ != 0 && receive::ring_is_readable(slot, entry.fd)? {
            entry.revents |= entry.events & READ;
        }
        if entry.events & WRITE != 0 && send::ring_is_writable(slot)? {
            entry.revents |= entry.events & WRITE;
        }
        // The end of the peer's stream is reported beside room.
        if entry.revents & WRITE != 0 && entry.events & (READ | libc::POLLRDHUP) & !entry.revents != 0 {
            return None;
        }
        count += usize::from(entry.revents != 0);
    }
    Some(count)
}

/// Where the kernel's entries for bells stand: in places of the caller's that wait for nothing, then behind them all. The
/// kernel refuses more entries than a process may have descriptors; a bell is one, so that there are never more than those unless the
/// caller names one several times.
fn places(fds: &[libc::pollfd]) -> impl Iterator<Item = usize> {
    let idle = fds.iter().enumerate().filter(|(_, entry)| entry.fd < 0);
    idle.map(|(place, _)| place).chain(fds.len()..)
}

/// Asks the kernel, with the bells if it may wait, and adds what is ours.
fn look(
    fds: &mut [libc::pollfd],
    kernel: &mut [libc::pollfd],
    limit_ns: Option<u64>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    let len = fds.len();
    for (entry, place) in fds.iter().zip(kernel.iter_mut()) {
        *place = libc::pollfd { revents: 0, ..*entry };
        if let Kind::Ring(index) = table::kind(entry.fd)
            && send::goes_by_ring(slot(index))
        {
            // There is always room in the companion. What it says instead is that the peer is gone.
            place.events &= !WRITE;
            place.events |= if entry.events & WRITE != 0 { libc::POLLRDHUP } else { 0 };
        }
    }
    if limit_ns == Some(0) {
        calls::poll(&mut kernel[..len], limit_ns, mask)?;
    } else {
        let mut all = len;
        let rings = fds.iter().filter_map(|entry| ring_of(entry.fd));
        for (index, place) in rings.zip(places(fds)) {
            kernel[place] = libc::pollfd { fd: slot(index).bell(), events: libc::POLLIN, revents: 0 };
            all = all.max(place + 1);
        }
        cancel::point(|| calls::poll(&mut kernel[..all], limit_ns, mask))?;
        // Another thread may have closed or moved some of them: a bell is known by its descriptor.
        let mut places = places(fds).take_while(|&place| place < all).peekable();
        for entry in fds.iter() {
            let Some(index) = ring_of(entry.fd) else { continue };
            let bell = slot(index).bell();
            let Some(place) = places.next_if(|&place| kernel[place].fd == bell) else { continue };
            if let (true, Ok(view)) = (kernel[place].revents != 0, slot(index).view()) {
                let counted = [READ, WRITE].map(|kind| u32::from(entry.events & kind != 0));
                slot(index).empty_bell(view.header());
                wait::pass_on(slot(index), view.header(), counted, own(entry) != 0);
            }
        }
    }
    let mut count = 0;
    for (entry, place) in fds.iter_mut().zip(kernel.iter_mut()) {
        if place.events & entry.events & WRITE != entry.events & WRITE
            && place.revents & libc::POLLRDHUP != 0
            && let Some(index) = ring_of(entry.fd)
        {
            hangup::hear(index, entry.fd);
            *place = libc::pollfd { revents: 0, ..*entry };
            calls::poll(std::slice::from_mut(place), Some(0), None)?;
        }
        entry.revents = if entry.fd < 0 { 0 } else { place.revents | own(entry) };
        count += usize::from(entry.revents != 0);
    }
    Ok(count)
}

fn ring_of(fd: i32) -> Option<u32> {
    match table::kind(fd) {
        Kind::Ring(index) => Some(index),
        _ => None,
    }
}

/// What a ring has for this entry.
fn own(entry: &libc::pollfd) -> i16 {
    let Kind::Ring(index) = table::kind(entry.fd) else { return 0 };
    let slot = slot(index);
    let mut ready = 0;
    if entry.events & READ != 0 && receive::ring_is_readable(slot, entry.fd) == Some(true) {
        ready |= entry.events & READ;
    }
    if entry.events & WRITE != 0 && send::ring_is_writable(slot) == Some(true) {
        ready |= entry.events & WRITE;
    }
    ready
}

fn peer_cpu(fd: i32) -> Option<u32> {
    let Kind::Ring(index) = table::kind(fd) else { return None };
    let slot = slot(index);
    let header = slot.view().ok()?.header();
    Some(slot.incoming(header).producer.cpu.load(Ordering::Relaxed))
}

/// Says that this thread sleeps for this entry, or (`u32::MAX`) that it does not any more.
fn announce(entry: &libc::pollfd, change: u32) {
    let Kind::Ring(index) = table::kind(entry.fd) else { return };
    let slot = slot(index);
    let Ok(view) = slot.view() else { return };
    if entry.events & READ != 0 {
        wait::count(slot, view.header(), Want::Bytes).fetch_add(change, Ordering::SeqCst);
    }
    if entry.events & WRITE != 0 {
        wait::count(slot, view.header(), Want::Room).fetch_add(change, Ordering::SeqCst);
    }
}
