//! RDMA by messages: what the initiator keeps, and what the target does for it (thesis, section 3.2.9).
//!
//! The target's side runs when a frame arrives, on the owner's thread if it polls, else on the control thread: the
//! program of the target takes no part in it. Regions are looked up under the engine's lock, so that none is withdrawn
//! in the middle of an operation.

use smallvec::SmallVec;
use viaduct_os::copy::{copy, copy_release_tail};
use viaduct_via::raw::{self, RawSegment};
use viaduct_via::{Error, Op, Status};

use super::lane::Lane;
use super::mem::Regions;
use super::wire::{Head, Kind, LAST, SWAP};

/// Replies that a peer may be owed; one that asks for more without fetching any is cut off.
const MOST_OWED: usize = 1024;

/// A descriptor of ours that is not done.
pub(super) struct Flight {
    /// In the ledger; `u32::MAX` if it has no descriptor.
    pub(super) index: u32,
    pub(super) length: u32,
    pub(super) waits: Waits,
    /// The number of its last uncopied frame.
    pub(super) uncopied: Option<u32>,
}

/// What a descriptor waits for.
pub(super) enum Waits {
    /// For those before it.
    Turn,
    /// For the peer to have received it.
    Ack,
    /// For the outcome of an operation. Half: the descriptor waits for something else after it.
    Reply { number: u32, into: Into, done: Option<Status>, half: bool },
}

/// Local memory of an operation that brings bytes back. Valid until the descriptor is done or the endpoint closed.
pub(super) struct Into {
    segments: SmallVec<[RawSegment; 2]>,
    got: u32,
    total: u32,
}

// SAFETY: the memory stays until the descriptor is back, and is written under the engine's lock.
unsafe impl Send for Into {}

impl Into {
    /// What a descriptor wants filled; nothing for a write.
    pub(super) fn of(op: Op, segments: &[RawSegment], total: u32) -> Into {
        if op.reads_remote() {
            Into { segments: SmallVec::from_slice(segments), got: 0, total }
        } else {
            Into { segments: SmallVec::new(), got: 0, total: 0 }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > (self.total - self.got) as usize {
            return false;
        }
        // SAFETY: as the type says.
        unsafe { scatter(&self.segments, self.got as usize, bytes) };
        self.got += bytes.len() as u32;
        true
    }
}

/// Spreads bytes over segments, from `offset` on; what does not fit is left out.
///
/// # Safety
/// The segments are valid and nothing else writes to them.
pub(super) unsafe fn scatter(segments: &[RawSegment], mut offset: usize, mut bytes: &[u8]) {
    for s in segments {
        let len = s.len as usize;
        if offset >= len {
            offset -= len;
            continue;
        }
        let n = bytes.len().min(len - offset);
        // SAFETY: inside the segment and inside the bytes.
        unsafe { copy(s.addr.add(offset), bytes.as_ptr(), n) };
        bytes = &bytes[n..];
        offset = 0;
    }
}

/// Collects `len` bytes of segments, from `offset` on.
///
/// # Safety
/// The segments are valid, have so many bytes, and there is room for them at `to`.
pub(super) unsafe fn gather(segments: &[RawSegment], mut offset: usize, to: *mut u8, len: usize) {
    let mut done = 0;
    for s in segments {
        let have = s.len as usize;
        if offset >= have {
            offset -= have;
            continue;
        }
        let n = (len - done).min(have - offset);
        // SAFETY: inside the segment, and inside the room.
        unsafe { copy(to.add(done), s.addr.add(offset), n) };
        done += n;
        offset = 0;
    }
}

/// What the peer is owed for an operation of its own.
pub(super) enum Reply {
    /// An outcome.
    Outcome { number: u32, status: Status },
    /// What an atomic operation found.
    Old { number: u32, value: u64 },
    /// What it reads: copied when there is room to send it.
    Bytes { number: u32, handle: u32, address: u64, total: u32, sent: u32 },
}

impl Lane {
    /// Carries out an operation of the peer's, or a piece of it.
    pub(super) fn serve(
        &mut self,
        kind: Kind,
        head: &Head,
        payload: &[u8],
        regions: &Regions,
    ) -> Result<(), Error> {
        if self.rejecting {
            return Ok(());
        }
        let (number, handle) = (head.number.get(), head.handle.get());
        let (address, total) = (head.address.get(), head.total.get());
        match kind {
            Kind::Write => {
                let allowed = self.refusing != Some(number)
                    && regions.allow(Op::RdmaWrite, handle, address, total.into(), &self.ours);
                if !allowed {
                    self.refusing = Some(number);
                } else {
                    let to = address.wrapping_add(head.offset.get().into()) as *mut u8;
                    // SAFETY: inside a registered region (the whole range was checked, and that the piece lies in it),
                    // which the engine's lock keeps.
                    unsafe { copy_release_tail(to, payload.as_ptr(), payload.len()) };
                }
                if head.is(LAST) {
                    let status = if allowed { Status::Success } else { Status::RdmaProtectionError };
                    self.refusing = None;
                    self.queue_reply(Reply::Outcome { number, status })?;
                    self.reject_after(allowed);
                }
            }
            Kind::Read => {
                let allowed = regions.allow(Op::RdmaRead, handle, address, total.into(), &self.ours);
                self.queue_reply(match allowed {
                    true => Reply::Bytes { number, handle, address, total, sent: 0 },
                    false => Reply::Outcome { number, status: Status::RdmaProtectionError },
                })?;
                self.reject_after(allowed);
            }
            _ => {
                let Ok(operands) = <[u8; 16]>::try_from(payload) else {
                    return Err(Error::Protocol("an atomic operation without operands"));
                };
                let word =
                    |at: usize| u64::from_le_bytes(operands[at..at + 8].try_into().expect("eight bytes"));
                let allowed = regions.allow(Op::FetchAdd, handle, address, 8, &self.ours);
                self.queue_reply(match allowed {
                    true => {
                        let at = address as *mut u8;
                        // SAFETY: eight aligned bytes of a registered region, which the engine's lock keeps.
                        let value = unsafe {
                            match head.is(SWAP) {
                                true => raw::compare_swap(at, word(0), word(8)),
                                false => raw::fetch_add(at, word(0)),
                            }
                        };
                        Reply::Old { number, value }
                    }
                    false => Reply::Outcome { number, status: Status::RdmaProtectionError },
                })?;
                self.reject_after(allowed);
            }
        }
        Ok(())
    }

    /// After a refusal on a reliable connection nothing is carried out any more: the initiator will end it.
    fn reject_after(&mut self, allowed: bool) {
        self.rejecting |= !allowed && self.ours.reliability.is_reliable();
    }

    fn queue_reply(&mut self, reply: Reply) -> Result<(), Error> {
        if self.replies.len() == MOST_OWED {
            return Err(Error::Protocol("too many operations at once"));
        }
        self.replies.push_back(reply);
        Ok(())
    }

    /// Sends what the peer is owed, as far as there is room.
    pub(super) fn send_replies(&mut self, regions: &Regions) {
        self.refresh_replies(regions);
        while let Some(reply) = self.replies.front() {
            let mut head = Head::new(Kind::Reply);
            head.flags = LAST;
            let sent = match *reply {
                Reply::Outcome { number, status } => {
                    head.number = number.into();
                    head.immediate = (status as u32).into();
                    self.transmit(Kind::Reply, head, 0, |_| {})
                }
                Reply::Old { number, value } => {
                    head.number = number.into();
                    // Memory travels byte by byte, as in a read.
                    let bytes = value.to_ne_bytes();
                    self.transmit(Kind::Reply, head, 8, |to| {
                        // SAFETY: there is room for a frame's payload.
                        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, 8) };
                    })
                }
                Reply::Bytes { number, address, total, sent, .. } => {
                    let len = (total - sent).min(self.copied as u32);
                    let last = sent + len == total;
                    head.number = number.into();
                    head.offset = sent.into();
                    head.flags = if last { LAST } else { 0 };
                    let from = (address + u64::from(sent)) as *const u8;
                    let went = self.transmit(Kind::Reply, head, len as usize, |to| {
                        // SAFETY: inside a registered region, which was looked up under the lock that is still held.
                        unsafe { copy(to, from, len as usize) };
                    });
                    if went
                        && !last
                        && let Some(Reply::Bytes { sent, .. }) = self.replies.front_mut()
                    {
                        *sent += len;
                        continue;
                    }
                    went
                }
            };
            if !sent {
                return;
            }
            self.replies.pop_front();
        }
    }

    /// Reads of the peer's whose region was withdrawn, or lost its rights, meanwhile are refused.
    fn refresh_replies(&mut self, regions: &Regions) {
        for reply in &mut self.replies {
            if let Reply::Bytes { number, handle, address, total, .. } = *reply
                && !regions.allow(Op::RdmaRead, handle, address, total.into(), &self.ours)
            {
                *reply = Reply::Outcome { number, status: Status::RdmaProtectionError };
            }
        }
    }

    /// The outcome of an operation of ours, or a piece of what it brings.
    pub(super) fn on_reply(&mut self, head: &Head, payload: &[u8]) -> Result<(), Error> {
        let wanted = head.number.get();
        let found = self.flights.iter_mut().find_map(|f| match &mut f.waits {
            Waits::Reply { number, into, done, .. } if *number == wanted && done.is_none() => {
                Some((into, done))
            }
            _ => None,
        });
        let Some((into, done)) = found else { return Err(Error::Protocol("a reply without a request")) };
        let status = u8::try_from(head.immediate.get()).ok().and_then(Status::from_number);
        let status = status.ok_or(Error::Protocol("no such status"))?;
        if status.is_success() && (head.offset.get() != into.got || !into.take(payload)) {
            return Err(Error::Protocol("a reply of a wrong length"));
        }
        if head.is(LAST) {
            if status.is_success() && into.got != into.total {
                return Err(Error::Protocol("a reply that is cut off"));
            }
            *done = Some(status);
            self.news = true;
        }
        Ok(())
    }
}
