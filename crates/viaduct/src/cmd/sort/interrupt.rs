//! A signal asks the sort to end, so that nothing is left behind; if it waits for something that does not come, it is ended.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::signals::{SignalFd, number};
use viaduct_sort::Progress;

/// How long the sort has to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// Which signal has come.
#[derive(Clone)]
pub(super) struct Interrupt(Arc<AtomicI32>);

impl Interrupt {
    /// Whether one has come.
    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// The status of a program that a signal ended.
    pub(super) fn code(&self) -> ExitCode {
        ExitCode::from(128 + self.0.load(Ordering::Acquire) as u8)
    }
}

/// Watches for signals while something else than a sort writes a file: the first one ends the process at once, without what the
/// file is called until it is complete. To be called before there is any other thread.
pub(super) fn watch_output() -> Result<()> {
    start(&Arc::default(), Duration::ZERO).map(drop)
}

/// Watches for signals from a thread of its own. To be called before there is any other thread.
pub(super) fn watch(progress: &Arc<Progress>) -> Result<Interrupt> {
    start(progress, GRACE)
}

fn start(progress: &Arc<Progress>, grace: Duration) -> Result<Interrupt> {
    let signals = SignalFd::block(&[number::INT, number::TERM, number::HUP])?;
    let epoll = Epoll::new()?;
    epoll.add(&signals, 0, Interest::Read)?;
    let (came, progress) = (Arc::new(AtomicI32::new(0)), progress.clone());
    let interrupt = Interrupt(came.clone());
    std::thread::Builder::new().name("sort-signals".to_owned()).spawn(move || {
        let mut events = Vec::new();
        let signal = loop {
            if epoll.wait(&mut events, None).is_err() {
                return;
            }
            if let Some(signal) = signals.take() {
                break signal;
            }
        };
        came.store(signal, Ordering::Release);
        progress.stop();
        let end = Instant::now() + grace;
        while Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            let _ = epoll.wait(&mut events, Some(left));
            // A second one is meant.
            if signals.take().is_some() {
                break;
            }
        }
        viaduct_sort::abandon_outputs();
        std::process::exit(128 + signal);
    })?;
    Ok(interrupt)
}
