//! Communicators: a group with contexts of its own, so that messages of one are never taken by another.
//!
//! A communicator has four contexts: messages of the program, collective operations, the making of other communicators by
//! part of its processes, and one that is not used yet. The processes of a communicator agree on a number that is free in all
//! of them.

use std::any::Any;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::board::{BOARDS, Seat};
use super::lock;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::matching::{Envelope, Pattern};
use crate::protocol::Source;

/// How many communicators a process can be in at a time.
pub(super) const MOST: usize = 4096;
/// Words of the set of free numbers.
pub(super) const WORDS: usize = MOST / 64;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A communicator. Clones are the same.
#[derive(Clone, Debug)]
pub struct Comm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    number: u32,
    group: Group,
    rank: i32,
    /// Collective operations so far.
    operations: AtomicU32,
    /// Where the number goes back to; None for those that are always there.
    contexts: Option<Arc<Contexts>>,
    /// Its board, if its processes share one.
    seat: Option<Seat>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(contexts) = &self.contexts {
            contexts.give_back(self.number);
        }
    }
}

impl PartialEq for Comm {
    fn eq(&self, other: &Comm) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Comm {}

/// Which of the four contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Program = 0,
    Collective = 1,
    Making = 2,
}

impl Comm {
    pub(super) fn predefined(number: u32, group: Group, rank: i32, seat: Option<Seat>) -> Comm {
        Comm::build(number, group, rank, None, seat)
    }

    pub(super) fn made(
        number: u32,
        group: Group,
        rank: i32,
        contexts: Arc<Contexts>,
        seat: Option<Seat>,
    ) -> Comm {
        Comm::build(number, group, rank, Some(contexts), seat)
    }

    fn build(
        number: u32,
        group: Group,
        rank: i32,
        contexts: Option<Arc<Contexts>>,
        seat: Option<Seat>,
    ) -> Comm {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        // Alone there is nothing to tell.
        let seat = seat.filter(|_| group.size() > 1);
        Comm(Arc::new(Inner { id, number, group, rank, operations: AtomicU32::new(0), contexts, seat }))
    }

    /// The board of its processes, if they share one.
    pub(super) fn seat(&self) -> Option<&Seat> {
        self.0.seat.as_ref()
    }

    /// This process' rank.
    pub fn rank(&self) -> i32 {
        self.0.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> i32 {
        self.0.group.size() as i32
    }

    /// The processes, by rank.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// A number that no other communicator of this process has had.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// What orders the makers of communicators: equal in all processes of this one.
    pub(super) fn number(&self) -> u32 {
        self.0.number
    }

    /// What a request keeps, so that the contexts are not used again before it is done.
    #[inline]
    pub(super) fn keep(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.contexts.as_ref().map(|_| self.0.clone() as Arc<dyn Any + Send + Sync>)
    }

    /// The number of the collective operation that begins now.
    pub(super) fn next_operation(&self) -> u32 {
        self.0.operations.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn context(&self, which: Context) -> u32 {
        self.0.number << 2 | which as u32
    }

    /// The process with a rank. None: no process, by [`super::PROC_NULL`].
    #[inline]
    pub(super) fn process(&self, rank: i32) -> Result<Option<usize>> {
        if rank == super::PROC_NULL {
            return Ok(None);
        }
        let process = usize::try_from(rank).ok().and_then(|rank| self.0.group.process(rank));
        let wrong = || Error::new(Class::Rank, format!("rank {rank} of {} processes", self.size()));
        process.map(|process| Some(process as usize)).ok_or_else(wrong)
    }

    #[inline]
    pub(super) fn envelope(&self, tag: i32) -> Result<Envelope> {
        if tag < 0 {
            return Err(Error::new(Class::Tag, format!("tag {tag} of a message; tags are not negative")));
        }
        Ok(Envelope { context: self.context(Context::Program), source: self.rank(), tag })
    }

    /// What a receive or a probe asks for. None: nothing, by [`super::PROC_NULL`].
    #[inline]
    pub(super) fn pattern(&self, source: i32, tag: i32) -> Result<Option<(Pattern, Source)>> {
        let wanted = match tag {
            super::ANY_TAG => None,
            0.. => Some(tag),
            _ => return Err(Error::new(Class::Tag, format!("tag {tag} of a receive"))),
        };
        let context = self.context(Context::Program);
        if source == super::ANY_SOURCE {
            let pattern = Pattern { context, source: None, tag: wanted };
            return Ok(Some((pattern, Source::Any(self.0.group.clone()))));
        }
        let process = self.process(source)?;
        let pattern = Pattern { context, source: Some(source), tag: wanted };
        Ok(process.map(|process| (pattern, Source::Process(process))))
    }
}

/// The numbers of communicators that are free in this process.
#[derive(Debug)]
pub(super) struct Contexts {
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    words: [u64; WORDS],
    /// Numbers whose board no communicator of this process has used.
    boards: u64,
    /// A thread that makes a communicator has offered the set to other processes, and waits for theirs.
    offered: bool,
    /// Communicators whose threads want to offer it.
    waiting: Vec<u32>,
}

impl Contexts {
    /// `boards` says whether there are any.
    pub(super) fn new(boards: bool) -> Arc<Contexts> {
        let mut words = [u64::MAX; WORDS];
        // Those that are always there.
        words[0] &= !0b11;
        const { assert!(BOARDS == 64, "a bit of a word for each") };
        let boards = if boards { words[0] } else { 0 };
        Arc::new(Contexts { free: Mutex::new(Free { words, boards, offered: false, waiting: Vec::new() }) })
    }

    /// A thread wants to make a communicator out of the one with this number.
    pub(super) fn enter(&self, parent: u32) {
        lock(&self.free).waiting.push(parent);
    }

    /// The free numbers and those with a new board, if it is this thread's turn: that of the lowest parent, which is the same
    /// in all processes.
    pub(super) fn offer(&self, parent: u32) -> Option<([u64; WORDS], u64)> {
        let mut free = lock(&self.free);
        let first = free.waiting.iter().min() == Some(&parent) && !free.offered;
        free.offered |= first;
        first.then_some((free.words, free.boards))
    }

    /// The offer is over; a number that all processes had free is taken.
    pub(super) fn conclude(&self, taken: Option<u32>) {
        let mut free = lock(&self.free);
        free.offered = false;
        if let Some(number) = taken {
            free.words[number as usize / 64] &= !(1 << (number % 64));
            if (number as usize) < BOARDS {
                free.boards &= !(1 << number);
            }
        }
    }

    /// The thread has its communicator, or gave up.
    pub(super) fn leave(&self, parent: u32) {
        let mut free = lock(&self.free);
        if let Some(at) = free.waiting.iter().position(|waiting| *waiting == parent) {
            free.waiting.swap_remove(at);
        }
    }

    /// A number was agreed on for other processes; this one has no part in it.
    pub(super) fn conclude_unused(&self, number: u32) {
        self.give_back(number);
    }

    fn give_back(&self, number: u32) {
        lock(&self.free).words[number as usize / 64] |= 1 << (number % 64);
    }
}
