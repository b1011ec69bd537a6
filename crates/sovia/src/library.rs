//! The library: one NIC with its sockets behind one lock, and how threads wait for them.
//!
//! SOVIA, sections 3.1.2 and 4.1. In single-threaded handling the thread that waits takes packets in by itself; with a
//! handler thread it sleeps on a condition until that has done so, which is what HANDLER costs in figure 9.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, TryLockError};
use std::task::Waker;
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use viaduct_os::turn::{Turn, TurnGuard};
use viaduct_os::wait::WaitPolicy;
use viaduct_os::{clock, farewell, fork, signals};
use viaduct_via::{Nic, Sleepers, Spin, WaitConfig};

use crate::address;
use crate::config::{Config, Handling, Waiting};
use crate::ending;
use crate::engine::{Engine, Fast, News};
use crate::error::Error;
use crate::listener::Listener;
use crate::service;
use crate::stream::Stream;

/// How long a connection may take to come about unless the caller says otherwise.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long an exit handler waits for locks of the library before it takes them for held by its own thread.
const BUSY_LIMIT: Duration = Duration::from_millis(500);

/// Looks for a packet before the lock is let go of: a look costs less than the lock.
const LOOKS: usize = 16;

/// The sockets library on one NIC. Clones are the same; streams and listeners keep it open.
#[derive(Clone)]
pub struct Sovia(Arc<Owner>);

/// What the last stream, listener or clone ends.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process that opened it.
    generation: u32,
    finished: AtomicBool,
}

/// What the threads of the library share with those of the application.
pub(crate) struct Shared {
    /// Costs next to nothing while one thread makes nearly all calls.
    engine: Turn<Engine>,
    pub(crate) sleepers: Sleepers,
    /// With a handler thread: how often it had news, for threads that wait for them.
    changes: Mutex<u64>,
    changed: Condvar,
    /// Holders of a `Watch`, which wait for the pollable descriptor (`watch.rs`). Changed under the lock.
    pub(crate) watchers: AtomicU32,
    pub(crate) handling: Handling,
    pub(crate) wait: WaitConfig,
    /// Longest request that is always copied.
    pub(crate) copy_max: usize,
    pub(crate) service: OnceLock<Thread>,
    pub(crate) exiting: AtomicBool,
    pub(crate) close_rounds: AtomicU32,
}

impl Sovia {
    /// Opens the library on a NIC, which it keeps to itself.
    pub fn open(nic: Nic, config: Config) -> Result<Sovia, Error> {
        config.check()?;
        let spin = match config.waiting {
            Waiting::Blocking => config.spin,
            Waiting::Polling => Spin::Always,
        };
        let shared = Arc::new(Shared {
            sleepers: nic.sleepers(),
            handling: config.handling,
            wait: WaitConfig { spin },
            copy_max: config.copy_max,
            engine: Turn::new(Engine::new(nic, config)?),
            changes: Mutex::new(0),
            changed: Condvar::new(),
            watchers: AtomicU32::new(0),
            service: OnceLock::new(),
            exiting: AtomicBool::new(false),
            close_rounds: AtomicU32::new(0),
        });
        let spawn = |name: &str, run: fn(&Shared)| {
            let shared = shared.clone();
            // The program's signal handlers run on its own threads, which may know what they interrupt.
            signals::while_blocked(|| thread::Builder::new().name(name.into()).spawn(move || run(&shared)))
        };
        let mut threads = vec![spawn("sovia-service", service::serve)?];
        let thread = threads[0].thread().clone();
        shared.lock().nic.unpark_at_news(Some(thread.clone()));
        let _ = shared.service.set(thread);
        if shared.handling == Handling::Handler {
            threads.push(spawn("sovia-handler", service::handle)?);
        }
        let (threads, generation) = (Mutex::new(threads), fork::generation());
        let owner = Arc::new(Owner { shared, threads, generation, finished: AtomicBool::new(false) });
        ending::remember(&owner);
        Ok(Sovia(owner))
    }

    /// From now on a signal that ends the process (SEGV, BUS, FPE, ILL, ABRT, TERM, INT, HUP, QUIT) cuts the connections with
    /// processes of this host at once. Without it peers see the end when the kernel has taken the process down. A handler of
    /// the application runs as before, with connections whole; they are cut behind it if it has set the default action. To be
    /// called after the application has installed its handlers.
    pub fn cut_at_fatal_signals() -> Result<(), Error> {
        Ok(farewell::cut_at_fatal_signals()?)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.0
    }

    /// Connects to `via://host:port`, or to a name as VIA writes it.
    pub fn connect(&self, address: &str) -> Result<Stream, Error> {
        self.connect_timeout(address, CONNECT_LIMIT)
    }

    /// Connects, or fails when the time is over.
    pub fn connect_timeout(&self, address: &str, limit: Duration) -> Result<Stream, Error> {
        let peer = address::parse(address)?;
        let shared = &self.0.shared;
        let id = shared.lock().connect_start(&peer, limit)?;
        let deadline = clock::now_ns().saturating_add(limit.as_nanos() as u64);
        let mut policy = WaitPolicy::new(shared.wait);
        let connected = shared.look(&mut policy, Some(deadline), |engine| engine.connect_poll(id));
        connected.unwrap_or_else(|| {
            shared.lock().retire(id);
            Err(viaduct_via::Error::Timeout.into())
        })?;
        shared.poke();
        Ok(Stream::new(self.0.clone(), id, peer))
    }

    /// Listens at an address. Up to `backlog` connections are accepted before anybody fetches them.
    pub fn listen(&self, address: &str, backlog: usize) -> Result<Listener, Error> {
        let address = address::parse(address)?;
        let port = self.0.shared.lock().listen(&address, backlog)?;
        self.0.shared.poke();
        Ok(Listener::new(self.0.clone(), port, address))
    }

    /// Whether this thread can close the library: false if it is in the middle of one of its calls, as an exit handler is
    /// when a signal handler called exit during that call, and in a forked child.
    pub fn can_close(&self) -> bool {
        !self.is_inherited() && self.0.shared.enter_at_exit().is_some()
    }

    /// Whether this is a forked child of the process that opened the library. Its calls fail here; a child that needs
    /// streams opens a library of its own.
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }

    /// What the library has done and has to do.
    pub fn activity(&self) -> Activity {
        let mut engine = self.0.shared.lock();
        Activity {
            packets: engine.handled,
            lent: engine.lent(),
            open: engine.open,
            closing: engine.closing,
            close_rounds: self.0.shared.close_rounds.load(Ordering::Relaxed),
        }
    }
}

/// What a library has done and has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activity {
    /// Packets taken in.
    pub packets: u64,
    /// Packets that left straight from the application's memory because they were long, lent to the NIC for the time.
    pub lent: u64,
    /// Sockets that the application has open, or has not accepted yet.
    pub open: usize,
    /// Sockets that are closed, and whose peers have not answered yet.
    pub closing: usize,
    /// Times that the service thread slept as the paper's close thread.
    pub close_rounds: u32,
}

impl Shared {
    /// The engine.
    pub(crate) fn lock(&self) -> TurnGuard<'_, Engine> {
        self.engine.enter()
    }

    /// The engine, for a thread that may be in the middle of a call already, because a signal handler called exit. `None`
    /// if it is, or holds one of the locks beside the engine's.
    fn enter_at_exit(&self) -> Option<TurnGuard<'_, Engine>> {
        let end = Instant::now() + BUSY_LIMIT;
        let is_free =
            || !matches!(self.changes.try_lock(), Err(TryLockError::WouldBlock)) && self.sleepers.is_free();
        while !is_free() {
            if Instant::now() >= end {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.engine.enter_unless_inside(BUSY_LIMIT)
    }

    /// Lets the engine go, and wakes threads and tasks that may wait for what was done.
    pub(crate) fn release(&self, mut engine: TurnGuard<'_, Engine>) {
        let news = engine.take_news();
        drop(engine);
        self.tell(news);
    }

    /// Does something with the engine, and wakes threads and tasks that may wait for it.
    #[inline(always)]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        self.with_fast_path(|engine| Fast::ordinary(work(engine)))
    }

    /// Does something with the engine by a fast path, and wakes threads and tasks unless it was quiet.
    #[inline(always)]
    pub(crate) fn with_fast_path<T>(&self, work: impl FnOnce(&mut Engine) -> Fast<T>) -> T {
        let (result, news) = self.engine.with(|engine| {
            let Fast { result, is_quiet } = work(engine);
            (result, if is_quiet { None } else { Some(engine.take_news()) })
        });
        if let Some(news) = news {
            self.tell(news);
        }
        result
    }

    fn tell(&self, news: News) {
        if news.poke {
            self.poke();
        }
        news.tasks.into_iter().for_each(Waker::wake);
        if news.wake {
            self.sleepers.wake_others();
            self.tell_watchers();
            if self.handling == Handling::Handler {
                *self.changes() += 1;
                self.changed.notify_all();
            }
        }
    }

    fn changes(&self) -> MutexGuard<'_, u64> {
        self.changes.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until `poll` has an answer, in the way of the library's handling. `None` once the deadline has passed.
    pub(crate) fn wait<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        if self.handling == Handling::Single {
            return self.look(policy, deadline, poll);
        }
        loop {
            let seen = *self.changes();
            if let Some(found) = self.with(&mut poll) {
                return Some(found);
            }
            let mut changes = self.changes();
            while *changes == seen {
                let left = deadline.map(|at| at.saturating_sub(clock::now_ns()));
                changes = match left {
                    Some(0) => return None,
                    Some(left) => {
                        let woken = self.changed.wait_timeout(changes, Duration::from_nanos(left));
                        woken.unwrap_or_else(|e| e.into_inner()).0
                    }
                    None => self.changed.wait(changes).unwrap_or_else(|e| e.into_inner()),
                };
            }
        }
    }

    /// Waits and takes packets in meanwhile.
    pub(crate) fn look<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        let poll = || self.with(|engine| Self::poll_once(engine, LOOKS, &mut poll));
        policy.wait(deadline, poll, &self.sleepers)
    }

    /// Looks, and takes packets in until there is an answer or so many looks bring nothing more. No bell rings again for
    /// packets that are left when a thread goes to sleep.
    #[inline(always)]
    pub(crate) fn poll_once<T>(
        engine: &mut Engine,
        looks: usize,
        poll: &mut impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(found) = poll(engine) {
                return Some(found);
            }
            if !(0..looks).any(|_| engine.handle_one()) {
                return None;
            }
        }
    }

    /// Looks once, for a caller that does not wait and calls again when others have had their turn.
    pub(crate) fn poll_now<T>(&self, mut poll: impl FnMut(&mut Engine) -> Option<T>) -> Option<T> {
        self.with(|engine| Self::poll_once(engine, 1, &mut poll))
    }

    /// The service thread should look at what there is to do.
    pub(crate) fn poke(&self) {
        if let Some(thread) = self.service.get() {
            thread.unpark();
        }
        self.sleepers.wake_others();
        self.tell_watchers();
    }
}

impl Owner {
    /// Whether this is a forked child of the process that opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        fork::generation() != self.generation
    }

    /// Section 4.4: active connections are closed, those that are closing get a bounded time, and threads end. When it is
    /// dropped all memory goes with the NIC.
    pub(crate) fn finish(&self) {
        // A forked child has neither threads nor connections.
        if self.is_inherited() || self.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = &self.shared;
        // A signal handler may have called exit in the middle of a call: then the connections end with the process.
        let Some(mut engine) = shared.enter_at_exit() else { return };
        let all: Vec<_> = engine.sockets.iter_mut().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| engine.close(id));
        let deadline = clock::now_ns() + engine.config.exit_limit.as_nanos() as u64;
        shared.release(engine);
        let mut policy = WaitPolicy::new(WaitConfig::default());
        let _ = shared.look(&mut policy, Some(deadline), |engine| (engine.closing == 0).then_some(()));
        shared.exiting.store(true, Ordering::Release);
        shared.lock().nic.unpark_at_news(None);
        shared.poke();
        shared.sleepers.ring();
        for thread in self.threads.lock().unwrap_or_else(|e| e.into_inner()).drain(..) {
            // A thread of ours that drops the last handle, or runs exit handlers, cannot wait for itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.finish();
    }
}
