//! The server of a node: answers the requests of workers and servers until every worker has said good-bye.

use std::collections::HashMap;
use std::time::Duration;

use viaduct_via::Vi;

use super::net::{Came, Woken};
use super::process::Process;
use super::wire::{Head, Says};
use crate::ids::{PageId, WorkerId};
use crate::protocol::barrier::Master;
use crate::serve::{self, Answer};
use crate::world::{NodeDown, Reply, Request};

/// How long the server sleeps without looking around.
const NAP: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    process: Process,
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
            // Read before parked requests are tried: a page that changes afterwards ends the wait.
            let seen = self.process.memory.meta.retries();
            self.retry()?;
            let Process { net, memory, .. } = &mut self.process;
            let woken = net.wait(NAP, || memory.meta.retries() != seen);
            match woken.map_err(|fault| self.process.broken(&fault))? {
                Woken::Message(came) => self.handle(came)?,
                Woken::Ready | Woken::Landed => {}
                Woken::Timeout => {
                    if let Some(node) = self.process.memory.meta.down() {
                        return Err(NodeDown(node));
                    }
                }
            }
        }
        Ok(self.process)
    }

    fn handle(&mut self, came: Came) -> Result<(), NodeDown> {
        let Came { vi, head } = came;
        match head.says {
            Says::Reply(reply) => self.reply_came(came, reply),
            Says::Bye => {
                self.leaving += 1;
                self.answer(vi, &head, serve::DONE)
            }
            Says::Request(request) => self.request(vi, head, request),
        }
    }

    /// An answer: to a break, or to what needs none.
    fn reply_came(&mut self, came: Came, reply: Reply) -> Result<(), NodeDown> {
        let ticket = came.head.ticket;
        self.process.answered(came)?;
        self.process.take_answer(ticket);
        if let Some(page) = self.breaks.remove(&ticket) {
            let from = came.head.from;
            if serve::taken_back(&mut self.process, page, reply) {
                self.process.tell(from, Request::Settled(page))?;
            }
        }
        Ok(())
    }

    fn request(&mut self, vi: Vi, head: Head, request: Request) -> Result<(), NodeDown> {
        let from = head.from;
        match request {
            Request::Claim(page) => {
                let home = self.process.claimed(page, from)?;
                self.reply(vi, &head, request, Reply::Home(home))
            }
            Request::Notices => {
                let payload = self.process.net.payload(&head);
                let pages =
                    payload.chunks_exact(4).map(|b| PageId(u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
                let bins = self.process.memory.meta.bins();
                pages.filter(|page| page.0 < self.process.shape.pages).for_each(|page| bins.push(page));
                self.reply(vi, &head, request, serve::DONE)
            }
            Request::Lock(name) => {
                self.reply(vi, &head, request, serve::DONE)?;
                self.process.queue_lock(name, from)
            }
            Request::Forward(..) | Request::Grant(_) | Request::Flag(_) => {
                self.reply(vi, &head, request, serve::DONE)?;
                self.process.told(request)
            }
            Request::Arrive(name) => {
                self.arrivals.entry(name).or_default().push((vi, head));
                if self.masters.entry(name).or_default().arrive(from, self.process.shape.nodes) {
                    for (vi, head) in self.arrivals.remove(&name).unwrap_or_default() {
                        self.reply(vi, &head, request, serve::DONE)?;
                    }
                }
                Ok(())
            }
            Request::Fetch(..)
            | Request::Break(_)
            | Request::Settled(_)
            | Request::Diff(_)
            | Request::Leave(_) => {
                let diff = match request {
                    Request::Diff(_) => self.process.net.payload(&head).to_vec(),
                    _ => Vec::new(),
                };
                self.try_page(Parked { vi, head, request, diff })
            }
        }
    }

    fn try_page(&mut self, mut parked: Parked) -> Result<(), NodeDown> {
        self.process.incoming = std::mem::take(&mut parked.diff);
        let Some(page) = page_of(parked.request) else { return Ok(()) };
        let Some(answer) = serve::page(&mut self.process, parked.head.from, parked.request) else {
            return Ok(());
        };
        match answer {
            Answer::Reply(reply) => return self.reply(parked.vi, &parked.head, parked.request, reply),
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
        // Said before the look: a page that changes after it asks for another.
        self.process.memory.meta.set_parked(self.parked.len());
        for parked in std::mem::take(&mut self.parked) {
            self.try_page(parked)?;
        }
        self.process.memory.meta.set_parked(self.parked.len());
        Ok(())
    }

    fn reply(&mut self, vi: Vi, to: &Head, request: Request, reply: Reply) -> Result<(), NodeDown> {
        let bytes = match reply {
            Reply::Page(_) | Reply::Frame => self.process.staging.len(),
            _ => 0,
        };
        self.process.count_message(to.from, request, bytes);
        self.answer(vi, to, reply)
    }

    fn answer(&mut self, vi: Vi, to: &Head, reply: Reply) -> Result<(), NodeDown> {
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
