//! Connection set-up on a hub: everything is decided inside the call that asks.

use std::sync::Arc;

use viaduct_via::provider::{Endpoint, Event, ListenId, RequestId};
use viaduct_via::{Error, NetAddress, Reach, RemoteAttributes, Vi};

use super::nic::Loopback;
use super::vi::{LoopbackVi, Side};
use super::{HubState, ListenRecord, PeerRecord, RequestRecord};
use crate::backlog::{Room, room};
use crate::here::check_listens_here;
use crate::mismatch;

impl Loopback {
    pub(super) fn start_listening(&self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        check_listens_here(address)?;
        let mut hub = self.hub.lock();
        if hub.listeners.values().any(|l| l.address == *address) {
            return Err(Error::AddressInUse(address.to_string()));
        }
        let id = ListenId(hub.number());
        let record =
            ListenRecord { nic: self.id, address: address.clone(), backlog, waiting: false, queued: 0 };
        hub.listeners.insert(id, record);
        Ok(id)
    }

    pub(super) fn start_request(
        &self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) {
        let mut hub = self.hub.lock();
        let hub = &mut *hub;
        let id = RequestId(hub.number());
        let found = hub.listeners.iter_mut().find(|(_, l)| l.address == *remote);
        let there = found.as_ref().map_or(Room::NoListener, |(_, l)| room(l.queued, l.backlog, l.waiting));
        let (Some((listener, l)), Room::ForOneMore) = (found, there) else {
            let error = match there {
                Room::Full => Error::backlog_full(remote),
                _ => Error::NoMatch(remote.to_string()),
            };
            if let Some(nic) = hub.nics.get_mut(&self.id) {
                nic.tell(Event::Refused { vi, error });
            }
            return;
        };
        l.queued += 1;
        let record = RequestRecord {
            from_nic: self.id,
            from_vi: vi,
            to_nic: l.nic,
            listener: *listener,
            attributes: ours.clone(),
            counts: true,
        };
        hub.requests.insert(id, record);
        let from = local.cloned().unwrap_or_else(|| unnamed(self.id));
        if let Some(nic) = hub.nics.get_mut(&l.nic) {
            let (listener, remote, reach) = (*listener, ours.clone(), Reach::Messages);
            nic.tell(Event::Incoming { listener, request: id, from, remote, reach });
        }
    }

    pub(super) fn start_peer(
        &self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) {
        let mut hub = self.hub.lock();
        let crossed = hub.peers.iter().position(|p| p.local == *remote && p.remote == *local);
        let Some(at) = crossed else {
            hub.peers.push(PeerRecord {
                nic: self.id,
                vi,
                local: local.clone(),
                remote: remote.clone(),
                attributes: ours.clone(),
            });
            return;
        };
        let other = hub.peers.swap_remove(at);
        if let Some(error) = mismatch(ours, &other.attributes) {
            for (nic, vi, error) in [(self.id, vi, error.0), (other.nic, other.vi, error.1)] {
                if let Some(nic) = hub.nics.get_mut(&nic) {
                    nic.tell(Event::Refused { vi, error });
                }
            }
            return;
        }
        let link = hub.link();
        let (ours, theirs) = (ours.clone(), other.attributes);
        let a = self.endpoint(&link, Side::A, &ours, other.nic, other.vi, &theirs);
        let b = self.endpoint(&link, Side::B, &theirs, self.id, vi, &ours);
        tell_established(&mut hub, self.id, vi, a, theirs);
        tell_established(&mut hub, other.nic, other.vi, b, ours);
    }

    pub(super) fn accept_request(
        &self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error> {
        let mut hub = self.hub.lock();
        let r = hub.take_request(request).ok_or(Error::NotReachable("the client gave up".into()))?;
        let link = hub.link();
        let client = self.endpoint(&link, Side::A, &r.attributes, self.id, vi, ours);
        let server = self.endpoint(&link, Side::B, ours, r.from_nic, r.from_vi, &r.attributes);
        tell_established(&mut hub, r.from_nic, r.from_vi, client, ours.clone());
        Ok(server)
    }

    pub(super) fn reject_request(&self, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        let mut hub = self.hub.lock();
        let Some(r) = hub.take_request(request) else { return Ok(()) };
        if let Some(nic) = hub.nics.get_mut(&r.from_nic) {
            nic.tell(Event::Refused { vi: r.from_vi, error: Error::Rejected(private_data.to_vec()) });
        }
        Ok(())
    }

    fn endpoint(
        &self,
        link: &Arc<super::vi::Link>,
        side: Side,
        ours: &RemoteAttributes,
        peer_nic: u64,
        peer_vi: Vi,
        theirs: &RemoteAttributes,
    ) -> Box<dyn Endpoint> {
        Box::new(LoopbackVi::new(
            self.hub.clone(),
            link.clone(),
            side,
            ours.reliability,
            (peer_nic, peer_vi),
            theirs.ptag,
        ))
    }
}

fn tell_established(
    hub: &mut HubState,
    nic: u64,
    vi: Vi,
    endpoint: Box<dyn Endpoint>,
    remote: RemoteAttributes,
) {
    if let Some(nic) = hub.nics.get_mut(&nic) {
        nic.tell(Event::Established { vi, endpoint, remote });
    }
}

/// The address of a client that named none.
fn unnamed(nic: u64) -> NetAddress {
    NetAddress::local(&format!("nic-{nic}")).expect("a short name")
}
