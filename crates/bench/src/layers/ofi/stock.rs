//! Where the messages of a case lie on libfabric, as `stock.rs` has it for VIA (thesis, sections 3.4 and 3.7).

use std::collections::VecDeque;

use viaduct_providers::ofi::bare::{Done, Message};

use crate::error::{Error, Result};
use crate::layers::ofi::Site;
use crate::layers::stock::Pieces;
use crate::pattern;
use crate::plan::{Run, Tally};
use crate::raw::{renew_bytes, sum};

/// Messages of one end.
pub(crate) trait Stock {
    /// A message that holds the bytes of `seq`; `None` while all of them are under way.
    fn outgoing<const CHECK: bool>(&mut self, site: &Site, seq: u64) -> Result<Option<Message>>;
    /// A sent one has come back.
    fn returned(&mut self, message: Message);
    /// The next receive to post, in place of `used`, which has been read.
    fn incoming(&mut self, site: &Site, used: Option<Message>) -> Result<Message>;
    /// Reads every byte of message `seq`; counts what is wrong with it if `CHECK`.
    fn read<const CHECK: bool>(&mut self, done: &Done, seq: u64) -> u64;
    /// A slice begins.
    fn begin(&mut self) {}
    /// A slice has ended: adds what the case proves itself with.
    fn finish(&mut self, _run: &Run, _tally: &mut Tally) {}
}

/// `count` messages that lie as `pieces` says.
pub(crate) fn messages(site: &Site, count: usize, pieces: Pieces, registered: bool) -> Result<Vec<Message>> {
    let lengths: Vec<usize> = pieces.cuts().map(|(_, len)| len).collect();
    site.domain.messages(count, &lengths, pieces.step, registered).map_err(|e| site.failed(&e))
}

/// Messages made beforehand.
pub(crate) struct MessagePool {
    sends: VecDeque<Message>,
    receives: VecDeque<Message>,
    /// The message used last is used again: its memory is still in the cache.
    same: bool,
    manner: Manner,
    scratch: Vec<u8>,
}

/// What the program does with a message before it is sent, and after it was received.
enum Manner {
    /// Nothing.
    Plain,
    /// It writes every line before each send.
    Renewed,
    /// It does so in memory of its own, and copies.
    Packed(Packed),
}

impl MessagePool {
    /// A pool of these, used in turn; or again and again the same if `same`.
    pub(crate) fn new(sends: Vec<Message>, receives: Vec<Message>, size: usize, same: bool) -> MessagePool {
        let scratch = vec![0; size];
        MessagePool { sends: sends.into(), receives: receives.into(), same, manner: Manner::Plain, scratch }
    }

    /// A stock whose messages are written anew each time.
    pub(crate) fn renewed(self) -> MessagePool {
        MessagePool { manner: Manner::Renewed, ..self }
    }

    /// A stock whose messages the program packs, which has them lie as `pieces` says.
    pub(crate) fn packed(self, pieces: Pieces) -> MessagePool {
        MessagePool { manner: Manner::Packed(Packed::new(pieces)), ..self }
    }
}

impl Stock for MessagePool {
    #[inline(always)]
    fn outgoing<const CHECK: bool>(&mut self, _: &Site, seq: u64) -> Result<Option<Message>> {
        let Some(mut message) = self.sends.pop_front() else { return Ok(None) };
        match &mut self.manner {
            Manner::Packed(packed) => packed.write::<CHECK>(&mut message, &mut self.scratch, seq),
            _ if CHECK => fill(&mut message, &mut self.scratch, seq),
            Manner::Renewed => {
                (0..message.pieces()).for_each(|piece| renew_bytes(message.bytes_mut(piece), seq as u8));
            }
            Manner::Plain => {}
        }
        Ok(Some(message))
    }

    #[inline(always)]
    fn returned(&mut self, message: Message) {
        if self.same {
            self.sends.push_front(message);
        } else {
            self.sends.push_back(message);
        }
    }

    #[inline(always)]
    fn incoming(&mut self, site: &Site, used: Option<Message>) -> Result<Message> {
        match used {
            Some(used) if self.same => return Ok(used),
            used => self.receives.extend(used),
        }
        self.receives.pop_front().ok_or_else(|| used_up(site))
    }

    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Done, seq: u64) -> u64 {
        match &mut self.manner {
            Manner::Packed(packed) => packed.read::<CHECK>(done, &mut self.scratch, seq),
            _ if CHECK => wrong(done, &mut self.scratch, seq),
            _ => total(&done.message),
        }
    }
}

/// More receives are wanted than there are.
#[cold]
pub(crate) fn used_up(site: &Site) -> Error {
    Error::layer(site.variant.layer.name(), "more receives than there are messages", "")
}

/// Writes the pattern of `seq`, piece by piece.
pub(crate) fn fill(message: &mut Message, scratch: &mut [u8], seq: u64) {
    pattern::fill(scratch, seq);
    let mut at = 0;
    for piece in 0..message.pieces() {
        let bytes = message.bytes_mut(piece);
        bytes.copy_from_slice(&scratch[at..at + bytes.len()]);
        at += bytes.len();
    }
}

/// Groups of bytes of a received message that are wrong, and whether its length is.
pub(crate) fn wrong(done: &Done, scratch: &mut [u8], seq: u64) -> u64 {
    let mut at = 0;
    for piece in 0..done.message.pieces() {
        let bytes = done.message.bytes(piece);
        scratch[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    pattern::mismatches(scratch, seq) + u64::from(done.len != scratch.len())
}

/// Reads every byte.
#[inline(always)]
pub(crate) fn total(message: &Message) -> u64 {
    (0..message.pieces()).fold(0, |all, piece| all.wrapping_add(sum(message.bytes(piece))))
}

/// The program packs: its pieces lie in memory of its own.
struct Packed {
    /// Start in the message, start in the memory, length.
    cuts: Vec<(usize, usize, usize)>,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Packed {
    fn new(pieces: Pieces) -> Packed {
        let memory = vec![1; pieces.step * pieces.segments];
        Packed { cuts: pieces.apart(), from: memory.clone(), to: memory }
    }

    #[inline(always)]
    fn write<const CHECK: bool>(&mut self, message: &mut Message, scratch: &mut [u8], seq: u64) {
        // What is sent in a validation pass are the pieces, so that the copying is checked as well.
        if CHECK {
            pattern::fill(scratch, seq);
        }
        for (start, at, len) in &self.cuts {
            let piece = &mut self.from[*at..at + len];
            if CHECK {
                piece.copy_from_slice(&scratch[*start..start + len]);
            } else {
                renew_bytes(piece, seq as u8);
            }
            message.bytes_mut(0)[*start..start + len].copy_from_slice(piece);
        }
    }

    #[inline(always)]
    fn read<const CHECK: bool>(&mut self, done: &Done, scratch: &mut [u8], seq: u64) -> u64 {
        let whole = done.message.bytes(0);
        let mut all = 0u64;
        for (start, at, len) in &self.cuts {
            let piece = &mut self.to[*at..at + len];
            piece.copy_from_slice(&whole[*start..start + len]);
            if CHECK {
                scratch[*start..start + len].copy_from_slice(piece);
            } else {
                all = all.wrapping_add(sum(piece));
            }
        }
        if CHECK { pattern::mismatches(scratch, seq) + u64::from(done.len != scratch.len()) } else { all }
    }
}
