//! A stand-in for a connection whose last bytes lie in a ring and cannot be the kernel's any more, for a program that does
//! not load the library: its peer has ended its stream, so that no process may give them to TCP.
//!
//! The program gets one end of a pair of local sockets under the number of the connection. Two processes, no children of
//! the application's, carry bytes between the other end and the connection, one each way, until that way ends. They share
//! the connection as children do, and hold no other descriptor of the application.

use viaduct_os::bare::{Errno, calls, files, sockets, start};

use crate::descriptors;
use crate::endpoint::slot;
use crate::raw::Piece;
use crate::table::{self, Kind};
use crate::{poll, receive, send};

/// Bytes that are carried at a time.
const PIECE: usize = 16 << 10;

/// Makes a stand-in for a connection: a descriptor that exec closes, to be duplicated to where the connection was.
pub(crate) fn stand_in(fd: i32, index: u32) -> Option<i32> {
    let [near, far] = sockets::pair().ok()?;
    let carry = |work: fn(i32, u32, i32)| {
        start::beside(|| {
            let [bell, peer_bell] = slot(index).bells();
            files::close_all_but(&mut [fd, near, bell, peer_bell]);
            descriptors::begin();
            table::set(fd, Kind::Ring(index));
            work(fd, index, near);
        })
    };
    // Without the second the first ends as soon as the program closes its end.
    let both = carry(inward) && carry(outward);
    let _ = calls::close(near);
    if both {
        return Some(far);
    }
    let _ = calls::close(far);
    None
}

/// From the connection to the program.
fn inward(fd: i32, index: u32, near: i32) {
    let mut bytes = [0; PIECE];
    loop {
        match receive::receive(index, fd, Piece::new(&mut bytes).buffers(), 0) {
            Ok(0) => break,
            Ok(count) => {
                if sockets::send_all(near, &bytes[..count]).is_err() {
                    return; // the program has closed it
                }
            }
            Err(error) if again(fd, error, libc::POLLIN) => {}
            Err(_) => break,
        }
    }
    let _ = sockets::shut_down(near, libc::SHUT_WR);
}

/// From the program to the connection.
fn outward(fd: i32, index: u32, near: i32) {
    let mut bytes = [0; PIECE];
    loop {
        let count = match calls::read(near, &mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(Errno(libc::EINTR)) => continue,
            Err(_) => break,
        };
        let mut sent = 0;
        while sent < count {
            let rest = &mut bytes[sent..count];
            match send::send(index, fd, Piece::new(rest).buffers(), libc::MSG_NOSIGNAL) {
                Ok(moved) => sent += moved,
                Err(error) if again(fd, error, libc::POLLOUT) => {}
                Err(_) => return, // the program hears of it when its end is closed
            }
        }
    }
    descriptors::note_shutdown(fd, libc::SHUT_WR);
    let _ = sockets::shut_down(fd, libc::SHUT_WR);
}

/// Whether a call is to be made again, now that this has come; the connection may be one that does not block.
fn again(fd: i32, error: Errno, events: i16) -> bool {
    match error {
        Errno(libc::EINTR) => true,
        Errno(libc::EAGAIN) => {
            let _ = poll::poll(&mut [libc::pollfd { fd, events, revents: 0 }], None, None);
            true
        }
        _ => false,
    }
}
