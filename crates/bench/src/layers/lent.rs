//! One VI whose peer reaches into this process' memory: what the cases about RDMA are made of.
//!
//! Each end lends the other a block of memory, shareable unless the case wants another way to it, and learns where the other's block lies when they connect. No
//! receive is needed for an RDMA write or read; those with immediate data use one up, so a few stay posted.

use std::sync::atomic::Ordering;

use viaduct_via::{
    Buffer, Completion, Descriptor, MemAttributes, MemHandle, Nic, Op, RemoteAddress, Vi, ViAttributes,
};

use crate::control::{Patience, Turns};
use crate::error::{Error, Result};
use crate::layers::half::{checked, failure};
use crate::layers::via::Place;
use crate::layers::way::MemoryWay;

/// Receives that stay posted for immediate data, at least.
const RECEIVES: usize = 4;

const WAITING: &str = "waiting for an RDMA operation";

/// A connected VI, the memory lent to its peer, and the memory that the peer lends.
pub(crate) struct Lent {
    pub(crate) vi: Vi,
    /// What the peer writes and reads.
    pub(crate) own: Buffer,
    there: RemoteAddress,
    layer: &'static str,
    /// Posted and not yet seen to be done.
    under_way: usize,
    patience: Patience,
}

impl Lent {
    /// Makes a VI, lends `len` bytes and connects; `depth` operations may be under way at once.
    pub(crate) fn join(place: &mut Place, len: usize, depth: usize) -> Result<Lent> {
        let layer = place.variant.layer.name();
        let failed = |e: viaduct_via::Error| failure(layer, &e);
        let attributes = MemAttributes::remote(place.tag);
        let own = if MemoryWay::of(&place.variant).0.is_private() {
            place.nic.register(vec![0; len.max(8)], attributes)
        } else {
            place.nic.alloc(len.max(8), attributes)
        };
        let own = own.map_err(failed)?;
        let receives = depth.max(RECEIVES);
        let attributes = ViAttributes::new(place.tag).depth(receives + 1);
        let vi = place.nic.create_vi(attributes).map_err(failed)?;
        for _ in 0..receives {
            let refused = |e: viaduct_via::PostError| failure(layer, &e.error);
            place.nic.post_recv(vi, Descriptor::recv_empty()).map_err(refused)?;
        }
        let here = own.remote(0);
        let mut letter = here.addr.to_le_bytes().to_vec();
        letter.extend(here.handle.number().to_le_bytes());
        let there = place_in(&place.join(vi, &letter)?)
            .ok_or_else(|| Error::layer(layer, "the other end lent no memory", ""))?;
        let patience = place.patience.clone();
        Ok(Lent { vi, own, there, layer, under_way: 0, patience })
    }

    /// Byte `offset` of the memory that the peer lends.
    pub(crate) fn there(&self, offset: usize) -> RemoteAddress {
        self.there.offset(offset as u64)
    }

    /// `count` descriptors for `op`, each with `size` bytes of memory that no peer reaches, aimed at the start of what
    /// the peer lends.
    pub(crate) fn descriptors(
        &self,
        place: &mut Place,
        op: Op,
        count: usize,
        size: usize,
    ) -> Result<Vec<Descriptor>> {
        let stride = size.next_multiple_of(if size >= 4096 { 4096 } else { 64 });
        let memory = place.nic.alloc(stride * count, MemAttributes::local(place.tag));
        let pieces = memory.map_err(|e| failure(self.layer, &e))?.chunks(stride).into_iter();
        Ok(pieces.map(|b| Descriptor::new(op).segment_range(b, 0..size).remote(self.there)).collect())
    }

    /// Posts an operation.
    #[inline(always)]
    pub(crate) fn post(&mut self, nic: &mut Nic, descriptor: Descriptor) -> Result<()> {
        nic.post_send(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error))?;
        self.under_way += 1;
        Ok(())
    }

    /// An operation that is done, if there is one.
    #[inline(always)]
    pub(crate) fn done(&mut self, nic: &mut Nic) -> Result<Option<Descriptor>> {
        if self.under_way == 0 {
            return Ok(None);
        }
        let Some(done) = nic.poll_send(self.vi).map_err(|e| failure(self.layer, &e))? else {
            return Ok(None);
        };
        self.under_way -= 1;
        Ok(Some(checked(self.layer, done)?.descriptor))
    }

    /// Waits until the next operation is done.
    #[inline(always)]
    pub(crate) fn reap(&mut self, nic: &mut Nic) -> Result<Descriptor> {
        let mut turns = Turns::default();
        loop {
            if let Some(descriptor) = self.done(nic)? {
                return Ok(descriptor);
            }
            turns.pause(&self.patience, WAITING)?;
        }
    }

    /// A descriptor that is not under way: one of `spare`, or the next that is done.
    #[inline(always)]
    pub(crate) fn free(&mut self, nic: &mut Nic, spare: &mut Vec<Descriptor>) -> Result<Descriptor> {
        match spare.pop() {
            Some(descriptor) => Ok(descriptor),
            None => self.reap(nic),
        }
    }

    /// Waits until nothing is under way any more; what was goes to `spare`.
    pub(crate) fn settle(&mut self, nic: &mut Nic, spare: &mut Vec<Descriptor>) -> Result<()> {
        while self.under_way > 0 {
            spare.push(self.reap(nic)?);
        }
        Ok(())
    }

    /// Waits until the word at `offset`, which the peer writes, is as wanted; finished operations go to `spare`.
    #[inline(always)]
    pub(crate) fn watch(
        &mut self,
        nic: &mut Nic,
        offset: usize,
        spare: &mut Vec<Descriptor>,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let mut turns = Turns::default();
        while !wanted(self.own.word(offset).load(Ordering::Acquire)) {
            // An own operation may still need this process, for instance to map the peer's memory.
            if let Some(descriptor) = self.done(nic)? {
                spare.push(descriptor);
            }
            turns.pause(&self.patience, WAITING)?;
        }
        Ok(())
    }

    /// Waits until immediate data have come.
    #[inline(always)]
    pub(crate) fn immediate(&mut self, nic: &mut Nic) -> Result<Completion> {
        let mut turns = Turns::default();
        loop {
            if let Some(done) = nic.poll_recv(self.vi).map_err(|e| failure(self.layer, &e))? {
                return checked(self.layer, done);
            }
            turns.pause(&self.patience, WAITING)?;
        }
    }

    /// Posts a receive again.
    #[inline(always)]
    pub(crate) fn repost(&mut self, nic: &mut Nic, descriptor: Descriptor) -> Result<()> {
        nic.post_recv(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error))
    }
}

fn place_in(letter: &[u8]) -> Option<RemoteAddress> {
    let addr = u64::from_le_bytes(letter.get(..8)?.try_into().ok()?);
    let handle = u32::from_le_bytes(letter.get(8..12)?.try_into().ok()?);
    Some(RemoteAddress { addr, handle: MemHandle::from_number(handle) })
}
