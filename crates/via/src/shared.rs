//! A NIC shared by threads: calls that lock it, waits that do not hold it, notify handlers and futures.
//!
//! VIA's notify functions and its error callback run on a thread of the provider's; here that is one service thread
//! per shared NIC, started when first needed and asleep while there is nothing to tell. Handlers run without the
//! lock, so they may post and arm themselves again.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use smallvec::SmallVec;
use viaduct_os::clock;
use viaduct_os::wait::{Sleep, WaitPolicy};

use crate::error::Error;
use crate::event::ErrorEvent;
use crate::handle::{Cq, Vi};
use crate::nic::Nic;
use crate::poll::Completion;
use crate::vi::{Queue, ViState};
use crate::waiting::NicSleep;

/// A handler of one completion.
pub type NotifyHandler = Box<dyn FnOnce(&SharedNic, Completion) + Send>;

/// A handler of asynchronous errors.
pub type SharedErrorHandler = Arc<dyn Fn(&SharedNic, &ErrorEvent) + Send + Sync>;

/// A NIC that threads share.
#[derive(Clone)]
pub struct SharedNic(Arc<Inner>);

struct Inner {
    nic: Mutex<Nic>,
    sleep: SharedSleep,
    watch: Mutex<Watch>,
    closing: AtomicBool,
    service: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Watch {
    armed: VecDeque<(Source, Listener)>,
    on_error: Option<SharedErrorHandler>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Queue(Vi, Queue),
    Cq(Cq),
}

enum Listener {
    Handler(NotifyHandler),
    Waker(Waker),
}

impl SharedNic {
    /// Makes a NIC shareable.
    pub fn new(nic: Nic) -> SharedNic {
        let sleep = SharedSleep { inner: nic.sleep(), sleepers: Arc::new(Mutex::new(0)) };
        SharedNic(Arc::new(Inner {
            nic: Mutex::new(nic),
            sleep,
            watch: Mutex::new(Watch::default()),
            closing: AtomicBool::new(false),
            service: Mutex::new(None),
        }))
    }

    /// The NIC, held until the guard is dropped. Other threads that wait are woken then, because what was done may
    /// concern them.
    pub fn lock(&self) -> NicGuard<'_> {
        NicGuard { nic: Some(self.hold()), shared: self }
    }

    /// The NIC for ourselves: nobody is woken afterwards.
    fn hold(&self) -> MutexGuard<'_, Nic> {
        self.0.nic.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits for the next completion of a queue without holding the NIC.
    pub fn wait(&self, vi: Vi, queue: Queue, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.hold().check_unbound(vi, queue)?;
        self.wait_for(timeout, |nic| {
            let found = poll_source(nic, Source::Queue(vi, queue));
            // Another thread may post to an idle or connected VI; one in the error state brings nothing any more.
            match found {
                Ok(None) if nic.is_finished(vi, queue) => Some(Err(Error::QueueEmpty)),
                other => other.transpose(),
            }
        })
    }

    /// Waits for the next completion of a completion queue without holding the NIC.
    pub fn wait_cq(&self, cq: Cq, timeout: Option<Duration>) -> Result<Completion, Error> {
        self.wait_for(timeout, |nic| nic.poll_cq(cq).transpose())
    }

    /// Runs `handler` once, on the service thread, with the next completion of a queue. Several may be armed; they
    /// fire in order.
    pub fn notify(&self, vi: Vi, queue: Queue, handler: NotifyHandler) -> Result<(), Error> {
        self.hold().check_unbound(vi, queue)?;
        self.arm(Source::Queue(vi, queue), Listener::Handler(handler))
    }

    /// Runs `handler` once with the next completion of a completion queue.
    pub fn notify_cq(&self, cq: Cq, handler: NotifyHandler) -> Result<(), Error> {
        self.hold().cq_ready(cq)?;
        self.arm(Source::Cq(cq), Listener::Handler(handler))
    }

    /// Drops the handlers armed for a VI that is about to be destroyed.
    pub fn cancel_notify(&self, vi: Vi) {
        self.watch().armed.retain(|(source, _)| !matches!(source, Source::Queue(v, _) if *v == vi));
    }

    /// Runs `handler` on the service thread for every asynchronous error.
    pub fn on_error(&self, handler: Option<SharedErrorHandler>) -> Result<(), Error> {
        self.watch().on_error = handler;
        self.start_service()
    }

    /// The next completion of a queue, as a future for any executor.
    pub fn next(&self, vi: Vi, queue: Queue) -> Next {
        Next { nic: self.clone(), source: Source::Queue(vi, queue) }
    }

    /// The next completion of a completion queue, as a future for any executor.
    pub fn next_cq(&self, cq: Cq) -> Next {
        Next { nic: self.clone(), source: Source::Cq(cq) }
    }

    fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut poll: impl FnMut(&mut Nic) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let deadline = timeout.map(|t| clock::now_ns().saturating_add(t.as_nanos() as u64));
        let mut policy = WaitPolicy::new(Default::default());
        let found = policy.wait(
            deadline,
            || {
                let mut nic = self.hold();
                let found = poll(&mut nic);
                let errors = nic.errors.is_waiting();
                drop(nic);
                if errors {
                    self.tell_errors();
                }
                // Progress made here may have completed what another thread waits for.
                if found.is_some() {
                    self.0.sleep.wake_others();
                }
                found
            },
            &self.0.sleep,
        );
        found.unwrap_or(Err(Error::Timeout))
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
            let weak = Arc::downgrade(&self.0);
            let sleep = self.0.sleep.clone();
            let handle = thread::Builder::new()
                .name("viaduct-notify".into())
                .spawn(move || serve(&weak, &sleep))
                .map_err(|e| Error::Os(viaduct_os::error::OsError::sys("clone", e)))?;
            self.hold().signal.set_watcher(Some(handle.thread().clone()));
            *service = Some(handle);
        }
        Ok(())
    }

    fn wake_service(&self) {
        if let Some(handle) = self.0.service.lock().unwrap_or_else(|e| e.into_inner()).as_ref() {
            handle.thread().unpark();
        }
        self.0.sleep.inner_ring();
    }

    /// Somebody met errors: their handler, if there is one, runs on the service thread.
    fn tell_errors(&self) {
        if self.watch().on_error.is_some() {
            self.wake_service();
        }
    }

    /// Fires what is ready. Whether handlers are still armed.
    fn fire(&self) -> bool {
        loop {
            self.fire_errors();
            let Some((listener, completion)) = self.take_ready() else { break };
            match (listener, completion) {
                (Listener::Handler(handler), Some(completion)) => handler(self, completion),
                (Listener::Waker(waker), _) => waker.wake(),
                // The object is gone, or another thread was quicker and the handler was armed again.
                (Listener::Handler(_), None) => {}
            }
        }
        // The last look may have met errors of its own.
        self.fire_errors();
        !self.watch().armed.is_empty()
    }

    /// The first armed listener whose source is ready; for handlers with the completion.
    fn take_ready(&self) -> Option<(Listener, Option<Completion>)> {
        let mut nic = self.hold();
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
                Err(_) => return watch.armed.remove(i).map(|(_, l)| (l, None)),
                Ok(true) => {}
            }
            let (_, listener) = watch.armed.remove(i)?;
            if matches!(listener, Listener::Waker(_)) {
                return Some((listener, None));
            }
            let completion = poll_source(&mut nic, source).ok().flatten();
            if completion.is_none() {
                watch.armed.insert(i, (source, listener));
                idle.push(source);
                continue;
            }
            return Some((listener, completion));
        }
        None
    }

    fn fire_errors(&self) {
        let Some(handler) = self.watch().on_error.clone() else { return };
        let mut events = Vec::new();
        {
            let mut nic = self.hold();
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
        events.iter().for_each(|event| handler(self, event));
    }
}

/// A shared NIC held by one thread.
pub struct NicGuard<'a> {
    /// There until dropped.
    nic: Option<MutexGuard<'a, Nic>>,
    shared: &'a SharedNic,
}

impl Deref for NicGuard<'_> {
    type Target = Nic;

    fn deref(&self) -> &Nic {
        self.nic.as_ref().expect("there until dropped")
    }
}

impl DerefMut for NicGuard<'_> {
    fn deref_mut(&mut self) -> &mut Nic {
        self.nic.as_mut().expect("there until dropped")
    }
}

impl Drop for NicGuard<'_> {
    fn drop(&mut self) {
        let errors = self.errors.is_waiting();
        self.nic = None;
        self.shared.0.sleep.wake_others();
        if errors {
            self.shared.tell_errors();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        let service = self.service.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(handle) = service {
            handle.thread().unpark();
            self.sleep.inner_ring();
            // The last reference may be dropped by a handler, on the service thread itself.
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

fn poll_source(nic: &mut Nic, source: Source) -> Result<Option<Completion>, Error> {
    match source {
        Source::Queue(vi, Queue::Send) => nic.poll_send(vi),
        Source::Queue(vi, Queue::Receive) => nic.poll_recv(vi),
        Source::Cq(cq) => nic.poll_cq(cq),
    }
}

/// The service thread: fires what is ready, then sleeps on the bell while something is armed, else until unparked.
fn serve(nic: &Weak<Inner>, sleep: &SharedSleep) {
    loop {
        let Some(inner) = nic.upgrade() else { return };
        let shared = SharedNic(inner);
        if !shared.fire() {
            drop(shared);
            if nic.strong_count() == 0 {
                return;
            }
            thread::park();
            continue;
        }
        let ticket = sleep.announce();
        let still = shared.fire();
        drop(shared);
        if still && nic.strong_count() > 0 {
            sleep.park(ticket, None);
        }
        sleep.cancel();
    }
}

/// The NIC's sleeping place with several sleepers: it is awake again only when the last one is.
#[derive(Clone)]
struct SharedSleep {
    inner: NicSleep,
    sleepers: Arc<Mutex<u32>>,
}

impl SharedSleep {
    fn count(&self) -> MutexGuard<'_, u32> {
        self.sleepers.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake_others(&self) {
        if *self.count() > 0 {
            self.inner.ring();
        }
    }

    fn inner_ring(&self) {
        self.inner.ring();
    }
}

impl Sleep for SharedSleep {
    type Ticket = u32;

    fn announce(&self) -> u32 {
        let mut count = self.count();
        *count += 1;
        self.inner.announce()
    }

    fn cancel(&self) {
        let mut count = self.count();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.inner.cancel();
        }
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.inner.park(ticket, timeout);
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
        let found = {
            let mut nic = self.nic.hold();
            match self.source {
                Source::Queue(vi, queue) => nic.check_unbound(vi, queue),
                Source::Cq(_) => Ok(()),
            }
            .and_then(|()| poll_source(&mut nic, self.source))
        };
        match found {
            Ok(Some(completion)) => return Poll::Ready(Ok(completion)),
            Err(e) => return Poll::Ready(Err(e)),
            Ok(None) => {}
        }
        let source = self.source;
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
