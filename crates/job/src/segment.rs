//! Segments of a job: memory that ranks of one host map, all of them or any group, under any launcher.
//!
//! The first rank of the group makes a sealed memfd and waits at a socket in the user's private folder. The name of that
//! socket follows from the job's number, the group and how many segments it had before, so that a group needs no exchange and
//! ranks outside of it need not know. The others fetch the descriptor there. When all have it the socket is gone: a killed
//! job leaves at most a socket file, which the next sweep removes.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use viaduct_os::budget::Budget;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::process;
use viaduct_os::segment::{Access, Segment};

use crate::error::Error;
use crate::first::Common;
use crate::ranks::Job;

/// How long ranks wait for each other: only one that died keeps them waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the memory of a segment comes.
enum Kind<'a> {
    /// At once, charged to a budget.
    Allocated(&'a Budget),
    /// Where it is touched.
    Sparse,
}

impl Job {
    /// The segment of this host's ranks, at least `len` zero bytes. All ranks of this host must call it, with one length; all
    /// ranks of the job, if it is their first question about hosts. `folder` is the run-time folder of the user.
    ///
    /// # Errors
    /// If a rank of this host does not come, or memory is short.
    pub fn segment(&mut self, len: usize, budget: &Budget, folder: &Path) -> Result<Segment, Error> {
        let neighbours = self.neighbours()?;
        self.share(&neighbours, len, budget, folder)
    }

    /// A segment of the ranks in `group`, at least `len` zero bytes. They are on this host, this rank is one of them, and all
    /// of them call it with one list and one length, in one order if they share several; the budget of the first is charged.
    /// Other ranks take no part, but all ranks must have asked about their [`hosts`](Self::hosts) before.
    ///
    /// # Errors
    /// If the group is not of this kind, a rank of it does not come within a minute, or memory is short.
    pub fn share(
        &mut self,
        group: &[usize],
        len: usize,
        budget: &Budget,
        folder: &Path,
    ) -> Result<Segment, Error> {
        self.shared(group, len, folder, Kind::Allocated(budget))
    }

    /// A segment of the ranks in `group` as [`share`](Self::share) makes it, whose memory is taken where it is touched: it
    /// charges no budget.
    ///
    /// # Errors
    /// As [`share`](Self::share).
    pub fn share_sparse(&mut self, group: &[usize], len: usize, folder: &Path) -> Result<Segment, Error> {
        self.shared(group, len, folder, Kind::Sparse)
    }

    fn shared(
        &mut self,
        group: &[usize],
        len: usize,
        folder: &Path,
        kind: Kind<'_>,
    ) -> Result<Segment, Error> {
        let rank = self.rank();
        let common = self.common()?;
        let name = name(common, rank, group)?;
        let count = self.shared.entry(group.to_vec()).or_default();
        let path = folder.join(format!("segment.{name}.{count}"));
        *count += 1;
        if group[0] != rank {
            return fetch(&path, rank, len, &kind);
        }
        let failed = |what: &'static str| move |why: viaduct_os::error::OsError| fail(what, why);
        let made = match kind {
            Kind::Allocated(budget) => Segment::create("viaduct-job", len, budget),
            Kind::Sparse => Segment::create_sparse("viaduct-job", len),
        };
        let segment = made.map_err(failed("making it"))?;
        if group.len() > 1 {
            let listener = Listener::bind(&path).map_err(failed("a socket for it"))?;
            hand_out(&listener, &segment, group)?;
        }
        Ok(segment)
    }
}

/// What the segments of a group are called, in this job and no other.
fn name(common: &Common, rank: usize, group: &[usize]) -> Result<String, Error> {
    let bad = |why: String| Err(fail("the group", why));
    if !group.contains(&rank) {
        return bad(format!("rank {rank} asks for a segment of a group that it is not in"));
    }
    let mut hash = Sha256::new();
    hash.update(common.nonce.to_le_bytes());
    for (index, member) in group.iter().enumerate() {
        match common.hosts.get(*member) {
            None => return bad(format!("there is no rank {member}")),
            Some(host) if *host != common.hosts[rank] => {
                return bad(format!("rank {member} is on another host"));
            }
            Some(_) if group[..index].contains(member) => {
                return bad(format!("rank {member} is in it twice"));
            }
            Some(_) => hash.update((*member as u64).to_le_bytes()),
        }
    }
    let digest = hash.finalize();
    Ok(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Hands the segment to the other ranks of a group, each of which says its number first: processes that tidy the folder up
/// connect too, to see whether a socket is in use.
fn hand_out(listener: &Listener, segment: &Segment, group: &[usize]) -> Result<(), Error> {
    let failed = |why: viaduct_os::error::OsError| fail("handing it out", why);
    let (end, epoll) = (Instant::now() + PATIENCE, Epoll::new().map_err(failed)?);
    epoll.add(listener, 0, Interest::Read).map_err(failed)?;
    let mut missing: Vec<usize> = group[1..].to_vec();
    let mut silent: Vec<Channel> = Vec::new();
    while !missing.is_empty() {
        while let Some(channel) = listener.accept().map_err(failed)? {
            // The folder keeps other users out; this keeps out a process that got the descriptor of the folder.
            if channel.peer().map_err(failed)?.uid == process::effective_uid() {
                epoll.add(&channel, 0, Interest::Read).map_err(failed)?;
                silent.push(channel);
            }
        }
        let mut said = [0; 8];
        silent.retain(|channel| match channel.recv(&mut said, &mut Vec::new(), 0) {
            Ok(Recv::WouldBlock) => true,
            Ok(Recv::Message(_)) => {
                let rank = u64::from_le_bytes(said) as usize;
                let fd = segment.fd().expect("it keeps its descriptor");
                // A neighbour that hung up at once has failed, and says so itself.
                if missing.contains(&rank) && channel.send(b"segment", &[fd]).is_ok() {
                    missing.retain(|other| *other != rank);
                }
                false
            }
            Ok(Recv::Closed) | Err(_) => false,
        });
        if !missing.is_empty() {
            let left = end.checked_duration_since(Instant::now());
            let left = left.ok_or_else(|| fail("handing it out", "a rank of this host did not come"))?;
            epoll.wait(&mut Vec::new(), Some(left)).map_err(failed)?;
        }
    }
    Ok(())
}

fn fetch(path: &Path, rank: usize, len: usize, kind: &Kind<'_>) -> Result<Segment, Error> {
    let end = Instant::now() + PATIENCE;
    let channel = ask(path, end)?;
    let failed = |why: viaduct_os::error::OsError| fail("fetching it", why);
    channel.send(&(rank as u64).to_le_bytes(), &[]).map_err(failed)?;
    let epoll = Epoll::new().map_err(failed)?;
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
    let opened = match kind {
        Kind::Allocated(_) => Segment::open(fd, Access::ReadWrite, most),
        Kind::Sparse => Segment::open_sparse(fd, Access::ReadWrite, most),
    };
    let segment = opened.map_err(failed)?;
    if segment.len() < len { Err(fail("fetching it", "its length is another")) } else { Ok(segment) }
}

/// Connects to the first rank of the group, which may not be there yet.
fn ask(path: &Path, end: Instant) -> Result<Channel, Error> {
    let mut pause = Duration::from_micros(50);
    loop {
        match Channel::connect(path) {
            Ok(channel) => return Ok(channel),
            Err(why) if !matches!(why.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Err(fail("asking for it", why));
            }
            Err(_) if Instant::now() >= end => {
                return Err(fail("asking for it", "the first rank of the group did not come"));
            }
            Err(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn fail(what: &'static str, why: impl ToString) -> Error {
    Error::Segment { what, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;
    use crate::host::HostId;
    use crate::token::Token;

    #[test]
    fn one_process_alone_has_one_too() {
        let folder = TempDir::new("segment");
        let mut job = Job::join(&|_| None).unwrap();
        let segment = job.segment(10_000, Budget::process(), folder.path()).unwrap();
        assert!(segment.len() >= 10_000);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no socket is left");
    }

    #[test]
    fn a_leader_that_does_not_come_is_an_error() {
        let folder = TempDir::new("segment");
        let (path, end) = (folder.path().join("none"), Instant::now());
        assert!(matches!(ask(&path, end), Err(Error::Segment { .. })));
        // The file of a rank that died is no rank.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(matches!(ask(&path, end), Err(Error::Segment { .. })));
    }

    #[test]
    fn a_group_is_of_this_host_and_has_a_name_of_its_own() {
        let (here, there) = (HostId::named("here"), HostId::named("there"));
        let common = |nonce| Common { hosts: vec![here, here, there, here], nonce, token: Token::random() };
        let of = |rank, group: &[usize]| name(&common(1), rank, group).map_err(|why| why.to_string());
        assert_eq!(of(0, &[0, 1]), of(1, &[0, 1]));
        let names = [of(0, &[0, 1]), of(0, &[1, 0]), of(0, &[0, 3]), of(0, &[0, 1, 3]), of(0, &[0])];
        for (index, one) in names.iter().enumerate() {
            assert!(one.is_ok() && !names[..index].contains(one), "{names:?}");
        }
        assert_ne!(
            name(&common(2), 0, &[0, 1]).unwrap(),
            of(0, &[0, 1]).unwrap(),
            "another job, another name"
        );
        for (group, why) in [
            (&[0, 2][..], "another host"),
            (&[0, 4], "no rank 4"),
            (&[1], "not in"),
            (&[], "not in"),
            (&[0, 1, 0], "twice"),
        ] {
            assert!(of(0, group).is_err_and(|error| error.contains(why)), "{group:?}");
        }
    }
}
