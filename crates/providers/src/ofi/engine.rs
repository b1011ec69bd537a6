//! The engine of one NIC: libfabric's queues, and all connections. The thread that holds its lock moves everything on.
//!
//! The owner of the NIC does so whenever it polls; while it does not, the control thread does, woken by the descriptors
//! of the queues. Both run the same steps, so it does not matter which is first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use viaduct_os::clock;
use viaduct_os::forgotten::{self, Forgotten};
use viaduct_os::poll::Watched;
use viaduct_via::provider::Event;
use viaduct_via::{Fault, RemoteAttributes, Vi};

use super::connect::{Call, Listening, Port, Stage};
use super::fabric::{BATCH, Done, Fabric};
use super::flow::SPARE;
use super::frames::Frames;
use super::info::Info;
use super::lane::{Lane, Operation};
use super::mem::Regions;
use super::nic::Core;
use super::wire::{Head, Hello, Kind};

/// Batches of completions in one go, so that a busy peer does not keep the caller without end.
const BATCHES: usize = 8;
/// Bytes of a buffer that frames are copied into when they cannot leave uncopied.
const COPIED: usize = 16 << 10;
/// How often the owner looks at the queue of events and at the clock: in a tight loop no other thread does.
const DUTIES_EVERY: u32 = 64;

pub(super) struct Engine {
    pub(super) lanes: HashMap<u32, Lane>,
    /// Lanes by what libfabric's events name them by.
    by_ep: HashMap<usize, u32>,
    pub(super) listening: HashMap<u64, Listening>,
    pub(super) ports: Vec<Port>,
    pub(super) regions: Regions,
    pub(super) events: VecDeque<Event>,
    pub(super) ready: Vec<Vi>,
    /// Whether a VI was polled since the model asked which are ready: then what came was fetched for all.
    pub(super) looked: bool,
    /// Our requests that have neither been answered nor given up, by VI, with the number of the request.
    pub(super) asked: HashMap<Vi, u64>,
    /// Requests whose host waits to be looked up by name, and how many are being looked up.
    pub(super) calls: VecDeque<Call>,
    pub(super) looking_up: usize,
    /// Peers that we ask for, with the addresses crossed.
    pub(super) wants: Vec<Call>,
    /// When peers that were not there are tried again.
    pub(super) retry: Option<u64>,
    /// When the owner looks at the clock again, if not the control thread before.
    pub(super) look_next: u64,
    pub(super) next: u64,
    next_lane: u32,
    polls: u32,
    done: Vec<Done>,
    touched: Vec<u32>,
    /// The list of descriptors that the control thread sleeps on, and room to compare it.
    pub(super) watched: Vec<Watched>,
    scratch: Vec<Watched>,
    /// Closed after all endpoints.
    pub(super) fabric: Fabric,
    /// Last, when libfabric has closed what it knows of.
    pub(super) forgotten: LeftOver,
}

/// Sockets that libfabric lost when the NIC closed.
#[derive(Default)]
pub(super) struct LeftOver(Vec<Forgotten>);

impl Drop for LeftOver {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Forgotten::close);
    }
}

impl Engine {
    pub(super) fn new(fabric: Fabric) -> Engine {
        Engine {
            lanes: HashMap::new(),
            by_ep: HashMap::new(),
            listening: HashMap::new(),
            ports: Vec::new(),
            regions: Regions::default(),
            events: VecDeque::new(),
            ready: Vec::new(),
            looked: false,
            asked: HashMap::new(),
            calls: VecDeque::new(),
            looking_up: 0,
            wants: Vec::new(),
            retry: None,
            look_next: 0,
            next: 0,
            next_lane: 0,
            polls: 0,
            done: Vec::with_capacity(BATCH),
            touched: Vec::new(),
            watched: Vec::new(),
            scratch: Vec::new(),
            fabric,
            forgotten: LeftOver::default(),
        }
    }

    /// Clients that are half connected to a port of ours are lost by libfabric when the port closes: their connections are
    /// reset. There are no lanes any more, and no new ones are made.
    pub(super) fn forget_half_connected(&mut self) {
        let lost = |port: &Port| forgotten::forgotten_at(port.ip, port.port);
        self.forgotten.0 = self.ports.iter().flat_map(lost).collect();
        self.forgotten.0.iter_mut().for_each(Forgotten::reset);
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The owner looks.
    pub(super) fn poll(&mut self, core: &Arc<Core>) {
        core.pace.polled();
        self.progress(core);
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(DUTIES_EVERY) {
            self.events(core);
            if clock::now_ns() >= self.look_next {
                self.on_clock(core);
            }
        }
    }

    /// Whether the control thread sleeps on other descriptors than there are now, or what it waits for has left them.
    pub(super) fn is_list_stale(&mut self) -> bool {
        if !self.fabric.list(&mut self.scratch) {
            return true;
        }
        let same = |(a, b): (&Watched, &Watched)| a.fd == b.fd && a.events == b.events;
        self.scratch.len() != self.watched.len() || !self.scratch.iter().zip(&self.watched).all(same)
    }

    /// Notes how many lanes there are, for those that ask without the lock.
    fn count(&self, core: &Core) {
        core.lanes.store(self.lanes.len(), Ordering::Relaxed);
    }

    /// Takes what libfabric has finished, and sends what that made possible. False if there may be more.
    pub(super) fn progress(&mut self, core: &Arc<Core>) -> bool {
        let mut left = BATCHES;
        loop {
            let fetched = self.fetch(core);
            left = left.saturating_sub(1);
            if fetched == BATCH && left > 0 {
                continue;
            }
            // What was sent now may be done at once.
            let sent = self.flush_touched(core);
            if left == 0 || fetched < BATCH && !sent {
                return left > 0;
            }
        }
    }

    fn fetch(&mut self, core: &Arc<Core>) -> usize {
        let mut done = std::mem::take(&mut self.done);
        self.fabric.read_cq(&mut done);
        let fetched = done.len();
        for entry in done.drain(..) {
            self.on_done(core, &entry);
        }
        self.done = done;
        fetched
    }

    /// Takes libfabric's events: connections that come, stand or end.
    pub(super) fn events(&mut self, core: &Arc<Core>) {
        while let Some(news) = self.fabric.read_eq() {
            self.on_news(core, news);
        }
        self.flush_touched(core);
    }

    /// Sends what is due on every lane that something happened to, and tells the owner. Whether a lane has something under
    /// way whose end will be reported.
    pub(super) fn flush_touched(&mut self, core: &Arc<Core>) -> bool {
        self.count(core);
        if self.touched.is_empty() {
            return false;
        }
        let (mut ring, mut sent) = (false, false);
        while let Some(id) = self.touched.pop() {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            sent |= lane.flush(&self.regions);
            if lane.news {
                lane.news = false;
                ring = true;
                if lane.end.is_some() {
                    core.signal.post_events();
                }
                if let Some(vi) = lane.vi.filter(|_| lane.armed)
                    && !self.ready.contains(&vi)
                {
                    self.ready.push(vi);
                }
            }
            if lane.end == Some(Fault::Lost) && !lane.stage.is_open() {
                self.end_lane(core, id, 0);
            }
        }
        if ring {
            core.ring();
        }
        sent
    }

    /// Something happened to a lane: it is looked at before the lock is given up.
    pub(super) fn touch(&mut self, id: u32) {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    pub(super) fn lane_of(&self, ep: usize) -> Option<u32> {
        self.by_ep.get(&ep).copied()
    }

    /// A lane with buffers posted, on an endpoint for this address or request. One of a client that came by itself has
    /// buffers for greetings alone.
    pub(super) fn make_lane(
        &mut self,
        core: &Core,
        info: &Info,
        stage: Stage,
        ours: RemoteAttributes,
    ) -> Result<u32, viaduct_via::Error> {
        let ep = self.fabric.endpoint(info)?;
        let count = core.config.window + core.config.window + SPARE;
        let sizes = (core.config.frame, core.config.frame.min(COPIED));
        let frames = match stage {
            Stage::Arriving => Frames::small(&self.fabric, sizes, count, count, &core.budget)?,
            _ => Frames::full(&self.fabric, sizes, count, count, &core.budget)?,
        };
        loop {
            self.next_lane = self.next_lane.wrapping_add(1);
            if !self.lanes.contains_key(&self.next_lane) {
                break;
            }
        }
        let id = self.next_lane;
        let key = ep.key();
        let mut lane = Lane::new(id, ep, frames, stage, ours, clock::now_ns());
        lane.most_places = self.fabric.info.places();
        lane.inject = self.fabric.info.inject_size();
        lane.post_all()?;
        self.by_ep.insert(key, id);
        self.lanes.insert(id, lane);
        self.count(core);
        Ok(id)
    }

    /// Closes a lane.
    pub(super) fn remove(&mut self, id: u32) -> Option<Lane> {
        let lane = self.lanes.remove(&id)?;
        self.by_ep.remove(&lane.ep.key());
        lane.ep.shut_down();
        Some(lane)
    }

    fn on_done(&mut self, core: &Arc<Core>, done: &Done) {
        let Operation { lane: id, sends, buffer } = Operation::of(done.context);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
        if done.errno != 0 {
            if sends {
                lane.on_unsent(buffer);
            }
            lane.lost();
        } else if sends {
            lane.on_sent(buffer);
        } else {
            self.on_receive(core, id, buffer, done.len);
        }
    }

    /// A frame came.
    fn on_receive(&mut self, core: &Arc<Core>, id: u32, buffer: u16, len: usize) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.heard = clock::now_ns();
        let len = len.min(lane.frames.receive(usize::from(buffer)).1);
        // SAFETY: the receive is done, and posted again by `release` alone, after the last use of the bytes.
        let bytes = unsafe { lane.frames.arrived(usize::from(buffer), 0, len) };
        let checked = Head::parse(bytes).and_then(|(kind, head, rest)| {
            lane.check(kind, &head)?;
            Ok((kind, head, rest))
        });
        let taken = match checked {
            Err(e) => Err(e),
            Ok((kind, head, payload)) => match &lane.stage {
                Stage::Open => lane.on_frame(buffer, kind, head, payload, &self.regions),
                Stage::Closing { .. } => {
                    lane.release(buffer, kind);
                    if matches!(kind, Kind::Close | Kind::Closed) {
                        self.remove(id);
                    }
                    Ok(())
                }
                _ if kind == Kind::Hello => {
                    let hello = Hello::parse(payload);
                    lane.release(buffer, kind);
                    self.on_greeting(core, id, hello);
                    Ok(())
                }
                _ => {
                    lane.release(buffer, kind);
                    match (kind, &lane.stage) {
                        // Both have proved themselves, and the owner takes its time to answer.
                        (Kind::Alive, Stage::Asking { .. } | Stage::Asked { .. }) => Ok(()),
                        _ => Err(viaduct_via::Error::Protocol("a frame before the greeting")),
                    }
                }
            },
        };
        if let Err(e) = taken {
            tracing::warn!("ofi: a connection is cut off: {e}");
            match self.lanes.get_mut(&id) {
                Some(lane) if lane.stage.is_open() => lane.ends(Fault::Protocol),
                Some(_) => self.end_lane(core, id, 0),
                None => {}
            }
        }
    }
}
