//! The requests that a process has under way: to which process of a node each one went, and what may be sent again.
//!
//! A request goes to a worker of the other node that waits and polls, else to the node's server. A worker may go on with its
//! program before it takes the request: then a copy goes to the server. A node answers each request once, whichever copy it
//! takes first (`Meta::claim`); the process that takes the other one says that it was dropped. A worker that has a copy which
//! was given up gets no request before it has said so: no queue ever holds more copies than there are slots.

use std::collections::VecDeque;
use std::time::Instant;

use super::wire::{Head, SLOTS};
use crate::ids::{NodeId, WorkerId, WorkerSet};

/// A request that was sent and not yet answered.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) head: Head,
    /// What followed the head; kept where the request may be sent again.
    pub(super) payload: Vec<u8>,
    /// The worker that it went to; None: the server.
    pub(super) worker: Option<WorkerId>,
    /// Whether a copy went to the server afterwards.
    pub(super) again: bool,
    pub(super) sent: Instant,
    /// Whether the process waits for the answer.
    pub(super) awaited: bool,
}

/// A request that waits for a slot.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) head: Head,
    pub(super) payload: Vec<u8>,
    pub(super) awaited: bool,
}

/// What is under way to one node.
#[derive(Debug)]
struct ToNode {
    slots: [Option<Slot>; SLOTS],
    queue: VecDeque<Queued>,
    /// Workers that waited and polled when the node last said so.
    hint: WorkerSet,
    /// Copies at each worker that were given up.
    given_up: Vec<u32>,
    /// Copies at the server whose request a worker answered.
    doubled: usize,
}

/// All that a process has under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    lines: Vec<ToNode>,
    /// Requests at workers of which the server has no copy.
    abroad: usize,
    /// Room for what goes with requests that wait for a slot.
    spare: Vec<Vec<u8>>,
}

/// Requests that wait for a slot without new memory.
const QUEUE: usize = 64;

impl UnderWay {
    /// `payload` is what goes with a request at most.
    pub(super) fn new(nodes: usize, workers: usize, payload: usize) -> UnderWay {
        let line = || ToNode {
            slots: Default::default(),
            queue: VecDeque::with_capacity(QUEUE),
            hint: WorkerSet::EMPTY,
            given_up: vec![0; workers],
            doubled: 0,
        };
        // Room that is not used takes no memory.
        let spare = (0..QUEUE).map(|_| Vec::with_capacity(payload)).collect();
        UnderWay { lines: (0..nodes).map(|_| line()).collect(), abroad: 0, spare }
    }

    fn line(&mut self, node: NodeId) -> &mut ToNode {
        &mut self.lines[usize::from(node.0)]
    }

    /// A free slot for a request to a node, unless others wait for one.
    pub(super) fn free(&mut self, to: NodeId) -> Option<usize> {
        let line = self.line(to);
        line.queue.is_empty().then(|| line.slots.iter().position(Option::is_none)).flatten()
    }

    /// A request waits for a slot: a worker may be in a fault, so that its diff is put where there is room.
    pub(super) fn queue(&mut self, to: NodeId, head: Head, payload: &[u8], awaited: bool) {
        let room = self.room(payload);
        self.line(to).queue.push_back(Queued { head, payload: room, awaited });
    }

    /// A copy of what goes with a request.
    pub(super) fn room(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut room = match payload.is_empty() {
            true => Vec::new(),
            false => self.spare.pop().unwrap_or_default(),
        };
        room.extend_from_slice(payload);
        room
    }

    /// The room of a request that needs it no longer.
    pub(super) fn spare(&mut self, mut payload: Vec<u8>) {
        if payload.capacity() > 0 && self.spare.len() < QUEUE {
            payload.clear();
            self.spare.push(payload);
        }
    }

    /// The request that waits longest for a slot of a node, and a slot for it.
    pub(super) fn next(&mut self, to: NodeId) -> Option<(usize, Queued)> {
        let line = self.line(to);
        let slot = line.slots.iter().position(Option::is_none)?;
        Some((slot, line.queue.pop_front()?))
    }

    /// Whether requests wait for slots.
    pub(super) fn has_queued(&self) -> bool {
        self.lines.iter().any(|line| !line.queue.is_empty())
    }

    /// The worker of a node that a request goes to; None: the server. `polls` are those that are known to poll now, where
    /// that can be seen, else the node's last word counts.
    pub(super) fn choose(&mut self, to: NodeId, polls: Option<WorkerSet>) -> Option<WorkerId> {
        let line = self.line(to);
        polls.unwrap_or(line.hint).iter().find(|worker| line.given_up.get(usize::from(worker.0)) == Some(&0))
    }

    /// Workers of a node that poll, as it said in an answer.
    pub(super) fn hint(&mut self, node: NodeId, polls: WorkerSet) {
        self.line(node).hint = polls;
    }

    /// Other nodes go on after this: what they said of their workers is old.
    pub(super) fn forget_hints(&mut self) {
        self.lines.iter_mut().for_each(|line| line.hint = WorkerSet::EMPTY);
    }

    pub(super) fn begin(&mut self, to: NodeId, at: usize, slot: Slot) {
        self.abroad += usize::from(slot.worker.is_some());
        self.line(to).slots[at] = Some(slot);
    }

    /// Whether a request may have to be sent again.
    pub(super) fn is_abroad(&self) -> bool {
        self.abroad > 0
    }

    /// The requests at workers that have no copy at the server: node, slot.
    pub(super) fn abroad(&self) -> impl Iterator<Item = (NodeId, usize, &Slot)> {
        let nodes = (0..).map(NodeId).zip(&self.lines);
        let slots =
            nodes.flat_map(|(node, line)| line.slots.iter().enumerate().map(move |(at, s)| (node, at, s)));
        let open = slots.filter_map(|(node, at, slot)| Some((node, at, slot.as_ref()?)));
        open.filter(|(_, _, slot)| slot.worker.is_some() && !slot.again)
    }

    /// Gives the copy of a request at a worker up: what the server gets, unless it has too many copies for now.
    pub(super) fn again(&mut self, to: NodeId, at: usize) -> Option<&Slot> {
        let line = &mut self.lines[usize::from(to.0)];
        let slot = line.slots[at].as_mut().filter(|slot| !slot.again)?;
        let worker = slot.worker?;
        if line.doubled >= SLOTS {
            return None;
        }
        slot.again = true;
        line.given_up[usize::from(worker.0)] += 1;
        line.hint.remove(worker);
        self.abroad -= 1;
        Some(slot)
    }

    /// The time of a request that is still looked after begins anew.
    pub(super) fn renew(&mut self, to: NodeId, at: usize, now: Instant) {
        if let Some(slot) = &mut self.line(to).slots[at] {
            slot.sent = now;
        }
    }

    /// An answer came from a node, to the copy that went to `copy`. Gives the request; None for one that is not under way.
    pub(super) fn answered(&mut self, from: NodeId, ticket: u64, copy: Option<WorkerId>) -> Option<Slot> {
        let line = &mut self.lines[usize::from(from.0)];
        let found =
            line.slots.iter_mut().find(|slot| slot.as_ref().is_some_and(|s| s.head.ticket == ticket))?;
        let slot = found.take()?;
        match (slot.worker, slot.again) {
            (Some(_), false) => self.abroad -= 1,
            // The server has a copy that it will drop.
            (Some(worker), true) if copy.is_some() => {
                let given_up = &mut line.given_up[usize::from(worker.0)];
                *given_up = given_up.saturating_sub(1);
                line.doubled += 1;
            }
            _ => {}
        }
        Some(slot)
    }

    /// A process of a node dropped a copy.
    pub(super) fn dropped(&mut self, from: NodeId, copy: Option<WorkerId>) {
        let line = self.line(from);
        match copy.map(|worker| line.given_up.get_mut(usize::from(worker.0))) {
            Some(Some(given_up)) => *given_up = given_up.saturating_sub(1),
            Some(None) => {}
            None => line.doubled = line.doubled.saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::wire::Says;

    const TO: NodeId = NodeId(1);
    const W: WorkerId = WorkerId(2);

    fn send(under_way: &mut UnderWay, ticket: u64, worker: Option<WorkerId>) -> usize {
        let at = under_way.free(TO).expect("a slot");
        let polls = WorkerSet::EMPTY;
        let head = Head { ticket, from: NodeId(0), worker: None, says: Says::Bye, slot: 0, polls, len: 0 };
        let slot =
            Slot { head, payload: Vec::new(), worker, again: false, sent: Instant::now(), awaited: true };
        under_way.begin(TO, at, slot);
        at
    }

    #[test]
    fn a_worker_with_a_copy_that_was_given_up_gets_no_request() {
        let mut all = UnderWay::new(2, 3, 16);
        let polls = Some(WorkerSet::of(W));
        assert_eq!(all.choose(TO, polls), Some(W));
        let at = send(&mut all, 1, Some(W));
        assert!(all.is_abroad() && all.again(TO, at).is_some());
        assert!(!all.is_abroad() && all.again(TO, at).is_none());
        assert_eq!(all.choose(TO, polls), None);
        // The server answers, the worker drops its copy later.
        assert!(all.answered(TO, 1, None).is_some_and(|slot| slot.again));
        assert_eq!(all.choose(TO, polls), None);
        all.dropped(TO, Some(W));
        assert_eq!(all.choose(TO, polls), Some(W));
    }

    #[test]
    fn a_worker_that_answers_after_all_leaves_a_copy_with_the_server() {
        let mut all = UnderWay::new(2, 3, 16);
        for ticket in 0..SLOTS as u64 {
            let at = send(&mut all, ticket, Some(W));
            assert!(all.again(TO, at).is_some());
            assert!(all.answered(TO, ticket, Some(W)).is_some());
        }
        assert_eq!(all.choose(TO, Some(WorkerSet::of(W))), Some(W));
        // The server's queue is full of copies: no more before it has dropped one.
        let at = send(&mut all, 9, Some(W));
        assert!(all.again(TO, at).is_none() && all.is_abroad());
        all.dropped(TO, None);
        assert!(all.again(TO, at).is_some());
    }

    #[test]
    fn requests_wait_for_slots_in_their_order() {
        let mut all = UnderWay::new(2, 3, 16);
        let taken: Vec<usize> = (0..SLOTS as u64).map(|ticket| send(&mut all, ticket, None)).collect();
        assert_eq!(taken, (0..SLOTS).collect::<Vec<_>>());
        assert_eq!(all.free(TO), None);
        let head = all.line(TO).slots[0].as_ref().expect("a slot").head;
        for ticket in [20, 21] {
            all.queue(TO, Head { ticket, ..head }, &[7; 3], true);
        }
        assert!(all.next(TO).is_none() && all.has_queued());
        assert!(all.answered(TO, 3, None).is_some() && all.answered(TO, 3, None).is_none());
        // The slot is for the request that waits.
        assert_eq!(all.free(TO), None);
        let (at, queued) = all.next(TO).expect("the first");
        assert_eq!((at, queued.head.ticket, &queued.payload[..]), (3, 20, &[7; 3][..]));
        // Its room was made before, and is there for the next one.
        assert_eq!((queued.payload.capacity(), all.spare.len()), (16, QUEUE - 2));
        all.spare(queued.payload);
        assert_eq!(all.spare.len(), QUEUE - 1);
        assert!(all.free(NodeId(0)).is_some());
    }

    #[test]
    fn a_hint_lasts_until_it_is_forgotten() {
        let mut all = UnderWay::new(2, 3, 16);
        assert_eq!(all.choose(TO, None), None);
        all.hint(TO, WorkerSet::of(W));
        assert_eq!(all.choose(TO, None), Some(W));
        assert_eq!(all.choose(TO, Some(WorkerSet::EMPTY)), None);
        all.forget_hints();
        assert_eq!(all.choose(TO, None), None);
    }
}
