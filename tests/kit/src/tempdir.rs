//! A folder that removes itself.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder below the system's temporary folder, removed with all it holds when dropped.
///
/// Only its owner may enter (mode 0700) until [`open_to_all`](Self::open_to_all) says otherwise. The path is kept
/// short because the address of a Unix socket has room for 107 bytes.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes a folder; `purpose` becomes part of its name.
    ///
    /// # Panics
    ///
    /// If the folder cannot be made.
    pub fn new(purpose: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = env::temp_dir();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("kit-{purpose}-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Self { path },
                // Left by an earlier process of the same number that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("temporary folder {}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Lets every user of the machine enter and read, but not write.
    pub fn open_to_all(&self) {
        self.set_mode(0o755);
    }

    /// Leaves the folder where it is, for a look after a failed test.
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(&self.path, Permissions::from_mode(mode)).expect("the folder is ours");
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // Nothing sensible is left to do if this fails; the test's own verdict matters more.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_content() {
        let folder = TempDir::new("gone");
        fs::create_dir(folder.join("inner")).unwrap();
        fs::write(folder.join("inner/file"), "text").unwrap();
        let path = folder.path().to_owned();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn two_folders_differ_and_are_private() {
        let (one, two) = (TempDir::new("same"), TempDir::new("same"));
        assert_ne!(one.path(), two.path());
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o700);
        two.open_to_all();
        assert_eq!(fs::metadata(&two).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_kept_folder_stays() {
        let path = TempDir::new("kept").keep();
        assert!(path.is_dir());
        fs::remove_dir(&path).unwrap();
    }
}
