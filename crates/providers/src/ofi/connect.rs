//! Connection set-up: every connection of VIs is one of libfabric's, and begins with a greeting (`greeting`).
//!
//! ```text
//!   client                                          server
//!   Dialling  fi_connect ────────────────────────▶  Arriving   fi_accept, for any client
//!   Greeting  REQUEST ───────────────────────────▶
//!             ◀─────────────────────── CHALLENGE    Proving
//!   Asking    PROOF ─────────────────────────────▶  Asked      its owner sees the request
//!   Open      ◀────────────────────────── ACCEPT    Open
//! ```
//!
//! This file is what both sides do. [`client`] and [`server`] have the steps of each, [`peer`] those of two NICs that
//! ask for each other; [`lookup`] asks name servers.

mod client;
mod lookup;
mod peer;
mod server;

pub(super) use peer::waits;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use viaduct_os::clock;
use viaduct_via::provider::{Event, ListenId, RequestId};
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};

use super::endpoint::Passive;
use super::engine::Engine;
use super::fabric::News;
use super::flow::{Flow, Window};
use super::greeting::{Client, Server};
use super::lane::Lane;
use super::nic::Core;
use super::place::Claim;
use super::wire::{HEAD, Hello, step};

/// A connection whose ends have not proved themselves to each other by then is dropped, counted from its beginning.
pub(super) const GREETING_NS: u64 = 5_000_000_000;
/// How long a peer that is not there yet is left alone.
pub(super) const RETRY_NS: u64 = 5_000_000;

/// How far a connection has come.
pub(super) enum Stage {
    /// Client: libfabric connects.
    Dialling { call: Box<Call> },
    /// Client: the request is out.
    Greeting { call: Box<Call>, client: Box<Client> },
    /// Client: the proof is out.
    Asking { call: Box<Call> },
    /// Server: nothing has come yet.
    Arriving,
    /// Server: the challenge is out.
    Proving { server: Box<Server> },
    /// Server: a request waits for its answer.
    Asked { request: RequestId, listener: ListenId, counts: bool, hello: Box<Hello> },
    /// It stands.
    Open,
    /// We said our last word, and wait for the other end to have read it.
    Closing { until: u64 },
}

impl Stage {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Stage::Open)
    }

    /// A call of ours.
    fn call(&self) -> Option<&Call> {
        match self {
            Stage::Dialling { call } | Stage::Greeting { call, .. } | Stage::Asking { call } => Some(call),
            _ => None,
        }
    }
}

/// A request of ours.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) vi: Vi,
    /// Tells it from other requests of the same VI.
    pub(super) number: u64,
    pub(super) from: NetAddress,
    pub(super) remote: NetAddress,
    pub(super) attributes: RemoteAttributes,
    /// Asks for a peer that asks for us.
    pub(super) peer: bool,
    /// A peer that is being tried.
    pub(super) trying: bool,
    /// Where it is tried now, and where next.
    pub(super) place: Option<SocketAddr>,
    pub(super) places: VecDeque<SocketAddr>,
    /// It was sent elsewhere once.
    pub(super) redirected: bool,
}

/// A port at which the NIC can be reached. It stays until the NIC closes: libfabric's tcp provider (1.17) follows a
/// freed pointer if a passive endpoint is closed while a client is half connected to it, and any stranger may be.
pub(super) struct Port {
    pub(super) passive: Passive,
    pub(super) ip: IpAddr,
    pub(super) port: u16,
}

/// An address that a listener or a waiting peer of this NIC has.
pub(super) struct Listening {
    /// The name is ours as long as this is.
    pub(super) _claim: Claim,
    pub(super) address: NetAddress,
    pub(super) listen: Option<Listen>,
    /// Peer requests that wait here.
    pub(super) peers: usize,
}

pub(super) struct Listen {
    pub(super) id: ListenId,
    pub(super) backlog: usize,
    pub(super) waiting: bool,
    pub(super) queued: usize,
}

impl Lane {
    /// The connection stands: both ends know what the other has room for.
    pub(super) fn open(&mut self, core: &Core, vi: Vi, theirs: Window, frame: usize) {
        self.flow = Flow::new(core.window(), theirs);
        self.room = frame - HEAD;
        self.stranger = false;
        self.copied = self.frames.send_size.min(frame) - HEAD;
        self.vi = Some(vi);
        self.stage = Stage::Open;
    }
}

impl Lane {
    /// When it ends unless it gets on, whatever its other end says until then.
    fn deadline(&self) -> Option<u64> {
        let greeted = self.born + GREETING_NS;
        match self.stage {
            Stage::Closing { until } if self.stranger => Some(until.min(greeted)),
            Stage::Closing { until } => Some(until),
            Stage::Dialling { .. } | Stage::Greeting { .. } | Stage::Arriving | Stage::Proving { .. } => {
                Some(greeted)
            }
            Stage::Open | Stage::Asking { .. } | Stage::Asked { .. } => None,
        }
    }
}

impl Engine {
    /// libfabric has news.
    pub(super) fn on_news(&mut self, core: &Arc<Core>, news: News) {
        match news {
            News::Asked { at, info } => self.on_client(core, at, &info),
            News::Connected { ep } => {
                if let Some(id) = self.lane_of(ep) {
                    self.on_connected(core, id);
                    self.touch(id);
                }
            }
            News::Over { ep, errno } => {
                // What arrived before the end is taken first.
                self.progress(core);
                if let Some(id) = self.lane_of(ep) {
                    self.end_lane(core, id, errno);
                }
            }
        }
    }

    /// A greeting came.
    pub(super) fn on_greeting(&mut self, core: &Arc<Core>, id: u32, hello: Result<Hello, Error>) {
        let hello = match hello {
            Ok(hello) => hello,
            Err(error) => return self.bad_greeting(core, id, error),
        };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match (&lane.stage, hello.step()) {
            (Stage::Arriving, step::REQUEST | step::PEER_REQUEST) => self.on_request(core, id, hello),
            (Stage::Proving { .. }, step::PROOF) => self.on_proof(core, id, &hello),
            (Stage::Greeting { .. }, step::CHALLENGE) => self.on_challenge(core, id, &hello),
            (Stage::Asking { .. }, _) => self.on_answer(core, id, &hello),
            // A client out of step is turned away.
            _ => self.bad_greeting(core, id, Error::Protocol("a greeting out of turn")),
        }
    }

    /// A greeting that makes no sense: a request of ours fails with the reason, a client hears of another version alone.
    fn bad_greeting(&mut self, core: &Arc<Core>, id: u32, error: Error) {
        let Some(lane) = self.lanes.get(&id) else { return };
        if let Some(call) = lane.stage.call().cloned() {
            self.remove(id);
            self.refuse_call(core, &call, error);
        } else if matches!(error, Error::VersionMismatch { .. }) {
            self.say_last(core, id, &Hello::new(step::WRONG_VERSION));
        } else {
            self.remove(id);
        }
    }

    /// Says something, and waits for the other end to have read it.
    pub(super) fn say_last(&mut self, core: &Core, id: u32, hello: &Hello) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.say(hello);
        lane.stage = Stage::Closing { until: clock::now_ns() + core.silence_ns() };
        self.touch(id);
    }

    /// A connection is over, for libfabric at least.
    pub(super) fn end_lane(&mut self, core: &Arc<Core>, id: u32, errno: i32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match &lane.stage {
            Stage::Open => {
                lane.lost();
                self.touch(id);
            }
            Stage::Dialling { call } | Stage::Greeting { call, .. } | Stage::Asking { call } => {
                let call = (**call).clone();
                self.remove(id);
                self.try_next(core, call, errno);
            }
            Stage::Asked { .. } => self.drop_request(id),
            Stage::Arriving | Stage::Proving { .. } | Stage::Closing { .. } => {
                self.remove(id);
            }
        }
    }

    /// Ends what has been silent for too long, and gives signs of life.
    pub(super) fn on_clock(&mut self, core: &Arc<Core>) {
        let now = clock::now_ns();
        let (silence, heartbeat) = (core.silence_ns(), core.heartbeat_ns());
        let ids: Vec<u32> = self.lanes.keys().copied().collect();
        for id in ids {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if lane.deadline().is_some_and(|end| now >= end) {
                self.end_lane(core, id, libc::ETIMEDOUT);
                continue;
            }
            let quiet = now.saturating_sub(lane.heard);
            match lane.stage {
                Stage::Closing { .. } => self.touch(id),
                Stage::Open | Stage::Asking { .. } | Stage::Asked { .. } => {
                    if quiet >= silence && lane.end.is_none() {
                        self.end_lane(core, id, libc::ETIMEDOUT);
                    } else if now.saturating_sub(lane.said) >= heartbeat && lane.end.is_none() {
                        lane.signal(super::wire::Kind::Alive);
                    }
                }
                _ => {}
            }
        }
        if self.retry.is_some_and(|at| now >= at) {
            self.retry = None;
            self.retry_peers(core);
        }
        // Connections that come meanwhile are looked after, too.
        self.look_next = now + self.sleep_ns(core).unwrap_or(heartbeat / 2);
        self.flush_touched(core);
    }

    /// How long the control thread may sleep.
    pub(super) fn sleep_ns(&self, core: &Core) -> Option<u64> {
        let now = clock::now_ns();
        let retry = self.retry.map(|at| at.saturating_sub(now).max(1_000_000));
        let lanes = (!self.lanes.is_empty()).then(|| (core.heartbeat_ns() / 2).max(1_000_000));
        let ends = self.lanes.values().filter_map(Lane::deadline).min();
        let ends = ends.map(|at| at.saturating_sub(now).max(1_000_000));
        retry.into_iter().chain(lanes).chain(ends).min()
    }

    /// The NIC closes: requests are answered, names are given back, connections end.
    pub(super) fn close_all(&mut self, core: &Arc<Core>) {
        // Clients that have just arrived are taken in, so that they can be sent away.
        self.events(core);
        self.listening.clear();
        self.calls.clear();
        self.wants.clear();
        self.asked.clear();
        let ids: Vec<u32> = self.lanes.keys().copied().collect();
        for id in ids {
            let Some(lane) = self.lanes.get(&id) else { continue };
            match lane.stage {
                Stage::Asked { .. } => self.say_last(core, id, &Hello::new(step::NO_MATCH)),
                // An endpoint that the owner has not fetched closes it when it is dropped.
                Stage::Open | Stage::Closing { .. } => {}
                _ => drop(self.remove(id)),
            }
        }
        self.flush_touched(core);
    }

    /// Tells the owner of something.
    pub(super) fn tell(&mut self, core: &Core, event: Event) {
        self.events.push_back(event);
        core.signal.post_events();
        core.ring();
    }
}
