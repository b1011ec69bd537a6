//! The provider object of one NIC on a hub.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use viaduct_os::segment::Segment;
use viaduct_via::provider::{Endpoint, Event, ListenId, Provider, RequestId, SharedMemory, Signal, Sleeper};
use viaduct_via::{
    CounterSlot, Error, MemHandle, NetAddress, NicAttributes, Reach, RegionInfo, Reliability,
    RemoteAttributes, Vi,
};

use super::{Hub, NicRecord, RequestRecord};
use crate::bell::{Bell, LocalWord};
use crate::heap;

/// Longest message.
const MAX_TRANSFER: u32 = 1 << 30;
/// Bytes taken by value.
const MAX_INLINE: usize = 104;

pub(super) struct Loopback {
    pub(super) hub: Hub,
    pub(super) id: u64,
    signal: Arc<Signal>,
    bell: Arc<Bell<LocalWord>>,
    counters: CounterSlot,
}

impl Loopback {
    pub(super) fn new(hub: Hub) -> Loopback {
        let signal = Arc::new(Signal::default());
        let bell = Arc::new(Bell::new(LocalWord::default()));
        let counters = CounterSlot::open("loopback").expect("a page of shared memory for counters");
        let id = {
            let mut state = hub.lock();
            let id = state.number();
            let record = NicRecord {
                events: VecDeque::new(),
                ready: Vec::new(),
                regions: HashMap::new(),
                signal: signal.clone(),
                bell: bell.clone(),
            };
            state.nics.insert(id, record);
            id
        };
        Loopback { hub, id, signal, bell, counters }
    }
}

// SAFETY: regions are reached under the hub's lock, by bounds, rights and tag, and are out of its table when `withdraw` returns.
unsafe impl Provider for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn attributes(&self) -> NicAttributes {
        NicAttributes {
            name: "loopback".into(),
            max_vi: 65_536,
            max_descriptors_per_queue: 65_536,
            max_segments_per_desc: 252,
            max_cq: 65_536,
            max_cq_entries: 1 << 20,
            max_transfer_size: MAX_TRANSFER,
            max_inline: MAX_INLINE,
            max_private_data: 256,
            max_register_regions: 1 << 20,
            max_register_block_bytes: 1 << 40,
            max_ptags: 65_536,
            reliability: &Reliability::ALL,
            rdma_read: &[Reliability::ReliableDelivery, Reliability::ReliableReception],
            beyond_host: false,
        }
    }

    fn counters(&self) -> CounterSlot {
        self.counters.clone()
    }

    fn signal(&self) -> Arc<Signal> {
        self.signal.clone()
    }

    fn sleeper(&self) -> Arc<dyn Sleeper> {
        self.bell.clone()
    }

    fn allocate(&mut self, len: usize, align: usize) -> Result<SharedMemory, Error> {
        heap::allocate(len, align)
    }

    fn share(&mut self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error> {
        Ok(heap::share(segment, range))
    }

    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error> {
        self.publish_region(handle, region);
        Ok(())
    }

    fn withdraw(&mut self, handle: MemHandle) {
        self.withdraw_region(handle);
    }

    fn reach(&self, _: &NetAddress) -> Reach {
        Reach::Messages
    }

    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        self.start_listening(address, backlog)
    }

    fn set_waiting(&mut self, listener: ListenId, waiting: bool) {
        let mut hub = self.hub.lock();
        let hub = &mut *hub;
        let Some(l) = hub.listeners.get_mut(&listener) else { return };
        l.waiting = waiting;
        if waiting {
            // A thread that waits anew takes one request more, however long the answers to the others take.
            l.queued = 0;
            hub.requests.values_mut().filter(|r| r.listener == listener).for_each(|r| r.counts = false);
        }
    }

    fn unlisten(&mut self, listener: ListenId) {
        self.hub.lock().listeners.remove(&listener);
    }

    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        self.start_request(vi, local, remote, ours);
        Ok(())
    }

    fn request_peer(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        self.start_peer(vi, local, remote, ours);
        Ok(())
    }

    fn cancel(&mut self, vi: Vi) {
        let mut hub = self.hub.lock();
        let ours = |r: &RequestRecord| (r.from_nic, r.from_vi) == (self.id, vi);
        let ids: Vec<RequestId> = hub.requests.iter().filter(|(_, r)| ours(r)).map(|(id, _)| *id).collect();
        for id in ids {
            hub.take_request(id);
        }
        hub.peers.retain(|p| (p.nic, p.vi) != (self.id, vi));
        let of_it = |e: &Event| matches!(e, Event::Established { vi: v, .. } | Event::Refused { vi: v, .. } if *v == vi);
        let (stale, rest) = match hub.nics.get_mut(&self.id) {
            Some(nic) => std::mem::take(&mut nic.events).into_iter().partition(of_it),
            None => (VecDeque::new(), VecDeque::new()),
        };
        if let Some(nic) = hub.nics.get_mut(&self.id) {
            nic.events = rest;
        }
        drop(hub);
        drop(stale); // an endpoint in it tells its peer, which takes the hub's lock
    }

    fn accept(
        &mut self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error> {
        self.accept_request(request, vi, ours)
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        self.reject_request(request, private_data)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.hub.lock().nics.get_mut(&self.id)?.events.pop_front()
    }

    fn ready(&mut self, into: &mut Vec<Vi>) {
        if let Some(nic) = self.hub.lock().nics.get_mut(&self.id) {
            into.append(&mut nic.ready);
        }
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let mut hub = self.hub.lock();
        let gone = hub.nics.remove(&self.id);
        hub.listeners.retain(|_, l| l.nic != self.id);
        hub.peers.retain(|p| p.nic != self.id);
        let orphans: Vec<RequestId> =
            hub.requests.iter().filter(|(_, r)| r.to_nic == self.id).map(|(id, _)| *id).collect();
        for id in orphans {
            let Some(r) = hub.requests.remove(&id) else { continue };
            if let Some(nic) = hub.nics.get_mut(&r.from_nic) {
                nic.tell(Event::Refused {
                    vi: r.from_vi,
                    error: Error::NoMatch("a NIC that was closed".into()),
                });
            }
        }
        drop(hub);
        drop(gone); // an endpoint not yet fetched tells its peer, which takes the hub's lock
    }
}
