//! Locks as explicit messages (section 2.3.1.4): a manager keeps the end of a queue of nodes, the lock itself moves
//! from node to node as a token.
//!
//! The manager of a lock knows which node asked last. It forwards each request to that node, which passes the token on
//! when its workers are done with it. A node that nothing else asks keeps the token and locks again without a message.
//!
//! And the lock by remote write: an array with an entry for each node, [`ArrayLock`].

use crate::ids::{NodeId, WorkerId};

/// The manager's part of one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Manager {
    last: Option<NodeId>,
}

impl Manager {
    /// A node asks for the lock. Gives the node that has to pass it on, or None for the first request: the asking node
    /// has it at once.
    pub fn request(&mut self, from: NodeId) -> Option<NodeId> {
        self.last.replace(from)
    }
}

/// A node's part of one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    token: bool,
    /// Whether the manager was asked for the token.
    requested: bool,
    /// Whether the token came for a worker that has not taken it yet. It does not go on before: where workers wait long for
    /// a processor it would move from node to node for ever, and no worker would find it.
    awaited: bool,
    owner: Option<WorkerId>,
    /// The node that gets the token next.
    successor: Option<NodeId>,
}

/// What a worker does that wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// It has the lock.
    Held,
    /// It asks the manager, and tries again when the lock changes.
    Ask,
    /// It tries again when the lock changes.
    Wait,
}

impl Lock {
    /// A worker wants the lock.
    pub fn take(&mut self, worker: WorkerId) -> Take {
        if self.token && self.owner.is_none() {
            self.owner = Some(worker);
            self.awaited = false;
            return Take::Held;
        }
        if self.token || self.requested {
            return Take::Wait;
        }
        self.requested = true;
        Take::Ask
    }

    /// The token came. Workers of this node try again.
    pub fn granted(&mut self) {
        debug_assert!(self.requested && !self.token);
        self.token = true;
        self.requested = false;
        self.awaited = true;
    }

    /// The owner is done. Gives the node that the token goes to.
    pub fn release(&mut self, worker: WorkerId) -> Option<NodeId> {
        debug_assert_eq!(self.owner, Some(worker));
        self.owner = None;
        self.pass()
    }

    /// The manager says which node is next. Gives that node if the token goes there now.
    pub fn forward(&mut self, to: NodeId) -> Option<NodeId> {
        debug_assert_eq!(self.successor, None, "each node is asked once for each of its own requests");
        self.successor = Some(to);
        if self.owner.is_none() && !self.awaited { self.pass() } else { None }
    }

    fn pass(&mut self) -> Option<NodeId> {
        if !self.token {
            return None;
        }
        let next = self.successor.take()?;
        self.token = false;
        Some(next)
    }

    /// Breaks the rule that only one node has the token.
    #[cfg(test)]
    pub(crate) fn forge(&mut self) {
        self.token = true;
    }

    /// The worker that has the lock.
    pub fn owner(&self) -> Option<WorkerId> {
        self.owner
    }
}

/// A node's way to a lock by remote write: of two nodes that write their entries everywhere and then look, at least one sees the
/// other's. `sim/array.rs` tries every order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ArrayLock {
    /// The node's entry is empty.
    #[default]
    Away,
    /// Its entry was written everywhere.
    Written,
    /// It has looked at the entries of the others.
    Looked,
    /// It has taken its entry back.
    Withdrawn,
}

/// What a node does next that wants a lock by remote write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It writes its entry to all replicas, and waits until it has landed in each.
    Write(bool),
    /// It looks whether the entry of any other node is set in its own replica.
    Look,
    /// It has the lock.
    Held,
    /// It waits a random time, longer with each failure.
    BackOff,
}

impl ArrayLock {
    /// The next step, after the last one was done; `taken` is what the last look found.
    pub fn next(&mut self, taken: bool) -> Act {
        let (next, act) = match (*self, taken) {
            (ArrayLock::Away, _) => (ArrayLock::Written, Act::Write(true)),
            (ArrayLock::Written, _) => (ArrayLock::Looked, Act::Look),
            (ArrayLock::Looked, false) => (ArrayLock::Looked, Act::Held),
            (ArrayLock::Looked, true) => (ArrayLock::Withdrawn, Act::Write(false)),
            (ArrayLock::Withdrawn, _) => (ArrayLock::Away, Act::BackOff),
        };
        *self = next;
        act
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const W: WorkerId = WorkerId(0);

    #[test]
    fn a_node_that_nothing_else_asks_locks_again_without_a_message() {
        let (mut manager, mut lock) = (Manager::default(), Lock::default());
        assert_eq!(lock.take(W), Take::Ask);
        assert_eq!(manager.request(A), None);
        lock.granted();
        assert_eq!(lock.take(W), Take::Held);
        assert_eq!(lock.release(W), None);
        assert_eq!(lock.take(W), Take::Held);
    }

    #[test]
    fn a_forwarded_request_waits_for_the_owner() {
        let (mut manager, mut lock) = (Manager::default(), Lock::default());
        lock.take(W);
        manager.request(A);
        lock.granted();
        lock.take(W);
        assert_eq!(manager.request(B), Some(A));
        assert_eq!(lock.forward(B), None);
        assert_eq!(lock.release(W), Some(B));
        assert_eq!(lock.take(W), Take::Ask);
        assert_eq!(manager.request(A), Some(B));
    }

    #[test]
    fn a_request_that_overtakes_the_token_is_kept() {
        let mut lock = Lock::default();
        lock.take(W);
        assert_eq!(lock.forward(B), None);
        lock.granted();
        assert_eq!(lock.take(W), Take::Held);
        assert_eq!(lock.release(W), Some(B));
    }

    #[test]
    fn a_token_stays_until_the_worker_that_asked_has_had_it() {
        let mut lock = Lock::default();
        lock.take(W);
        lock.granted();
        assert_eq!(lock.forward(B), None);
        assert_eq!(lock.take(W), Take::Held);
        assert_eq!(lock.release(W), Some(B));
    }

    #[test]
    fn siblings_wait_for_each_other_and_ask_once() {
        let mut lock = Lock::default();
        assert_eq!((lock.take(W), lock.take(WorkerId(1))), (Take::Ask, Take::Wait));
        lock.granted();
        assert_eq!((lock.take(WorkerId(1)), lock.take(W)), (Take::Held, Take::Wait));
    }
}
