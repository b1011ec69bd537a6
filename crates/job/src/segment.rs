//! The job segment: one piece of memory that all ranks of a host map, under any launcher.
//!
//! The lowest rank of the host makes a sealed memfd and waits at a socket in the user's private folder; the name of that
//! socket goes through the key exchange, so nothing depends on the launcher. The others fetch the descriptor
//! there. When all have it the socket is gone: a killed job leaves at most a socket file, which the next sweep removes.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use viaduct_os::budget::Budget;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::segment::{Access, Segment};
use viaduct_os::{process, random};

use crate::error::Error;
use crate::ranks::Job;

/// How long ranks wait for each other: only one that died keeps them waiting.
const PATIENCE: Duration = Duration::from_secs(60);

impl Job {
    /// The segment of this host's ranks, at least `len` zero bytes. All ranks of the job must call it, with one length.
    /// `folder` is the run-time folder of the user.
    ///
    /// # Errors
    /// If a rank of this host does not come, or memory is short.
    pub fn segment(&mut self, len: usize, budget: &Budget, folder: &Path) -> Result<Segment, Error> {
        let neighbours = self.neighbours()?;
        if neighbours[0] != self.rank() {
            let all = self.exchange(b"")?;
            let name = String::from_utf8_lossy(&all[neighbours[0]]).into_owned();
            let segment = fetch(&folder.join(name), len);
            self.barrier()?;
            return segment;
        }
        let failed = |what: &'static str| move |why: viaduct_os::error::OsError| fail(what, why);
        let segment = Segment::create("viaduct-job", len, budget).map_err(failed("making it"))?;
        let name = format!("segment.{:016x}", random::u64());
        let listener = Listener::bind(&folder.join(&name)).map_err(failed("a socket for it"))?;
        self.exchange(name.as_bytes())?;
        let handed = hand_out(&listener, &segment, neighbours.len() - 1);
        self.barrier()?;
        handed.map(|()| segment)
    }
}

fn hand_out(listener: &Listener, segment: &Segment, mut missing: usize) -> Result<(), Error> {
    let failed = |why: viaduct_os::error::OsError| fail("handing it out", why);
    let (end, epoll) = (Instant::now() + PATIENCE, Epoll::new().map_err(failed)?);
    epoll.add(listener, 0, Interest::Read).map_err(failed)?;
    while missing > 0 {
        while let Some(channel) = listener.accept().map_err(failed)? {
            // The folder keeps other users out; this keeps out a process that got the descriptor of the folder.
            if channel.peer().map_err(failed)?.uid != process::effective_uid() {
                continue;
            }
            let fd = segment.fd().expect("it keeps its descriptor");
            // A neighbour that hung up at once has failed, and says so itself.
            if channel.send(b"segment", &[fd]).is_ok() {
                missing -= 1;
            }
        }
        if missing > 0 {
            let left = end.checked_duration_since(Instant::now());
            let left = left.ok_or_else(|| fail("handing it out", "a rank of this host did not come"))?;
            epoll.wait(&mut Vec::new(), Some(left)).map_err(failed)?;
        }
    }
    Ok(())
}

fn fetch(path: &Path, len: usize) -> Result<Segment, Error> {
    let channel = Channel::connect(path).map_err(|why| fail("asking for it", why))?;
    let failed = |why: viaduct_os::error::OsError| fail("fetching it", why);
    let (end, epoll) = (Instant::now() + PATIENCE, Epoll::new().map_err(failed)?);
    epoll.add(&channel, 0, Interest::Read).map_err(failed)?;
    let fd: OwnedFd = loop {
        let mut fds = Vec::new();
        match channel.recv(&mut [0; 16], &mut fds, 1).map_err(failed)? {
            Recv::Message(_) => break fds.pop().ok_or_else(|| fail("fetching it", "no descriptor came"))?,
            Recv::Closed => return Err(fail("fetching it", "the rank that has it is gone")),
            Recv::WouldBlock => {
                let left = end.checked_duration_since(Instant::now());
                let left = left.ok_or_else(|| fail("fetching it", "the rank that has it is silent"))?;
                epoll.wait(&mut Vec::new(), Some(left)).map_err(failed)?;
            }
        }
    };
    let most = len.max(1).next_multiple_of(viaduct_os::segment::page_size());
    let segment = Segment::open(fd, Access::ReadWrite, most).map_err(failed)?;
    if segment.len() < len { Err(fail("fetching it", "its length is another")) } else { Ok(segment) }
}

fn fail(what: &'static str, why: impl ToString) -> Error {
    Error::Segment { what, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn one_process_alone_has_one_too() {
        let folder = TempDir::new("segment");
        let mut job = Job::join(&|_| None).unwrap();
        let segment = job.segment(10_000, Budget::process(), folder.path()).unwrap();
        assert!(segment.len() >= 10_000);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no socket is left");
    }

    #[test]
    fn a_leader_that_is_gone_is_an_error() {
        let folder = TempDir::new("segment");
        assert!(matches!(fetch(&folder.path().join("none"), 1), Err(Error::Segment { .. })));
    }
}
