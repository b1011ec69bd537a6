//! One end of a connected VI as the benchmarks drive it: descriptors that are posted again and again, and credits.
//!
//! Streams have credits (`credit.rs`).
//!
//! Messages up to the provider's inline limit go by value, without descriptor and completion, unless the user asked for
//! descriptors: a different path, so results say which one was measured. Descriptor sends are signalled and their
//! completions reaped; spare descriptors are a stack, as the one used last is still in the cache.

use std::time::Duration;

use viaduct_via::{
    Buffer, Completion, Descriptor, MemAttributes, Nic, ProtectionTag, Reliability, Vi, ViAttributes,
};

use crate::control::{Patience, Turns};
use crate::error::{Error, Result};
use crate::layers::credit::Credit;
use crate::pattern;
use crate::plan::{Repost, SendMode, Variant, Wait};
use crate::raw::sum_buffer;

/// Receives that the sender of a stream keeps posted for credits; at most seven can be under way.
pub(crate) const CREDITS: usize = 16;

/// Which end of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Starts and measures.
    Lead,
    /// Answers.
    Follow,
}

/// One VI with everything that is posted to it.
pub(crate) struct Half {
    vi: Vi,
    layer: &'static str,
    size: usize,
    block: bool,
    repost: Repost,
    /// Messages are small enough to be sent by value, without a descriptor.
    inline: bool,
    /// Send descriptors that are not posted.
    spare: Vec<Descriptor>,
    credit: Credit,
    scratch: Vec<u8>,
    /// A receive that is posted again once the answer to its message is on its way.
    spent: Option<Descriptor>,
    /// How many messages of a stream are taken, and receives posted, at a time.
    batch: usize,
    taken: Vec<Completion>,
    /// Receives whose messages were taken and not read yet, the next one last.
    unread: Vec<Descriptor>,
    /// Receives whose messages were read and that are not posted again yet.
    read: Vec<Descriptor>,
    patience: Patience,
}

impl Half {
    /// Creates a VI with its buffers and posts its receives; it is not connected yet.
    pub(crate) fn create(
        nic: &mut Nic,
        tag: ProtectionTag,
        variant: &Variant,
        side: Side,
        patience: Patience,
    ) -> Result<Half> {
        let layer = variant.layer.name();
        let failed = |e: viaduct_via::Error| failure(layer, &e);
        let (receives, receive_size) = match (variant.motion.is_stream(), side) {
            (false, _) => (2, variant.size),
            (true, Side::Lead) => (CREDITS, 8),
            (true, Side::Follow) => (variant.window, variant.size),
        };
        // A receiver that sleeps takes one message for each wake-up, so a batch is one.
        let batch = if variant.wait == Wait::Block { 1 } else { variant.arg("batch").max(1) as usize };
        let sends = variant.window + 1;
        let attributes = ViAttributes::new(tag).depth(sends.max(receives) + 1);
        // A case may name a level; 0 is none, and stands for the usual one.
        let level = Reliability::from_number(variant.arg("level") as u8);
        let attributes = level.into_iter().fold(attributes, ViAttributes::reliability);
        let vi = nic.create_vi(attributes).map_err(failed)?;
        for buffer in buffers(nic, tag, receives, receive_size).map_err(failed)? {
            let descriptor = Descriptor::new(viaduct_via::Op::Receive).segment_range(buffer, 0..receive_size);
            nic.post_recv(vi, descriptor).map_err(|e| failure(layer, &e.error))?;
        }
        let spare = buffers(nic, tag, sends, variant.size).map_err(failed)?.into_iter();
        let spare =
            spare.map(|buffer| Descriptor::new(viaduct_via::Op::Send).segment_range(buffer, 0..variant.size));
        Ok(Half {
            vi,
            layer,
            size: variant.size,
            block: variant.wait == Wait::Block,
            repost: variant.repost,
            inline: variant.send == SendMode::Auto && variant.size <= nic.attributes().max_inline,
            spare: spare.collect(),
            credit: Credit::new(variant.window),
            scratch: vec![0; variant.size],
            spent: None,
            batch,
            taken: Vec::with_capacity(batch),
            unread: Vec::with_capacity(batch),
            read: Vec::with_capacity(batch),
            patience,
        })
    }

    /// Its VI.
    pub(crate) fn vi(&self) -> Vi {
        self.vi
    }

    /// Posts message `seq`. With `STREAM` it first waits until the peer has a buffer for it.
    #[inline(always)]
    pub(crate) fn send<const STREAM: bool, const CHECK: bool>(
        &mut self,
        nic: &mut Nic,
        seq: u64,
    ) -> Result<()> {
        if STREAM {
            while !self.credit.has_room() {
                self.take_grant(nic)?;
            }
        }
        if self.inline {
            self.send_small::<CHECK>(nic, seq)?;
            return self.post_spent(nic);
        }
        let mut descriptor = match self.spare.pop() {
            Some(descriptor) => descriptor,
            None => self.reap_one(nic)?,
        };
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            descriptor.write(0, 0, &self.scratch);
        }
        nic.post_send(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error))?;
        self.credit.count_sent();
        // Off the critical path: the message is on its way.
        self.post_spent(nic)?;
        if let Some(done) = nic.poll_send(self.vi).map_err(|e| failure(self.layer, &e))? {
            self.spare.push(self.checked(done)?.descriptor);
        }
        Ok(())
    }

    /// Sends a message by value, as a program that cares for latency sends small ones.
    #[inline(always)]
    fn send_small<const CHECK: bool>(&mut self, nic: &mut Nic, seq: u64) -> Result<()> {
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
        }
        loop {
            match nic.send_inline(self.vi, &self.scratch, None) {
                Ok(()) => break,
                Err(viaduct_via::Error::Busy) => {
                    // Looking at the connection makes room.
                    nic.poll_send(self.vi).map_err(|e| failure(self.layer, &e))?;
                    self.patience.check("sending a message")?;
                }
                Err(error) => return Err(failure(self.layer, &error)),
            }
        }
        self.credit.count_sent();
        Ok(())
    }

    /// Waits for message `seq`, reads it and posts its buffer again.
    #[inline(always)]
    pub(crate) fn recv<const STREAM: bool, const CHECK: bool>(
        &mut self,
        nic: &mut Nic,
        seq: u64,
    ) -> Result<u64> {
        if STREAM && self.batch > 1 {
            let descriptor = match self.unread.pop() {
                Some(descriptor) => descriptor,
                None => self.take_batch(nic)?,
            };
            let value = self.value::<CHECK>(&descriptor, seq);
            self.read.push(descriptor);
            self.counted(nic)?;
            return Ok(value);
        }
        self.post_spent(nic)?;
        let done = self.wait_recv(nic)?;
        self.taken::<STREAM, CHECK>(nic, seq, done)
    }

    /// Takes message `seq` of a stream if it has come, and posts its buffer again.
    #[inline(always)]
    pub(crate) fn try_recv<const CHECK: bool>(&mut self, nic: &mut Nic, seq: u64) -> Result<Option<u64>> {
        match nic.poll_recv(self.vi).map_err(|e| failure(self.layer, &e))? {
            None => Ok(None),
            Some(done) => {
                let done = self.checked(done)?;
                self.taken::<true, CHECK>(nic, seq, done).map(Some)
            }
        }
    }

    #[inline(always)]
    fn taken<const STREAM: bool, const CHECK: bool>(
        &mut self,
        nic: &mut Nic,
        seq: u64,
        done: Completion,
    ) -> Result<u64> {
        let value = self.value::<CHECK>(&done.descriptor, seq);
        let value = if CHECK { value + u64::from(done.length as usize != self.size) } else { value };
        if !STREAM {
            self.credit.count_received();
            // Another one is posted, so this one has time.
            self.spent = Some(done.descriptor);
            if self.repost == Repost::Before {
                self.post_spent(nic)?;
            }
            return Ok(value);
        }
        nic.post_recv(self.vi, done.descriptor).map_err(|e| failure(self.layer, &e.error))?;
        self.counted(nic)?;
        Ok(value)
    }

    /// Reads the message in a receive: what is wrong with it, or the sum of its bytes.
    #[inline(always)]
    fn value<const CHECK: bool>(&mut self, descriptor: &Descriptor, seq: u64) -> u64 {
        if !CHECK {
            return sum_buffer(&descriptor.buffers()[0], self.size);
        }
        descriptor.buffers()[0].read(0, &mut self.scratch);
        pattern::mismatches(&self.scratch, seq)
    }

    /// One more message of a stream was read; now and then the sender is told.
    #[inline(always)]
    fn counted(&mut self, nic: &mut Nic) -> Result<()> {
        self.credit.count_received();
        if self.credit.is_due() {
            self.grant(nic)?;
        }
        Ok(())
    }

    /// Waits for the next messages of a stream: the first of them. The receives of those before are posted again.
    fn take_batch(&mut self, nic: &mut Nic) -> Result<Descriptor> {
        self.post_read(nic)?;
        let mut turns = Turns::default();
        loop {
            let found = nic.poll_recv_batch(self.vi, &mut self.taken, self.batch);
            found.map_err(|e| failure(self.layer, &e))?;
            while let Some(done) = self.taken.pop() {
                let done = self.checked(done)?;
                if done.length as usize != self.size {
                    let message = format!("{} bytes came instead of {}", done.length, self.size);
                    return Err(Error::layer(self.layer, message, ""));
                }
                self.unread.push(done.descriptor);
            }
            if let Some(first) = self.unread.pop() {
                return Ok(first);
            }
            turns.pause(&self.patience, "waiting for a message")?;
        }
    }

    /// Posts the receives again whose messages were read.
    #[inline]
    fn post_read(&mut self, nic: &mut Nic) -> Result<()> {
        if !self.read.is_empty() {
            let posted = nic.post_recv_batch(self.vi, self.read.drain(..));
            posted.map_err(|e| failure(self.layer, &e.refused.error))?;
        }
        Ok(())
    }

    /// Posts the receive again that the last message of a ping-pong used.
    #[inline(always)]
    fn post_spent(&mut self, nic: &mut Nic) -> Result<()> {
        match self.spent.take() {
            Some(descriptor) => nic.post_recv(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error)),
            None => Ok(()),
        }
    }

    /// Tells the sender about everything received.
    pub(crate) fn acknowledge(&mut self, nic: &mut Nic) -> Result<()> {
        while !self.credit.all_told() {
            self.grant(nic)?;
        }
        Ok(())
    }

    /// Waits until the receiver has told us about everything sent.
    pub(crate) fn wait_acknowledged(&mut self, nic: &mut Nic) -> Result<()> {
        while !self.credit.all_granted() {
            self.take_grant(nic)?;
        }
        Ok(())
    }

    /// Sends a credit; if the transport is busy the next one will carry the news.
    #[inline(always)]
    fn grant(&mut self, nic: &mut Nic) -> Result<()> {
        self.post_read(nic)?;
        match nic.send_inline(self.vi, &self.credit.letter(), None) {
            Ok(()) => self.credit.tell(),
            Err(viaduct_via::Error::Busy) => self.patience.check("sending a credit")?,
            Err(error) => return Err(failure(self.layer, &error)),
        }
        Ok(())
    }

    #[inline(always)]
    fn take_grant(&mut self, nic: &mut Nic) -> Result<()> {
        let done = self.wait_recv(nic)?;
        self.granted_by(nic, done)
    }

    /// Whether the peer has a buffer for another message; looks for credits, does not wait for them.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, nic: &mut Nic) -> Result<bool> {
        if !self.credit.has_room()
            && let Some(done) = nic.poll_recv(self.vi).map_err(|e| failure(self.layer, &e))?
        {
            let done = self.checked(done)?;
            self.granted_by(nic, done)?;
        }
        Ok(self.credit.has_room())
    }

    #[inline(always)]
    fn granted_by(&mut self, nic: &mut Nic, done: Completion) -> Result<()> {
        self.credit.take(&done.descriptor.buffers()[0]);
        nic.post_recv(self.vi, done.descriptor).map_err(|e| failure(self.layer, &e.error))
    }

    #[inline(always)]
    fn wait_recv(&mut self, nic: &mut Nic) -> Result<Completion> {
        let mut turns = Turns::default();
        loop {
            if self.block {
                match nic.wait_recv_outcome(self.vi, Some(Duration::from_millis(200))) {
                    Ok(done) => return self.checked(done.0),
                    Err(viaduct_via::Error::Timeout) => self.patience.check("waiting for a message")?,
                    Err(error) => return Err(failure(self.layer, &error)),
                }
                continue;
            }
            if let Some(done) = nic.poll_recv(self.vi).map_err(|e| failure(self.layer, &e))? {
                return self.checked(done);
            }
            turns.pause(&self.patience, "waiting for a message")?;
        }
    }

    fn reap_one(&mut self, nic: &mut Nic) -> Result<Descriptor> {
        loop {
            match nic.wait_send_outcome(self.vi, Some(Duration::from_millis(200))) {
                Ok(done) => return Ok(self.checked(done.0)?.descriptor),
                Err(viaduct_via::Error::Timeout) => self.patience.check("waiting for a send to complete")?,
                Err(error) => return Err(failure(self.layer, &error)),
            }
        }
    }

    #[inline(always)]
    fn checked(&self, done: Completion) -> Result<Completion> {
        checked(self.layer, done)
    }
}

/// A completion that went well, or what it said.
#[inline(always)]
pub(crate) fn checked(layer: &'static str, done: Completion) -> Result<Completion> {
    if done.status.is_success() { Ok(done) } else { Err(Error::layer(layer, done.status.to_string(), "")) }
}

/// What a VIA call said, as an error of this crate.
#[cold]
pub(crate) fn failure(layer: &'static str, error: &viaduct_via::Error) -> Error {
    Error::layer(layer, error.to_string(), "")
}

/// `count` shareable buffers, laid out like those of the reference layers: whole lines, whole pages if large.
fn buffers(
    nic: &mut Nic,
    tag: ProtectionTag,
    count: usize,
    size: usize,
) -> std::result::Result<Vec<Buffer>, viaduct_via::Error> {
    let stride = size.max(1).next_multiple_of(if size >= 4096 { 4096 } else { 64 });
    Ok(nic.alloc(stride * count, MemAttributes::local(tag))?.chunks(stride))
}
