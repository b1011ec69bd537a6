//! Greetings at the door: processes of different users prove to each other that they are of one job. Pure: messages in,
//! messages out.
//!
//! ```text
//!   client                                  server
//!   GREETING  nonce ──────────────────────▶ a user that is let in? (the kernel names it)
//!             ◀─────────── GREETING  nonce, proof
//!   GREETING  proof ──────────────────────▶ of this job; from here on as between processes of one user
//! ```
//!
//! The proofs cover the users of both ends, as each knows its own and the kernel tells the other's: a process in between
//! would be a third user, and cannot pass on what was said to it.

use viaduct_job::Token;
use viaduct_job::auth::{Nonce, Role, prove, verify};
use viaduct_via::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::wire::{MAGIC, VERSION};
use crate::config::OtherUsers;

/// Told to a peer that has another token.
const OTHER_TOKEN: &str = "the two users have different job tokens; give both the same VIADUCT_TOKEN_FILE";

/// A step of it.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Greeting {
    magic: u64,
    version: u32,
    spare: u32,
    nonce: [u8; 32],
    proof: [u8; 32],
}

impl Greeting {
    fn new(nonce: Nonce, proof: [u8; 32]) -> Greeting {
        Greeting { magic: MAGIC, version: VERSION, spare: 0, nonce: nonce.0, proof }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Greeting, Error> {
        let greeting =
            Greeting::read_from_bytes(bytes).map_err(|_| Error::Protocol("message of a wrong length"))?;
        match (greeting.magic, greeting.version) {
            (MAGIC, VERSION) => Ok(greeting),
            (MAGIC, theirs) => Err(Error::VersionMismatch { ours: VERSION, theirs }),
            _ => Err(Error::Protocol("not a Viaduct message")),
        }
    }
}

/// What a NIC needs to meet processes of other users.
pub(crate) struct Meeting {
    pub(crate) token: Token,
    pub(crate) users: OtherUsers,
    /// What this host is called, if anything.
    pub(crate) host: Option<String>,
    /// Our own user.
    pub(crate) own: u32,
}

impl Meeting {
    /// Whether we connect with this user.
    pub(crate) fn lets_in(&self, user: u32) -> bool {
        user == self.own || self.users.has(user)
    }

    /// The abstract name at which an address is met. A process without the token cannot take it before its owner does.
    pub(crate) fn name(&self, address: &str) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or_default();
        let secret = self.token.derive(format!("shm {host}\0{address}").as_bytes());
        let digits: String = secret[..16].iter().map(|b| format!("{b:02x}")).collect();
        format!("viaduct-{digits}").into_bytes()
    }
}

/// The asking end, after its greeting.
pub(crate) struct Client {
    nonce: Nonce,
    said: [u8; 8],
}

impl Client {
    pub(crate) fn new(meeting: &Meeting, server: u32) -> (Client, Greeting) {
        let client = Client { nonce: Nonce::random(), said: said(meeting.own, server) };
        let greeting = Greeting::new(client.nonce, [0; 32]);
        (client, greeting)
    }

    /// The server has greeted: its proof is checked, and ours is the answer.
    pub(crate) fn greeted(&self, greeting: &Greeting, token: &Token) -> Result<Greeting, Error> {
        let theirs = Nonce(greeting.nonce);
        if !verify(token, Role::Server, &self.nonce, &theirs, &self.said, &greeting.proof) {
            return Err(Error::NotOfThisJob(OTHER_TOKEN));
        }
        Ok(Greeting::new(self.nonce, prove(token, Role::Client, &self.nonce, &theirs, &self.said)))
    }
}

/// The asked end, after its greeting.
pub(crate) struct Server {
    client: Nonce,
    nonce: Nonce,
    said: [u8; 8],
}

impl Server {
    pub(crate) fn new(greeting: &Greeting, meeting: &Meeting, client: u32) -> (Server, Greeting) {
        let said = said(client, meeting.own);
        let server = Server { client: Nonce(greeting.nonce), nonce: Nonce::random(), said };
        let proof = prove(&meeting.token, Role::Server, &server.client, &server.nonce, &said);
        let answer = Greeting::new(server.nonce, proof);
        (server, answer)
    }

    /// Whether the client has proved that it is of this job.
    pub(crate) fn proven(&self, proof: &Greeting, token: &Token) -> bool {
        verify(token, Role::Client, &self.client, &self.nonce, &self.said, &proof.proof)
    }
}

/// What both proofs cover, besides the nonces: the users of the two ends.
fn said(client: u32, server: u32) -> [u8; 8] {
    (u64::from(client) << 32 | u64::from(server)).to_le_bytes()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn meeting(token: &Token, own: u32) -> Meeting {
        Meeting { token: token.clone(), users: OtherUsers::Everybody, host: None, own }
    }

    #[test]
    fn two_users_of_one_job_get_along_and_others_do_not() {
        let (token, other) = (Token::random(), Token::random());
        for (theirs, fits) in [(&token, true), (&other, false)] {
            let (here, there) = (meeting(&token, 1), meeting(theirs, 2));
            let (client, greeting) = Client::new(&here, 2);
            let (server, answer) = Server::new(&greeting, &there, 1);
            match client.greeted(&answer, &here.token) {
                Ok(proof) => assert!(fits && server.proven(&proof, &there.token)),
                Err(error) => assert!(!fits && matches!(error, Error::NotOfThisJob(_))),
            }
            // A client that does not care about the server's proof still has none of its own.
            assert!(!server.proven(&answer, &there.token));
        }
    }

    #[test]
    fn a_user_in_between_is_noticed() {
        let token = Token::random();
        let (here, there) = (meeting(&token, 1), meeting(&token, 2));
        // User 3 passes on what the two say: each of them sees user 3 at the other end.
        let (client, greeting) = Client::new(&here, 3);
        let (server, answer) = Server::new(&greeting, &there, 3);
        assert!(client.greeted(&answer, &token).is_err());
        let (honest, _) = Server::new(&greeting, &meeting(&token, 3), 1);
        let proof = client.greeted(&Server::new(&greeting, &meeting(&token, 3), 1).1, &token).unwrap();
        assert!(!server.proven(&proof, &token) && !honest.proven(&proof, &token), "nonces are used once");
    }

    #[test]
    fn names_tell_jobs_hosts_and_addresses_apart() {
        let here = meeting(&Token::random(), 1);
        assert_eq!(here.name("echo"), meeting(&here.token, 2).name("echo"), "users of one job meet");
        assert_ne!(here.name("echo"), here.name("other"));
        assert_ne!(here.name("echo"), meeting(&Token::random(), 1).name("echo"));
        let named = Meeting { host: Some("a".into()), ..meeting(&here.token, 1) };
        assert_ne!(here.name("echo"), named.name("echo"));
    }

    #[test]
    fn other_versions_are_told_from_garbage() {
        let (_, greeting) = Client::new(&meeting(&Token::random(), 1), 2);
        let mut bytes = greeting.as_bytes().to_vec();
        assert!(Greeting::parse(&bytes).is_ok() && Greeting::parse(&bytes[1..]).is_err());
        bytes[8] ^= 64;
        assert!(matches!(Greeting::parse(&bytes), Err(Error::VersionMismatch { .. })));
        bytes[0] ^= 1;
        assert!(matches!(Greeting::parse(&bytes), Err(Error::Protocol(_))));
    }
}
