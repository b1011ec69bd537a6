//! Messages between control threads: fixed headers over a sequenced-packet Unix socket (`docs/protocols/shm.md`).
//!
//! Both ends run on one host, so numbers are in host order. What comes in is only bytes until [`Hello::parse`] or
//! [`Note::parse`] has looked at them.

use viaduct_via::Error;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::parties::Parties;

/// First word of every message.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"viaduct1");
/// Version of the protocol; both ends must have the same.
pub(crate) const VERSION: u32 = 5;
/// Longest message: a note with a piece of payload.
pub(crate) const MAX_MESSAGE: usize = size_of::<Note>() + PIECE;
/// Payload of one note.
pub(crate) const PIECE: usize = 32 * 1024;

/// Kinds of [`Hello`].
pub(crate) mod hello {
    pub(crate) const REQUEST: u32 = 1;
    pub(crate) const PEER_REQUEST: u32 = 2;
    pub(crate) const ACCEPT: u32 = 3;
    pub(crate) const REJECT: u32 = 4;
    pub(crate) const NO_MATCH: u32 = 5;
    pub(crate) const MISMATCH: u32 = 6;
    pub(crate) const ACK: u32 = 7;
    pub(crate) const WRONG_VERSION: u32 = 8;
    /// The backlog of the listener is full.
    pub(crate) const FULL: u32 = 9;
    /// The server is out of descriptors.
    pub(crate) const EXHAUSTED: u32 = 10;
}

/// Kinds of [`Note`].
pub(crate) mod note {
    /// The lane (slab `a`, offset `b`) is no longer used by the sender of the note.
    pub(crate) const DETACH: u32 = 1;
    /// Send the segment of kind `a`, number `b`.
    pub(crate) const WANT: u32 = 2;
    /// Here it is, as a file descriptor; none if there is no such segment. `c` is [`SPARSE`](super::SPARSE) for a slab that is.
    pub(crate) const SEGMENT: u32 = 3;
    /// Carry out an RDMA operation: `a` lane slab, `b` lane offset and op, `c` operation number, `d` address,
    /// `e` handle and length, `f` and `g` operands; for writes payload, whether it is the last, and how much is to come.
    pub(crate) const RDMA: u32 = 4;
    /// Outcome: `c` operation number, `d` status, `e` offset of the payload, `f` 1 if it is the last.
    pub(crate) const RDMA_DONE: u32 = 5;
    /// The slab `b` of the sender's bounce buffers for this pair, as a file descriptor. Once, before the first offer.
    pub(crate) const BOUNCES: u32 = 6;
    /// The sender sleeps often, in a crowd: from now on fence yourself before you look at its bell, and say so.
    pub(crate) const FENCE: u32 = 8;
    /// The sender of the note does.
    pub(crate) const FENCED: u32 = 9;
    /// The receiver's owner sleeps on its descriptor: make that readable. From a peer that was not given the descriptor.
    pub(crate) const WAKE: u32 = 7;
}

/// Kinds of segment a peer may ask for.
pub(crate) const WANT_SLAB: u32 = 1;
/// Said of a slab whose pages come with the first touch.
pub(crate) const SPARSE: u64 = 1;
/// A segment of the directory.
pub(crate) const WANT_DIRECTORY: u32 = 2;

const DIRECT: u32 = 1;
const HAS_CHANNEL: u32 = 2;
const ASYMMETRIC: u32 = 4;
const ISOLATED: u32 = 8;

/// A step of connection set-up.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Hello {
    magic: u64,
    /// Number of the NIC, drawn at random.
    pub(crate) uid: [u8; 16],
    /// Where the same number stands in the sender's private memory, to find out whether process_vm works.
    pub(crate) uid_address: u64,
    pub(crate) lane_slab: u32,
    pub(crate) lane_offset: u32,
    version: u32,
    pub(crate) kind: u32,
    pub(crate) vi_index: u32,
    pub(crate) ring_slots: u32,
    flags: u32,
    spare: u32,
    pub(crate) parties: Parties,
}

impl Hello {
    pub(crate) fn new(kind: u32, uid: [u8; 16]) -> Hello {
        let mut h = Hello::new_zeroed();
        h.magic = MAGIC;
        h.version = VERSION;
        h.kind = kind;
        h.uid = uid;
        h
    }

    /// Checks what came in; the version first, so that a stranger is told so.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Hello, Error> {
        let h = Hello::read_from_bytes(bytes).map_err(|_| Error::Protocol("message of a wrong length"))?;
        if h.magic != MAGIC {
            return Err(Error::Protocol("not a Viaduct message"));
        }
        if h.version != VERSION {
            return Err(Error::VersionMismatch { ours: VERSION, theirs: h.version });
        }
        h.parties.check()?;
        Ok(h)
    }

    pub(crate) fn set_direct(&mut self, direct: bool) {
        self.flags |= if direct { DIRECT } else { 0 };
    }

    pub(crate) fn direct(&self) -> bool {
        self.flags & DIRECT != 0
    }

    /// Whether the sender's process takes part in membarrier, so that wakers need no fence of their own.
    pub(crate) fn set_asymmetric(&mut self, asymmetric: bool) {
        self.flags |= if asymmetric { ASYMMETRIC } else { 0 };
    }

    pub(crate) fn asymmetric(&self) -> bool {
        self.flags & ASYMMETRIC != 0
    }

    /// Whether the sender treats us as another user, so that we do the same.
    pub(crate) fn set_isolated(&mut self, isolated: bool) {
        self.flags |= if isolated { ISOLATED } else { 0 };
    }

    pub(crate) fn isolated(&self) -> bool {
        self.flags & ISOLATED != 0
    }

    pub(crate) fn set_has_channel(&mut self, has: bool) {
        self.flags |= if has { HAS_CHANNEL } else { 0 };
    }

    pub(crate) fn has_channel(&self) -> bool {
        self.flags & HAS_CHANNEL != 0
    }
}

/// A message between NICs that know each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Note {
    magic: u64,
    pub(crate) kind: u32,
    pub(crate) a: u32,
    pub(crate) b: u64,
    pub(crate) c: u64,
    pub(crate) d: u64,
    pub(crate) e: u64,
    pub(crate) f: u64,
    pub(crate) g: u64,
}

impl Note {
    pub(crate) fn new(kind: u32) -> Note {
        Note { magic: MAGIC, kind, a: 0, b: 0, c: 0, d: 0, e: 0, f: 0, g: 0 }
    }

    /// The header and the payload behind it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Note, &[u8]), Error> {
        let (note, payload) =
            Note::read_from_prefix(bytes).map_err(|_| Error::Protocol("message of a wrong length"))?;
        if note.magic != MAGIC {
            return Err(Error::Protocol("not a Viaduct message"));
        }
        if payload.len() > PIECE {
            return Err(Error::Protocol("too much payload"));
        }
        Ok((note, payload))
    }

    pub(crate) fn with(&self, payload: &[u8]) -> Vec<u8> {
        let mut v = self.as_bytes().to_vec();
        v.extend_from_slice(payload);
        v
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::test_runner::Config;

    #[test]
    fn hello_and_back() {
        let mut h = Hello::new(hello::REQUEST, [7; 16]);
        let (to, from, a) = crate::parties::tests::sample();
        h.parties.set_addresses(&to, &from);
        h.parties.set_attributes(&a);
        let back = Hello::parse(h.as_bytes()).unwrap();
        assert_eq!((back.parties.to().unwrap(), back.parties.from().unwrap()), (to, from));
        assert_eq!(back.parties.attributes().unwrap(), a);
        assert!(!back.direct() && !back.has_channel());
    }

    proptest::proptest! {
        // Miri is slow, and has no files to keep failures in.
        #![proptest_config(match cfg!(miri) {
            true => Config { failure_persistence: None, ..Config::with_cases(4) },
            false => Config::default(),
        })]

        /// Whatever arrives, parsing gives an error or something harmless.
        #[test]
        fn garbage_is_harmless(mut bytes in proptest::collection::vec(0u8.., 0..700), fix in 0u8..3) {
            if fix > 0 {
                bytes.resize(size_of::<Hello>(), 0xff);
                bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
                bytes[40..44].copy_from_slice(&VERSION.to_ne_bytes());
            }
            if let Ok(h) = Hello::parse(&bytes) {
                let p = h.parties;
                let _ = (p.to(), p.from(), p.attributes(), p.private().len());
            }
            let _ = Note::parse(&bytes);
        }
    }
}
