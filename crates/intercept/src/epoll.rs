//! epoll: the application's set stays the kernel's. Beside it we note what was registered for sockets that have, or may
//! get, an endpoint.
//!
//! For such a socket the set holds the companion (for the rest of the bytes by TCP, the end and errors; not for room,
//! of which a companion always has some) and the endpoint's bell. A registration is *armed* while it counts as a sleeper
//! of its end, so that the peer rings; it is *hot* while calls of epoll_wait look at its ring themselves. At most
//! `HOT` are. Going to sleep arms those that are hot; a bell makes its registration hot again. Because the bell is in
//! the kernel's set, nested sets, sets shared with children and several waiting threads keep the kernel's rules.
//! Changes of what is registered reach the kernel when it is next asked (`late`).

mod asked;
mod ends;
mod late;
mod node;
mod passed;
mod unwatched;
mod watch;

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use viaduct_os::bare::local::LocalLock;
use viaduct_os::bare::{Errno, calls};

use crate::endpoint::{Slot, slot};
use crate::table::{self, Kind};
use crate::{claim, descriptors, settings};
use asked::{EXCLUSIVE, kernel_mask, renew, replace};
pub use late::settle_all;
use node::{ARMED_BYTES, ARMED_ROOM, EDGE, FIRED, GONE, IS_HOT, LISTED, NONE, Node, node};
pub use passed::{part_with, part_with_kept};
pub use watch::{changed, enter, leave, wait};

/// Registrations that a call of epoll_wait looks at in memory.
const HOT: usize = 64;
/// Registrations of a set of which the kernel may have to hear yet.
const LATE: usize = 128;
/// Sets of one process that are looked after.
const MOST_SETS: usize = 1024;

/// A set of the application.
#[derive(Debug)]
struct Set {
    refs: AtomicU32,
    fd: AtomicI32,
    /// Registrations with an endpoint.
    rings: AtomicU32,
    /// Threads of this process that sleep in it.
    sleepers: AtomicU32,
    turns: AtomicU32,
    /// 1 if another set or a poll may wait for this one: then everything stays armed.
    nested: AtomicU32,
    /// 1 in a child that has not armed its own registrations yet.
    stale: AtomicU32,
    /// 1 in a child: its parent may use it, too.
    inherited: AtomicU32,
    /// 1 once another process got it.
    passed: AtomicU32,
    /// 1 if another process may have put bells of its own into it.
    foreign: AtomicU32,
    /// 1 while the kernel may report something of ours in it.
    touched: AtomicU32,
    hot_len: AtomicU32,
    hot: [AtomicU32; HOT],
    late_len: AtomicU32,
    late: [AtomicU32; LATE],
}

#[expect(clippy::declare_interior_mutable_const, reason = "the first value of each place of the table")]
const FREE: Set = Set {
    refs: AtomicU32::new(0),
    fd: AtomicI32::new(-1),
    rings: AtomicU32::new(0),
    sleepers: AtomicU32::new(0),
    turns: AtomicU32::new(0),
    nested: AtomicU32::new(0),
    stale: AtomicU32::new(0),
    inherited: AtomicU32::new(0),
    passed: AtomicU32::new(0),
    foreign: AtomicU32::new(0),
    touched: AtomicU32::new(0),
    hot_len: AtomicU32::new(0),
    hot: [const { AtomicU32::new(0) }; HOT],
    late_len: AtomicU32::new(0),
    late: [const { AtomicU32::new(0) }; LATE],
};

static SETS: [Set; MOST_SETS] = [FREE; MOST_SETS];
/// Sets that were ever used: those beyond need not be looked at.
static USED: AtomicU32 = AtomicU32::new(0);
/// Guards sets and registrations. Held for memory accesses and calls that do not block, never while sleeping.
static LOCK: LocalLock = LocalLock::new();

/// This thread goes on with its stack at `target`, and may hold the lock in a frame that it leaves.
pub(crate) fn leave_for(target: usize) {
    LOCK.leave(target);
}

fn set(index: u32) -> &'static Set {
    &SETS[index as usize % MOST_SETS]
}

fn used_sets() -> impl Iterator<Item = &'static Set> {
    SETS.iter().take(USED.load(Ordering::Acquire) as usize)
}

/// A child begins: what it waits for in a set of its parent's may come by a bell that it does not know.
pub fn begin() {
    if USED.load(Ordering::Relaxed) != 0 {
        descriptors::begin();
    }
}

/// A new set of the application.
pub fn note_set(fd: i32) {
    descriptors::begin(); // a set that a child makes is its own, not one that it inherited
    let free = |set: &Set| set.refs.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let kind = match SETS.iter().position(free) {
        Some(index) => {
            USED.fetch_max(index as u32 + 1, Ordering::AcqRel);
            let set = &SETS[index];
            set.fd.store(fd, Ordering::Relaxed);
            let flags = [&set.nested, &set.stale, &set.inherited, &set.passed, &set.foreign, &set.touched];
            let counts = [&set.rings, &set.sleepers, &set.hot_len, &set.late_len];
            flags.iter().chain(&counts).for_each(|word| word.store(0, Ordering::Relaxed));
            // Where waiting for TCP spins, the kernel is not asked at once.
            set.touched.store(u32::from(settings::spins_on_tcp()), Ordering::Relaxed);
            Kind::Epoll(index as u32)
        }
        None => Kind::Plain,
    };
    table::set(fd, kind);
}

pub(crate) fn hold_set(index: u32) {
    set(index).refs.fetch_add(1, Ordering::AcqRel);
}

pub(crate) fn release_set(index: u32) {
    let Some(_held) = LOCK.lock() else { return };
    if set(index).refs.load(Ordering::Acquire) == 1 {
        late::settle(index);
        node::all()
            .filter(|(_, node)| node.set() == index)
            .for_each(|(number, node)| drop_node(number, node));
    }
    set(index).refs.fetch_sub(1, Ordering::AcqRel);
}

/// As `epoll_ctl`.
///
/// # Errors
/// As `epoll_ctl`.
pub fn control(epoll: i32, operation: i32, fd: i32, event: Option<libc::epoll_event>) -> Result<(), Errno> {
    let known = match table::kind(fd) {
        Kind::Unknown if settings::claims() => claim::classify(fd),
        kind => kind,
    };
    if known == Kind::Plain {
        return calls::epoll_ctl(epoll, operation, fd, event);
    }
    control_slowly(epoll, operation, fd, event, known)
}

#[inline(never)]
fn control_slowly(
    epoll: i32,
    operation: i32,
    fd: i32,
    event: Option<libc::epoll_event>,
    known: Kind,
) -> Result<(), Errno> {
    let known = match known {
        // Once another process claims it, only what is claimed here, too, is reported.
        Kind::Tcp if operation != libc::EPOLL_CTL_DEL && table::has(fd, table::ELSEWHERE) => {
            let _ = descriptors::route(fd);
            table::kind(fd)
        }
        known => known,
    };
    match (table::kind(epoll), known) {
        (_, Kind::Epoll(member)) => {
            let done = calls::epoll_ctl(epoll, operation, fd, event);
            if done.is_ok() {
                nest(member);
            }
            done
        }
        (_, Kind::Internal) => Err(Errno(libc::EBADF)),
        (Kind::Epoll(index), _)
            if operation == libc::EPOLL_CTL_ADD
                && is_shared(index)
                && descriptors::keep_plain(fd, "added to a set of epoll that others have") =>
        {
            calls::epoll_ctl(epoll, operation, fd, event)
        }
        (Kind::Epoll(index), Kind::Tcp | Kind::Ring(_)) => register(index, epoll, operation, fd, event),
        (Kind::Unknown, Kind::Tcp | Kind::Ring(_)) => {
            note_set(epoll);
            match table::kind(epoll) {
                Kind::Epoll(index) => {
                    // It came by a message or over exec.
                    set(index).foreign.store(1, Ordering::Relaxed);
                    set(index).touched.store(1, Ordering::SeqCst);
                    let done = register(index, epoll, operation, fd, event);
                    if done.is_err() {
                        release_set(index);
                        table::forget(epoll);
                    }
                    done
                }
                _ => unwatched::control(epoll, operation, fd, event),
            }
        }
        (_, Kind::Tcp | Kind::Ring(_)) => unwatched::control(epoll, operation, fd, event),
        _ => calls::epoll_ctl(epoll, operation, fd, event),
    }
}

fn register(
    index: u32,
    epoll: i32,
    operation: i32,
    fd: i32,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let Some(_held) = LOCK.lock() else { return calls::epoll_ctl(epoll, operation, fd, event) };
    let mut found = node::of_fd(fd).find(|(_, node)| node.set() == index);
    let endpoint = match table::kind(fd) {
        Kind::Ring(endpoint) => Some(endpoint),
        _ => None,
    };
    if let Some((number, node)) = found {
        if let Some(done) = late::control(index, number, node, operation, event) {
            return done;
        }
        if node.has(GONE) {
            late::part(number, node);
            found = None;
        }
    }
    if operation == libc::EPOLL_CTL_MOD && found.is_some_and(|(_, node)| node.events() & EXCLUSIVE != 0) {
        return Err(Errno(libc::EINVAL)); // the kernel's part may be without it
    }
    let masked = event.map(|event| match endpoint {
        Some(endpoint) => libc::epoll_event { events: kernel_mask(endpoint, event.events), ..event },
        None => event,
    });
    calls::epoll_ctl(epoll, operation, fd, masked)?;
    let Some(event) = event else {
        if let Some((number, node)) = found {
            drop_node(number, node);
        }
        return Ok(());
    };
    if operation == libc::EPOLL_CTL_DEL {
        if let Some((number, node)) = found {
            drop_node(number, node);
        }
        return Ok(());
    }
    let number = match found {
        Some((number, _)) => number,
        None => match node::take(index, fd) {
            Some(number) => number,
            // No room to note it: a socket that is not upgraded stays so.
            None if endpoint.is_none() => {
                claim::note_left(fd);
                return Ok(());
            }
            None => return Err(Errno(libc::ENOMEM)),
        },
    };
    let node = node(number);
    node.note(event, masked.map_or(event.events, |event| event.events));
    if let Some(endpoint) = endpoint {
        if node.endpoint().is_none() {
            tie(number, node, endpoint);
        }
        warm(number, node);
    }
    Ok(())
}

/// The upper half of what our bells report: neither an address nor a small number.
const OURS: u64 = 0xf1a9_c53e;

/// What a bell reports in the sets that it is in: the number of its connection and its end there, and the place in the
/// process that registered it.
fn tag(endpoint: u32) -> u64 {
    OURS << 32 | named(slot(endpoint)) << 12 | u64::from(endpoint & 0xfff)
}

fn named(slot: &Slot) -> u64 {
    (slot.id() << 1 | slot.side() as u64) & 0xf_ffff
}

/// What a set reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// Something of the application's.
    Theirs,
    /// The bell of an endpoint; of none if that is gone.
    Bell(Option<u32>),
}

/// Whether a set may report something of ours.
#[inline]
fn may_be_ours(data: u64) -> bool {
    data >> 32 == OURS
}

/// What a set's data stand for. A bell of this process is known by all of its tag, also for long after it is gone; any other value
/// is the application's, unless other processes may have put bells of theirs into this set.
fn tagged(set: &Set, data: u64) -> Report {
    if !may_be_ours(data) {
        return Report::Theirs;
    }
    let places = || (data as u32 & 0xfff..crate::endpoint::MOST as u32).step_by(0x1000);
    if let Some(index) = places().find(|&index| slot(index).tag.load(Ordering::Acquire) == data) {
        return Report::Bell(Some(index).filter(|&index| slot(index).is_live()));
    }
    if set.foreign.load(Ordering::Relaxed) == 0 {
        return Report::Theirs;
    }
    let fits = |index: u32| slot(index).is_live() && named(slot(index)) == data >> 12 & 0xf_ffff;
    Report::Bell((0..crate::endpoint::MOST as u32).find(|&index| fits(index)))
}

/// Changes what the kernel watches, unless the set is one that a parent made: that one is the parent's, too.
fn change(set: &Set, operation: i32, fd: i32, event: Option<libc::epoll_event>) {
    if set.inherited.load(Ordering::Relaxed) == 0 {
        let _ = calls::epoll_ctl(set.fd.load(Ordering::Relaxed), operation, fd, event);
    }
}

/// Whether a descriptor is registered with a set that a parent made.
pub(crate) fn is_in_inherited_set(fd: i32) -> bool {
    let Some(_held) = LOCK.lock() else { return true };
    node::of_fd(fd).any(|(_, node)| set(node.set()).inherited.load(Ordering::Relaxed) != 0)
}

/// Whether a descriptor's registrations can be the kernel's alone again: not in a set that a parent made, and not where the
/// kernel changes nothing any more.
pub(crate) fn may_leave(fd: i32) -> bool {
    LOCK.lock().is_some_and(|_held| {
        let mut nodes = node::of_fd(fd);
        nodes.all(|(_, node)| {
            node.events() & EXCLUSIVE == 0 && set(node.set()).inherited.load(Ordering::Relaxed) == 0
        })
    })
}

/// Ties a registration to an endpoint: the bell goes into the set, and the peer rings it.
fn tie(number: u32, node: &Node, endpoint: u32) {
    node.tie(number, endpoint);
    let set = set(node.set());
    set.touched.store(1, Ordering::SeqCst);
    set.rings.fetch_add(1, Ordering::SeqCst);
    let tag = tag(endpoint);
    slot(endpoint).tag.store(tag, Ordering::Release);
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: tag };
    let bell = slot(endpoint).bell();
    // Another descriptor of this connection may have put it there.
    change(set, libc::EPOLL_CTL_ADD, bell, Some(event));
    node.arm();
    renew(node, endpoint);
}

/// Makes a registration one that calls look at by themselves.
fn warm(number: u32, node: &Node) {
    let set = set(node.set());
    if !node.has(IS_HOT) {
        if set.hot_len.load(Ordering::Relaxed) as usize == HOT {
            // One of the others makes way; if it has something to report, its bell says so.
            let place = set.turns.fetch_add(1, Ordering::Relaxed) as usize % HOT;
            let former = set.hot[place].load(Ordering::Relaxed);
            let other = self::node(former);
            cool(former, other);
            other.arm();
            nudge(other);
        }
        let len = set.hot_len.load(Ordering::Relaxed) as usize;
        set.hot[len].store(number, Ordering::Relaxed);
        set.hot_len.store(len as u32 + 1, Ordering::Relaxed);
        node.raise(IS_HOT);
    }
    if set.sleepers.load(Ordering::SeqCst) == 0 && set.nested.load(Ordering::Relaxed) == 0 {
        node.disarm();
    } else {
        node.arm();
        nudge(node);
    }
}

/// Rings this end's own bell if there is something to report and others sleep for it.
fn nudge(node: &Node) {
    if let Some(endpoint) = node.endpoint() {
        let slot = slot(endpoint);
        if let (true, Ok(view)) = (watch::peek(node, endpoint) != 0, slot.view()) {
            slot.ring_own(view.header());
        }
    }
}

fn cool(number: u32, node: &Node) {
    if !node.has(IS_HOT) {
        return;
    }
    node.lower(IS_HOT);
    let set = set(node.set());
    let len = set.hot_len.load(Ordering::Relaxed) as usize;
    if let Some(at) = set.hot[..len].iter().position(|hot| hot.load(Ordering::Relaxed) == number) {
        let last = set.hot[len - 1].load(Ordering::Relaxed);
        set.hot[at].store(last, Ordering::Relaxed);
        set.hot_len.store(len as u32 - 1, Ordering::Relaxed);
    }
}

fn drop_node(number: u32, node: &Node) {
    untie(number, node);
    node::give_back(number);
}

fn untie(number: u32, node: &Node) {
    let Some(endpoint) = node.endpoint() else { return };
    cool(number, node);
    node.disarm();
    node.untie(number, endpoint);
    let (index, set) = (node.set(), set(node.set()));
    set.rings.fetch_sub(1, Ordering::AcqRel);
    if !node::of_endpoint(endpoint).any(|(_, other)| other.set() == index) {
        let bell = slot(endpoint).bell();
        change(set, libc::EPOLL_CTL_DEL, bell, None);
    }
    // A thread that may have taken a bell's event out of the kernel still counts as a sleeper.
    let counts = [&set.rings, &set.sleepers, &set.foreign];
    if counts.iter().all(|count| count.load(Ordering::SeqCst) == 0) {
        set.touched.store(0, Ordering::SeqCst);
    }
}

/// Whether a set has this descriptor, as far as was noted.
pub(crate) fn is_registered(fd: i32) -> bool {
    table::registrations(fd).is_some_and(|first| first.load(Ordering::Acquire) != 0)
}

/// A descriptor is closed: its registrations are gone.
pub(crate) fn forget(fd: i32) {
    // Most descriptors that are closed are in no set.
    if !is_registered(fd) {
        return;
    }
    let Some(_held) = LOCK.lock() else { return };
    while let Some((number, node)) = node::of_fd(fd).next() {
        late::part(number, node);
    }
}

/// An endpoint is closed, though descriptors that were registered may have been closed unseen.
pub(crate) fn abandon(endpoint: u32) {
    let Some(_held) = LOCK.lock() else { return };
    while let Some((number, node)) = node::of_endpoint(endpoint).next() {
        drop_node(number, node);
    }
}

/// A descriptor has an endpoint now, whose ring may be used: what was registered before is tied to it.
pub(crate) fn adopt(fd: i32, endpoint: u32) {
    let Some(_held) = LOCK.lock() else { return };
    for (number, node) in node::of_fd(fd).filter(|(_, node)| node.endpoint().is_none()) {
        tie(number, node, endpoint);
        warm(number, node);
    }
}

/// A descriptor is plain again: the kernel watches it as the application asked for.
pub(crate) fn restore(fd: i32) {
    let Some(_held) = LOCK.lock() else { return };
    while let Some((number, node)) = node::of_fd(fd).next() {
        let known = (node.kernel_mask(), node.kernel_data());
        if (node.events(), node.data()) != known && !node.has(FIRED | GONE) {
            replace(node, node.events());
        }
        late::part(number, node);
    }
}

/// The way in which an endpoint sends has changed.
pub(crate) fn refresh(endpoint: u32) {
    let Some(_held) = LOCK.lock() else { return };
    for (number, node) in node::of_endpoint(endpoint).filter(|(_, node)| !node.has(GONE)) {
        renew(node, endpoint);
        node.raise(EDGE);
        warm(number, node);
    }
}

/// A send found no room: a waiter for edges gets an event when there is some.
pub(crate) fn wants_room(endpoint: u32) {
    let Some(_held) = LOCK.lock() else { return };
    for (number, node) in node::of_endpoint(endpoint).filter(|(_, node)| !node.has(GONE)) {
        node.raise(EDGE);
        warm(number, node);
    }
}

fn nest(index: u32) {
    let Some(_held) = LOCK.lock() else { return };
    set(index).nested.store(1, Ordering::Relaxed);
    late::settle(index);
    arm_hot(index);
}

/// The application is about to wait for a set as for any other descriptor: everything in it has to ring.
pub fn polled(fd: i32) {
    if let Kind::Epoll(index) = table::kind(fd) {
        nest(index);
    }
}

/// Whether what is added to a set has to be the kernel's alone, since other processes wait for it, too.
fn is_shared(index: u32) -> bool {
    let set = set(index);
    set.passed.load(Ordering::Relaxed) != 0 || set.inherited.load(Ordering::Relaxed) != 0
}

/// Arms what is hot. Whether something is there to report already.
fn arm_hot(index: u32) -> bool {
    let set = set(index);
    let mut ready = false;
    for place in 0..set.hot_len.load(Ordering::Relaxed) as usize {
        let node = node(set.hot[place].load(Ordering::Relaxed));
        node.arm();
        ready |= node.endpoint().is_some_and(|endpoint| watch::peek(node, endpoint) != 0);
    }
    ready
}

/// No thread sleeps any more: peers need not ring for what the next calls look at by themselves. What came before is found by
/// the look that follows.
fn disarm_hot(index: u32) {
    let set = set(index);
    if set.sleepers.load(Ordering::Acquire) == 0 && set.nested.load(Ordering::Relaxed) == 0 {
        for place in 0..set.hot_len.load(Ordering::Relaxed) as usize {
            node(set.hot[place].load(Ordering::Relaxed)).disarm();
        }
    }
}

/// In a child nothing is armed: what is noted was armed by its parent, and counts for that.
pub(crate) fn after_fork() {
    LOCK.reset();
    for (_, node) in node::all() {
        node.lower(ARMED_BYTES | ARMED_ROOM | LISTED);
    }
    for set in used_sets().filter(|set| set.refs.load(Ordering::Relaxed) > 0) {
        set.sleepers.store(0, Ordering::Relaxed);
        set.late_len.store(0, Ordering::Relaxed); // what was put off is its parent's to do
        set.stale.store(1, Ordering::Relaxed);
        set.inherited.store(1, Ordering::Relaxed);
        set.foreign.store(1, Ordering::Relaxed);
        set.touched.store(1, Ordering::SeqCst);
    }
}

fn arm_everything(index: u32) {
    let there = |node: &Node| node.set() == index && node.endpoint().is_some() && !node.has(GONE);
    node::all().filter(|(_, node)| there(node)).for_each(|(_, node)| node.arm());
    set(index).stale.store(0, Ordering::Relaxed);
}

const _: () = assert!(NONE == u32::MAX);
