//! Files that travel: programs that are not installed on a host, and what the user puts there or gets back.
//!
//! On a host, files are kept by their content: what was there once does not travel again.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use viaduct_agent::bootstrap::{self, Payload};

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

/// A piece of a file.
#[derive(Debug)]
pub struct Piece {
    /// The number of the file.
    pub index: u32,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Whether it is the last one of the file.
    pub last: bool,
}

/// Files on their way to the other end, a piece at a time: the sender keeps no whole file in memory.
#[derive(Debug, Default)]
pub struct Pump {
    waiting: VecDeque<(u32, PathBuf)>,
    open: Option<(u32, PathBuf, File)>,
}

impl Pump {
    /// A file to be sent, under this number.
    pub fn add(&mut self, index: u32, path: PathBuf) {
        self.waiting.push_back((index, path));
    }

    /// The next piece, or why there is none.
    pub fn piece(&mut self) -> Option<Result<Piece, String>> {
        if self.open.is_none() {
            let (index, path) = self.waiting.pop_front()?;
            match File::open(&path) {
                Ok(file) => self.open = Some((index, path, file)),
                Err(why) => return Some(Err(format!("{}: {why}", path.display()))),
            }
        }
        let (index, path, file) = self.open.as_mut()?;
        let (index, mut bytes) = (*index, Vec::new());
        match file.take(PIECE as u64).read_to_end(&mut bytes) {
            Ok(n) => {
                let last = n < PIECE;
                self.open.take_if(|_| last);
                Some(Ok(Piece { index, bytes, last }))
            }
            Err(why) => {
                let why = format!("{}: {why}", path.display());
                self.open = None;
                Some(Err(why))
            }
        }
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}

/// A file that arrives, under another name until it is whole.
#[derive(Debug)]
pub struct Incoming {
    draft: PathBuf,
    path: PathBuf,
    file: File,
    mode: u32,
    /// What is expected, and what came.
    expected: Option<String>,
    hash: Sha256,
}

impl Incoming {
    /// Begins one. Its content has to have this hash, if one is given.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn new(path: &Path, mode: u32, expected: Option<&str>) -> std::io::Result<Incoming> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{:08x}", viaduct_os::random::u32()));
        let draft = PathBuf::from(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        Ok(Incoming {
            draft,
            path: path.to_owned(),
            file,
            mode,
            expected: expected.map(str::to_owned),
            hash: Sha256::new(),
        })
    }

    /// A piece more; with the last one the file gets its name.
    ///
    /// # Errors
    /// If the disk is full, or something else came than was expected.
    pub fn put(&mut self, bytes: &[u8], last: bool) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        if last {
            let came = bootstrap::hash_text(&self.hash.clone().finalize());
            if self.expected.as_ref().is_some_and(|expected| *expected != came) {
                return Err(std::io::Error::other("it changed while it was sent; launch again"));
            }
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
            let hash = Payload::of(from.clone()).unwrap().hash().to_owned();
            let mut incoming = Incoming::new(&to, 0o640, Some(&hash)).unwrap();
            let mut pump = Pump::default();
            pump.add(7, from);
            while let Some(piece) = pump.piece() {
                let Piece { index, bytes, last } = piece.unwrap();
                assert!(index == 7 && !to.exists() && last == pump.is_empty());
                incoming.put(&bytes, last).unwrap();
            }
            assert_eq!(fs::read(&to).unwrap(), text);
            assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o640);
        }
        let mut pump = Pump::default();
        pump.add(0, folder.join("none"));
        assert!(pump.piece().unwrap().unwrap_err().contains("none") && pump.piece().is_none());
        drop(Incoming::new(&folder.join("half"), 0o600, None).unwrap());
        let mut other = Incoming::new(&folder.join("other"), 0o600, Some(&"0".repeat(32))).unwrap();
        assert!(other.put(b"something else", true).unwrap_err().to_string().contains("changed"));
        drop(other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn hashes_name_no_other_files() {
        assert!(kept(Path::new("c"), &"a".repeat(32)).is_some());
        assert_eq!(kept(Path::new("c"), "../../../../etc/passwd__________"), None);
    }
}
