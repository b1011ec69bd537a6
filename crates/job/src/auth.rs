//! Mutual authentication: each end of a connection proves that it has the token, over fresh numbers of both.
//!
//! ```text
//!   client                               server
//!   nonce ─────────────────────────────▶
//!         ◀───────────── nonce, proof of the server
//!   proof of the client ───────────────▶
//! ```
//!
//! A proof is HMAC-SHA256 under the token over the role, both nonces and everything the two ends have said so far. So a
//! proof cannot be used again (the nonces differ), be sent back to its maker (the role differs), or be used for
//! something else that was said. A process without token learns nothing but that there is one.

use hmac::Mac;
use viaduct_os::random;

use crate::token::Token;

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 32;
/// Bytes of a proof.
pub const PROOF_LEN: usize = 32;

/// A number that is used once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; NONCE_LEN]);

impl Nonce {
    /// A fresh one.
    pub fn random() -> Nonce {
        let mut bytes = [0; NONCE_LEN];
        random::fill(&mut bytes);
        Nonce(bytes)
    }
}

/// Which end of the connection proves something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The one that asked for the connection.
    Client,
    /// The one that was asked.
    Server,
}

impl Role {
    fn label(self) -> &'static [u8] {
        match self {
            Role::Client => b"viaduct 1 client",
            Role::Server => b"viaduct 1 server",
        }
    }
}

/// The proof of one end. `said` is everything that both ends must agree on.
pub fn prove(token: &Token, role: Role, client: &Nonce, server: &Nonce, said: &[u8]) -> [u8; PROOF_LEN] {
    mac(token, role, client, server, said).finalize().into_bytes().into()
}

/// Whether the proof is that of the other end. Takes as long for a wrong one as for a right one.
pub fn verify(token: &Token, role: Role, client: &Nonce, server: &Nonce, said: &[u8], proof: &[u8]) -> bool {
    mac(token, role, client, server, said).verify_slice(proof).is_ok()
}

fn mac(token: &Token, role: Role, client: &Nonce, server: &Nonce, said: &[u8]) -> hmac::Hmac<sha2::Sha256> {
    let mut mac = token.mac();
    // All parts but the last have a fixed length, so that nothing can be moved from one into another.
    mac.update(role.label());
    mac.update(&client.0);
    mac.update(&server.0);
    mac.update(said);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_what_it_was_made_for_and_for_nothing_else() {
        let (token, other) = (Token::random(), Token::random());
        let (c, s) = (Nonce::random(), Nonce::random());
        let proof = prove(&token, Role::Client, &c, &s, b"said");
        assert!(verify(&token, Role::Client, &c, &s, b"said", &proof));
        assert!(!verify(&other, Role::Client, &c, &s, b"said", &proof), "another token");
        assert!(!verify(&token, Role::Server, &c, &s, b"said", &proof), "sent back to its maker");
        assert!(!verify(&token, Role::Client, &s, &c, b"said", &proof), "nonces swapped");
        assert!(!verify(&token, Role::Client, &Nonce::random(), &s, b"said", &proof), "used again");
        assert!(!verify(&token, Role::Client, &c, &s, b"sait", &proof), "something else said");
    }

    #[test]
    fn every_bit_of_a_proof_counts() {
        let token = Token::random();
        let (c, s) = (Nonce::random(), Nonce::random());
        let proof = prove(&token, Role::Server, &c, &s, b"");
        for bit in 0..PROOF_LEN * 8 {
            let mut wrong = proof;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!verify(&token, Role::Server, &c, &s, b"", &wrong), "bit {bit}");
        }
        for len in [0, 1, 16, 31, 33] {
            let cut: Vec<u8> = proof.iter().copied().cycle().take(len).collect();
            assert!(!verify(&token, Role::Server, &c, &s, b"", &cut), "{len} bytes");
        }
    }

    #[test]
    fn the_code_is_the_standard_one() {
        // Made by `openssl dgst -sha256 -mac HMAC -macopt hexkey:00...00` over the label,
        // 64 bytes 1 and "x".
        let token: Token = "0".repeat(64).parse().unwrap();
        let nonce = Nonce([1; NONCE_LEN]);
        let proof = prove(&token, Role::Client, &nonce, &nonce, b"x");
        let text: String = proof.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(text, "7aad59123d37f66895255e4bcc145b140dad8bb872631caa2b249c3179725868");
    }
}
