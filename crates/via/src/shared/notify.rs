//! Notify handlers, error handlers and the wakers of futures, on the service thread of a shared NIC.
//!
//! VIA's notify functions and its error callback run on a thread of the provider's; here that is the driver's service
//! thread. Handlers run without the NIC, so they may post and arm themselves again. A call that removes a handler returns
//! when the handler is not running, and it is not called afterwards.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use smallvec::SmallVec;

use super::SharedNic;
use crate::accepting::ConnRequest;
use crate::attributes::RemoteAttributes;
use crate::completion::{Completion, Ended};
use crate::error::Error;
use crate::event::ErrorEvent;
use crate::handle::{self, Cq, Vi};
use crate::nic::Nic;
use crate::vi::{Queue, ViState};

/// A handler of one completion, whose outcome it has to look at.
pub type NotifyHandler<T = ()> = Box<dyn FnOnce(&SharedNic<T>, Ended) + Send>;

/// A handler of one entry of a completion queue; the completion stays to be taken.
pub type EntryHandler<T = ()> = Box<dyn FnOnce(&SharedNic<T>, Vi, Queue) + Send>;

/// A handler of asynchronous errors.
pub type SharedErrorHandler<T = ()> = Arc<dyn Fn(&SharedNic<T>, &ErrorEvent) + Send + Sync>;

/// The handlers of a NIC.
pub(super) struct Handlers<T: Send + 'static> {
    armed: Mutex<Armed<T>>,
    /// Signalled when a handler has returned.
    returned: Condvar,
}

struct Armed<T: Send + 'static> {
    list: VecDeque<(Source, Listener<T>)>,
    on_error: Option<SharedErrorHandler<T>>,
    /// The handler that runs now, on this thread.
    running: Option<(Running, ThreadId)>,
}

/// A handler that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Running {
    Notify(Source),
    Error,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Queue(Vi, Queue),
    Cq(Cq),
    Requests(handle::Listener),
    Connection(Vi),
}

enum Listener<T: Send + 'static> {
    Handler(NotifyHandler<T>),
    Entry(EntryHandler<T>),
    Waker(Waker),
}

/// What a listener is told.
enum Told {
    Completion(Completion),
    Entry(Vi, Queue),
    /// That there is something, or that nothing can come any more.
    Nothing,
}

impl<T: Send + 'static> Default for Handlers<T> {
    fn default() -> Handlers<T> {
        let armed = Armed { list: VecDeque::new(), on_error: None, running: None };
        Handlers { armed: Mutex::new(armed), returned: Condvar::new() }
    }
}

impl<T: Send + 'static> Handlers<T> {
    /// Drops all of them: none is called any more, but for one that runs.
    pub(super) fn clear(&self) {
        let (list, on_error) = {
            let mut armed = self.lock();
            (std::mem::take(&mut armed.list), armed.on_error.take())
        };
        // Not under the lock: what handlers hold may be anything.
        drop((list, on_error));
    }

    fn lock(&self) -> MutexGuard<'_, Armed<T>> {
        self.armed.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until the handler that runs is none of these.
    fn await_return(&self, mut armed: MutexGuard<'_, Armed<T>>, which: impl Fn(Running) -> bool) {
        let me = thread::current().id();
        while armed.running.is_some_and(|(running, thread)| thread != me && which(running)) {
            armed = self.returned.wait(armed).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Drops those of some sources, and waits for one that runs.
    fn cancel(&self, which: impl Fn(&Source) -> bool) {
        let mut armed = self.lock();
        armed.list.retain(|(source, _)| !which(source));
        self.await_return(armed, |running| matches!(running, Running::Notify(source) if which(&source)));
    }
}

impl<T: Send + 'static> SharedNic<T> {
    /// Runs `handler` once, on the service thread, with the next completion of a queue. Several may be armed; they
    /// fire in order.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Os`] if the service thread cannot be started.
    pub fn notify(&self, vi: Vi, queue: Queue, handler: NotifyHandler<T>) -> Result<(), Error> {
        self.hold()?.nic.check_unbound(vi, queue)?;
        self.arm(Source::Queue(vi, queue), Listener::Handler(handler))
    }

    /// Runs `handler` once with the next completion of a completion queue.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Os`] if the service thread cannot be started.
    pub fn notify_cq(&self, cq: Cq, handler: NotifyHandler<T>) -> Result<(), Error> {
        self.hold()?.nic.cq_ready(cq)?;
        self.arm(Source::Cq(cq), Listener::Handler(handler))
    }

    /// Runs `handler` once with the next entry of a completion queue, as VIA has it: the completion is then taken with
    /// [`poll_send`](Nic::poll_send) or [`poll_recv`](Nic::poll_recv), which succeed at once.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Os`] if the service thread cannot be started.
    pub fn notify_cq_entry(&self, cq: Cq, handler: EntryHandler<T>) -> Result<(), Error> {
        self.hold()?.nic.cq_ready(cq)?;
        self.arm(Source::Cq(cq), Listener::Entry(handler))
    }

    /// Drops the handlers armed for a VI that is about to be destroyed. None of them runs after this has returned, unless
    /// one of them made this call. The caller holds nothing that a handler may wait for.
    pub fn cancel_notify(&self, vi: Vi) {
        self.handlers.cancel(|source| matches!(source, Source::Queue(v, _) if *v == vi));
    }

    /// Drops the handlers armed for a completion queue, as [`cancel_notify`](Self::cancel_notify) does those of a VI.
    pub fn cancel_notify_cq(&self, cq: Cq) {
        self.handlers.cancel(|source| *source == Source::Cq(cq));
    }

    /// Runs `handler` on the service thread for every asynchronous error. The handler before it is not called after this
    /// has returned, unless it made this call. The caller holds nothing that a handler may wait for.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Os`] if the service thread cannot be started.
    pub fn on_error(&self, handler: Option<SharedErrorHandler<T>>) -> Result<(), Error> {
        let wanted = handler.is_some();
        let mut armed = self.handlers.lock();
        let before = std::mem::replace(&mut armed.on_error, handler);
        self.handlers.await_return(armed, |running| running == Running::Error);
        drop(before);
        self.hold()?.tells_errors = wanted;
        if wanted {
            self.driver.start()?;
            // For errors that were met before.
            self.driver.poke();
        }
        Ok(())
    }

    /// The next completion of a queue, as a future for any executor.
    ///
    /// It may be dropped before it is ready: a completion is taken by the poll that gives it and by no other, so none is
    /// lost (cancel safe).
    pub fn next(&self, vi: Vi, queue: Queue) -> Next<T> {
        Next { nic: self.clone(), source: Source::Queue(vi, queue) }
    }

    /// The next completion of a completion queue, as a future for any executor; cancel safe as [`next`](Self::next).
    pub fn next_cq(&self, cq: Cq) -> Next<T> {
        Next { nic: self.clone(), source: Source::Cq(cq) }
    }

    /// The next connection request at a listener, as a future for any executor; cancel safe as [`next`](Self::next).
    /// [`Nic::accept`] answers it, which does not wait.
    pub fn next_request(&self, listener: handle::Listener) -> NextRequest<T> {
        NextRequest { nic: self.clone(), listener }
    }

    /// The outcome of a connection request that was [started](crate::Connect::start), as a future for any executor. The
    /// request's own time limit holds. Dropping the future does not take the request back: it goes on, and another future, or
    /// [`connect_finish`](Self::connect_finish), gives the outcome.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn f(nic: &viaduct_via::SharedNic, vi: viaduct_via::Vi) -> Result<(), viaduct_via::Error> {
    /// nic.lock().connect(vi, &"kv".parse()?).timeout(Duration::from_secs(3)).start()?;
    /// let peer = nic.connected(vi).await?;
    /// # let _ = peer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connected(&self, vi: Vi) -> Connected<T> {
        Connected { nic: self.clone(), vi }
    }

    /// Has `task` woken once the source is ready, unless it is going to be already.
    fn arm_task(&self, source: Source, task: &Waker) -> Result<(), Error> {
        let ours = |l: &Listener<T>| matches!(l, Listener::Waker(w) if w.will_wake(task));
        if self.handlers.lock().list.iter().any(|(s, l)| *s == source && ours(l)) {
            return Ok(());
        }
        self.arm(source, Listener::Waker(task.clone()))
    }

    /// When the first of the connection requests that a task waits for is given up.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let vis: SmallVec<[Vi; 4]> =
            self.handlers.lock().list.iter().filter_map(|(s, _)| s.connecting()).collect();
        if vis.is_empty() {
            return None;
        }
        let earliest = |nic: &Nic| vis.iter().filter_map(|vi| nic.connect_deadline(*vi).ok().flatten()).min();
        self.driver.own_turn(|sharing| earliest(&sharing.nic)).flatten()
    }

    fn arm(&self, source: Source, listener: Listener<T>) -> Result<(), Error> {
        self.handlers.lock().list.push_back((source, listener));
        self.driver.start()?;
        self.driver.poke();
        Ok(())
    }

    /// Fires what is ready. Returns true if handlers are still armed.
    pub(super) fn fire(&self) -> bool {
        loop {
            self.fire_errors();
            let Some((listener, told)) = self.take_ready() else { break };
            let _runs = Runs(self);
            match (listener, told) {
                (Listener::Handler(handler), Told::Completion(completion)) => {
                    handler(self, Ended(completion))
                }
                (Listener::Entry(handler), Told::Entry(vi, queue)) => handler(self, vi, queue),
                (Listener::Waker(waker), _) => waker.wake(),
                // The object is gone, or another thread was quicker and the handler was armed again.
                (Listener::Handler(_) | Listener::Entry(_), _) => {}
            }
        }
        // The last look may have met errors of its own.
        self.fire_errors();
        !self.handlers.lock().list.is_empty()
    }

    /// The first armed listener whose source is ready; for handlers with what they are told.
    fn take_ready(&self) -> Option<(Listener<T>, Told)> {
        self.driver.own_turn(|sharing| self.handlers.lock().take_ready(&mut sharing.nic)).flatten()
    }

    fn fire_errors(&self) {
        let Some(handler) = self.handlers.lock().on_error.clone() else { return };
        let events = self.driver.own_turn(|sharing| {
            let nic = &mut sharing.nic;
            let connected: Vec<Vi> = nic
                .vis
                .handles()
                .filter(|h| nic.vis.get(*h).is_some_and(|c| c.state == ViState::Connected))
                .map(Vi)
                .collect();
            for vi in connected {
                nic.progress_vi(vi);
            }
            std::iter::from_fn(|| nic.take_error()).collect::<Vec<_>>()
        });
        for event in events.iter().flatten() {
            {
                let mut armed = self.handlers.lock();
                // Another handler was set meanwhile, which has to be asked for anew, or none.
                if !armed.on_error.as_ref().is_some_and(|now| Arc::ptr_eq(now, &handler)) {
                    return;
                }
                armed.running = Some((Running::Error, thread::current().id()));
            }
            let _runs = Runs(self);
            handler(self, event);
        }
    }
}

impl<T: Send + 'static> Armed<T> {
    /// Takes the first listener whose source is ready, which counts as running from now on.
    fn take_ready(&mut self, nic: &mut Nic) -> Option<(Listener<T>, Told)> {
        // What was not ready a moment ago may be now; asking again would favour a listener armed later.
        let mut idle: SmallVec<[Source; 8]> = SmallVec::new();
        for i in 0..self.list.len() {
            let source = self.list[i].0;
            if idle.contains(&source) {
                continue;
            }
            let ready = match source {
                Source::Queue(vi, queue) => nic.queue_ready(vi, queue),
                Source::Cq(cq) => nic.cq_ready(cq),
                Source::Requests(listener) => nic.listener_ready(listener),
                Source::Connection(vi) => nic.connect_ready(vi),
            };
            match ready {
                Ok(false) => {
                    idle.push(source);
                    continue;
                }
                // A destroyed object cancels its handlers; a future finds the error out by itself.
                Err(_) => return self.list.remove(i).map(|(_, l)| (l, Told::Nothing)),
                Ok(true) => {}
            }
            let (_, listener) = self.list.remove(i)?;
            let told = match (&listener, source) {
                (Listener::Waker(_), _) => Some(Told::Nothing),
                (Listener::Entry(_), Source::Cq(cq)) => {
                    nic.poll_cq_entry(cq).ok().flatten().map(|(vi, queue)| Told::Entry(vi, queue))
                }
                _ => poll_source(nic, source).ok().flatten().map(Told::Completion),
            };
            match told {
                Some(told) => {
                    self.running = Some((Running::Notify(source), thread::current().id()));
                    return Some((listener, told));
                }
                None => {
                    self.list.insert(i, (source, listener));
                    idle.push(source);
                }
            }
        }
        None
    }
}

/// A handler runs, until this is dropped.
struct Runs<'a, T: Send + 'static>(&'a SharedNic<T>);

impl<T: Send + 'static> Drop for Runs<'_, T> {
    fn drop(&mut self) {
        self.0.handlers.lock().running = None;
        self.0.handlers.returned.notify_all();
    }
}

/// Takes the next completion of a source.
fn poll_source(nic: &mut Nic, source: Source) -> Result<Option<Completion>, Error> {
    match source {
        Source::Queue(vi, Queue::Send) => nic.poll_send(vi),
        Source::Queue(vi, Queue::Receive) => nic.poll_recv(vi),
        Source::Cq(cq) => nic.poll_cq(cq),
        // Only tasks wait for these, and fetch what is there themselves.
        Source::Requests(_) | Source::Connection(_) => Ok(None),
    }
}

impl Source {
    /// The VI whose connection request is waited for.
    fn connecting(&self) -> Option<Vi> {
        if let Source::Connection(vi) = self { Some(*vi) } else { None }
    }
}

/// A completion to come.
#[must_use = "futures do nothing unless polled"]
pub struct Next<T: Send + 'static = ()> {
    nic: SharedNic<T>,
    source: Source,
}

impl<T: Send + 'static> fmt::Debug for Next<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Future for Next<T> {
    type Output = Result<Ended, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let source = self.source;
        let found = self.nic.hold().and_then(|mut held| {
            if let Source::Queue(vi, queue) = source {
                held.nic.check_unbound(vi, queue)?;
            }
            poll_source(&mut held.nic, source)
        });
        match found {
            Ok(Some(completion)) => return Poll::Ready(Ok(Ended(completion))),
            Err(e) => return Poll::Ready(Err(e)),
            Ok(None) => {}
        }
        armed(self.nic.arm_task(source, cx.waker()))
    }
}

/// A connection request to come.
#[must_use = "futures do nothing unless polled"]
pub struct NextRequest<T: Send + 'static = ()> {
    nic: SharedNic<T>,
    listener: handle::Listener,
}

impl<T: Send + 'static> fmt::Debug for NextRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextRequest").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Future for NextRequest<T> {
    type Output = Result<ConnRequest, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.nic.hold().and_then(|mut held| held.nic.poll_listener(self.listener)).transpose() {
            Some(found) => Poll::Ready(found),
            None => armed(self.nic.arm_task(Source::Requests(self.listener), cx.waker())),
        }
    }
}

/// The outcome of a connection request to come.
#[must_use = "futures do nothing unless polled"]
pub struct Connected<T: Send + 'static = ()> {
    nic: SharedNic<T>,
    vi: Vi,
}

impl<T: Send + 'static> fmt::Debug for Connected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Future for Connected<T> {
    type Output = Result<RemoteAttributes, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.nic.hold().and_then(|mut held| held.nic.connect_poll(self.vi)).transpose() {
            Some(found) => Poll::Ready(found),
            None => armed(self.nic.arm_task(Source::Connection(self.vi), cx.waker())),
        }
    }
}

/// What a future answers after its task was armed.
fn armed<R>(armed: Result<(), Error>) -> Poll<Result<R, Error>> {
    match armed {
        Ok(()) => Poll::Pending,
        Err(e) => Poll::Ready(Err(e)),
    }
}
