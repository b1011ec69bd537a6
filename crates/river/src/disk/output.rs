//! A file that gets its name when it is complete.
//!
//! Until [`Output::commit`] the file has no name at all where the file system allows that (or a hidden one), so that neither
//! a failure nor a kill leaves half a result under the final name. What had the name before stays whole until then: the
//! output may be one of the inputs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// A file to be.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    /// Its name until then, if the file system knows no files without names.
    hidden: Option<PathBuf>,
    /// Whether it is on the disk when it gets its name, and the name, too.
    durable: bool,
    done: bool,
}

impl Output {
    /// A file that will be called `path`. The folder must exist.
    pub fn create(path: &Path) -> Result<Output, Error> {
        // A link stays a link: the file behind it is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let failed = |error| Error::file("creating", &path, error);
        let folder = folder_of(&path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o666);
        let nameless = options.clone().custom_flags(O_TMPFILE).open(folder);
        let (file, hidden) = match nameless {
            Ok(file) => (file, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) => {
                let hidden = hidden_name(&path);
                let mut names = hidden_names();
                names.may_add()?;
                let file = options.create_new(true).open(&hidden).map_err(failed)?;
                names.list.push(hidden.clone());
                (file, Some(hidden))
            }
        };
        if let Ok(old) = fs::metadata(&path) {
            // What is replaced keeps its mode; failure to keep it is none of the result's.
            let _ = file.set_permissions(fs::Permissions::from_mode(old.permissions().mode() & 0o777));
        }
        Ok(Output { path, file, hidden, durable: false, done: false })
    }

    /// A second descriptor to write to.
    pub fn file(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|error| Error::file("creating", &self.path, error))
    }

    /// Where another process opens the file to write its part of it, with [`Output::open_part`]. A process of this host
    /// reaches a file without a name through this process; for processes `elsewhere` it gets a hidden name.
    pub fn way(&mut self, elsewhere: bool) -> Result<PathBuf, Error> {
        match &self.hidden {
            Some(hidden) => Ok(hidden.clone()),
            None if !elsewhere => {
                Ok(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into())
            }
            None => {
                let hidden = hidden_name(&self.path);
                let mut names = hidden_names();
                names.may_add()?;
                link(&self.file, &hidden).map_err(|error| Error::file("creating", &self.path, error))?;
                names.list.push(hidden.clone());
                Ok(self.hidden.insert(hidden).clone())
            }
        }
    }

    /// Opens a file that another process creates, by the way that it told.
    pub fn open_part(way: &Path, path: &Path) -> Result<File, Error> {
        let opened = OpenOptions::new().read(true).write(true).open(way);
        opened.map_err(|error| Error::file("opening the output that all nodes share,", path, error))
    }

    /// The name that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that it will lie in.
    pub fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// Reserves space, so that a full disk is found out before any work.
    pub fn reserve(&self, len: u64) -> Result<(), Error> {
        let failed = |error: viaduct_os::error::OsError| {
            let code = error.raw_os_error().unwrap_or(0);
            Error::file("reserving space for", &self.path, io::Error::from_raw_os_error(code))
        };
        viaduct_os::files::reserve(&self.file, len).map_err(failed)
    }

    /// Lets [`Output::commit`] wait until the disk has the file and its name, so that neither is lost with the power.
    pub fn make_durable(&mut self) {
        self.durable = true;
    }

    /// Cuts it to its final length and gives it its name.
    pub fn commit(mut self, len: u64) -> Result<(), Error> {
        let failed = |error| Error::file("finishing", &self.path, error);
        self.file.set_len(len).map_err(failed)?;
        if self.durable {
            self.file.sync_all().map_err(failed)?;
        }
        // Held until the hidden name is gone, so that a process that is ended in between does not leave it.
        let mut names = hidden_names();
        names.may_add()?;
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => {
                let hidden = hidden_name(&self.path);
                link(&self.file, &hidden).map_err(failed)?;
                hidden
            }
        };
        let renamed = fs::rename(&hidden, &self.path);
        names.list.retain(|name| *name != hidden);
        drop(names);
        if let Err(error) = renamed {
            let _ = fs::remove_file(&hidden);
            return Err(failed(error));
        }
        self.done = true;
        if self.durable {
            File::open(folder_of(&self.path)).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(hidden) = self.hidden.take().filter(|_| !self.done) {
            hidden_names().list.retain(|name| *name != hidden);
            let _ = fs::remove_file(hidden);
        }
    }
}

/// Removes what outputs of this process are called until they are complete, and lets none get a name from then on: for a process
/// that ends without dropping them, while other threads of it may be about to finish one.
pub fn abandon_outputs() {
    let mut names = hidden_names();
    names.closed = true;
    for hidden in names.list.drain(..) {
        let _ = fs::remove_file(hidden);
    }
}

/// What outputs of this process are called that are not complete.
struct Names {
    list: Vec<PathBuf>,
    closed: bool,
}

impl Names {
    fn may_add(&self) -> Result<(), Error> {
        if self.closed { Err(Error::Stopped) } else { Ok(()) }
    }
}

fn hidden_names() -> MutexGuard<'static, Names> {
    static NAMES: Mutex<Names> = Mutex::new(Names { list: Vec::new(), closed: false });
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

const O_TMPFILE: i32 = viaduct_os::files::O_TMPFILE;

fn link(file: &File, name: &Path) -> io::Result<()> {
    viaduct_os::files::name_file(file.as_raw_fd(), name)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn hidden_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let short: String = name.chars().take(60).collect();
    folder_of(path).join(format!(".{short}.{:016x}", viaduct_os::random::u64()))
}
