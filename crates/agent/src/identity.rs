//! The key pair of a user on a host, made from the secret that the user has there.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use viaduct_job::Token;

use crate::error::Error;

/// Bytes of a key.
pub const LEN: usize = 32;

/// The public half: what others pin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PublicKey(pub [u8; LEN]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<PublicKey, Error> {
        let bad = || Error::Refused("a key is 64 hexadecimal digits");
        if text.len() != 2 * LEN || !text.is_ascii() {
            return Err(bad());
        }
        let mut key = [0; LEN];
        for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad())?;
        }
        Ok(PublicKey(key))
    }
}

/// Both halves. The private one is not shown.
#[derive(Clone)]
pub struct Identity {
    private: [u8; LEN],
    public: PublicKey,
}

impl Identity {
    /// That of this user on this host: it comes from the user's token in the run-time folder, which is made if needed.
    ///
    /// # Errors
    /// If the token's file is not private.
    pub fn of_user(folder: &Path) -> Result<Identity, Error> {
        let token = Token::of_user(folder).map_err(|why| Error::system("the user's token", why))?;
        Ok(Identity::from_token(&token))
    }

    /// That of a token.
    pub fn from_token(token: &Token) -> Identity {
        let private = token.derive(b"viaduct agent key 1");
        let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("it is compiled in");
        dh.set(&private);
        let public = PublicKey(dh.pubkey().try_into().expect("a key of 32 bytes"));
        Identity { private, public }
    }

    /// What others pin.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The secret that only this identity and the owner of a key can make.
    pub(crate) fn shared(&self, other: PublicKey) -> [u8; LEN] {
        let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("it is compiled in");
        dh.set(&self.private);
        let mut secret = [0; LEN];
        // A key of low order gives a secret that is no secret; snow gives zeroes, and no MAC of ours is made with those.
        if dh.dh(&other.0, &mut secret).is_err() || secret == [0; LEN] {
            viaduct_os::random::fill(&mut secret);
        }
        secret
    }

    pub(crate) fn private(&self) -> &[u8; LEN] {
        &self.private
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_identity_and_it_is_not_the_token() {
        let token = Token::random();
        let identity = Identity::from_token(&token);
        assert_eq!(identity.public(), Identity::from_token(&token).public());
        assert_ne!(identity.public(), Identity::from_token(&Token::random()).public());
        assert!(!format!("{identity:?}").contains(&token.secret_text()[..16]));
    }

    #[test]
    fn keys_are_text_and_back() {
        let key = Identity::from_token(&Token::random()).public();
        assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
        for text in ["", "12", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert!(text.parse::<PublicKey>().is_err(), "{text:?}");
        }
    }
}
