//! The state of the simulated cluster, and what happens in it besides the workers' own steps.

use std::collections::{HashMap, HashSet, VecDeque};

use super::mutation::Mutation;
use super::random::Random;
use crate::ids::{NodeId, PageId, WorkerId};
use crate::protocol::barrier::{Local, Master};
use crate::protocol::lock::{Lock, Manager};
use crate::protocol::page::{Access, Page, Permission};
use crate::variant::Variant;
use crate::world::{Name, Place, Reply, Request};

/// Bytes of a page: few, so that neighbours share pages.
pub(super) const PAGE: usize = 16;

/// A process: a worker, or the server of a node.
pub(super) type Process = (NodeId, Option<WorkerId>);
pub(super) type Bytes = Vec<(usize, u8)>;

/// What travels in a message.
#[derive(Clone, Debug, Hash)]
pub(super) enum Body {
    Request { ticket: u64, request: Request, diff: Bytes, notices: Vec<PageId> },
    Reply { ticket: u64, reply: Reply, frame: Option<[u8; PAGE]> },
}

/// One store of a remote write.
#[derive(Clone, Debug, Hash)]
pub(super) enum Effect {
    Directory { replica: usize, page: usize, node: usize, permission: Permission },
    Byte { node: usize, page: usize, at: usize, value: u8 },
    Notices { node: usize, pages: Vec<PageId> },
    Claim { page: usize, node: NodeId },
    Word { replica: usize, place: Place, value: u64 },
}

/// A request that a server could not answer yet.
#[derive(Clone, Debug, Hash)]
pub(super) struct Parked {
    pub(super) from: Process,
    pub(super) ticket: u64,
    pub(super) request: Request,
    pub(super) diff: Bytes,
    /// The version of the page at which it was parked.
    pub(super) version: u64,
}

#[derive(Default)]
pub(super) struct Node {
    pub(super) pages: Vec<Page>,
    pub(super) versions: Vec<u64>,
    pub(super) frames: Vec<[u8; PAGE]>,
    pub(super) twins: Vec<[u8; PAGE]>,
    pub(super) mappings: Vec<Vec<Option<Access>>>,
    pub(super) lists: Vec<Vec<PageId>>,
    pub(super) noticed: Vec<Vec<PageId>>,
    pub(super) bins: Vec<PageId>,
    pub(super) clock: u64,
    pub(super) directory: Vec<Vec<Permission>>,
    pub(super) claims: HashMap<PageId, NodeId>,
    pub(super) locks: HashMap<Name, Lock>,
    pub(super) managers: HashMap<Name, Manager>,
    pub(super) barriers: HashMap<Name, Local>,
    pub(super) masters: HashMap<Name, Master>,
    pub(super) arrivals: Vec<(Process, u64, Name)>,
    pub(super) words: HashMap<Place, u64>,
    pub(super) test_and_set: HashSet<Name>,
    pub(super) synchronised: u64,
    pub(super) parked: Vec<Parked>,
    /// Breaks that the server asked for, by ticket.
    pub(super) breaks: HashMap<u64, PageId>,
    /// Requests that a process of the node has taken.
    pub(super) taken: HashSet<u64>,
}

/// What was counted, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) fetches: u64,
    pub(super) coalesced: u64,
    pub(super) diffs: u64,
    pub(super) moved: u64,
    pub(super) breaks: u64,
    pub(super) notices: u64,
    pub(super) remote_writes: u64,
    pub(super) directory_messages: u64,
    pub(super) sync_messages: u64,
    pub(super) exclusive: u64,
    pub(super) migrated: u64,
}

pub(super) type AfterCopy = Box<dyn FnOnce(&mut Node)>;

pub(super) struct Cluster {
    pub(super) variant: Variant,
    pub(super) workers: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) channels: Vec<((Process, Process), VecDeque<Body>)>,
    pub(super) effects: Vec<(u64, Effect)>,
    /// How many stores of a remote write are still on their way.
    pub(super) left: HashMap<u64, usize>,
    pub(super) replies: HashMap<u64, (Reply, Option<[u8; PAGE]>)>,
    pub(super) claimed: HashMap<u64, NodeId>,
    /// How many each process has had.
    tickets: HashMap<Process, u64>,
    pub(super) shadow: Vec<u8>,
    pub(super) random: Random,
    pub(super) mutation: Mutation,
    pub(super) counts: Counts,
    /// Whether some requests are sent twice.
    pub(super) doubles: bool,
    /// What a worker of a node does right after the next copy of a frame, while the page's entry is still locked.
    pub(super) after_copy: Option<AfterCopy>,
    /// Whether processes go on between two steps of a worker that waits for nothing.
    pub(super) fine: bool,
    /// How far a program is that keeps an order without synchronisation.
    pub(super) stage: u8,
    /// Whether every order is tried, instead of one from a seed: nothing else may be random then.
    pub(super) explored: bool,
}

impl Cluster {
    /// With every other seed homes are given from the start, as by `--homes-in`: then a home has no mapping at first, and
    /// other nodes get the page alone. Every other two have fine steps.
    pub(super) fn new(variant: Variant, nodes: usize, workers: usize, pages: usize, seed: u64) -> Cluster {
        let home = |page: usize| match seed % 2 {
            0 => Page::default(),
            _ => Page::with_home(NodeId(((seed / 2) as usize + page) as u8 % nodes as u8)),
        };
        let node = || Node {
            pages: (0..pages).map(home).collect(),
            versions: vec![0; pages],
            frames: vec![[0; PAGE]; pages],
            twins: vec![[0; PAGE]; pages],
            mappings: vec![vec![None; pages]; workers],
            lists: vec![Vec::new(); workers],
            noticed: vec![Vec::new(); workers],
            directory: vec![vec![Permission::Absent; nodes]; pages],
            ..Node::default()
        };
        Cluster {
            variant,
            workers,
            nodes: (0..nodes).map(|_| node()).collect(),
            channels: Vec::new(),
            effects: Vec::new(),
            left: HashMap::new(),
            replies: HashMap::new(),
            claimed: HashMap::new(),
            tickets: HashMap::new(),
            shadow: vec![0; pages * PAGE],
            random: Random::new(seed),
            mutation: Mutation::None,
            counts: Counts::default(),
            doubles: seed.is_multiple_of(3),
            after_copy: None,
            fine: (seed / 2).is_multiple_of(2),
            stage: 0,
            explored: false,
        }
    }

    /// A number that no other request or remote write has: the process, then how many it had before.
    pub(super) fn ticket(&mut self, process: Process) -> u64 {
        let count = self.tickets.entry(process).or_default();
        *count += 1;
        let place = process.1.map_or(0, |worker| u64::from(worker.0) + 1);
        (u64::from(process.0.0) << 8 | place) << 32 | *count
    }

    pub(super) fn post(&mut self, from: Process, to: Process, body: Body) {
        self.count(&body);
        // A request that a worker did not take in time is sent to the server, too.
        if matches!(body, Body::Request { .. }) && self.doubles && self.random.below(4) == 0 {
            self.put(from, to, body.clone());
        }
        self.put(from, to, body);
    }

    fn put(&mut self, from: Process, to: Process, body: Body) {
        match self.channels.iter_mut().find(|(ends, _)| *ends == (from, to)) {
            Some((_, queue)) => queue.push_back(body),
            None => self.channels.push(((from, to), VecDeque::from([body]))),
        }
    }

    fn count(&mut self, body: &Body) {
        let counts = &mut self.counts;
        match body {
            Body::Request { request, .. } => match request {
                Request::Fetch(..) => counts.fetches += 1,
                Request::Diff(_) => counts.diffs += 1,
                Request::Break(_) | Request::Settled(_) => counts.breaks += 1,
                Request::Notices => counts.notices += 1,
                Request::Claim(_) | Request::Leave(_) => counts.directory_messages += 1,
                _ => counts.sync_messages += 1,
            },
            Body::Reply { reply, .. } => match reply {
                Reply::Moved(_) => counts.moved += 1,
                Reply::Page(fetched) => {
                    counts.exclusive += u64::from(fetched.exclusive);
                    counts.migrated += u64::from(fetched.migrated);
                }
                _ => {}
            },
        }
    }

    /// Begins a remote write of several stores; gives its name.
    pub(super) fn write(&mut self, process: Process, effects: Vec<Effect>) -> u64 {
        let op = self.ticket(process);
        self.counts.remote_writes += effects.len() as u64;
        self.left.insert(op, effects.len());
        self.effects.extend(effects.into_iter().map(|effect| (op, effect)));
        op
    }

    /// One store of a remote write lands.
    pub(super) fn land(&mut self, index: usize) {
        let (op, effect) = self.effects.swap_remove(index);
        match effect {
            Effect::Directory { replica, page, node, permission } => {
                self.nodes[replica].directory[page][node] = permission;
            }
            Effect::Byte { node, page, at, value } => self.nodes[node].frames[page][at] = value,
            Effect::Notices { node, pages } => self.nodes[node].bins.extend(pages),
            Effect::Claim { page, node } => {
                let page = PageId(page as u32);
                let manager = page.manager(self.nodes.len() as u8);
                let home = *self.nodes[usize::from(manager.0)].claims.entry(page).or_insert(node);
                self.claimed.insert(op, home);
            }
            Effect::Word { replica, place, value } => {
                self.nodes[replica].words.insert(place, value);
                self.nodes[replica].synchronised += 1;
            }
        }
        *self.left.get_mut(&op).expect("a remote write under way") -= 1;
    }

    /// What waits for what, for a run without end.
    pub(super) fn state(&self) -> String {
        let mut text = format!("channels {:?} stores {:?}", self.channels, self.effects);
        for (number, node) in self.nodes.iter().enumerate() {
            text += &format!("\nnode {number}: pages {:?}", node.pages);
            text += &format!(" parked {:?} locks {:?} managers {:?}", node.parked, node.locks, node.managers);
            text += &format!(" barriers {:?} arrivals {:?}", node.barriers, node.arrivals);
        }
        text
    }

    /// A page that one node has alone is mapped nowhere else.
    pub(super) fn check(&self) {
        for page in 0..self.nodes[0].pages.len() {
            let holders: Vec<usize> =
                (0..self.nodes.len()).filter(|&n| self.nodes[n].pages[page].is_exclusive()).collect();
            assert!(holders.len() <= 1, "page {page} is exclusive at {holders:?}");
            if let [holder] = holders[..] {
                for (number, node) in self.nodes.iter().enumerate().filter(|&(number, _)| number != holder) {
                    let entry = &node.pages[page];
                    let free = entry.mapped().is_empty() && !entry.has_twin();
                    assert!(free, "page {page} is exclusive at {holder} and in use at {number}");
                }
            }
            let homes =
                (0..self.nodes.len()).filter(|&n| self.nodes[n].pages[page].is_home(NodeId(n as u8))).count();
            assert!(homes <= 1, "page {page} has {homes} homes");
        }
    }
}
