//! `epoll_wait` over a set that may have rings in it.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{Errno, calls, cancel};

use super::node::{ARMED_BYTES, ARMED_ROOM, EDGE, FIRED, FRESH, GONE, Node, node};
use super::{
    LOCK, Report, Set, arm_everything, arm_hot, cool, disarm_hot, ends, late, may_be_ours, set, tagged, warm,
};
use crate::endpoint::slot;
use crate::wait::{self, Deadline};
use crate::{back, descriptors, receive, send};

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const EDGES: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// One of so many calls that found something in memory asks the kernel, too.
const ASK_EVERY: u32 = 32;
/// One of so many looks while spinning asks the kernel, too.
const LOOKS: u32 = 512;

/// Counts the caller as a sleeper of a set in which nothing of ours is: it may ask the kernel by itself. A
/// connection that is upgraded meanwhile rings for it.
#[inline(always)]
pub fn enter(index: u32) -> bool {
    let set = set(index);
    if set.touched.load(Ordering::Relaxed) != 0 {
        return false;
    }
    set.sleepers.fetch_add(1, Ordering::SeqCst);
    if set.touched.load(Ordering::SeqCst) == 0 {
        return true;
    }
    set.sleepers.fetch_sub(1, Ordering::SeqCst);
    false
}

/// Ends what [`enter`] began. If something of ours is in the set by now: how many others sleep, for [`changed`].
#[inline(always)]
pub fn leave(index: u32) -> Option<u32> {
    let set = set(index);
    // Looked at while the caller counts: nothing that it took out of the kernel is forgotten before.
    let touched = set.touched.load(Ordering::SeqCst) != 0;
    let before = set.sleepers.fetch_sub(1, Ordering::SeqCst);
    touched.then(|| before - 1)
}

/// Waits as `epoll_pwait` does.
///
/// # Errors
/// As `epoll_pwait`.
pub fn wait(
    index: u32,
    epoll: i32,
    events: &mut [libc::epoll_event],
    limit_ns: Option<u64>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    // A child would take the set for its own, and a lock that a thread of its parent held for held.
    descriptors::begin();
    let set = set(index);
    if set.rings.load(Ordering::Relaxed) == 0
        && set.stale.load(Ordering::Relaxed) == 0
        && let Some(done) = by_kernel(index, epoll, events, limit_ns, mask)
    {
        return done;
    }
    with_rings(index, epoll, events, limit_ns, mask)
}

#[inline(never)]
fn with_rings(
    index: u32,
    epoll: i32,
    events: &mut [libc::epoll_event],
    limit_ns: Option<u64>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    let set = set(index);
    if set.stale.load(Ordering::Relaxed) != 0
        && let Some(_held) = LOCK.lock()
    {
        arm_everything(index);
    }
    let deadline = Deadline::after(limit_ns);
    let mut spun = false;
    loop {
        let hot = set.hot_len.load(Ordering::Relaxed) > 0;
        // Now and then the kernel is asked first, so that a busy ring never keeps other descriptors out.
        let found = if hot && set.turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(ASK_EVERY) {
            ask(index, epoll, events, mask)?
        } else {
            scan(index, events, 0)
        };
        if found > 0 {
            return Ok(found);
        }
        if limit_ns == Some(0) {
            return ask(index, epoll, events, mask);
        }
        if !spun && hot {
            spun = true;
            let mut looks = 0u32;
            let mut from_kernel = 0;
            let ready = wait::spin(peer_cpu(index), || {
                looks += 1;
                if looks.is_multiple_of(LOOKS) {
                    from_kernel = ask(index, epoll, events, mask).unwrap_or(0);
                }
                from_kernel > 0 || peek_hot(index)
            });
            if from_kernel > 0 {
                return Ok(from_kernel);
            }
            if ready {
                continue;
            }
        }
        set.sleepers.fetch_add(1, Ordering::AcqRel);
        let ready = LOCK.lock().is_some_and(|_held| {
            late::settle(index);
            arm_hot(index)
        });
        let limit = if ready { Some(0) } else { deadline.left() };
        let slept = cancel::point(|| calls::epoll_wait(epoll, events, limit, mask));
        if set.sleepers.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(_held) = LOCK.lock()
        {
            disarm_hot(index);
        }
        let count = fold(index, events, slept?);
        if count > 0 || (!ready && deadline.left() == Some(0)) {
            return Ok(count);
        }
    }
}

/// Nothing in the set has a ring: the kernel alone waits. `None` if that has changed meanwhile, and nothing is to be reported yet.
#[inline]
fn by_kernel(
    index: u32,
    epoll: i32,
    events: &mut [libc::epoll_event],
    limit_ns: Option<u64>,
    mask: Option<u64>,
) -> Option<Result<usize, Errno>> {
    let set = set(index);
    // A connection that is upgraded from here on rings for this thread, or is seen here.
    set.sleepers.fetch_add(1, Ordering::SeqCst);
    let slept = (set.rings.load(Ordering::SeqCst) == 0)
        .then(|| cancel::point(|| calls::epoll_wait(epoll, events, limit_ns, mask)));
    let others = set.sleepers.fetch_sub(1, Ordering::SeqCst) - 1;
    let count = match slept? {
        Ok(count @ 1..) => count,
        done => return Some(done),
    };
    if set.rings.load(Ordering::SeqCst) == 0 && !events[..count].iter().any(|event| may_be_ours(event.u64)) {
        return Some(Ok(count));
    }
    changed(index, events, count, others)
}

/// A connection of the set was upgraded while the kernel waited. What is to be reported, if there is something.
#[cold]
pub fn changed(
    index: u32,
    events: &mut [libc::epoll_event],
    count: usize,
    others: u32,
) -> Option<Result<usize, Errno>> {
    if others == 0
        && let Some(_held) = LOCK.lock()
    {
        disarm_hot(index);
    }
    let count = fold(index, events, count);
    (count > 0).then_some(Ok(count))
}

/// Asks the kernel and the rings, without waiting.
fn ask(index: u32, epoll: i32, events: &mut [libc::epoll_event], mask: Option<u64>) -> Result<usize, Errno> {
    if set(index).late_len.load(Ordering::Acquire) != 0
        && let Some(_held) = LOCK.lock()
    {
        late::settle(index);
    }
    let count = calls::epoll_wait(epoll, events, Some(0), mask)?;
    Ok(fold(index, events, count))
}

/// What a registration would report, without reporting it.
pub(super) fn peek(node: &Node, endpoint: u32) -> u32 {
    let slot = slot(endpoint);
    let asked = node.events();
    if node.has(FIRED) {
        return 0;
    }
    let edges = asked & EDGES != 0;
    let mut ready = 0;
    let bytes = asked & IN != 0 && receive::ring_is_readable(slot, node.fd()) == Some(true);
    if bytes && (!edges || node.has(FRESH) || head(endpoint) != node.seen()) {
        ready |= asked & IN;
    }
    let room = asked & OUT != 0 && send::ring_is_writable(slot) == Some(true);
    if room && (!edges || node.has(EDGE) || ready != 0) {
        ready |= asked & OUT;
    }
    ready
}

fn head(endpoint: u32) -> u64 {
    let slot = slot(endpoint);
    slot.view().map_or(0, |view| slot.incoming(view.header()).producer.head.load(Ordering::SeqCst))
}

/// Reports: what comes once does not come again.
fn take(number: u32, node: &Node, endpoint: u32) -> u32 {
    let head = head(endpoint);
    let ready = peek(node, endpoint);
    if ready & IN != 0 {
        node.see(head);
        node.lower(FRESH);
    }
    if ready & OUT != 0 {
        node.lower(EDGE);
    }
    if ready != 0 && node.events() & ONCE != 0 {
        node.raise(FIRED);
        node.set_kernel_mask(0);
        cool(number, node);
        node.disarm();
        let event = libc::epoll_event { events: 0, u64: node.data() };
        let epoll = set(node.set()).fd.load(Ordering::Relaxed);
        let _ = calls::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, node.fd(), Some(event));
    }
    ready
}

/// Adds what hot registrations report behind the first `count` events, or to those of them that the kernel reported for the
/// same registration.
fn scan(index: u32, events: &mut [libc::epoll_event], mut count: usize) -> usize {
    let set = set(index);
    let len = set.hot_len.load(Ordering::Relaxed) as usize;
    if len == 0 {
        return count;
    }
    let Some(_held) = LOCK.lock() else { return count };
    let len = set.hot_len.load(Ordering::Relaxed) as usize;
    let first = set.turns.load(Ordering::Relaxed) as usize;
    // Registrations for one event leave the list while it is walked: the numbers are taken down first.
    let mut numbers = [0; super::HOT];
    for (place, number) in numbers[..len].iter_mut().enumerate() {
        *number = set.hot[(first + place) % len].load(Ordering::Relaxed);
    }
    let from_kernel = count;
    // Events that have been added to: other registrations may have the same data.
    let mut used = [usize::MAX; super::HOT];
    for (turn, number) in numbers.into_iter().take(len).enumerate() {
        let node = node(number);
        let Some(endpoint) = node.endpoint() else { continue };
        let data = node.data();
        let same = reported(node, &events[..from_kernel], &used[..turn]);
        if same.is_none() && count == events.len() {
            continue;
        }
        let ready = take(number, node, endpoint);
        if ready == 0 {
            continue;
        }
        match same {
            Some(at) => {
                events[at].events |= ready;
                used[turn] = at;
            }
            None => {
                events[count] = libc::epoll_event { events: ready, u64: data };
                count += 1;
            }
        }
    }
    count
}

/// Which of the kernel's events is for this registration. Others may have the same data: the companion says which it is.
fn reported(node: &Node, events: &[libc::epoll_event], used: &[usize]) -> Option<usize> {
    let data = node.data();
    let mut same = (0..events.len()).filter(|at| events[*at].u64 == data && !used.contains(at)).peekable();
    same.peek()?;
    let state = of_companion(node);
    let mut partly = None;
    for at in same {
        let events = events[at].events;
        if events == state {
            return Some(at);
        }
        if events & !state == 0 {
            partly = partly.or(Some(at));
        }
    }
    partly
}

/// What the kernel could report of a registration's companion now.
fn of_companion(node: &Node) -> u32 {
    let asked = node.kernel_mask() & 0xffff | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
    let mut fds = [libc::pollfd { fd: node.fd(), events: asked as i16, revents: 0 }];
    let _ = calls::poll(&mut fds, Some(0), None);
    u32::from(fds[0].revents as u16) & asked
}

fn peek_hot(index: u32) -> bool {
    let set = set(index);
    let Some(_held) = LOCK.lock() else { return false };
    (0..set.hot_len.load(Ordering::Relaxed) as usize).any(|place| {
        let node = node(set.hot[place].load(Ordering::Relaxed));
        node.endpoint().is_some_and(|endpoint| peek(node, endpoint) != 0)
    })
}

fn peer_cpu(index: u32) -> u32 {
    let set = set(index);
    let Some(_held) = LOCK.lock() else { return u32::MAX };
    if set.hot_len.load(Ordering::Relaxed) == 0 {
        return u32::MAX;
    }
    let node = node(set.hot[0].load(Ordering::Relaxed));
    let Some(slot) = node.endpoint().map(slot) else { return u32::MAX };
    slot.view().map_or(u32::MAX, |view| slot.incoming(view.header()).producer.cpu.load(Ordering::Relaxed))
}

/// Takes bells out of what the kernel reported, and adds what their rings have.
fn fold(index: u32, events: &mut [libc::epoll_event], count: usize) -> usize {
    let count = ends::hear(index, events, count);
    let count = translate(index, events, count);
    scan(index, events, count)
}

fn translate(index: u32, events: &mut [libc::epoll_event], count: usize) -> usize {
    let set = set(index);
    serve_bells(set, events, count);
    if set.rings.load(Ordering::Acquire) == 0
        && events[..count].iter().all(|event| tagged(set, event.u64) == Report::Theirs)
    {
        return count;
    }
    let Some(_held) = LOCK.lock() else { return count };
    let mut kept = 0;
    for at in 0..count {
        let event = events[at];
        let data = event.u64;
        let endpoint = match tagged(set, data) {
            Report::Bell(Some(endpoint)) => endpoint,
            Report::Bell(None) => continue,
            Report::Theirs => {
                note_fired(index, event);
                events[kept] = event;
                kept += 1;
                continue;
            }
        };
        let slot = slot(endpoint);
        let mut reports = false;
        let mut counted = [0; 2];
        let here = |node: &Node| node.set() == index && !node.has(GONE);
        for (number, node) in super::node::of_endpoint(endpoint).filter(|(_, node)| here(node)) {
            warm(number, node);
            reports |= peek(node, endpoint) != 0;
            counted[0] += u32::from(node.has(ARMED_BYTES));
            counted[1] += u32::from(node.has(ARMED_ROOM));
        }
        // A set that others wait for stays ready as long as there is something, and so does a bell that was rung for
        // what could not be done yet.
        let owes = slot.view().is_ok_and(|view| back::is_asked(slot.outgoing(view.header())));
        let stays = reports && set.nested.load(Ordering::Relaxed) != 0 || owes;
        if let (false, Ok(view)) = (stays, slot.view()) {
            slot.empty_bell(view.header());
            // Between the look at what the peer asks for and the emptying the peer may have asked, and found the bell rung.
            if back::is_asked(slot.outgoing(view.header())) {
                slot.ring_own(view.header());
            }
            wait::pass_on(slot, view.header(), counted, reports);
        }
    }
    kept
}

/// What a peer rang for may be to move the connection back. Done without the lock, because it may wait.
fn serve_bells(set: &Set, events: &[libc::epoll_event], count: usize) {
    for event in &events[..count] {
        if let Report::Bell(Some(endpoint)) = tagged(set, event.u64)
            && let Some(fd) = LOCK
                .lock()
                .and_then(|_held| super::node::of_endpoint(endpoint).next().map(|(_, node)| node.fd()))
        {
            back::serve(fd, endpoint);
        }
    }
}

/// The kernel has reported the one event of a registration for one event: ours is used up, too.
fn note_fired(index: u32, event: libc::epoll_event) {
    let set = set(index);
    let hot = set.hot[..set.hot_len.load(Ordering::Relaxed) as usize].iter();
    let mut once = hot.map(|hot| hot.load(Ordering::Relaxed)).filter(|&number| {
        let node = node(number);
        node.events() & ONCE != 0 && reported(node, &[event], &[]).is_some()
    });
    if let Some(number) = once.next() {
        let node = node(number);
        node.raise(FIRED);
        node.set_kernel_mask(0);
        cool(number, node);
    }
}
