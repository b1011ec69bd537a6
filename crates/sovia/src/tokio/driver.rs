//! The driver: one task that sleeps on the library's descriptor for all streams of a runtime.
//!
//! A stream that finds nothing leaves its waker at its socket, makes sure that the descriptor is armed, and looks once more.
//! What comes later makes the descriptor readable, whereupon the driver takes it in; the engine wakes the tasks that wait at
//! the sockets concerned, and no others. While some wait the driver keeps the descriptor armed.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::task::JoinHandle;
use viaduct_os::wait::Looks;

use crate::library::{Shared, Sovia};
use crate::socket::Direction;
use crate::table::SocketId;
use crate::watch::StreamWatch;

/// Where a task waits: one direction of a stream.
pub(super) struct WaitPlace {
    at: (SocketId, Direction),
    waiting: Mutex<Waiting>,
}

struct Waiting {
    /// A waker was left at the socket, and may still be there.
    left: bool,
    looks: Looks,
}

impl WaitPlace {
    pub(super) fn new(id: SocketId, direction: Direction, looks: Looks) -> WaitPlace {
        WaitPlace { at: (id, direction), waiting: Mutex::new(Waiting { left: false, looks }) }
    }
}

pub(super) struct Driver {
    sovia: Sovia,
    /// There while the descriptor is armed. Taken before the turn on the engine.
    watch: Mutex<Option<StreamWatch>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Driver {
    pub(super) fn start(sovia: &Sovia) -> io::Result<Arc<Driver>> {
        // A copy of its own, which is open as long as the runtime knows it.
        let fd = sovia.watch()?.as_fd().try_clone_to_owned()?;
        // Deprecated for objects that could change their descriptor; this one cannot, and its successor is `unsafe`.
        #[allow(deprecated)]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        let driver =
            Arc::new(Driver { sovia: sovia.clone(), watch: Mutex::default(), task: Mutex::default() });
        let task = ::tokio::spawn(drive(fd, Arc::downgrade(&driver)));
        *lock(&driver.task) = Some(task);
        Ok(driver)
    }

    /// Looks with the spin budget of the library.
    pub(super) fn looks(&self) -> Looks {
        self.sovia.looks()
    }

    /// Tries; the task is polled again soon, or woken, if there is nothing.
    #[inline]
    pub(super) fn poll<T>(
        &self,
        place: &WaitPlace,
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
            let (id, direction) = place.at;
            self.shared().with(|engine| engine.leave_waker(id, direction, cx.waker()));
            waiting.left = true;
            self.shared().driver.count_waits(waiting.looks.take_waits());
            self.arm()?;
            found = attempt();
        }
        let Some(found) = found else { return Poll::Pending };
        waiting.looks.found();
        self.shared().driver.count_waits(waiting.looks.take_waits());
        if std::mem::take(&mut waiting.left) {
            // Other tasks that wait here look for themselves.
            let others = |waker: &Waker| !waker.will_wake(cx.waker());
            self.take_wakers(place).0.into_iter().filter(others).for_each(Waker::wake);
        }
        Poll::Ready(Ok(found))
    }

    /// Something was sent whose answer may be near. Many leave their waker before they send and do not look again by
    /// themselves: such a one is woken to do so.
    pub(super) fn expect(&self, place: &WaitPlace) {
        let mut waiting = lock(&place.waiting);
        if !waiting.left {
            return waiting.looks.restart();
        }
        if !waiting.looks.search() {
            return;
        }
        waiting.left = false;
        drop(waiting);
        // While this stream looks again and again no peer has to ring, unless other streams sleep: a stream that goes to
        // sleep leaves its waker before it arms.
        let mut watch = lock(&self.watch);
        let (wakers, others) = self.take_wakers(place);
        if others == 0 {
            *watch = None;
        }
        drop(watch);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes the wakers away from a socket. How many wait at all sockets comes with them.
    fn take_wakers(&self, place: &WaitPlace) -> (Vec<Waker>, usize) {
        let (id, direction) = place.at;
        self.shared().with(|engine| (engine.take_waiting(id, direction), engine.waiting))
    }

    /// From now on the driver hears of what comes.
    fn arm(&self) -> io::Result<()> {
        let mut watch = lock(&self.watch);
        if watch.is_none() {
            *watch = Some(self.sovia.watch()?);
        }
        Ok(())
    }

    /// The descriptor was readable.
    fn wake(&self) {
        let mut watch = lock(&self.watch);
        let waiting = self.shared().with(|engine| {
            while engine.handle() {}
            engine.waiting
        });
        // A stream that finds nothing from now on arms again, if none waits.
        let armed = waiting > 0 && watch.as_ref().is_some_and(|watch| watch.again().is_ok());
        if !armed {
            *watch = None;
        }
    }

    fn shared(&self) -> &Shared {
        &self.sovia.owner().shared
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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
