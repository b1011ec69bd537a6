//! Unix sockets that carry short messages and descriptors: how two processes of one host meet.
//!
//! Design, sections 2.4 and 3 (shm): connection set-up only, never the data path. Packets (`SOCK_SEQPACKET`) keep their
//! borders and show the peer's death as a hang-up. What arrives is hostile until checked: a message that does not
//! fit, or brings more descriptors than asked for, is an error, and every descriptor it brought is closed (an
//! unexpected one that stays open lets a peer exhaust the table: CVE-2022-0669). No parsing happens here.

mod apart;
mod listener;
mod unread;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::OsError;
use crate::farewell::CutLine;
use crate::fork::{self, Registration};
pub use apart::close_apart;
pub use listener::Listener;
pub(crate) use listener::{remove_if_stale, try_lock};

/// The most descriptors the kernel carries in one message.
pub const MAX_FDS: usize = 253;

/// One end of a connection between two processes. Never blocks.
///
/// One made by [`connect`](Self::connect) or [`Listener::accept`] is dead in forked children: a child that kept it would
/// hide from the peer that this process hung up, or died.
#[derive(Debug)]
pub struct Channel {
    /// Before the descriptor, which must not be closed while it is registered.
    _in_child: Option<Registration>,
    _at_the_end: Option<CutLine>,
    fd: OwnedFd,
}

/// What [`Channel::recv`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recv {
    /// A whole message of this many bytes.
    Message(usize),
    /// Nothing yet.
    WouldBlock,
    /// The peer hung up or died.
    Closed,
}

/// The peer as it was when it connected, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCred {
    /// Process; 0 if it is not visible from this namespace.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Channel {
    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// The kernel's: `ConnectionRefused` or `NotFound` if no process listens, `WouldBlock` if its backlog is full.
    pub fn connect(path: &Path) -> io::Result<Channel> {
        let fd = socket()?;
        let (addr, _dir) = listener::address(path)?;
        connect(&fd, &addr)?;
        Ok(Channel::dead_in_children(fd))
    }

    /// Connects to the listener at an abstract name, of any user.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_abstract(name: &[u8]) -> io::Result<Channel> {
        let fd = socket()?;
        connect(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Channel::dead_in_children(fd))
    }

    /// Two ends of one connection, for a child to be or for tests.
    ///
    /// # Errors
    /// [`OsError::Fds`] when descriptors have run out.
    pub fn pair() -> Result<(Channel, Channel), OsError> {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)
            .map(|(a, b)| (Channel::from_fd(a), Channel::from_fd(b)))
            .map_err(|e| OsError::sys("socketpair", e))
    }

    /// Takes over a connected packet socket, such as one inherited from a launcher.
    pub fn from_fd(fd: OwnedFd) -> Channel {
        Channel { _in_child: None, _at_the_end: None, fd }
    }

    fn dead_in_children(fd: OwnedFd) -> Channel {
        let raw = fd.as_raw_fd();
        Channel { _in_child: Some(fork::close_in_child(raw)), _at_the_end: CutLine::of(raw), fd }
    }

    /// Sends one message and its descriptors, whole or not at all; false if there is no room now.
    ///
    /// # Errors
    /// [`OsError::BadMessage`] for an empty message (it would look like a hang-up) or more than [`MAX_FDS`]
    /// descriptors; `EPIPE` in [`OsError::Sys`] after the peer hung up.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, OsError> {
        if bytes.is_empty() {
            return Err(OsError::BadMessage("it is empty"));
        }
        if fds.len() > MAX_FDS {
            return Err(OsError::BadMessage("it has more descriptors than the kernel carries"));
        }
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(fits, "the buffer holds MAX_FDS");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(OsError::sys("sendmsg", e)),
            }
        }
    }

    /// Receives one message into `buf`, and appends at most `max_fds` descriptors to `fds`, all close-on-exec.
    ///
    /// # Errors
    /// [`OsError::BadMessage`] if it is longer than `buf` or brings more descriptors; [`OsError::Fds`] if this process
    /// has no room for them. In each case the message is gone and its descriptors are closed.
    pub fn recv(&self, buf: &mut [u8], fds: &mut Vec<OwnedFd>, max_fds: usize) -> Result<Recv, OsError> {
        match self.recv_once(buf, fds, max_fds)? {
            // The kernel looks for messages first and for the end then. Where the peer sends and hangs up between the two
            // looks, it answers with the end, and the messages are there at the next call.
            Recv::Closed => self.recv_once(buf, fds, max_fds),
            other => Ok(other),
        }
    }

    fn recv_once(&self, buf: &mut [u8], fds: &mut Vec<OwnedFd>, max_fds: usize) -> Result<Recv, OsError> {
        // Always room for as many as the kernel carries: too many then show in the count, and a cut
        // control message can only mean that this process ran out of descriptors.
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = loop {
            match recvmsg(&self.fd, &mut [IoSliceMut::new(buf)], &mut control, flags) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Recv::WouldBlock),
                // The peer went away with messages of ours unread: the same end, told differently.
                Err(Errno::CONNRESET) => return Ok(Recv::Closed),
                Err(e) => return Err(OsError::sys("recvmsg", e)),
            }
        };
        let before = fds.len();
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = item {
                fds.extend(rights);
            }
        }
        let arrived = fds.len() - before;
        let fault = if message.flags.contains(ReturnFlags::CTRUNC) {
            Some(self.why_cut())
        } else if message.flags.contains(ReturnFlags::TRUNC) {
            Some(OsError::BadMessage("it is longer than allowed"))
        } else if arrived > max_fds {
            Some(OsError::BadMessage("it has more descriptors than allowed"))
        } else if message.bytes == 0 && arrived > 0 {
            Some(OsError::BadMessage("it is empty"))
        } else {
            None
        };
        if let Some(fault) = fault {
            close_apart(fds.split_off(before));
            return Err(fault);
        }
        Ok(if message.bytes == 0 { Recv::Closed } else { Recv::Message(message.bytes) })
    }

    /// The peer as it was when it connected (or made the pair).
    ///
    /// # Errors
    /// The kernel's.
    pub fn peer(&self) -> Result<PeerCred, OsError> {
        let none = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let cred = option(self.fd.as_fd(), libc::SO_PEERCRED, none)
            .map_err(|e| OsError::sys("getsockopt(SO_PEERCRED)", e))?;
        Ok(PeerCred { pid: cred.pid, uid: cred.uid, gid: cred.gid })
    }

    /// A descriptor that stands for the peer's process and becomes readable when that dies; immune to reuse of pids.
    ///
    /// None if the process is gone already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn peer_pidfd(&self) -> Result<Option<OwnedFd>, OsError> {
        match option(self.fd.as_fd(), libc::SO_PEERPIDFD, -1) {
            Ok(raw) if raw >= 0 => {
                // SAFETY: the kernel made this descriptor for us in the call above; it has no other owner.
                return Ok(Some(unsafe { OwnedFd::from_raw_fd(raw) }));
            }
            Ok(_) => {}
            Err(e) => match e.raw_os_error() {
                Some(libc::ESRCH | libc::EINVAL | libc::ENODATA) => return Ok(None),
                // Before Linux 6.5: by number, which is right as long as the peer has not died in the meantime.
                Some(libc::ENOPROTOOPT) => {}
                _ => return Err(OsError::sys("getsockopt(SO_PEERPIDFD)", e)),
            },
        }
        let pid = Pid::from_raw(self.peer()?.pid).ok_or(Errno::SRCH);
        match pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(e) => Err(OsError::sys("pidfd_open", e)),
        }
    }

    fn why_cut(&self) -> OsError {
        match fcntl_dupfd_cloexec(&self.fd, 0) {
            Err(e) => OsError::sys("recvmsg(SCM_RIGHTS)", e),
            Ok(_) => OsError::sys("recvmsg(SCM_RIGHTS)", Errno::MFILE), // it was full, and is not any more
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // A socket that was taken over may be open in another process, and is not to be shut for that.
        if self._in_child.is_some() {
            unread::discard(self.fd.as_fd());
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)
}

/// A socket option of plain integers.
fn option<T: Copy>(fd: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: value and len are valid for writes, and len says how much of value may be written. Both types used here
    // (ucred, c_int) are integers, valid whatever is written.
    let failed = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
    };
    if failed == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
