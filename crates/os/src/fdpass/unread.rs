//! Messages that were never read when their socket is closed.
//!
//! With the socket the kernel closes the descriptors in them, in the call and on the thread that closes the socket, and one
//! of them may hang ([`close_apart`]). So they are taken out before.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{Shutdown, shutdown};

use super::{MAX_FDS, close_apart};

/// Room for as many descriptors as the kernel carries and the credentials of the sender, in words.
const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1)).div_ceil(8);

/// Takes out of a packet socket what this end has not read. The socket can only be closed afterwards.
///
/// The peer can send nothing more once this end is shut, so there is an end to it.
pub(super) fn discard(socket: BorrowedFd<'_>) {
    // Each message then comes with the credentials of its sender, also an empty one, which is like the end otherwise.
    if set_socket_passcred(socket, true).is_err() || shutdown(socket, Shutdown::Read).is_err() {
        return;
    }
    while let Some(fds) = take(socket) {
        close_apart(fds);
    }
}

/// The descriptors of the next message; `None` if there is no message. (rustix cannot say credentials without a process,
/// which a message has whose sender is not visible from here.)
fn take(socket: BorrowedFd<'_>) -> Option<Vec<OwnedFd>> {
    let (mut byte, mut space) = (0_u8, [0_u64; SPACE]);
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a header of zeroes is valid: no address, no pieces, no control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
    (header.msg_control, header.msg_controllen) = (space.as_mut_ptr().cast(), size_of_val(&space));
    loop {
        // SAFETY: the header's pointers are to the piece, the byte and the space above, with their lengths.
        let got = unsafe {
            libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC)
        };
        if got >= 0 {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
    // SAFETY: the kernel wrote the control messages and their length, into space that is aligned for them.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    // Not even credentials: this is the end.
    if at.is_null() {
        return None;
    }
    let mut fds = Vec::new();
    while !at.is_null() {
        // SAFETY: these functions lead to headers inside of what the kernel wrote, and each says how long its data is. A
        // descriptor in it is new and has no other owner.
        unsafe {
            if ((*at).cmsg_level, (*at).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*at).cmsg_len - libc::CMSG_LEN(0) as usize;
                let numbers = libc::CMSG_DATA(at).cast::<libc::c_int>();
                fds.extend(
                    (0..bytes / 4).map(|index| OwnedFd::from_raw_fd(numbers.add(index).read_unaligned())),
                );
            }
            at = libc::CMSG_NXTHDR(&raw const header, at);
        }
    }
    Some(fds)
}
