//! Commands as an ordinary user, because Viaduct has to work for one.
//!
//! Root may be stopped by nothing, so a suite that only ever ran as root proves little. [`unprivileged`] makes a
//! command run as the user nobody, without groups, with folders of its own.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::tempdir::TempDir;

/// User and group number of nobody, on every Linux.
pub const NOBODY: u32 = 65534;

/// The folders of a user; they are removed with it, so keep it until the command has ended.
#[derive(Debug)]
#[must_use = "the user's folders are removed when this is dropped"]
pub struct User {
    folder: TempDir,
}

impl User {
    /// Makes new folders: a home, a run-time folder that only the user may enter, a folder for temporary files.
    pub fn new() -> Self {
        let folder = TempDir::new("user");
        folder.open_to_all();
        let user = Self { folder };
        for own in [user.home(), user.runtime_dir(), user.temp_dir()] {
            user.make_folder(&own);
        }
        user
    }

    /// The user's home.
    pub fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// The user's run-time folder (`XDG_RUNTIME_DIR`).
    pub fn runtime_dir(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// The user's folder for temporary files (`TMPDIR`).
    pub fn temp_dir(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// Makes `command` run as this user: as nobody if we are root, else as the user that we are; with these folders either way.
    pub fn runs(&self, command: &mut Command) {
        command
            .env("HOME", self.home())
            .env("XDG_RUNTIME_DIR", self.runtime_dir())
            .env("TMPDIR", self.temp_dir());
        if geteuid().is_root() {
            // Leaving root also clears the supplementary groups.
            command.uid(NOBODY).gid(NOBODY).env("USER", "nobody").env("LOGNAME", "nobody");
        }
    }

    fn make_folder(&self, folder: &Path) {
        let made = rustix::fs::mkdir(folder, rustix::fs::Mode::RWXU);
        made.unwrap_or_else(|error| panic!("folder {}: {error}", folder.display()));
        if geteuid().is_root() {
            chown(folder, Some(NOBODY), Some(NOBODY)).expect("root may give a folder away");
        }
    }
}

impl Default for User {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes `command` run as an ordinary user with new folders.
///
/// Set the command's program and arguments first; keep what is returned until the command has ended. The binary has
/// to lie where others may reach it: a checkout in root's home does not.
///
/// ```
/// # use std::process::Command;
/// # use viaduct_kit::unprivileged::unprivileged;
/// let mut command = Command::new("id");
/// let _user = unprivileged(command.arg("-u"));
/// assert_ne!(command.output().unwrap().stdout, b"0\n");
/// ```
pub fn unprivileged(command: &mut Command) -> User {
    let user = User::new();
    user.runs(command);
    user
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn output(script: &str) -> String {
        let mut command = Command::new("sh");
        let _user = unprivileged(command.arg("-c").arg(script));
        let output = command.output().expect("sh runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn an_unprivileged_user_has_no_groups_of_root() {
        let wanted = if geteuid().is_root() { NOBODY } else { geteuid().as_raw() };
        assert_eq!(output("id -u"), wanted.to_string());
        if geteuid().is_root() {
            assert_eq!(output("id -G"), NOBODY.to_string());
        }
    }

    #[test]
    fn the_folders_can_be_written() {
        let script =
            "for d in \"$HOME\" \"$TMPDIR\" \"$XDG_RUNTIME_DIR\"; do : > \"$d/file\" && echo ok; done";
        assert_eq!(output(script), "ok\nok\nok");
    }

    #[test]
    fn the_runtime_folder_is_private_and_goes_away() {
        let user = User::new();
        let folder = user.runtime_dir();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(user);
        assert!(!folder.exists());
    }
}
