//! What processes of different nodes say to each other: a head of fixed length, then a page, a diff or a list of pages.

use crate::ids::{NodeId, NodeSet, PageId, WorkerId, WorkerSet};
use crate::protocol::fault::Fetched;
use crate::protocol::page::{Access, View};
use crate::world::{Reply, Request};

/// Bytes of a head.
pub(crate) const HEAD: usize = 40;

/// A process of the run: the server of a node, or one of its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) node: NodeId,
    pub(crate) worker: Option<WorkerId>,
}

impl Peer {
    /// Its place in its node: 0 is the server's.
    pub(crate) fn place(self) -> usize {
        self.worker.map_or(0, |worker| usize::from(worker.0) + 1)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Request(Request),
    /// The first message on a connection, before the program runs: with it the sender makes what it makes once.
    Hello,
    /// A worker needs nothing more.
    Bye,
    /// From a worker to its server: a request that it took and cannot answer at once.
    Handed(Handed),
    Reply(Reply),
    /// The request was sent twice, and its other copy is answered.
    Dropped,
}

/// A request that a worker took for its node, and leaves to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) request: Request,
    pub(crate) ticket: u64,
    /// The process that asked.
    pub(crate) asker: Peer,
    /// The node that the page has to be taken back from first.
    pub(crate) holder: Option<NodeId>,
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) ticket: u64,
    pub(crate) from: NodeId,
    /// Of a request: the worker that asks. Of an answer: the worker that the request was sent to. None: a server.
    pub(crate) worker: Option<WorkerId>,
    pub(crate) says: Says,
    /// Of a request: the slot of the process that asks, or 0 if there is no other copy of the request.
    pub(crate) slot: u8,
    /// Of an answer: workers of the answering node that wait and poll.
    pub(crate) polls: WorkerSet,
    /// Bytes that follow.
    pub(crate) len: u32,
}

/// A server, where a worker could stand; no node, where one could.
const NONE: u8 = u8::MAX;
/// The most slots of a process that a head names: they are counted from 1.
pub(crate) const SLOTS: usize = 7;

/// The fields of a head: kind, small values, page or name, node, set; for a request that was handed over the process that
/// asked and the node to take the page back from.
#[derive(Default)]
struct Fields {
    kind: u8,
    flags: u8,
    number: u32,
    node: u8,
    set: u64,
    handed: [u8; 3],
}

/// Added to the kind of a request that is handed over.
const HANDED: u8 = 64;

impl Fields {
    fn of(says: Says) -> Fields {
        let plain = |kind, number| Fields { kind, number, ..Fields::default() };
        match says {
            Says::Request(request) => match request {
                Request::Claim(page) => plain(1, page.0),
                Request::Fetch(page, access) => {
                    Fields { flags: u8::from(access == Access::Write), ..plain(2, page.0) }
                }
                Request::Break(page) => plain(3, page.0),
                Request::Diff(page) => plain(4, page.0),
                Request::Leave(page) => plain(5, page.0),
                Request::Notices => plain(6, 0),
                Request::Lock(name) => plain(7, name),
                Request::Forward(name, node) => Fields { node: node.0, ..plain(8, name) },
                Request::Grant(name) => plain(9, name),
                Request::Arrive(name) => plain(10, name),
                Request::Flag(name) => plain(11, name),
                Request::Settled(page) => plain(12, page.0),
            },
            Says::Bye => plain(13, 0),
            Says::Hello => plain(14, 0),
            Says::Dropped => plain(38, 0),
            Says::Handed(Handed { request, ticket, asker, holder }) => {
                let fields = Fields::of(Says::Request(request));
                let worker = asker.worker.map_or(NONE, |worker| worker.0);
                let handed = [asker.node.0, worker, holder.map_or(NONE, |node| node.0)];
                Fields { kind: fields.kind + HANDED, set: ticket, handed, ..fields }
            }
            Says::Reply(reply) => match reply {
                Reply::Home(node) => Fields { node: node.0, ..plain(32, 0) },
                Reply::Page(Fetched { exclusive, migrated, sharers, home_writes }) => {
                    let flags = u8::from(exclusive) | u8::from(migrated) << 1 | u8::from(home_writes) << 2;
                    Fields { flags, set: sharers.to_bits(), ..plain(33, 0) }
                }
                Reply::Moved(node) => Fields { node: node.0, ..plain(34, 0) },
                Reply::Frame => plain(35, 0),
                Reply::NotHeld => plain(36, 0),
                Reply::Done(View { sharers, home_writes }) => {
                    Fields { flags: u8::from(home_writes), set: sharers.to_bits(), ..plain(37, 0) }
                }
            },
        }
    }

    fn says(&self) -> Option<Says> {
        if let kind @ HANDED.. = self.kind {
            let plain = Fields { kind: kind - HANDED, set: 0, handed: [0; 3], ..*self };
            let Some(Says::Request(request)) = plain.says() else { return None };
            let [node, worker, holder] = self.handed;
            let asker = Peer { node: NodeId(node), worker: (worker != NONE).then_some(WorkerId(worker)) };
            let holder = (holder != NONE).then_some(NodeId(holder));
            return Some(Says::Handed(Handed { request, ticket: self.set, asker, holder }));
        }
        let (page, name, node) = (PageId(self.number), self.number, NodeId(self.node));
        let flag = |bit: u8| self.flags & 1 << bit != 0;
        let sharers = NodeSet::from_bits(self.set);
        let request = match self.kind {
            1 => Request::Claim(page),
            2 => Request::Fetch(page, if flag(0) { Access::Write } else { Access::Read }),
            3 => Request::Break(page),
            4 => Request::Diff(page),
            5 => Request::Leave(page),
            6 => Request::Notices,
            7 => Request::Lock(name),
            8 => Request::Forward(name, node),
            9 => Request::Grant(name),
            10 => Request::Arrive(name),
            11 => Request::Flag(name),
            12 => Request::Settled(page),
            13 => return Some(Says::Bye),
            14 => return Some(Says::Hello),
            32 => return Some(Says::Reply(Reply::Home(node))),
            33 => {
                let (exclusive, migrated, home_writes) = (flag(0), flag(1), flag(2));
                return Some(Says::Reply(Reply::Page(Fetched { exclusive, migrated, sharers, home_writes })));
            }
            34 => return Some(Says::Reply(Reply::Moved(node))),
            35 => return Some(Says::Reply(Reply::Frame)),
            36 => return Some(Says::Reply(Reply::NotHeld)),
            37 => return Some(Says::Reply(Reply::Done(View { sharers, home_writes: flag(0) }))),
            38 => return Some(Says::Dropped),
            _ => return None,
        };
        Some(Says::Request(request))
    }
}

/// What a head may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) nodes: u8,
    pub(crate) workers: u32,
    pub(crate) pages: u32,
}

impl Bounds {
    /// Processes of a node: its server, then its workers.
    pub(crate) fn group(&self) -> usize {
        self.workers as usize + 1
    }
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEAD] {
        let fields = Fields::of(self.says);
        let mut bytes = [0; HEAD];
        bytes[0..8].copy_from_slice(&self.ticket.to_le_bytes());
        bytes[8..16].copy_from_slice(&fields.set.to_le_bytes());
        bytes[16..20].copy_from_slice(&fields.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.len.to_le_bytes());
        let worker = self.worker.map_or(NONE, |worker| worker.0);
        let small = [fields.kind, fields.flags, fields.node, self.from.0, worker, self.slot];
        bytes[24..30].copy_from_slice(&small);
        match self.says {
            Says::Handed(_) => bytes[32..35].copy_from_slice(&fields.handed),
            _ => bytes[32..40].copy_from_slice(&self.polls.to_bits().to_le_bytes()),
        }
        bytes
    }

    /// None: the bytes are no head, or name nodes or pages that do not exist.
    pub(crate) fn parse(bytes: &[u8; HEAD], bounds: Bounds) -> Option<Head> {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (number, node, from) = (word(16), bytes[26], NodeId(bytes[27]));
        let handed = bytes[24] >= HANDED;
        let kind = bytes[24] - if handed { HANDED } else { 0 };
        let fields = Fields {
            kind: bytes[24],
            flags: bytes[25],
            number,
            node,
            set: long(8),
            handed: [bytes[32], bytes[33], bytes[34]],
        };
        let outside = |bits: u64, count: u32| bits & u64::MAX.checked_shl(count).unwrap_or(0) != 0;
        if node >= bounds.nodes || from.0 >= bounds.nodes || usize::from(bytes[29]) > SLOTS {
            return None;
        }
        if !handed && outside(fields.set, u32::from(bounds.nodes)) {
            return None;
        }
        if matches!(kind, 1..=5 | 12) && number >= bounds.pages {
            return None;
        }
        let worker = (bytes[28] != NONE).then_some(WorkerId(bytes[28]));
        let says = fields.says()?;
        let (named, holder, polls) = match says {
            Says::Handed(handed) => (handed.asker, handed.holder, 0),
            _ => (Peer { node: from, worker }, None, long(32)),
        };
        let missing = |worker: Option<WorkerId>| worker.is_some_and(|w| u32::from(w.0) >= bounds.workers);
        if missing(worker) || missing(named.worker) || named.node.0 >= bounds.nodes {
            return None;
        }
        if holder.is_some_and(|holder| holder.0 >= bounds.nodes) || outside(polls, bounds.workers) {
            return None;
        }
        let polls = WorkerSet::from_bits(polls);
        Some(Head { ticket: long(0), from, worker, says, slot: bytes[29], polls, len: word(20) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { nodes: 4, workers: 3, pages: 100 };

    fn head(says: Says) -> Head {
        let polls = match says {
            Says::Handed(_) => WorkerSet::EMPTY,
            _ => WorkerSet::of(WorkerId(2)),
        };
        Head { ticket: 7 << 40, from: NodeId(3), worker: Some(WorkerId(2)), says, slot: 7, polls, len: 4096 }
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        let sharers = NodeSet::of(NodeId(0)).with(NodeId(3));
        let page = PageId(99);
        let requests = [
            Request::Claim(page),
            Request::Fetch(page, Access::Read),
            Request::Fetch(page, Access::Write),
            Request::Break(page),
            Request::Diff(page),
            Request::Leave(page),
            Request::Notices,
            Request::Lock(1 << 30),
            Request::Forward(5, NodeId(2)),
            Request::Grant(5),
            Request::Arrive(5),
            Request::Flag(5),
            Request::Settled(page),
        ];
        let fetched = |bits: u8| {
            let (exclusive, migrated, home_writes) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            Reply::Page(Fetched { exclusive, migrated, sharers, home_writes })
        };
        let replies = [
            Reply::Home(NodeId(1)),
            Reply::Moved(NodeId(2)),
            Reply::Frame,
            Reply::NotHeld,
            Reply::Done(View { sharers, home_writes: true }),
        ];
        let asker = Peer { node: NodeId(1), worker: Some(WorkerId(1)) };
        let server = Peer { worker: None, ..asker };
        let handed = requests.into_iter().flat_map(|request| {
            [(asker, None), (server, Some(NodeId(2)))]
                .map(|(asker, holder)| Says::Handed(Handed { request, ticket: 9 << 40, asker, holder }))
        });
        let all = requests.into_iter().map(Says::Request).chain(handed);
        let all = all.chain(replies.into_iter().chain((0..8).map(fetched)).map(Says::Reply));
        for says in all.chain([Says::Hello, Says::Bye, Says::Dropped]) {
            let head = head(says);
            assert_eq!(Head::parse(&head.to_bytes(), BOUNDS), Some(head));
        }
    }

    #[test]
    fn heads_that_name_what_is_not_there_are_refused() {
        let bad = |says| assert_eq!(Head::parse(&head(says).to_bytes(), BOUNDS), None, "{says:?}");
        bad(Says::Request(Request::Diff(PageId(100))));
        bad(Says::Reply(Reply::Moved(NodeId(4))));
        bad(Says::Reply(Reply::Done(View { sharers: NodeSet::of(NodeId(4)), home_writes: false })));
        let asker = |node, worker| Peer { node: NodeId(node), worker: Some(WorkerId(worker)) };
        let request = Request::Leave(PageId(0));
        let handed = |asker, holder| Says::Handed(Handed { request, ticket: 1, asker, holder });
        bad(handed(asker(4, 0), None));
        bad(handed(asker(0, 3), None));
        bad(handed(asker(0, 0), Some(NodeId(4))));
        bad(Says::Handed(Handed {
            request: Request::Leave(PageId(100)),
            ticket: 1,
            asker: asker(0, 0),
            holder: None,
        }));
        for (place, byte) in [(28, 3), (29, 8), (32, 8)] {
            let mut bytes = head(Says::Bye).to_bytes();
            bytes[place] = byte;
            assert_eq!(Head::parse(&bytes, BOUNDS), None, "byte {place}");
        }
        assert_eq!(Head::parse(&[255; HEAD], BOUNDS), None);
        assert_eq!(Head::parse(&[0; HEAD], BOUNDS), None);
    }
}
