//! `copy`: the bare single-copy loop, the limit for bandwidth when the receiver reads what it gets.
//!
//! The sender copies from its own buffer into one of a few shared buffers with the same routine that the providers
//! use, and counts up; the receiver reads every byte in place, and counts up to give the buffer back. Nothing else.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::control::{ARENA, Control, Patience};
use crate::error::Result;
use crate::layers::{Door, OpenDoor};
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::Variant;
use crate::raw::{Block, Word};

const WORDS: usize = 4096;

pub(super) fn arena_len(variant: &Variant) -> usize {
    WORDS + variant.window * buffer_len(variant.size)
}

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    Ok(Box::new(OpenDoor(Box::new(Looped::new(Copy::new(variant, control), variant)))))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn End>> {
    Ok(Box::new(Looped::new(Copy::new(variant, control), variant)))
}

fn buffer_len(size: usize) -> usize {
    size.next_multiple_of(4096)
}

struct Copy {
    buffers: Vec<Block>,
    /// Messages written.
    sent: Word,
    /// Messages read.
    read: Word,
    /// Own position.
    done: u64,
    at: usize,
    source: Vec<u8>,
    patience: Patience,
}

impl Copy {
    fn new(variant: &Variant, control: &Control) -> Copy {
        let base = ARENA + variant.arena;
        let segment = control.segment();
        let buffer =
            |index: usize| Block::new(segment, base + WORDS + index * buffer_len(variant.size), variant.size);
        Copy {
            buffers: (0..variant.window).map(buffer).collect(),
            sent: Word::new(segment, base),
            read: Word::new(segment, base + 128),
            done: 0,
            at: 0,
            source: vec![1; variant.size],
            patience: control.patience(),
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.done += 1;
        self.at += 1;
        if self.at == self.buffers.len() {
            self.at = 0;
        }
    }
}

impl Wire for Copy {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        let (read, done, window) = (&self.read, self.done, self.buffers.len() as u64);
        self.patience
            .spin_until("waiting for a free buffer", || done - read.load(Ordering::Acquire) < window)?;
        if CHECK {
            pattern::fill(&mut self.source, seq);
        }
        self.buffers[self.at].write(&self.source);
        self.step();
        self.sent.store(self.done, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (sent, done) = (&self.sent, self.done);
        self.patience.spin_until("waiting for a full buffer", || sent.load(Ordering::Acquire) > done)?;
        let value = if CHECK {
            self.buffers[self.at].read(&mut self.source);
            pattern::mismatches(&self.source, seq)
        } else {
            self.buffers[self.at].sum()
        };
        self.step();
        self.read.store(self.done, Ordering::Release);
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        Ok(())
    }

    /// The count of messages read is the acknowledgement.
    fn wait_acknowledged(&mut self) -> Result<()> {
        let (read, done) = (&self.read, self.done);
        self.patience
            .spin_until("waiting for the end of a copied stream", || read.load(Ordering::Acquire) == done)
    }
}
