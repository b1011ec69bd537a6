//! What every process of a node can answer from the memory that they share: claims, the queues of locks, flags.

use std::sync::atomic::Ordering;

use super::process::Process;
use super::requests::Ticket;
use super::wire::Says;
use crate::ids::{NodeId, PageId};
use crate::serve;
use crate::world::{Name, NodeDown, Place, Reply, Request, World};

impl Process {
    /// A worker asks its own node: without a message, but where the server alone can answer.
    pub(super) fn ask_here(&mut self, request: Request) -> Result<Ticket, NodeDown> {
        let reply = match request {
            Request::Claim(page) => Reply::Home(self.claimed(page, self.me)?),
            Request::Lock(name) => {
                self.queue_lock(name, self.me)?;
                serve::DONE
            }
            Request::Forward(..) | Request::Grant(_) | Request::Flag(_) => {
                self.told(request)?;
                serve::DONE
            }
            _ => return self.post(self.me, Says::Request(request), &[]),
        };
        Ok(self.answer_here(reply))
    }

    /// A node claims a page that this node manages.
    pub(super) fn claimed(&mut self, page: PageId, from: NodeId) -> Result<NodeId, NodeDown> {
        // Only a process of this node can have written nonsense here: the node is not to be trusted any more.
        self.memory.region.claim(page, from).ok_or(NodeDown(self.me))
    }

    /// A node asks for a lock that this node manages.
    pub(super) fn queue_lock(&mut self, name: Name, from: NodeId) -> Result<(), NodeDown> {
        let slot = self.meta().manager(name);
        let mut manager = slot.lock(&|| self.meta().alive());
        let previous = manager.request(from);
        slot.unlock_unawaited(manager);
        match previous {
            Some(node) => self.pass(node, Request::Forward(name, from)),
            None => self.pass(from, Request::Grant(name)),
        }
    }

    /// Passes on what needs no answer: by message, or here.
    pub(super) fn pass(&mut self, to: NodeId, request: Request) -> Result<(), NodeDown> {
        if to == self.me { self.told(request) } else { self.tell(to, request) }
    }

    /// A lock comes, has to be passed on, or a flag is set.
    pub(super) fn told(&mut self, request: Request) -> Result<(), NodeDown> {
        match request {
            Request::Forward(name, next) => match self.with_lock(name, |lock| lock.forward(next)) {
                Some(next) => self.pass(next, Request::Grant(name)),
                None => Ok(()),
            },
            Request::Grant(name) => {
                self.with_lock(name, |lock| lock.granted());
                Ok(())
            }
            Request::Flag(name) => {
                let at = self.memory.region.map.place(Place::Flag(name));
                self.memory.region.word(at).store(1, Ordering::Release);
                self.bump();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
