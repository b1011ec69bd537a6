//! The upgraded connections of this process: a fixed number of slots, which never move.
//!
//! A slot outlives the descriptors that name it for a while: another thread may still be inside a call on a connection
//! that was just closed. The mappings of the last few closed ones are kept therefore.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use viaduct_os::bare::{Errno, calls};

use crate::layout::{Direction, End, Header};
use crate::raw::{Mapping, View};
use crate::{epoll, learn, table};

/// Connections that can be upgraded in one process at a time.
pub(crate) const MOST: usize = 1 << 14;
/// Closed ones that stay mapped.
const KEPT: usize = 32;

/// The other side was not seen to be ready yet.
pub(crate) const PENDING: u32 = 1;
/// A peer wrote what makes no sense.
pub(crate) const BROKEN: u32 = 2;
/// The reset was reported once, as sockets do.
pub(crate) const RESET_SAID: u32 = 4;
/// This process has shut down reading.
pub(crate) const SHUT_READ: u32 = 8;
/// The companion has said that the peer ended its stream or is gone: sends ask it first.
pub(crate) const SUSPECT: u32 = 32;
/// A handler of a signal has sent while the thread that it interrupted was sending.
pub(crate) const INTERRUPTED: u32 = 64;
/// A child that borrows this memory has changed the way of this connection: sets of epoll are to be renewed.
pub(crate) const STALE: u32 = 16;

/// One connection.
#[derive(Debug)]
pub(crate) struct Slot {
    taken: AtomicU32,
    mapping: Mapping,
    side: AtomicU32,
    refs: AtomicU32,
    bell: AtomicI32,
    peer_bell: AtomicI32,
    id: AtomicU64,
    /// The kernel's number of the companion.
    cookie: AtomicU64,
    flags: AtomicU32,
    /// When it was claimed, by the monotonic clock.
    pub(crate) since: AtomicU64,
    /// Calls that moved bytes while the connection was pending; later, writes into a ring that is not read.
    pub(crate) count: AtomicU32,
    /// How far the peer had read when a send last looked.
    pub(crate) read: AtomicU64,
    /// Up to where was sent when the companion last said that the peer is there; the lower half of that position.
    pub(crate) there: AtomicU32,
    /// When the kernel was last asked about a peer that does not read.
    pub(crate) asked: AtomicU64,
    /// Receives in a row that found little; a send ends the row.
    pub(crate) trickle: AtomicU32,
    /// The port under which its length is learned.
    pub(crate) port: AtomicU32,
    /// Threads that sleep for it.
    pub(crate) inside: AtomicU32,
    /// Where the stack of the thread stands that holds the sender's lock, and of the one that holds the receiver's; else 0.
    pub(crate) sends_at: AtomicUsize,
    pub(crate) receives_at: AtomicUsize,
    /// One more than the position up to which a send publishes, from when all bytes are in their place until it has.
    pub(crate) publishes: AtomicU64,
    /// Its first registration with epoll, plus one.
    pub(crate) registrations: AtomicU32,
    /// What its bell last reported in sets of epoll. It stays when the connection is gone.
    pub(crate) tag: AtomicU64,
}

#[expect(clippy::declare_interior_mutable_const, reason = "the first value of each place of the table")]
const FREE: Slot = Slot {
    taken: AtomicU32::new(0),
    mapping: Mapping::none(),
    side: AtomicU32::new(0),
    refs: AtomicU32::new(0),
    bell: AtomicI32::new(-1),
    peer_bell: AtomicI32::new(-1),
    id: AtomicU64::new(0),
    cookie: AtomicU64::new(0),
    flags: AtomicU32::new(0),
    since: AtomicU64::new(0),
    count: AtomicU32::new(0),
    read: AtomicU64::new(0),
    there: AtomicU32::new(0),
    asked: AtomicU64::new(0),
    trickle: AtomicU32::new(0),
    port: AtomicU32::new(0),
    inside: AtomicU32::new(0),
    sends_at: AtomicUsize::new(0),
    receives_at: AtomicUsize::new(0),
    publishes: AtomicU64::new(0),
    registrations: AtomicU32::new(0),
    tag: AtomicU64::new(0),
};

static SLOTS: [Slot; MOST] = [FREE; MOST];
/// Any other size takes more instructions, and registers that all calls then save, on plain descriptors, too.
const _: () = assert!(size_of::<Slot>() == 128);
static NEXT: AtomicU32 = AtomicU32::new(0);
static CLOSED: [AtomicU32; KEPT] = [const { AtomicU32::new(0) }; KEPT];
static CLOSINGS: AtomicU32 = AtomicU32::new(0);
static LIVE: AtomicU32 = AtomicU32::new(0);

/// What an agent handed out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) id: u64,
    pub(crate) cookie: u64,
    pub(crate) side: u32,
    pub(crate) segment: i32,
    pub(crate) bell: i32,
    pub(crate) peer_bell: i32,
}

/// The connection with this number, which must have come from here.
#[inline]
pub(crate) fn slot(index: u32) -> &'static Slot {
    &SLOTS[index as usize % MOST]
}

/// One end of the connection with this id, if this process has it. Both ends may be here, each with a slot of its own.
pub(crate) fn by_id(id: u64, side: usize) -> Option<u32> {
    (0..MOST as u32).find(|&index| {
        let slot = slot(index);
        slot.is_live() && slot.id() == id && slot.side() == side
    })
}

/// The connection whose companion has this number.
pub(crate) fn by_cookie(cookie: u64) -> Option<u32> {
    (0..MOST as u32)
        .find(|&index| slot(index).is_live() && slot(index).cookie.load(Ordering::Relaxed) == cookie)
}

/// Whether this process has an upgraded connection.
pub(crate) fn any() -> bool {
    live() > 0
}

/// How many this process has.
pub(crate) fn live() -> u32 {
    LIVE.load(Ordering::Acquire)
}

/// All that this process has.
pub(crate) fn all() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().filter(|slot| slot.is_live()).take(live() as usize)
}

/// Takes a free slot for a connection, with one reference. The descriptors stay the caller's if there is none.
pub(crate) fn open(grant: Grant) -> Result<u32, Errno> {
    for _ in 0..MOST {
        let index = NEXT.fetch_add(1, Ordering::Relaxed) % MOST as u32;
        let slot = slot(index);
        if slot.taken.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            if let Err(error) = slot.mapping.map(grant.segment) {
                slot.taken.store(0, Ordering::Release);
                return Err(error);
            }
            slot.side.store(grant.side & 1, Ordering::Relaxed);
            slot.bell.store(grant.bell, Ordering::Relaxed);
            slot.peer_bell.store(grant.peer_bell, Ordering::Relaxed);
            slot.flags.store(PENDING, Ordering::Relaxed);
            slot.since.store(calls::now(), Ordering::Relaxed);
            slot.count.store(0, Ordering::Relaxed);
            slot.read.store(0, Ordering::Relaxed);
            slot.there.store(0, Ordering::Relaxed);
            slot.trickle.store(0, Ordering::Relaxed);
            slot.inside.store(0, Ordering::Relaxed);
            slot.publishes.store(0, Ordering::Relaxed);
            slot.registrations.store(0, Ordering::Relaxed);
            slot.refs.store(1, Ordering::Relaxed);
            slot.cookie.store(grant.cookie, Ordering::Relaxed);
            LIVE.fetch_add(1, Ordering::AcqRel);
            slot.id.store(grant.id, Ordering::Release);
            return Ok(index);
        }
    }
    Err(Errno(libc::ENOMEM))
}

/// One more descriptor names it.
pub(crate) fn hold(index: u32) {
    slot(index).refs.fetch_add(1, Ordering::AcqRel);
}

/// One descriptor less names it.
pub(crate) fn release(index: u32) {
    let slot = slot(index);
    if slot.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    epoll::abandon(index);
    slot.learn();
    slot.id.store(0, Ordering::Release);
    LIVE.fetch_sub(1, Ordering::AcqRel);
    for bell in [&slot.bell, &slot.peer_bell] {
        let fd = bell.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            table::forget(fd);
            let _ = calls::close(fd);
        }
    }
    let place = CLOSINGS.fetch_add(1, Ordering::Relaxed) as usize % KEPT;
    let oldest = CLOSED[place].swap(index + 1, Ordering::AcqRel);
    if oldest != 0 {
        let old = self::slot(oldest - 1);
        // A slot in which a thread still sleeps is lost; that thread ends with an error and the process goes on.
        if old.inside.load(Ordering::Acquire) == 0 {
            old.mapping.unmap();
            old.taken.store(0, Ordering::Release);
        }
    }
}

/// Notes where this thread runs. The other end looks at the line, which is left alone where nothing changes.
#[inline]
pub(crate) fn note_cpu(word: &AtomicU32) {
    let cpu = calls::current_cpu();
    if word.load(Ordering::Relaxed) != cpu {
        word.store(cpu, Ordering::Relaxed);
    }
}

/// Forgets in a child what only threads of its parent were doing.
pub(crate) fn after_fork() {
    // Those that were never used are left alone: to write into them costs this child a page for each few.
    let used = (NEXT.load(Ordering::Relaxed) as usize).min(MOST);
    SLOTS[..used].iter().for_each(|slot| slot.inside.store(0, Ordering::Relaxed));
}

impl Slot {
    pub(crate) fn is_live(&self) -> bool {
        self.refs.load(Ordering::Acquire) > 0 && self.id() != 0
    }

    /// Whether one descriptor alone names it.
    pub(crate) fn is_alone(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 1
    }

    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn view(&self) -> Result<View, Errno> {
        self.mapping.view().ok_or(Errno(libc::EBADF))
    }

    #[inline]
    pub(crate) fn side(&self) -> usize {
        self.side.load(Ordering::Relaxed) as usize & 1
    }

    #[inline]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub(crate) fn raise(&self, flag: u32) {
        self.flags.fetch_or(flag, Ordering::AcqRel);
    }

    pub(crate) fn lower(&self, flag: u32) {
        self.flags.fetch_and(!flag, Ordering::AcqRel);
    }

    /// Learns from how long it lived and what it moved. One whose other side never came was not worth its claim either.
    fn learn(&self) {
        if self.has(PENDING) {
            learn::ended(self.port.load(Ordering::Relaxed) as u16, 0, 0);
        } else if let Ok(view) = self.view() {
            let moved = view.header().directions.iter();
            let bytes =
                moved.fold(0u64, |sum, way| sum.saturating_add(way.producer.head.load(Ordering::Relaxed)));
            let age = calls::now().saturating_sub(self.since.load(Ordering::Relaxed));
            learn::ended(self.port.load(Ordering::Relaxed) as u16, bytes, age);
        }
    }

    /// This end's bell and the other's.
    pub(crate) fn bells(&self) -> [i32; 2] {
        [&self.bell, &self.peer_bell].map(|bell| bell.load(Ordering::Acquire))
    }

    pub(crate) fn bell(&self) -> i32 {
        self.bell.load(Ordering::Acquire)
    }

    /// The direction in which this end sends.
    #[inline]
    pub(crate) fn outgoing<'h>(&self, header: &'h Header) -> &'h Direction {
        &header.directions[self.side()]
    }

    /// The direction from which this end receives.
    #[inline]
    pub(crate) fn incoming<'h>(&self, header: &'h Header) -> &'h Direction {
        &header.directions[1 - self.side()]
    }

    #[inline]
    pub(crate) fn own_end<'h>(&self, header: &'h Header) -> &'h End {
        &header.ends[self.side()]
    }

    /// Wakes the threads that sleep at the other end.
    pub(crate) fn ring_peer(&self, header: &Header) {
        if header.ends[1 - self.side()].rung.swap(1, Ordering::SeqCst) == 0 {
            let _ = calls::ring(self.peer_bell.load(Ordering::Acquire));
        }
    }

    /// Wakes the threads that sleep at this end, in this process or another.
    pub(crate) fn ring_own(&self, header: &Header) {
        if self.own_end(header).rung.swap(1, Ordering::SeqCst) == 0 {
            let _ = calls::ring(self.bell());
        }
    }

    /// Rings again what is noted as rung: a thread that was made to leave between the note and the bell, or between the bell and
    /// the note when it emptied it, would have silenced it for good. One ring too many wakes a sleeper that looks and sleeps on.
    pub(crate) fn ring_again(&self, header: &Header) {
        for (side, bell) in [(self.side(), &self.bell), (1 - self.side(), &self.peer_bell)] {
            if header.ends[side].rung.load(Ordering::SeqCst) != 0 {
                let _ = calls::ring(bell.load(Ordering::Acquire));
            }
        }
    }

    /// Empties this end's bell. What it was rung for is looked for afterwards.
    pub(crate) fn empty_bell(&self, header: &Header) {
        let _ = calls::drain(self.bell());
        self.own_end(header).rung.store(0, Ordering::SeqCst);
    }
}

/// Moves a bell to another number. Whether `fd` was one.
pub(crate) fn move_bell(fd: i32) -> bool {
    let mut bells = SLOTS.iter().filter(|slot| slot.is_live()).flat_map(|slot| [&slot.bell, &slot.peer_bell]);
    let Some(bell) = bells.find(|bell| bell.load(Ordering::Acquire) == fd) else { return false };
    let Ok(copy) = calls::duplicate_from(fd, fd) else { return false };
    table::set(copy, table::Kind::Internal);
    bell.store(copy, Ordering::Release);
    table::forget(fd);
    true
}
