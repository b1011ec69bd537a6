//! Moving a connection back to TCP, for good: before a program that will not load the library gets it, and for what only
//! the kernel's own stream can give (kernel TLS, sending without copying, a filter that forbids what rings need).
//!
//! Sending is easy: the ring is said to be over at its head, and what follows goes by TCP. The receiver reads the rest of
//! the ring first. Receiving needs the other end: this one raises `back` and rings; the sender, at its next call on this
//! connection or when the bell wakes it, says that the ring is over, takes back what was not read and gives it to the kernel
//! in its place. A sender that puts bytes into a ring looks at `back` afterwards, so a ring that is empty when `back` is
//! raised needs no waiting at all.
//!
//! What was taken back is counted by the kernel (bytes that were given to TCP), so that another process that shares the
//! socket goes on where a killed one stopped.

use std::sync::atomic::Ordering;

use viaduct_os::bare::lock::Taken;
use viaduct_os::bare::{Errno, calls, whoami};

use crate::endpoint::{self, STALE, Slot, slot};
use crate::explain::explain;
use crate::layout::{BY_RING, BY_TCP, BY_TCP_AGAIN, Direction, NOT_TAKEN, TAKEN, TAKING, readable};
use crate::raw::View;
use crate::{claim, companion, epoll, table};

/// How long the other end may take to give back what was not read, in nanoseconds. It answers when it next calls.
const LIMIT: u64 = 5_000_000_000;
/// How long one call waits for room in the kernel for what it takes back.
const ROOM_LIMIT: u64 = 50_000_000;

/// How a move went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Moved {
    /// All bytes to come are the kernel's.
    Whole,
    /// The other end has not given back what was not read: it has ended its stream, or does not call.
    Waiting,
}

/// How far a sender has come with what it takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// All of it is the kernel's.
    All,
    /// The kernel has no room at the moment.
    Part,
    /// The companion, or the words in memory, do not allow it.
    Failed,
}

/// Moves a connection back to TCP, in both directions.
pub fn move_back(fd: i32, index: u32, reason: &'static str) -> Moved {
    if claim::withdraw(fd, index, reason) {
        return Moved::Whole;
    }
    let slot = slot(index);
    let Ok(view) = slot.view() else { return Moved::Whole };
    stop_sending(index, view);
    let incoming = slot.incoming(view.header());
    if incoming.wishes.back.swap(1, Ordering::SeqCst) == 0 {
        explain(fd, "moved back to TCP", reason);
    }
    if is_ready(incoming) {
        return Moved::Whole;
    }
    slot.ring_peer(view.header());
    // The other end may be in this very process, where no one answers while this thread waits.
    if let Some((fd, index)) = endpoint::by_id(slot.id(), 1 - slot.side())
        .and_then(|other| table::rings().find(|&(_, index)| index == other))
    {
        serve(fd, index);
    }
    let end = calls::now() + LIMIT;
    while !is_ready(incoming) {
        if companion::peer_has_ended(fd) || calls::now() >= end {
            return if is_ready(incoming) { Moved::Whole } else { Moved::Waiting };
        }
        let _ = calls::poll(&mut [], Some(500_000), None);
    }
    Moved::Whole
}

/// Moves a connection back and makes its descriptor one of the kernel's alone. Whether that was possible.
pub fn retire(fd: i32, reason: &'static str) -> bool {
    let table::Kind::Ring(index) = table::kind(fd) else { return true };
    if move_back(fd, index, reason) == Moved::Waiting {
        return false;
    }
    // A pending connection was given up on the way.
    if table::kind(fd) == table::Kind::Ring(index) {
        epoll::restore(fd);
        table::set(fd, table::Kind::Plain);
        endpoint::release(index);
    }
    true
}

/// Moves every connection of this process back.
pub fn retire_all(reason: &'static str) {
    if endpoint::any() && !whoami::borrows_memory() {
        table::rings().for_each(|(fd, _)| {
            let _ = retire(fd, reason);
        });
    }
}

/// Whether all that is to come of a direction is the kernel's. Asked after `back` was raised.
fn is_ready(incoming: &Direction) -> bool {
    let (producer, consumer) = (&incoming.producer, &incoming.consumer);
    consumer.phase.load(Ordering::SeqCst) == BY_TCP_AGAIN
        || producer.start.load(Ordering::SeqCst) == 0
        || producer.head.load(Ordering::SeqCst) == consumer.tail.load(Ordering::SeqCst)
}

/// The ring of what this end sends is over; from now on it sends by TCP.
fn stop_sending(index: u32, view: View) {
    let slot = slot(index);
    let producer = &slot.outgoing(view.header()).producer;
    let me = whoami::owner();
    if producer.lock.lock(me) == Taken::Refused {
        return; // the next send sees that, and breaks the connection
    }
    if producer.end.load(Ordering::Acquire) == 0 {
        producer.end.store(producer.head.load(Ordering::Acquire).wrapping_add(1), Ordering::SeqCst);
    }
    producer.lock.unlock(me);
    if whoami::borrows_memory() {
        slot.raise(STALE); // sets of epoll are the parent's
    } else {
        epoll::refresh(index);
    }
}

/// What this end sends goes by TCP from now on; what comes in does not change.
pub fn send_by_tcp(index: u32) {
    if let Ok(view) = slot(index).view() {
        stop_sending(index, view);
    }
}

/// Whether the receiver of what this end sends has asked for TCP, and has not got all of it.
#[inline]
pub(crate) fn is_asked(outgoing: &Direction) -> bool {
    outgoing.wishes.back.load(Ordering::SeqCst) != 0
        && outgoing.producer.taken.load(Ordering::Acquire) != TAKEN
}

/// Does what the other end has asked for, if it has. Called where this end is about to sleep or to close.
#[inline]
pub(crate) fn serve(fd: i32, index: u32) {
    let slot = slot(index);
    if let Ok(view) = slot.view()
        && is_asked(slot.outgoing(view.header()))
    {
        serve_slowly(fd, index, view);
    }
}

#[cold]
fn serve_slowly(fd: i32, index: u32, view: View) {
    let slot = slot(index);
    // Another thread may have closed the descriptor just now, and its number may be another file's.
    if table::kind(fd) != table::Kind::Ring(index) {
        return;
    }
    let outgoing = slot.outgoing(view.header());
    let end = calls::now() + ROOM_LIMIT;
    loop {
        let me = whoami::owner();
        if outgoing.producer.lock.lock(me) == Taken::Refused {
            return;
        }
        let done = take_back(slot, index, view, fd);
        outgoing.producer.lock.unlock(me);
        if done != Flushed::Part {
            return;
        }
        let left = end.saturating_sub(calls::now());
        let mut room = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
        if left == 0 || calls::poll(&mut room, Some(left), None) != Ok(1) {
            // The bell brings this end back here when it wants to sleep.
            slot.ring_own(view.header());
            return;
        }
    }
}

/// Under the lock of the sender: gives the kernel what the receiver has not read of the ring.
pub(crate) fn take_back(slot: &Slot, index: u32, view: View, fd: i32) -> Flushed {
    let header = view.header();
    let side = slot.side();
    let (producer, consumer) = (&slot.outgoing(header).producer, &slot.outgoing(header).consumer);
    if producer.end.load(Ordering::Acquire) == 0 {
        producer.end.store(producer.head.load(Ordering::Acquire).wrapping_add(1), Ordering::SeqCst);
        if whoami::borrows_memory() {
            slot.raise(STALE)
        } else {
            epoll::refresh(index)
        }
        explain(fd, "moved back to TCP", "the other end asked for it");
    }
    let end = producer.end.load(Ordering::Acquire).wrapping_sub(1);
    if producer.start.load(Ordering::Acquire) == 0 {
        producer.taken.store(TAKEN, Ordering::Release);
        return Flushed::All;
    }
    if producer.taken.load(Ordering::Acquire) == NOT_TAKEN {
        if producer.shut.load(Ordering::SeqCst) != 0 {
            return Flushed::Failed; // the kernel takes no more: what lies in the ring stays there
        }
        let me = whoami::owner();
        let Some(info) = companion::Info::of(fd) else { return Flushed::Failed };
        if consumer.lock.lock(me) == Taken::Refused {
            return Flushed::Failed;
        }
        // A receiver that still has the library reads no more of the ring: the kernel has all that follows.
        let phase = consumer.phase.load(Ordering::Acquire);
        if [BY_TCP, BY_RING].contains(&phase) {
            consumer.phase.store(BY_TCP_AGAIN, Ordering::SeqCst);
        }
        producer.taken_from.store(consumer.tail.load(Ordering::SeqCst), Ordering::Relaxed);
        producer.taken_after.store(info.accepted, Ordering::Relaxed);
        producer.taken.store(TAKING, Ordering::Release);
        consumer.lock.unlock(me);
    }
    let from = producer.taken_from.load(Ordering::Acquire);
    let Some(total) = readable(end, from) else { return Flushed::Failed };
    let Some(info) = companion::Info::of(fd) else { return Flushed::Failed };
    let mut done = info.accepted.saturating_sub(producer.taken_after.load(Ordering::Acquire));
    while done < total {
        match view.send(side, from.wrapping_add(done), total - done, fd) {
            Ok(count) => done += count as u64,
            Err(Errno(libc::EAGAIN)) => return Flushed::Part,
            Err(Errno(libc::EINTR)) => {}
            Err(_) => return Flushed::Failed,
        }
    }
    consumer.tail.store(end, Ordering::SeqCst);
    producer.taken.store(TAKEN, Ordering::Release);
    slot.ring_peer(header);
    Flushed::All
}
