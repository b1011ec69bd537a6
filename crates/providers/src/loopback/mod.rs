//! The loopback provider: NICs of one process, connected through a hub, one copy in and one copy out.
//!
//! Everything happens inside calls, in the order of the calls, so that a test that drives it from one thread is
//! repeatable to the step. Several NICs on one [`Hub`] play several nodes.

mod connect;
mod mem;
mod nic;
mod progress;
mod vi;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use viaduct_via::provider::{Event, ListenId, Provider, RequestId, Signal, Sleeper};
use viaduct_via::{NetAddress, RegionInfo, RemoteAttributes, Vi};

use crate::bell::{Bell, LocalWord};
use vi::Link;

/// What the NICs of one process share.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<HubState>>);

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("sharers", &Arc::strong_count(&self.0)).finish_non_exhaustive()
    }
}

/// A provider on a hub of its own.
pub fn provider() -> Box<dyn Provider> {
    Hub::default().provider()
}

impl Hub {
    /// A hub without NICs.
    pub fn new() -> Hub {
        Hub::default()
    }

    /// A provider whose NIC can reach the others on this hub.
    pub fn provider(&self) -> Box<dyn Provider> {
        Box::new(nic::Loopback::new(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[derive(Default)]
struct HubState {
    next: u64,
    nics: HashMap<u64, NicRecord>,
    listeners: HashMap<ListenId, ListenRecord>,
    requests: HashMap<RequestId, RequestRecord>,
    peers: Vec<PeerRecord>,
}

/// A NIC as the others see it.
struct NicRecord {
    events: VecDeque<Event>,
    /// VIs whose armed endpoints have something.
    ready: Vec<Vi>,
    regions: HashMap<u32, RegionInfo>,
    signal: Arc<Signal>,
    bell: Arc<Bell<LocalWord>>,
}

impl NicRecord {
    fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        self.signal.post_events();
        self.bell.ring();
    }
}

struct ListenRecord {
    nic: u64,
    address: NetAddress,
    backlog: usize,
    waiting: bool,
    queued: usize,
}

struct RequestRecord {
    from_nic: u64,
    from_vi: Vi,
    to_nic: u64,
    listener: ListenId,
    attributes: RemoteAttributes,
    /// Takes a place in the listener's backlog.
    counts: bool,
}

struct PeerRecord {
    nic: u64,
    vi: Vi,
    local: NetAddress,
    remote: NetAddress,
    attributes: RemoteAttributes,
}

impl HubState {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes a request out; its place in the backlog is free again.
    fn take_request(&mut self, id: RequestId) -> Option<RequestRecord> {
        let request = self.requests.remove(&id)?;
        if let Some(listener) = self.listeners.get_mut(&request.listener).filter(|_| request.counts) {
            listener.queued -= 1;
        }
        Some(request)
    }

    fn link(&mut self) -> Arc<Link> {
        Arc::new(Link::default())
    }
}
