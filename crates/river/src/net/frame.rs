//! What stands before the payload of a buffer between nodes (`docs/protocols/river.md`).

use crate::buffer::Buffer;
use crate::error::Error;

/// Bytes of a head.
pub(super) const HEAD: usize = 32;

/// The longest words about a failure.
pub(super) const WORDS: usize = 1024;

/// The position of a buffer that has none.
const NO_POSITION: u64 = u64::MAX;

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    End,
    Failure,
    /// A part of a long buffer, whose last part comes as data.
    Piece,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) len: usize,
    pub(super) records: u64,
    pub(super) position: Option<u64>,
    pub(super) sequence: u64,
}

impl Head {
    pub(super) fn of(buffer: &Buffer) -> Head {
        Head {
            kind: Kind::Data,
            len: buffer.len(),
            records: buffer.records(),
            position: buffer.position(),
            sequence: buffer.sequence(),
        }
    }

    pub(super) fn control(kind: Kind, len: usize) -> Head {
        Head { kind, len, records: 0, position: None, sequence: 0 }
    }

    /// The head as it travels.
    ///
    /// # Errors
    /// If the payload is longer than a head can say.
    pub(super) fn to_bytes(self) -> Result<[u8; HEAD], Error> {
        let len = u32::try_from(self.len).map_err(|_| {
            let len = self.len;
            Error::Format(format!(
                "a record of {len} bytes is more than one frame of an edge carries, which is 4 GiB; \
                 hint: edges over VIA carry it in pieces"
            ))
        })?;
        let kind = match self.kind {
            Kind::Data => 1u32,
            Kind::End => 2,
            Kind::Failure => 3,
            Kind::Piece => 4,
        };
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        let position = self.position.unwrap_or(NO_POSITION);
        for (slot, value) in bytes[8..].chunks_exact_mut(8).zip([self.records, position, self.sequence]) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Reads a head of a peer, whose payload must not be longer than `most`.
    pub(super) fn from_bytes(bytes: &[u8; HEAD], most: usize) -> Result<Head, Error> {
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside the head"));
        let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the head"));
        let kind = match word(0) {
            1 => Kind::Data,
            2 => Kind::End,
            3 => Kind::Failure,
            4 => Kind::Piece,
            other => return Err(Error::Format(format!("a frame of unknown kind {other}"))),
        };
        let len = word(4) as usize;
        if len > most || kind == Kind::Failure && len > WORDS {
            return Err(Error::Format(format!("a frame of {len} bytes where {most} fit")));
        }
        let position = Some(long(16)).filter(|position| *position != NO_POSITION);
        Ok(Head { kind, len, records: long(8), position, sequence: long(24) })
    }

    /// Says of a buffer what the head says.
    pub(super) fn mark(&self, buffer: &mut Buffer) {
        buffer.set_window(0, self.len);
        buffer.set_records(self.records);
        match self.position {
            Some(position) => buffer.set_position(position),
            None => buffer.forget_position(),
        }
        buffer.set_sequence(self.sequence);
    }
}

/// The words of a failure, cut to what fits.
pub(super) fn words_of(error: &Error) -> Vec<u8> {
    let mut words = error.to_string();
    while words.len() > WORDS {
        words.pop();
    }
    words.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_and_bad_ones_are_refused() {
        for kind in [Kind::Data, Kind::End, Kind::Failure, Kind::Piece] {
            for position in [Some(5), None] {
                let head = Head { kind, len: 77, records: 1 << 40, position, sequence: 6 };
                let bytes = head.to_bytes().unwrap();
                assert_eq!(Head::from_bytes(&bytes, 77).unwrap(), head);
                assert!(Head::from_bytes(&bytes, 76).is_err());
            }
        }
        assert!(Head::from_bytes(&[9; HEAD], 1 << 40).is_err());
        let long = Head::control(Kind::Failure, 5000).to_bytes().unwrap();
        assert!(Head::from_bytes(&long, 1 << 20).is_err());
    }

    #[test]
    fn a_payload_that_is_longer_than_a_head_can_say_is_not_cut() {
        let head = |len| Head { kind: Kind::Data, len, records: 1, position: None, sequence: 0 };
        assert!(head(u32::MAX as usize).to_bytes().is_ok());
        let told = head((1 << 32) + 7).to_bytes().unwrap_err().to_string();
        assert!(told.contains("4294967303 bytes") && told.contains("hint"), "{told}");
    }

    #[test]
    fn any_bytes_of_a_peer_are_read_or_refused() {
        let heads = [Kind::Data, Kind::End, Kind::Failure, Kind::Piece].map(|kind| {
            Head { kind, len: 77, records: 3, position: Some(5), sequence: 6 }.to_bytes().unwrap().to_vec()
        });
        viaduct_kit::fuzz::spoil(&heads, |bytes| {
            let Some(head) = bytes.first_chunk::<HEAD>() else { return };
            if let Ok(read) = Head::from_bytes(head, 4096) {
                assert!(read.len <= 4096 && (read.kind != Kind::Failure || read.len <= WORDS), "{read:?}");
                assert_eq!(read.to_bytes().unwrap(), *head, "what is read is what was sent");
                // A buffer of the receiver's is marked without a panic.
                read.mark(&mut Buffer::heap(4096));
            }
        });
    }
}
