//! What workers and servers need of their surroundings: the node's shared entries, its memory, its network.
//!
//! The calls that wait are asynchronous so that a simulator can run the protocol of many nodes in one thread, in any
//! order. A world of real processes waits inside the call and is always ready.

use std::fmt;
use std::future::Future;

use crate::ids::{NodeId, NodeSet, PageId, WorkerId, WorkerSet};
use crate::protocol::barrier::Local;
use crate::protocol::fault::{Fetched, Merge};
use crate::protocol::lock::Lock;
use crate::protocol::page::{Access, Page, Permission, Stamp, View};
use crate::variant::Variant;

/// A node is gone: the program cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDown(pub NodeId);

impl fmt::Display for NodeDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is gone", self.0)
    }
}

impl std::error::Error for NodeDown {}

/// A name for a lock, a barrier or a flag.
pub type Name = u32;

/// What a worker or a server asks of another node. Pages and diffs travel beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Which node is the home of this page? The first that asks is.
    Claim(PageId),
    /// The page, please.
    Fetch(PageId, Access),
    /// The page that you have exclusively, please.
    Break(PageId),
    /// The page that you gave up is stored: diffs by remote write may follow.
    Settled(PageId),
    /// The difference that travels beside this belongs into the page.
    Diff(PageId),
    /// This node has no copy any more.
    Leave(PageId),
    /// The pages whose numbers travel beside this have changed.
    Notices,
    /// To the manager: this node wants the lock.
    Lock(Name),
    /// To the last node of the queue: `to` is next.
    Forward(Name, NodeId),
    /// The lock is yours.
    Grant(Name),
    /// This node has arrived. Answered when all have.
    Arrive(Name),
    /// The flag is set.
    Flag(Name),
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The home of a page.
    Home(NodeId),
    /// The page, beside this.
    Page(Fetched),
    /// Ask this node instead.
    Moved(NodeId),
    /// The frame of a page that was held exclusively, beside this.
    Frame,
    /// The page is not held exclusively.
    NotHeld,
    /// Done, with the directory's entry where it concerns a page.
    Done(View),
}

/// What a process of a node can do. Calls that change shared entries are atomic for the node.
pub trait World {
    /// A request that was sent and not yet answered.
    type Ticket;
    /// What the processes of a node share of locks, barriers and flags.
    type Node: Shared;

    /// This node.
    fn me(&self) -> NodeId;
    /// How many nodes there are.
    fn nodes(&self) -> u8;
    /// How many workers this node has.
    fn workers(&self) -> u32;
    /// The variant of this run.
    fn variant(&self) -> Variant;
    /// Lets the node's clock tick.
    fn tick(&mut self) -> Stamp;

    /// Locks the entry of a page.
    fn lock(&mut self, page: PageId) -> Page;
    /// Stores and unlocks the entry of a page; wakes those that wait for it. Gives the entry's new version.
    fn unlock(&mut self, page: PageId, entry: Page) -> u64;
    /// Waits until the entry of a page has another version than `seen`.
    fn changed(&mut self, page: PageId, seen: u64) -> impl Future<Output = Result<(), NodeDown>>;
    /// This node's replica of the directory, where there is one; `home` is the home as far as this node knows.
    fn replica(&self, page: PageId, home: Option<NodeId>) -> Option<View>;

    /// Changes this worker's mapping: None takes it away.
    fn protect(&mut self, page: PageId, access: Option<Access>);
    /// Copies the frame to the twin.
    fn make_twin(&mut self, page: PageId);
    /// Moves what the last answer brought into the frame.
    fn merge(&mut self, page: PageId, merge: Merge);
    /// Makes the difference of frame and twin ready to be sent; whether there is one.
    fn diff(&mut self, page: PageId, keep_twin: bool) -> bool;
    /// The home has the difference that [`diff`](Self::diff) made ready: it is not sent again.
    fn settle_diff(&mut self, _: PageId) {}
    /// Puts a page on the lists of workers of this node.
    fn list(&mut self, page: PageId, workers: WorkerSet);
    /// Takes the list of pages that a release of `worker` has to look at, without duplicates.
    fn take_list(&mut self, worker: WorkerId) -> Vec<PageId>;
    /// Drains the node's notices: `stamp` says for each page which workers have to look at it. It gets a tick of the node's
    /// clock that is later than the arrival of the notice.
    fn drain(&mut self, stamp: &mut dyn FnMut(Stamp, &mut Page) -> WorkerSet) -> impl Future<Output = ()>;
    /// Takes the pages that an acquire of `worker` has to look at.
    fn take_noticed(&mut self, worker: WorkerId) -> Vec<PageId>;

    /// No entry is locked, and other processes of the node may go on before the next step. A simulator lets them.
    fn between(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// The next fetch asks for the place of the home too, which is counted.
    fn attempt_migration(&mut self) {}
    /// A fault waits for the page that a sibling fetches, which is counted.
    fn coalesce(&mut self) {}

    /// Sends a request to another node (or this one).
    fn send(&mut self, to: NodeId, request: Request) -> Self::Ticket;
    /// Sends the numbers of changed pages.
    fn send_notices(&mut self, to: NodeId, pages: &[PageId]) -> Self::Ticket;
    /// Waits for the answer. What travelled beside it is at hand until the next call.
    fn answer(&mut self, ticket: Self::Ticket) -> impl Future<Output = Result<Reply, NodeDown>>;

    /// Writes this node's word of the directory to all replicas, and waits until it is there.
    fn publish(&mut self, page: PageId, permission: Permission)
    -> impl Future<Output = Result<(), NodeDown>>;
    /// Asks for the home by remote compare and swap at the manager.
    fn claim(&mut self, page: PageId) -> impl Future<Output = Result<NodeId, NodeDown>>;
    /// Writes the difference that is ready into the frame at the home, and waits until it is there.
    fn write_diff(&mut self, page: PageId, home: NodeId) -> impl Future<Output = Result<(), NodeDown>>;
    /// Writes notices into the bins of all nodes of a set, and waits until they are there.
    fn write_notices(&mut self, to: NodeSet, pages: &[PageId]) -> impl Future<Output = Result<(), NodeDown>>;

    /// Changes this node's part of a lock.
    fn with_lock<R>(&mut self, name: Name, act: impl FnOnce(&mut Lock) -> R) -> R;
    /// Changes this node's part of a barrier.
    fn with_barrier<R>(&mut self, name: Name, act: impl FnOnce(&mut Local) -> R) -> R;
    /// What the processes of this node share of locks, barriers and flags.
    fn node(&self) -> &Self::Node;
    /// Waits until `ready` holds, which changes of [`node`](Self::node) bring about.
    fn until(&mut self, ready: impl FnMut(&Self::Node) -> bool)
    -> impl Future<Output = Result<(), NodeDown>>;
    /// Writes a word to all replicas, and waits until it is everywhere.
    fn write_word(&mut self, place: Place, value: u64) -> impl Future<Output = Result<(), NodeDown>>;
    /// Waits a random short time before a lock is tried again; longer with each failure.
    fn back_off(&mut self, failures: u32) -> impl Future<Output = Result<(), NodeDown>>;
    /// Gives the test-and-set part of a lock back.
    fn clear(&mut self, name: Name);
}

/// What the processes of a node share of locks, barriers and flags: all that a wait looks at.
pub trait Shared {
    /// Changes of this node's locks, to be read before one of them is looked at.
    fn version(&self) -> u64;
    /// Reads a word of this node's replica of the synchronisation memory.
    fn word(&self, place: Place) -> u64;
    /// Whether an episode of a barrier is over on this node.
    fn is_over(&self, name: Name, episode: u64) -> bool;
    /// Tries to take this node's test-and-set part of a lock. True: the caller has it.
    fn test_and_set(&self, name: Name) -> bool;
}

/// A word of the replicated synchronisation memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A node's entry in the array of a lock.
    Lock(Name, NodeId),
    /// A node's entry in the array of a barrier: the episode it has arrived at.
    Arrived(Name, NodeId),
    /// The sense of a barrier: the episode that is open.
    Sense(Name),
    /// A flag.
    Flag(Name),
}
