//! A peer that is gone, as the end that sends finds out.
//!
//! The notice is the companion's, for senders as for receivers: the kernel ends its stream when the last descriptor of the peer
//! is closed, by its process or by its death. Of the bytes that lie in the ring unread the kernel knows nothing. TCP resets a
//! connection whose peer goes without having read all, so the companion is made to be reset, too: one byte that no process can
//! receive any more brings the answer of a closed socket. From then on the kernel reports room, the error and the hang-up to
//! whatever waits for the companion: poll, select, each set of epoll, in this process and in others.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{calls, sockets};

use crate::endpoint::{BROKEN, RESET_SAID, SUSPECT, Slot, slot};
use crate::layout::{Direction, Header, RING, capacity, has_room, writable};
use crate::raw::Piece;
use crate::{back, epoll};

/// How long the answer of the peer's closed socket may take, in nanoseconds. It comes before the send returns, as a rule.
const LIMIT: u64 = 50_000_000;

/// Whether a peer whose stream has ended, as the companion says, went without having read all. One that has only shut down sending
/// has said so in the ring's words.
pub(crate) fn is_reset(slot: &Slot, header: &Header) -> bool {
    let outgoing = slot.outgoing(header);
    let head = outgoing.producer.head.load(Ordering::Acquire);
    let unread = outgoing.producer.start.load(Ordering::Acquire) != 0
        && outgoing.consumer.tail.load(Ordering::Acquire) != head;
    unread && slot.incoming(header).producer.shut.load(Ordering::Acquire) == 0
}

/// As [`is_reset`], for sends. Bytes that were sent when the peer may have been gone already are no reason for a reset: to such
/// bytes a closed socket answers, and then the pipe is broken. Those that fill the ring were sent before.
pub(crate) fn resets_sends(slot: &Slot, header: &Header) -> bool {
    let outgoing = slot.outgoing(header);
    let (head, tail) =
        (outgoing.producer.head.load(Ordering::Acquire), outgoing.consumer.tail.load(Ordering::Acquire));
    let most = capacity(outgoing.producer.most.load(Ordering::Relaxed));
    let full = writable(head, tail, most).is_some_and(|room| !has_room(room, most));
    let before = (1..=RING as u32).contains(&slot.there.load(Ordering::Relaxed).wrapping_sub(tail as u32));
    (full || before) && is_open(outgoing) && is_reset(slot, header)
}

/// Whether this end may still send: a direction that was moved back is the kernel's, and so is one that was shut down here.
fn is_open(outgoing: &Direction) -> bool {
    outgoing.wishes.back.load(Ordering::SeqCst) == 0 && outgoing.producer.shut.load(Ordering::Acquire) == 0
}

/// The companion has said that the peer ended its stream: what is sent from here on is the kernel's, and so is what there is to
/// report of room.
pub(crate) fn hear(index: u32, fd: i32) {
    let slot = slot(index);
    let Ok(view) = slot.view() else { return };
    slot.raise(SUSPECT);
    back::send_by_tcp(index);
    let producer = &slot.outgoing(view.header()).producer;
    if producer.end.load(Ordering::Acquire) == 0 {
        // The lock's word makes no sense: a waiter for room is to be woken all the same, and its send fails.
        producer.end.store(producer.head.load(Ordering::Acquire).wrapping_add(1), Ordering::SeqCst);
        slot.raise(BROKEN);
        epoll::refresh(index);
    }
    if resets_sends(slot, view.header()) {
        reset(slot, fd);
    }
}

/// A receive has reported the reset.
#[cold]
pub(crate) fn note_said(index: u32, fd: i32) {
    hear(index, fd);
    let slot = slot(index);
    if let Ok(view) = slot.view()
        && is_open(slot.outgoing(view.header()))
    {
        reset(slot, fd);
    }
}

/// Has the companion reset, unless it is; its error is taken out of it if a call has reported one already.
pub(crate) fn reset(slot: &Slot, fd: i32) {
    let hung_up = |limit| {
        let mut fds = [libc::pollfd { fd, events: 0, revents: 0 }];
        calls::poll(&mut fds, Some(limit), None) == Ok(1)
    };
    if !slot.has(BROKEN) && !hung_up(0) {
        let mut byte = [0];
        let piece = Piece::new(&mut byte);
        let sent = piece.buffers().send(fd, 0, 1, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        let _ = sent.is_ok() && hung_up(LIMIT);
    }
    if slot.has(RESET_SAID) {
        let _ = sockets::option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    }
}

/// Whether a send is to report the reset of this companion: one call of all does, as on TCP, where the program does not ask for the
/// error itself.
pub(crate) fn is_to_be_said(slot: &Slot, fd: i32) -> bool {
    if slot.has(RESET_SAID) {
        return false;
    }
    slot.raise(RESET_SAID | SUSPECT);
    sockets::option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR) != Ok(0)
}
