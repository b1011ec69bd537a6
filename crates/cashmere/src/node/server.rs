//! The server of a node: answers the requests of workers and servers until every worker has said good-bye.

use std::collections::HashMap;
use std::time::Duration;

use viaduct_via::Vi;

use super::net::Came;
use super::process::Process;
use super::wire::{Head, Says};
use crate::ids::{NodeId, PageId, WorkerId};
use crate::protocol::barrier::Master;
use crate::protocol::lock::Manager;
use crate::serve::{self, Answer};
use crate::world::{NodeDown, Reply, Request, World};

/// How long the server sleeps without looking around.
const NAP: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    process: Process,
    claims: HashMap<PageId, NodeId>,
    managers: HashMap<u32, Manager>,
    masters: HashMap<u32, Master>,
    arrivals: HashMap<u32, Vec<(Vi, Head)>>,
    parked: Vec<Parked>,
    /// Pages that this server asked back from the node that had them alone, by ticket.
    breaks: HashMap<u64, PageId>,
    leaving: usize,
}

struct Parked {
    vi: Vi,
    head: Head,
    request: Request,
    diff: Vec<u8>,
}

fn page_of(request: Request) -> Option<PageId> {
    match request {
        Request::Fetch(page, _) | Request::Break(page) | Request::Diff(page) | Request::Leave(page) => {
            Some(page)
        }
        _ => None,
    }
}

impl Server {
    pub(crate) fn new(process: Process) -> Server {
        Server {
            process,
            claims: HashMap::new(),
            managers: HashMap::new(),
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
            let next = self.process.net.next(NAP).map_err(|fault| self.process.broken(&fault))?;
            match next {
                Some(came) => self.handle(came)?,
                None => {
                    if let Some(node) = self.process.memory.meta.down() {
                        return Err(NodeDown(node));
                    }
                }
            }
            self.retry()?;
        }
        Ok(self.process)
    }

    fn handle(&mut self, came: Came) -> Result<(), NodeDown> {
        let Came { vi, head } = came;
        match head.says {
            Says::Reply(reply) => self.reply_came(came, reply),
            Says::Retry => self.reply(vi, &head, serve::DONE),
            Says::Bye => {
                self.leaving += 1;
                self.reply(vi, &head, serve::DONE)
            }
            Says::Request(request) => self.request(vi, head, request),
        }
    }

    /// An answer to a break, or to a grant or a forward, of which only the first matters.
    fn reply_came(&mut self, came: Came, reply: Reply) -> Result<(), NodeDown> {
        let ticket = came.head.ticket;
        self.process.answered(came)?;
        self.process.take_answer(ticket);
        if let Some(page) = self.breaks.remove(&ticket) {
            serve::taken_back(&mut self.process, page, reply);
        }
        Ok(())
    }

    fn request(&mut self, vi: Vi, head: Head, request: Request) -> Result<(), NodeDown> {
        let from = head.from;
        match request {
            Request::Claim(page) => {
                let home = *self.claims.entry(page).or_insert(from);
                self.reply(vi, &head, Reply::Home(home))
            }
            Request::Notices => {
                let payload = self.process.net.payload(&head);
                let pages =
                    payload.chunks_exact(4).map(|b| PageId(u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
                let bins = self.process.memory.meta.bins();
                pages.filter(|page| page.0 < self.process.shape.pages).for_each(|page| bins.push(page));
                self.reply(vi, &head, serve::DONE)
            }
            Request::Lock(name) => {
                let previous = self.managers.entry(name).or_default().request(from);
                self.reply(vi, &head, serve::DONE)?;
                match previous {
                    Some(node) => self.tell(node, Request::Forward(name, from)),
                    None => self.tell(from, Request::Grant(name)),
                }
            }
            Request::Forward(..) | Request::Grant(_) | Request::Flag(_) => {
                self.reply(vi, &head, serve::DONE)?;
                self.told(request)
            }
            Request::Arrive(name) => {
                self.arrivals.entry(name).or_default().push((vi, head));
                if self.masters.entry(name).or_default().arrive(from, self.process.shape.nodes) {
                    for (vi, head) in self.arrivals.remove(&name).unwrap_or_default() {
                        self.reply(vi, &head, serve::DONE)?;
                    }
                }
                Ok(())
            }
            Request::Fetch(..) | Request::Break(_) | Request::Diff(_) | Request::Leave(_) => {
                let diff = match request {
                    Request::Diff(_) => self.process.net.payload(&head).to_vec(),
                    _ => Vec::new(),
                };
                self.try_page(Parked { vi, head, request, diff })
            }
        }
    }

    /// Tells a node what needs no answer; this node without a message.
    fn tell(&mut self, to: NodeId, request: Request) -> Result<(), NodeDown> {
        if to == self.process.me {
            return self.told(request);
        }
        self.process.post(to, Says::Request(request), &[]).map(drop)
    }

    fn told(&mut self, request: Request) -> Result<(), NodeDown> {
        match request {
            Request::Forward(name, next) => match self.process.with_lock(name, |lock| lock.forward(next)) {
                Some(next) => self.tell(next, Request::Grant(name)),
                None => Ok(()),
            },
            Request::Grant(name) => {
                self.process.with_lock(name, |lock| lock.granted());
                Ok(())
            }
            Request::Flag(name) => {
                self.process.memory.meta.flag(name).store(1, std::sync::atomic::Ordering::Release);
                self.process.memory.meta.bump();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn try_page(&mut self, mut parked: Parked) -> Result<(), NodeDown> {
        self.process.incoming = std::mem::take(&mut parked.diff);
        let Some(page) = page_of(parked.request) else { return Ok(()) };
        let Some(answer) = serve::page(&mut self.process, parked.head.from, parked.request) else {
            return Ok(());
        };
        match answer {
            Answer::Reply(reply) => return self.reply(parked.vi, &parked.head, reply),
            Answer::Park => {}
            Answer::Break { holder } => {
                let ticket = self.process.post(holder, Says::Request(Request::Break(page)), &[])?;
                self.breaks.insert(ticket.number(), page);
            }
        }
        parked.diff = std::mem::take(&mut self.process.incoming);
        self.parked.push(parked);
        Ok(())
    }

    /// Tries parked requests again, in their order.
    fn retry(&mut self) -> Result<(), NodeDown> {
        if self.parked.is_empty() {
            return Ok(());
        }
        // Said before the look: a page that changes after it brings a message.
        self.process.memory.meta.set_parked(self.parked.len());
        for parked in std::mem::take(&mut self.parked) {
            self.try_page(parked)?;
        }
        self.process.memory.meta.set_parked(self.parked.len());
        Ok(())
    }

    fn reply(&mut self, vi: Vi, to: &Head, reply: Reply) -> Result<(), NodeDown> {
        let me = self.process.me;
        let head =
            Head { ticket: to.ticket, from: me, worker: None::<WorkerId>, says: Says::Reply(reply), len: 0 };
        let process = &mut self.process;
        let payload = match reply {
            Reply::Page(_) | Reply::Frame => process.staging.as_slice(),
            _ => &[],
        };
        process.net.send(vi, head, payload).map_err(|fault| process.broken(&fault))
    }
}
