//! The river itself: a bounded queue that sinks fill and a program empties (Millennium Sort, section 3.2, RiverSink).
//!
//! Several producers put into one queue; it has run dry when each has finished and it is empty. The error of any producer
//! reaches every consumer, before what is still queued. Buffers of several producers lose their places, which would be those of
//! several streams.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::{Sink, Source};

/// A queue of buffers with Put and Get.
#[derive(Debug)]
pub struct RiverSink {
    state: Mutex<QueueState>,
    filled: Condvar,
    emptied: Condvar,
    capacity: usize,
    /// Whether buffers keep their places.
    places: bool,
    edge: Edge,
}

#[derive(Debug)]
struct QueueState {
    buffers: VecDeque<Buffer>,
    producers: usize,
    failed: Option<Error>,
}

impl RiverSink {
    /// A queue of at most `capacity` buffers that `producers` fill.
    pub fn new(name: &str, capacity: usize, producers: usize) -> RiverSink {
        let state = QueueState { buffers: VecDeque::new(), producers, failed: None };
        RiverSink {
            state: Mutex::new(state),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            capacity: capacity.max(1),
            places: producers == 1,
            edge: Edge::new(name),
        }
    }

    /// Lets buffers keep their places though there are several producers: for such as have parts of one stream.
    pub fn keeping_places(self) -> RiverSink {
        RiverSink { places: true, ..self }
    }

    /// Waits for a buffer; `None` once every producer has finished.
    pub fn get(&self) -> Result<Option<Buffer>, Error> {
        let mut state = self.state();
        let dry =
            |state: &QueueState| state.buffers.is_empty() && state.producers > 0 && state.failed.is_none();
        if dry(&state) {
            let wait =
                || self.filled.wait_while(state, |state| dry(state)).unwrap_or_else(PoisonError::into_inner);
            state = self.edge.stalled_for_data(wait);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let buffer = state.buffers.pop_front();
        drop(state);
        self.emptied.notify_one();
        Ok(buffer)
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut state: MutexGuard<'_, QueueState>, mut buffer: Buffer) -> Result<(), Error> {
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if !self.places {
            buffer.forget_position();
        }
        self.edge.carried(buffer.len(), buffer.records());
        state.buffers.push_back(buffer);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }
}

impl Sink for RiverSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        let mut state = self.state();
        let full = |state: &QueueState| state.buffers.len() >= self.capacity && state.failed.is_none();
        if full(&state) {
            let wait = || {
                self.emptied.wait_while(state, |state| full(state)).unwrap_or_else(PoisonError::into_inner)
            };
            state = self.edge.stalled_for_credit(wait);
        }
        self.push(state, buffer)
    }

    fn try_put(&self, buffer: Buffer) -> Result<Option<Buffer>, Error> {
        let state = self.state();
        if state.buffers.len() >= self.capacity && state.failed.is_none() {
            return Ok(Some(buffer));
        }
        self.push(state, buffer).map(|()| None)
    }

    fn finish(&self) -> Result<(), Error> {
        let mut state = self.state();
        state.producers = state.producers.saturating_sub(1);
        drop(state);
        self.filled.notify_all();
        Ok(())
    }

    fn fail(&self, error: Error) {
        let mut state = self.state();
        state.failed.get_or_insert(error);
        // Buffers go back to their pools, so that producers that wait for one of these see the failure.
        let left = std::mem::take(&mut state.buffers);
        drop(state);
        drop(left);
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

impl Source for RiverSink {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        self.get()
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
