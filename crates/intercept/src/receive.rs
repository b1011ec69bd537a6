//! Receiving: the rest that still comes by TCP, then the ring, and the end that the companion reports.

mod peek;
mod trickle;

use std::sync::atomic::Ordering;

use viaduct_os::bare::lock::Taken;
use viaduct_os::bare::stack::{self, Entered};
use viaduct_os::bare::{Errno, calls, sockets, whoami};

use crate::endpoint::{BROKEN, RESET_SAID, SHUT_READ, SUSPECT, Slot, note_cpu, slot};
use crate::explain::explain;
use crate::layout::{BY_RING, BY_TCP, BY_TCP_AGAIN, capacity, has_room, readable};
use crate::raw::{Buffers, View, peek};
use crate::wait::{self, Asleep, Deadline, Want};
use crate::{back, companion, hangup};

/// What one look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveStep {
    Moved(usize),
    End,
    Empty,
    Failed(Errno),
}

/// How closely one looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Memory only, once the ring is in use.
    Quick,
    /// At the companion, too, if the ring is empty.
    Full,
}

/// Receives as `read` does, which gives nothing at once where there is no room for anything.
///
/// # Errors
/// As `read`.
pub fn read(index: u32, fd: i32, buffers: Buffers<'_>, flags: i32) -> Result<usize, Errno> {
    if buffers.total() == 0 { Ok(0) } else { receive(index, fd, buffers, flags) }
}

/// Receives as `recv` does, with its flags.
///
/// # Errors
/// As `recv`.
pub fn receive(index: u32, fd: i32, buffers: Buffers<'_>, flags: i32) -> Result<usize, Errno> {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        return buffers.receive(fd, 0, usize::MAX, flags);
    }
    let slot = slot(index);
    let call = Call { slot, index, view: slot.view()?, fd, buffers, flags };
    let total = buffers.total();
    if total == 0 {
        return call.nothing();
    }
    let all = flags & libc::MSG_WAITALL != 0;
    if all && flags & libc::MSG_PEEK != 0 {
        return call.peek_all(total);
    }
    let mut got = 0;
    let mut wait = None;
    loop {
        let step = match call.step(got, Look::Quick) {
            ReceiveStep::Empty if got > 0 && !all => ReceiveStep::End,
            ReceiveStep::Empty => call.wait(got, &mut wait),
            step => step,
        };
        match step {
            ReceiveStep::Moved(count) => {
                got += count;
                if !all || got >= total || count == 0 {
                    return Ok(got);
                }
            }
            ReceiveStep::Empty => {}
            ReceiveStep::End => return Ok(got),
            ReceiveStep::Failed(_) if got > 0 => return Ok(got),
            ReceiveStep::Failed(error) => return Err(error),
        }
    }
}

/// Bytes that could be received without waiting, for `FIONREAD`.
pub fn available(index: u32, fd: i32) -> Result<usize, Errno> {
    let slot = slot(index);
    let header = slot.view()?.header();
    let kernel = calls::ioctl_int(fd, libc::FIONREAD).unwrap_or(0).max(0) as usize;
    let incoming = slot.incoming(header);
    if incoming.producer.start.load(Ordering::Acquire) == 0 {
        return Ok(kernel);
    }
    let (head, tail) =
        (incoming.producer.head.load(Ordering::Acquire), incoming.consumer.tail.load(Ordering::Acquire));
    Ok(kernel + readable(head, tail).unwrap_or(0) as usize)
}

/// Whether the ring has bytes that come before all that the kernel has.
pub fn has_ring_bytes(index: u32) -> bool {
    let slot = slot(index);
    let Ok(view) = slot.view() else { return false };
    let incoming = slot.incoming(view.header());
    incoming.consumer.phase.load(Ordering::Acquire) == BY_RING
        && incoming.producer.head.load(Ordering::Acquire) != incoming.consumer.tail.load(Ordering::Acquire)
}

/// Whether bytes come through the ring now.
pub(crate) fn comes_by_ring(slot: &Slot) -> bool {
    let phase = |view: View| slot.incoming(view.header()).consumer.phase.load(Ordering::Acquire);
    slot.view().is_ok_and(|view| phase(view) == BY_RING)
}

/// Whether a receive from the ring would not wait. `None` if the kernel knows: bytes come by TCP.
pub(crate) fn ring_is_readable(slot: &Slot, fd: i32) -> Option<bool> {
    let header = slot.view().ok()?.header();
    let incoming = slot.incoming(header);
    match incoming.consumer.phase.load(Ordering::Acquire) {
        BY_TCP => {
            let start = incoming.producer.start.load(Ordering::Acquire);
            if start == 0 || companion::unread_of(fd, start - 1) != Some(0) {
                return None;
            }
        }
        BY_RING => {}
        _ => return None,
    }
    let tail = incoming.consumer.tail.load(Ordering::Acquire);
    if incoming.producer.end.load(Ordering::Acquire) == tail.wrapping_add(1) {
        return None;
    }
    Some(incoming.producer.head.load(Ordering::SeqCst) != tail)
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
    fn step(&self, skip: usize, look: Look) -> ReceiveStep {
        let me = whoami::owner();
        let lock = &self.slot.incoming(self.view.header()).consumer.lock;
        let here = stack::here();
        let entered = Entered::note(here);
        if self.slot.has(BROKEN) || lock.lock(me) == Taken::Refused {
            entered.leave();
            return self.broken();
        }
        self.slot.receives_at.store(here, Ordering::Relaxed);
        let step = self.locked(skip, look);
        self.slot.receives_at.store(0, Ordering::Relaxed);
        lock.unlock(me);
        entered.leave();
        if step == ReceiveStep::Failed(Errno(libc::ECONNRESET)) && self.slot.has(RESET_SAID) {
            hangup::note_said(self.index, self.fd);
        }
        step
    }

    fn locked(&self, skip: usize, look: Look) -> ReceiveStep {
        let incoming = self.slot.incoming(self.view.header());
        // A direction changes its way twice at most; more turns mean that a peer plays with the words.
        for _ in 0..8 {
            match incoming.consumer.phase.load(Ordering::Acquire) {
                BY_TCP => {
                    let start = incoming.producer.start.load(Ordering::Acquire);
                    let left = match start {
                        0 => usize::MAX as u64,
                        start => match companion::unread_of(self.fd, start - 1) {
                            Some(left) => left,
                            None => return self.broken(),
                        },
                    };
                    if left == 0 {
                        incoming.consumer.phase.store(BY_RING, Ordering::Release);
                        explain(self.fd, "upgraded", "receives through shared memory");
                        continue;
                    }
                    let step = self.by_tcp(skip, left as usize);
                    // The peer may have moved to the ring just now, and closed the companion behind it.
                    let moved = start == 0 && incoming.producer.start.load(Ordering::SeqCst) != 0;
                    if moved && matches!(step, ReceiveStep::End | ReceiveStep::Empty) {
                        continue;
                    }
                    return step;
                }
                BY_RING => match self.by_ring(skip, look) {
                    Some(step) => return step,
                    None => continue,
                },
                BY_TCP_AGAIN => return self.by_tcp(skip, usize::MAX),
                _ => return self.broken(),
            }
        }
        self.broken()
    }

    fn by_tcp(&self, skip: usize, most: usize) -> ReceiveStep {
        let flags = self.flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        match self.buffers.receive(self.fd, skip, most, flags) {
            Ok(0) if self.buffers.total() == 0 => ReceiveStep::Moved(0),
            Ok(0) => ReceiveStep::End,
            Ok(count) => ReceiveStep::Moved(count),
            Err(Errno(libc::EAGAIN)) => ReceiveStep::Empty,
            Err(error) => ReceiveStep::Failed(error),
        }
    }

    /// `None` if it has to be looked at again.
    fn by_ring(&self, skip: usize, look: Look) -> Option<ReceiveStep> {
        let header = self.view.header();
        let incoming = self.slot.incoming(header);
        let (producer, consumer) = (&incoming.producer, &incoming.consumer);
        let tail = consumer.tail.load(Ordering::Acquire);
        let head = producer.head.load(Ordering::SeqCst);
        let Some(inside) = readable(head, tail) else { return Some(self.broken()) };
        if inside == 0 {
            if producer.end.load(Ordering::Acquire) == tail.wrapping_add(1) {
                consumer.phase.store(BY_TCP_AGAIN, Ordering::Release);
                return None;
            }
            return if look == Look::Quick { Some(ReceiveStep::Empty) } else { self.ended(head) };
        }
        let wanted = self.buffers.total().saturating_sub(skip);
        let count = inside.min(wanted as u64);
        if self.flags & libc::MSG_TRUNC == 0 {
            self.view.take(1 - self.slot.side(), tail, self.buffers, skip, count as usize);
        }
        if self.flags & libc::MSG_PEEK != 0 {
            return Some(ReceiveStep::Moved(count as usize));
        }
        let taken = consumer.tail.compare_exchange(
            tail,
            tail.wrapping_add(count),
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return None; // a signal handler was here in between
        }
        note_cpu(&consumer.cpu);
        let trickle = &self.slot.trickle;
        trickle.store(trickle::after_receive(trickle.load(Ordering::Relaxed), count), Ordering::Relaxed);
        let left = inside - count;
        let most = || capacity(producer.most.load(Ordering::Relaxed));
        if incoming.writers.0.load(Ordering::SeqCst) > 0 && has_room(most().saturating_sub(left), most()) {
            self.slot.ring_peer(header);
        }
        if left > 0 && incoming.wishes.readers.load(Ordering::SeqCst) > 0 {
            self.slot.ring_own(header); // others of this end sleep, and there is something for them
        }
        Some(ReceiveStep::Moved(count as usize))
    }

    /// The ring is empty: what does the companion say?
    fn ended(&self, head: u64) -> Option<ReceiveStep> {
        let header = self.view.header();
        let incoming = self.slot.incoming(header);
        let said = peek(self.fd);
        let changed = incoming.producer.head.load(Ordering::SeqCst) != head
            || incoming.producer.end.load(Ordering::SeqCst) != 0;
        match said {
            Err(Errno(libc::EAGAIN)) if changed => None,
            Err(Errno(libc::EAGAIN)) => Some(ReceiveStep::Empty),
            _ if changed => None, // what came before the end is received first
            Ok(0) => {
                self.slot.raise(SUSPECT);
                Some(self.end())
            }
            Ok(_) => Some(self.broken()), // bytes by TCP that were not announced
            Err(error) => {
                self.slot.raise(SUSPECT);
                Some(ReceiveStep::Failed(error))
            }
        }
    }

    /// The peer has ended its stream. If it is gone, and has not read all that was sent, that is a reset.
    fn end(&self) -> ReceiveStep {
        if self.slot.has(SHUT_READ | RESET_SAID) || !hangup::is_reset(self.slot, self.view.header()) {
            return ReceiveStep::End;
        }
        self.slot.raise(RESET_SAID);
        ReceiveStep::Failed(Errno(libc::ECONNRESET))
    }

    fn broken(&self) -> ReceiveStep {
        self.slot.raise(BROKEN);
        ReceiveStep::Failed(Errno(libc::ECONNRESET))
    }

    fn does_not_wait(&self) -> bool {
        self.flags & libc::MSG_DONTWAIT != 0
            || self.slot.own_end(self.view.header()).nonblocking.load(Ordering::Relaxed) != 0
    }

    /// Without room for anything: waits for bytes once, as TCP does, and leaves them where they are.
    fn nothing(&self) -> Result<usize, Errno> {
        let step = match self.step(0, Look::Quick) {
            ReceiveStep::Empty => self.wait(0, &mut None),
            step => step,
        };
        match step {
            ReceiveStep::Failed(Errno(libc::EAGAIN | libc::EINTR)) if !self.does_not_wait() => Ok(0),
            ReceiveStep::Failed(error) => Err(error),
            _ => Ok(0),
        }
    }

    /// Nothing was there: waits as the socket says, and looks again.
    fn wait(&self, got: usize, deadline: &mut Option<(Deadline, bool)>) -> ReceiveStep {
        let header = self.view.header();
        if self.does_not_wait() {
            back::serve(self.fd, self.index);
            return match self.step(got, Look::Full) {
                ReceiveStep::Empty => ReceiveStep::Failed(Errno(libc::EAGAIN)),
                step => step,
            };
        }
        let incoming = self.slot.incoming(header);
        let by_ring = incoming.consumer.phase.load(Ordering::Relaxed) == BY_RING;
        let tail = incoming.consumer.tail.load(Ordering::Relaxed);
        let came = || incoming.producer.head.load(Ordering::Acquire) != tail;
        let cpu = incoming.producer.cpu.load(Ordering::Relaxed);
        let row = self.slot.trickle.load(Ordering::Relaxed);
        if by_ring && let Some(steps) = trickle::steps(row) {
            wait::linger(cpu, steps);
            let bytes = incoming.producer.head.load(Ordering::Acquire).wrapping_sub(tail);
            self.slot.trickle.store(trickle::after_linger(row, bytes), Ordering::Relaxed);
        }
        if by_ring && wait::spin(cpu, came) {
            return ReceiveStep::Empty;
        }
        let (deadline, limited) = *deadline.get_or_insert_with(|| {
            let limit = sockets::time_limit(self.fd, libc::SO_RCVTIMEO);
            (Deadline::after(limit), limit.is_some())
        });
        back::serve(self.fd, self.index);
        let asleep = Asleep::announce(self.slot, header, Want::Bytes);
        let step = match self.step(got, Look::Full) {
            ReceiveStep::Empty => match asleep.sleep(self.fd, deadline.left()) {
                Ok(0) => ReceiveStep::Failed(Errno(libc::EAGAIN)),
                Err(Errno(libc::EINTR)) if wait::interrupts(limited) => {
                    ReceiveStep::Failed(Errno(libc::EINTR))
                }
                Ok(_) | Err(Errno(libc::EINTR)) => ReceiveStep::Empty,
                Err(error) => ReceiveStep::Failed(error),
            },
            step => step,
        };
        asleep.wake();
        step
    }
}
