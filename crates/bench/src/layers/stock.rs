//! Where the messages of a case lie: the memory behind an end of [`Stocked`](super::stocked::Stocked).
//!
//! Thesis, sections 3.4, 3.7 and 3.8: other buffers for each message, messages in pieces, and plain buffers whose
//! completions are taken in another way. A [`Stock`] hands out descriptors and takes them back; it never posts or polls.
//! The plain latency path does without it (`half.rs`).

use std::collections::VecDeque;

use viaduct_via::{Buffer, Completion, Descriptor, Error, MemAttributes, Nic, Op, ProtectionTag};

use crate::pattern;
use crate::plan::{Run, Tally};
use crate::raw::{renew, sum_buffer};

/// Memory and descriptors of one end.
pub(crate) trait Stock {
    /// A descriptor that holds message `seq`; `None` while all of them are under way.
    fn outgoing<const CHECK: bool>(&mut self, nic: &mut Nic, seq: u64) -> Result<Option<Descriptor>, Error>;
    /// A sent one has come back.
    fn returned(&mut self, nic: &mut Nic, descriptor: Descriptor) -> Result<(), Error>;
    /// The next receive to post, in place of `used`, which has been read.
    fn incoming(&mut self, nic: &mut Nic, used: Option<Descriptor>) -> Result<Descriptor, Error>;
    /// Reads every byte of message `seq`; counts what is wrong with it if `CHECK`.
    fn read<const CHECK: bool>(&mut self, done: &Completion, seq: u64) -> u64;
    /// A slice begins.
    fn begin(&mut self, _nic: &Nic) {}
    /// A slice of `sent` messages from here has ended: adds what the case proves itself with.
    fn finish(&mut self, _nic: &Nic, _run: &Run, _sent: u64, _tally: &mut Tally) {}
}

/// How the messages of a [`DescriptorPool`] are written and read. A case with a way of its own replaces what differs.
pub(crate) trait Manner {
    /// The usual way.
    fn plain(&mut self) -> &mut Plain;
    /// Writes message `seq`, as far as it is written anew each time.
    #[inline(always)]
    fn write<const CHECK: bool>(&mut self, descriptor: &mut Descriptor, seq: u64) {
        self.plain().fill::<CHECK>(descriptor, seq);
    }
    /// Reads every byte of message `seq`; counts what is wrong with it if `CHECK`.
    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Completion, seq: u64) -> u64 {
        self.plain().take::<CHECK>(done, seq)
    }
    /// A slice begins.
    fn begin(&mut self, _nic: &Nic) {}
    /// A slice of `sent` messages from here has ended: adds what the case proves itself with.
    fn finish(&mut self, _nic: &Nic, _run: &Run, _sent: u64, _tally: &mut Tally) {}
}

/// Messages are read in place, and written only if they have to change.
pub(crate) struct Plain {
    /// Every line of a message is written before it is sent.
    renewed: bool,
    pub(crate) scratch: Vec<u8>,
}

impl Plain {
    /// For messages of `size` bytes.
    pub(crate) fn new(size: usize) -> Plain {
        Plain { renewed: false, scratch: vec![0; size] }
    }

    #[inline(always)]
    fn fill<const CHECK: bool>(&mut self, descriptor: &mut Descriptor, seq: u64) {
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            write_pieces(descriptor, &self.scratch);
        } else if self.renewed {
            for index in 0..descriptor.buffers().len() {
                let len = descriptor.work().segments()[index].len as usize;
                renew(descriptor, index, len, seq as u8);
            }
        }
    }

    #[inline(always)]
    fn take<const CHECK: bool>(&mut self, done: &Completion, seq: u64) -> u64 {
        if !CHECK {
            return sum_pieces(&done.descriptor);
        }
        self.scratch.fill(0);
        read_pieces(&done.descriptor, &mut self.scratch);
        wrong(&self.scratch, done, seq)
    }
}

impl Manner for Plain {
    fn plain(&mut self) -> &mut Plain {
        self
    }
}

/// Descriptors made beforehand, over registered memory that the provider can share.
pub(crate) struct DescriptorPool<M = Plain> {
    sends: VecDeque<Descriptor>,
    receives: VecDeque<Descriptor>,
    /// The descriptor used last is used again: its memory is still in the cache.
    same: bool,
    manner: M,
}

impl DescriptorPool {
    /// A pool of these, used in turn; or again and again the same if `same`.
    pub(crate) fn new(
        sends: Vec<Descriptor>,
        receives: Vec<Descriptor>,
        size: usize,
        same: bool,
    ) -> DescriptorPool {
        DescriptorPool { sends: sends.into(), receives: receives.into(), same, manner: Plain::new(size) }
    }

    /// A stock whose messages are written anew each time. A receiver that fetches a message which never changes
    /// would find it in its own cache.
    pub(crate) fn renewed(mut self) -> DescriptorPool {
        self.manner.renewed = true;
        self
    }

    /// A stock whose messages are written and read in another way.
    pub(crate) fn with<M: Manner>(self, manner: M) -> DescriptorPool<M> {
        DescriptorPool { sends: self.sends, receives: self.receives, same: self.same, manner }
    }
}

impl<M: Manner> Stock for DescriptorPool<M> {
    #[inline(always)]
    fn outgoing<const CHECK: bool>(&mut self, _: &mut Nic, seq: u64) -> Result<Option<Descriptor>, Error> {
        let Some(mut descriptor) = self.sends.pop_front() else { return Ok(None) };
        self.manner.write::<CHECK>(&mut descriptor, seq);
        Ok(Some(descriptor))
    }

    #[inline(always)]
    fn returned(&mut self, _: &mut Nic, descriptor: Descriptor) -> Result<(), Error> {
        if self.same {
            self.sends.push_front(descriptor);
        } else {
            self.sends.push_back(descriptor);
        }
        Ok(())
    }

    #[inline(always)]
    fn incoming(&mut self, _: &mut Nic, used: Option<Descriptor>) -> Result<Descriptor, Error> {
        match used {
            Some(used) if self.same => return Ok(used),
            used => self.receives.extend(used),
        }
        self.receives.pop_front().ok_or(Error::InvalidParameter("more receives than the pool has"))
    }

    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Completion, seq: u64) -> u64 {
        self.manner.read::<CHECK>(done, seq)
    }

    fn begin(&mut self, nic: &Nic) {
        self.manner.begin(nic);
    }

    fn finish(&mut self, nic: &Nic, run: &Run, sent: u64, tally: &mut Tally) {
        self.manner.finish(nic, run, sent, tally);
    }
}

/// How a message lies in memory: in so many pieces, so many bytes from the start of one to that of the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) size: usize,
    pub(crate) segments: usize,
    pub(crate) step: usize,
}

impl Pieces {
    /// In one piece; messages begin on pages of their own.
    pub(crate) fn whole(size: usize) -> Pieces {
        Pieces { size, segments: 1, step: size.max(1).next_multiple_of(4096) }
    }

    /// Each piece on pages of its own, and never right behind the one before.
    pub(crate) fn pages(size: usize, segments: usize) -> Pieces {
        match segments {
            1 => Pieces::whole(size),
            _ => Pieces { size, segments, step: (size.div_ceil(segments) + 1).next_multiple_of(4096) },
        }
    }

    /// Each piece on cache lines of its own, with one line between it and the next.
    pub(crate) fn lines(size: usize, segments: usize) -> Pieces {
        Pieces { size, segments, step: size.div_ceil(segments).next_multiple_of(64) + 64 }
    }

    /// Start in the message, start in memory and length of every piece.
    pub(crate) fn apart(self) -> Vec<(usize, usize, usize)> {
        let apart = |(index, (start, len))| (start, index * self.step, len);
        self.cuts().enumerate().map(apart).collect()
    }

    /// Start in the message and length of every piece.
    pub(crate) fn cuts(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.segments).map(move |i| {
            let start = self.size * i / self.segments;
            (start, self.size * (i + 1) / self.segments - start)
        })
    }
}

/// `count` descriptors of `op` for messages that lie as `pieces` says. Every page is touched.
pub(crate) fn descriptors(
    nic: &mut Nic,
    tag: ProtectionTag,
    op: Op,
    count: usize,
    pieces: Pieces,
) -> Result<Vec<Descriptor>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut memory = nic.alloc(pieces.step * pieces.segments * count, MemAttributes::local(tag))?;
    touch(&mut memory);
    let mut parts = memory.chunks(pieces.step).into_iter();
    let descriptor = |_| {
        pieces.cuts().fold(Descriptor::new(op), |descriptor, (_, len)| match parts.next() {
            Some(part) => descriptor.segment_range(part, 0..len),
            None => descriptor,
        })
    };
    Ok((0..count).map(descriptor).collect())
}

/// Groups of bytes of a received message that are wrong, and whether its length is.
pub(crate) fn wrong(bytes: &[u8], done: &Completion, seq: u64) -> u64 {
    pattern::mismatches(bytes, seq) + u64::from(done.length as usize != bytes.len())
}

fn write_pieces(descriptor: &mut Descriptor, bytes: &[u8]) {
    let mut at = 0;
    for index in 0..descriptor.buffers().len() {
        let len = descriptor.work().segments()[index].len as usize;
        descriptor.write(index, 0, &bytes[at..at + len]);
        at += len;
    }
}

fn read_pieces(descriptor: &Descriptor, bytes: &mut [u8]) {
    let mut at = 0;
    for (buffer, segment) in descriptor.buffers().iter().zip(descriptor.work().segments()) {
        buffer.read(0, &mut bytes[at..at + segment.len as usize]);
        at += segment.len as usize;
    }
}

#[inline(always)]
fn sum_pieces(descriptor: &Descriptor) -> u64 {
    let pieces = descriptor.buffers().iter().zip(descriptor.work().segments());
    pieces.fold(0, |sum, (buffer, piece)| sum.wrapping_add(sum_buffer(buffer, piece.len as usize)))
}

/// Writes to every page, so that no timed message meets one that is not there yet.
fn touch(memory: &mut Buffer) {
    for page in (0..memory.len()).step_by(4096) {
        memory.write(page, &[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_message_without_a_gap() {
        for (size, segments) in [(1024, 1), (1024, 64), (64, 64), (100, 64), (65_536, 16), (7, 3)] {
            for pieces in [Pieces::pages(size, segments), Pieces::lines(size, segments)] {
                let mut end = 0;
                for (start, len) in pieces.cuts() {
                    assert_eq!(start, end);
                    assert!(len > 0 && (len < pieces.step || segments == 1), "{pieces:?}");
                    end += len;
                }
                assert_eq!((end, pieces.cuts().count()), (size, segments));
            }
        }
    }

    #[test]
    fn pieces_lie_apart() {
        assert_eq!((Pieces::whole(4096).step, Pieces::pages(65_536, 16).step), (4096, 8192));
        assert_eq!((Pieces::pages(1024, 4).step, Pieces::lines(1024, 4).step), (4096, 320));
        assert_eq!(Pieces::lines(1000, 16).step, 128, "63 bytes, and a line that is free");
    }
}
