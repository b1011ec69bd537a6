//! The driver: one task that sleeps on the library's descriptor for all streams of a runtime, and their wakers.
//!
//! A stream that finds nothing leaves its waker, makes sure that the descriptor is armed, and looks once more; what comes
//! later makes the descriptor readable, whereupon the driver takes it in and wakes all streams that wait. It does not know
//! what they wait for: each looks for itself.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::task::JoinHandle;
use viaduct_os::wait::Looks;

use crate::library::Sovia;
use crate::watch::Watch;

/// Where a task that waits leaves its waker: one direction of a stream.
pub(super) struct Place {
    waiting: Mutex<Waiting>,
    /// How many places have a waker.
    asleep: Arc<AtomicUsize>,
}

impl Place {
    /// Takes the waker out.
    fn take(&self, waiting: &mut Waiting) -> Option<Waker> {
        let waker = waiting.waker.take();
        if waker.is_some() {
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        waker
    }

    /// Leaves a waker.
    fn leave(&self, waiting: &mut Waiting, waker: &Waker) {
        match &mut waiting.waker {
            Some(old) => old.clone_from(waker),
            none => {
                *none = Some(waker.clone());
                self.asleep.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = self.waiting.get_mut().is_ok_and(|waiting| waiting.waker.is_some());
        self.asleep.fetch_sub(usize::from(left), Ordering::SeqCst);
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
    asleep: Arc<AtomicUsize>,
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
        let driver = Arc::new(Driver {
            sovia: sovia.clone(),
            state: Mutex::default(),
            asleep: Arc::default(),
            task: Mutex::default(),
        });
        let task = ::tokio::spawn(drive(fd, Arc::downgrade(&driver)));
        *lock(&driver.task) = Some(task);
        Ok(driver)
    }

    /// A new place to wait at.
    pub(super) fn place(&self) -> Arc<Place> {
        let place = Arc::new(Place { waiting: Mutex::default(), asleep: self.asleep.clone() });
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
        let mut waiting = lock(&place.waiting);
        if found.is_none() {
            if waiting.looks.again() {
                come_back(cx);
                return Poll::Pending;
            }
            place.leave(&mut waiting, cx.waker());
            self.arm()?;
            found = attempt();
        }
        match found {
            Some(found) => {
                waiting.looks.found();
                place.take(&mut waiting);
                Poll::Ready(Ok(found))
            }
            None => Poll::Pending,
        }
    }

    /// Something was sent whose answer may be near. Many leave their waker before they send and do not look again by
    /// themselves: such a one is woken to do so.
    pub(super) fn expect(&self, place: &Place) {
        let mut waiting = lock(&place.waiting);
        if waiting.waker.is_none() {
            return waiting.looks.restart();
        }
        if !waiting.looks.search() {
            return;
        }
        let waker = place.take(&mut waiting);
        drop(waiting);
        {
            // While this stream looks again and again no peer has to ring, unless other streams sleep: a stream that goes to
            // sleep counts itself before it arms.
            let mut state = lock(&self.state);
            if self.asleep.load(Ordering::SeqCst) == 0 {
                state.watch = None;
            }
        }
        if let Some(waker) = waker {
            waker.wake();
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
            // A stream that finds nothing from now on arms again.
            state.watch = None;
            state.places.clone()
        };
        self.sovia.progress();
        for place in places.iter().filter_map(Weak::upgrade) {
            let waker = place.take(&mut lock(&place.waiting));
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

/// Has this task polled again after all the others. One that wakes itself would keep the future waiting that the runtime was
/// entered with: on one thread that has its turn when no task is ready, or after many of them.
fn come_back(cx: &mut Context<'_>) {
    if pin!(::tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use ::tokio::runtime::Builder;
    use ::tokio::task::yield_now;

    use super::*;

    #[test]
    fn a_stream_that_looks_again_lets_the_first_future_have_its_turn() {
        const TURNS: usize = 10;
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        Builder::new_current_thread().build().unwrap().block_on(async {
            ::tokio::spawn(poll_fn(move |cx| {
                counted.fetch_add(1, Ordering::Relaxed);
                come_back(cx);
                Poll::<()>::Pending
            }));
            for _ in 0..TURNS {
                ::tokio::spawn(yield_now()).await.unwrap();
            }
        });
        let polls = polls.load(Ordering::Relaxed);
        assert!((TURNS..4 * TURNS).contains(&polls), "{polls} polls in {TURNS} turns");
    }
}
