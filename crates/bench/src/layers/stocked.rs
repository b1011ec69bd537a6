//! One end whose messages lie where the case says and whose completions are taken as the case says.
//!
//! Like `half.rs`, but every message goes by descriptor, the memory comes out of a [`Stock`], and completions may come
//! through a completion queue (thesis, sections 3.4, 3.7, 3.8). Streams have the same credits; those are small messages
//! by value into plain buffers, so that the curve shows what the case is about and nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use viaduct_via::{
    Completion, Cq, Descriptor, Error as ViaError, MemAttributes, Nic, Queue, Vi, ViAttributes,
};

use crate::control::{Patience, Turns};
use crate::error::Result;
use crate::layers::credit::Credit;
use crate::layers::half::{CREDITS, Side, checked, failure};
use crate::layers::stock::Stock;
use crate::layers::via::Place;
use crate::loops::{End, Looped, Wire};
use crate::plan::{Repost, Run, Tally, Variant, Wait};

/// Longest sleep without a look at whether the other process lives.
const NAP: Option<Duration> = Some(Duration::from_millis(200));

/// How many descriptors an end needs at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) sends: usize,
    /// Messages that are posted for at once; 0 where only credits come in.
    pub(crate) receives: usize,
}

impl Needs {
    /// Of one side of `variant`.
    pub(crate) fn of(variant: &Variant, side: Side) -> Needs {
        let stream = variant.motion.is_stream();
        match (stream, side) {
            (false, _) => Needs { sends: 1, receives: 2 },
            (true, Side::Lead) => Needs { sends: variant.window + 1, receives: 0 },
            (true, Side::Follow) => Needs { sends: 0, receives: variant.window },
        }
    }
}

/// Connects one VI and builds an end on it. With `cq` both of its queues are bound to that and polled through it.
pub(crate) fn stocked<S: Stock + 'static>(
    mut place: Place,
    mut stock: S,
    cq: Option<Cq>,
) -> Result<Box<dyn End>> {
    let needs = Needs::of(&place.variant, place.side);
    let depth = needs.sends.max(needs.receives).max(CREDITS) + 1;
    let attributes = ViAttributes::new(place.tag).depth(depth);
    let attributes = match cq {
        Some(cq) => attributes.cq(cq),
        None => attributes,
    };
    let vi = place.nic.create_vi(attributes).map_err(|e| place.failed(&e))?;
    for _ in 0..needs.receives {
        let receive = stock.incoming(&mut place.nic, None).map_err(|e| place.failed(&e))?;
        place.nic.post_recv(vi, receive).map_err(|e| place.failed(&e.error))?;
    }
    if needs.receives == 0 {
        let memory = place.nic.alloc(64 * CREDITS, MemAttributes::local(place.tag));
        for buffer in memory.map_err(|e| place.failed(&e))?.chunks(64) {
            place.nic.post_recv(vi, Descriptor::recv(buffer)).map_err(|e| place.failed(&e.error))?;
        }
    }
    place.join(vi, &[])?;
    let Place { nic, variant, control, .. } = place;
    let patience = control.patience();
    let line = ConnectedVi {
        nic,
        vi,
        cq,
        layer: variant.layer.name(),
        block: variant.wait == Wait::Block,
        patience,
    };
    Ok(if variant.motion.is_stream() {
        Box::new(Looped::new(Stocked::<S, true>::new(line, stock, &variant), &variant))
    } else {
        Box::new(Looped::new(Stocked::<S, false>::new(line, stock, &variant), &variant))
    })
}

/// A connected VI and how its completions are taken.
struct ConnectedVi {
    nic: Nic,
    vi: Vi,
    cq: Option<Cq>,
    layer: &'static str,
    block: bool,
    patience: Patience,
}

impl ConnectedVi {
    /// A completion of any queue of the VI, if one is there; `queue` is where it is looked for without a CQ.
    #[inline(always)]
    fn poll(&mut self, queue: Queue) -> Result<Option<Completion>> {
        let found = match (self.cq, queue) {
            (Some(cq), _) => self.nic.poll_cq(cq),
            (None, Queue::Receive) => self.nic.poll_recv(self.vi),
            (None, Queue::Send) => self.nic.poll_send(self.vi),
        };
        match found {
            Ok(None) => Ok(None),
            Ok(Some(done)) => checked(self.layer, done).map(Some),
            Err(error) => Err(failure(self.layer, &error)),
        }
    }

    /// Waits for a completion, as the user asked for.
    #[inline(always)]
    fn wait(&mut self, queue: Queue) -> Result<Completion> {
        if self.block {
            return self.sleep(queue);
        }
        let mut turns = Turns::default();
        loop {
            if let Some(done) = self.poll(queue)? {
                return Ok(done);
            }
            turns.pause(&self.patience, "waiting for a completion")?;
        }
    }

    fn sleep(&mut self, queue: Queue) -> Result<Completion> {
        loop {
            let done = match (self.cq, queue) {
                (Some(cq), _) => self.nic.wait_cq(cq, NAP),
                (None, Queue::Receive) => self.nic.wait_recv_outcome(self.vi, NAP),
                (None, Queue::Send) => self.nic.wait_send_outcome(self.vi, NAP),
            };
            match done {
                Ok(done) => return checked(self.layer, done.0),
                Err(ViaError::Timeout) => self.patience.check("waiting for a completion")?,
                Err(error) => return Err(failure(self.layer, &error)),
            }
        }
    }

    #[inline(always)]
    fn post_recv(&mut self, descriptor: Descriptor) -> Result<()> {
        self.nic.post_recv(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error))
    }
}

struct Stocked<S, const STREAM: bool> {
    line: ConnectedVi,
    stock: S,
    repost: Repost,
    credit: Credit,
    /// Sends whose completion has not been taken.
    under_way: u64,
    /// A receive that is replaced once the answer to its message is on its way.
    spent: Option<Descriptor>,
    /// Receives that came out of the CQ while something else was looked for.
    early: VecDeque<Completion>,
    /// Messages sent when the slice began.
    before: u64,
}

impl<S: Stock, const STREAM: bool> Stocked<S, STREAM> {
    fn new(line: ConnectedVi, stock: S, variant: &Variant) -> Self {
        Stocked {
            line,
            stock,
            repost: variant.repost,
            credit: Credit::new(variant.window),
            under_way: 0,
            spent: None,
            early: VecDeque::with_capacity(CREDITS),
            before: 0,
        }
    }

    #[inline(always)]
    fn take_back(&mut self, done: Completion) -> Result<()> {
        if done.queue == Queue::Receive {
            self.early.push_back(done);
            return Ok(());
        }
        self.under_way -= 1;
        let layer = self.line.layer;
        self.stock.returned(&mut self.line.nic, done.descriptor).map_err(|e| failure(layer, &e))
    }

    #[inline(always)]
    fn wait_recv(&mut self) -> Result<Completion> {
        if let Some(done) = self.early.pop_front() {
            return Ok(done);
        }
        loop {
            let done = self.line.wait(Queue::Receive)?;
            if done.queue == Queue::Receive {
                return Ok(done);
            }
            self.take_back(done)?;
        }
    }

    #[inline(always)]
    fn replace(&mut self, used: Descriptor) -> Result<()> {
        let layer = self.line.layer;
        let next = self.stock.incoming(&mut self.line.nic, Some(used)).map_err(|e| failure(layer, &e))?;
        self.line.post_recv(next)
    }

    #[inline(always)]
    fn replace_spent(&mut self) -> Result<()> {
        match self.spent.take() {
            Some(used) => self.replace(used),
            None => Ok(()),
        }
    }

    /// Tells the peer what was received; if the transport is busy the next credit will carry the news.
    fn grant(&mut self) -> Result<()> {
        match self.line.nic.send_inline(self.line.vi, &self.credit.letter(), None) {
            Ok(()) => self.credit.tell(),
            Err(ViaError::Busy) => {
                if let Some(done) = self.line.poll(Queue::Send)? {
                    self.take_back(done)?;
                }
                self.line.patience.check("sending a credit")?;
            }
            Err(error) => return Err(failure(self.line.layer, &error)),
        }
        Ok(())
    }

    fn take_grant(&mut self) -> Result<()> {
        let done = self.wait_recv()?;
        self.credit.take(&done.descriptor.buffers()[0]);
        self.line.post_recv(done.descriptor)
    }
}

impl<S: Stock, const STREAM: bool> Wire for Stocked<S, STREAM> {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        if STREAM {
            while !self.credit.has_room() {
                self.take_grant()?;
            }
        }
        let layer = self.line.layer;
        let descriptor = loop {
            let next = self.stock.outgoing::<CHECK>(&mut self.line.nic, seq);
            if let Some(descriptor) = next.map_err(|e| failure(layer, &e))? {
                break descriptor;
            }
            let done = self.line.wait(Queue::Send)?;
            self.take_back(done)?;
        };
        self.line.nic.post_send(self.line.vi, descriptor).map_err(|e| failure(layer, &e.error))?;
        self.credit.count_sent();
        self.under_way += 1;
        // Off the critical path: the message is on its way.
        if !STREAM {
            self.replace_spent()?;
        }
        if let Some(done) = self.line.poll(Queue::Send)? {
            self.take_back(done)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        if !STREAM {
            self.replace_spent()?;
        }
        let done = self.wait_recv()?;
        let value = self.stock.read::<CHECK>(&done, seq);
        self.credit.count_received();
        if !STREAM {
            // Another one is posted, so this one has time.
            self.spent = Some(done.descriptor);
            if self.repost == Repost::Before {
                self.replace_spent()?;
            }
            return Ok(value);
        }
        self.replace(done.descriptor)?;
        if self.credit.is_due() {
            self.grant()?;
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        while !self.credit.all_told() {
            self.grant()?;
        }
        Ok(())
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        while !self.credit.all_granted() {
            self.take_grant()?;
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.before = self.credit.sent();
        self.stock.begin(&self.line.nic);
    }

    fn finish(&mut self, run: &Run, tally: &mut Tally) -> Result<()> {
        // The last message may still wait for something; no call moves it on between slices.
        while self.under_way > 0 {
            let done = self.line.wait(Queue::Send)?;
            self.take_back(done)?;
        }
        self.stock.finish(&self.line.nic, run, self.credit.sent() - self.before, tally);
        Ok(())
    }
}
