//! A process of the simulated cluster: its waits, its requests, the memory of its node.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::Hash;
use std::rc::Rc;
use std::task::Poll;

use super::cluster::{Body, Bytes, Cluster, Node, PAGE, Process};
use super::fingerprint::number;
use super::mutation::Mutation;
use crate::ids::{NodeId, PageId};
use crate::serve::Copies;
use crate::world::{Name, Place, Request, Shared};

pub(super) struct Handle {
    pub(super) cluster: Rc<RefCell<Cluster>>,
    pub(super) process: Process,
    /// What travelled beside the last answer or request.
    pub(super) staging: Option<[u8; PAGE]>,
    pub(super) incoming: Bytes,
    /// Diffs that are ready to be sent, by page.
    pub(super) diffs: HashMap<PageId, Bytes>,
    /// What the waits of this process found, as one number.
    pub(super) progress: Rc<Cell<u64>>,
}

pub(super) fn at(page: PageId) -> usize {
    page.0 as usize
}

impl Handle {
    pub(super) fn new(cluster: &Rc<RefCell<Cluster>>, process: Process) -> Handle {
        let cluster = Rc::clone(cluster);
        let progress = Rc::default();
        Handle { cluster, process, staging: None, incoming: Vec::new(), diffs: HashMap::new(), progress }
    }

    pub(super) fn at_node<R>(&self, act: impl FnOnce(&mut Node) -> R) -> R {
        act(&mut self.cluster.borrow_mut().nodes[usize::from(self.process.0.0)])
    }

    pub(super) fn mutation(&self) -> Mutation {
        self.cluster.borrow().mutation
    }

    /// Waits until `ready` gives something.
    pub(super) async fn found<R>(&self, mut ready: impl FnMut(&mut Cluster) -> Option<R>) -> R {
        let found = poll_fn(|_| match ready(&mut self.cluster.borrow_mut()) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        })
        .await;
        self.progressed(());
        found
    }

    /// A wait has ended, and brought this.
    pub(super) fn progressed(&self, brought: impl Hash) {
        self.progress.set(number((self.progress.get(), brought)));
    }

    /// Other processes may go on before the next step.
    pub(super) async fn pause(&self) {
        let mut again = true;
        let pause = |_: &mut Cluster| {
            // To have paused is a state of its own.
            self.progress.set(self.progress.get().wrapping_add(1));
            if std::mem::take(&mut again) { None } else { Some(()) }
        };
        self.found(pause).await;
    }

    /// Waits until all stores of a remote write have landed.
    pub(super) async fn landed(&self, op: u64) {
        self.found(|cluster| (cluster.left[&op] == 0).then_some(())).await;
    }

    pub(super) fn request(&mut self, to: NodeId, request: Request, diff: Bytes, notices: Vec<PageId>) -> u64 {
        let mut cluster = self.cluster.borrow_mut();
        let ticket = cluster.ticket(self.process);
        cluster.post(self.process, (to, None), Body::Request { ticket, request, diff, notices });
        ticket
    }
}

impl Shared for Handle {
    fn version(&self) -> u64 {
        self.at_node(|node| node.synchronised)
    }

    fn word(&self, place: Place) -> u64 {
        match (self.mutation(), place) {
            (Mutation::BlindLock, Place::Lock(..)) => return 0,
            (Mutation::EarlyFlag, Place::Flag(_)) => return 1,
            _ => {}
        }
        self.at_node(|node| node.words.get(&place).copied().unwrap_or(0))
    }

    fn is_over(&self, name: Name, episode: u64) -> bool {
        if self.mutation() == Mutation::OpenBarrier {
            return true;
        }
        self.at_node(|node| node.barriers.entry(name).or_default().is_over(episode))
    }

    fn test_and_set(&self, name: Name) -> bool {
        self.at_node(|node| node.test_and_set.insert(name))
    }
}

impl Copies for Handle {
    fn copy_out(&mut self, page: PageId) {
        self.staging = Some(self.at_node(|node| node.frames[at(page)]));
        let after = self.cluster.borrow_mut().after_copy.take();
        if let Some(after) = after {
            self.at_node(after);
        }
    }

    fn twin_of_copy(&mut self, page: PageId) {
        let copy = self.staging.expect("copied out");
        self.at_node(|node| node.twins[at(page)] = copy);
    }

    fn apply(&mut self, page: PageId) {
        let diff = std::mem::take(&mut self.incoming);
        self.at_node(|node| diff.into_iter().for_each(|(byte, value)| node.frames[at(page)][byte] = value));
    }
}
