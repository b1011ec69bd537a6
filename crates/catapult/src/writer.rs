//! Our own standard output and error, written without ever waiting for their reader.
//!
//! A launcher that waits for a pager cannot answer its nodes, and they would take it for dead. The descriptors belong to
//! others too, so their flags stay as they are: before each write the kernel is asked for room, and a pipe that has room
//! takes at least 4,096 bytes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use viaduct_os::epoll::{Epoll, Interest};

/// What a pipe with room takes at once.
const PIECE: usize = 4096;
/// When so much waits, no more is read from ranks.
const ENOUGH: usize = 1 << 20;

/// One of the two.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Says whether there is room; none for what always has room.
    room: Option<Epoll>,
    token: u64,
    queue: VecDeque<u8>,
    armed: bool,
    closed: bool,
}

impl Writer {
    /// For a descriptor. `token` is what `epoll` reports when there is room.
    pub fn new(fd: OwnedFd, token: u64) -> Writer {
        let file = File::from(fd);
        // A plain file cannot be watched, and never makes one wait.
        let room = Epoll::new().ok().filter(|epoll| epoll.add(&file, 0, Interest::Write).is_ok());
        Writer { file, room, token, queue: VecDeque::new(), armed: false, closed: false }
    }

    /// Writes, or keeps what there is no room for.
    pub fn put(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.queue.extend(bytes);
        self.flush();
    }

    /// Writes what there is room for.
    pub fn flush(&mut self) {
        while !self.queue.is_empty() && !self.closed {
            let (front, _) = self.queue.as_slices();
            let piece = match &self.room {
                Some(room) if !has_room(room) => return,
                Some(_) => &front[..front.len().min(PIECE)],
                None => front,
            };
            match self.file.write(piece) {
                Ok(n) => drop(self.queue.drain(..n)),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.closed = true;
                    self.queue.clear();
                }
            }
        }
    }

    /// Has `epoll` say when there is room, exactly while something waits.
    pub fn arm(&mut self, epoll: &Epoll) {
        let wanted = !self.queue.is_empty();
        if let (Some(room), true) = (&self.room, wanted != self.armed) {
            self.armed = wanted;
            // The set itself becomes readable when its descriptor is ready, and two may stand for one file.
            let _ = if wanted { epoll.add(room, self.token, Interest::Read) } else { epoll.del(room) };
        }
    }

    /// Whether the reader is gone.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether ranks should wait.
    pub fn is_full(&self) -> bool {
        self.queue.len() > ENOUGH
    }

    /// Whether all is written.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn has_room(room: &Epoll) -> bool {
    let mut events = Vec::new();
    // An error or a hang-up is found by the write.
    !matches!(room.wait(&mut events, Some(Duration::ZERO)), Ok(0))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_full_pipe_does_not_make_the_launcher_wait() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut out = Writer::new(writer.into(), 1);
        out.put(&vec![b'x'; 2 << 20]);
        assert!(out.is_full() && !out.is_empty());
        let mut total = 0;
        let mut bytes = vec![0; 1 << 16];
        while !out.is_empty() {
            total += reader.read(&mut bytes).unwrap();
            out.flush();
        }
        assert!(total + (1 << 16) >= 2 << 20);
    }

    #[test]
    fn a_reader_that_left_is_noticed() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut out = Writer::new(writer.into(), 1);
        out.put(b"hello?");
        assert!(out.is_closed() && out.is_empty());
    }

    #[test]
    fn files_have_room() {
        let folder = viaduct_kit::tempdir::TempDir::new("writer");
        let file = File::create(folder.join("out")).unwrap();
        let mut out = Writer::new(file.into(), 1);
        out.put(&vec![b'x'; 3 << 20]);
        assert!(out.is_empty());
        assert_eq!(std::fs::metadata(folder.join("out")).unwrap().len(), 3 << 20);
    }
}
