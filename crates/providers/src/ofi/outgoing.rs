//! Sending: descriptors of the send queue into frames, as far as credits and buffers allow. The rest of them waits in the
//! lane and follows as credits come back, moved by the owner of the NIC if it polls, else by the control thread: what was
//! posted needs no further call. (The model keeps back descriptors with a fence behind a read; those wait for the owner.)
//!
//! Short pieces are copied into a buffer of the lane, and the descriptor is done at once. Longer ones leave straight from
//! the memory of the descriptor, which is then done when libfabric has let go of it.

use smallvec::SmallVec;
use std::collections::VecDeque;

use viaduct_via::raw::RawSegment;
use viaduct_via::{MemHandle, Op, Reliability, RemoteAddress, Work};

use super::lane::Lane;
use super::rdma::{Flight, Into, Waits, gather};
use super::wire::{FIRST, Head, Kind, LAST, SWAP};

/// Pieces longer than this are not copied, where that is possible.
const STRAIGHT: usize = 4 << 10;

/// The longest message that is taken by value: what does not go out at once is copied.
pub(super) const MOST_BY_VALUE: u32 = 1 << 20;

/// In place of the index of a descriptor: none waits for the outcome.
const BY_VALUE: u32 = u32::MAX;

/// A descriptor that is being handed over.
pub(super) struct Outgoing {
    /// In the ledger.
    pub(super) index: u32,
    op: Op,
    segments: SmallVec<[RawSegment; 2]>,
    total: u32,
    immediate: Option<u32>,
    remote: RemoteAddress,
    operands: [u64; 2],
    /// Number of the RDMA operation.
    number: u32,
    /// How far it is.
    offset: u32,
    /// All pieces are out; the immediate data of an RDMA write is not.
    written: bool,
    /// The number of its last uncopied frame.
    pub(super) uncopied: Option<u32>,
    /// The memory of a message by value, of which there is no descriptor.
    owned: Option<Box<[u8]>>,
}

impl Outgoing {
    fn of(work: &Work, index: u32, number: u32) -> Outgoing {
        Outgoing {
            index,
            op: work.op,
            segments: SmallVec::from_slice(work.segments()),
            total: work.total,
            immediate: work.immediate,
            remote: work.remote,
            operands: work.operands,
            number,
            offset: 0,
            written: false,
            uncopied: None,
            owned: None,
        }
    }

    /// A message by value that does not go out in one frame.
    fn of_value(mut bytes: Box<[u8]>, immediate: Option<u32>) -> Outgoing {
        let (addr, total) = (bytes.as_mut_ptr(), bytes.len() as u32);
        let handle = MemHandle::NONE;
        Outgoing {
            index: BY_VALUE,
            op: Op::Send,
            segments: SmallVec::from_slice(&[RawSegment { addr, len: total, handle }]),
            total,
            immediate,
            remote: RemoteAddress { addr: 0, handle },
            operands: [0; 2],
            number: 0,
            offset: 0,
            written: false,
            uncopied: None,
            owned: Some(bytes),
        }
    }
}

/// How far handing over a descriptor came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handed {
    /// All of it is out, and no report of it is due.
    Done,
    /// A completion will follow.
    Pending,
    /// The connection is over.
    Busy,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// libfabric has it.
    UnderWay,
    Sent,
    /// libfabric has let go of it without having sent it: what waits for it is never done.
    Unsent,
}

/// Uncopied frames: those that left from the memory of descriptors, and which of them libfabric has let go of.
#[derive(Default)]
pub(super) struct Uncopied {
    /// Buffers with their headers, in order, and what became of them.
    under_way: VecDeque<(u16, Frame)>,
    posted: u32,
    done: u32,
}

impl Uncopied {
    /// Whether libfabric reads none of that memory any more.
    pub(super) fn is_let_go(&self) -> bool {
        self.under_way.iter().all(|(_, frame)| *frame != Frame::UnderWay)
    }

    /// One more; returns its number.
    fn post(&mut self, buffer: u16) -> u32 {
        self.under_way.push_back((buffer, Frame::UnderWay));
        self.posted = self.posted.wrapping_add(1);
        self.posted
    }

    /// A send is done; whether it, and those before it, made something new.
    pub(super) fn on_sent(&mut self, buffer: u16) -> bool {
        let Some(entry) = self.under_way.iter_mut().find(|(b, _)| *b == buffer) else { return false };
        entry.1 = Frame::Sent;
        let before = self.done;
        while let Some((_, Frame::Sent)) = self.under_way.front() {
            self.under_way.pop_front();
            self.done = self.done.wrapping_add(1);
        }
        self.done != before
    }

    /// A send failed: its memory is free, and it is not done, nor is what came after it.
    pub(super) fn on_unsent(&mut self, buffer: u16) {
        if let Some(entry) = self.under_way.iter_mut().find(|(b, _)| *b == buffer) {
            entry.1 = Frame::Unsent;
        }
    }

    /// Whether everything up to this one was sent.
    pub(super) fn is_done(&self, number: Option<u32>) -> bool {
        number.is_none_or(|number| self.done.wrapping_sub(number) as i32 >= 0)
    }
}

impl Lane {
    /// Takes a send-queue descriptor over.
    pub(super) fn hand_over(&mut self, work: &Work, index: u32) -> Handed {
        if self.end.is_some() {
            // The next poll reports the break, and everything is flushed.
            return Handed::Busy;
        }
        let number = self.number(work);
        let mut out = Outgoing::of(work, index, number);
        if !self.outgoing.is_empty() || !self.advance(&mut out) {
            self.outgoing.push_back(out);
            return Handed::Pending;
        }
        if self.finish_sending(&out, false) { Handed::Done } else { Handed::Pending }
    }

    /// Goes on with the descriptors that are not all out.
    pub(super) fn send_on(&mut self) {
        while self.end.is_none() {
            let Some(mut out) = self.outgoing.pop_front() else { return };
            if !self.advance(&mut out) {
                self.outgoing.push_front(out);
                return;
            }
            self.finish_sending(&out, true);
            self.news = true;
            self.blocked = false;
        }
    }

    /// Sends bytes by value; false if it cannot now. What goes into one frame goes at once or not at all, of what does not
    /// a copy is made.
    pub(super) fn hand_over_value(&mut self, parts: &[&[u8]], total: u32, immediate: Option<u32>) -> bool {
        if !self.outgoing.is_empty() {
            self.blocked = true;
            return false;
        }
        if total as usize > self.copied {
            let mut out = Outgoing::of_value(parts.concat().into_boxed_slice(), immediate);
            if self.advance(&mut out) {
                self.finish_sending(&out, false);
            } else {
                self.outgoing.push_back(out);
            }
            return true;
        }
        let mut head = Head::new(Kind::Data);
        head.flags = FIRST | LAST;
        head.total = total.into();
        head.set_immediate(immediate);
        let sent = self.transmit(Kind::Data, head, total as usize, |to| {
            let mut at = 0;
            for part in parts {
                // SAFETY: all parts together are no longer than a frame's payload, for which there is room.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.add(at), part.len()) };
                at += part.len();
            }
        });
        self.blocked |= !sent;
        if sent && self.ours.reliability == Reliability::ReliableReception {
            self.acks_awaited = self.acks_awaited.wrapping_add(1);
            self.flights.push_back(Flight { index: BY_VALUE, length: 0, waits: Waits::Ack, uncopied: None });
        }
        sent
    }

    /// Sends what there is room for. True when all of it is out.
    fn advance(&mut self, out: &mut Outgoing) -> bool {
        match out.op {
            Op::Send => self.pieces(Kind::Data, out),
            Op::RdmaWrite => {
                let before = out.written;
                if self.pieces(Kind::Write, out) && !before {
                    // Its outcome may come before there is room for the immediate data.
                    self.await_reply(out);
                }
                out.written && self.immediate_after_write(out)
            }
            _ => {
                let sent = self.fetch(out);
                if sent {
                    self.await_reply(out);
                }
                sent
            }
        }
    }

    /// The last piece of an RDMA operation is out. If immediate data follows, the descriptor is done with that, and the
    /// outcome only tells of a refusal.
    fn await_reply(&mut self, out: &Outgoing) {
        let into = Into::of(out.op, &out.segments, out.total);
        let half = out.immediate.is_some();
        let waits = Waits::Reply { number: out.number, into, done: None, half };
        let (index, length, uncopied) = (out.index, out.total, out.uncopied);
        self.flights.push_back(Flight { index, length, waits, uncopied });
    }

    /// All of a descriptor is out. True if it is done with that and the caller says so; else a flight does.
    fn finish_sending(&mut self, out: &Outgoing, told: bool) -> bool {
        let reception = self.ours.reliability == Reliability::ReliableReception;
        let message = out.op == Op::Send || out.immediate.is_some();
        if out.op.is_rdma() && !message {
            return false;
        }
        let acknowledged = reception && message;
        let (index, length, uncopied) = (out.index, out.total, out.uncopied);
        if acknowledged {
            self.acks_awaited = self.acks_awaited.wrapping_add(1);
        }
        if !acknowledged && !told && self.flights.is_empty() && self.uncopied.is_done(uncopied) {
            return true;
        }
        let waits = if acknowledged { Waits::Ack } else { Waits::Turn };
        self.flights.push_back(Flight { index, length, waits, uncopied });
        false
    }

    /// Sends the pieces of a message or of an RDMA write. True when the last one is out.
    fn pieces(&mut self, kind: Kind, out: &mut Outgoing) -> bool {
        while !out.written {
            let left = (out.total - out.offset) as usize;
            // What is ours goes when it is out, whether libfabric has let go of it or not: it is copied.
            let cut = match out.owned {
                None => self.cut(&out.segments, out.offset as usize, left.min(self.room)),
                Some(_) => None,
            };
            let len = if cut.is_some() { left.min(self.room) } else { left.min(self.copied) };
            let last = len == left;
            let mut head = Head::new(kind);
            head.flags = if out.offset == 0 { FIRST } else { 0 } | if last { LAST } else { 0 };
            head.total = out.total.into();
            head.offset = out.offset.into();
            if kind == Kind::Data {
                head.set_immediate(out.immediate);
            } else {
                head.number = out.number.into();
                head.handle = out.remote.handle.number().into();
                head.address = out.remote.addr.into();
            }
            let sent = match cut {
                Some(cut) => match self.transmit_uncopied(kind, head, len, &cut) {
                    Some(buffer) => {
                        out.uncopied = Some(self.uncopied.post(buffer));
                        true
                    }
                    None => false,
                },
                None => self.transmit(kind, head, len, |to| {
                    // SAFETY: posted segments are valid until the descriptor is back; the piece lies inside them, fits.
                    unsafe { gather(&out.segments, out.offset as usize, to, len) };
                }),
            };
            if !sent {
                return false;
            }
            out.offset += len as u32;
            out.written = last;
        }
        true
    }

    /// The places of a piece that leaves uncopied; `None` if it has to be copied.
    fn cut(
        &self,
        segments: &[RawSegment],
        mut offset: usize,
        len: usize,
    ) -> Option<SmallVec<[RawSegment; 4]>> {
        if len <= STRAIGHT || self.most_places == 0 {
            return None;
        }
        let (mut cut, mut left) = (SmallVec::new(), len);
        for s in segments {
            let have = s.len as usize;
            if offset >= have {
                offset -= have;
                continue;
            }
            let n = left.min(have - offset);
            if n == 0 {
                break;
            }
            if cut.len() == self.most_places {
                return None;
            }
            // SAFETY: inside the segment.
            cut.push(RawSegment { addr: unsafe { s.addr.add(offset) }, len: n as u32, handle: s.handle });
            left -= n;
            offset = 0;
        }
        Some(cut)
    }

    /// Says that an RDMA write with immediate data is out. Returns false if there is no room for the frame now.
    fn immediate_after_write(&mut self, out: &Outgoing) -> bool {
        if out.immediate.is_none() {
            return true;
        }
        let mut head = Head::new(Kind::Written);
        head.total = out.total.into();
        head.set_immediate(out.immediate);
        self.transmit(Kind::Written, head, 0, |_| {})
    }

    /// Asks for a read or an atomic operation. Returns false if there is no room for the frame now.
    fn fetch(&mut self, out: &Outgoing) -> bool {
        let (kind, len) = if out.op.is_atomic() { (Kind::Atomic, 16) } else { (Kind::Read, 0) };
        let mut head = Head::new(kind);
        head.flags = if out.op == Op::CompareSwap { SWAP } else { 0 };
        head.number = out.number.into();
        head.total = out.total.into();
        head.handle = out.remote.handle.number().into();
        head.address = out.remote.addr.into();
        let [a, b] = out.operands.map(u64::to_le_bytes);
        let operands: [u8; 16] = [a, b].concat().try_into().expect("twice eight bytes");
        self.transmit(kind, head, len, |to| {
            // SAFETY: there is room for a frame's payload.
            unsafe { std::ptr::copy_nonoverlapping(operands.as_ptr(), to, len) };
        })
    }

    fn number(&mut self, work: &Work) -> u32 {
        if work.op.is_rdma() {
            self.next_number = self.next_number.wrapping_add(1);
        }
        self.next_number
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn uncopied_frames_are_done_in_order_whatever_the_order_of_completions() {
        let mut uncopied = Uncopied::default();
        assert!(uncopied.is_let_go() && uncopied.is_done(None));
        let numbers: Vec<u32> = [7, 3, 9].map(|buffer| uncopied.post(buffer)).into();
        assert!(!uncopied.is_done(Some(numbers[0])));
        assert!(!uncopied.on_sent(3), "the first is still under way");
        assert!(!uncopied.is_done(Some(numbers[1])));
        assert!(uncopied.on_sent(7));
        assert!(uncopied.is_done(Some(numbers[1])) && !uncopied.is_done(Some(numbers[2])));
        assert!(!uncopied.on_sent(7), "copied this time");
        assert!(uncopied.on_sent(9) && uncopied.is_done(Some(numbers[2])) && uncopied.is_let_go());
    }

    #[test]
    fn a_frame_that_could_not_be_sent_is_let_go_and_never_done() {
        let mut uncopied = Uncopied::default();
        let numbers: Vec<u32> = [4, 5].map(|buffer| uncopied.post(buffer)).into();
        uncopied.on_unsent(4);
        assert!(!uncopied.is_let_go(), "the second is still under way");
        assert!(!uncopied.on_sent(5) && uncopied.is_let_go());
        assert!(numbers.iter().all(|number| !uncopied.is_done(Some(*number))));
    }
}
