//! A ticket: a launcher that two agents know lets one of them call the other, for one message.
//!
//! In a tree of agents the launcher talks to the first ones only. What it wants said further down it gives them word for
//! word, with a ticket for the agent that is to hear it. Launcher and agent make the same secret out of their two keys
//! (X25519), so the ticket needs no conversation: it is an HMAC-SHA256 under that secret over giver, bearer, agent and
//! the digest of the message. It is of no use to a finder: the bearer still has to prove its key.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::identity::{Identity, LEN, PublicKey};

/// Bytes of a ticket.
const BYTES: usize = 3 * LEN;

/// Lets its bearer say one message to one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    giver: PublicKey,
    digest: [u8; LEN],
    mac: [u8; LEN],
}

impl Ticket {
    /// Lets `bearer` say `message` to `agent`, which knows `giver`.
    pub fn new(giver: &Identity, bearer: PublicKey, agent: PublicKey, message: &[u8]) -> Ticket {
        let digest: [u8; LEN] = Sha256::digest(message).into();
        let mac = mac(giver, agent, giver.public(), bearer, agent, &digest);
        Ticket { giver: giver.public(), digest, mac: mac.finalize().into_bytes().into() }
    }

    /// The key of its giver.
    pub fn giver(&self) -> PublicKey {
        self.giver
    }

    /// Whether the giver has made it for this bearer and this agent.
    pub fn admits(&self, agent: &Identity, bearer: PublicKey) -> bool {
        let mac = mac(agent, self.giver, self.giver, bearer, agent.public(), &self.digest);
        mac.verify_slice(&self.mac).is_ok()
    }

    /// Whether it is for this message.
    pub fn is_for(&self, message: &[u8]) -> bool {
        self.digest == <[u8; LEN]>::from(Sha256::digest(message))
    }

    /// As it travels.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.giver.0, self.digest, self.mac].concat()
    }

    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Option<Ticket> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let part = |n: usize| bytes[n * LEN..(n + 1) * LEN].try_into().expect("a third of them");
        Some(Ticket { giver: PublicKey(part(0)), digest: part(1), mac: part(2) })
    }
}

/// Under the secret of the asking identity and `other`, over the keys that the ticket is about.
fn mac(
    own: &Identity,
    other: PublicKey,
    giver: PublicKey,
    bearer: PublicKey,
    agent: PublicKey,
    digest: &[u8; LEN],
) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(&own.shared(other)).expect("a key of any length is taken");
    mac.update(b"viaduct ticket 1");
    for part in [&giver.0, &bearer.0, &agent.0, digest] {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use viaduct_job::Token;

    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_bearer_one_agent_and_one_message() {
        let [launcher, bearer, agent, other] = [(); 4].map(|()| Identity::from_token(&Token::random()));
        let ticket = Ticket::new(&launcher, bearer.public(), agent.public(), b"start");
        let ticket = Ticket::parse(&ticket.to_bytes()).unwrap();
        assert!(ticket.admits(&agent, bearer.public()) && ticket.is_for(b"start"));
        assert_eq!(ticket.giver(), launcher.public());
        assert!(!ticket.is_for(b"start something else"));
        assert!(!ticket.admits(&agent, other.public()), "stolen");
        assert!(!ticket.admits(&other, bearer.public()), "shown to another agent");
        for at in 0..BYTES {
            let mut bytes = ticket.to_bytes();
            bytes[at] ^= 1;
            assert!(!Ticket::parse(&bytes).unwrap().admits(&agent, bearer.public()), "byte {at}");
        }
        for bytes in [&[][..], &[0; BYTES - 1], &[0; BYTES + 1]] {
            assert_eq!(Ticket::parse(bytes), None);
        }
    }
}
