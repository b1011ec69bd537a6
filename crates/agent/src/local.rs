//! An agent for this host alone: no network, no workers, what it does is done in its own loop.
//!
//! A [`Resident`] has a local socket of its own, over which descriptors come and go, so it cannot be done in a forked
//! worker that talks over a link. Root may run one: processes of its own user are all that it serves.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::signals::{SignalFd, number};

use crate::error::Error;

const SIGNALS: u64 = 0;

/// Something that an agent does in its own loop, for processes of its own user on this host.
pub trait Resident {
    /// Becomes readable when there is something to do.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Does what there is to do, without waiting. Called now and then even if nothing came.
    fn turn(&mut self);

    /// Whether the agent has to stay for it.
    fn is_busy(&self) -> bool;
}

/// Serves until no one has needed it for `idle`, or a signal asks it to leave.
///
/// # Errors
/// The kernel's, at the start.
pub fn serve(residents: &mut [&mut dyn Resident], idle: Duration) -> Result<(), Error> {
    let failed = |why: &dyn ToString| Error::system("starting the agent", why.to_string());
    let signals =
        SignalFd::block(&[number::TERM, number::INT, number::HUP]).map_err(|error| failed(&error))?;
    let epoll = Epoll::new().map_err(|error| failed(&error))?;
    epoll.add(&signals, SIGNALS, Interest::Read).map_err(|error| failed(&error))?;
    for (place, resident) in residents.iter().enumerate() {
        epoll
            .add(resident.descriptor(), SIGNALS + 1 + place as u64, Interest::Read)
            .map_err(|error| failed(&error))?;
    }
    let mut used = Instant::now();
    let mut ready = Vec::new();
    while used.elapsed() < idle {
        epoll
            .wait(&mut ready, Some(idle.min(Duration::from_secs(1))))
            .map_err(|error| Error::system("waiting", error))?;
        if signals.take().is_some() {
            return Ok(());
        }
        residents.iter_mut().for_each(|resident| resident.turn());
        if residents.iter().any(|resident| resident.is_busy()) {
            used = Instant::now();
        }
    }
    Ok(())
}
