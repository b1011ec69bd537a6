//! What goes over the wire: a header in front of every message of libfabric's, and the greeting (`docs/protocols/ofi.md`).
//!
//! The two ends may be different machines, so numbers are little-endian. What comes in is only bytes until
//! [`Head::parse`] or [`Hello::parse`] has looked at them.

use viaduct_job::HostId;
use viaduct_job::auth::{NONCE_LEN, PROOF_LEN};
use viaduct_via::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::flow::{Class, Window};
use crate::parties::Parties;

/// First bytes of a greeting.
pub(crate) const MAGIC: [u8; 8] = *b"viaduct~";
/// Version of the protocol; both ends must have the same.
pub(crate) const VERSION: u32 = 4;
/// Smallest frame that either end may have: a greeting fits into it.
pub(crate) const MIN_FRAME: usize = 2048;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A step of connection set-up: a [`Hello`] follows.
    Hello = 1,
    /// A message, or a piece of one.
    Data = 2,
    /// An RDMA write with immediate data has been carried out before this.
    Written = 3,
    /// A piece of an RDMA write.
    Write = 4,
    /// An RDMA read.
    Read = 5,
    /// An atomic operation; both operands follow.
    Atomic = 6,
    /// Outcome of an RDMA operation, or a piece of what was read.
    Reply = 7,
    /// Nothing but the count of messages received.
    Ack = 8,
    /// Nothing but credits.
    Credit = 9,
    /// Still there.
    Alive = 10,
    /// Nothing more will come.
    Close = 11,
    /// The other end has read everything up to our close.
    Closed = 12,
    /// The owner of the VI is to look again at what it waits for.
    Nudge = 13,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::Hello,
        Kind::Data,
        Kind::Written,
        Kind::Write,
        Kind::Read,
        Kind::Atomic,
        Kind::Reply,
        Kind::Ack,
        Kind::Credit,
        Kind::Alive,
        Kind::Close,
        Kind::Closed,
        Kind::Nudge,
    ];

    fn from_number(n: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| *k as u8 == n)
    }

    /// Which credit a frame of this kind costs.
    pub(crate) fn class(self) -> Class {
        match self {
            Kind::Data | Kind::Written => Class::Data,
            Kind::Write | Kind::Read | Kind::Atomic | Kind::Reply | Kind::Ack | Kind::Nudge => Class::Service,
            Kind::Hello | Kind::Credit | Kind::Alive | Kind::Close | Kind::Closed => Class::Free,
        }
    }
}

/// The first piece of something.
pub(crate) const FIRST: u8 = 1;
/// The last piece of something.
pub(crate) const LAST: u8 = 2;
/// Immediate data is there.
pub(crate) const IMMEDIATE: u8 = 4;
/// The message after the acknowledged ones failed, with the status in the header.
pub(crate) const FAILED: u8 = 8;
/// The atomic operation is a compare and swap, else a fetch and add.
pub(crate) const SWAP: u8 = 16;

/// The header of every frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(crate) struct Head {
    kind: u8,
    pub(crate) flags: u8,
    /// A [`viaduct_via::Status`].
    pub(crate) status: u8,
    spare: u8,
    /// Credits given back, of both classes.
    pub(crate) data_credits: U16,
    pub(crate) service_credits: U16,
    /// Number of the frame in its direction, from 0.
    pub(crate) sequence: U32,
    /// Bytes that follow.
    pub(crate) length: U32,
    /// Bytes of the whole message or operation.
    pub(crate) total: U32,
    /// Where in it these bytes belong.
    pub(crate) offset: U32,
    pub(crate) immediate: U32,
    /// Messages of the other direction that were received in full, modulo 2^32.
    pub(crate) acked: U32,
    /// Number of an RDMA operation.
    pub(crate) number: U32,
    /// Handle of the region it works on.
    pub(crate) handle: U32,
    /// Address it works on.
    pub(crate) address: U64,
}

/// Bytes of a header.
pub(crate) const HEAD: usize = size_of::<Head>();

impl Head {
    pub(crate) fn new(kind: Kind) -> Head {
        let mut head = Head::new_zeroed();
        head.kind = kind as u8;
        head
    }

    /// Header and what follows.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Kind, Head, &[u8]), Error> {
        let (head, rest) =
            Head::read_from_prefix(bytes).map_err(|_| Error::Protocol("a frame without header"))?;
        let kind = Kind::from_number(head.kind).ok_or(Error::Protocol("a frame of an unknown kind"))?;
        if rest.len() != head.length.get() as usize {
            return Err(Error::Protocol("a frame of another length than it says"));
        }
        let ends = u64::from(head.offset.get()) + u64::from(head.length.get());
        let piece = matches!(kind, Kind::Data | Kind::Write);
        if piece
            && (ends > u64::from(head.total.get()) || (ends == u64::from(head.total.get())) != head.is(LAST))
        {
            return Err(Error::Protocol("a piece that does not fit into its message"));
        }
        Ok((kind, head, rest))
    }

    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The immediate data, if there is some.
    pub(crate) fn immediate(&self) -> Option<u32> {
        self.is(IMMEDIATE).then(|| self.immediate.get())
    }

    pub(crate) fn set_immediate(&mut self, data: Option<u32>) {
        if let Some(data) = data {
            self.flags |= IMMEDIATE;
            self.immediate = data.into();
        }
    }
}

/// Steps of connection set-up.
pub(crate) mod step {
    /// Client: asks for a connection with a listener.
    pub(crate) const REQUEST: u32 = 1;
    /// Client: asks for a connection with a peer that asks for one with us.
    pub(crate) const PEER_REQUEST: u32 = 2;
    /// Server: a nonce, and the proof of having the token.
    pub(crate) const CHALLENGE: u32 = 3;
    /// Client: its proof.
    pub(crate) const PROOF: u32 = 4;
    /// Server: yes.
    pub(crate) const ACCEPT: u32 = 5;
    /// Server: no.
    pub(crate) const REJECT: u32 = 6;
    /// Server: there is no such listener here.
    pub(crate) const NO_MATCH: u32 = 7;
    /// Server: the two ask for different things; here is what we ask for.
    pub(crate) const MISMATCH: u32 = 8;
    /// Either: another version.
    pub(crate) const WRONG_VERSION: u32 = 9;
    /// Server: the proof is wrong.
    pub(crate) const NOT_OF_THIS_JOB: u32 = 10;
    /// Server: the name is at another port of this host.
    pub(crate) const ELSEWHERE: u32 = 11;
    /// Server: as many clients wait at the listener as its backlog allows.
    pub(crate) const FULL: u32 = 12;
    /// Server: out of descriptors or memory.
    pub(crate) const EXHAUSTED: u32 = 13;
}

/// A step of connection set-up. Magic, version and step stay where they are in every version.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(crate) struct Hello {
    magic: [u8; 8],
    version: U32,
    step: U32,
    pub(crate) nonce: [u8; NONCE_LEN],
    pub(crate) proof: [u8; PROOF_LEN],
    host: [u8; 16],
    frame: U32,
    data_window: U16,
    service_window: U16,
    port: U16,
    spare: U16,
    pub(crate) parties: Parties,
}

impl Hello {
    pub(crate) fn new(step: u32) -> Hello {
        let mut hello = Hello::new_zeroed();
        hello.magic = MAGIC;
        hello.version = VERSION.into();
        hello.step = step.into();
        hello
    }

    /// Checks what came in; the version first, so that the other end hears of it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Hello, Error> {
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(Error::Protocol("not a Viaduct greeting"));
        }
        let version = bytes.get(8..12).and_then(|v| v.try_into().ok()).map(u32::from_le_bytes);
        match version {
            Some(VERSION) => {}
            Some(theirs) => return Err(Error::VersionMismatch { ours: VERSION, theirs }),
            None => return Err(Error::Protocol("a greeting that is cut off")),
        }
        let hello =
            Hello::read_from_bytes(bytes).map_err(|_| Error::Protocol("a greeting of a wrong length"))?;
        hello.parties.check()?;
        Ok(hello)
    }

    pub(crate) fn step(&self) -> u32 {
        self.step.get()
    }

    pub(crate) fn set_host(&mut self, host: HostId) {
        self.host = host.0;
    }

    pub(crate) fn set_window(&mut self, window: Window, frame: usize) {
        self.data_window = window.data.into();
        self.service_window = window.service.into();
        self.frame = (frame as u32).into();
    }

    /// What the other end has room for: frames of each class, and bytes in a frame.
    pub(crate) fn window(&self) -> Result<(Window, usize), Error> {
        let window = Window { data: self.data_window.get(), service: self.service_window.get() };
        let frame = self.frame.get() as usize;
        if window.data == 0 || window.service == 0 || frame < MIN_FRAME {
            return Err(Error::Protocol("no room for frames"));
        }
        Ok((window, frame))
    }

    pub(crate) fn set_port(&mut self, port: u16) {
        self.port = port.into();
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.get()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::test_runner::Config;

    use super::*;

    #[test]
    fn hello_and_back() {
        let mut h = Hello::new(step::REQUEST);
        let (to, from, a) = crate::parties::tests::sample();
        h.parties.set_addresses(&to, &from);
        h.parties.set_attributes(&a);
        h.set_host(HostId([3; 16]));
        h.set_window(Window { data: 4, service: 5 }, 4096);
        let back = Hello::parse(h.as_bytes()).unwrap();
        assert_eq!((back.parties.to().unwrap(), back.parties.from().unwrap()), (to, from));
        assert_eq!(back.parties.attributes().unwrap(), a);
        assert_eq!(back.window().unwrap(), (Window { data: 4, service: 5 }, 4096));
        assert_eq!((back.step(), back.host), (step::REQUEST, [3; 16]));
        assert!(HEAD + size_of::<Hello>() <= MIN_FRAME, "a greeting fits into the smallest frame");
    }

    #[test]
    fn another_version_is_told_whatever_its_length() {
        let mut bytes = Hello::new(step::REQUEST).as_bytes().to_vec();
        bytes[8] = 7;
        bytes.truncate(20);
        assert!(matches!(Hello::parse(&bytes), Err(Error::VersionMismatch { ours: VERSION, theirs: 7 })));
    }

    #[test]
    fn pieces_must_fit() {
        let frame = |total: u32, offset: u32, len: usize, flags| {
            let mut head = Head::new(Kind::Data);
            (head.total, head.offset, head.flags) = (total.into(), offset.into(), flags);
            head.length = (len as u32).into();
            [head.as_bytes(), &vec![7; len]].concat()
        };
        assert!(Head::parse(&frame(10, 0, 10, FIRST | LAST)).is_ok());
        assert!(Head::parse(&frame(10, 4, 5, 0)).is_ok());
        assert!(Head::parse(&frame(10, 4, 7, LAST)).is_err(), "beyond the end");
        assert!(Head::parse(&frame(10, 4, 6, 0)).is_err(), "the last, and does not say so");
        assert!(Head::parse(&frame(10, 4, 5, LAST)).is_err(), "not the last, and says so");
        assert!(Head::parse(&frame(u32::MAX, u32::MAX, 9, LAST)).is_err(), "wraps around");
    }

    proptest::proptest! {
        // Miri is slow, and has no files to keep failures in.
        #![proptest_config(match cfg!(miri) {
            true => Config { failure_persistence: None, ..Config::with_cases(4) },
            false => Config::default(),
        })]

        /// Whatever arrives, parsing gives an error or something harmless.
        #[test]
        fn garbage_is_harmless(mut bytes in proptest::collection::vec(0u8.., 0..900), fix in 0u8..3) {
            if fix > 0 {
                bytes.resize(size_of::<Hello>(), 0x2f);
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            }
            if let Ok(h) = Hello::parse(&bytes) {
                let p = h.parties;
                let _ = (p.to(), p.from(), p.attributes(), p.private().len(), h.window());
            }
            if let Ok((_, head, rest)) = Head::parse(&bytes) {
                proptest::prop_assert_eq!(head.length.get() as usize, rest.len());
            }
        }
    }
}
