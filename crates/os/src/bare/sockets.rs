//! System calls on sockets: options, names, and the packets with descriptors that are exchanged with an agent.

use super::gate::{Errno, syscall};

/// A socket option of the size of `value`; what the kernel stored of it, in bytes.
///
/// # Errors
/// The kernel's.
pub fn option_bytes(fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = value.len() as u32;
    let args =
        [fd as usize, level as usize, name as usize, value.as_mut_ptr() as usize, &raw mut len as usize, 0];
    // SAFETY: both are valid for writes, and the length says how much.
    unsafe { syscall(libc::SYS_getsockopt, args) }.map(|_| len as usize)
}

/// A socket option that is an int.
///
/// # Errors
/// The kernel's.
pub fn option_int(fd: i32, level: i32, name: i32) -> Result<i32, Errno> {
    let mut bytes = [0; 4];
    option_bytes(fd, level, name, &mut bytes).map(|_| i32::from_ne_bytes(bytes))
}

/// A time limit of a socket (`SO_RCVTIMEO`, `SO_SNDTIMEO`) in nanoseconds; `None` if it has none.
pub fn time_limit(fd: i32, name: i32) -> Option<u64> {
    let mut bytes = [0; 16];
    option_bytes(fd, libc::SOL_SOCKET, name, &mut bytes).ok()?;
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    Some(word(0) * 1_000_000_000 + word(8) * 1_000).filter(|&ns| ns > 0)
}

/// One end of a connection over IP; an address of IPv4 has the form that IPv6 gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name {
    /// The address.
    pub address: [u8; 16],
    /// The port.
    pub port: u16,
}

/// Which end of a socket is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This one.
    Own,
    /// The other.
    Peer,
}

/// The name of one end; `None` if it is not over IP.
///
/// # Errors
/// The kernel's: `ENOTCONN` for the peer's of a socket that is not connected.
pub fn name(fd: i32, side: Side) -> Result<Option<Name>, Errno> {
    let mut bytes = [0u8; 128];
    let mut len = bytes.len() as u32;
    let number = match side {
        Side::Own => libc::SYS_getsockname,
        Side::Peer => libc::SYS_getpeername,
    };
    let args = [fd as usize, bytes.as_mut_ptr() as usize, &raw mut len as usize, 0, 0, 0];
    // SAFETY: both are valid for writes, and the length says how much.
    unsafe { syscall(number, args) }?;
    Ok(parse_name(&bytes))
}

fn parse_name(bytes: &[u8; 128]) -> Option<Name> {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let mut address = [0; 16];
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => {
            address[10..12].fill(0xff);
            address[12..].copy_from_slice(&bytes[4..8]);
        }
        libc::AF_INET6 => address.copy_from_slice(&bytes[8..24]),
        _ => return None,
    }
    Some(Name { address, port })
}

/// Connects to an abstract name with a packet socket that exec closes.
///
/// # Errors
/// The kernel's.
pub fn connect_abstract(name: &[u8]) -> Result<i32, Errno> {
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    let name = &name[..name.len().min(107)];
    address[3..3 + name.len()].copy_from_slice(name);
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) }?;
    let args = [fd, address.as_ptr() as usize, 3 + name.len(), 0, 0, 0];
    // SAFETY: the address is valid for reads of that length.
    match unsafe { syscall(libc::SYS_connect, args) } {
        Ok(_) => Ok(fd as i32),
        Err(error) => {
            let _ = super::calls::close(fd as i32);
            Err(error)
        }
    }
}

/// A pair of connected local sockets for streams, which exec closes.
///
/// # Errors
/// The kernel's.
pub fn pair() -> Result<[i32; 2], Errno> {
    let mut fds = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let args = [libc::AF_UNIX as usize, kind as usize, 0, &raw mut fds as usize, 0, 0];
    // SAFETY: the array is valid for writes of two descriptors.
    unsafe { syscall(libc::SYS_socketpair, args) }?;
    Ok(fds)
}

/// Shuts one way of a socket down, or both.
///
/// # Errors
/// The kernel's.
pub fn shut_down(fd: i32, how: i32) -> Result<(), Errno> {
    // SAFETY: no pointers.
    unsafe { syscall(libc::SYS_shutdown, [fd as usize, how as usize, 0, 0, 0, 0]) }.map(|_| ())
}

/// Sends all of these bytes, waiting for room; raises no signal.
///
/// # Errors
/// The kernel's.
pub fn send_all(fd: i32, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let flags = libc::MSG_NOSIGNAL as usize;
        let args = [fd as usize, bytes.as_ptr() as usize, bytes.len(), flags, 0, 0];
        // SAFETY: the bytes are valid for reads.
        match unsafe { syscall(libc::SYS_sendto, args) } {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The user at the other end of a local socket.
///
/// # Errors
/// The kernel's.
pub fn peer_user(fd: i32) -> Result<u32, Errno> {
    let mut bytes = [0; 12];
    option_bytes(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut bytes)?;
    Ok(u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
}

/// Descriptors that come with one packet, at most.
pub const MOST_FDS: usize = 4;

#[repr(C, align(8))]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; MOST_FDS],
}

const CONTROL_HEAD: usize = 16;

/// Sends a packet; does not wait and raises no signal.
///
/// # Errors
/// The kernel's.
pub fn send_packet(socket: i32, bytes: &[u8]) -> Result<(), Errno> {
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    let args = [socket as usize, bytes.as_ptr() as usize, bytes.len(), flags, 0, 0];
    // SAFETY: the slice is valid for reads of its length.
    unsafe { syscall(libc::SYS_sendto, args) }.map(drop)
}

/// Sends a packet with a descriptor; does not wait and raises no signal.
///
/// # Errors
/// The kernel's.
pub fn send_with_fd(socket: i32, bytes: &[u8], fd: i32) -> Result<(), Errno> {
    let mut control = Control {
        len: CONTROL_HEAD + 4,
        level: libc::SOL_SOCKET,
        kind: libc::SCM_RIGHTS,
        fds: [fd; MOST_FDS],
    };
    let iov = [bytes.as_ptr() as usize, bytes.len()];
    // The kernel's msghdr: name, its length, vector, its length, control, its length, flags.
    let message = [0, 0, iov.as_ptr() as usize, 1, &raw mut control as usize, CONTROL_HEAD + 8, 0];
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as usize;
    // SAFETY: all that the message points to is valid for reads meanwhile.
    unsafe { syscall(libc::SYS_sendmsg, [socket as usize, message.as_ptr() as usize, flags, 0, 0, 0]) }
        .map(drop)
}

/// Takes a packet that is there, with its descriptors, which exec closes: its length and their number.
///
/// # Errors
/// The kernel's: `EAGAIN` if there is none.
pub fn receive_with_fds(
    socket: i32,
    bytes: &mut [u8],
    fds: &mut [i32; MOST_FDS],
) -> Result<(usize, usize), Errno> {
    match receive_once(socket, bytes, fds)? {
        // An end can hide a packet that was sent right before it: the kernel looks for packets first, for the end then.
        (0, 0) => receive_once(socket, bytes, fds),
        packet => Ok(packet),
    }
}

fn receive_once(socket: i32, bytes: &mut [u8], fds: &mut [i32; MOST_FDS]) -> Result<(usize, usize), Errno> {
    let mut control = Control { len: 0, level: 0, kind: 0, fds: [-1; MOST_FDS] };
    let iov = [bytes.as_mut_ptr() as usize, bytes.len()];
    let mut message = [0, 0, iov.as_ptr() as usize, 1, &raw mut control as usize, size_of::<Control>(), 0];
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as usize;
    let args = [socket as usize, message.as_mut_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: all that the message points to is valid for writes meanwhile.
    let len = unsafe { syscall(libc::SYS_recvmsg, args) }?;
    let rights = control.level == libc::SOL_SOCKET && control.kind == libc::SCM_RIGHTS;
    let count = if rights { control.len.saturating_sub(CONTROL_HEAD) / 4 } else { 0 }.min(MOST_FDS);
    fds[..count].copy_from_slice(&control.fds[..count]);
    Ok((len, count))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn both_families_name_one_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let (one, other) = (stream.as_raw_fd(), accepted.as_raw_fd());
        assert_eq!(name(one, Side::Own), name(other, Side::Peer));
        assert_eq!(name(one, Side::Peer), name(other, Side::Own));
        assert_eq!(name(listener.as_raw_fd(), Side::Peer), Err(Errno(libc::ENOTCONN)));
        let mut mapped = [0u8; 128];
        mapped[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        mapped[2..4].copy_from_slice(&listener.local_addr().unwrap().port().to_be_bytes());
        mapped[18..24].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(parse_name(&mapped), name(other, Side::Own).unwrap());
        assert_eq!(option_int(one, libc::SOL_SOCKET, libc::SO_PROTOCOL), Ok(libc::IPPROTO_TCP));
        assert_eq!(time_limit(one, libc::SO_RCVTIMEO), None);
    }

    #[test]
    fn a_packet_brings_its_descriptor() {
        let mut pair = [0; 2];
        // SAFETY: the array takes both.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr()) }, 0);
        send_with_fd(pair[0], b"hello", pair[0]).unwrap();
        let (mut bytes, mut fds) = ([0; 16], [-1; MOST_FDS]);
        assert_eq!(receive_with_fds(pair[1], &mut bytes, &mut fds), Ok((5, 1)));
        assert!(fds[0] > pair[1] && bytes.starts_with(b"hello"));
        assert_eq!(receive_with_fds(pair[1], &mut bytes, &mut fds), Err(Errno(libc::EAGAIN)));
        assert_eq!(peer_user(pair[1]), Ok(super::super::calls::user_id()));
        for fd in [pair[0], pair[1], fds[0]] {
            super::super::calls::close(fd).unwrap();
        }
    }
}
