//! A sink that sends each record to one of several sinks (Millennium Sort, section 3.2, PartitionSink).
//!
//! Records for one sink are gathered in a buffer until it is full; it says no place, because the records are those of one sink out of
//! several. If the pool has no free buffer, the fullest one that the
//! writer holds is sent early, so that a pool of a single buffer suffices: then every change of sink sends a short buffer.
//! Writers that may stand still while others go on need a pool each, or one with a buffer for every writer and sink: a
//! writer that waits keeps the buffers that it fills.

use std::sync::{Arc, Mutex, PoisonError};

use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Sink;
use crate::format::{RecordFormat, records};
use crate::pool::MemPool;

/// Divides records among sinks by a rule: the number of the sink for a record.
pub struct PartitionSink<R, S: ?Sized> {
    format: Arc<dyn RecordFormat>,
    rule: R,
    pool: MemPool,
    sinks: Vec<Arc<S>>,
    /// The writer behind the trait's own methods.
    shared: Mutex<Open>,
    edge: Edge,
}

/// The buffers that one thread fills.
pub struct PartitionWriter<'a, R, S: Sink + ?Sized> {
    parent: &'a PartitionSink<R, S>,
    pool: MemPool,
    open: Open,
}

/// Buffers that are being filled, by the number of their sink, and the number that they get.
struct Open {
    buffers: Vec<Option<Buffer>>,
    sequence: u64,
}

impl<R: Fn(&[u8]) -> usize + Send + Sync, S: Sink + ?Sized> PartitionSink<R, S> {
    /// Divides records of `format` among `sinks` by `rule`, in buffers of `pool`.
    pub fn new(
        name: &str,
        format: Arc<dyn RecordFormat>,
        rule: R,
        pool: MemPool,
        sinks: Vec<Arc<S>>,
    ) -> PartitionSink<R, S> {
        let shared = Mutex::new(Open { buffers: sinks.iter().map(|_| None).collect(), sequence: 0 });
        PartitionSink { format, rule, pool, sinks, shared, edge: Edge::new(name) }
    }

    /// A writer for one thread. Without the buffers of a thread of its own, each record would need a lock.
    pub fn writer(&self) -> PartitionWriter<'_, R, S> {
        self.writer_of(0)
    }

    /// A writer for one thread, whose buffers all get the number `sequence`: a sink can tell the writers apart.
    pub fn writer_of(&self, sequence: u64) -> PartitionWriter<'_, R, S> {
        self.writer_with(sequence, self.pool.clone())
    }

    /// A writer for one thread with a pool of its own: it never waits for a buffer that another writer fills.
    pub fn writer_with(&self, sequence: u64, pool: MemPool) -> PartitionWriter<'_, R, S> {
        let open = Open { buffers: self.sinks.iter().map(|_| None).collect(), sequence };
        PartitionWriter { parent: self, pool, open }
    }

    /// The sinks, by number.
    pub fn sinks(&self) -> &[Arc<S>] {
        &self.sinks
    }

    fn divide(&self, open: &mut Open, pool: &MemPool, buffer: Buffer) -> Result<(), Error> {
        for record in records(&*self.format, buffer.data()) {
            let number = (self.rule)(record);
            match &mut open.buffers[number] {
                Some(filling) if filling.free() >= record.len() => filling.push_record(record),
                _ => self.push_slow(open, pool, number, record)?,
            }
        }
        self.edge.carried(buffer.len(), buffer.records());
        Ok(())
    }

    /// Sends the full buffer and begins another.
    #[cold]
    fn push_slow(&self, open: &mut Open, pool: &MemPool, number: usize, record: &[u8]) -> Result<(), Error> {
        if let Some(full) = open.buffers[number].take() {
            self.sinks[number].put(full)?;
        }
        let mut next = if record.len() > pool.buffer_size() {
            Buffer::heap(record.len())
        } else {
            self.take(&mut open.buffers, pool)?
        };
        next.push_record(record);
        next.set_sequence(open.sequence);
        open.buffers[number] = Some(next);
        Ok(())
    }

    fn take(&self, open: &mut [Option<Buffer>], pool: &MemPool) -> Result<Buffer, Error> {
        if let Some(buffer) = pool.try_take() {
            return Ok(buffer);
        }
        let fullest = open.iter().enumerate().filter_map(|(n, slot)| Some((slot.as_ref()?.len(), n))).max();
        if let Some((_, number)) = fullest
            && let Some(buffer) = open[number].take()
        {
            self.sinks[number].put(buffer)?;
        }
        Ok(self.edge.stalled_for_credit(|| pool.take()))
    }

    fn flush(&self, open: &mut [Option<Buffer>]) -> Result<(), Error> {
        for (slot, sink) in open.iter_mut().zip(&self.sinks) {
            if let Some(buffer) = slot.take() {
                sink.put(buffer)?;
            }
        }
        Ok(())
    }
}

impl<R: Fn(&[u8]) -> usize + Send + Sync, S: Sink + ?Sized> PartitionWriter<'_, R, S> {
    /// Divides the records of a buffer.
    pub fn put(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.parent.divide(&mut self.open, &self.pool, buffer)
    }

    /// Sends what is not full yet. The sinks are not finished: that is for the owner, once all writers are flushed.
    pub fn flush(mut self) -> Result<(), Error> {
        self.parent.flush(&mut self.open.buffers)
    }
}

impl<R: Fn(&[u8]) -> usize + Send + Sync, S: Sink + ?Sized> Sink for PartitionSink<R, S> {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        let mut open = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.divide(&mut open, &self.pool, buffer)
    }

    fn finish(&self) -> Result<(), Error> {
        let mut open = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush(&mut open.buffers)?;
        self.sinks.iter().try_for_each(|sink| sink.finish())
    }

    fn fail(&self, error: Error) {
        let mut open = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        open.buffers.iter_mut().for_each(|slot| *slot = None);
        drop(open);
        self.sinks.iter().for_each(|sink| sink.fail(error.clone()));
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
