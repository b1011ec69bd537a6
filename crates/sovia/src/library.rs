//! The library: a driver with the engine, and how threads wait for sockets.
//!
//! SOVIA, sections 3.1.2 and 4.1. In single-threaded handling the thread that waits takes packets in by itself; with a
//! handler thread it leaves a waker and parks until that has done so, which is what HANDLER costs in figure 9.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use viaduct_os::wait::{Looks, WaitPolicy, Waits};
use viaduct_os::{clock, farewell, signals};
use viaduct_via::driver::Guard;
use viaduct_via::{Driver, NetAddress, Nic, Spin, WaitConfig};

use crate::address;
use crate::config::{Config, Handling, Waiting};
use crate::ending;
use crate::engine::Engine;
use crate::error::Error;
use crate::listener::Listener;
use crate::socket::Direction;
use crate::stream::Stream;
use crate::table::SocketId;

/// How long a connection may take to come about unless the caller says otherwise.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A client whose listener has no room asks again after this time, then after twice as long each time, up to the longest:
/// soon in a burst, whose places are free in a moment, and seldom at a server that takes none.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// How long an exit handler waits for locks of the library before it takes them for held by its own thread.
const BUSY_LIMIT: Duration = Duration::from_millis(500);

/// Looks for a packet before the lock is let go of: a look costs less than the lock.
const LOOKS: usize = 16;

/// Why a driver that is there has its engine.
pub(crate) const NOT_CLOSED: &str = "the driver is not closed before it is dropped";

/// The sockets library on one NIC. Clones are the same; streams and listeners keep it open.
#[derive(Clone)]
pub struct Sovia(Arc<Owner>);

/// What the last stream, listener or clone ends.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    handler: Mutex<Option<JoinHandle<()>>>,
    finished: AtomicBool,
}

/// What the threads of the library share with those of the application.
pub(crate) struct Shared {
    pub(crate) driver: Driver<Engine>,
    pub(crate) handling: Handling,
    pub(crate) wait: WaitConfig,
    /// Longest request that is always copied.
    pub(crate) copy_max: usize,
    exiting: AtomicBool,
}

impl Sovia {
    /// Opens the library on a NIC, which it keeps to itself.
    ///
    /// Its calls spin as [`Config::spin`] says; what [`Nic::set_wait`] was given has no part in it.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that contradict themselves; [`Error::Via`] if the NIC has no room for what the library needs;
    /// [`Error::Io`] if there can be no more threads.
    pub fn open(nic: Nic, config: Config) -> Result<Sovia, Error> {
        config.check()?;
        let spin = match config.waiting {
            Waiting::Blocking => config.spin,
            Waiting::Polling => Spin::Always,
        };
        let shared = Arc::new(Shared {
            handling: config.handling,
            wait: WaitConfig { spin },
            copy_max: config.copy_max,
            driver: Driver::new(Engine::new(nic, config)?),
            exiting: AtomicBool::new(false),
        });
        shared.driver.start()?;
        let handler = match shared.handling {
            Handling::Single => None,
            Handling::Handler => {
                let (shared, thread) = (shared.clone(), thread::Builder::new().name("sovia-handler".into()));
                Some(signals::while_blocked(|| thread.spawn(move || shared.handle()))?)
            }
        };
        let owner =
            Arc::new(Owner { shared, handler: Mutex::new(handler), finished: AtomicBool::new(false) });
        ending::remember(&owner);
        Ok(Sovia(owner))
    }

    /// From now on a signal that ends the process (SEGV, BUS, FPE, ILL, ABRT, TERM, INT, HUP, QUIT) cuts the connections with
    /// processes of this host at once. Without it peers see the end when the kernel has taken the process down. A handler of
    /// the application runs as before, with connections whole; they are cut behind it if it has set the default action. To be
    /// called after the application has installed its handlers.
    ///
    /// # Errors
    /// [`Error::Io`] if a handler cannot be installed.
    pub fn cut_at_fatal_signals() -> Result<(), Error> {
        Ok(farewell::cut_at_fatal_signals()?)
    }

    /// Looks of a caller that waits in a loop of its own, with the spin budget of this library.
    #[doc(hidden)]
    pub fn looks(&self) -> Looks {
        Looks::with(self.0.shared.wait.spin)
    }

    /// Counts what such a caller waited, for `viaduct stat`.
    #[doc(hidden)]
    pub fn count_waits(&self, waits: Waits) {
        self.0.shared.driver.count_waits(waits);
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.0
    }

    /// Connects to `via://host:port`, or to a name as VIA writes it.
    ///
    /// # Errors
    /// As of [`connect_timeout`](Self::connect_timeout), with ten seconds.
    pub fn connect(&self, address: &str) -> Result<Stream, Error> {
        self.connect_timeout(address, CONNECT_LIMIT)
    }

    /// Connects, or fails when the time is over.
    ///
    /// # Errors
    /// [`Error::Address`]; [`Error::Greeting`] if the other end speaks something else; [`Error::Via`] with what became of the request:
    /// nothing listens there, it was refused, or the time was over. A listener whose backlog is full is asked again, after
    /// short pauses, until the time is over; then the error is [`NoRoom`](viaduct_via::Error::NoRoom), as an [`std::io::Error`]
    /// one of the kind `TimedOut`.
    pub fn connect_timeout(&self, address: &str, limit: Duration) -> Result<Stream, Error> {
        let peer = address::parse(address)?;
        let deadline = clock::now_ns().saturating_add(limit.as_nanos() as u64);
        let left = || Duration::from_nanos(deadline.saturating_sub(clock::now_ns()));
        let (mut first, mut pause) = (Some(limit), FIRST_PAUSE);
        loop {
            // The first try is made also where there is no time: the listener may be missed at once.
            match self.0.shared.connect(&peer, first.take().unwrap_or_else(left), deadline) {
                Ok(id) => return Ok(Stream::new(self.0.clone(), id, peer)),
                Err(Error::Via(viaduct_via::Error::NoRoom { .. })) if pause < left() => thread::sleep(pause),
                Err(error) => return Err(error),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Listens at an address. Up to `backlog` connections stand before the program accepts them; clients beyond that wait
    /// in their `connect`.
    ///
    /// # Errors
    /// [`Error::Address`]; [`Error::Via`] if the address is in use, or is not one of this host.
    pub fn listen(&self, address: &str, backlog: usize) -> Result<Listener, Error> {
        let address = address::parse(address)?;
        let port = self.0.shared.with(|engine| engine.listen(&address, backlog))?;
        Ok(Listener::new(self.0.clone(), port, address))
    }

    /// Whether this thread can close the library: false if it is in the middle of one of its calls, as an exit handler is
    /// when a signal handler called exit during that call, and in a forked child.
    pub fn can_close(&self) -> bool {
        !self.is_inherited() && self.0.shared.lock_at_exit().is_some()
    }

    /// Whether this is a forked child of the process that opened the library. Its calls fail here; a child that needs
    /// streams opens a library of its own.
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }

    /// What the library has done and has to do.
    pub fn activity(&self) -> Activity {
        self.0.shared.with(|engine| Activity {
            packets: engine.handled,
            lent: engine.lent(),
            open: engine.open,
            closing: engine.closing,
            close_rounds: engine.close_rounds,
        })
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
    /// Asks once, and waits for the answer.
    fn connect(&self, peer: &NetAddress, limit: Duration, deadline: u64) -> Result<SocketId, Error> {
        let id = self.with(|engine| engine.connect_start(peer, limit))?;
        let mut policy = WaitPolicy::new(self.wait);
        let connected = self.look(&mut policy, Some(deadline), |engine| engine.connect_poll(id));
        connected.unwrap_or_else(|| {
            self.with(|engine| engine.retire(id));
            Err(viaduct_via::Error::Timeout.into())
        })?;
        Ok(id)
    }

    /// Does something with the engine, and wakes threads and tasks that may wait for it.
    #[inline(always)]
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        self.driver.with(work).expect(NOT_CLOSED)
    }

    /// The engine, for a thread that may be in the middle of a call already, because a signal handler called exit. `None`
    /// if it is.
    fn lock_at_exit(&self) -> Option<Guard<'_, Engine>> {
        self.driver.lock_at_exit(BUSY_LIMIT)
    }

    /// Waits at a socket until `poll` has an answer, in the way of the library's handling. `None` once the deadline has
    /// passed.
    pub(crate) fn wait<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        (id, direction): (SocketId, Direction),
        mut poll: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        if self.handling == Handling::Single {
            let look = |engine: &mut Engine| Self::poll_once(engine, LOOKS, &mut poll);
            let leave = |engine: &mut Engine, waker: &Waker| engine.leave_waker(id, direction, waker);
            return self.driver.wait_at(policy, deadline, look, leave).ok();
        }
        let waker = Waker::from(Arc::new(Parked(thread::current())));
        loop {
            let found = self.with(|engine| {
                let found = poll(engine);
                if found.is_none() {
                    // In one turn with the look: what comes later takes the waker.
                    engine.leave_waker(id, direction, &waker);
                }
                found
            });
            if found.is_some() {
                return found;
            }
            match deadline.map(|at| at.saturating_sub(clock::now_ns())) {
                Some(0) => return None,
                Some(left) => thread::park_timeout(Duration::from_nanos(left)),
                None => thread::park(),
            }
        }
    }

    /// The handler thread of HANDLER.
    fn handle(&self) {
        let mut policy = WaitPolicy::new(self.wait);
        let _ = self.look(&mut policy, None, |_| self.exiting.load(Ordering::Acquire).then_some(()));
    }

    /// Waits for a connection at a port, and takes packets in meanwhile.
    pub(crate) fn wait_at_port<T>(
        &self,
        deadline: Option<u64>,
        port: usize,
        mut poll: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        let look = |engine: &mut Engine| Self::poll_once(engine, LOOKS, &mut poll);
        let leave = |engine: &mut Engine, waker: &Waker| engine.port(port).leave_waker(waker);
        self.driver.wait_at(&mut WaitPolicy::new(self.wait), deadline, look, leave).ok()
    }

    /// Waits and takes packets in meanwhile.
    pub(crate) fn look<T>(
        &self,
        policy: &mut WaitPolicy,
        deadline: Option<u64>,
        mut poll: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        self.driver.wait_with(policy, deadline, |engine| Self::poll_once(engine, LOOKS, &mut poll)).ok()
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
}

/// A thread that is parked until a handler thread has something for it.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Owner {
    /// Whether this is a forked child of the process that opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.shared.driver.is_inherited()
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
        let Some(mut engine) = shared.lock_at_exit() else { return };
        let all: Vec<_> = engine.sockets.iter_mut().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| engine.close(id));
        let deadline = clock::now_ns() + engine.config.exit_limit.as_nanos() as u64;
        drop(engine);
        let mut policy = WaitPolicy::new(WaitConfig::default());
        let _ = shared.look(&mut policy, Some(deadline), |engine| (engine.closing == 0).then_some(()));
        shared.exiting.store(true, Ordering::Release);
        shared.driver.stop();
        shared.with(|engine| engine.news.wake());
        let handler = self.handler.lock().unwrap_or_else(|e| e.into_inner()).take();
        // A thread of ours that drops the last handle, or runs exit handlers, cannot wait for itself.
        if let Some(handler) = handler.filter(|handler| handler.thread().id() != thread::current().id()) {
            let _ = handler.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Sovia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what is behind the turn: printing waits for no thread.
        f.debug_struct("Sovia").finish_non_exhaustive()
    }
}
