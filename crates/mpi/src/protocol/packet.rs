//! What packets say: 32 bytes in front of the payload.
//!
//! ```text
//!   0  kind      1  flags     2  credits (u16)   4  freed (u32)
//!   8  context  12  source   16  tag            20  request (u32)
//!  24  number (u64)
//! ```
//!
//! A packet comes from another process: [`Packet::parse`] takes any bytes, and everything that it says is checked against
//! what the receiver knows before it is used.

/// The version of the protocol, which ranks compare before they connect.
pub const VERSION: u64 = 4;
/// Bytes of a header.
pub const HEADER: usize = 32;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message: envelope and bytes, all of them or the first. `number` is its length.
    Eager = 1,
    /// The envelope of a message whose bytes stay with the sender. `number` is its length.
    Start = 2,
    /// The receiver asks for the first `number` bytes of the sender's `request`, for its own request `context`.
    Reply = 3,
    /// Bytes for the receiver's request `request`, from byte `number` of the message on.
    Data = 4,
    /// The sender's `request` has met its receive, or its bytes have been pulled.
    Ack = 5,
    /// Credits alone.
    Credit = 6,
    /// The sender has finished; no packet follows.
    Bye = 7,
    /// Another piece of the eager message that is under way, from byte `number` of it on.
    More = 8,
}

/// The sender of an eager message waits for an [`Kind::Ack`].
pub const SYNCHRONOUS: u8 = 1;
/// The payload of a [`Kind::Start`] says where the bytes can be read from.
pub const PULL: u8 = 2;

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it is.
    pub kind: Kind,
    /// [`SYNCHRONOUS`], [`PULL`].
    pub flags: u8,
    /// Receives that were posted again.
    pub credits: u16,
    /// Bytes of room for early messages that are free again.
    pub freed: u32,
    /// The communicator's context; of a reply the receiver's request.
    pub context: u32,
    /// The sender's rank in the communicator.
    pub source: i32,
    /// The tag.
    pub tag: i32,
    /// A request of the sender, or of the receiver.
    pub request: u32,
    /// A length or a place in the message.
    pub number: u64,
}

impl Packet {
    /// A packet that says nothing but what it is.
    pub fn new(kind: Kind) -> Packet {
        Packet { kind, flags: 0, credits: 0, freed: 0, context: 0, source: 0, tag: 0, request: 0, number: 0 }
    }

    /// As bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.credits.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.freed.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.context.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.source.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.tag.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.request.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// From bytes of any kind. None: they are no header.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER]) -> Option<Packet> {
        let kind = match bytes[0] {
            1 => Kind::Eager,
            2 => Kind::Start,
            3 => Kind::Reply,
            4 => Kind::Data,
            5 => Kind::Ack,
            6 => Kind::Credit,
            7 => Kind::Bye,
            8 => Kind::More,
            _ => return None,
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Packet {
            kind,
            flags: bytes[1],
            credits: u16::from_le_bytes([bytes[2], bytes[3]]),
            freed: word(4),
            context: word(8),
            source: word(12) as i32,
            tag: word(16) as i32,
            request: word(20),
            number: u64::from(word(24)) | u64::from(word(28)) << 32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let packet = Packet {
            kind: Kind::Start,
            flags: PULL,
            credits: 513,
            freed: 1 << 30,
            context: 0xdead_beef,
            source: 7,
            tag: i32::MAX,
            request: 99,
            number: 1 << 40 | 5,
        };
        assert_eq!(Packet::parse(&packet.to_bytes()), Some(packet));
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        let mut bytes = Packet::new(Kind::Bye).to_bytes();
        for kind in [0, 9, 255] {
            bytes[0] = kind;
            assert_eq!(Packet::parse(&bytes), None);
        }
    }
}
