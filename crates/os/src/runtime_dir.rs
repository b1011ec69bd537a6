//! The folder in which the processes of one user find each other's sockets.
//!
//! Design, section 3 (shm), and the notes on reliability, section 4, rule 6: a folder that only its owner can enter
//! (mode 0700) is the first of the two doors between users; the second is the peer's credentials. `/tmp` is shared, so
//! whatever stands there is checked before it is used: another user may have made it, as a trap.
//!
//! Reading `XDG_RUNTIME_DIR` here is the one use of the environment in this crate.

use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::geteuid;

use crate::error::OsError;
use crate::fdpass::{remove_if_stale, try_lock};
use crate::point::point;

/// Finds or makes the folder: `explicit`, else `$XDG_RUNTIME_DIR/viaduct`, else `/tmp/viaduct-UID`.
///
/// # Errors
/// [`OsError::BadDir`] if it is not a folder of this user that no other can enter.
pub fn runtime_dir(explicit: Option<&Path>) -> Result<PathBuf, OsError> {
    let path = match explicit {
        Some(path) => path.to_owned(),
        None => default_path(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)),
    };
    match DirBuilder::new().mode(0o700).recursive(explicit.is_some()).create(&path) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(bad(
                &path,
                "its parent does not exist",
                "create the parent or choose another folder",
            ));
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            return Err(bad(
                &path,
                "this user may not make it",
                "make it for this user or choose another folder",
            ));
        }
        Err(e) => return Err(OsError::sys("mkdir", e)),
    }
    // Not following: a link in /tmp may point anywhere.
    let meta = fs::symlink_metadata(&path).map_err(|e| OsError::sys("lstat", e))?;
    judge(&path, &meta)?;
    Ok(path)
}

/// Removes the sockets in `dir` that dead processes left behind; says how many.
///
/// # Errors
/// The kernel's, if the folder cannot be read. A file that cannot be judged or removed stays.
pub fn sweep(dir: &Path) -> Result<usize, OsError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(dir, flags, Mode::empty()).map_err(|e| OsError::sys("open", e))?;
    // Another process is at it, or binds: the next one sweeps.
    let Some(_lock) = try_lock(&folder)? else { return Ok(0) };
    point("sweep.locked");
    let entries = fs::read_dir(dir).map_err(|e| OsError::sys("readdir", e))?;
    let stale = |entry: fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_socket())
            && remove_if_stale(folder.as_fd(), &entry.file_name()).unwrap_or(false)
    };
    Ok(entries.flatten().filter_map(|entry| stale(entry).then_some(())).count())
}

fn default_path(xdg: Option<PathBuf>) -> PathBuf {
    let uid = geteuid().as_raw();
    let ours = |dir: &PathBuf| {
        dir.is_absolute() && fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
    };
    // After `su` or in a container the variable often names the folder of another user.
    match xdg.filter(ours) {
        Some(dir) => dir.join("viaduct"),
        None => PathBuf::from(format!("/tmp/viaduct-{uid}")),
    }
}

fn judge(path: &Path, meta: &Metadata) -> Result<(), OsError> {
    if !meta.is_dir() {
        return Err(bad(path, "it is a file or a symbolic link", "remove it or choose another folder"));
    }
    if meta.uid() != geteuid().as_raw() {
        return Err(bad(path, "it belongs to another user", "choose another folder"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(bad(path, "other users can enter it", "run `chmod 700` on it"));
    }
    Ok(())
}

fn bad(path: &Path, why: &'static str, hint: &'static str) -> OsError {
    OsError::BadDir { path: path.to_owned(), why, hint }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::fdpass::{Channel, Listener};

    /// A fresh folder that goes away with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let path = env::temp_dir().join(format!("viaduct-os-test-{:016x}", crate::random::u64()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn explicit_folder_is_made_private() {
        let scratch = Scratch::new();
        let dir = runtime_dir(Some(&scratch.0.join("a/b"))).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(runtime_dir(Some(&dir)).unwrap(), dir);
    }

    #[test]
    fn open_folders_links_and_files_are_refused() {
        let scratch = Scratch::new();
        let open = scratch.0.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        let link = scratch.0.join("link");
        symlink(&scratch.0, &link).unwrap();
        let file = scratch.0.join("file");
        fs::write(&file, "").unwrap();
        for path in [open, link, file] {
            let error = runtime_dir(Some(&path)).unwrap_err();
            assert!(matches!(error, OsError::BadDir { .. }), "{path:?}: {error}");
            assert!(error.to_string().contains("hint"));
        }
    }

    #[test]
    fn default_follows_a_folder_that_is_ours() {
        let scratch = Scratch::new();
        assert_eq!(default_path(Some(scratch.0.clone())), scratch.0.join("viaduct"));
        let fallback = default_path(None);
        assert_eq!(default_path(Some(scratch.0.join("missing"))), fallback);
        assert_eq!(default_path(Some(PathBuf::from("relative"))), fallback);
    }

    #[test]
    fn sweep_removes_the_dead_and_spares_the_living() {
        let scratch = Scratch::new();
        let (live, dead) = (scratch.0.join("live"), scratch.0.join("dead"));
        let listener = Listener::bind(&live).unwrap();
        drop(std::os::unix::net::UnixDatagram::bind(&dead).unwrap()); // std leaves the file behind
        fs::write(scratch.0.join("note"), "stays").unwrap();
        assert_eq!(sweep(&scratch.0).unwrap(), 1);
        assert!(live.exists() && !dead.exists() && scratch.0.join("note").exists());
        assert!(Channel::connect(&live).is_ok());
        drop(listener);
        assert!(!live.exists());
    }
}
