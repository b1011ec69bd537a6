//! A piece of memory on its way through a flow (Millennium Sort, section 3.2, Buffer).
//!
//! A buffer has one owner at a time and goes back to its pool when it is dropped. Its payload is a window of its memory,
//! so that a source may read whole blocks and hand on only the records that are its own.
//!
//! It may say where in its stream the payload belongs: then a sink that writes a file needs no other order. That is a promise of
//! the flow, that no two of its buffers have the same place and that none is left free. A stage after which it no longer holds,
//! because records are left out or several flows run together, takes the place away, and the payload goes behind what came before.

use std::fmt;
use std::ops::Range;

use crate::net::Port;
use crate::pool::Home;
use crate::raw::{Registered, Slot};

/// Bytes on their way, with a place in their stream or without.
pub struct Buffer {
    memory: Memory,
    start: usize,
    end: usize,
    records: u64,
    position: Option<u64>,
    sequence: u64,
    home: Option<Home>,
}

enum Memory {
    Slot(Option<Slot>),
    Heap(Box<[u8]>),
}

impl Buffer {
    pub(crate) fn pooled(slot: Slot, home: Home) -> Buffer {
        Buffer {
            memory: Memory::Slot(Some(slot)),
            start: 0,
            end: 0,
            records: 0,
            position: None,
            sequence: 0,
            home: Some(home),
        }
    }

    /// A buffer outside every pool, for records that are longer than the buffers of one.
    pub fn heap(capacity: usize) -> Buffer {
        let memory = Memory::Heap(vec![0; capacity].into_boxed_slice());
        Buffer { memory, start: 0, end: 0, records: 0, position: None, sequence: 0, home: None }
    }

    /// A buffer outside every pool that takes over `bytes`.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Buffer {
        let memory = Memory::Heap(bytes.into_boxed_slice());
        Buffer { memory, start: 0, end: 0, records: 0, position: None, sequence: 0, home: None }
    }

    /// Takes registered memory out of its buffer, to be posted, with the payload's range and the pool that it goes back to.
    /// Another buffer comes back as it was.
    pub(crate) fn into_registered(mut self) -> Result<(Registered, Range<usize>, Home), Buffer> {
        match (&mut self.memory, &self.home) {
            (Memory::Slot(slot), Some(home)) => match slot.take() {
                Some(Slot::Registered(memory)) => Ok((memory, self.start..self.end, home.clone())),
                other => {
                    *slot = other;
                    Err(self)
                }
            },
            _ => Err(self),
        }
    }

    /// Whether the memory is registered with the NIC of `port`.
    pub(crate) fn is_of(&self, port: &Port) -> bool {
        match &self.memory {
            Memory::Slot(Some(Slot::Registered(memory))) => memory.port.is_same(port),
            _ => false,
        }
    }

    /// All of the memory, whatever the payload.
    pub fn room(&self) -> &[u8] {
        match &self.memory {
            Memory::Slot(slot) => slot.as_ref().expect("a slot leaves its buffer on drop only").bytes(),
            Memory::Heap(bytes) => bytes,
        }
    }

    /// All of the memory, to fill it.
    pub fn room_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Slot(slot) => slot.as_mut().expect("a slot leaves its buffer on drop only").bytes_mut(),
            Memory::Heap(bytes) => bytes,
        }
    }

    /// How much fits.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Slot(slot) => slot.as_ref().map_or(0, Slot::len),
            Memory::Heap(bytes) => bytes.len(),
        }
    }

    /// The payload.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.room()[self.start..self.end]
    }

    /// The payload, to change it.
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        &mut self.room_mut()[start..end]
    }

    /// Where in the memory the payload begins.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Bytes of payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there is no payload.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Makes `start..end` of the memory the payload.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn set_window(&mut self, start: usize, end: usize) {
        assert!(start <= end && end <= self.capacity(), "window outside the buffer");
        (self.start, self.end) = (start, end);
    }

    /// Cuts the payload to its first `len` bytes.
    ///
    /// # Panics
    /// If it is shorter than that.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len(), "a payload is not made longer by cutting");
        self.end = self.start + len;
    }

    /// Free bytes behind the payload.
    #[inline]
    pub fn free(&self) -> usize {
        self.capacity() - self.end
    }

    /// Appends one record to the payload: the paper's SinkRecord.
    ///
    /// # Panics
    /// If there is no room for it.
    #[inline]
    pub fn push_record(&mut self, record: &[u8]) {
        let end = self.end + record.len();
        let at = self.end;
        self.room_mut()[at..end].copy_from_slice(record);
        self.end = end;
        self.records += 1;
    }

    /// Records in the payload.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Says how many records the payload has.
    pub fn set_records(&mut self, records: u64) {
        self.records = records;
    }

    /// Offset of the payload in its stream; `None` if it belongs behind what came before it.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Says where in its stream the payload belongs. No other buffer of the flow may belong there.
    pub fn set_position(&mut self, position: u64) {
        self.position = Some(position);
    }

    /// Says that the payload belongs behind what came before it.
    pub fn forget_position(&mut self) {
        self.position = None;
    }

    /// Number of the buffer among those of its source, from 0 on, in the order of the stream.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Numbers the buffer.
    pub fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// Forgets the payload and what is said of it.
    pub fn clear(&mut self) {
        (self.start, self.end, self.records, self.position, self.sequence) = (0, 0, 0, None, 0);
    }

    /// Copies payload and attributes of `other`, which must fit.
    pub fn copy_from(&mut self, other: &Buffer) {
        let len = other.len();
        self.room_mut()[..len].copy_from_slice(other.data());
        (self.start, self.end) = (0, len);
        (self.records, self.position, self.sequence) = (other.records, other.position, other.sequence);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Memory::Slot(slot), Some(home)) = (&mut self.memory, self.home.take())
            && let Some(slot) = slot.take()
        {
            home.give_back(slot);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes, {} records", self.len(), self.records)?;
        self.position.map_or(Ok(()), |position| write!(f, " at {position}"))?;
        f.write_str(")")
    }
}
