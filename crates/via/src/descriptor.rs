//! Descriptors: what to move, from where and to where (VIA's control and data segments). How it went is told by the
//! completion.
//!
//! A [`Descriptor`] is one pointer. It owns the buffers named in it; posting moves it into the NIC and a completion
//! brings it back, to be posted again without allocating anything.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::memory::MemHandle;
use crate::raw::{Locator, RawSegment};

/// What a descriptor asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Send to the next receive descriptor of the peer.
    Send,
    /// Receive the next message.
    Receive,
    /// Write to remote memory.
    RdmaWrite,
    /// Read from remote memory.
    RdmaRead,
    /// Replace a remote 64-bit word if it has the expected value; the old value lands in the local segment.
    CompareSwap,
    /// Add to a remote 64-bit word; the old value lands in the local segment.
    FetchAdd,
    /// Only in completions: a receive descriptor that a peer's RDMA write with immediate data used up.
    RemoteRdmaWrite,
}

impl Op {
    /// Whether the operation names remote memory.
    #[inline]
    pub fn is_rdma(self) -> bool {
        matches!(self, Op::RdmaWrite | Op::RdmaRead | Op::CompareSwap | Op::FetchAdd)
    }

    /// Whether the operation brings data back, so that fenced descriptors wait for it.
    #[inline]
    pub fn reads_remote(self) -> bool {
        matches!(self, Op::RdmaRead | Op::CompareSwap | Op::FetchAdd)
    }

    /// Whether it is an atomic operation.
    #[inline]
    pub fn is_atomic(self) -> bool {
        matches!(self, Op::CompareSwap | Op::FetchAdd)
    }
}

/// How a descriptor ended (the error bits of VIA's status word, of which one is ever set).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// The descriptor contradicts itself.
    FormatError = 1,
    /// A local segment lies outside its region, or the region has another tag.
    ProtectionError = 2,
    /// Too long for the VI, or for the receive descriptor it met.
    LengthError = 3,
    /// Broken off in the middle: some bytes may have moved.
    PartialPacket = 4,
    /// Given back because the VI was disconnected or broke. How much of it was carried out is not known.
    Flushed = 5,
    /// The transport failed.
    TransportError = 6,
    /// The remote memory is not ours to touch.
    RdmaProtectionError = 7,
    /// The remote side had no receive descriptor posted, or a bad one.
    RemoteDescriptorError = 8,
}

impl Status {
    /// The status with this number, if there is one.
    pub fn from_number(n: u8) -> Option<Status> {
        use Status::*;
        [
            Success,
            FormatError,
            ProtectionError,
            LengthError,
            PartialPacket,
            Flushed,
            TransportError,
            RdmaProtectionError,
            RemoteDescriptorError,
        ]
        .into_iter()
        .find(|s| *s as u8 == n)
    }

    /// Whether all went well.
    #[inline]
    pub fn is_success(self) -> bool {
        self == Status::Success
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::FormatError => "format error: the descriptor contradicts itself",
            Status::ProtectionError => {
                "protection error: a local segment is outside its region or has another tag"
            }
            Status::LengthError => "length error: longer than the VI or the receive descriptor allows",
            Status::PartialPacket => "partial packet: broken off in the middle",
            Status::Flushed => "flushed: the connection ended before it was carried out, or there was none",
            Status::TransportError => "transport error: the connection failed",
            Status::RdmaProtectionError => "RDMA protection error: the remote memory may not be touched",
            Status::RemoteDescriptorError => {
                "remote descriptor error: no receive was posted at the remote side"
            }
        })
    }
}

/// A place in a peer's memory: what the peer's [`Buffer::remote`] told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddress {
    /// Address in the peer's address space.
    pub addr: u64,
    /// The peer's handle of the region.
    pub handle: MemHandle,
}

impl RemoteAddress {
    /// The place `bytes` further on.
    pub fn offset(self, bytes: u64) -> RemoteAddress {
        RemoteAddress { addr: self.addr.wrapping_add(bytes), ..self }
    }
}

/// The words of a descriptor that providers work with.
#[derive(Debug)]
pub struct Work {
    /// What to do.
    pub op: Op,
    /// Wait for earlier reads on this VI first.
    pub fence: bool,
    /// Produce no completion on success.
    pub unsignalled: bool,
    /// Made by the NIC, which drops it when it is done.
    pub(crate) is_copy: bool,
    /// Immediate data to send.
    pub immediate: Option<u32>,
    /// The remote place, for RDMA.
    pub remote: RemoteAddress,
    /// Operands of atomics: expected value and new value, or the addend.
    pub operands: [u64; 2],
    pub(crate) segments: SmallVec<[RawSegment; 2]>,
    /// Bytes that may be moved: the sum of the segment lengths, and of a receive that ends beyond its region the part
    /// before that end.
    pub total: u32,
    /// Sum of the segment lengths.
    pub(crate) declared: u32,
    /// Where the only segment lies if it is shareable.
    pub locator: Option<Locator>,
    /// Found wrong at post time; completes so when its turn comes.
    pub verdict: Status,
    /// What the maker of the descriptor knows to be wrong with it.
    pub(crate) flaw: Status,
    /// Says which state of which NIC's regions the segments were last checked against; 0 if they were not.
    pub(crate) stamp: u64,
    /// A number of the user's.
    pub context: u64,
}

impl Work {
    /// Local memory.
    #[inline(always)]
    pub fn segments(&self) -> &[RawSegment] {
        &self.segments
    }

    /// How a receive ends that a message of `len` bytes meets.
    #[inline]
    pub fn judge_message(&self, len: u64) -> Status {
        if self.verdict != Status::Success {
            self.verdict
        } else if len <= u64::from(self.total) {
            Status::Success
        } else if len <= u64::from(self.declared) {
            // The descriptor is long enough, its region is not.
            Status::ProtectionError
        } else {
            Status::LengthError
        }
    }
}

/// A descriptor with the buffers it owns.
pub struct Descriptor(Box<Inner>);

struct Inner {
    work: Work,
    buffers: Vec<Buffer>,
}

const NO_REMOTE: RemoteAddress = RemoteAddress { addr: 0, handle: MemHandle::NONE };

impl Descriptor {
    /// An operation without segments yet.
    pub fn new(op: Op) -> Descriptor {
        let work = Work {
            op,
            fence: false,
            unsignalled: false,
            is_copy: false,
            immediate: None,
            remote: NO_REMOTE,
            operands: [0; 2],
            segments: SmallVec::new(),
            total: 0,
            declared: 0,
            locator: None,
            verdict: Status::Success,
            flaw: Status::Success,
            stamp: 0,
            context: 0,
        };
        Descriptor(Box::new(Inner { work, buffers: Vec::new() }))
    }

    /// Sends a whole buffer.
    pub fn send(buffer: Buffer) -> Descriptor {
        Descriptor::new(Op::Send).segment(buffer)
    }

    /// Sends immediate data alone.
    pub fn send_empty() -> Descriptor {
        Descriptor::new(Op::Send)
    }

    /// Receives into a whole buffer.
    pub fn recv(buffer: Buffer) -> Descriptor {
        Descriptor::new(Op::Receive).segment(buffer)
    }

    /// Receives immediate data alone.
    pub fn recv_empty() -> Descriptor {
        Descriptor::new(Op::Receive)
    }

    /// Writes a whole buffer to remote memory.
    pub fn rdma_write(buffer: Buffer, to: RemoteAddress) -> Descriptor {
        Descriptor::new(Op::RdmaWrite).remote(to).segment(buffer)
    }

    /// Fills a whole buffer from remote memory.
    pub fn rdma_read(buffer: Buffer, from: RemoteAddress) -> Descriptor {
        Descriptor::new(Op::RdmaRead).remote(from).segment(buffer)
    }

    /// Replaces the remote word if it equals `expected`; the old value lands in the 8-byte `old` buffer.
    pub fn compare_swap(old: Buffer, at: RemoteAddress, expected: u64, new: u64) -> Descriptor {
        let mut d = Descriptor::new(Op::CompareSwap).remote(at).segment(old);
        d.0.work.operands = [expected, new];
        d
    }

    /// Adds to the remote word; the old value lands in the 8-byte `old` buffer.
    pub fn fetch_add(old: Buffer, at: RemoteAddress, addend: u64) -> Descriptor {
        let mut d = Descriptor::new(Op::FetchAdd).remote(at).segment(old);
        d.0.work.operands = [addend, 0];
        d
    }

    /// Adds a whole buffer as the next segment.
    pub fn segment(self, buffer: Buffer) -> Descriptor {
        let range = 0..buffer.len();
        self.segment_range(buffer, range)
    }

    /// Adds a range of a buffer as the next segment.
    ///
    /// # Panics
    /// If the range lies outside the buffer, the descriptor would pass 4 GiB, or [lent](crate::lend) memory would be
    /// written to.
    pub fn segment_range(mut self, buffer: Buffer, range: Range<usize>) -> Descriptor {
        let reads = matches!(self.0.work.op, Op::Send | Op::RdmaWrite);
        assert!(reads || !buffer.is_lent(), "lent memory is only read");
        let segment = buffer.raw_segment(range);
        self.push(segment);
        self.0.buffers.push(buffer);
        self
    }

    /// Sends immediate data along.
    pub fn immediate(mut self, data: u32) -> Descriptor {
        self.0.work.immediate = Some(data);
        self
    }

    /// Names the remote place of an RDMA operation.
    pub fn remote(mut self, place: RemoteAddress) -> Descriptor {
        self.0.work.remote = place;
        self
    }

    /// Holds the descriptor until earlier reads on the VI are done.
    pub fn fence(mut self) -> Descriptor {
        self.0.work.fence = true;
        self
    }

    /// Asks for no completion unless it fails.
    pub fn unsignalled(mut self) -> Descriptor {
        self.0.work.unsignalled = true;
        self
    }

    /// Attaches a number that comes back with the completion.
    pub fn context(mut self, context: u64) -> Descriptor {
        self.0.work.context = context;
        self
    }

    /// Changes how many bytes of the first segment are used.
    ///
    /// # Panics
    /// If there is no segment, or its buffer is shorter.
    pub fn set_len(&mut self, len: usize) {
        let inner = &mut *self.0;
        let buffer = inner.buffers.first().expect("a descriptor with a buffer");
        let old = inner.work.segments[0];
        let start = old.addr as usize - buffer.ptr() as usize;
        let new = buffer.raw_segment(start..start + len);
        inner.work.stamp = 0;
        inner.work.declared = inner.work.declared - old.len + new.len;
        inner.work.total = inner.work.declared;
        inner.work.segments[0] = new;
    }

    /// Changes the immediate data.
    pub fn set_immediate(&mut self, data: Option<u32>) {
        self.0.work.immediate = data;
    }

    /// Changes the remote place.
    pub fn set_remote(&mut self, place: RemoteAddress) {
        self.0.work.remote = place;
    }

    /// The buffers owned by the descriptor, in segment order.
    pub fn buffers(&self) -> &[Buffer] {
        &self.0.buffers
    }

    /// Copies bytes into one of the buffers. (A buffer itself is not given out: the segments point into it.)
    ///
    /// # Panics
    /// If there is no such buffer, or the range lies outside it.
    pub fn write(&mut self, buffer: usize, offset: usize, from: &[u8]) {
        self.0.buffers[buffer].write(offset, from);
    }

    /// The buffers with the ranges that its segments have in them.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&Buffer, Range<usize>)> {
        self.0.buffers.iter().zip(&self.0.work.segments).map(|(buffer, segment)| {
            let start = segment.addr as usize - buffer.ptr() as usize;
            (buffer, start..start + segment.len as usize)
        })
    }

    /// One of the buffers as a mutable slice, if no peer has rights to its memory: [`Buffer::slice_mut`].
    ///
    /// # Panics
    /// If there is no such buffer.
    #[inline]
    pub fn slice_mut(&mut self, buffer: usize) -> Option<&mut [u8]> {
        self.0.buffers[buffer].slice_mut()
    }

    /// It did not succeed: what a peer does to the buffers of a receive is not certain.
    pub(crate) fn doubt(&mut self) {
        if self.0.work.op == Op::Receive {
            self.0.buffers.iter_mut().for_each(Buffer::doubt);
        }
    }

    pub(crate) fn buffer_mut(&mut self, buffer: usize) -> &mut Buffer {
        &mut self.0.buffers[buffer]
    }

    /// Takes the buffers out.
    pub fn into_buffers(self) -> Vec<Buffer> {
        self.0.buffers
    }

    /// Takes the only (or first) buffer out.
    ///
    /// # Panics
    /// If there is none.
    pub fn into_buffer(self) -> Buffer {
        self.0.buffers.into_iter().next().expect("a descriptor with a buffer")
    }

    /// The words of the descriptor.
    #[inline]
    pub fn work(&self) -> &Work {
        &self.0.work
    }

    #[inline]
    pub(crate) fn work_mut(&mut self) -> &mut Work {
        &mut self.0.work
    }

    pub(crate) fn push(&mut self, segment: RawSegment) {
        let work = &mut self.0.work;
        work.declared = work.declared.checked_add(segment.len).expect("a descriptor moves less than 4 GiB");
        work.total = work.declared;
        work.stamp = 0;
        work.segments.push(segment);
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let w = self.work();
        write!(f, "Descriptor({:?}, {} bytes in {} segments)", w.op, w.total, w.segments.len())
    }
}
