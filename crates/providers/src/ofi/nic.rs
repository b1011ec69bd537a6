//! The provider object of one NIC, and the core it shares with its endpoints and its control thread.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use viaduct_job::{HostId, Token};
use viaduct_os::budget::Budget;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::error::OsError;
use viaduct_os::fork::{self, Registration};
use viaduct_os::segment::Segment;
use viaduct_os::{runtime_dir, signals};
use viaduct_via::provider::{Endpoint, Event, ListenId, Provider, RequestId, SharedMemory, Signal, Sleeper};
use viaduct_via::{
    CounterSlot, Error, MemHandle, NetAddress, NicAttributes, Reach, RegionInfo, Reliability,
    RemoteAttributes, Vi,
};

use super::connect::waits;
use super::control;
use super::engine::Engine;
use super::fabric::Fabric;
use super::flow::Window;
use super::pace::{Pace, Paced};
use super::place::{self, Names};
use crate::bell::{Bell, LocalWord};
use crate::config::OfiConfig;
use crate::heap;
use crate::parties::MAX_PRIVATE;

/// Tokens of the control thread's descriptors.
pub(super) const WAKE: u64 = 0;
pub(super) const MESSAGES: u64 = 1;
const EVENTS: u64 = 2;

/// Most VIs.
pub(crate) const MAX_VI: usize = 1 << 16;
/// Longest message.
const MAX_TRANSFER: u32 = 1 << 30;
/// Bytes taken by value.
const MAX_INLINE: usize = 256;

/// What the owner of the NIC, its endpoints and its control thread share.
pub(super) struct Core {
    /// With the provider of libfabric's: `ofi:tcp`.
    pub(super) name: &'static str,
    pub(super) config: OfiConfig,
    pub(super) token: Token,
    pub(super) host: HostId,
    pub(super) names: Names,
    pub(super) budget: Budget,
    pub(super) signal: Arc<Signal>,
    sleeper: Arc<Paced>,
    counters: CounterSlot,
    pub(super) epoll: Epoll,
    pub(super) pace: Arc<Pace>,
    pub(super) stop: AtomicBool,
    /// How many lanes the engine has.
    pub(super) lanes: AtomicUsize,
    pub(super) generation: u32,
    pub(super) engine: Mutex<Engine>,
}

/// Nothing under this lock can be left half-changed by a panic that is worth more than going on.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Core {
    /// Wakes the owner of the NIC.
    pub(super) fn ring(&self) {
        self.sleeper.inner.ring();
    }

    pub(super) fn silence_ns(&self) -> u64 {
        self.config.silence.as_nanos() as u64
    }

    pub(super) fn heartbeat_ns(&self) -> u64 {
        self.config.heartbeat.as_nanos() as u64
    }

    /// What we have room for on each connection.
    pub(super) fn window(&self) -> Window {
        let frames = self.config.window as u16;
        Window { data: frames, service: frames }
    }

    /// Where to listen if the address does not say: only a job whose token was given is reached from elsewhere.
    pub(super) fn bind_ip(&self) -> IpAddr {
        let everywhere = self.config.has_token();
        let ip = if everywhere { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        self.config.bind.unwrap_or(ip.into())
    }
}

/// What a NIC has once, whichever providers it has.
pub(crate) struct Parts {
    pub(crate) signal: Arc<Signal>,
    pub(crate) sleeper: Arc<Paced>,
    pub(crate) counters: CounterSlot,
}

impl Parts {
    /// Those of a NIC with this provider alone.
    pub(super) fn new() -> Result<Parts, Error> {
        Ok(Parts {
            signal: Arc::new(Signal::default()),
            sleeper: Arc::new(Paced::new(Arc::new(Bell::new(LocalWord::default())))),
            counters: CounterSlot::open("ofi")?,
        })
    }
}

/// The ofi provider of one NIC.
pub(crate) struct Ofi {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
    _fds: Vec<Registration>,
}

impl Ofi {
    pub(super) fn open(
        config: OfiConfig,
        fabric: Fabric,
        name: &'static str,
        parts: Parts,
    ) -> Result<Ofi, Error> {
        let folder = runtime_dir::runtime_dir(config.runtime_dir.as_deref())?;
        let token = super::token(&config, &folder)?;
        let job = |e: viaduct_job::Error| Error::Unavailable {
            provider: "ofi",
            why: e.to_string(),
            hint: "see `viaduct config`",
        };
        let host = HostId::of_this(config.host.as_deref()).map_err(job)?;
        let names = Names::new(folder, &token, host);
        names.sweep();
        let (epoll, pace) = (Epoll::new()?, Arc::new(Pace::new()?));
        epoll.add(&pace.wake, WAKE, Interest::Read)?;
        let (events, messages) = fabric.wait_fds()?;
        epoll.add(events, EVENTS, Interest::Read)?;
        if let Some(messages) = messages {
            epoll.add(messages, MESSAGES, Interest::Read)?;
        }
        parts.sleeper.set(pace.clone());
        let core = Arc::new(Core {
            name,
            names,
            config,
            token,
            host,
            budget: Budget::process().clone(),
            signal: parts.signal,
            sleeper: parts.sleeper,
            counters: parts.counters,
            epoll,
            pace,
            stop: AtomicBool::new(false),
            lanes: AtomicUsize::new(0),
            generation: fork::generation(),
            engine: Mutex::new(Engine::new(fabric)),
        });
        let for_thread = core.clone();
        let builder = std::thread::Builder::new().name("viaduct-control".into()).stack_size(512 << 10);
        let thread = signals::while_blocked(|| builder.spawn(move || control::run(&for_thread)))
            .map_err(|e| OsError::sys("clone", e))?;
        let fds = vec![
            fork::close_in_child(core.epoll.as_fd().as_raw_fd()),
            fork::close_in_child(core.pace.wake.as_fd().as_raw_fd()),
        ];
        Ok(Ofi { core, thread: Some(thread), _fds: fds })
    }
}

impl Ofi {
    /// Whether there are connections, or some to be.
    pub(crate) fn has_connections(&self) -> bool {
        self.core.lanes.load(Ordering::Relaxed) > 0
    }
}

// SAFETY: `Regions::allow` checks bounds, rights and tag of every access, under the lock that `withdraw` takes.
unsafe impl Provider for Ofi {
    fn name(&self) -> &'static str {
        self.core.name
    }

    fn attributes(&self) -> NicAttributes {
        NicAttributes {
            name: self.core.name.into(),
            max_vi: MAX_VI,
            max_descriptors_per_queue: 65_536,
            max_segments_per_desc: 252,
            max_cq: 65_536,
            max_cq_entries: 1 << 24,
            max_transfer_size: MAX_TRANSFER,
            max_inline: MAX_INLINE,
            max_private_data: MAX_PRIVATE,
            max_register_regions: (1 << 20) - 1,
            max_register_block_bytes: 1 << 40,
            max_ptags: 1 << 20,
            reliability: &Reliability::ALL,
            rdma_read: &[Reliability::ReliableDelivery, Reliability::ReliableReception],
            beyond_host: true,
        }
    }

    fn counters(&self) -> CounterSlot {
        self.core.counters.clone()
    }

    fn signal(&self) -> Arc<Signal> {
        self.core.signal.clone()
    }

    fn sleeper(&self) -> Arc<dyn Sleeper> {
        self.core.sleeper.clone()
    }

    fn allocate(&mut self, len: usize, align: usize) -> Result<SharedMemory, Error> {
        heap::allocate(len, align)
    }

    fn share(&mut self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error> {
        Ok(heap::share(segment, range))
    }

    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error> {
        self.core.hold().regions.publish(handle, region);
        Ok(())
    }

    /// Operations of peers are carried out under the engine's lock, so none is in the region once it is out.
    fn withdraw(&mut self, handle: MemHandle) {
        self.core.hold().regions.withdraw(handle);
    }

    fn reach(&self, _: &NetAddress) -> Reach {
        Reach::Messages
    }

    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        let at = place::own(address)?;
        self.core.hold().listen(&self.core, address, at, backlog)
    }

    fn set_waiting(&mut self, listener: ListenId, waiting: bool) {
        self.core.hold().set_waiting(listener, waiting);
    }

    fn unlisten(&mut self, listener: ListenId) {
        self.core.hold().unlisten(&self.core, listener);
    }

    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        place::HostPart::of(remote)?;
        let mut engine = self.core.hold();
        let from = match local {
            Some(local) => local.clone(),
            None => NetAddress::local(&format!("nic-{}", &self.core.host.to_string()[..8]))?,
        };
        let call = engine.ask(vi, from, remote, ours, false);
        engine.start(&self.core, call);
        Ok(())
    }

    fn request_peer(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        place::HostPart::of(remote)?;
        // Only the one that waits needs a port.
        let at = if waits(local, remote) { place::own(local)? } else { (None, None) };
        self.core.hold().request_peer(&self.core, vi, (local, at), remote, ours)
    }

    fn cancel(&mut self, vi: Vi) {
        let stale = self.core.hold().cancel(vi);
        drop(stale); // an endpoint in it takes the lock
    }

    fn accept(
        &mut self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error> {
        let endpoint = self.core.hold().accept(&self.core, request, vi, ours)?;
        Ok(Box::new(endpoint))
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        self.core.hold().reject(&self.core, request, private_data);
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.core.hold().events.pop_front()
    }

    fn ready(&mut self, into: &mut Vec<Vi>) {
        let mut engine = self.core.hold();
        // A completion queue polls its hot VIs first: another look would be another system call.
        if !std::mem::take(&mut engine.looked) {
            engine.poll(&self.core);
        }
        into.append(&mut engine.ready);
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        // In a forked child thread and connections are the parent's.
        if fork::generation() != self.core.generation {
            std::mem::forget(self.thread.take());
            std::mem::forget(self.core.clone());
            return;
        }
        self.core.stop.store(true, Ordering::Release);
        self.core.pace.call();
        if let Some(thread) = self.thread.take() {
            // A control thread that panicked has nothing left to say.
            let _ = thread.join();
        }
        control::finish(&self.core);
    }
}
