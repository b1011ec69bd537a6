//! Two processes that watch each other, so that whichever is killed the other leaves nothing behind.
//!
//! ```text
//!   viaduct launch ── guard: takes the user's signals, adopts orphans, waits
//!     └─ worker: starts the ranks, moves their output        gets signals through a pipe; its end is the guard's end
//!         ├─ rank 0   (killed by the kernel when the worker dies; heads its process group)
//!         └─ rank 1
//! ```
//!
//! The guard is killed: the pipe ends, and the worker kills everything below it. The worker is killed: the ranks die
//! with it, what they had started falls to the guard, which kills that. Agents guard the workers of their jobs alike.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use viaduct_os::children::{self, Exit, Forked, Reaped};
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::signals::{SignalFd, number};

use crate::error::Error;

/// The signals that are handed on.
pub const HANDED_ON: [i32; 7] =
    [number::INT, number::TERM, number::HUP, number::QUIT, number::USR1, number::USR2, number::TSTP];

/// The worker's end of the pipe from its guard.
#[derive(Debug)]
pub struct Leash {
    pipe: PipeReader,
}

impl Leash {
    /// What came: signals. `None` if the guard is gone.
    pub fn read(&mut self) -> Option<Vec<i32>> {
        let mut bytes = [0; 64];
        match self.pipe.read(&mut bytes) {
            Ok(0) => None,
            Ok(n) => Some(bytes[..n].iter().map(|&b| i32::from(b)).collect()),
            Err(_) => Some(Vec::new()),
        }
    }
}

impl AsFd for Leash {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Runs `work` in a worker under a guard; gives, in the guard, the status that `work` gave. Does not return in the
/// worker.
///
/// # Errors
/// If there is no second process to be had.
pub fn guarded(work: impl FnOnce(Leash) -> u8) -> Result<u8, Error> {
    let failed =
        |why: viaduct_os::error::OsError| Error::system("starting the launcher's second process", why);
    let (reader, writer) = std::io::pipe().map_err(|e| Error::system("a pipe", e))?;
    children::adopt_orphans().map_err(failed)?;
    // Before the fork: none may slip through between.
    let watched: Vec<i32> = HANDED_ON.into_iter().chain([number::CHLD, number::CONT]).collect();
    let signals = SignalFd::block(&watched).map_err(failed)?;
    match children::fork_worker().map_err(failed)? {
        Forked::Worker => {
            drop((writer, signals));
            children::set_nonblocking(reader.as_fd()).map_err(failed)?;
            children::adopt_orphans().map_err(failed)?;
            // std's exit, so that what was written is flushed.
            std::process::exit(i32::from(work(Leash { pipe: reader })))
        }
        Forked::Parent(pid) => {
            drop(reader);
            Ok(watch(pid, writer, &signals))
        }
    }
}

fn watch(worker: i32, mut pipe: PipeWriter, signals: &SignalFd) -> u8 {
    let epoll = Epoll::new().and_then(|epoll| epoll.add(signals, 0, Interest::Read).map(|()| epoll));
    let mut status = None;
    loop {
        while let Some(signal) = signals.take() {
            match signal {
                number::CHLD => {}
                number::TSTP => {
                    hand_on(&mut pipe, signal);
                    children::signal(std::process::id() as i32, number::STOP);
                }
                signal => hand_on(&mut pipe, signal),
            }
        }
        loop {
            match children::reap() {
                Reaped::Ended(pid, exit) if pid == worker => status = Some(code(exit)),
                Reaped::Ended(..) => {}
                Reaped::Living if status.is_some() => {
                    children::kill_descendants();
                    break;
                }
                Reaped::Living => break,
                Reaped::Childless => return status.unwrap_or(1),
            }
        }
        match &epoll {
            // A look now and then costs nothing, and no signal can be missed.
            Ok(epoll) => drop(epoll.wait(&mut Vec::new(), Some(std::time::Duration::from_secs(1)))),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

fn hand_on(pipe: &mut PipeWriter, signal: i32) {
    // A worker that is gone needs no signal.
    let _ = pipe.write_all(&[signal as u8]);
}

fn code(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => (code & 0xff) as u8,
        Exit::Signal(signal) => (128 + signal).clamp(0, 255) as u8,
    }
}
