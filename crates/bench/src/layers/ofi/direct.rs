//! One end on libfabric that most cases drive: messages out of a [`Stock`], small ones by value where that is wanted.
//!
//! A ping-pong has two receives posted, of which the one that was used is posted again once the answer is on its way. A
//! stream has a window of receives at one end and a window of sends under way at the other; its end is told by a message.

use viaduct_providers::ofi::bare::{Endpoint, Message, Queues};

use crate::error::{Error, Result};
use crate::layers::ofi::Site;
use crate::layers::ofi::line::ConnectedEndpoint;
use crate::layers::ofi::stock::{MessagePool, Stock, messages};
use crate::layers::stock::Pieces;
use crate::layers::stocked::Needs;
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::{Repost, Run, SendMode, Tally};

/// Bytes of the message that tells how much was read.
const TOLD: usize = 8;

/// As many connections as asked for in one completion queue, of which the last one is used and the others stay idle.
pub(crate) fn plain(site: Site) -> Result<Box<dyn End>> {
    let (size, cold) = (site.variant.size, site.variant.arg("cold") as usize);
    let needs = Needs::of(&site.variant, site.side);
    let at_least = |needed: usize| if needed == 0 || cold == 0 { needed } else { cold.max(needed + 1) };
    let sends = messages(&site, at_least(needs.sends), Pieces::whole(size), true)?;
    let receives = messages(&site, at_least(needs.receives), Pieces::whole(size), true)?;
    let queues = site.one_queue(QUEUE.max(2 * site.variant.connections))?;
    let idle = idle(&site, &queues)?;
    end(site, MessagePool::new(sends, receives, size, cold == 0), queues, false, idle)
}

/// Completions that are not taken at once, at most.
pub(crate) const QUEUE: usize = 1024;

/// All connections but the one that is used, each with a receive posted.
pub(crate) fn idle(site: &Site, queues: &Queues) -> Result<Vec<Endpoint>> {
    let others = site.variant.connections - 1;
    let receives = site.domain.messages(others, &[64], 64, true).map_err(|e| site.failed(&e))?;
    receives.into_iter().map(|receive| site.join(queues, vec![receive])).collect()
}

/// Connects and builds an end. With `apart` sends have a queue of their own.
pub(crate) fn end<S: Stock + 'static>(
    site: Site,
    mut stock: S,
    queues: Queues,
    apart: bool,
    idle: Vec<Endpoint>,
) -> Result<Box<dyn End>> {
    let facts = site.domain.facts();
    if facts.inject < TOLD {
        let message = format!("libfabric's {} sends no message by value", facts.name);
        return Err(Error::layer(site.variant.layer.name(), message, ""));
    }
    let inline = site.variant.send == SendMode::Auto && site.variant.size <= facts.inject;
    let needs = Needs::of(&site.variant, site.side);
    let receives = match needs.receives {
        // Only the news of the other end come in.
        0 => site.domain.messages(2, &[TOLD], 64, true).map_err(|e| site.failed(&e))?,
        all => (0..site.at_most(all)).map(|_| stock.incoming(&site, None)).collect::<Result<_>>()?,
    };
    let endpoint = site.join(&queues, receives)?;
    let variant = site.variant.clone();
    let line = ConnectedEndpoint::new(site, endpoint, queues, apart, idle);
    Ok(if variant.motion.is_stream() {
        Box::new(Looped::new(Direct::<S, true>::new(line, stock, inline), &variant))
    } else {
        Box::new(Looped::new(Direct::<S, false>::new(line, stock, inline), &variant))
    })
}

struct Direct<S, const STREAM: bool> {
    line: ConnectedEndpoint,
    stock: S,
    /// Messages are small enough to be sent by value.
    inline: bool,
    scratch: Vec<u8>,
    repost: Repost,
    window: usize,
    /// A receive that is replaced once the answer to its message is on its way.
    spent: Option<Message>,
    /// Messages sent, all slices together.
    sent: u64,
    /// Messages received, all slices together.
    received: u64,
}

impl<S: Stock, const STREAM: bool> Direct<S, STREAM> {
    fn new(line: ConnectedEndpoint, stock: S, inline: bool) -> Self {
        let variant = &line.site.variant;
        let (scratch, repost, window) = (vec![0; variant.size], variant.repost, variant.window);
        Direct { line, stock, inline, scratch, repost, window, spent: None, sent: 0, received: 0 }
    }

    #[inline(always)]
    fn take_back(&mut self) {
        while let Some(message) = self.line.back.pop() {
            self.stock.returned(message);
        }
    }

    #[inline(always)]
    fn replace(&mut self, used: Message) -> Result<()> {
        let next = self.stock.incoming(&self.line.site, Some(used))?;
        self.line.post(next)
    }

    #[inline(always)]
    fn replace_spent(&mut self) -> Result<()> {
        match self.spent.take() {
            Some(used) => self.replace(used),
            None => Ok(()),
        }
    }

    /// Posts message `seq`, once one of the stock is free and the window has room.
    #[inline(always)]
    fn post<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        while STREAM && self.line.under_way >= self.window {
            self.line.reclaim()?;
            self.take_back();
        }
        let message = loop {
            if let Some(message) = self.stock.outgoing::<CHECK>(&self.line.site, seq)? {
                break message;
            }
            self.line.reclaim()?;
            self.take_back();
        };
        self.line.send(message)
    }
}

impl<S: Stock, const STREAM: bool> Wire for Direct<S, STREAM> {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        self.sent += 1;
        if self.inline {
            if CHECK {
                pattern::fill(&mut self.scratch, seq);
            }
            self.line.inject(&self.scratch)?;
            return if STREAM { Ok(()) } else { self.replace_spent() };
        }
        self.post::<CHECK>(seq)?;
        // Off the critical path: the message is on its way.
        if !STREAM {
            self.replace_spent()?;
        }
        self.line.glance()?;
        self.take_back();
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        if !STREAM {
            self.replace_spent()?;
        }
        let done = self.line.receive()?;
        let value = self.stock.read::<CHECK>(&done, seq);
        self.received += 1;
        if STREAM {
            self.replace(done.message)?;
            return Ok(value);
        }
        // Another one is posted, so this one has time.
        self.spent = Some(done.message);
        if self.repost == Repost::Before {
            self.replace_spent()?;
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.line.inject(&self.received.to_le_bytes())
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        let done = self.line.receive()?;
        if done.message.bytes(0) != self.sent.to_le_bytes() {
            return Err(Error::layer(self.line.site.variant.layer.name(), "messages were lost", ""));
        }
        self.line.post(done.message)
    }

    fn begin(&mut self) {
        self.stock.begin();
    }

    fn finish(&mut self, run: &Run, tally: &mut Tally) -> Result<()> {
        // No call moves sends on between slices.
        while self.line.under_way > 0 {
            self.line.reclaim()?;
            self.take_back();
        }
        self.stock.finish(run, tally);
        Ok(())
    }
}
