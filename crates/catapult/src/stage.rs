//! Files that travel: programs that are not installed on a host, and what the user puts there or gets back.
//!
//! On a host, files are kept by their content: what was there once does not travel again.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use viaduct_agent::bootstrap::Payload;

use crate::error::Error;
use crate::wire::FileHead;

/// Bytes of one piece.
pub const PIECE: usize = 1 << 20;

/// A file here that goes to nodes.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where it is.
    pub path: PathBuf,
    /// What nodes are told of it.
    pub head: FileHead,
}

impl Outgoing {
    /// Looks at a file; `there` is where it goes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new(path: &Path, there: Option<String>) -> Result<Outgoing, Error> {
        let failed = |why: &dyn ToString| Error::system(path.display().to_string(), why.to_string());
        let meta = fs::metadata(path).map_err(|e| failed(&e))?;
        if !meta.is_file() {
            return Err(failed(&"only files can be copied"));
        }
        let hash = Payload::of(path.to_owned()).map_err(|e| failed(&e))?.hash().to_owned();
        Ok(Outgoing {
            path: path.to_owned(),
            head: FileHead { path: there, mode: meta.mode() & 0o777, hash },
        })
    }
}

/// Hands the pieces of a file to `each`, the last one marked.
///
/// # Errors
/// If it cannot be read.
pub fn pieces(path: &Path, each: &mut dyn FnMut(Vec<u8>, bool)) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    loop {
        let mut bytes = Vec::new();
        let n = (&mut file).take(PIECE as u64).read_to_end(&mut bytes)?;
        each(bytes, n < PIECE);
        if n < PIECE {
            return Ok(());
        }
    }
}

/// A file that arrives, under another name until it is whole.
#[derive(Debug)]
pub struct Incoming {
    draft: PathBuf,
    path: PathBuf,
    file: File,
    mode: u32,
}

impl Incoming {
    /// Begins one.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn new(path: &Path, mode: u32) -> std::io::Result<Incoming> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{:08x}", viaduct_os::random::u32()));
        let draft = PathBuf::from(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        Ok(Incoming { draft, path: path.to_owned(), file, mode })
    }

    /// A piece more; with the last one the file gets its name.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn put(&mut self, bytes: &[u8], last: bool) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        if last {
            fs::set_permissions(&self.draft, Permissions::from_mode(self.mode))?;
            fs::rename(&self.draft, &self.path)?;
        }
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Gone already if it became whole.
        let _ = fs::remove_file(&self.draft);
    }
}

/// Where a host keeps what arrived by its content.
pub fn kept(cache: &Path, hash: &str) -> Option<PathBuf> {
    let good = hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    good.then(|| cache.join("files").join(hash))
}

/// The user's cache on this host.
pub fn cache(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    if let Some(folder) = variable("VIADUCT_CACHE") {
        return folder.into();
    }
    let home = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache");
    variable("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("viaduct")
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn a_file_travels_in_pieces_and_is_seen_only_whole() {
        let folder = TempDir::new("stage");
        for len in [0, 1, PIECE, PIECE + 1, 2 * PIECE] {
            let (from, to) = (folder.join("from"), folder.join("a/b/to"));
            let text: Vec<u8> = (0..len).map(|n| n as u8).collect();
            fs::write(&from, &text).unwrap();
            let _ = fs::remove_file(&to);
            let mut incoming = Incoming::new(&to, 0o640).unwrap();
            pieces(&from, &mut |bytes, last| {
                assert!(!to.exists());
                incoming.put(&bytes, last).unwrap();
            })
            .unwrap();
            assert_eq!(fs::read(&to).unwrap(), text);
            assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o640);
        }
        drop(Incoming::new(&folder.join("half"), 0o600).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn hashes_name_no_other_files() {
        assert!(kept(Path::new("c"), &"a".repeat(32)).is_some());
        assert_eq!(kept(Path::new("c"), "../../../../etc/passwd__________"), None);
    }
}
