//! What the library and the agent say to each other: packets of fixed size over a local socket, with descriptors.
//!
//! A claim brings the socket itself: possession is the proof, and the kernel says which connection it is. The answer is
//! a verdict and, if it is good, the segment, the claimant's bell and the peer's.

/// The version of both, and of what lies in a segment.
pub const VERSION: u32 = 4;
const MAGIC: u32 = 0x5644_4354;
/// Bytes of a claim.
pub const CLAIM: usize = 16;
/// Bytes of an answer.
pub const ANSWER: usize = 32;

/// Why a connection was given no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// It was.
    Granted = 0,
    /// The packet made no sense.
    Malformed = 1,
    /// It is no established connection of TCP.
    NotConnected = 2,
    /// The socket is of another network namespace than the agent.
    OtherNamespace = 3,
    /// Both ends have one name.
    ToItself = 4,
    /// The agent has no memory or descriptors left.
    Exhausted = 5,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 6] = [
        Verdict::Granted,
        Verdict::Malformed,
        Verdict::NotConnected,
        Verdict::OtherNamespace,
        Verdict::ToItself,
        Verdict::Exhausted,
    ];

    /// In words.
    pub fn reason(self) -> &'static str {
        match self {
            Verdict::Granted => "granted",
            Verdict::Malformed => "the agent did not understand the claim",
            Verdict::NotConnected => "not an established connection",
            Verdict::OtherNamespace => "another network namespace than the agent's",
            Verdict::ToItself => "a connection to itself",
            Verdict::Exhausted => "the agent has no memory or descriptors left",
        }
    }
}

/// Bytes of a note, at most.
pub const NOTE: usize = 8 + 120;
/// Bytes of what the agent has counted, at most.
pub const COUNTS: usize = 8192;
const IS_NOTE: u32 = VERSION | 1 << 16;
const IS_QUESTION: u32 = VERSION | 2 << 16;

fn head(kind: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..].copy_from_slice(&kind.to_le_bytes());
    bytes
}

/// Why a connection stays on TCP, for the agent's counts; it is not answered. The bytes, and how many of them.
pub fn note(reason: &str) -> ([u8; NOTE], usize) {
    let mut bytes = [0; NOTE];
    let len = reason.len().min(NOTE - 8);
    bytes[..8].copy_from_slice(&head(IS_NOTE));
    bytes[8..8 + len].copy_from_slice(&reason.as_bytes()[..len]);
    (bytes, 8 + len)
}

/// The reason in a note.
pub fn parse_note(bytes: &[u8]) -> Option<&str> {
    let text = bytes.strip_prefix(&head(IS_NOTE))?;
    let plain = text.len() <= NOTE - 8 && text.iter().all(|byte| (b' '..=b'~').contains(byte));
    std::str::from_utf8(text).ok().filter(|text| plain && !text.is_empty())
}

/// What was counted? The answer is text: a number and a reason a line, the first line has the upgraded connections.
pub fn question() -> [u8; 8] {
    head(IS_QUESTION)
}

/// A claim.
pub fn claim() -> [u8; CLAIM] {
    let mut bytes = [0; CLAIM];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Whether this is a claim that we understand.
pub fn is_claim(bytes: &[u8]) -> bool {
    bytes == claim()
}

/// An answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether, and why not.
    pub verdict: Verdict,
    /// The claimant's side, 0 or 1.
    pub side: u32,
    /// Whether the other side had claimed already: then this one opens at once.
    pub second: bool,
    /// Whether this very end was claimed before, by this process or another.
    pub again: bool,
    /// The connection. No later agent of this machine gives that number to another.
    pub id: u64,
}

impl Answer {
    /// No, and why.
    pub fn refusal(verdict: Verdict) -> Answer {
        Answer { verdict, side: 0, second: false, again: false, id: 0 }
    }

    /// As bytes.
    pub fn render(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        let flags = u32::from(self.second) | u32::from(self.again) << 1;
        let words = [MAGIC, VERSION, self.verdict as u32, self.side, flags];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// From bytes.
    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let bytes: &[u8; ANSWER] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let id = u64::from(word(24)) | u64::from(word(28)) << 32;
        let verdict = *Verdict::ALL.get(word(8) as usize)?;
        let good = word(0) == MAGIC && word(4) == VERSION && word(12) < 2 && word(16) < 4;
        let (second, again) = (word(16) & 1 != 0, word(16) & 2 != 0);
        good.then_some(Answer { verdict, side: word(12), second, again, id })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn answers_there_and_back(verdict in 0..6usize, side in 0..2u32, second: bool, again: bool, id: u64) {
            let answer = Answer { verdict: Verdict::ALL[verdict], side, second, again, id };
            prop_assert_eq!(Answer::parse(&answer.render()), Some(answer));
        }

        #[test]
        fn anything_else_is_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Answer::parse(&bytes).is_none() && !is_claim(&bytes));
        }
    }

    #[test]
    fn a_note_has_a_reason_of_plain_text() {
        let (bytes, len) = note("the peer is on another host");
        assert_eq!(parse_note(&bytes[..len]), Some("the peer is on another host"));
        let (bytes, len) = note(&"x".repeat(500));
        assert_eq!(parse_note(&bytes[..len]).map(str::len), Some(NOTE - 8));
        assert!(
            parse_note(&claim()).is_none() && parse_note(&question()).is_none() && !is_claim(&question())
        );
        let mut odd = bytes;
        odd[20] = 7;
        assert_eq!(parse_note(&odd[..40]), None);
    }

    #[test]
    fn a_claim_is_one() {
        assert!(is_claim(&claim()));
        assert!(Verdict::ALL.iter().enumerate().all(|(index, &verdict)| verdict as usize == index));
    }
}
