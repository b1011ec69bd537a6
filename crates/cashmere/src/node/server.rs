//! The server of a node: answers the requests that no waiting worker of its node takes, until every worker has said
//! good-bye.

use std::collections::HashMap;
use std::time::Duration;

use super::net::{Came, Woken};
use super::process::Process;
use super::requests::AGAIN;
use super::serving::{Asked, Later};
use super::wire::{Peer, Says};
use crate::clock::Spent;
use crate::ids::PageId;
use crate::protocol::barrier::Master;
use crate::serve;
use crate::world::{NodeDown, Reply, Request};

/// How long the server sleeps without looking around.
const NAP: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    process: Process,
    masters: HashMap<u32, Master>,
    arrivals: HashMap<u32, Vec<Asked>>,
    parked: Vec<Parked>,
    /// Pages that this server asked back from the node that had them alone, by ticket.
    breaks: HashMap<u64, PageId>,
    leaving: usize,
}

struct Parked {
    asked: Asked,
    request: Request,
    diff: Vec<u8>,
}

fn page_of(request: Request) -> Option<PageId> {
    match request {
        Request::Fetch(page, _)
        | Request::Break(page)
        | Request::Settled(page)
        | Request::Diff(page)
        | Request::Leave(page) => Some(page),
        _ => None,
    }
}

impl Server {
    pub(crate) fn new(process: Process) -> Server {
        Server {
            process,
            masters: HashMap::new(),
            arrivals: HashMap::new(),
            parked: Vec::new(),
            breaks: HashMap::new(),
            leaving: 0,
        }
    }

    /// Serves to the end of the program.
    pub(crate) fn run(mut self) -> Result<Process, NodeDown> {
        let shape = self.process.shape;
        let all = usize::from(shape.nodes) * shape.workers as usize;
        while self.leaving < all {
            self.process.clock.switch(Spent::Server);
            // Read before parked requests are tried: a page that changes afterwards ends the wait.
            let seen = self.process.memory.meta.retries();
            self.retry()?;
            self.process.send_overdue()?;
            let nap = if self.process.under_way.is_abroad() { AGAIN } else { NAP };
            self.process.clock.switch(Spent::Wait);
            let Process { net, memory, .. } = &mut self.process;
            let woken = net.wait(nap, || memory.meta.retries() != seen);
            match woken.map_err(|fault| self.process.broken(fault))? {
                Woken::Message(came) => self.handle(came)?,
                Woken::Ready | Woken::Landed => {}
                Woken::Timeout => self.process.check()?,
            }
        }
        self.process.count_times();
        Ok(self.process)
    }

    fn handle(&mut self, came: Came) -> Result<(), NodeDown> {
        self.process.clock.switch(Spent::Server);
        let head = came.head;
        match head.says {
            Says::Reply(reply) => self.reply_came(came, reply),
            Says::Dropped => self.process.dropped(&head),
            // All were taken in before the program began.
            Says::Hello => Ok(()),
            Says::Bye => {
                self.leaving += 1;
                let peer = Peer { node: head.from, worker: head.worker };
                let asked = Asked { peer, ticket: head.ticket, copy: None };
                self.process.say(asked, Says::Reply(serve::DONE), false)
            }
            Says::Request(request) => match self.process.take_request(&head, request)? {
                Some(asked) => self.request(asked, request),
                None => Ok(()),
            },
            Says::Handed(handed) => {
                let peer = Peer { node: head.from, worker: head.worker };
                // Workers of other nodes have nothing to hand over here.
                if peer.node != self.process.me {
                    return Ok(());
                }
                self.process.take_in(&head, handed.request);
                let done = Asked { peer, ticket: head.ticket, copy: None };
                self.process.say(done, Says::Reply(serve::DONE), false)?;
                let asked = Asked { peer: handed.asker, ticket: handed.ticket, copy: peer.worker };
                match handed.holder {
                    Some(holder) => self.later(asked, handed.request, Later::Break(holder)),
                    None => self.request(asked, handed.request),
                }
            }
        }
    }

    /// An answer: to a break, or to what needs none.
    fn reply_came(&mut self, came: Came, reply: Reply) -> Result<(), NodeDown> {
        let ticket = came.head.ticket;
        self.process.answered(came, reply)?;
        if self.process.take_answer(ticket).is_none() {
            return Ok(());
        }
        if let Some(page) = self.breaks.remove(&ticket) {
            let from = came.head.from;
            if serve::taken_back(&mut self.process, page, reply) {
                self.process.tell(from, Request::Settled(page))?;
            }
        }
        Ok(())
    }

    /// A request whose diff is in the process' hands.
    fn request(&mut self, asked: Asked, request: Request) -> Result<(), NodeDown> {
        if let Request::Arrive(name) = request {
            self.arrivals.entry(name).or_default().push(asked);
            if self.masters.entry(name).or_default().arrive(asked.peer.node, self.process.shape.nodes) {
                for asked in self.arrivals.remove(&name).unwrap_or_default() {
                    self.process.reply(asked, request, serve::DONE)?;
                }
            }
            return Ok(());
        }
        match self.process.serve(asked, request)? {
            Some(later) => self.later(asked, request, later),
            None => Ok(()),
        }
    }

    fn later(&mut self, asked: Asked, request: Request, later: Later) -> Result<(), NodeDown> {
        let Some(page) = page_of(request) else { return Ok(()) };
        let diff = match request {
            Request::Diff(_) => self.process.incoming.clone(),
            _ => Vec::new(),
        };
        self.parked.push(Parked { asked, request, diff });
        if let Later::Break(holder) = later {
            let ticket = self.process.post(holder, Says::Request(Request::Break(page)), &[])?;
            self.breaks.insert(ticket.number(), page);
        }
        Ok(())
    }

    /// Tries parked requests again, in their order.
    fn retry(&mut self) -> Result<(), NodeDown> {
        if self.parked.is_empty() {
            return Ok(());
        }
        // Said before the look: a page that changes after it asks for another.
        self.process.memory.meta.set_parked(self.parked.len());
        for Parked { asked, request, diff } in std::mem::take(&mut self.parked) {
            self.process.incoming.clear();
            self.process.incoming.extend_from_slice(&diff);
            self.request(asked, request)?;
        }
        self.process.memory.meta.set_parked(self.parked.len());
        Ok(())
    }
}
