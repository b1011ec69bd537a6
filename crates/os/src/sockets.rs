//! Sockets of this process that a library has accepted and forgotten.
//!
//! libfabric's tcp provider loses those that are half connected when their listener closes: they stay open, and whoever is
//! at the other end waits for an answer that nobody will give. They are found among the descriptors of this process by
//! the port at which they were accepted, and reset: the same provider, at the other end, does not notice an orderly end.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::fs::fstat;
use rustix::net::{getsockname, sockopt};

/// A connected socket that somebody forgot.
#[derive(Debug)]
pub struct Forgotten {
    fd: RawFd,
    inode: u64,
}

/// Connected sockets of this process whose own end is at this port, at this address unless it is everywhere. The caller
/// knows of no living one there.
pub fn forgotten_at(ip: IpAddr, port: u16) -> Vec<Forgotten> {
    let Ok(list) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    numbers.filter_map(|fd| look(fd, ip, port)).collect()
}

fn look(number: RawFd, ip: IpAddr, port: u16) -> Option<Forgotten> {
    // SAFETY: it is only looked at; if it was closed meanwhile, the kernel says so.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let local: SocketAddr = getsockname(fd).ok()?.try_into().ok()?;
    let here = local.port() == port && (ip.is_unspecified() || local.ip() == ip);
    let accepted = here && !sockopt::socket_acceptconn(fd).ok()?;
    accepted.then_some(Forgotten { fd: number, inode: fstat(fd).ok()?.st_ino })
}

impl Forgotten {
    /// Tells the other end that nobody is there. Its number stays taken until it is closed: whoever forgot it may still
    /// use that.
    pub fn reset(&mut self) {
        let Some(fd) = self.still_there() else { return };
        let (Ok(()), Ok(null)) =
            (sockopt::set_socket_linger(fd, Some(Duration::ZERO)), File::open("/dev/null"))
        else {
            return;
        };
        // SAFETY: the number is that of the socket, which nobody but its forgetful owner has; it becomes an empty file.
        unsafe { libc::dup3(null.as_raw_fd(), self.fd, libc::O_CLOEXEC) };
        self.inode = fstat(&null).map_or(self.inode, |stat| stat.st_ino);
    }

    /// Closes it, unless its owner has done so.
    pub fn close(self) {
        if self.still_there().is_some() {
            // SAFETY: it is the socket that was found, and whoever accepted it is gone.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }

    fn still_there(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: as above.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        fstat(fd).is_ok_and(|stat| stat.st_ino == self.inode).then_some(fd)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn what_was_forgotten_is_found_and_the_other_end_is_told() {
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
        found.into_iter().for_each(Forgotten::close);
        assert!(forgotten_at(at.ip(), at.port()).is_empty());
        assert!(fs::metadata(format!("/proc/self/fd/{number}")).is_err(), "its number is free again");
    }
}
