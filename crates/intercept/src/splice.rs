//! `splice` between a pipe and a connection with rings: bytes go through a buffer on the stack, and none is taken from
//! either side that does not arrive at the other.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{Errno, calls, cancel};

use crate::endpoint::slot;
use crate::layout::{capacity, writable};
use crate::raw::Piece;
use crate::{receive, send};

/// What a pipe takes without waiting if it takes anything.
const PIECE: usize = 4096;

/// From a connection to a pipe.
///
/// # Errors
/// As `splice`.
pub fn to_pipe(index: u32, fd: i32, pipe: i32, len: usize, nonblocking: bool) -> Result<usize, Errno> {
    let mut piece = [0u8; PIECE];
    let mut moved = 0;
    let mut wait = if nonblocking { libc::MSG_DONTWAIT } else { 0 };
    while moved < len {
        let result = room_in(pipe, wait != 0)
            .and_then(|()| {
                let part = Piece::new(&mut piece[..PIECE.min(len - moved)]);
                receive::receive(index, fd, part.buffers(), wait | libc::MSG_PEEK)
            })
            .and_then(|count| if count == 0 { Ok(0) } else { calls::write(pipe, &piece[..count]) });
        match result {
            Ok(0) => break,
            Ok(count) => {
                let part = Piece::new(&mut piece[..count]);
                receive::receive(index, fd, part.buffers(), libc::MSG_DONTWAIT)?;
                moved += count;
            }
            Err(_) if moved > 0 => break,
            Err(error) => return Err(error),
        }
        wait = libc::MSG_DONTWAIT; // after the first bytes only what is there
    }
    Ok(moved)
}

/// From a pipe to a connection.
///
/// # Errors
/// As `splice`.
pub fn from_pipe(index: u32, fd: i32, pipe: i32, len: usize, nonblocking: bool) -> Result<usize, Errno> {
    let mut piece = [0u8; PIECE];
    let mut moved = 0;
    let mut wait = nonblocking;
    while moved < len {
        let result = room_for(index, fd, wait)
            .and_then(|room| if wait { is_readable(pipe).map(|()| room) } else { Ok(room) })
            .and_then(|room| {
                let part = &mut piece[..PIECE.min(len - moved).min(room)];
                cancel::point(|| calls::read(pipe, part))
            });
        let count = match result {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) if moved > 0 => break,
            Err(error) => return Err(error),
        };
        let mut sent = 0;
        while sent < count {
            // There was room for all of it; only another thread or the end of the connection comes in between.
            let part = Piece::new(&mut piece[sent..count]);
            match send::send(index, fd, part.buffers(), 0) {
                Ok(more) => sent += more,
                Err(Errno(libc::EAGAIN)) => {
                    let mut room = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
                    let _ = crate::poll::poll(&mut room, None, None);
                }
                Err(error) => return if moved + sent > 0 { Ok(moved + sent) } else { Err(error) },
            }
        }
        moved += count;
        wait = true;
    }
    Ok(moved)
}

/// Waits until a pipe takes a piece.
fn room_in(pipe: i32, nonblocking: bool) -> Result<(), Errno> {
    wait_for(pipe, libc::POLLOUT, nonblocking)
}

fn is_readable(pipe: i32) -> Result<(), Errno> {
    wait_for(pipe, libc::POLLIN, true)
}

fn wait_for(fd: i32, events: i16, nonblocking: bool) -> Result<(), Errno> {
    let flags = calls::status_flags(fd)?;
    let limit = (nonblocking || flags & libc::O_NONBLOCK != 0).then_some(0);
    let mut entry = [libc::pollfd { fd, events, revents: 0 }];
    match cancel::point(|| calls::poll(&mut entry, limit, None))? {
        0 => Err(Errno(libc::EAGAIN)),
        _ => Ok(()),
    }
}

/// Bytes that a connection takes without waiting, at least one.
fn room_for(index: u32, fd: i32, nonblocking: bool) -> Result<usize, Errno> {
    let slot = slot(index);
    let header = slot.view()?.header();
    let own = slot.own_end(header).nonblocking.load(Ordering::Relaxed) != 0;
    loop {
        if !send::goes_by_ring(slot) {
            return Ok(PIECE);
        }
        let outgoing = slot.outgoing(header);
        let (head, tail) =
            (outgoing.producer.head.load(Ordering::Acquire), outgoing.consumer.tail.load(Ordering::Acquire));
        let most = capacity(outgoing.producer.most.load(Ordering::Relaxed));
        let room = writable(head, tail, most).ok_or(Errno(libc::ECONNRESET))?;
        if room > 0 {
            return Ok(room as usize);
        }
        if nonblocking || own {
            return Err(Errno(libc::EAGAIN));
        }
        let mut entry = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
        crate::poll::poll(&mut entry, None, None)?;
    }
}
