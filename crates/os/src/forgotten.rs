//! Sockets of this process that a library has accepted and forgotten.
//!
//! libfabric's tcp provider (1.17) loses those that are half connected when their listener closes: they stay open, and the
//! client at the other end waits for an answer that never comes. They are found among the descriptors of this process by
//! the port at which they were accepted, and reset: the same provider, at the other end, does not notice an orderly end.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{connect_unspec, getsockname, sockopt};

/// A connected socket that its library has forgotten.
#[derive(Debug)]
pub struct Forgotten {
    /// The number under which it was found.
    fd: RawFd,
    /// A descriptor of our own, so that it stays this socket whatever becomes of the number.
    socket: OwnedFd,
}

/// Connected sockets of this process whose own end is at this port, at this address unless it is everywhere. The caller
/// knows of no living one there.
pub fn forgotten_at(ip: IpAddr, port: u16) -> Vec<Forgotten> {
    let Ok(list) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    numbers.filter_map(|fd| look(fd, ip, port)).collect()
}

fn look(number: RawFd, ip: IpAddr, port: u16) -> Option<Forgotten> {
    // SAFETY: only duplicated; if it was closed meanwhile, the kernel says so.
    let socket = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 0).ok()?;
    let local: SocketAddr = getsockname(&socket).ok()?.try_into().ok()?;
    let here = local.port() == port && (ip.is_unspecified() || local.ip() == ip);
    let accepted = here && !sockopt::socket_acceptconn(&socket).ok()?;
    accepted.then_some(Forgotten { fd: number, socket })
}

impl Forgotten {
    /// Ends the connection with a reset, by our own descriptor. The number stays taken until it is closed, because the
    /// library may still use it.
    pub fn reset(&mut self) {
        // A connection that is over already needs none.
        let _ = connect_unspec(&self.socket);
    }

    /// Closes the number, if it still stands for this socket.
    pub fn close(self) {
        // SAFETY: only looked at; if it was closed meanwhile, the kernel says so.
        let there = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let inode = |fd: BorrowedFd<'_>| fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
        if inode(there) == inode(self.socket.as_fd()) {
            // SAFETY: the number stands for the socket, whose inode cannot have another life as long as we have it open; the
            // library that opened it is closed, and nothing else in the process was ever told the number.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_forgotten_socket_is_found_and_its_other_end_sees_a_reset() {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = door.local_addr().unwrap();
        assert!(forgotten_at(at.ip(), at.port()).is_empty(), "the listener itself is not one");
        let mut client = TcpStream::connect(at).unwrap();
        let number = door.accept().unwrap().0.into_raw_fd();
        assert!(forgotten_at("127.0.0.9".parse().unwrap(), at.port()).is_empty(), "another address");
        let mut found = forgotten_at(at.ip(), at.port());
        assert_eq!(found.iter().map(|f| f.fd).collect::<Vec<_>>(), [number]);
        found.iter_mut().for_each(Forgotten::reset);
        let end = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
        // A number that stands for something else by now is left alone.
        let other = std::fs::File::open("/dev/null").unwrap();
        let socket = found[0].socket.try_clone().unwrap();
        Forgotten { fd: std::os::fd::AsRawFd::as_raw_fd(&other), socket }.close();
        assert!(fstat(&other).is_ok());
        found.into_iter().for_each(Forgotten::close);
        assert!(forgotten_at(at.ip(), at.port()).is_empty());
        assert!(fs::metadata(format!("/proc/self/fd/{number}")).is_err(), "its number is free again");
    }
}
