//! The service thread of a shared NIC: notify handlers, error handlers, the wakers of futures, and sends whose owner makes
//! no calls.
//!
//! VIA's notify functions and its error callback run on a thread of the provider's; here that is one thread per shared
//! NIC, started when first needed and asleep while there is nothing to do. Handlers run without the NIC, so they may
//! post and arm themselves again. A call that removes a handler returns when the handler is not running, and it is not
//! called afterwards.
//!
//! A send that the transport could not take at once moves on inside calls. Where no call is made for [`SILENCE`], the
//! thread moves it, woken by the bell as a waiting owner is; while calls are made it stays off the bell, because a sleeper
//! there makes every arriving message a system call of its sender.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use viaduct_os::wait::Sleep;

use super::{Inner, SharedNic};
use crate::error::Error;
use crate::event::ErrorEvent;
use crate::handle::{Cq, Vi};
use crate::nic::Nic;
use crate::poll::Completion;
use crate::sleepers::Sleepers;
use crate::vi::{Queue, ViState};

/// A handler of one completion.
pub type NotifyHandler = Box<dyn FnOnce(&SharedNic, Completion) + Send>;

/// A handler of one entry of a completion queue; the completion stays to be taken.
pub type EntryHandler = Box<dyn FnOnce(&SharedNic, Vi, Queue) + Send>;

/// A handler of asynchronous errors.
pub type SharedErrorHandler = Arc<dyn Fn(&SharedNic, &ErrorEvent) + Send + Sync>;

/// Time without a call after which the service thread moves the sends that are under way.
const SILENCE: Duration = Duration::from_millis(1);

/// Pauses in a row that end by themselves before handlers are looked after all the same: an unpark may have come just then.
const MOST_PAUSES: u32 = 16;

/// Longest time between two looks at sends that nothing moves.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Watch {
    armed: VecDeque<(Source, Listener)>,
    on_error: Option<SharedErrorHandler>,
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
}

enum Listener {
    Handler(NotifyHandler),
    Entry(EntryHandler),
    Waker(Waker),
}

/// What a listener is told.
enum Told {
    Completion(Completion),
    Entry(Vi, Queue),
    /// That there is something, or that nothing can come any more.
    Nothing,
}

impl SharedNic {
    /// Runs `handler` once, on the service thread, with the next completion of a queue. Several may be armed; they
    /// fire in order.
    pub fn notify(&self, vi: Vi, queue: Queue, handler: NotifyHandler) -> Result<(), Error> {
        self.hold()?.check_unbound(vi, queue)?;
        self.arm(Source::Queue(vi, queue), Listener::Handler(handler))
    }

    /// Runs `handler` once with the next completion of a completion queue.
    pub fn notify_cq(&self, cq: Cq, handler: NotifyHandler) -> Result<(), Error> {
        self.hold()?.cq_ready(cq)?;
        self.arm(Source::Cq(cq), Listener::Handler(handler))
    }

    /// Runs `handler` once with the next entry of a completion queue, as VIA has it: the completion is then taken with
    /// [`poll_send`](Nic::poll_send) or [`poll_recv`](Nic::poll_recv), which succeed at once.
    pub fn notify_cq_entry(&self, cq: Cq, handler: EntryHandler) -> Result<(), Error> {
        self.hold()?.cq_ready(cq)?;
        self.arm(Source::Cq(cq), Listener::Entry(handler))
    }

    /// Drops the handlers armed for a VI that is about to be destroyed. None of them runs after this has returned, unless
    /// one of them made this call. The caller holds nothing that a handler may wait for.
    pub fn cancel_notify(&self, vi: Vi) {
        self.cancel(|source| matches!(source, Source::Queue(v, _) if *v == vi));
    }

    /// Drops the handlers armed for a completion queue, as [`cancel_notify`](Self::cancel_notify) does those of a VI.
    pub fn cancel_notify_cq(&self, cq: Cq) {
        self.cancel(|source| *source == Source::Cq(cq));
    }

    fn cancel(&self, which: impl Fn(&Source) -> bool) {
        let mut watch = self.watch();
        watch.armed.retain(|(source, _)| !which(source));
        self.await_handler(watch, |running| matches!(running, Running::Notify(source) if which(&source)));
    }

    /// Runs `handler` on the service thread for every asynchronous error. The handler before it is not called after this
    /// has returned, unless it made this call. The caller holds nothing that a handler may wait for.
    pub fn on_error(&self, handler: Option<SharedErrorHandler>) -> Result<(), Error> {
        let wanted = handler.is_some();
        let mut watch = self.watch();
        watch.on_error = handler;
        self.await_handler(watch, |running| running == Running::Error);
        if wanted { self.start_service() } else { Ok(()) }
    }

    /// Waits until the handler that runs is none of these.
    fn await_handler(&self, mut watch: MutexGuard<'_, Watch>, which: impl Fn(Running) -> bool) {
        let me = thread::current().id();
        while watch.running.is_some_and(|(running, thread)| thread != me && which(running)) {
            watch = self.0.returned.wait(watch).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Leaves sends that are under way to the service thread, which moves them while no call does.
    #[inline(never)]
    pub(super) fn leave_sends_to_service(&self) {
        if !self.0.sends_left.swap(true, Ordering::SeqCst) {
            // Without a thread the sends move inside calls, as those of a plain NIC.
            if self.start_service().is_ok()
                && let Some(handle) = self.0.service.lock().unwrap_or_else(|e| e.into_inner()).as_ref()
            {
                handle.thread().unpark();
            }
        }
    }

    /// Moves sends that are under way. Returns whether some are left.
    fn move_sends(&self) -> bool {
        if !self.0.sends_left.load(Ordering::SeqCst) {
            return false;
        }
        let Ok(mut nic) = self.hold() else { return false };
        let moved = nic.move_sends();
        // In our turn: a send that is posted later raises the flag again.
        self.0.sends_left.store(moved.left, Ordering::SeqCst);
        drop(nic);
        if moved.something {
            // Also ourselves, for the next look.
            self.0.sleep.ring();
        }
        moved.left
    }

    /// The next completion of a queue, as a future for any executor.
    pub fn next(&self, vi: Vi, queue: Queue) -> Next {
        Next { nic: self.clone(), source: Source::Queue(vi, queue) }
    }

    /// The next completion of a completion queue, as a future for any executor.
    pub fn next_cq(&self, cq: Cq) -> Next {
        Next { nic: self.clone(), source: Source::Cq(cq) }
    }

    /// Has the handler of errors run on the service thread, if there is one.
    pub(super) fn tell_errors(&self) {
        if self.watch().on_error.is_some() {
            self.wake_service();
        }
    }

    /// Ends the service thread of a NIC that was closed: no handler is called any more.
    pub(super) fn end_service(&self) {
        let mut watch = self.watch();
        (watch.armed, watch.on_error) = (VecDeque::new(), None);
        drop(watch);
        let service = self.0.service.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(handle) = service {
            handle.thread().unpark();
            self.0.sleep.ring();
            // A handler may close the NIC, on the service thread itself.
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }

    fn arm(&self, source: Source, listener: Listener) -> Result<(), Error> {
        self.watch().armed.push_back((source, listener));
        self.start_service()?;
        self.wake_service();
        Ok(())
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.0.watch.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn start_service(&self) -> Result<(), Error> {
        let mut service = self.0.service.lock().unwrap_or_else(|e| e.into_inner());
        if service.is_none() {
            let nic = self.hold()?;
            let weak = Arc::downgrade(&self.0);
            let sleep = self.0.sleep.clone();
            let handle = thread::Builder::new()
                .name("viaduct-notify".into())
                .spawn(move || serve(&weak, &sleep))
                .map_err(|e| Error::Os(viaduct_os::error::OsError::sys("clone", e)))?;
            nic.unpark_at_news(Some(handle.thread().clone()));
            *service = Some(handle);
        }
        Ok(())
    }

    fn wake_service(&self) {
        if let Some(handle) = self.0.service.lock().unwrap_or_else(|e| e.into_inner()).as_ref() {
            handle.thread().unpark();
        }
        self.0.sleep.ring();
    }

    fn is_armed(&self) -> bool {
        !self.watch().armed.is_empty()
    }

    /// Fires what is ready. Returns whether handlers are still armed.
    fn fire(&self) -> bool {
        loop {
            self.fire_errors();
            let Some((listener, told)) = self.take_ready() else { break };
            let _runs = Runs(self);
            match (listener, told) {
                (Listener::Handler(handler), Told::Completion(completion)) => handler(self, completion),
                (Listener::Entry(handler), Told::Entry(vi, queue)) => handler(self, vi, queue),
                (Listener::Waker(waker), _) => waker.wake(),
                // The object is gone, or another thread was quicker and the handler was armed again.
                (Listener::Handler(_) | Listener::Entry(_), _) => {}
            }
        }
        // The last look may have met errors of its own.
        self.fire_errors();
        self.is_armed()
    }

    /// The first armed listener whose source is ready; for handlers with what they are told.
    fn take_ready(&self) -> Option<(Listener, Told)> {
        let mut nic = self.hold().ok()?;
        let mut watch = self.watch();
        // What was not ready a moment ago may be now; asking again would favour a listener armed later.
        let mut idle: SmallVec<[Source; 8]> = SmallVec::new();
        for i in 0..watch.armed.len() {
            let source = watch.armed[i].0;
            if idle.contains(&source) {
                continue;
            }
            let ready = match source {
                Source::Queue(vi, queue) => nic.queue_ready(vi, queue),
                Source::Cq(cq) => nic.cq_ready(cq),
            };
            match ready {
                Ok(false) => {
                    idle.push(source);
                    continue;
                }
                // A destroyed object cancels its handlers; a future finds the error out by itself.
                Err(_) => return watch.armed.remove(i).map(|(_, l)| (l, Told::Nothing)),
                Ok(true) => {}
            }
            let (_, listener) = watch.armed.remove(i)?;
            watch.running = Some((Running::Notify(source), thread::current().id()));
            let told = match (&listener, source) {
                (Listener::Waker(_), _) => Some(Told::Nothing),
                (Listener::Entry(_), Source::Cq(cq)) => {
                    nic.poll_cq_entry(cq).ok().flatten().map(|(vi, queue)| Told::Entry(vi, queue))
                }
                _ => poll_source(&mut nic, source).ok().flatten().map(Told::Completion),
            };
            match told {
                Some(told) => return Some((listener, told)),
                None => {
                    watch.running = None;
                    watch.armed.insert(i, (source, listener));
                    idle.push(source);
                }
            }
        }
        None
    }

    fn fire_errors(&self) {
        let Some(handler) = self.watch().on_error.clone() else { return };
        let mut events = Vec::new();
        {
            let Ok(mut nic) = self.hold() else { return };
            let connected: Vec<Vi> = nic
                .vis
                .handles()
                .filter(|h| nic.vis.get(*h).is_some_and(|c| c.state == ViState::Connected))
                .map(Vi)
                .collect();
            for vi in connected {
                nic.progress_vi(vi);
            }
            while let Some(event) = nic.take_error() {
                events.push(event);
            }
        }
        for event in &events {
            {
                let mut watch = self.watch();
                // Another handler was set meanwhile, which has to be asked for anew, or none.
                if !watch.on_error.as_ref().is_some_and(|now| Arc::ptr_eq(now, &handler)) {
                    return;
                }
                watch.running = Some((Running::Error, thread::current().id()));
            }
            let _runs = Runs(self);
            handler(self, event);
        }
    }
}

/// A handler runs, until this is dropped.
struct Runs<'a>(&'a SharedNic);

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.watch().running = None;
        self.0.0.returned.notify_all();
    }
}

/// Takes the next completion of a source.
fn poll_source(nic: &mut Nic, source: Source) -> Result<Option<Completion>, Error> {
    match source {
        Source::Queue(vi, Queue::Send) => nic.poll_send(vi),
        Source::Queue(vi, Queue::Receive) => nic.poll_recv(vi),
        Source::Cq(cq) => nic.poll_cq(cq),
    }
}

/// The service thread: fires what is ready, then sleeps on the bell while something is armed or sends are left to it, else
/// until unparked.
fn serve(nic: &Weak<Inner>, sleep: &Sleepers) {
    let (mut paused, mut pauses) = (false, 0u32);
    loop {
        let Some(inner) = nic.upgrade().filter(|inner| !inner.closing.load(Ordering::Acquire)) else {
            return;
        };
        let shared = SharedNic(inner);
        let left = shared.0.sends_left.load(Ordering::SeqCst);
        // While calls are made, sends move inside them.
        let called = left && shared.0.called.swap(false, Ordering::Relaxed);
        // The end of a pause is no reason to take the NIC from the thread that makes those calls.
        let only_paused = std::mem::take(&mut paused);
        pauses = if only_paused { pauses + 1 } else { 0 };
        let armed = match called && only_paused && pauses % MOST_PAUSES != 0 {
            true => shared.is_armed(),
            false => shared.fire(),
        };
        if !armed && (!left || called) {
            drop(shared);
            if nic.strong_count() == 0 {
                return;
            }
            if left {
                let begin = Instant::now();
                thread::park_timeout(SILENCE);
                paused = begin.elapsed() >= SILENCE;
            } else {
                thread::park();
            }
            continue;
        }
        let ticket = sleep.announce();
        let armed = shared.fire();
        let left = if called { left } else { shared.move_sends() };
        drop(shared);
        if (armed || left) && nic.strong_count() > 0 {
            let limit = if called { SILENCE } else { LOOK_AGAIN };
            sleep.park(ticket, left.then_some(limit));
        }
        sleep.cancel();
    }
}

/// A completion to come.
#[must_use = "futures do nothing unless polled"]
pub struct Next {
    nic: SharedNic,
    source: Source,
}

impl Future for Next {
    type Output = Result<Completion, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let source = self.source;
        let found = self.nic.hold().and_then(|mut nic| {
            if let Source::Queue(vi, queue) = source {
                nic.check_unbound(vi, queue)?;
            }
            poll_source(&mut nic, source)
        });
        match found {
            Ok(Some(completion)) => return Poll::Ready(Ok(completion)),
            Err(e) => return Poll::Ready(Err(e)),
            Ok(None) => {}
        }
        {
            let mut watch = self.nic.watch();
            let ours = |l: &Listener| matches!(l, Listener::Waker(w) if w.will_wake(cx.waker()));
            if watch.armed.iter().any(|(s, l)| *s == source && ours(l)) {
                return Poll::Pending;
            }
            watch.armed.push_back((source, Listener::Waker(cx.waker().clone())));
        }
        match self.nic.start_service() {
            Ok(()) => {
                self.nic.wake_service();
                Poll::Pending
            }
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}
