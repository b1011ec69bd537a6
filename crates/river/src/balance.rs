//! A sink before several consumers: each gets as much as it has credit for (River's distributed queue).
//!
//! For records whose consumer does not matter. A slow consumer keeps its credits longer and so gets less. Buffers lose their places:
//! each consumer gets some of a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Sink;

/// Divides buffers among sinks by their credit.
pub struct BalanceSink {
    sinks: Vec<Arc<dyn Sink>>,
    next: AtomicUsize,
    places: bool,
    edge: Edge,
}

impl BalanceSink {
    /// Divides among `sinks`, of which there is at least one.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(name: &str, sinks: Vec<Arc<dyn Sink>>) -> BalanceSink {
        assert!(!sinks.is_empty(), "a balance needs a sink");
        BalanceSink { sinks, next: AtomicUsize::new(0), places: false, edge: Edge::new(name) }
    }

    /// Lets buffers keep their places: for consumers that write one file together.
    pub fn keeping_places(self) -> BalanceSink {
        BalanceSink { places: true, ..self }
    }

    /// Asks each sink once, beginning behind the one that took the last buffer.
    fn offer(&self, mut buffer: Buffer) -> Result<Option<Buffer>, Error> {
        let (bytes, records) = (buffer.len(), buffer.records());
        let position = buffer.position().filter(|_| !self.places);
        if position.is_some() {
            buffer.forget_position();
        }
        let first = self.next.load(Ordering::Relaxed);
        for n in 0..self.sinks.len() {
            let number = (first + n) % self.sinks.len();
            match self.sinks[number].try_put(buffer)? {
                None => {
                    self.next.store(number + 1, Ordering::Relaxed);
                    self.edge.carried(bytes, records);
                    return Ok(None);
                }
                Some(back) => buffer = back,
            }
        }
        // It comes back as it was.
        if let Some(position) = position {
            buffer.set_position(position);
        }
        Ok(Some(buffer))
    }
}

impl Sink for BalanceSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        let Some(mut buffer) = self.offer(buffer)? else { return Ok(()) };
        self.edge.stalled_for_credit(|| {
            // Credit may come from any of them, so none can be waited for alone.
            let mut pause = Duration::from_micros(20);
            loop {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
                match self.offer(buffer)? {
                    None => return Ok(()),
                    Some(back) => buffer = back,
                }
            }
        })
    }

    fn try_put(&self, buffer: Buffer) -> Result<Option<Buffer>, Error> {
        self.offer(buffer)
    }

    fn finish(&self) -> Result<(), Error> {
        self.sinks.iter().try_for_each(|sink| sink.finish())
    }

    fn fail(&self, error: Error) {
        self.sinks.iter().for_each(|sink| sink.fail(error.clone()));
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
