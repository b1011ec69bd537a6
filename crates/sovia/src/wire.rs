//! What travels: the packet type in the immediate data, and the greeting in the private data of the connection.
//!
//! SOVIA, section 4.2: the type needs no memory of its own. `docs/protocols/sovia.md` has the layout. Whatever does not
//! read as one of these came from a peer that does not speak the protocol.

/// Widest window: what fits into the acknowledgement field, with room to spare.
pub const MAX_WINDOW: u32 = 4096;

/// Private data of a request and of its answer.
pub const GREETING_LEN: usize = 24;
const MAGIC: [u8; 4] = *b"SOVA";
const VERSION: u32 = 2;

/// Bytes of a RING packet: address, handle, length.
pub const RING_LEN: usize = 16;

/// What a packet is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of the stream.
    Data = 1,
    /// Acknowledgements alone.
    Ack = 2,
    /// The first packet of each side.
    Wakeup = 3,
    /// No more bytes will come.
    Fin = 4,
    /// The FIN has come.
    FinAck = 5,
    /// Where our ring lies: its bytes say so.
    Ring = 6,
    /// A ring is wanted.
    Want = 7,
}

/// A packet as its immediate data tells it. Packets of every kind carry acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// What it is for.
    pub kind: Kind,
    /// How many packets of the other direction are acknowledged by it.
    pub acks: u32,
    /// The sender reads no more. Only a FIN says so.
    pub reads_no_more: bool,
}

const READS_NO_MORE: u32 = 1 << 28;
const ACKS: u32 = 0xffff;

impl Packet {
    /// A packet without the flag.
    pub const fn new(kind: Kind, acks: u32) -> Packet {
        Packet { kind, acks, reads_no_more: false }
    }

    /// As immediate data.
    #[inline]
    pub const fn encode(self) -> u32 {
        debug_assert!(self.acks <= MAX_WINDOW);
        (self.kind as u32) << 29 | if self.reads_no_more { READS_NO_MORE } else { 0 } | self.acks
    }

    /// From immediate data, if it is one of ours.
    #[inline]
    pub fn decode(word: u32) -> Option<Packet> {
        let kind = match word >> 29 {
            1 => Kind::Data,
            2 => Kind::Ack,
            3 => Kind::Wakeup,
            4 => Kind::Fin,
            5 => Kind::FinAck,
            6 => Kind::Ring,
            7 => Kind::Want,
            _ => return None,
        };
        let (acks, reads_no_more) = (word & ACKS, word & READS_NO_MORE != 0);
        let rest = word << 3 >> 3 & !(ACKS | READS_NO_MORE);
        let sound = rest == 0 && acks <= MAX_WINDOW && (!reads_no_more || kind == Kind::Fin);
        sound.then_some(Packet { kind, acks, reads_no_more })
    }
}

/// What each side tells the other at connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Longest packet it takes.
    pub mtu: u32,
    /// Packets it takes without having acknowledged them.
    pub window: u32,
    /// Acknowledgements it holds back.
    pub threshold: u32,
    /// Longest packet that it takes as a message; longer ones are written into its ring. The MTU if it has none.
    pub small: u32,
}

impl Greeting {
    /// As private data.
    pub fn encode(&self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        let words = [VERSION, self.mtu, self.window, self.threshold, self.small];
        for (at, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From private data.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Greeting, &'static str> {
        let bytes: &[u8; GREETING_LEN] = bytes.try_into().map_err(|_| "no greeting of this protocol")?;
        if bytes[..4] != MAGIC {
            return Err("no greeting of this protocol");
        }
        let mut words = [0; 5];
        for (word, at) in words.iter_mut().zip(bytes[4..].chunks_exact(4)) {
            *word = u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
        }
        let [version, mtu, window, threshold, small] = words;
        if version != VERSION {
            return Err("another version");
        }
        if mtu == 0 || mtu > 1 << 30 || window == 0 || window > MAX_WINDOW || threshold >= window {
            return Err("settings that cannot work");
        }
        if small > mtu || (small as usize) < RING_LEN && small != mtu {
            return Err("settings that cannot work");
        }
        Ok(Greeting { mtu, window, threshold, small })
    }

    /// Whether it has a ring, so that only short packets come as messages.
    pub fn has_ring(&self) -> bool {
        self.small != self.mtu
    }

    /// Bytes of a message that comes to it, at most: packets, and where the peer's ring is.
    pub fn longest_message(&self) -> usize {
        (self.small as usize).max(RING_LEN)
    }

    /// Part of the window that is open from the beginning: of an end with a ring a few packets, because there may be many
    /// ends that never use theirs.
    pub fn open(&self) -> u32 {
        if self.has_ring() { self.window.min(OPEN) } else { self.window }
    }
}

/// Packets of a window that is not all open from the beginning.
const OPEN: u32 = 4;

/// Where a ring lies, as a RING packet tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingAt {
    /// Address in the memory of the end that offers it.
    pub addr: u64,
    /// Its handle there.
    pub handle: u32,
    /// Its bytes; 0 says that there is none to be had.
    pub len: u32,
}

impl RingAt {
    /// As bytes of a packet.
    pub fn encode(self) -> [u8; RING_LEN] {
        let mut bytes = [0; RING_LEN];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.handle.to_le_bytes());
        bytes[12..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// From the bytes of a packet.
    pub fn decode(bytes: &[u8; RING_LEN]) -> RingAt {
        let word = |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        RingAt { addr: u64::from(word(0)) | u64::from(word(4)) << 32, handle: word(8), len: word(12) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Miri has no current folder to keep failures in, and time for a few cases only.
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            cases: if cfg!(miri) { 16 } else { 256 },
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_word_is_one_packet_or_none(word: u32) {
            if let Some(packet) = Packet::decode(word) {
                prop_assert_eq!(packet.encode(), word);
            }
        }

        #[test]
        fn packets_come_back(kind in 1u32..=7, acks in 0..=MAX_WINDOW) {
            let packet = Packet::decode(kind << 29 | acks).unwrap();
            prop_assert_eq!(packet.acks, acks);
            prop_assert_eq!(Packet::decode(packet.encode()), Some(packet));
        }

        #[test]
        fn any_bytes_are_a_sound_greeting_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(Greeting::decode(&bytes).is_err());
        }

        #[test]
        fn a_changed_greeting_is_sound_or_refused(at in 0..GREETING_LEN, to: u8) {
            let mut bytes = Greeting { mtu: 32_768, window: 32, threshold: 16, small: 128 }.encode();
            bytes[at] = to;
            if let Ok(g) = Greeting::decode(&bytes) {
                prop_assert!(g.threshold < g.window && g.window <= MAX_WINDOW && g.mtu > 0);
                prop_assert!(g.small <= g.mtu && g.open() > 0 && g.open() <= g.window);
            }
        }

        #[test]
        fn rings_come_back(addr: u64, handle: u32, len: u32) {
            let ring = RingAt { addr, handle, len };
            prop_assert_eq!(RingAt::decode(&ring.encode()), ring);
        }
    }

    #[test]
    fn only_a_fin_says_that_its_sender_reads_no_more() {
        for kind in [Kind::Data, Kind::Ack, Kind::Wakeup, Kind::Fin, Kind::FinAck, Kind::Ring, Kind::Want] {
            let word = Packet { kind, acks: 1, reads_no_more: true }.encode();
            assert_eq!(Packet::decode(word).is_some(), kind == Kind::Fin, "{kind:?}");
        }
    }
}
