//! `raw`: what the memory system itself can do. The limit that everything else is compared with.
//!
//! Ping-pong: flag and payload in one cache line (more lines for more than 56 bytes), PAUSE in the spin; with blocking
//! waits the same line and a futex. Stream: a bare ring of slots of whole cache lines, each with its own sequence
//! number, and one word that gives slots back a quarter of the ring at a time.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use viaduct_os::futex;

use crate::control::{ARENA, Control, Patience};
use crate::error::Result;
use crate::layers::{Door, OpenDoor};
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::{Variant, Wait};
use crate::raw::{Block, Word};

/// Lines apart that the prefetcher does not fetch together.
const APART: usize = 128;

pub(super) fn arena_len(variant: &Variant) -> usize {
    match variant.motion.is_stream() {
        false => 2 * line_len(variant.size),
        true => 2 * APART + variant.window * slot_len(variant.size),
    }
}

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    Ok(Box::new(OpenDoor(open(variant, control, 1))))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn End>> {
    Ok(open(variant, control, 0))
}

fn open(variant: &Variant, control: &Rc<Control>, side: usize) -> Box<dyn End> {
    match (variant.motion.is_stream(), variant.wait) {
        (false, Wait::Poll) => {
            Box::new(Looped::new(FlaggedMemory::<false>::new(variant, control, side), variant))
        }
        (false, Wait::Block) => {
            Box::new(Looped::new(FlaggedMemory::<true>::new(variant, control, side), variant))
        }
        (true, _) => Box::new(Looped::new(Ring::new(variant, control), variant)),
    }
}

fn line_len(size: usize) -> usize {
    (8 + size).next_multiple_of(APART)
}

fn slot_len(size: usize) -> usize {
    (8 + size).next_multiple_of(64)
}

/// A flag and its payload, one for each direction.
struct FlaggedMemory<const BLOCK: bool> {
    out_flag: Word,
    out: Block,
    in_flag: Word,
    input: Block,
    scratch: Vec<u8>,
    patience: Patience,
}

impl<const BLOCK: bool> FlaggedMemory<BLOCK> {
    fn new(variant: &Variant, control: &Control, side: usize) -> FlaggedMemory<BLOCK> {
        let base = ARENA + variant.arena;
        let len = line_len(variant.size);
        let segment = control.segment();
        let (mine, theirs) = (base + side * len, base + (1 - side) * len);
        FlaggedMemory {
            out_flag: Word::new(segment, mine),
            out: Block::new(segment, mine + 8, variant.size),
            in_flag: Word::new(segment, theirs),
            input: Block::new(segment, theirs + 8, variant.size),
            scratch: vec![1; variant.size],
            patience: control.patience(),
        }
    }
}

impl<const BLOCK: bool> Wire for FlaggedMemory<BLOCK> {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            self.out.write(&self.scratch);
        } else if self.scratch.len() == 8 {
            self.out.store_word(seq);
        } else {
            self.out.write(&self.scratch);
        }
        self.out_flag.store(seq, Ordering::Release);
        if BLOCK {
            futex::wake(self.out_flag.low(), 1);
        }
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let flag = &self.in_flag;
        if BLOCK {
            self.patience.sleep_until("waiting for a raw message", flag, seq)?;
        } else {
            self.patience.spin_until("waiting for a raw message", || flag.load(Ordering::Acquire) == seq)?;
        }
        if CHECK {
            self.input.read(&mut self.scratch);
            return Ok(pattern::mismatches(&self.scratch, seq));
        }
        Ok(if self.scratch.len() == 8 { self.input.load_word() } else { self.input.sum() })
    }

    fn acknowledge(&mut self) -> Result<()> {
        unreachable!("a line only plays ping-pong")
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        unreachable!("a line only plays ping-pong")
    }
}

/// A ring of slots from one process to the other.
struct Ring {
    slots: Vec<(Word, Block)>,
    /// Messages that the receiver has read, published now and then.
    returned: Word,
    /// Messages that the receiver had read when it acknowledged a stream.
    acknowledged: Word,
    /// Own position: messages sent or received.
    done: u64,
    /// Index of the slot for the next message.
    at: usize,
    /// What the sender last saw in `returned`.
    seen_returned: u64,
    scratch: Vec<u8>,
    patience: Patience,
}

impl Ring {
    fn new(variant: &Variant, control: &Control) -> Ring {
        let base = ARENA + variant.arena;
        let segment = control.segment();
        let slot = |index: usize| {
            let at = base + 2 * APART + index * slot_len(variant.size);
            (Word::new(segment, at), Block::new(segment, at + 8, variant.size))
        };
        Ring {
            slots: (0..variant.window).map(slot).collect(),
            returned: Word::new(segment, base),
            acknowledged: Word::new(segment, base + APART),
            done: 0,
            at: 0,
            seen_returned: 0,
            scratch: vec![1; variant.size],
            patience: control.patience(),
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.done += 1;
        self.at += 1;
        if self.at == self.slots.len() {
            self.at = 0;
        }
    }
}

impl Wire for Ring {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        let window = self.slots.len() as u64;
        if self.done - self.seen_returned == window {
            let (returned, seen, done) = (&self.returned, &mut self.seen_returned, self.done);
            self.patience.spin_until("waiting for room in the raw ring", || {
                *seen = returned.load(Ordering::Acquire);
                done - *seen < window
            })?;
        }
        let (flag, payload) = &self.slots[self.at];
        if CHECK {
            pattern::fill(&mut self.scratch, seq);
            payload.write(&self.scratch);
        } else if self.scratch.len() == 8 {
            payload.store_word(seq);
        } else {
            payload.write(&self.scratch);
        }
        flag.store(self.done + 1, Ordering::Release);
        self.step();
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let (flag, payload) = &self.slots[self.at];
        let expected = self.done + 1;
        self.patience.spin_until("waiting for a message in the raw ring", || {
            flag.load(Ordering::Acquire) == expected
        })?;
        let value = if CHECK {
            payload.read(&mut self.scratch);
            pattern::mismatches(&self.scratch, seq)
        } else if self.scratch.len() == 8 {
            payload.load_word()
        } else {
            payload.sum()
        };
        self.step();
        let quarter = (self.slots.len() / 4).max(1);
        if self.at.is_multiple_of(quarter) {
            self.returned.store(self.done, Ordering::Release);
        }
        Ok(value)
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.returned.store(self.done, Ordering::Release);
        self.acknowledged.store(self.done, Ordering::Release);
        Ok(())
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        let (word, done) = (&self.acknowledged, self.done);
        self.patience
            .spin_until("waiting for the end of a raw stream", || word.load(Ordering::Acquire) == done)
    }
}
