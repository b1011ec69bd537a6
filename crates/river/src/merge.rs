//! Sorted sources as one sorted source.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::Source;
use crate::format::RecordFormat;
use crate::pool::MemPool;

/// Merges sources, each of which is in order. Equal records come in the order of their sources.
pub struct MergeSource<C> {
    format: Arc<dyn RecordFormat>,
    compare: C,
    pool: MemPool,
    state: Mutex<Merging>,
    edge: Edge,
}

struct Merging {
    inputs: Vec<Front>,
    /// Numbers of inputs that have a record, as a heap with the least at the top.
    heap: Vec<usize>,
    begun: bool,
    position: u64,
    sequence: u64,
}

/// An input with its next record.
struct Front {
    source: Arc<dyn Source>,
    buffer: Option<Buffer>,
    start: usize,
    end: usize,
}

impl<C: Fn(&[u8], &[u8]) -> Ordering + Send + Sync> MergeSource<C> {
    /// Merges `inputs` of `format` by `compare` into buffers of `pool`.
    pub fn new(
        name: &str,
        inputs: Vec<Arc<dyn Source>>,
        format: Arc<dyn RecordFormat>,
        compare: C,
        pool: MemPool,
    ) -> MergeSource<C> {
        let front = |source| Front { source, buffer: None, start: 0, end: 0 };
        let inputs = inputs.into_iter().map(front).collect();
        let state = Merging { inputs, heap: Vec::new(), begun: false, position: 0, sequence: 0 };
        MergeSource { format, compare, pool, state: Mutex::new(state), edge: Edge::new(name) }
    }

    fn less(&self, state: &Merging, a: usize, b: usize) -> bool {
        let order = (self.compare)(state.inputs[a].record(), state.inputs[b].record());
        order.then(a.cmp(&b)).is_lt()
    }

    /// Lets the record at `at` sink to its place.
    fn sift(&self, state: &mut Merging, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < state.heap.len() && self.less(state, state.heap[child], state.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            state.heap.swap(at, least);
            at = least;
        }
    }

    fn begin(&self, state: &mut Merging) -> Result<(), Error> {
        for number in 0..state.inputs.len() {
            if state.inputs[number].step(&*self.format, &self.edge)? {
                state.heap.push(number);
            }
        }
        for at in (0..state.heap.len()).rev() {
            self.sift(state, at);
        }
        state.begun = true;
        Ok(())
    }
}

impl Front {
    fn record(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.data()[self.start..self.end])
    }

    /// Goes to the next record; `edge` counts the wait for it. Returns whether there is one.
    fn step(&mut self, format: &dyn RecordFormat, edge: &Edge) -> Result<bool, Error> {
        loop {
            if let Some(buffer) = &self.buffer {
                self.start = self.end;
                let rest = &buffer.data()[self.start..];
                if let Some(len) = format.record_len(rest).filter(|_| !rest.is_empty()) {
                    self.end += len;
                    return Ok(true);
                }
            }
            // The buffer goes back before the next is asked for: one buffer suffices.
            self.buffer = None;
            (self.start, self.end) = (0, 0);
            self.buffer = edge.stalled_for_data(|| self.source.pull())?;
            if self.buffer.is_none() {
                return Ok(false);
            }
        }
    }
}

impl<C: Fn(&[u8], &[u8]) -> Ordering + Send + Sync> Source for MergeSource<C> {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if !state.begun {
            self.begin(state)?;
        }
        let mut out: Option<Buffer> = None;
        while let Some(&first) = state.heap.first() {
            let record = state.inputs[first].record();
            let room = match &out {
                Some(buffer) => buffer.free(),
                None if record.len() > self.pool.buffer_size() => {
                    out.insert(Buffer::heap(record.len())).free()
                }
                None => out.insert(self.edge.stalled_for_credit(|| self.pool.take())).free(),
            };
            if record.len() > room {
                break;
            }
            if let Some(buffer) = &mut out {
                buffer.push_record(record);
            }
            if !state.inputs[first].step(&*self.format, &self.edge)? {
                state.heap.swap_remove(0);
            }
            self.sift(state, 0);
        }
        if let Some(buffer) = &mut out {
            buffer.set_position(state.position);
            buffer.set_sequence(state.sequence);
            state.position += buffer.len() as u64;
            state.sequence += 1;
            self.edge.carried(buffer.len(), buffer.records());
        }
        Ok(out)
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
