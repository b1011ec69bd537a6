//! The driver: one task that sleeps on the library's descriptor for all streams of a runtime, and their wakers.
//!
//! Who finds nothing leaves its waker, makes sure that the descriptor is armed, and looks once more; what comes later makes
//! the descriptor readable, whereupon the driver takes it in and wakes who may be concerned. It knows of streams only that
//! they wait: whether there is something for them they find out by themselves.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::task::JoinHandle;
use viaduct_os::wait::Looks;

use crate::library::Sovia;
use crate::watch::Watch;

/// Where one who waits leaves its waker: one direction of a stream, or a listener.
pub(super) struct Place(Mutex<Waiting>);

impl Place {
    /// An answer may be near: worth looking for.
    pub(super) fn expect(&self) {
        lock(&self.0).looks.restart();
    }
}

#[derive(Default)]
struct Waiting {
    waker: Option<Waker>,
    looks: Looks,
}

pub(super) struct Driver {
    sovia: Sovia,
    state: Mutex<State>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// There while the descriptor is armed.
    watch: Option<Watch>,
    places: Vec<Weak<Place>>,
}

impl Driver {
    pub(super) fn start(sovia: &Sovia) -> io::Result<Arc<Driver>> {
        // A copy of its own, which is open as long as the runtime knows it.
        let fd = sovia.watch()?.as_fd().try_clone_to_owned()?;
        // Deprecated for objects that could change their descriptor; this one cannot, and its successor is `unsafe`.
        #[allow(deprecated)]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        let driver =
            Arc::new(Driver { sovia: sovia.clone(), state: Mutex::default(), task: Mutex::default() });
        let task = ::tokio::spawn(drive(fd, Arc::downgrade(&driver)));
        *lock(&driver.task) = Some(task);
        Ok(driver)
    }

    /// A new place to wait at.
    pub(super) fn place(&self) -> Arc<Place> {
        let place = Arc::new(Place(Mutex::default()));
        let mut state = lock(&self.state);
        // Those that are gone make room when the list would have to grow.
        if state.places.len() == state.places.capacity() {
            state.places.retain(|place| place.strong_count() > 0);
        }
        state.places.push(Arc::downgrade(&place));
        place
    }

    /// Tries; the task is polled again soon, or woken, if there is nothing.
    #[inline]
    pub(super) fn poll<T>(
        &self,
        place: &Place,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Poll<io::Result<T>> {
        let mut found = attempt();
        let mut waiting = lock(&place.0);
        if found.is_none() {
            if waiting.looks.again() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match &mut waiting.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            self.arm()?;
            found = attempt();
        }
        match found {
            Some(found) => {
                waiting.looks.found();
                waiting.waker = None;
                Poll::Ready(Ok(found))
            }
            None => Poll::Pending,
        }
    }

    /// From now on the driver hears of what comes.
    fn arm(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.watch.is_none() {
            state.watch = Some(self.sovia.watch()?);
        }
        Ok(())
    }

    /// The descriptor was readable.
    fn wake(&self) {
        let places = {
            let mut state = lock(&self.state);
            // Whoever finds nothing from now on arms again.
            state.watch = None;
            state.places.clone()
        };
        self.sovia.progress();
        for place in places.iter().filter_map(Weak::upgrade) {
            let waker = lock(&place.0).waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

async fn drive(fd: AsyncFd<OwnedFd>, driver: Weak<Driver>) {
    while let Ok(mut readable) = fd.readable().await {
        readable.clear_ready();
        let Some(driver) = driver.upgrade() else { return };
        driver.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
