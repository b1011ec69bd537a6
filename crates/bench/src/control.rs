//! The control segment: how the two processes of a benchmark give orders, answer and probe each other.
//!
//! One memfd, inherited by the second process, no name anywhere. Words that both ends touch lie 128 bytes apart, so that
//! neither a cache line nor the prefetcher's pair of lines is shared by accident. Behind the words lie two mailboxes
//! (orders and answers, as JSON: they are read outside every timed region) and the arena that reference layers use.

use std::cell::OnceCell;
use std::hint::spin_loop;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use viaduct_os::budget::Budget;
use viaduct_os::futex;
use viaduct_os::segment::{Access, Segment};
use viaduct_providers::Config;

use crate::error::{Error, Result};
use crate::raw::{Block, Word};
use crate::session::PeerCommand;

/// Where the arena starts.
pub(crate) const ARENA: usize = 64 << 10;

const MAGIC: u64 = 0x3163_6e62_6475_6976; // "viudbnc1"
const MAILBOX: usize = 16 << 10;
const ORDERS: usize = 16 << 10;
const ANSWERS: usize = 32 << 10;

/// Longest silence of the other process that is still believed to be work.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between the closing of the sockets of a process that is killed and the news of its end.
const ENDING: Duration = Duration::from_millis(200);

/// One process' view of the segment.
#[derive(Debug)]
pub(crate) struct Control {
    segment: Rc<Segment>,
    magic: Word,
    /// Number of the newest order.
    pub(crate) order: Word,
    /// Number of the newest order that the peer has started.
    pub(crate) started: Word,
    /// Number of the newest order that the peer has answered.
    pub(crate) answered: Word,
    /// Probe, there.
    pub(crate) ping: Word,
    /// Probe, back.
    pub(crate) pong: Word,
    /// Not 0 once a process is gone or gives up: every loop ends.
    abort: Word,
    orders: Block,
    answers: Block,
    /// Both processes run on one core: never spin.
    one_core: bool,
    /// Tells whether the other process lives; a peer on the same host does not need it, it dies with the parent.
    peer: OnceCell<Watched>,
    /// The other process is on another host; the parent knows its name.
    far: Option<String>,
    /// Settings with which layers open their providers.
    providers: Config,
    /// How further processes are started; only the parent knows.
    standby: OnceCell<(PeerCommand, usize)>,
}

impl Control {
    /// A fresh segment with an arena of `arena` bytes.
    pub(crate) fn create(arena: usize, one_core: bool, providers: Config) -> Result<Control> {
        let segment = Segment::create("viaduct-bench", ARENA + arena, Budget::process())
            .map_err(|e| Error::Memory { doing: "creating the shared segment", source: e })?;
        let control = Control::over(segment, one_core, providers);
        control.magic.store(MAGIC, Ordering::Release);
        Ok(control)
    }

    /// The own words of a process whose peer is on another host; `host` is what that is called, if this one calls.
    pub(crate) fn alone(host: &str, providers: Config) -> Result<Control> {
        Ok(Control { far: Some(host.to_owned()), ..Control::create(0, false, providers)? })
    }

    /// The segment that the parent process made.
    pub(crate) fn adopt(fd: OwnedFd, one_core: bool, providers: Config) -> Result<Control> {
        let segment = Segment::open(fd, Access::ReadWrite, usize::MAX).map_err(|_| not_ours())?;
        if segment.len() < ARENA {
            return Err(not_ours());
        }
        let control = Control::over(segment, one_core, providers);
        if control.magic.load(Ordering::Acquire) != MAGIC { Err(not_ours()) } else { Ok(control) }
    }

    fn over(segment: Segment, one_core: bool, providers: Config) -> Control {
        let segment = Rc::new(segment);
        let word = |line: usize| Word::new(&segment, line * 128);
        Control {
            magic: word(0),
            order: word(1),
            started: word(2),
            answered: word(3),
            ping: word(4),
            pong: word(5),
            abort: word(6),
            orders: Block::new(&segment, ORDERS, MAILBOX),
            answers: Block::new(&segment, ANSWERS, MAILBOX),
            segment,
            one_core,
            peer: OnceCell::new(),
            far: None,
            providers,
            standby: OnceCell::new(),
        }
    }

    /// The whole segment, for layers that lay out their own words in the arena.
    pub(crate) fn segment(&self) -> &Rc<Segment> {
        &self.segment
    }

    /// Settings of the providers.
    pub(crate) fn providers(&self) -> &Config {
        &self.providers
    }

    /// Remembers how processes are started, and on which core, for cases that need more than one.
    pub(crate) fn remember(&self, command: PeerCommand, cpu: usize) {
        let _ = self.standby.set((command, cpu));
    }

    /// How processes are started, and on which core; `None` in the second process.
    pub(crate) fn command(&self) -> Option<&(PeerCommand, usize)> {
        self.standby.get()
    }

    /// A descriptor to pass on.
    pub(crate) fn dup_fd(&self) -> Result<OwnedFd> {
        self.segment.dup_fd().map_err(Error::os("duplicating the descriptor of the shared segment"))
    }

    /// The other process is on another host; its name, where this one calls there.
    pub(crate) fn far(&self) -> Option<&str> {
        self.far.as_deref()
    }

    /// Watches the other process from now on, through its pidfd or through the connection with it.
    pub(crate) fn watch(&self, fd: OwnedFd) {
        // A pidfd is readable once its process has ended; a connection also when there is something to read.
        let sign = if self.far.is_some() { PollFlags::RDHUP } else { PollFlags::IN };
        let _ = self.peer.set((Rc::new(fd), sign));
    }

    /// Whether the other process is gone, or is about to be: its sockets are closed a moment before its end is told.
    pub(crate) fn is_peer_gone(&self) -> bool {
        self.peer.get().is_some_and(|peer| ends_within(peer, ENDING))
    }

    /// Tells the other process to leave every loop.
    pub(crate) fn give_up(&self) {
        self.abort.store(1, Ordering::Release);
    }

    /// What timed loops look at while they wait.
    pub(crate) fn patience(&self) -> Patience {
        Patience { abort: self.abort.clone(), peer: self.peer.get().cloned() }
    }

    /// Writes an order or an answer.
    pub(crate) fn post<T: Serialize>(&self, to: Mailbox, letter: &T) {
        let text = serde_json::to_vec(letter).expect("orders and answers always serialise");
        assert!(text.len() <= MAILBOX - 8, "letter of {} bytes", text.len());
        let block = self.mailbox(to);
        let mut framed = Vec::with_capacity(text.len() + 8);
        framed.extend_from_slice(&(text.len() as u64).to_le_bytes());
        framed.extend_from_slice(&text);
        block.write(&framed);
    }

    /// Reads an order or an answer.
    pub(crate) fn fetch<T: DeserializeOwned>(&self, from: Mailbox) -> Result<T> {
        let block = self.mailbox(from);
        let len = (block.load_word() as usize).min(MAILBOX - 8);
        let mut framed = vec![0; len + 8];
        block.read(&mut framed);
        serde_json::from_slice(&framed[8..])
            .map_err(|e| Error::Peer { message: format!("unreadable letter: {e}"), hint: String::new() })
    }

    /// Stores `value` and wakes the process that sleeps on the word.
    pub(crate) fn announce(&self, word: &Word, value: u64) {
        word.store(value, Ordering::Release);
        futex::wake(word.low(), u32::MAX);
    }

    /// Waits until `word` holds `value`: spins a little if there is a core for it, then sleeps.
    pub(crate) fn wait_for(&self, word: &Word, value: u64, doing: &'static str) -> Result<()> {
        let patience = self.patience();
        let start = Instant::now();
        let spins = if self.one_core { 0 } else { 4000 };
        for _ in 0..spins {
            if word.load(Ordering::Acquire) == value {
                return Ok(());
            }
            spin_loop();
        }
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == value {
                return Ok(());
            }
            patience.check(doing)?;
            if start.elapsed() > PATIENCE {
                return Err(Error::Stalled { doing, seconds: PATIENCE.as_secs() });
            }
            futex::wait(word.low(), seen as u32, Some(Duration::from_millis(20)));
        }
    }

    fn mailbox(&self, which: Mailbox) -> &Block {
        match which {
            Mailbox::Orders => &self.orders,
            Mailbox::Answers => &self.answers,
        }
    }
}

/// Which way a letter goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mailbox {
    /// From the parent to the peer.
    Orders,
    /// Back.
    Answers,
}

/// Lets endless loops end: ask it how long to go on waiting.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    abort: Word,
    peer: Option<Watched>,
}

impl Patience {
    /// Spins with PAUSE until `ready`, or until a process is gone.
    #[inline(always)]
    pub(crate) fn spin_until(&self, doing: &'static str, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut turns = Turns::default();
        while !ready() {
            turns.pause(self, doing)?;
        }
        Ok(())
    }

    /// Sleeps on the word until it holds `value`, or until a process is gone.
    pub(crate) fn sleep_until(&self, doing: &'static str, word: &Word, value: u64) -> Result<()> {
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == value {
                return Ok(());
            }
            if futex::wait(word.low(), seen as u32, Some(Duration::from_millis(100)))
                == futex::WaitResult::TimedOut
            {
                self.check(doing)?;
            }
        }
    }

    /// Refuses to go on once a process is gone.
    #[cold]
    pub(crate) fn check(&self, doing: &'static str) -> Result<()> {
        if self.abort.load(Ordering::Relaxed) != 0
            || self.peer.as_ref().is_some_and(|peer| ends_within(peer, Duration::ZERO))
        {
            return Err(Error::PeerGone { doing });
        }
        Ok(())
    }
}

/// Looks that found nothing.
#[derive(Default)]
pub(crate) struct Turns(u32);

impl Turns {
    /// Counts one more, with PAUSE, and looks now and then whether a process is gone.
    #[inline(always)]
    pub(crate) fn pause(&mut self, patience: &Patience, doing: &'static str) -> Result<()> {
        spin_loop();
        self.count(patience, doing)
    }

    /// Counts one more, and looks now and then whether a process is gone.
    #[inline(always)]
    pub(crate) fn count(&mut self, patience: &Patience, doing: &'static str) -> Result<()> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(1 << 16) { patience.check(doing) } else { Ok(()) }
    }
}

/// What tells of the end of the other process, and how.
type Watched = (Rc<OwnedFd>, PollFlags);

fn ends_within((fd, sign): &Watched, time: Duration) -> bool {
    let limit = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    poll(&mut [PollFd::new(fd, *sign)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

fn not_ours() -> Error {
    Error::usage(
        "the descriptor is no benchmark segment",
        "`bench-peer` is started by `viaduct bench` itself",
    )
}
