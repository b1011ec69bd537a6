//! The alternative that SOVIA did not take (section 3.1.1): the sender asks with REQ, the receiver posts a descriptor for
//! the data and one for the next REQ and answers with ACK, and only then DATA goes, straight into the user's buffer.
//!
//! On native VIA, without copies or windows: what it costs is the exchange before each message.

use std::hint::spin_loop;
use std::time::Duration;

use viaduct_via::{Completion, Descriptor, MemAttributes, Nic, Op, Vi, ViAttributes};

use crate::control::{Patience, Turns};
use crate::error::{Error, Result};
use crate::layers::half::{checked, failure};
use crate::layers::via::Place;
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::Wait;
use crate::raw::sum_buffer;

/// What the immediate data says.
const REQ: u32 = 1;
const ACK: u32 = 2;
const DATA: u32 = 3;
/// The whole stream was read.
const DONE: u32 = 4;

/// Receives that a side has: one is posted for a REQ, one more while it waits for an ACK or for data, one is being read.
const RECEIVES: usize = 3;

pub(crate) fn end(mut place: Place) -> Result<Box<dyn End>> {
    let (layer, size) = (place.variant.layer.name(), place.variant.size);
    let failed = |e: viaduct_via::Error| failure(layer, &e);
    let attributes = ViAttributes::new(place.tag).depth(RECEIVES + 2);
    let vi = place.nic.create_vi(attributes).map_err(failed)?;
    let stride = size.max(1).next_multiple_of(4096);
    let memory = place.nic.alloc(stride * (RECEIVES + 1), MemAttributes::local(place.tag)).map_err(failed)?;
    let mut buffers = memory.chunks(stride).into_iter();
    let data = buffers.next().map(|b| Descriptor::new(Op::Send).segment_range(b, 0..size));
    let free = buffers.map(|b| Descriptor::new(Op::Receive).segment_range(b, 0..size)).collect();
    let mut wire = ThreeWay {
        inline: size <= place.nic.attributes().max_inline,
        block: place.variant.wait == Wait::Block,
        layer,
        vi,
        size,
        data,
        free,
        scratch: vec![0; size],
        patience: place.patience.clone(),
        nic: None,
    };
    wire.post(&mut place.nic)?;
    place.join(vi, &[])?;
    let Place { nic, variant, .. } = place;
    wire.nic = Some(nic);
    Ok(Box::new(Looped::new(wire, &variant)))
}

struct ThreeWay {
    /// There once connected.
    nic: Option<Nic>,
    vi: Vi,
    layer: &'static str,
    size: usize,
    inline: bool,
    block: bool,
    /// The send descriptor, when it is not posted.
    data: Option<Descriptor>,
    /// Receives that are not posted.
    free: Vec<Descriptor>,
    scratch: Vec<u8>,
    patience: Patience,
}

impl ThreeWay {
    fn post(&mut self, nic: &mut Nic) -> Result<()> {
        let descriptor = self.free.pop().ok_or_else(|| self.wrong("too many receives posted"))?;
        nic.post_recv(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error))
    }

    /// A packet without data.
    fn tell(&mut self, nic: &mut Nic, what: u32) -> Result<()> {
        self.by_value(nic, 0, what)
    }

    fn by_value(&mut self, nic: &mut Nic, len: usize, what: u32) -> Result<()> {
        loop {
            match nic.send_inline(self.vi, &self.scratch[..len], Some(what)) {
                Ok(()) => return Ok(()),
                Err(viaduct_via::Error::Busy) => {
                    nic.poll_send(self.vi).map_err(|e| failure(self.layer, &e))?;
                    self.patience.check("sending a packet")?;
                }
                Err(error) => return Err(failure(self.layer, &error)),
            }
        }
    }

    fn wait(&mut self, nic: &mut Nic, what: u32) -> Result<Completion> {
        let mut turns = Turns::default();
        let done = loop {
            let found = if self.block {
                match nic.wait_recv_outcome(self.vi, Some(Duration::from_millis(200))) {
                    Err(viaduct_via::Error::Timeout) => None,
                    other => Some(other.map_err(|e| failure(self.layer, &e))?.0),
                }
            } else {
                spin_loop();
                nic.poll_recv(self.vi).map_err(|e| failure(self.layer, &e))?
            };
            if let Some(done) = found {
                break checked(self.layer, done)?;
            }
            if self.block {
                self.patience.check("waiting for a packet")?;
            }
            turns.count(&self.patience, "waiting for a packet")?;
        };
        if done.immediate == Some(what) { Ok(done) } else { Err(self.wrong("another packet came")) }
    }

    #[cold]
    fn wrong(&self, what: &str) -> Error {
        Error::layer(self.layer, format!("{what} in a three-way exchange"), "")
    }

    fn send_data(&mut self, nic: &mut Nic) -> Result<()> {
        if self.inline {
            return self.by_value(nic, self.size, DATA);
        }
        let Some(mut descriptor) = self.data.take() else { return Err(self.wrong("two sends at once")) };
        descriptor.set_immediate(Some(DATA));
        nic.post_send(self.vi, descriptor).map_err(|e| failure(self.layer, &e.error))?;
        loop {
            match nic.wait_send_outcome(self.vi, Some(Duration::from_millis(200))) {
                Ok(done) => {
                    self.data = Some(checked(self.layer, done.0)?.descriptor);
                    return Ok(());
                }
                Err(viaduct_via::Error::Timeout) => self.patience.check("waiting for a send to complete")?,
                Err(error) => return Err(failure(self.layer, &error)),
            }
        }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut ThreeWay, &mut Nic) -> Result<T>) -> Result<T> {
        let Some(mut nic) = self.nic.take() else { return Err(self.wrong("no connection")) };
        let result = work(self, &mut nic);
        self.nic = Some(nic);
        result
    }
}

impl Wire for ThreeWay {
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            if let Some(data) = &mut self.data {
                data.write(0, 0, &self.scratch);
            }
        }
        self.with(|wire, nic| {
            wire.post(nic)?;
            wire.tell(nic, REQ)?;
            let done = wire.wait(nic, ACK)?;
            wire.free.push(done.descriptor);
            wire.send_data(nic)
        })
    }

    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        self.with(|wire, nic| {
            let done = wire.wait(nic, REQ)?;
            // One for the data, one for the next REQ.
            wire.post(nic)?;
            wire.post(nic)?;
            wire.free.push(done.descriptor);
            wire.tell(nic, ACK)?;
            let done = wire.wait(nic, DATA)?;
            let buffer = &done.descriptor.buffers()[0];
            let value = if CHECK {
                buffer.read(0, &mut wire.scratch);
                pattern::mismatches(&wire.scratch, seq) + u64::from(done.length as usize != wire.size)
            } else {
                sum_buffer(buffer, wire.size)
            };
            wire.free.push(done.descriptor);
            Ok(value)
        })
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.with(|wire, nic| wire.tell(nic, DONE))
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        self.with(|wire, nic| {
            let done = wire.wait(nic, DONE)?;
            wire.free.push(done.descriptor);
            wire.post(nic)
        })
    }
}
