//! Sending: by TCP until the other side is ready, then through the ring, and by TCP again once the peer ends its stream:
//! then the kernel says what becomes of bytes that no one reads.

use std::sync::atomic::{Ordering, compiler_fence};

use viaduct_os::bare::lock::Taken;
use viaduct_os::bare::stack::{self, Entered};
use viaduct_os::bare::{Errno, calls, sockets, whoami};

use crate::endpoint::{BROKEN, INTERRUPTED, PENDING, RESET_SAID, SUSPECT, Slot, note_cpu, slot};
use crate::explain::{count_switch, explain};
use crate::layout::{self, Header, OPEN, capacity, has_room, readable, writable};
use crate::raw::{Buffers, View};
use crate::wait::{self, Asleep, Deadline, Want};
use crate::{back, companion, epoll, hangup};

/// One of so many sends looks how far the peer has read; if no further than before, it asks whether the peer is still there.
const ASK_EVERY: u32 = 16;
/// And not again for so many nanoseconds: a peer that takes many small messages at a time is asked about once in a while.
const APART: u64 = 50_000;
/// From so many bytes on they are stored past the caches, if another CPU reads them: fewer are read out of caches sooner.
const MUCH: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendStep {
    Moved(usize),
    Full,
    Failed(Errno),
}

/// Sends as `send` does, with its flags.
///
/// # Errors
/// As `send`.
pub fn send(index: u32, fd: i32, buffers: Buffers<'_>, flags: i32) -> Result<usize, Errno> {
    let slot = slot(index);
    let call = Call { slot, index, view: slot.view()?, fd, buffers, flags };
    if flags & libc::MSG_OOB != 0 {
        // The kernel marks the place of urgent data in its own stream: from here on all that is sent goes there.
        back::send_by_tcp(index);
    }
    let total = buffers.total();
    let mut sent = 0;
    let mut wait = None;
    loop {
        let step = match call.step(sent) {
            SendStep::Full => call.wait(sent, &mut wait),
            step => step,
        };
        match step {
            SendStep::Moved(count) => {
                sent += count;
                if sent >= total {
                    return Ok(sent);
                }
            }
            SendStep::Full => {}
            SendStep::Failed(_) if sent > 0 => return Ok(sent),
            SendStep::Failed(error) => return Err(error),
        }
    }
}

/// Bytes that the peer has not read yet, for `SIOCOUTQ`.
pub fn unread(index: u32, fd: i32) -> Result<usize, Errno> {
    let slot = slot(index);
    let outgoing = slot.outgoing(slot.view()?.header());
    let kernel = calls::ioctl_int(fd, libc::TIOCOUTQ).unwrap_or(0).max(0) as usize;
    let (head, tail) =
        (outgoing.producer.head.load(Ordering::Acquire), outgoing.consumer.tail.load(Ordering::Acquire));
    Ok(kernel + readable(head, tail).unwrap_or(0) as usize)
}

/// Whether a send into the ring would not wait. `None` if the kernel knows: bytes go by TCP.
pub(crate) fn ring_is_writable(slot: &Slot) -> Option<bool> {
    let outgoing = slot.outgoing(slot.view().ok()?.header());
    if !goes_by_ring(slot) {
        return None;
    }
    let (head, tail) =
        (outgoing.producer.head.load(Ordering::Acquire), outgoing.consumer.tail.load(Ordering::SeqCst));
    let most = capacity(outgoing.producer.most.load(Ordering::Relaxed));
    Some(writable(head, tail, most).is_none_or(|room| has_room(room, most)))
}

/// Whether what is sent goes through the ring now.
pub(crate) fn goes_by_ring(slot: &Slot) -> bool {
    let Ok(view) = slot.view() else { return false };
    let producer = &slot.outgoing(view.header()).producer;
    producer.start.load(Ordering::Acquire) != 0
        && producer.end.load(Ordering::Acquire) == 0
        && producer.shut.load(Ordering::Acquire) == 0
}

/// Notes that this end shuts down sending; the companion is shut down afterwards.
pub fn note_shut(index: u32) {
    let slot = slot(index);
    if let Ok(view) = slot.view() {
        slot.outgoing(view.header()).producer.shut.store(1, Ordering::SeqCst);
        epoll::refresh(index);
    }
}

/// The room that a message finds. A small one goes in whole or not at all, as into the kernel's buffers, so that those of
/// several writers, and of handlers of signals, stay in one piece; whenever poll calls a ring writable it has room for one.
#[inline]
fn whole_or_none(room: u64, wanted: u64, most: u64) -> u64 {
    if room < wanted && !has_room(wanted - 1, most) { 0 } else { room }
}

struct Call<'a> {
    slot: &'static Slot,
    index: u32,
    view: View,
    fd: i32,
    buffers: Buffers<'a>,
    flags: i32,
}

impl Call<'_> {
    fn step(&self, skip: usize) -> SendStep {
        let me = whoami::owner();
        let lock = &self.slot.outgoing(self.view.header()).producer.lock;
        if self.slot.has(BROKEN) {
            return self.broken();
        }
        let here = stack::here();
        let entered = Entered::note(here);
        match lock.lock(me) {
            Taken::Free | Taken::FromTheDead => {}
            Taken::Again => self.interrupt(),
            Taken::Refused => {
                entered.leave();
                return self.broken();
            }
        }
        self.slot.sends_at.store(here, Ordering::Relaxed);
        let step = self.locked(skip);
        self.slot.sends_at.store(0, Ordering::Relaxed);
        lock.unlock(me);
        entered.leave();
        step
    }

    fn locked(&self, skip: usize) -> SendStep {
        let header = self.view.header();
        let producer = &self.slot.outgoing(header).producer;
        if producer.start.load(Ordering::Acquire) == 0 && !self.switch(header) {
            return self.by_tcp(skip);
        }
        let over = producer.end.load(Ordering::Acquire) != 0 || producer.shut.load(Ordering::Acquire) != 0;
        if !over {
            return self.by_ring(skip);
        }
        let asked = back::is_asked(self.slot.outgoing(header));
        if asked && back::take_back(self.slot, self.index, self.view, self.fd) == back::Flushed::Part {
            return SendStep::Full;
        }
        if hangup::resets_sends(self.slot, header) && companion::peer_has_ended(self.fd) {
            return self.reset(skip);
        }
        self.by_tcp(skip)
    }

    /// The peer is gone without having read all: one call reports that, and those that follow find a broken pipe.
    #[cold]
    fn reset(&self, skip: usize) -> SendStep {
        hangup::reset(self.slot, self.fd);
        if hangup::is_to_be_said(self.slot, self.fd) {
            return SendStep::Failed(Errno(libc::ECONNRESET));
        }
        self.by_tcp(skip)
    }

    /// Leaves TCP if the other side is ready. Whether it did.
    fn switch(&self, header: &Header) -> bool {
        let ready = header.attached.load(Ordering::SeqCst) & OPEN[1 - self.slot.side()] != 0;
        let outgoing = self.slot.outgoing(header);
        let moved_back = outgoing.producer.end.load(Ordering::Acquire) != 0
            || outgoing.wishes.back.load(Ordering::SeqCst) != 0;
        if !ready || moved_back || self.slot.has(PENDING) {
            return false;
        }
        // What was corked or said to have more behind it would stay in the kernel until the timer.
        let corked = sockets::option_int(self.fd, libc::IPPROTO_TCP, libc::TCP_CORK).unwrap_or(1) != 0;
        let Some(info) = companion::Info::of(self.fd).filter(|info| info.can_send() && !corked) else {
            return false;
        };
        let producer = &self.slot.outgoing(header).producer;
        let own = sockets::option_int(self.fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(i32::MAX);
        let theirs = header.ends[1 - self.slot.side()].receive_buffer.load(Ordering::Relaxed);
        producer.most.store(layout::most(own.max(0) as u32, theirs), Ordering::Relaxed);
        producer.start.store(info.accepted + 1, Ordering::SeqCst);
        count_switch();
        explain(self.fd, "upgraded", "sends through shared memory");
        self.slot.count.store(0, Ordering::Relaxed);
        epoll::refresh(self.index);
        true
    }

    fn by_tcp(&self, skip: usize) -> SendStep {
        match self.buffers.send(self.fd, skip, usize::MAX, self.flags | libc::MSG_DONTWAIT) {
            Ok(count) => SendStep::Moved(count),
            Err(Errno(libc::EAGAIN)) => SendStep::Full,
            Err(error) => {
                let shut = &self.slot.outgoing(self.view.header()).producer.shut;
                let gone = [libc::EPIPE, libc::ECONNRESET].contains(&error.0);
                if gone && shut.load(Ordering::Acquire) == 0 {
                    self.slot.raise(RESET_SAID); // a receive that follows finds the end
                }
                SendStep::Failed(error)
            }
        }
    }

    fn by_ring(&self, skip: usize) -> SendStep {
        let header = self.view.header();
        let outgoing = self.slot.outgoing(header);
        let producer = &outgoing.producer;
        let wanted = self.buffers.total().saturating_sub(skip);
        let head = producer.head.load(Ordering::Acquire);
        let most = capacity(producer.most.load(Ordering::Relaxed));
        let known = self.slot.read.load(Ordering::Relaxed);
        let sends = self.slot.count.load(Ordering::Relaxed).wrapping_add(1);
        self.slot.count.store(sends, Ordering::Relaxed);
        let (room, quiet) = match writable(head, known, most) {
            Some(room) if room >= wanted as u64 && sends < ASK_EVERY => (room, false),
            _ => {
                let tail = outgoing.consumer.tail.load(Ordering::SeqCst);
                let Some(room) = writable(head, tail, most) else { return self.broken() };
                let room = whole_or_none(room, wanted as u64, most);
                (room, self.peer_may_be_gone(head, tail, room))
            }
        };
        if quiet || self.slot.has(SUSPECT) {
            if companion::peer_has_ended(self.fd) {
                producer.end.store(head.wrapping_add(1), Ordering::SeqCst);
                epoll::refresh(self.index);
                let reset = hangup::resets_sends(self.slot, header);
                return if reset { self.reset(skip) } else { self.by_tcp(skip) };
            }
            self.slot.there.store(head as u32, Ordering::Relaxed);
        }
        let count = room.min(wanted as u64);
        if count == 0 && wanted > 0 {
            return SendStep::Full;
        }
        let far = count >= MUCH && outgoing.consumer.cpu.load(Ordering::Relaxed) != calls::current_cpu();
        self.view.put((self.slot.side(), head), self.buffers, skip, count as usize, far);
        let until = head.wrapping_add(count);
        self.slot.publishes.store(until.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.slot.has(INTERRUPTED) {
            self.slot.publishes.store(0, Ordering::Relaxed);
            return self.by_tcp(skip); // where the handler's bytes are
        }
        if let Err(now) = producer.head.compare_exchange(head, until, Ordering::SeqCst, Ordering::Relaxed) {
            // As a rule a handler has just done it, and took the word that said so. If none has, the head is a stranger's, and
            // these bytes, or those of another sender, are not where the receiver looks for them.
            if now != until && self.slot.publishes.load(Ordering::Relaxed) == until.wrapping_add(1) {
                return self.broken();
            }
        }
        compiler_fence(Ordering::SeqCst);
        self.slot.publishes.store(0, Ordering::Relaxed);
        if self.slot.trickle.load(Ordering::Relaxed) != 0 {
            self.slot.trickle.store(0, Ordering::Relaxed);
        }
        note_cpu(&producer.cpu);
        if outgoing.wishes.back.load(Ordering::SeqCst) != 0 {
            // What the kernel does not take at once follows with the next call, or when the bell is heard.
            if back::take_back(self.slot, self.index, self.view, self.fd) == back::Flushed::Part {
                self.slot.ring_own(header);
            }
        } else if outgoing.wishes.readers.load(Ordering::SeqCst) > 0 {
            self.slot.ring_peer(header);
        }
        SendStep::Moved(count as usize)
    }

    /// This thread is inside of a send already: this is a handler of a signal, or one has left that send in a way that
    /// [`leave`](mod@crate::leave) was not told of. What
    /// has its place in the ring is published; else nothing is put there any more, since the interrupted send may be copying
    /// to where these bytes would go.
    #[cold]
    fn interrupt(&self) {
        let producer = &self.slot.outgoing(self.view.header()).producer;
        let head = producer.head.load(Ordering::SeqCst);
        match self.slot.publishes.swap(0, Ordering::SeqCst) {
            0 => {
                self.slot.raise(INTERRUPTED);
                if producer.end.load(Ordering::Acquire) != 0 {
                    return;
                }
                // Also if the ring is not used yet: a send that is about to change to it finds that it is over.
                producer.end.store(head.wrapping_add(1), Ordering::SeqCst);
                explain(self.fd, "moved back to TCP", "a signal handler sent in the middle of a send");
                epoll::refresh(self.index);
            }
            until => {
                let _ = producer.head.compare_exchange(
                    head,
                    until.wrapping_sub(1),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// Notes how far the peer has read. Whether it is time to ask if it is there: the ring is full, or the peer has read nothing
    /// for a number of sends. The lock is held.
    fn peer_may_be_gone(&self, head: u64, tail: u64, room: u64) -> bool {
        let (slot, order) = (self.slot, Ordering::Relaxed);
        let due = slot.count.load(order) >= ASK_EVERY;
        if due {
            slot.count.store(0, order);
        }
        let quiet = slot.read.load(order) == tail && head != tail;
        slot.read.store(tail, order);
        room == 0 || due && quiet && self.is_time_to_ask()
    }

    fn is_time_to_ask(&self) -> bool {
        let now = calls::now();
        let due = now.saturating_sub(self.slot.asked.load(Ordering::Relaxed)) > APART;
        if due {
            self.slot.asked.store(now, Ordering::Relaxed);
        }
        due
    }

    fn broken(&self) -> SendStep {
        self.slot.raise(BROKEN);
        SendStep::Failed(Errno(libc::ECONNRESET))
    }

    fn wait(&self, sent: usize, deadline: &mut Option<(Deadline, bool)>) -> SendStep {
        let header = self.view.header();
        let nonblocking = self.flags & libc::MSG_DONTWAIT != 0
            || self.slot.own_end(header).nonblocking.load(Ordering::Relaxed) != 0;
        if nonblocking {
            back::serve(self.fd, self.index);
            epoll::wants_room(self.index);
            return SendStep::Failed(Errno(libc::EAGAIN));
        }
        let outgoing = self.slot.outgoing(header);
        let by_ring = goes_by_ring(self.slot);
        let tail = outgoing.consumer.tail.load(Ordering::Relaxed);
        let came = || outgoing.consumer.tail.load(Ordering::Acquire) != tail;
        if by_ring && wait::spin(outgoing.consumer.cpu.load(Ordering::Relaxed), came) {
            return SendStep::Full;
        }
        let (deadline, limited) = *deadline.get_or_insert_with(|| {
            let limit = sockets::time_limit(self.fd, libc::SO_SNDTIMEO);
            (Deadline::after(limit), limit.is_some())
        });
        let outcome = |slept: Result<usize, Errno>| match slept {
            Ok(0) => SendStep::Failed(Errno(libc::EAGAIN)),
            Err(Errno(libc::EINTR)) if wait::interrupts(limited) => SendStep::Failed(Errno(libc::EINTR)),
            Ok(_) | Err(Errno(libc::EINTR)) => SendStep::Full,
            Err(error) => SendStep::Failed(error),
        };
        if !by_ring {
            let companion = libc::pollfd { fd: self.fd, events: libc::POLLOUT, revents: 0 };
            let mut fds = [companion, wait::signals::NONE, wait::signals::NONE];
            return outcome(wait::signals::sleep(&mut fds, deadline.left()));
        }
        back::serve(self.fd, self.index);
        let asleep = Asleep::announce(self.slot, header, Want::Room);
        let step = match self.step(sent) {
            SendStep::Full => outcome(asleep.sleep(self.fd, deadline.left())),
            step => step,
        };
        asleep.wake();
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_find_room_for_all_of_them_or_none() {
        assert_eq!(whole_or_none(100, 100, 3000), 100);
        assert_eq!(whole_or_none(99, 100, 3000), 0);
        assert_eq!((whole_or_none(999, 1000, 3000), whole_or_none(999, 1001, 3000)), (0, 999));
        assert_eq!((whole_or_none(0, 0, 3000), whole_or_none(5, 0, 3000)), (0, 5));
        assert!(has_room(1000, 3000), "poll calls it writable when the largest of these fits");
    }
}
