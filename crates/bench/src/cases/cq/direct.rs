//! Completion queues on libfabric: one that all endpoints share, or one for each alone.
//!
//! libfabric hands completions out through such queues only; there is no work queue that could be polled. So the standard
//! that a shared queue is held against are queues of the active endpoint alone, one for each direction.

use std::collections::{HashMap, VecDeque};

use viaduct_providers::ofi::bare::{Cq, Done, Endpoint, Message, Queues};

use crate::cases::cq::active::{Rounds, Several};
use crate::control::Turns;
use crate::error::{Error, Result};
use crate::layers::ofi::Site;
use crate::layers::ofi::direct::{QUEUE, end, idle};
use crate::layers::ofi::line::sleep_on;
use crate::layers::ofi::stock::{MessagePool, fill, messages, total, wrong};
use crate::layers::stock::Pieces;
use crate::layers::stocked::Needs;
use crate::loops::End;
use crate::plan::Wait;

pub(super) fn build(site: Site) -> Result<Box<dyn End>> {
    if site.variant.arg("active") > 0 {
        return active(site);
    }
    let (size, needs) = (site.variant.size, Needs::of(&site.variant, site.side));
    let sends = messages(&site, needs.sends + 1, Pieces::whole(size), true)?;
    let receives = messages(&site, needs.receives, Pieces::whole(size), true)?;
    let shared = site.one_queue(QUEUE.max(2 * site.variant.connections))?;
    let others = idle(&site, &shared)?;
    let apart = site.variant.arg("cq") == 0;
    let queues = if apart { own_queues(&site, QUEUE)? } else { shared };
    end(site, MessagePool::new(sends, receives, size, true), queues, apart, others)
}

fn own_queues(site: &Site, entries: usize) -> Result<Queues> {
    Ok(Queues { send: site.cq(entries)?, receive: site.cq(entries)? })
}

/// Several endpoints that all carry traffic: a round is one message on every one and an answer on each.
fn active(site: Site) -> Result<Box<dyn End>> {
    let (size, count) = (site.variant.size, site.variant.connections);
    let shared = match site.variant.arg("cq") {
        1 => Some(site.cq(QUEUE.max(8 * count))?),
        _ => None,
    };
    let (mut lines, mut place_of) = (Vec::with_capacity(count), HashMap::new());
    for at in 0..count {
        let queues = match &shared {
            Some(cq) => Queues { send: cq.clone(), receive: cq.clone() },
            None => own_queues(&site, 64)?,
        };
        let receives = messages(&site, 2, Pieces::whole(size), true)?;
        let endpoint = site.join(&queues, receives)?;
        let spare = messages(&site, 2, Pieces::whole(size), true)?;
        place_of.insert(endpoint.key(), at);
        lines.push(ActiveEndpoint { endpoint, queues, spare, seq: 1 });
    }
    let block = shared.is_some() && site.variant.wait == Wait::Block;
    let scratch = vec![0; size];
    let early = VecDeque::new();
    Ok(Box::new(Rounds(Active { lines, place_of, shared, early, block, scratch, turn: 0, site })))
}

/// One endpoint.
struct ActiveEndpoint {
    endpoint: Endpoint,
    queues: Queues,
    /// Messages that are not under way.
    spare: Vec<Message>,
    /// The message to come.
    seq: u64,
}

struct Active {
    lines: Vec<ActiveEndpoint>,
    /// Where in `lines` an endpoint is: a completion only names it.
    place_of: HashMap<usize, usize>,
    shared: Option<Cq>,
    /// Receives that came while a send was looked for.
    early: VecDeque<Done>,
    block: bool,
    scratch: Vec<u8>,
    /// The endpoint that is asked next, where each is.
    turn: usize,
    site: Site,
}

impl Active {
    fn send<const CHECK: bool>(&mut self, at: usize) -> Result<()> {
        let mut message = loop {
            match self.lines[at].spare.pop() {
                Some(message) => break message,
                None => self.take(at, false)?,
            }
        };
        if CHECK {
            fill(&mut message, &mut self.scratch, self.lines[at].seq);
        }
        while let Some(refused) = self.lines[at].endpoint.send(message).map_err(|e| self.site.failed(&e))? {
            message = refused;
            self.take(at, false)?;
        }
        Ok(())
    }

    /// Takes one completion of an endpoint, or of any if they share a queue.
    #[inline(always)]
    fn take(&mut self, at: usize, receive: bool) -> Result<()> {
        let queues = &self.lines[at].queues;
        let queue = if receive { &queues.receive } else { &queues.send };
        match queue.poll().map_err(|e| self.site.failed(&e))? {
            Some(done) if done.receive => self.early.push_back(done),
            Some(done) => self.lines[self.place_of[&done.endpoint]].spare.push(done.message),
            None if receive => {}
            None => self.site.patience.check("waiting for a send to complete")?,
        }
        Ok(())
    }

    /// Waits for a message on any endpoint, reads it and posts its receive again.
    fn receive<const CHECK: bool>(&mut self) -> Result<(usize, u64)> {
        let mut turns = Turns::default();
        let done = loop {
            if let Some(done) = self.early.pop_front() {
                break done;
            }
            self.take(self.turn, true)?;
            if self.shared.is_none() {
                self.turn = (self.turn + 1) % self.lines.len();
            }
            if !self.early.is_empty() {
                continue;
            }
            if let Some(cq) = self.shared.as_ref().filter(|_| self.block) {
                sleep_on(cq)?;
                self.site.patience.check("waiting for a completion")?;
            }
            turns.pause(&self.site.patience, "waiting for a completion")?;
        };
        let at = self.place_of[&done.endpoint];
        let line = &mut self.lines[at];
        let value = if CHECK { wrong(&done, &mut self.scratch, line.seq) } else { total(&done.message) };
        match line.endpoint.receive(done.message).map_err(|e| self.site.failed(&e))? {
            None => Ok((at, value)),
            Some(_) => Err(Error::layer(self.site.variant.layer.name(), "no room for a receive", "")),
        }
    }
}

impl Several for Active {
    fn count(&self) -> usize {
        self.lines.len()
    }

    fn round<const CHECK: bool>(&mut self) -> Result<u64> {
        (0..self.lines.len()).try_for_each(|at| self.send::<CHECK>(at))?;
        let mut all = 0u64;
        for _ in 0..self.lines.len() {
            let (at, value) = self.receive::<CHECK>()?;
            self.lines[at].seq += 1;
            all = all.wrapping_add(value);
        }
        Ok(all)
    }

    fn answer<const CHECK: bool>(&mut self) -> Result<u64> {
        let (at, value) = self.receive::<CHECK>()?;
        self.send::<CHECK>(at)?;
        self.lines[at].seq += 1;
        Ok(value)
    }
}
