//! What the kernel says of the TCP socket that the application holds: how many bytes went through it, and whether the
//! other end is still there.

use viaduct_os::bare::{Errno, calls, sockets};

const ESTABLISHED: u8 = 1;
const FIN_WAIT_1: u8 = 4;
const FIN_WAIT_2: u8 = 5;
const CLOSE_WAIT: u8 = 8;
/// Of the options of a connection.
const DATA_IN_FIRST_PACKET: u8 = 32;

/// Parts of the kernel's `tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    state: u8,
    /// Bytes that arrived, the end not counted.
    arrived: u64,
    /// Bytes that were handed to the kernel for sending.
    pub(crate) accepted: u64,
    /// Whether data went, or should have gone, with the first packet: they may be counted twice.
    began_with_data: bool,
}

impl Info {
    /// What the kernel says of this socket.
    pub(crate) fn of(fd: i32) -> Option<Info> {
        let mut bytes = [0u8; 232];
        let len = sockets::option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes).ok()?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let half =
            |at: usize| u64::from(u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default()));
        if len < 216 {
            return None; // before Linux 4.19
        }
        let state = bytes[0];
        // The end of the peer's stream counts as one byte.
        let ended = ![ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2].contains(&state);
        let arrived = word(128).saturating_sub(u64::from(ended));
        // Sent, less what was sent twice, and what waits to be sent for the first time.
        let accepted = word(200).saturating_sub(word(208)) + half(144);
        let (options, fast_open_failed) = (bytes[5], bytes[7] >> 1 & 3);
        let began_with_data = options & DATA_IN_FIRST_PACKET != 0 || fast_open_failed != 0;
        Some(Info { state, arrived, accepted, began_with_data })
    }

    /// Whether both directions are open, as far as this end knows.
    pub(crate) fn is_established(&self) -> bool {
        self.state == ESTABLISHED
    }

    /// Whether the peer has sent something.
    pub(crate) fn has_heard(&self) -> bool {
        self.arrived > 0
    }

    /// Whether this end may still send.
    pub(crate) fn can_send(&self) -> bool {
        [ESTABLISHED, CLOSE_WAIT].contains(&self.state)
    }
}

/// How many of the first `total` bytes of the incoming stream the application has not read yet.
pub(crate) fn unread_of(fd: i32, total: u64) -> Option<u64> {
    for _ in 0..64 {
        let before = Info::of(fd)?;
        let queued = calls::ioctl_int(fd, libc::FIONREAD).ok()? as u64;
        // Both must be of one moment, else bytes that arrive in between are counted once too often or not at all.
        if Info::of(fd)?.arrived == before.arrived {
            return Some(total.saturating_add(queued).saturating_sub(before.arrived)); // a peer writes the total
        }
    }
    None
}

/// Whether the peer has ended its stream or the connection is broken.
pub(crate) fn peer_has_ended(fd: i32) -> bool {
    let mut fds = [libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 }];
    calls::poll(&mut fds, Some(0), None) == Ok(1)
}

/// The kernel's number of this socket, one for all descriptors and processes that hold it.
pub(crate) fn cookie(fd: i32) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = sockets::option_bytes(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut bytes).ok()?;
    (len == 8).then(|| u64::from_ne_bytes(bytes))
}

/// Whether the kernel would take this for a TCP socket.
pub(crate) fn is_tcp(fd: i32) -> bool {
    sockets::option_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
        && sockets::option_int(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// The option `SO_BINDTOIFINDEX`, which gives the number of the device.
const BOUND_TO_DEVICE: i32 = 62;
/// Why a connection whose first packet has data stays on TCP.
pub const FAST_OPEN: &str = "data went with its first packet";
/// Why one is left whose messages say how many bytes follow.
pub const TELLS_REST: &str = "its messages say how much is left";
/// Why one is left whose messages have times.
pub const TELLS_TIMES: &str = "its messages say when packets came";
/// Why one with a filter is left.
pub const FILTERED: &str = "it has a filter";

/// What stands in the way of an upgrade of this connection, of this process and of every other one, from its beginning on.
fn distance(fd: i32) -> Result<Option<&'static str>, Errno> {
    let peer = sockets::name(fd, sockets::Side::Peer)?;
    let own = sockets::name(fd, sockets::Side::Own)?;
    let (Some(peer), Some(own)) = (peer, own) else { return Ok(Some("not over IP")) };
    // Both ends are on this host if they have one address, or both a loopback one.
    let loopback = |name: sockets::Name| name.address[..13] == *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f";
    let here = peer.address == own.address || loopback(peer) && loopback(own);
    Ok((!here).then_some("the peer is on another host"))
}

/// Whether it is a connection within this host, which a process before this one may have upgraded.
pub(crate) fn is_local(fd: i32) -> bool {
    distance(fd) == Ok(None)
}

const TCP_INQ: i32 = 36;
const SO_GET_FILTER: i32 = 26;
/// Options with which messages bring times: of packets in microseconds and nanoseconds, and of more, in their older and newer forms.
const TIMES: [i32; 6] = [29, 35, 37, 63, 64, 65];

/// What stands in the way of an upgrade of a connection on which other processes may have set options, or on whose listener: here
/// such a call would have kept it on TCP.
pub(crate) fn unseen_obstacle(fd: i32) -> Option<&'static str> {
    let is_set = |level, option| sockets::option_int(fd, level, option).is_ok_and(|value| value != 0);
    if is_set(libc::IPPROTO_TCP, TCP_INQ) {
        return Some(TELLS_REST);
    }
    if TIMES.into_iter().any(|option| is_set(libc::SOL_SOCKET, option)) {
        return Some(TELLS_TIMES);
    }
    // How many instructions it has; of one of the newer kind the kernel says nothing.
    let filter = sockets::option_bytes(fd, libc::SOL_SOCKET, SO_GET_FILTER, &mut []);
    [Ok(0), Err(Errno(libc::ENOPROTOOPT))].iter().all(|none| filter != *none).then_some(FILTERED)
}

/// What stands in the way of an upgrade of this connection.
pub(crate) fn obstacle(fd: i32) -> Result<Option<&'static str>, Errno> {
    if let Some(reason) = distance(fd)? {
        return Ok(Some(reason));
    }
    let int = |level, option| sockets::option_int(fd, level, option).unwrap_or(0);
    let mut protocol = [0; 16];
    let upper = sockets::option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_ULP, &mut protocol);
    if upper.is_ok_and(|len| len > 0) {
        return Ok(Some("the kernel has a protocol above TCP here"));
    }
    if int(libc::SOL_SOCKET, libc::SO_ZEROCOPY) != 0 {
        return Ok(Some("it sends without copying"));
    }
    if int(libc::SOL_SOCKET, libc::SO_OOBINLINE) != 0 {
        return Ok(Some("it has urgent data in its stream"));
    }
    if int(libc::SOL_SOCKET, libc::SO_RCVLOWAT) > 1 {
        return Ok(Some("it has a low-water mark"));
    }
    // TCP has this option since Linux 6.9.
    if sockets::option_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF).is_ok_and(|place| place >= 0) {
        return Ok(Some("it is looked at from a place"));
    }
    if calls::status_flags(fd)? & libc::O_ASYNC != 0 {
        return Ok(Some("signals tell of its bytes"));
    }
    if int(libc::SOL_SOCKET, BOUND_TO_DEVICE) > 0 {
        return Ok(Some("it is bound to a device"));
    }
    let Some(info) = Info::of(fd) else { return Ok(Some("the kernel counts no bytes")) };
    if info.began_with_data || int(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) != 0 {
        return Ok(Some(FAST_OPEN));
    }
    Ok((!info.is_established()).then_some("one direction is closed"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_are_counted_on_both_ends() {
        let (mut one, mut other) = pair();
        assert_eq!((obstacle(one.as_raw_fd()), unseen_obstacle(one.as_raw_fd())), (Ok(None), None));
        for round in 1..=20u64 {
            one.write_all(&[7; 1000]).unwrap();
            assert_eq!(Info::of(one.as_raw_fd()).unwrap().accepted, round * 1000);
        }
        let fd = other.as_raw_fd();
        let mut buffer = [0; 700];
        other.read_exact(&mut buffer).unwrap();
        // Whatever has arrived by now, those that were not read are the rest.
        assert_eq!(unread_of(fd, 20_000), Some(19_300));
        one.shutdown(Shutdown::Write).unwrap();
        std::io::copy(&mut other, &mut std::io::sink()).unwrap();
        assert_eq!(unread_of(fd, 20_000), Some(0));
        assert!(peer_has_ended(fd) && obstacle(fd).unwrap().is_some());
    }

    #[test]
    fn bytes_that_wait_in_the_kernel_are_counted() {
        let (mut one, mut other) = pair();
        one.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = one.write(&[1; 65_536]) {
            written += count as u64;
        }
        assert_eq!(Info::of(one.as_raw_fd()).unwrap().accepted, written);
        let mut read = 0;
        let mut buffer = vec![0; 50_000];
        for _ in 0..10 {
            read += other.read(&mut buffer).unwrap() as u64;
            assert_eq!(unread_of(other.as_raw_fd(), written), Some(written - read));
        }
    }

    #[test]
    fn other_descriptors_are_no_tcp() {
        let (one, _other) = pair();
        let unix = std::os::unix::net::UnixStream::pair().unwrap().0;
        assert!(is_tcp(one.as_raw_fd()) && !is_tcp(unix.as_raw_fd()) && !is_tcp(-1));
        let listener = TcpListener::bind("[::1]:0").unwrap();
        assert_eq!(obstacle(listener.as_raw_fd()), Err(Errno(libc::ENOTCONN)));
    }
}
