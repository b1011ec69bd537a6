//! What a process of a node answers to others: the server, and every worker that waits (section 2.3.1, the paper's polling).
//!
//! A worker answers what can be answered at once, and hands the rest to its server. It does so inside a fault too: nothing
//! here allocates on the way of a request for a page.

use viaduct_os::point::point;

use super::layout::Meta;
use super::net::Came;
use super::process::Process;
use super::wire::{Handed, Head, Peer, Says};
use crate::ids::{PageId, WorkerId};
use crate::serve::{self, Answer};
use crate::statistics::Counter;
use crate::world::{NodeDown, Reply, Request};

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) peer: Peer,
    pub(super) ticket: u64,
    /// The worker that the request was sent to; None: the server.
    pub(super) copy: Option<WorkerId>,
}

/// What the server has to do before a request can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Later {
    /// Try again when the page has changed.
    Park,
    /// Take the page back first.
    Break(crate::ids::NodeId),
}

impl Process {
    /// Takes a request in; None if its other copy is answered.
    pub(super) fn take_request(&mut self, head: &Head, request: Request) -> Result<Option<Asked>, NodeDown> {
        let peer = Peer { node: head.from, worker: head.worker };
        let asked = Asked { peer, ticket: head.ticket, copy: self.worker };
        if head.slot != 0 && !self.meta().claim(self.net.rank(peer), head.slot, head.ticket) {
            self.say(asked, Says::Dropped, false)?;
            return Ok(None);
        }
        self.take_in(head, request);
        let counter = if self.worker.is_some() { Counter::ServedByWorkers } else { Counter::ServedByServers };
        self.count(counter, u64::from(head.from != self.me));
        Ok(Some(asked))
    }

    /// Keeps what came beside a request.
    pub(super) fn take_in(&mut self, head: &Head, request: Request) {
        self.incoming.clear();
        if matches!(request, Request::Diff(_) | Request::Notices) {
            self.incoming.extend_from_slice(self.net.payload(head));
        }
    }

    /// A worker that waits got a request.
    pub(super) fn serve_waiting(&mut self, came: Came, request: Request) -> Result<(), NodeDown> {
        let Some(asked) = self.take_request(&came.head, request)? else { return Ok(()) };
        let Some(later) = self.serve(asked, request)? else { return Ok(()) };
        let holder = match later {
            Later::Park => None,
            Later::Break(holder) => Some(holder),
        };
        let handed = Handed { request, ticket: asked.ticket, asker: asked.peer, holder };
        let payload = std::mem::take(&mut self.incoming);
        let sent = self.ask(self.me, Says::Handed(handed), &payload, false);
        self.incoming = payload;
        sent.map(drop)
    }

    /// Answers a request, whose diff or notices are in `incoming`; or says what has to be done first.
    pub(super) fn serve(&mut self, asked: Asked, request: Request) -> Result<Option<Later>, NodeDown> {
        let from = asked.peer.node;
        point("dsm.serves");
        match request {
            Request::Claim(page) => {
                let home = self.claimed(page, from)?;
                self.reply(asked, request, Reply::Home(home))?;
            }
            Request::Notices => {
                note(&self.memory.meta, &self.incoming, self.shape.pages);
                self.reply(asked, request, serve::DONE)?;
            }
            Request::Lock(name) => {
                self.reply(asked, request, serve::DONE)?;
                self.queue_lock(name, from)?;
            }
            Request::Forward(..) | Request::Grant(_) | Request::Flag(_) => {
                self.reply(asked, request, serve::DONE)?;
                self.told(request)?;
            }
            // Nodes that arrive at a barrier are the server's.
            Request::Arrive(_) => return Ok(Some(Later::Park)),
            Request::Fetch(..)
            | Request::Break(_)
            | Request::Settled(_)
            | Request::Diff(_)
            | Request::Leave(_) => match serve::page(self, from, request) {
                Some(Answer::Reply(reply)) => self.reply(asked, request, reply)?,
                Some(Answer::Park) => return Ok(Some(Later::Park)),
                Some(Answer::Break { holder }) => return Ok(Some(Later::Break(holder))),
                None => {}
            },
        }
        Ok(None)
    }

    pub(super) fn reply(&mut self, asked: Asked, request: Request, reply: Reply) -> Result<(), NodeDown> {
        let page = matches!(reply, Reply::Page(_) | Reply::Frame);
        self.count_message(asked.peer.node, request, if page { self.outgoing.len() } else { 0 });
        self.say(asked, Says::Reply(reply), page)
    }

    pub(super) fn say(&mut self, asked: Asked, says: Says, page: bool) -> Result<(), NodeDown> {
        let Asked { peer, ticket, copy } = asked;
        let polls = self.meta().polls();
        let head = Head { ticket, from: self.me, worker: copy, says, slot: 0, polls, len: 0 };
        let payload = if page { self.outgoing.as_slice() } else { &[] };
        let sent = self.net.send(peer, head, payload);
        point("dsm.said");
        sent.map_err(|fault| self.broken(fault))
    }
}

/// Puts the pages whose numbers came into the node's bin.
fn note(meta: &Meta, bytes: &[u8], pages: u32) {
    let numbers = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let bins = meta.bins();
    numbers.filter(|page| *page < pages).for_each(|page| bins.push(PageId(page)));
}
