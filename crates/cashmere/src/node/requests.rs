//! What a process asks of other nodes: requests to a worker that polls or to the server, their answers, and copies of
//! requests that a worker did not take.

use std::time::{Duration, Instant};

use viaduct_os::point::point;

use super::layout::Waits;
use super::net::Came;
use super::process::{PATIENCE, Process};
use super::under_way::{Queued, Slot};
use super::wire::{Head, Peer, Says};
use crate::clock::Spent;
use crate::ids::{NodeId, WorkerId, WorkerSet};
use crate::statistics::Counter;
use crate::world::{NodeDown, Reply, Request};

/// After this time a request that a worker has not answered is looked after: if the worker polls no longer, or that cannot
/// be seen, the server gets a copy.
pub(super) const AGAIN: Duration = Duration::from_millis(1);

/// A request that was sent.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    /// Whether the answer comes when other workers have come to a barrier.
    long: bool,
}

impl Ticket {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Process {
    /// Sends what is answered without anything in the answer that matters.
    pub(super) fn tell(&mut self, to: NodeId, request: Request) -> Result<(), NodeDown> {
        self.ask(to, Says::Request(request), &[], false).map(drop)
    }

    pub(crate) fn post(&mut self, to: NodeId, says: Says, payload: &[u8]) -> Result<Ticket, NodeDown> {
        self.ask(to, says, payload, true)
    }

    pub(super) fn ask(
        &mut self,
        to: NodeId,
        says: Says,
        payload: &[u8],
        awaited: bool,
    ) -> Result<Ticket, NodeDown> {
        self.tickets += 1;
        let ticket = self.tickets;
        let (from, worker, polls) = (self.me, self.worker, WorkerSet::EMPTY);
        let head = Head { ticket, from, worker, says, slot: 0, polls, len: 0 };
        match self.under_way.free(to) {
            Some(at) => self.launch(to, at, head, payload, awaited)?,
            None => self.under_way.queue(to, head, payload, awaited),
        }
        Ok(Ticket { number: ticket, long: matches!(says, Says::Request(Request::Arrive(_))) })
    }

    /// The worker of another node that a request goes to; None: the server.
    ///
    /// What a worker does not wait for goes to servers: it might not be there to send it again.
    fn target(&mut self, to: NodeId, says: Says, awaited: bool) -> Option<WorkerId> {
        let anywhere = matches!(says, Says::Request(request) if !matches!(request, Request::Arrive(_)));
        if to == self.me || !anywhere || (self.worker.is_some() && !awaited) {
            return None;
        }
        let polls = self.board.as_ref().and_then(|board| board.polls(to));
        if polls.is_none() && self.worker.is_none() {
            return None;
        }
        self.under_way.choose(to, polls)
    }

    fn launch(
        &mut self,
        to: NodeId,
        at: usize,
        head: Head,
        payload: &[u8],
        awaited: bool,
    ) -> Result<(), NodeDown> {
        let before = self.clock.switch(Spent::Message);
        if let Says::Request(request) = head.says {
            self.count_message(to, request, payload.len());
        }
        let worker = self.target(to, head.says, awaited);
        let head = Head { slot: worker.map_or(0, |_| at as u8 + 1), ..head };
        let kept = if worker.is_some() { self.under_way.room(payload) } else { Vec::new() };
        let slot = Slot { head, payload: kept, worker, again: false, sent: Instant::now(), awaited };
        self.under_way.begin(to, at, slot);
        self.transmit(Peer { node: to, worker }, head, payload)?;
        point("dsm.asked");
        if let (Some(worker), Some(board)) = (worker, &self.board)
            && board.polls(to).is_some()
            && !board.polls_still(to, worker)
        {
            self.send_again(to, at)?;
        }
        self.clock.switch(before);
        Ok(())
    }

    pub(super) fn transmit(&mut self, to: Peer, head: Head, payload: &[u8]) -> Result<(), NodeDown> {
        self.net.send(to, head, payload).map_err(|fault| self.broken(fault))
    }

    /// Sends a copy of a request to the server. False: not now.
    fn send_again(&mut self, to: NodeId, at: usize) -> Result<bool, NodeDown> {
        let Some(slot) = self.under_way.again(to, at) else { return Ok(false) };
        let sent = self.net.send(Peer { node: to, worker: None }, slot.head, &slot.payload);
        self.count(Counter::SentAgain, 1);
        sent.map(|()| true).map_err(|fault| self.broken(fault))
    }

    /// Looks after requests that workers have not answered for a while.
    pub(super) fn send_overdue(&mut self) -> Result<(), NodeDown> {
        while self.under_way.is_abroad() {
            let now = Instant::now();
            let mut overdue = self.under_way.abroad().filter(|(_, _, slot)| now - slot.sent >= AGAIN);
            let Some((node, at, slot)) = overdue.next() else { break };
            let polls = |worker| self.board.as_ref().is_some_and(|board| board.polls_still(node, worker));
            let still = slot.worker.is_some_and(polls);
            drop(overdue);
            if still || !self.send_again(node, at)? {
                self.under_way.renew(node, at, now);
            }
        }
        Ok(())
    }

    /// An answer came.
    pub(super) fn answered(&mut self, came: Came, reply: Reply) -> Result<(), NodeDown> {
        let Head { ticket, from, worker, polls, .. } = came.head;
        // What was not asked, or is answered already, is no answer.
        let Some(slot) = self.under_way.answered(from, ticket, worker) else { return Ok(()) };
        self.under_way.hint(from, polls);
        if matches!(reply, Reply::Page(_) | Reply::Frame) {
            let payload = self.net.payload(&came.head);
            let len = payload.len().min(self.staging.len());
            self.staging[..len].copy_from_slice(&payload[..len]);
            self.count(Counter::PageTransfers, 1);
        }
        if let Reply::Page(fetched) = reply {
            self.count(Counter::Migrations, u64::from(fetched.migrated));
            self.count(Counter::Exclusive, u64::from(fetched.exclusive));
        }
        self.under_way.spare(slot.payload);
        if slot.awaited {
            self.answers.push((ticket, reply));
        }
        point("dsm.answered");
        self.launch_next(from)
    }

    /// A copy of a request was dropped.
    pub(super) fn dropped(&mut self, head: &Head) -> Result<(), NodeDown> {
        self.under_way.dropped(head.from, head.worker);
        Ok(())
    }

    fn launch_next(&mut self, to: NodeId) -> Result<(), NodeDown> {
        match self.under_way.next(to) {
            Some((at, Queued { head, payload, awaited })) => {
                let launched = self.launch(to, at, head, &payload, awaited);
                self.under_way.spare(payload);
                launched
            }
            None => Ok(()),
        }
    }

    /// An answer that this process gives itself.
    pub(super) fn answer_here(&mut self, reply: Reply) -> Ticket {
        self.tickets += 1;
        self.answers.push((self.tickets, reply));
        Ticket { number: self.tickets, long: false }
    }

    pub(crate) fn take_answer(&mut self, ticket: u64) -> Option<Reply> {
        let index = self.answers.iter().position(|(number, _)| *number == ticket)?;
        Some(self.answers.swap_remove(index).1)
    }

    pub(crate) fn wait_answer(&mut self, ticket: Ticket) -> Result<Reply, NodeDown> {
        let Ticket { number, long } = ticket;
        if let Some(reply) = self.take_answer(number) {
            return Ok(reply);
        }
        let (waits, spent) = match long {
            true => (Some(Waits::Synchronisation), Spent::Wait),
            false => (None, Spent::Message),
        };
        self.wait_open(waits, spent, |process| match process.take_answer(number) {
            Some(reply) => Ok(Some(reply)),
            None => process.pump(PATIENCE).map(|()| None),
        })
    }

    /// Other nodes go on after a synchronisation: what they said of their workers is old.
    pub(crate) fn forget_hints(&mut self) {
        self.under_way.forget_hints();
    }
}
