//! Records on their way out: packed into buffers that lie in memory as they will lie in the file.
//!
//! The writer of a group knows its place in the output at once if all records have one size. Otherwise it learns it when
//! all groups before it know their length; until then it keeps its buffers, and when it has no more it waits for its turn.

use std::sync::{Condvar, Mutex, PoisonError};

use viaduct_river::{Buffer, MemPool, Sink};

use crate::Error;

/// Whose turn it is to learn its place.
pub(crate) struct Turns {
    state: Mutex<Turn>,
    moved: Condvar,
}

struct Turn {
    group: usize,
    position: u64,
    failed: bool,
}

impl Turns {
    /// The first group begins at `base`.
    pub(crate) fn new(base: u64) -> Turns {
        Turns { state: Mutex::new(Turn { group: 0, position: base, failed: false }), moved: Condvar::new() }
    }

    /// Waits until all groups before `group` know their length.
    fn wait(&self, group: usize) -> Result<u64, Error> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let early = |turn: &mut Turn| turn.group < group && !turn.failed;
        let state = self.moved.wait_while(state, early).unwrap_or_else(PoisonError::into_inner);
        if state.failed { Err(viaduct_river::Error::Stopped.into()) } else { Ok(state.position) }
    }

    fn pass(&self, group: usize, position: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.group, state.position) = (group + 1, position);
        self.moved.notify_all();
    }

    /// A group will never know its length: those that wait give up.
    pub(crate) fn fail(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.moved.notify_all();
    }
}

/// Packs the records of one group.
pub(crate) struct Writer<'a> {
    sink: &'a dyn Sink,
    pool: &'a MemPool,
    turns: &'a Turns,
    group: usize,
    /// Where the current buffer belongs, once that is known.
    position: Option<u64>,
    /// Whether the place came from a turn, which has to be passed on.
    by_turn: bool,
    kept: Vec<Buffer>,
    current: Option<Buffer>,
    len: u64,
}

impl<'a> Writer<'a> {
    /// A writer of `group`, which begins at `position` if that is known.
    pub(crate) fn new(
        sink: &'a dyn Sink,
        pool: &'a MemPool,
        turns: &'a Turns,
        group: usize,
        position: Option<u64>,
    ) -> Writer<'a> {
        let by_turn = position.is_none();
        Writer { sink, pool, turns, group, position, by_turn, kept: Vec::new(), current: None, len: 0 }
    }

    /// Appends a record.
    #[inline]
    pub(crate) fn push(&mut self, record: &[u8]) -> Result<(), Error> {
        self.len += record.len() as u64;
        if let Some(buffer) = &mut self.current
            && buffer.free() >= record.len()
        {
            buffer.push_record(record);
            return Ok(());
        }
        self.push_over(record)
    }

    /// Appends a record that reaches over the end of a buffer.
    #[cold]
    fn push_over(&mut self, mut record: &[u8]) -> Result<(), Error> {
        loop {
            let mut buffer = match self.current.take() {
                Some(buffer) => buffer,
                None => self.fresh()?,
            };
            let len = record.len().min(buffer.free());
            let (piece, rest) = record.split_at(len);
            buffer.push_record(piece);
            if !rest.is_empty() {
                // It is counted where it ends.
                buffer.set_records(buffer.records() - 1);
            }
            self.current = Some(buffer);
            if rest.is_empty() {
                return Ok(());
            }
            self.put()?;
            record = rest;
        }
    }

    fn fresh(&mut self) -> Result<Buffer, Error> {
        let mut buffer = match self.pool.try_take() {
            Some(buffer) => buffer,
            None => {
                self.learn()?;
                self.pool.take()
            }
        };
        // The payload begins in its block where it will begin in the file.
        let skew = self.position.map_or(0, |position| (position % 4096) as usize);
        buffer.set_window(skew, skew);
        Ok(buffer)
    }

    /// Learns the place and puts what was kept.
    fn learn(&mut self) -> Result<(), Error> {
        if self.position.is_none() {
            self.position = Some(self.turns.wait(self.group)?);
        }
        for buffer in std::mem::take(&mut self.kept) {
            self.put_at(buffer)?;
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), Error> {
        match self.current.take() {
            Some(buffer) if self.position.is_some() => self.put_at(buffer),
            Some(buffer) => {
                self.kept.push(buffer);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn put_at(&mut self, mut buffer: Buffer) -> Result<(), Error> {
        let position = self.position.unwrap_or_default();
        buffer.set_position(position);
        self.position = Some(position + buffer.len() as u64);
        Ok(self.sink.put(buffer)?)
    }

    /// Puts what is left and lets the next group go on.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        if self.by_turn {
            let known = self.position;
            let start = match known {
                // Learned on the way: what was put and what is current make up the length.
                Some(position) => position + self.current.as_ref().map_or(0, |buffer| buffer.len() as u64),
                None => {
                    let start = self.turns.wait(self.group)?;
                    self.position = Some(start);
                    start + self.len
                }
            };
            self.turns.pass(self.group, start);
        }
        self.learn()?;
        self.put()
    }
}
