//! Descriptors: what the program wrote into its own, as an order to the model; and how it went, back into it.
//!
//! The memory is the program's, so is the moment at which it looks: a status is stored last, with release.

use std::sync::atomic::{AtomicU32, Ordering};

use viaduct_via::raw::{self, RawOrder, RawSegment};
use viaduct_via::{Completion, Descriptor, MemHandle, Op, Queue, RemoteAddress, Status};

use crate::abi::{CDescriptor, ControlSegment, Return, Segment, control, status};

/// Bytes before the first segment.
pub(crate) const CONTROL_BYTES: u64 = size_of::<ControlSegment>() as u64;
/// Segment count and control word, read as one, of a plain send or receive of one piece.
const PLAIN: u32 = u32::from_ne_bytes([1u16.to_ne_bytes()[0], 1u16.to_ne_bytes()[1], 0, 0]);
/// Bytes of each segment.
pub(crate) const SEGMENT_BYTES: u64 = size_of::<Segment>() as u64;

/// The data segments of a descriptor, each read from the program's memory once: a peer may write there. Those of no bytes
/// say nothing and are left out.
pub(crate) struct Segments {
    next: *const Segment,
    left: usize,
}

impl Iterator for Segments {
    type Item = RawSegment;

    #[inline]
    fn next(&mut self) -> Option<RawSegment> {
        while self.left > 0 {
            // SAFETY: the maker of this value has checked that so many segments are there.
            let segment = unsafe { self.next.read_volatile() };
            self.next = self.next.wrapping_add(1);
            self.left -= 1;
            if segment.length > 0 {
                let handle = MemHandle::from_number(segment.handle);
                return Some(RawSegment { addr: segment.data as *mut u8, len: segment.length, handle });
            }
        }
        None
    }
}

/// What a descriptor asks for. What is wrong with it is told by its status, when its turn comes.
///
/// # Safety
/// At `at` is a descriptor with the control segment `cs` and as many segments as that says.
#[inline(never)]
pub(crate) unsafe fn order(
    at: *mut CDescriptor,
    cs: &ControlSegment,
    queue: Queue,
    most_segments: usize,
) -> (RawOrder, Segments) {
    let first = at.cast::<Segment>().cast_const().wrapping_add((CONTROL_BYTES / SEGMENT_BYTES) as usize);
    let mut segments = Segments { next: first, left: usize::from(cs.seg_count) };
    let mut order = RawOrder {
        op: if queue == Queue::Send { Op::Send } else { Op::Receive },
        fence: false,
        immediate: None,
        remote: RemoteAddress { addr: 0, handle: MemHandle::NONE },
        context: at as u64,
        flaw: Status::Success,
        // Receives are posted again as they came back, with the length of what arrived.
        length: (queue == Queue::Send).then_some(cs.length),
    };
    if cs.control != 0 {
        order.flaw = orders_of(cs, queue, &mut order, &mut segments);
    }
    if segments.left > most_segments {
        order.flaw = Status::FormatError;
    }
    if order.flaw == Status::FormatError {
        segments.left = 0;
    }
    (order, segments)
}

/// Marks the program's descriptor as posted, and lets a used one stand for it, if it asks for what the used one did the
/// last time: a plain send or receive of one piece. Returns false, and does nothing, if it does not.
///
/// # Safety
/// At `at` is a descriptor with room for one segment, whose memory is the library's until the descriptor is back.
#[inline(always)]
pub(crate) unsafe fn refill_alike(used: &mut Descriptor, at: *mut CDescriptor, queue: Queue) -> bool {
    // Each word once: a peer may write there.
    // SAFETY: control segment and one segment are there.
    let (plain, length, only) = unsafe {
        let cs = &raw const (*at).cs;
        // Number of segments and control word lie side by side.
        let plain = (&raw const (*cs).seg_count).cast::<u32>().read_volatile() == PLAIN;
        let ds = &raw const (*at).ds[0];
        let only = Segment {
            data: (&raw const (*ds).data).read_volatile(),
            handle: (&raw const (*ds).handle).read_volatile(),
            length: (&raw const (*ds).length).read_volatile(),
        };
        (plain, (&raw const (*cs).length).read_volatile(), only)
    };
    if !plain || (queue == Queue::Send && only.length != length) {
        return false;
    }
    let op = if queue == Queue::Send { Op::Send } else { Op::Receive };
    let handle = MemHandle::from_number(only.handle);
    let segment = RawSegment { addr: only.data as *mut u8, len: only.length, handle };
    let alike = raw::refill_alike(used, op, segment, at as u64);
    if alike {
        // SAFETY: a descriptor is there.
        unsafe { clear_status(at) };
    }
    alike
}

/// Makes of a used descriptor what the program's asks for.
///
/// # Safety
/// As [`order`], and its memory is the library's until the descriptor is back.
pub(crate) unsafe fn refill(
    used: &mut Descriptor,
    at: *mut CDescriptor,
    cs: &ControlSegment,
    queue: Queue,
    most_segments: usize,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let (order, segments) = order(at, cs, queue, most_segments);
        raw::refill(used, &order, segments);
    }
}

/// What the control word adds to a plain send or receive. Gives what is wrong with it.
fn orders_of(cs: &ControlSegment, queue: Queue, order: &mut RawOrder, segments: &mut Segments) -> Status {
    let op = cs.control & control::OP_MASK;
    if cs.control & control::RESERVED != 0 || (queue == Queue::Receive && op != 0) {
        return Status::FormatError;
    }
    if queue == Queue::Receive {
        return Status::Success;
    }
    order.fence = cs.control & control::QFENCE != 0;
    order.immediate = (cs.control & control::IMMEDIATE != 0).then_some(cs.immediate_data);
    order.op = match op {
        0 => return Status::Success,
        control::OP_RDMAWRITE => Op::RdmaWrite,
        control::OP_RDMAREAD => Op::RdmaRead,
        _ => return Status::FormatError,
    };
    if segments.left == 0 {
        return Status::FormatError;
    }
    // SAFETY: there is a first segment, as just seen.
    let remote = unsafe { segments.next.read_volatile() };
    order.remote = RemoteAddress { addr: remote.data, handle: MemHandle::from_number(remote.handle) };
    segments.next = segments.next.wrapping_add(1);
    segments.left -= 1;
    if order.remote.handle == MemHandle::NONE { Status::RdmaProtectionError } else { Status::Success }
}

/// Marks a descriptor as posted.
///
/// # Safety
/// A descriptor is there.
#[inline]
pub(crate) unsafe fn clear_status(at: *mut CDescriptor) {
    // SAFETY: by the caller's promise; a descriptor is aligned.
    unsafe { AtomicU32::from_ptr(&raw mut (*at).cs.status) }.store(0, Ordering::Relaxed);
}

/// Writes into the program's descriptor how it went.
///
/// # Safety
/// The descriptor that was posted is still there.
#[inline]
pub(crate) unsafe fn complete(done: &Completion) -> (*mut CDescriptor, Return) {
    let at = done.descriptor.work().context as *mut CDescriptor;
    let mut word = status::DONE | op_bits(done.op) | error_bits(done.status);
    // SAFETY: by the caller's promise; a descriptor is aligned.
    unsafe {
        (&raw mut (*at).cs.length).write(done.length);
        if done.queue == Queue::Receive
            && let Some(immediate) = done.immediate
        {
            (&raw mut (*at).cs.immediate_data).write(immediate);
            word |= status::IMMEDIATE;
        }
        AtomicU32::from_ptr(&raw mut (*at).cs.status).store(word, Ordering::Release);
    }
    (at, if done.status.is_success() { Return::Success } else { Return::DescriptorError })
}

fn op_bits(op: Op) -> u32 {
    let number = match op {
        Op::Receive => 1,
        Op::RdmaWrite => 2,
        Op::RemoteRdmaWrite => 3,
        Op::RdmaRead => 4,
        // Atomics cannot be asked for.
        Op::Send | Op::CompareSwap | Op::FetchAdd => 0,
    };
    number << status::OP_SHIFT
}

/// The errors of the model, in its order, are the bits of the status word from 1 on.
fn error_bits(status: Status) -> u32 {
    if status.is_success() { 0 } else { 1 << status as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is ordered, with the segments, and with the flaw that the model's descriptor then has.
    fn order_of(cs: ControlSegment, ds: [Segment; 2], queue: Queue) -> (RawOrder, Vec<RawSegment>) {
        let mut descriptor = CDescriptor { cs, ds };
        let mut made = Descriptor::new(Op::Send);
        // SAFETY: a descriptor with two segments, of which cs names no more; the one that is made is never posted.
        let (mut ordered, segments) = unsafe {
            refill(&mut made, &mut descriptor, &cs, queue, 252);
            order(&mut descriptor, &cs, queue, 252)
        };
        ordered.flaw = raw::flaw(&made);
        (ordered, segments.collect())
    }

    fn segment(length: u32) -> Segment {
        Segment { data: 0x1000, handle: 7, length }
    }

    #[test]
    fn errors_are_their_bits() {
        let bits = [
            (Status::Success, 0),
            (Status::FormatError, 0x2),
            (Status::ProtectionError, 0x4),
            (Status::LengthError, 0x8),
            (Status::PartialPacket, 0x10),
            (Status::Flushed, 0x20),
            (Status::TransportError, 0x40),
            (Status::RdmaProtectionError, 0x80),
            (Status::RemoteDescriptorError, 0x100),
        ];
        assert!(bits.iter().all(|(status, bit)| error_bits(*status) == *bit));
    }

    #[test]
    fn segments_of_no_bytes_are_left_out() {
        let cs = ControlSegment { seg_count: 2, length: 5, ..Default::default() };
        let (order, segments) = order_of(cs, [segment(0), segment(5)], Queue::Send);
        assert_eq!((order.op, order.flaw, segments.len()), (Op::Send, Status::Success, 1));
        let cs = ControlSegment { seg_count: 1, ..Default::default() };
        let nowhere = Segment { handle: 0, ..segment(0) };
        assert_eq!(order_of(cs, [nowhere; 2], Queue::Send).0.flaw, Status::Success);
    }

    #[test]
    fn an_rdma_write_has_its_address_first() {
        let control = control::OP_RDMAWRITE | control::IMMEDIATE | control::QFENCE;
        let cs = ControlSegment { seg_count: 2, control, length: 9, immediate_data: 3, ..Default::default() };
        let remote = Segment { data: 0xABC0, handle: 11, length: 0 };
        let (order, segments) = order_of(cs, [remote, segment(9)], Queue::Send);
        assert_eq!((order.op, order.fence, order.immediate), (Op::RdmaWrite, true, Some(3)));
        assert_eq!((order.remote.addr, order.remote.handle.number(), segments.len()), (0xABC0, 11, 1));
        let unknown = Segment { handle: 0, ..remote };
        assert_eq!(order_of(cs, [unknown, segment(9)], Queue::Send).0.flaw, Status::RdmaProtectionError);
    }

    #[test]
    fn contradictions_are_found() {
        let cs =
            |control, seg_count, length| ControlSegment { control, seg_count, length, ..Default::default() };
        let cases = [
            (cs(0x10, 1, 8), Queue::Send, Status::FormatError),
            (cs(3, 1, 8), Queue::Send, Status::FormatError),
            (cs(control::OP_RDMAREAD, 0, 0), Queue::Send, Status::FormatError),
            (cs(control::OP_RDMAWRITE, 1, 8), Queue::Receive, Status::FormatError),
            (cs(0, 1, 9), Queue::Send, Status::LengthError),
            (cs(0, 1, 9), Queue::Receive, Status::Success),
        ];
        for (cs, queue, flaw) in cases {
            assert_eq!(order_of(cs, [segment(8); 2], queue).0.flaw, flaw, "{cs:?}");
        }
        let unregistered = Segment { handle: 0, ..segment(8) };
        let (order, _) = order_of(cs(0, 1, 8), [unregistered; 2], Queue::Receive);
        assert_eq!(order.flaw, Status::ProtectionError);
    }
}
