//! The provider object of one NIC over both ways. Every call goes to the one that has to do with it, or to both.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use viaduct_job::HostId;
use viaduct_os::runtime_dir;
use viaduct_os::segment::Segment;
use viaduct_via::provider::{Endpoint, Event, ListenId, Provider, RequestId, SharedMemory, Signal, Sleeper};
use viaduct_via::{
    CounterSlot, Error, MemHandle, NetAddress, NicAttributes, Reach, RegionInfo, RemoteAttributes, Vi,
};

use super::connect::{Whereabouts, bare, whereabouts};
use crate::config::{Config, OfiConfig};
use crate::ofi::{self, Ofi, Paced, Parts};
use crate::shm;

/// Tells requests of the network from those of shared memory.
const NETWORK: u64 = 1 << 63;

pub(super) struct Auto {
    shm: Box<dyn Provider>,
    /// Opened when it is first needed.
    ofi: Option<Ofi>,
    config: OfiConfig,
    /// Listeners are for peers of this host, unless their address names one.
    local_only: bool,
    sleeper: Arc<Paced>,
    /// For a network that comes later.
    regions: HashMap<u32, RegionInfo>,
    listening: HashMap<ListenId, Both>,
    next: u64,
}

/// Where an address is listened at.
struct Both {
    shm: ListenId,
    ofi: Option<ListenId>,
}

impl Auto {
    pub(super) fn open(config: &Config) -> Result<Auto, Error> {
        let mut local = crate::local(config)?;
        local.host = config.ofi.host.clone();
        if let Some(host) = &config.ofi.host {
            // Processes of another host of this name or that do not meet here, though they share the machine.
            let folder = runtime_dir::runtime_dir(local.runtime_dir.as_deref())?;
            let id = HostId::named(host).to_string();
            local.runtime_dir = Some(folder.join(format!("host-{}", &id[..8])));
        }
        let shm = shm::open(local)?;
        let sleeper = Arc::new(Paced::new(shm.sleeper()));
        Ok(Auto {
            shm,
            ofi: None,
            config: config.ofi.clone(),
            local_only: config.local_only,
            sleeper,
            regions: HashMap::new(),
            listening: HashMap::new(),
            next: 0,
        })
    }

    /// The network, opened if it was not.
    fn network(&mut self) -> Result<&mut Ofi, Error> {
        if self.ofi.is_none() {
            let parts = Parts {
                signal: self.shm.signal(),
                sleeper: self.sleeper.clone(),
                counters: self.shm.counters(),
            };
            let mut ofi = ofi::open_with(self.config.clone(), parts)?;
            for (handle, region) in &self.regions {
                ofi.publish(MemHandle::from_number(*handle), region)?;
            }
            self.ofi = Some(ofi);
        }
        Ok(self.ofi.as_mut().expect("just opened"))
    }

    fn whereabouts(&self, address: &NetAddress) -> Result<Whereabouts, Error> {
        whereabouts(address, self.config.host.as_deref())
    }

    /// Listens at the network too, if others may come from there.
    fn listen_outside(&mut self, address: &NetAddress, backlog: usize) -> Result<Option<ListenId>, Error> {
        let asked_for = !address.host().is_empty();
        if !asked_for && (self.local_only || !self.config.has_token()) {
            return Ok(None);
        }
        match self.network() {
            Ok(network) => network.listen(address, backlog).map(Some),
            Err(error) if asked_for => Err(error),
            Err(error) => {
                tracing::warn!("{address} is reached on this host alone: {error}");
                Ok(None)
            }
        }
    }

    /// A piece of news of shared memory, in our own numbers.
    fn heard_here(&self, event: Event) -> Event {
        match event {
            Event::Incoming { listener, request, from, remote, reach } => {
                let listener = self.listener(|both| both.shm == listener);
                Event::Incoming { listener, request, from, remote, reach }
            }
            other => other,
        }
    }

    /// A piece of news of the network, in our own numbers.
    fn heard_there(&self, event: Event) -> Event {
        match event {
            Event::Incoming { listener, request, from, remote, reach } => {
                let listener = self.listener(|both| both.ofi == Some(listener));
                Event::Incoming { listener, request: RequestId(request.0 | NETWORK), from, remote, reach }
            }
            other => other,
        }
    }

    /// The number of a listener; of one that is gone, a number that is never given out.
    fn listener(&self, is_it: impl Fn(&Both) -> bool) -> ListenId {
        self.listening.iter().find(|(_, both)| is_it(both)).map_or(ListenId(u64::MAX), |(id, _)| *id)
    }
}

/// The provider of a request, with the number that it knows it by.
enum Asked {
    Here(RequestId),
    There(RequestId),
}

impl Asked {
    fn of(request: RequestId) -> Asked {
        let own = RequestId(request.0 & !NETWORK);
        if request.0 & NETWORK == 0 { Asked::Here(own) } else { Asked::There(own) }
    }
}

// SAFETY: memory and regions go to the two providers as they came.
unsafe impl Provider for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn attributes(&self) -> NicAttributes {
        // What shared memory offers, both offer, but for the number of VIs; see the test.
        NicAttributes { name: "auto".into(), max_vi: ofi::MAX_VI, beyond_host: true, ..self.shm.attributes() }
    }

    fn counters(&self) -> CounterSlot {
        self.shm.counters()
    }

    fn signal(&self) -> Arc<Signal> {
        self.shm.signal()
    }

    fn sleeper(&self) -> Arc<dyn Sleeper> {
        self.sleeper.clone()
    }

    fn allocate(&mut self, len: usize, align: usize) -> Result<SharedMemory, Error> {
        self.shm.allocate(len, align)
    }

    fn share(&mut self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error> {
        self.shm.share(segment, range)
    }

    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error> {
        self.shm.publish(handle, region)?;
        self.regions.insert(handle.number(), *region);
        match &mut self.ofi {
            Some(ofi) => ofi.publish(handle, region),
            None => Ok(()),
        }
    }

    fn withdraw(&mut self, handle: MemHandle) {
        self.regions.remove(&handle.number());
        if let Some(ofi) = &mut self.ofi {
            ofi.withdraw(handle);
        }
        self.shm.withdraw(handle);
    }

    fn reach(&self, remote: &NetAddress) -> Reach {
        match self.whereabouts(remote) {
            Ok(Whereabouts::Here(name)) => self.shm.reach(&name),
            _ => Reach::Messages,
        }
    }

    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        let shm = self.shm.listen(&bare(address)?, backlog)?;
        let ofi = self.listen_outside(address, backlog).inspect_err(|_| self.shm.unlisten(shm))?;
        self.next += 1;
        let id = ListenId(self.next);
        self.listening.insert(id, Both { shm, ofi });
        Ok(id)
    }

    fn set_waiting(&mut self, listener: ListenId, waiting: bool) {
        let Some(both) = self.listening.get(&listener) else { return };
        self.shm.set_waiting(both.shm, waiting);
        if let (Some(ofi), Some(id)) = (&mut self.ofi, both.ofi) {
            ofi.set_waiting(id, waiting);
        }
    }

    fn unlisten(&mut self, listener: ListenId) {
        let Some(both) = self.listening.remove(&listener) else { return };
        self.shm.unlisten(both.shm);
        if let (Some(ofi), Some(id)) = (&mut self.ofi, both.ofi) {
            ofi.unlisten(id);
        }
    }

    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        match self.whereabouts(remote)? {
            Whereabouts::Here(name) => self.shm.request(vi, local, &name, ours),
            Whereabouts::There => self.network()?.request(vi, local, remote, ours),
        }
    }

    fn request_peer(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        match self.whereabouts(remote)? {
            Whereabouts::Here(remote) => self.shm.request_peer(vi, &bare(local)?, &remote, ours),
            Whereabouts::There => self.network()?.request_peer(vi, local, remote, ours),
        }
    }

    fn cancel(&mut self, vi: Vi) {
        self.shm.cancel(vi);
        if let Some(ofi) = &mut self.ofi {
            ofi.cancel(vi);
        }
    }

    fn accept(
        &mut self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error> {
        match (Asked::of(request), &mut self.ofi) {
            (Asked::There(id), Some(ofi)) => ofi.accept(id, vi, ours),
            (Asked::Here(id) | Asked::There(id), _) => self.shm.accept(id, vi, ours),
        }
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        match (Asked::of(request), &mut self.ofi) {
            (Asked::There(id), Some(ofi)) => ofi.reject(id, private_data),
            (Asked::Here(id) | Asked::There(id), _) => self.shm.reject(id, private_data),
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.shm.next_event() {
            return Some(self.heard_here(event));
        }
        let event = self.ofi.as_mut()?.next_event()?;
        Some(self.heard_there(event))
    }

    fn ready(&mut self, into: &mut Vec<Vi>) {
        self.shm.ready(into);
        if let Some(ofi) = self.ofi.as_mut().filter(|ofi| ofi.has_connections()) {
            ofi.ready(into);
        }
    }
}
