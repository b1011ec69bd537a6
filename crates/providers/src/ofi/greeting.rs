//! Authentication at set-up: which end speaks, what each proves, and what is refused. Pure: greetings in, greetings out.
//!
//! ```text
//!   client                                  server
//!   REQUEST   nonce, addresses, VI ───────▶ nothing is looked up yet
//!             ◀─────────── CHALLENGE  nonce, proof        or WRONG_VERSION
//!   PROOF     proof ──────────────────────▶ of this job? is the name there?
//!             ◀─────────── ACCEPT | REJECT | NO_MATCH | FULL | EXHAUSTED | ELSEWHERE | MISMATCH | NOT_OF_THIS_JOB
//! ```
//!
//! The proofs cover the request and the challenge as a whole, so that a program in between cannot change an attribute, and
//! the port that the client dialled, so that one at another port cannot pass the greeting on. What is
//! sent after set-up is neither signed nor encrypted (ADR 0009).

use viaduct_job::Token;
use viaduct_job::auth::{Nonce, Role, prove, verify};
use viaduct_via::Error;
use zerocopy::IntoBytes;

use super::wire::{Hello, step};

/// Why a proof was wrong, with a hint.
const OTHER_TOKEN: &str = "the two ends have different job tokens, or a program between them passes the connection on; \
     give both the same VIADUCT_TOKEN_FILE";

/// The asking end, after its request.
pub(crate) struct Client {
    request: Hello,
    /// The port that it dialled.
    port: u16,
}

impl Client {
    /// Starts at this port with a request, to which a nonce is added.
    pub(crate) fn new(mut request: Hello, port: u16) -> (Client, Hello) {
        request.nonce = Nonce::random().0;
        (Client { request, port }, request)
    }

    /// The server's challenge came: its proof is checked, and ours is the answer.
    pub(crate) fn answer_challenge(&self, challenge: &Hello, token: &Token) -> Result<Hello, Error> {
        let (ours, theirs) = (Nonce(self.request.nonce), Nonce(challenge.nonce));
        let said = said(&self.request, challenge, self.port);
        if !verify(token, Role::Server, &ours, &theirs, &said, &challenge.proof) {
            return Err(Error::NotOfThisJob(OTHER_TOKEN));
        }
        let mut answer = Hello::new(step::PROOF);
        answer.proof = prove(token, Role::Client, &ours, &theirs, &said);
        Ok(answer)
    }
}

/// The asked end, after its challenge.
pub(crate) struct Server {
    request: Hello,
    challenge: Hello,
    /// The port at which the client arrived.
    port: u16,
}

impl Server {
    /// A request came: the answer is a challenge.
    pub(crate) fn new(request: Hello, token: &Token, port: u16) -> (Server, Hello) {
        let mut challenge = Hello::new(step::CHALLENGE);
        challenge.nonce = Nonce::random().0;
        let (client, server) = (Nonce(request.nonce), Nonce(challenge.nonce));
        let said = said(&request, &challenge, port);
        challenge.proof = prove(token, Role::Server, &client, &server, &said);
        (Server { request, challenge, port }, challenge)
    }

    /// The client's proof came: its request, if it is of this job.
    pub(crate) fn check_proof(self, proof: &Hello, token: &Token) -> Result<Hello, Error> {
        let (client, server) = (Nonce(self.request.nonce), Nonce(self.challenge.nonce));
        let said = said(&self.request, &self.challenge, self.port);
        if !verify(token, Role::Client, &client, &server, &said, &proof.proof) {
            return Err(Error::NotOfThisJob(OTHER_TOKEN));
        }
        Ok(self.request)
    }
}

/// Why the server said no.
pub(crate) fn refusal(answer: &Hello, to: &str) -> Error {
    match answer.step() {
        step::REJECT => Error::Rejected(answer.parties.private().to_vec()),
        step::NO_MATCH => Error::NoMatch(to.to_owned()),
        step::FULL => Error::backlog_full(to),
        step::EXHAUSTED => Error::listener_exhausted(to),
        step::NOT_OF_THIS_JOB => Error::NotOfThisJob(OTHER_TOKEN),
        _ => Error::Protocol("an answer out of turn"),
    }
}

/// What both proofs cover: the request, the challenge without its proof, and the port of the server, which each end knows
/// by itself. A program that takes the connection at another port and passes it on is found out.
fn said(request: &Hello, challenge: &Hello, port: u16) -> Vec<u8> {
    let mut challenge = *challenge;
    challenge.proof = [0; 32];
    [request.as_bytes(), challenge.as_bytes(), &port.to_le_bytes()].concat()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PORT: u16 = 4711;

    fn request() -> Hello {
        let mut hello = Hello::new(step::REQUEST);
        hello.parties.set_private(b"private");
        hello
    }

    #[test]
    fn two_of_one_job_get_along() {
        let token = Token::random();
        let (client, hello) = Client::new(request(), PORT);
        let (server, challenge) = Server::new(hello, &token, PORT);
        let proof = client.answer_challenge(&challenge, &token).unwrap();
        assert_eq!(server.check_proof(&proof, &token).unwrap().parties.private(), b"private");
    }

    #[test]
    fn each_end_notices_another_token() {
        let (ours, theirs) = (Token::random(), Token::random());
        let (client, hello) = Client::new(request(), PORT);
        let (server, challenge) = Server::new(hello, &theirs, PORT);
        assert!(matches!(client.answer_challenge(&challenge, &ours), Err(Error::NotOfThisJob(_))));
        // A client that does not care about the server's proof still has none of its own.
        let mut forged = Hello::new(step::PROOF);
        forged.proof = challenge.proof;
        assert!(matches!(server.check_proof(&forged, &theirs), Err(Error::NotOfThisJob(_))));
    }

    #[test]
    fn a_change_on_the_way_is_noticed() {
        let token = Token::random();
        let (client, hello) = Client::new(request(), PORT);
        let mut changed = hello;
        changed.parties.set_private(b"another");
        let (_, challenge) = Server::new(changed, &token, PORT);
        assert!(client.answer_challenge(&challenge, &token).is_err());
    }

    #[test]
    fn a_connection_that_was_passed_on_from_another_port_is_noticed() {
        let token = Token::random();
        let (client, hello) = Client::new(request(), PORT);
        let (server, challenge) = Server::new(hello, &token, PORT + 1);
        assert!(matches!(client.answer_challenge(&challenge, &token), Err(Error::NotOfThisJob(_))));
        // Nor does the server take a client that does not care.
        let said = said(&hello, &challenge, PORT);
        let mut proof = Hello::new(step::PROOF);
        proof.proof = prove(&token, Role::Client, &Nonce(hello.nonce), &Nonce(challenge.nonce), &said);
        assert!(matches!(server.check_proof(&proof, &token), Err(Error::NotOfThisJob(_))));
    }

    #[test]
    fn a_recorded_proof_is_of_no_use() {
        let token = Token::random();
        let (client, hello) = Client::new(request(), PORT);
        let (_, challenge) = Server::new(hello, &token, PORT);
        let proof = client.answer_challenge(&challenge, &token).unwrap();
        let (again, _) = Server::new(hello, &token, PORT);
        assert!(again.check_proof(&proof, &token).is_err());
    }

    #[test]
    fn answers_have_their_errors() {
        let mut answer = Hello::new(step::REJECT);
        answer.parties.set_private(b"why");
        assert!(matches!(refusal(&answer, "x"), Error::Rejected(d) if d == b"why"));
        assert!(matches!(refusal(&Hello::new(step::NO_MATCH), "x"), Error::NoMatch(to) if to == "x"));
        for kind in [step::FULL, step::EXHAUSTED] {
            assert!(
                matches!(refusal(&Hello::new(kind), "x"), Error::NoRoom { address, .. } if address == "x")
            );
        }
        assert!(matches!(refusal(&Hello::new(step::NOT_OF_THIS_JOB), "x"), Error::NotOfThisJob(_)));
        assert!(matches!(refusal(&Hello::new(77), "x"), Error::Protocol(_)));
    }
}
