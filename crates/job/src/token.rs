//! The job token: a secret that the processes of one job share.
//!
//! It travels in the environment of the processes, or in a file that only its owner can read. It is never shown: its
//! debug form is empty, and [`name`](Token::name) is a number made from it that tells jobs apart without giving it away.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use viaduct_os::{process, random};

use crate::error::Error;
use crate::hex;

/// Bytes of a token.
pub const LEN: usize = 32;

/// Longest file that is read: the digits and a few characters of white space.
const MOST: u64 = 128;

/// A secret of 32 bytes.
#[derive(Clone)]
pub struct Token([u8; LEN]);

impl Token {
    /// A fresh one.
    pub fn random() -> Token {
        let mut bytes = [0; LEN];
        random::fill(&mut bytes);
        Token(bytes)
    }

    /// Reads one from a file of this user that no other user can read.
    ///
    /// # Errors
    /// If the file cannot be read, belongs to another user, can be read by others, or holds no token.
    pub fn from_file(path: &Path) -> Result<Token, Error> {
        let failed = |why| Error::TokenFile { path: path.to_owned(), why };
        let file = File::open(path).map_err(failed)?;
        // The file that was opened, not what the name stands for a moment later.
        let meta = file.metadata().map_err(failed)?;
        let refused = |what, hint| Err(Error::TokenNotPrivate { path: path.to_owned(), what, hint });
        if !meta.is_file() {
            return refused("it is not a file", "name a plain file");
        }
        if meta.uid() != process::effective_uid() {
            return refused("it belongs to another user", "make one of your own");
        }
        if meta.mode() & 0o077 != 0 {
            return refused("others can read or write it", "run `chmod 600` on it");
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(failed)?;
        text.parse()
    }

    /// The token of this user on this host, in a folder that only the user can enter. Made when it is first asked for, so
    /// that programs of one user on one host belong together by themselves.
    ///
    /// # Errors
    /// As [`from_file`](Token::from_file), and if it cannot be made.
    pub fn of_user(folder: &Path) -> Result<Token, Error> {
        let path = folder.join("job-token");
        match Token::from_file(&path) {
            Err(Error::TokenFile { why, .. }) if why.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
        let failed = |why| Error::TokenFile { path: path.clone(), why };
        // Written elsewhere and then linked, so that no process reads half of it; the first link stays.
        let draft = folder.join(format!("job-token.{:016x}", random::u64()));
        Token::random().save(&draft)?;
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        match linked {
            Err(why) if why.kind() != ErrorKind::AlreadyExists => Err(failed(why)),
            _ => Token::from_file(&path),
        }
    }

    /// Writes it to a new file that only its owner can read.
    ///
    /// # Errors
    /// If there is such a file already, or it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(self.secret_text().as_bytes()));
        written.map_err(|why| Error::TokenFile { path: path.to_owned(), why })
    }

    /// The token as text, for the environment of a process that belongs to the job.
    pub fn secret_text(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    pub(crate) fn secret_bytes(&self) -> [u8; LEN] {
        self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; LEN]) -> Token {
        Token(bytes)
    }

    /// A number that tells this job from others and says nothing about the token.
    pub fn name(&self) -> u64 {
        let mut mac = self.mac();
        mac.update(b"viaduct job name");
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        u64::from_le_bytes(bytes[..8].try_into().expect("eight of 32 bytes"))
    }

    /// A secret for another purpose, made from this one: neither says anything about the other.
    pub fn derive(&self, purpose: &[u8]) -> [u8; LEN] {
        let mut mac = self.mac();
        mac.update(b"viaduct derive ");
        mac.update(purpose);
        mac.finalize().into_bytes().into()
    }

    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&self.0).expect("a key of any length is taken")
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Token, Error> {
        let bytes = hex::parse(text.trim()).ok_or(Error::BadToken)?;
        bytes.try_into().map(Token).map_err(|_| Error::BadToken)
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn text_and_back() {
        let token = Token::random();
        assert_eq!(token.secret_text().parse::<Token>().unwrap(), token);
        assert_ne!(Token::random(), token);
        for text in ["", "12", &"g".repeat(64), &"0".repeat(63), &"0".repeat(66)] {
            assert!(matches!(text.parse::<Token>(), Err(Error::BadToken)), "{text:?}");
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        let token = Token::random();
        let digits = token.secret_text();
        assert!(!format!("{token:?}").contains(&digits[..8]));
        assert_ne!(format!("{:016x}", token.name()), digits[..16]);
        assert_eq!(token.name(), digits.parse::<Token>().unwrap().name());
    }

    #[test]
    fn a_file_must_be_private() {
        let folder = TempDir::new("token");
        let path = folder.path().join("token");
        let token = Token::random();
        fs::write(&path, token.secret_text() + "\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Token::from_file(&path).unwrap(), token);
        for mode in [0o640, 0o604, 0o622, 0o777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Token::from_file(&path), Err(Error::TokenNotPrivate { .. })), "{mode:o}");
        }
        assert!(matches!(Token::from_file(folder.path()), Err(Error::TokenNotPrivate { .. })));
        assert!(matches!(Token::from_file(&folder.path().join("none")), Err(Error::TokenFile { .. })));
    }

    #[test]
    fn a_user_has_one_token_on_a_host() {
        let folder = TempDir::new("token");
        let tokens: Vec<Token> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| Token::of_user(folder.path()).unwrap());
            let threads: Vec<_> = (0..8).map(|_| ask()).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|t| *t == tokens[0]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no drafts are left");
        fs::set_permissions(folder.path().join("job-token"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::of_user(folder.path()), Err(Error::TokenNotPrivate { .. })));
    }

    #[test]
    fn a_long_file_is_not_read_to_its_end() {
        let folder = TempDir::new("token");
        let path = folder.path().join("token");
        fs::write(&path, "ab".repeat(1 << 20)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(Token::from_file(&path), Err(Error::BadToken)));
    }
}
