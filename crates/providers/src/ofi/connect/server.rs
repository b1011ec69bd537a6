//! The asked side of connection set-up, and the addresses it listens on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use viaduct_os::error::OsError;
use viaduct_via::provider::{Event, ListenId, RequestId};
use viaduct_via::{Error, NetAddress, Reach, Reliability, RemoteAttributes, Vi};

use super::{Listen, Listening, Port, Stage};
use crate::backlog::{Room, room};
use crate::ofi::abi::FI_EADDRINUSE;
use crate::ofi::engine::Engine;
use crate::ofi::greeting::Server;
use crate::ofi::info::Info;
use crate::ofi::nic::Core;
use crate::ofi::vi::OfiVi;
use crate::ofi::wire::{Hello, step};
use crate::unseen_requests;

/// Connections at once that have not proved to be of this job.
const MOST_STRANGERS: usize = 128;

impl Engine {
    pub(in crate::ofi) fn listen(
        &mut self,
        core: &Core,
        address: &NetAddress,
        at: (Option<IpAddr>, Option<u16>),
        backlog: usize,
    ) -> Result<ListenId, Error> {
        let id = ListenId(self.number());
        let listen = Listen { id, backlog, waiting: false, queued: 0 };
        let known = |l: &&mut Listening| l.address.discriminator() == address.discriminator();
        match self.listening.values_mut().find(known) {
            Some(l) if l.listen.is_some() => return Err(Error::AddressInUse(address.to_string())),
            Some(l) => l.listen = Some(listen),
            None => {
                let mut bound = self.bind(core, address, at)?;
                bound.listen = Some(listen);
                self.listening.insert(id.0, bound);
            }
        }
        Ok(id)
    }

    /// Takes a name, and tells others on this host where it is. `at` are number and port of the address ([`place::own`]).
    ///
    /// [`place::own`]: crate::ofi::place::own
    pub(super) fn bind(
        &mut self,
        core: &Core,
        address: &NetAddress,
        (ip, wanted): (Option<IpAddr>, Option<u16>),
    ) -> Result<Listening, Error> {
        let mut claim = core.names.claim(address)?;
        let ip = ip.unwrap_or_else(|| core.bind_ip());
        let port =
            match self.ports.iter().find(|p| p.ip == ip && (wanted.is_none() || wanted == Some(p.port))) {
                Some(port) => port.port,
                None => self.open_port(core, address, ip, wanted)?,
            };
        claim.announce(ip, port)?;
        Ok(Listening { _claim: claim, address: address.clone(), listen: None, peers: 0 })
    }

    /// Opens the port that is wanted, else the first free one of the job's, else any.
    fn open_port(
        &mut self,
        core: &Core,
        address: &NetAddress,
        ip: IpAddr,
        wanted: Option<u16>,
    ) -> Result<u16, Error> {
        let ports: Vec<u16> =
            wanted.map_or_else(|| core.names.ports().chain([0]).collect(), |port| vec![port]);
        let mut last = FI_EADDRINUSE;
        for port in ports {
            match self.fabric.listen(SocketAddr::new(ip, port)) {
                Ok(passive) => {
                    let port = passive.address().map_or(port, |at| at.port());
                    self.ports.push(Port { passive, ip, port });
                    return Ok(port);
                }
                Err(errno) => last = errno,
            }
        }
        match last {
            FI_EADDRINUSE => {
                Err(Error::AddressInUse(format!("{address} (the port is taken by another program)")))
            }
            errno => Err(OsError::sys("listen", std::io::Error::from_raw_os_error(errno)).into()),
        }
    }

    pub(in crate::ofi) fn set_waiting(&mut self, id: ListenId, waiting: bool) {
        let Some(listen) = self.listen_mut(id) else { return };
        listen.waiting = waiting;
        if !waiting {
            return;
        }
        // A wait that begins takes one request more, however long the answers to the others take.
        listen.queued = 0;
        for lane in self.lanes.values_mut() {
            if let Stage::Asked { listener, counts, .. } = &mut lane.stage
                && *listener == id
            {
                *counts = false;
            }
        }
    }

    pub(in crate::ofi) fn unlisten(&mut self, core: &Arc<Core>, id: ListenId) {
        // Clients that have just arrived are taken in, and hear that the listener is gone.
        self.events(core);
        for listening in self.listening.values_mut() {
            if listening.listen.as_ref().is_some_and(|l| l.id == id) {
                listening.listen = None;
            }
        }
        self.drop_unused_names();
        for request in unseen_requests(&mut self.events, id) {
            if let Some((lane, _)) = self.take_asked(request) {
                self.say_last(core, lane, &Hello::new(step::NO_MATCH));
            }
        }
        self.flush_touched(core);
    }

    /// Names without listener and waiting peer are free again.
    pub(super) fn drop_unused_names(&mut self) {
        self.listening.retain(|_, l| l.listen.is_some() || l.peers > 0);
    }

    fn listen_mut(&mut self, id: ListenId) -> Option<&mut Listen> {
        self.listening.values_mut().filter_map(|l| l.listen.as_mut()).find(|l| l.id == id)
    }

    /// A client connects: it is taken in and has to prove itself.
    pub(super) fn on_client(&mut self, core: &Arc<Core>, at: usize, info: &Info) {
        let Some(door) = self.ports.iter().position(|p| p.passive.key() == at) else { return };
        // A crowd does not keep out a client that speaks: the oldest stranger leaves, also one that was refused already
        // and does not hang up.
        let strangers = || self.lanes.values().filter(|lane| lane.stranger);
        if strangers().count() >= MOST_STRANGERS
            && let Some(oldest) = strangers().min_by_key(|lane| lane.born).map(|lane| lane.id)
        {
            self.remove(oldest);
        }
        let nothing = RemoteAttributes {
            reliability: Reliability::Unreliable,
            max_transfer_size: 0,
            qos: 0,
            rdma_write: false,
            rdma_read: false,
            ptag: viaduct_via::ProtectionTag::from_raw(viaduct_via::handle::RawHandle {
                index: u32::MAX,
                generation: 0,
            }),
            private_data: Vec::new(),
        };
        let made = self.make_lane(core, info, Stage::Arriving, nothing);
        let port = self.ports[door].port;
        let taken = match made {
            Ok(id) => match self.lanes.get_mut(&id) {
                Some(lane) => {
                    lane.port = port;
                    lane.ep.accept().map_err(|_| Some(id))
                }
                None => Ok(()),
            },
            Err(error) => {
                tracing::warn!("ofi: a connection could not be taken: {error}");
                self.ports[door].passive.turn_away(info);
                Err(None)
            }
        };
        if let Err(Some(id)) = taken {
            self.remove(id);
        }
    }

    /// A request: before anything is looked up, its sender has to prove to be of this job.
    pub(super) fn on_request(&mut self, core: &Arc<Core>, id: u32, request: Hello) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if !matches!(lane.stage, Stage::Arriving) {
            return;
        }
        let (server, challenge) = Server::new(request, &core.token, lane.port);
        lane.stage = Stage::Proving { server: Box::new(server) };
        lane.say(&challenge);
        self.touch(id);
    }

    /// The client's proof: now its request is looked at.
    pub(super) fn on_proof(&mut self, core: &Arc<Core>, id: u32, proof: &Hello) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let stage = std::mem::replace(&mut lane.stage, Stage::Arriving);
        let Stage::Proving { server } = stage else { return };
        let hello = match server.check_proof(proof, &core.token) {
            Ok(hello) => hello,
            Err(error) => {
                tracing::warn!("ofi: a request was turned away: {error}");
                return self.say_last(core, id, &Hello::new(step::NOT_OF_THIS_JOB));
            }
        };
        lane.stranger = false;
        if let Err(error) = lane.grow(&self.fabric, &core.budget) {
            tracing::warn!("ofi: a request was turned away for want of room: {error}");
            return self.say_last(core, id, &Hello::new(step::EXHAUSTED));
        }
        let parsed = (|| {
            Ok::<_, Error>((
                hello.parties.to()?,
                hello.parties.from()?,
                hello.parties.attributes()?,
                hello.window()?,
            ))
        })();
        let Ok((to, from, theirs, _)) = parsed else {
            drop(self.remove(id));
            return;
        };
        let named = |l: &Listening| l.address.discriminator() == to.discriminator();
        if !self.listening.values().any(named)
            && let Some(place) = core.names.find(&to)
        {
            // Another NIC of this host has the name.
            let mut answer = Hello::new(step::ELSEWHERE);
            answer.set_port(place.port());
            return self.say_last(core, id, &answer);
        }
        if hello.step() == step::PEER_REQUEST {
            return self.on_peer_request(core, id, hello, &to, &from, &theirs);
        }
        let request = RequestId(self.number());
        let named = |l: &&mut Listening| l.address.discriminator() == to.discriminator();
        let here = self.listening.values_mut().find(named);
        let listen = here.and_then(|l| l.listen.as_mut());
        let there = listen.as_ref().map_or(Room::NoListener, |l| room(l.queued, l.backlog, l.waiting));
        let (Some(listen), Room::ForOneMore) = (listen, there) else {
            let step = if there == Room::Full { step::FULL } else { step::NO_MATCH };
            return self.say_last(core, id, &Hello::new(step));
        };
        listen.queued += 1;
        let listener = listen.id;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.stage = Stage::Asked { request, listener, counts: true, hello: Box::new(hello) };
        }
        let (remote, reach) = (theirs, Reach::Messages);
        self.tell(core, Event::Incoming { listener, request, from, remote, reach });
    }

    /// Takes a request out of those that wait; its place in the backlog is free again.
    fn take_asked(&mut self, request: RequestId) -> Option<(u32, Box<Hello>)> {
        let asked = |stage: &Stage| matches!(stage, Stage::Asked { request: r, .. } if *r == request);
        let lane = self.lanes.values_mut().find(|l| asked(&l.stage))?;
        let id = lane.id;
        let stage = std::mem::replace(&mut lane.stage, Stage::Arriving);
        let Stage::Asked { listener, counts, hello, .. } = stage else { return None };
        if counts && let Some(listen) = self.listen_mut(listener) {
            listen.queued = listen.queued.saturating_sub(1);
        }
        Some((id, hello))
    }

    /// A client went away before it was answered.
    pub(super) fn drop_request(&mut self, id: u32) {
        let Some(Stage::Asked { request, .. }) = self.lanes.get(&id).map(|l| &l.stage) else { return };
        let request = *request;
        self.take_asked(request);
        self.remove(id);
        // The owner may have been told of it already; its accept will fail.
        self.events.retain(|e| !matches!(e, Event::Incoming { request: r, .. } if *r == request));
    }

    pub(in crate::ofi) fn accept(
        &mut self,
        core: &Arc<Core>,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<OfiVi, Error> {
        let gone = || Error::NotReachable("the client gave up".into());
        let (id, hello) = self.take_asked(request).ok_or_else(gone)?;
        self.accept_on(core, id, &hello, vi, ours).ok_or_else(gone)
    }

    /// Says yes: the connection stands.
    pub(super) fn accept_on(
        &mut self,
        core: &Arc<Core>,
        id: u32,
        hello: &Hello,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Option<OfiVi> {
        let lane = self.lanes.get_mut(&id)?;
        let (theirs, frame) = hello.window().ok()?;
        let mut answer = Hello::new(step::ACCEPT);
        answer.set_host(core.host);
        answer.parties.set_attributes(ours);
        answer.set_window(core.window(), core.config.frame);
        lane.ours = ours.clone();
        lane.say(&answer);
        lane.open(core, vi, theirs, frame);
        self.touch(id);
        Some(OfiVi::new(core.clone(), id))
    }

    pub(in crate::ofi) fn reject(&mut self, core: &Arc<Core>, request: RequestId, private: &[u8]) {
        let Some((id, _)) = self.take_asked(request) else { return };
        let mut answer = Hello::new(step::REJECT);
        answer.parties.set_private(private);
        self.say_last(core, id, &answer);
    }
}
