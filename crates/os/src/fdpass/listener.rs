//! The listening end of [`super::Channel`], and the owner of its socket file.
//!
//! Mostly that is a file. A name without a file (an *abstract* one) is for processes that share no folder; anybody may
//! connect to it, so its users ask the kernel for the other end.
//!
//! A killed process leaves its socket file behind. The next one to bind finds out by connecting whether anybody listens
//! and removes the file if not. Two processes doing so at once could remove each other's fresh file, so all of it
//! happens under a lock on the folder itself, which needs no lock file and ends with the process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::fs::{fchmod, flock, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix, accept_with, bind, connect, listen, shutdown};
use rustix::process::getpid;

use super::{Channel, flags, socket};
use crate::clock;
use crate::error::OsError;
use crate::fork::{self, Registration};
use crate::point::point;

/// A socket that other processes connect to. Dead in forked children.
#[derive(Debug)]
pub struct Listener {
    /// A child that kept the socket would make a dead listener look alive.
    _in_child: Registration,
    fd: OwnedFd,
    /// Removed at the end; an abstract name needs nothing.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
struct SocketFile {
    dir: OwnedFd,
    name: OsString,
    /// Device and inode of our file, and the process that made it.
    file: (u64, u64),
    owner: i32,
}

impl Listener {
    /// Listens at `path`, mode 0600. A file that a dead process left there is replaced.
    ///
    /// # Errors
    /// [`OsError::InUse`] if a live process listens there; otherwise the kernel's.
    pub fn bind(path: &Path) -> Result<Listener, OsError> {
        let (dir, name) = split(path).map_err(|e| OsError::sys("open", e))?;
        let fd = socket().map_err(|e| OsError::sys("socket", e))?;
        // The mode of the socket becomes the mode of its file: no moment in which others could connect.
        fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(|e| OsError::sys("fchmod", e))?;
        let (addr, _long) = address(path).map_err(|e| OsError::sys("bind", e))?;
        let _lock = lock(&dir)?;
        point("bind.locked");
        match bind(&fd, &addr) {
            Err(Errno::ADDRINUSE) => {
                if !remove_if_stale(dir.as_fd(), &name)? {
                    return Err(OsError::InUse { path: path.to_owned() });
                }
                bind(&fd, &addr)
            }
            other => other,
        }
        .map_err(|e| OsError::sys("bind", e))?;
        point("bind.bound");
        // Under the lock: a bound socket that does not listen yet looks stale.
        listen(&fd, 128).map_err(|e| OsError::sys("listen", e))?;
        point("bind.listening");
        let file = identity(dir.as_fd(), &name).map_err(|e| OsError::sys("stat", e))?;
        let _in_child = fork::close_in_child(fd.as_raw_fd());
        let file = SocketFile { dir, name, file, owner: getpid().as_raw_nonzero().get() };
        Ok(Listener { _in_child, fd, _file: Some(file) })
    }

    /// Listens at an abstract name, to which every user of this network namespace may connect.
    ///
    /// # Errors
    /// [`OsError::InUse`] if the name is taken; otherwise the kernel's.
    pub fn bind_abstract(name: &[u8]) -> Result<Listener, OsError> {
        let fd = socket().map_err(|e| OsError::sys("socket", e))?;
        let addr = SocketAddrUnix::new_abstract_name(name).map_err(|e| OsError::sys("bind", e))?;
        match bind(&fd, &addr) {
            Err(Errno::ADDRINUSE) => {
                return Err(OsError::InUse { path: OsStr::from_bytes(name).into() });
            }
            other => other.map_err(|e| OsError::sys("bind", e))?,
        }
        listen(&fd, 128).map_err(|e| OsError::sys("listen", e))?;
        Ok(Listener { _in_child: fork::close_in_child(fd.as_raw_fd()), fd, _file: None })
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// [`OsError::Fds`] when descriptors have run out: the connection still waits.
    pub fn accept(&self) -> Result<Option<Channel>, OsError> {
        loop {
            match accept_with(&self.fd, flags()) {
                Ok(fd) => return Ok(Some(Channel::dead_in_children(fd))),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {} // that one gave up; perhaps the next did not
                Err(e) => return Err(OsError::sys("accept", e)),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Connections that were never accepted go with the socket, with what was sent over them (`unread.rs`). No more come.
        if shutdown(&self.fd, Shutdown::Read).is_ok() {
            while let Ok(Some(channel)) = self.accept() {
                drop(channel);
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A forked child has this value too, but the file is its parent's.
        if getpid().as_raw_nonzero().get() != self.owner {
            return;
        }
        let Ok(_lock) = lock(&self.dir) else { return };
        point("unbind.locked");
        if identity(self.dir.as_fd(), &self.name) == Ok(self.file) {
            let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
            point("unbind.gone");
        }
    }
}

/// Removes the socket `name` in `dir` if no process listens on it; the folder must be locked. Says whether it is gone.
pub(crate) fn remove_if_stale(dir: BorrowedFd<'_>, name: &OsStr) -> Result<bool, OsError> {
    let fd = socket().map_err(|e| OsError::sys("socket", e))?;
    let addr = in_dir(dir, name).map_err(|e| OsError::sys("connect", e))?;
    match connect(&fd, &addr) {
        Err(Errno::CONNREFUSED) if is_socket(dir, name) => {}
        Err(Errno::NOENT) => return Ok(true),
        // Connected, or its backlog is full, or it is not ours to judge.
        _ => return Ok(false),
    }
    point("bind.stale");
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(e) => Err(OsError::sys("unlink", e)),
    }
}

/// How long a binder waits for its turn: all that is done under the lock takes microseconds, unless its holder is
/// stopped in the middle.
const TURN: Duration = Duration::from_secs(3);

/// A locked folder. A child forked meanwhile does not keep it locked.
pub(crate) struct Locked {
    _in_child: Registration,
    _own: OwnedFd,
}

/// Locks a folder against other binders and sweepers until the answer is dropped.
///
/// # Errors
/// `ETIMEDOUT` if its holder keeps it, stopped perhaps; otherwise the kernel's.
pub(crate) fn lock(dir: &OwnedFd) -> Result<Locked, OsError> {
    let end = clock::now_ns() + TURN.as_nanos() as u64;
    loop {
        match try_lock(dir)? {
            Some(locked) => return Ok(locked),
            None if clock::now_ns() < end => std::thread::sleep(Duration::from_millis(1)),
            None => return Err(OsError::sys("flock", Errno::TIMEDOUT)),
        }
    }
}

/// Locks a folder unless another process has.
pub(crate) fn try_lock(dir: &OwnedFd) -> Result<Option<Locked>, OsError> {
    // An open file of its own: locks of one open file do not exclude each other, threads of one process would pass.
    let own = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| OsError::sys("open", e))?;
    loop {
        match flock(&own, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                return Ok(Some(Locked { _in_child: fork::close_in_child(own.as_raw_fd()), _own: own }));
            }
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(e) => return Err(OsError::sys("flock", e)),
        }
    }
}

/// The socket address of a path. One that is too long goes through its folder's descriptor, which must stay open.
pub(super) fn address(path: &Path) -> io::Result<(SocketAddrUnix, Option<OwnedFd>)> {
    match SocketAddrUnix::new(path) {
        Err(Errno::NAMETOOLONG) => {
            let (dir, name) = split(path)?;
            Ok((in_dir(dir.as_fd(), &name)?, Some(dir)))
        }
        other => Ok((other?, None)),
    }
}

fn in_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<SocketAddrUnix, Errno> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.as_bytes());
    SocketAddrUnix::new(path)
}

fn split(path: &Path) -> Result<(OwnedFd, OsString), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let dir = openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((dir, name.to_owned()))
}

fn identity(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(u64, u64), Errno> {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino))
}

fn is_socket(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket)
}
