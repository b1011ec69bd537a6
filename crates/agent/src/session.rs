//! An encrypted conversation between two that have pinned each other's keys. Pure: bytes in, messages out.
//!
//! Noise IK: the caller knows the agent's key and proves its own inside of the first message; the agent looks whether it
//! knows the caller before it answers. Each record is two bytes of length and so many bytes of Noise; inside of it one
//! byte says whether the message goes on in the next record.

use std::collections::VecDeque;

use snow::{Builder, HandshakeState, TransportState};

use crate::error::Error;
use crate::identity::{Identity, PublicKey};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// Both ends mix this in: another version fails at the first message.
const PROLOGUE: &[u8] = b"viaduct agent 1";
/// Longest record, and what of it is payload.
const RECORD: usize = 65_535;
const PIECE: usize = RECORD - 16 - 1;
/// Longest message.
pub const LONGEST: usize = 64 << 20;

/// One end of a conversation.
#[derive(Debug)]
pub struct Session {
    state: State,
    peer: Option<PublicKey>,
    /// What the caller showed with its key.
    shown: Vec<u8>,
    input: Vec<u8>,
    output: VecDeque<u8>,
    message: Vec<u8>,
    /// Said before the handshake was over.
    early: Vec<Vec<u8>>,
}

enum State {
    /// The caller has asked.
    Asked(Box<HandshakeState>),
    /// The agent waits for the first message.
    Waits(Box<HandshakeState>),
    Talks(Box<TransportState>),
    Broken,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Asked(_) => "Asked",
            State::Waits(_) => "Waits",
            State::Talks(_) => "Talks",
            State::Broken => "Broken",
        })
    }
}

impl Session {
    /// The caller's end, to the owner of this key; `show` travels with our own key, sealed for that one alone.
    ///
    /// # Errors
    /// If there is no randomness to be had.
    pub fn call(identity: &Identity, agent: PublicKey, show: &[u8]) -> Result<Session, Error> {
        let mut state = builder(identity)?
            .remote_public_key(&agent.0)
            .and_then(Builder::build_initiator)
            .map_err(|_| Error::Refused("the agent's key is no key"))?;
        let mut bytes = vec![0; 256 + show.len()];
        let n = state.write_message(show, &mut bytes).map_err(|_| Error::Refused("no handshake"))?;
        let mut session = Session::new(State::Asked(Box::new(state)), Some(agent));
        session.record(&bytes[..n]);
        Ok(session)
    }

    /// The agent's end.
    ///
    /// # Errors
    /// As above.
    pub fn answer(identity: &Identity) -> Result<Session, Error> {
        let state = builder(identity)?.build_responder().map_err(|_| Error::Refused("no handshake"))?;
        Ok(Session::new(State::Waits(Box::new(state)), None))
    }

    /// Takes what arrived; whole messages go to `messages`. `admit` is asked once, about the caller's key and what it
    /// showed.
    ///
    /// # Errors
    /// [`Error::Refused`]: this conversation is over.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        admit: &dyn Fn(PublicKey, &[u8]) -> bool,
        messages: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some((head, tail)) = rest.split_first_chunk::<2>() {
            let Some((record, tail)) = tail.split_at_checked(usize::from(u16::from_be_bytes(*head))) else {
                break;
            };
            if let Err(why) = self.open(record, admit, messages) {
                self.state = State::Broken;
                return Err(why);
            }
            rest = tail;
        }
        self.input = rest.to_vec();
        Ok(())
    }

    /// Says a message.
    pub fn say(&mut self, message: &[u8]) {
        let State::Talks(state) = &mut self.state else {
            if !matches!(self.state, State::Broken) {
                self.early.push(message.to_vec());
            }
            return;
        };
        let mut pieces = message.chunks(PIECE).peekable();
        let (mut first, mut plain, mut sealed) = (true, Vec::new(), vec![0; RECORD]);
        // An empty message is one piece, too.
        while first || pieces.peek().is_some() {
            first = false;
            let piece = pieces.next().unwrap_or_default();
            plain.clear();
            plain.push(u8::from(pieces.peek().is_some()));
            plain.extend_from_slice(piece);
            let n = state.write_message(&plain, &mut sealed).expect("it fits, and numbers do not run out");
            self.output.extend((n as u16).to_be_bytes());
            self.output.extend(&sealed[..n]);
        }
    }

    /// What is to be sent.
    pub fn output(&mut self) -> &mut VecDeque<u8> {
        &mut self.output
    }

    /// The key of the other end, once that is proven.
    pub fn peer(&self) -> Option<PublicKey> {
        self.peer.filter(|_| self.is_ready())
    }

    /// What the caller showed with its key.
    pub fn shown(&self) -> &[u8] {
        &self.shown
    }

    /// Whether both have proven their keys.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Talks(_))
    }

    fn new(state: State, peer: Option<PublicKey>) -> Session {
        let (shown, input, message, early) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Session { state, peer, shown, input, output: VecDeque::new(), message, early }
    }

    fn open(
        &mut self,
        record: &[u8],
        admit: &dyn Fn(PublicKey, &[u8]) -> bool,
        out: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut plain = vec![0; RECORD];
        match std::mem::replace(&mut self.state, State::Broken) {
            State::Waits(mut state) => {
                let strange = |_| Error::Refused("the first message is not for this agent");
                let shown = state.read_message(record, &mut plain).map_err(strange)?;
                let key = state.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey);
                let key = key.ok_or(Error::Refused("the caller has no key"))?;
                if !admit(key, &plain[..shown]) {
                    return Err(Error::Refused("the caller's key was not brought in over ssh"));
                }
                self.shown = plain[..shown].to_vec();
                let n = state.write_message(&[], &mut plain).map_err(|_| Error::Refused("no handshake"))?;
                self.record(&plain[..n]);
                self.peer = Some(key);
                self.talk(*state)
            }
            State::Asked(mut state) => {
                let strange = |_| Error::Refused("the process that answered does not have the agent's key");
                state.read_message(record, &mut plain).map_err(strange)?;
                self.talk(*state)
            }
            State::Talks(mut state) => {
                let n =
                    state.read_message(record, &mut plain).map_err(|_| Error::Refused("a damaged record"))?;
                self.state = State::Talks(state);
                let (more, piece) = plain[..n].split_first().ok_or(Error::Refused("an empty record"))?;
                self.message.extend_from_slice(piece);
                if self.message.len() > LONGEST {
                    return Err(Error::Refused("a message that is too long"));
                }
                if *more == 0 {
                    out.push(std::mem::take(&mut self.message));
                }
                Ok(())
            }
            State::Broken => Err(Error::Refused("the conversation is over")),
        }
    }

    fn talk(&mut self, state: HandshakeState) -> Result<(), Error> {
        let state = state.into_transport_mode().map_err(|_| Error::Refused("no handshake"))?;
        self.state = State::Talks(Box::new(state));
        for message in std::mem::take(&mut self.early) {
            self.say(&message);
        }
        Ok(())
    }

    fn record(&mut self, bytes: &[u8]) {
        self.output.extend((bytes.len() as u16).to_be_bytes());
        self.output.extend(bytes);
    }
}

fn builder(identity: &Identity) -> Result<Builder<'_>, Error> {
    let parameters = PATTERN.parse().expect("a pattern of Noise");
    Builder::new(parameters)
        .local_private_key(identity.private())
        .and_then(|builder| builder.prologue(PROLOGUE))
        .map_err(|_| Error::Refused("our own key is no key"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use viaduct_job::Token;

    use super::*;

    fn pair() -> (Identity, Identity) {
        (Identity::from_token(&Token::random()), Identity::from_token(&Token::random()))
    }

    /// Moves bytes both ways, `cut` at a time, until nothing moves.
    fn run(
        a: &mut Session,
        b: &mut Session,
        admit: &dyn Fn(PublicKey, &[u8]) -> bool,
        cut: usize,
    ) -> Result<[Vec<Vec<u8>>; 2], Error> {
        let mut heard = [Vec::new(), Vec::new()];
        loop {
            let from_a: Vec<u8> = a.output().drain(..).collect();
            let from_b: Vec<u8> = b.output().drain(..).collect();
            if from_a.is_empty() && from_b.is_empty() {
                return Ok(heard);
            }
            for piece in from_a.chunks(cut) {
                b.feed(piece, admit, &mut heard[1])?;
            }
            for piece in from_b.chunks(cut) {
                a.feed(piece, &|_, _| true, &mut heard[0])?;
            }
        }
    }

    #[test]
    fn both_know_each_other_and_messages_of_any_length_pass() {
        let (caller, agent) = pair();
        for cut in [1, 7, 100_000] {
            let mut a = Session::call(&caller, agent.public(), b"shown").unwrap();
            let mut b = Session::answer(&agent).unwrap();
            let long: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
            a.say(b"early");
            a.say(b"");
            let heard =
                run(&mut a, &mut b, &|key, shown| key == caller.public() && shown == b"shown", cut).unwrap();
            assert_eq!(heard[1], [b"early".to_vec(), Vec::new()]);
            assert_eq!((a.peer(), b.peer()), (Some(agent.public()), Some(caller.public())));
            b.say(&long);
            assert_eq!(run(&mut a, &mut b, &|_, _| false, cut.max(1000)).unwrap()[0], [long]);
        }
    }

    #[test]
    fn strangers_and_impostors_are_refused() {
        let (caller, agent) = pair();
        let mut a = Session::call(&caller, agent.public(), b"shown").unwrap();
        let mut b = Session::answer(&agent).unwrap();
        assert!(run(&mut a, &mut b, &|_, _| false, 100).is_err(), "a stranger");
        assert!(b.output().is_empty() && b.peer().is_none(), "a caller that is refused hears nothing");
        let impostor = Identity::from_token(&Token::random());
        let mut a = Session::call(&caller, agent.public(), b"shown").unwrap();
        let mut b = Session::answer(&impostor).unwrap();
        assert!(run(&mut a, &mut b, &|_, _| true, 100).is_err(), "another agent at the same address");
    }

    #[test]
    fn a_changed_byte_ends_it() {
        let (caller, agent) = pair();
        let mut a = Session::call(&caller, agent.public(), b"shown").unwrap();
        let mut b = Session::answer(&agent).unwrap();
        run(&mut a, &mut b, &|_, _| true, 100).unwrap();
        a.say(b"pay 10");
        let mut bytes: Vec<u8> = a.output().drain(..).collect();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(b.feed(&bytes, &|_, _| true, &mut Vec::new()).is_err());
        assert!(b.feed(b"", &|_, _| true, &mut Vec::new()).is_ok() && !b.is_ready());
    }

    proptest! {
        /// Whatever a stranger sends, an agent refuses it or waits for more.
        #[test]
        fn garbage_is_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let agent = Identity::from_token(&Token::random());
            let mut b = Session::answer(&agent).unwrap();
            let mut heard = Vec::new();
            let _ = b.feed(&bytes, &|_, _| true, &mut heard);
            prop_assert!(heard.is_empty() && !b.is_ready());
        }
    }
}
