//! Agents that were brought up before: where they are and which key they have, in the user's run-time folder.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::identity::PublicKey;

/// An agent somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The host as the user calls it.
    pub host: String,
    /// Address and port.
    pub address: String,
    /// Its key.
    pub key: PublicKey,
}

/// What is known of a host.
pub fn find(folder: &Path, host: &str) -> Option<Known> {
    read(&path(folder, host)).filter(|known| known.host == host)
}

/// All that are known.
pub fn all(folder: &Path) -> Vec<Known> {
    let entries = fs::read_dir(folder.join("agents")).into_iter().flatten().flatten();
    // Drafts have an ending; they are left by a process that was killed.
    let whole = entries.filter(|entry| entry.path().extension().is_none());
    let mut all: Vec<Known> = whole.filter_map(|entry| read(&entry.path())).collect();
    all.sort_by(|one, two| one.host.cmp(&two.host));
    all
}

/// Remembers one.
///
/// # Errors
/// If the folder cannot be written.
pub fn remember(folder: &Path, known: &Known) -> Result<(), Error> {
    let path = path(folder, &known.host);
    let draft = path.with_extension(format!("{:08x}", viaduct_os::random::u32()));
    let text = format!("{}\n{}\n{}\n", known.host, known.address, known.key);
    let parent = path.parent().expect("it is in a folder");
    let done = fs::create_dir_all(parent)
        .and_then(|()| fs::write(&draft, text))
        .and_then(|()| fs::rename(&draft, &path));
    done.map_err(|why| Error::system(path.display().to_string(), why))
}

/// Forgets one: it is not there any more.
pub fn forget(folder: &Path, host: &str) {
    let _ = fs::remove_file(path(folder, host));
}

fn path(folder: &Path, host: &str) -> PathBuf {
    let digest = Sha256::digest(host.as_bytes());
    let name: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    folder.join("agents").join(name)
}

fn read(path: &Path) -> Option<Known> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let (host, address, key) = (lines.next()?, lines.next()?, lines.next()?);
    Some(Known { host: host.to_owned(), address: address.to_owned(), key: key.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn an_agent_that_is_remembered_is_found_until_it_is_forgotten() {
        let folder = TempDir::new("known");
        let known =
            |host: &str| Known { host: host.into(), address: "10.0.0.1:7".into(), key: PublicKey([7; 32]) };
        for host in ["b", "me@a"] {
            remember(folder.path(), &known(host)).unwrap();
        }
        assert_eq!(find(folder.path(), "b"), Some(known("b")));
        assert_eq!(all(folder.path()), [known("b"), known("me@a")]);
        forget(folder.path(), "b");
        assert_eq!(find(folder.path(), "b"), None);
        fs::write(path(folder.path(), "c"), "garbage").unwrap();
        assert_eq!(all(folder.path()), [known("me@a")]);
        let draft = path(folder.path(), "b").with_extension("12345678");
        fs::write(draft, "b\n10.0.0.1:7\n".to_owned() + &known("b").key.to_string()).unwrap();
        assert_eq!(all(folder.path()), [known("me@a")], "a draft is not known yet");
    }
}
