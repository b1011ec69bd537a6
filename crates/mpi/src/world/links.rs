//! The connections of a process: one VI for each peer with receives of its own, and the buffers that packets leave from.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use viaduct_via::{
    Buffer, Cq, Descriptor, Error, MemAttributes, MemHandle, Nic, ProtectionTag, RemoteAddress, Vi,
    ViAttributes,
};

use super::readable;
use super::wire::Wire;
use crate::protocol::packet::{HEADER, Packet};
use crate::protocol::{Limits, Payload, Port, Pull, Pulling};
use crate::raw::Span;

/// Most bytes of a packet that is sent by value, whatever the provider would take.
const INLINE: usize = 128;
/// Most bytes of a packet that travels in one cache line: the usual short message.
const LINE: usize = 48;
/// Send buffers that are made at a time.
const BATCH: usize = 8;
/// Sends and reads that a VI has under way beside those that credits allow.
const SPARE: usize = 16;

pub(super) struct Links {
    pub(super) nic: Nic,
    pub(super) cq: Cq,
    tag: ProtectionTag,
    limits: Limits,
    vis: Vec<Option<Vi>>,
    /// Whether a peer and this process can read each other's memory, registered or not.
    private: Vec<bool>,
    /// The shortest message that is read so.
    private_from: usize,
    /// Bytes that were read so.
    pub(super) copied: usize,
    /// Packets to each peer whose blocks were gathered where they lie.
    pub(super) gathered: Vec<u64>,
    ranks: HashMap<Vi, usize>,
    /// Descriptors with a buffer each, ready to send.
    free: Vec<Descriptor>,
    made: usize,
    inline: usize,
    pub(super) wire: Wire,
    /// Peers whose connection failed, not yet dealt with.
    pub(super) broken: Vec<(usize, Cow<'static, str>)>,
    /// Memory of the program that peers may read, by address.
    memory: BTreeMap<usize, Buffer>,
}

impl Links {
    pub(super) fn new(
        mut nic: Nic,
        size: usize,
        limits: Limits,
        private_from: usize,
        wire: Wire,
    ) -> Result<Links, Error> {
        let tag = nic.create_ptag()?;
        let entries = size * (2 * usize::from(limits.credits) + SPARE);
        let cq = nic.create_cq(entries.clamp(64, nic.attributes().max_cq_entries))?;
        let inline = nic.attributes().max_inline.min(INLINE);
        Ok(Links {
            nic,
            cq,
            tag,
            limits,
            vis: vec![None; size],
            private: vec![false; size],
            private_from,
            copied: 0,
            gathered: vec![0; size],
            ranks: HashMap::new(),
            free: Vec::new(),
            made: 0,
            inline,
            wire,
            broken: Vec::new(),
            memory: BTreeMap::new(),
        })
    }

    /// Makes a VI for a peer, with its receives posted.
    pub(super) fn vi_for(&mut self, peer: usize) -> Result<Vi, Error> {
        let (credits, len) = (usize::from(self.limits.credits), HEADER + self.limits.fragment);
        let attributes = ViAttributes {
            send_depth: credits + SPARE,
            recv_depth: credits,
            ..ViAttributes::new(self.tag).cq(self.cq)
        };
        // The memory first: it is what there may be too little of.
        let len = len.next_multiple_of(64);
        let region = self.nic.alloc(len * credits, MemAttributes::local(self.tag))?;
        let vi = self.nic.create_vi(attributes)?;
        for buffer in region.chunks(len) {
            let posted = self.nic.post_recv(vi, Descriptor::recv(buffer).context(peer as u64));
            if let Err(refused) = posted {
                self.drop_vi(vi);
                return Err(refused.error);
            }
        }
        Ok(vi)
    }

    /// The connection with a peer stands on this VI.
    pub(super) fn bind(&mut self, peer: usize, vi: Vi) {
        self.vis[peer] = Some(vi);
        self.private[peer] = self.nic.can_read_private(vi);
        self.ranks.insert(vi, peer);
    }

    pub(super) fn is_bound(&self, peer: usize) -> bool {
        self.vis[peer].is_some()
    }

    pub(super) fn rank_of(&self, vi: Vi) -> Option<usize> {
        self.ranks.get(&vi).copied()
    }

    /// The connection with a peer is over; the engine tells the protocol.
    #[cold]
    pub(super) fn lose(&mut self, peer: usize, cause: impl Into<Cow<'static, str>>) {
        self.broken.push((peer, cause.into()));
    }

    /// A send is done: its buffer can be used again.
    pub(super) fn give_back(&mut self, descriptor: Descriptor) {
        self.free.push(descriptor);
    }

    /// A peer looks again at what it waits for, if it sleeps.
    #[inline]
    pub(super) fn nudge(&mut self, peer: usize) {
        if let Some(vi) = self.vis[peer] {
            // A peer that is gone is found out by those that wait for it.
            let _ = self.nic.nudge(vi);
        }
    }

    /// Whether all packets have left their buffers.
    pub(super) fn all_sent(&self) -> bool {
        self.free.len() == self.made
    }

    /// Whether there is more to do than completions.
    #[inline]
    pub(super) fn has_business(&self) -> bool {
        !self.broken.is_empty() || self.wire.is_open()
    }

    /// Shareable memory. None: there is none left.
    pub(super) fn alloc(&mut self, len: usize) -> Option<*mut u8> {
        let buffer = self.nic.alloc(len, readable(self.tag)).ok()?;
        let address = buffer.atomics().as_ptr().cast::<u8>().cast_mut();
        self.memory.insert(address as usize, buffer);
        Some(address)
    }

    /// Withdraws shareable memory. False: there is none at this address.
    pub(super) fn free(&mut self, address: *mut u8) -> bool {
        self.memory.remove(&(address as usize)).is_some()
    }

    fn descriptor(&mut self) -> Result<Descriptor, Error> {
        if let Some(descriptor) = self.free.pop() {
            return Ok(descriptor);
        }
        let len = (HEADER + self.limits.fragment).next_multiple_of(64);
        let region = self.nic.alloc(len * BATCH, MemAttributes::local(self.tag))?;
        self.free.extend(region.chunks(len).into_iter().map(Descriptor::send));
        self.made += BATCH;
        self.free.pop().ok_or(Error::Busy)
    }

    /// Sends a packet of at most `N` bytes by value.
    #[inline]
    fn send_short<const N: usize>(
        &mut self,
        vi: Vi,
        packet: &Packet,
        payload: Payload<'_>,
        len: usize,
    ) -> Result<(), Error> {
        let mut bytes = [0; N];
        bytes[..HEADER].copy_from_slice(&packet.to_bytes());
        match payload {
            Payload::None => {}
            Payload::Part { span, from, len } => span.read(from, &mut bytes[HEADER..HEADER + len]),
            Payload::Place(place) => bytes[HEADER..HEADER + len].copy_from_slice(&place.to_bytes()),
        }
        self.nic.send_inline(vi, &bytes[..HEADER + len], None)
    }

    /// Sends a packet out of a buffer.
    #[inline(never)]
    fn send_buffer(&mut self, vi: Vi, packet: &Packet, payload: Payload<'_>) -> Result<(), Error> {
        let mut descriptor = self.descriptor()?;
        descriptor.write(0, 0, &packet.to_bytes());
        let len = match payload {
            Payload::None => 0,
            Payload::Part { span, from, len } => {
                span.pack(from, &descriptor.buffers()[0].atomics()[HEADER..HEADER + len]);
                len
            }
            Payload::Place(place) => {
                let bytes = place.to_bytes();
                descriptor.write(0, HEADER, &bytes);
                bytes.len()
            }
        };
        descriptor.set_len(HEADER + len);
        self.nic.post_send(vi, descriptor).map_err(|refused| {
            self.made -= 1;
            refused.error
        })
    }
}

impl Port for Links {
    #[inline]
    fn send(&mut self, to: usize, packet: &Packet, payload: Payload<'_>) {
        let Some(vi) = self.vis[to] else { return };
        let len = match payload {
            Payload::None => 0,
            Payload::Part { len, .. } => len,
            Payload::Place(_) => crate::protocol::PLACE,
        };
        if HEADER + len <= self.inline {
            let sent = match HEADER + len <= LINE {
                true => self.send_short::<LINE>(vi, packet, payload, len),
                false => self.send_short::<INLINE>(vi, packet, payload, len),
            };
            if sent.is_ok() {
                return;
            }
        } else if let Payload::Part { span, from, len } = payload {
            let head = packet.to_bytes();
            let sent = span.with_parts(&head, from, len, |parts| self.nic.send_value(vi, parts, None));
            if matches!(sent, Some(Ok(()))) {
                if span.block().is_none() {
                    self.gathered[to] += 1;
                }
                return;
            }
        }
        if let Err(why) = self.send_buffer(vi, packet, payload) {
            self.lose(to, format!("a packet to it could not be sent: {why}"));
        }
    }

    fn connect(&mut self, to: usize) {
        self.wire.want(to);
    }

    fn place(&mut self, to: usize, span: &Span, private: bool) -> Option<Pull> {
        let start = span.block()? as usize;
        if let Some((first, buffer)) = self.memory.range(..=start).next_back() {
            let offset = start - first;
            if offset + span.bytes() <= buffer.len() {
                let remote = buffer.remote(offset);
                return Some(Pull { address: remote.addr, handle: remote.handle.number() });
            }
        }
        let private = private && span.bytes() >= self.private_from && self.private[to];
        private.then_some(Pull { address: start as u64, handle: MemHandle::NONE.number() })
    }

    fn pull(&mut self, from: usize, place: Pull, into: &Span, len: usize, request: u32) -> Pulling {
        let Some(vi) = self.vis[from] else { return Pulling::No };
        if place.handle == MemHandle::NONE.number() {
            self.copied = self.copied.wrapping_add(len);
            let read = into.fill(len, |bytes| self.nic.read_private(vi, place.address, bytes));
            return if matches!(read, Some(Ok(()))) { Pulling::Copied } else { Pulling::No };
        }
        if len > self.nic.attributes().max_transfer_size as usize {
            return Pulling::No;
        }
        let remote = RemoteAddress { addr: place.address, handle: MemHandle::from_number(place.handle) };
        let order = into.pull(remote, len, u64::from(request));
        let started = order.is_some_and(|order| self.nic.post_send(vi, order).is_ok());
        if started { Pulling::Started } else { Pulling::No }
    }
}
