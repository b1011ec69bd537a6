//! From a connected TCP socket to an endpoint: the claim at the agent, once for each connection, at its first use.
//!
//! The side that claims first gets a segment of which the other may never hear. It is *pending* until it sees that the
//! other side is ready, and gives up after a few calls: from then on its socket is the kernel's alone. The second side is
//! ready at once. No direction leaves TCP before the receiving side has said that it is ready.

mod apart;

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use viaduct_os::bare::local::LocalLock;
use viaduct_os::bare::sockets::{self, MOST_FDS, Side};
use viaduct_os::bare::{Errno, calls, start, whoami};

use crate::endpoint::{self, Grant, PENDING, Slot, slot};
use crate::explain::explain;
use crate::layout::{Header, OPEN, WITHDRAWN};
use crate::learn::Turn;
use crate::settings::{self, Text, agent_name};
use crate::table::{self, COPIED, ELSEWHERE, Kind, LEFT, PASSED};
use crate::wire::{self, ANSWER, Answer, Verdict};
use crate::{companion, epoll, learn, room, rules, shared};
pub(crate) use apart::{bar, is_known};

/// Calls that move bytes before a pending connection is given up, and nanoseconds: the other side may be slow to start.
const PATIENCE: u32 = 16;
const PATIENCE_NS: u64 = 2_000_000_000;
/// A peer that has sent bytes by TCP, over so many calls and nanoseconds, has used its socket and claims nothing.
const CALLS_HEARD: u32 = 64;
const HEARD_NS: u64 = 50_000_000;
/// How long an agent may take to answer, in nanoseconds: it has a process of its own, and the machine may be busy.
const ANSWER_LIMIT: u64 = 5_000_000_000;
/// How long an agent that is not there is not looked for again.
const ABSENCE: u64 = 1_000_000_000;

/// How long an agent that was started may take until it answers, and how long the next is not started.
const START_LIMIT: u64 = 2_000_000_000;
const STARTS_APART: u64 = 30_000_000_000;

static START_AFTER: AtomicU64 = AtomicU64::new(0);
static LOCK: LocalLock = LocalLock::new();
static CHANNEL: AtomicI32 = AtomicI32::new(-1);
static ABSENT_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Finds out what an unknown descriptor is. Its connection may be one that this process has upgraded by another.
pub(crate) fn classify(fd: i32) -> Kind {
    if !companion::is_tcp(fd) {
        table::set(fd, Kind::Plain);
        return Kind::Plain;
    }
    let held = LOCK.lock();
    match table::kind(fd) {
        Kind::Unknown => {}
        other => return other, // another thread was faster
    }
    table::mark(fd, COPIED | ELSEWHERE);
    table::unmark(fd, LEFT | PASSED);
    learn::forget(fd);
    let known = || companion::cookie(fd).and_then(endpoint::by_cookie);
    let kind = match (held.is_some() && endpoint::any()).then(known).flatten() {
        Some(index) => {
            join(fd, index);
            Kind::Ring(index)
        }
        None => {
            table::set_tcp(fd);
            Kind::Tcp
        }
    };
    if kind != Kind::Tcp {
        table::set(fd, kind);
    }
    kind
}

/// One more descriptor names a connection; where it is registered with epoll, its ring is looked at.
fn join(fd: i32, index: u32) {
    endpoint::hold(index);
    table::set(fd, Kind::Ring(index));
    epoll::adopt(fd, index);
}

/// Other descriptors of the socket that was not claimed until now.
pub(crate) fn copies(fd: i32) -> impl Iterator<Item = i32> {
    let cookie = table::has(fd, COPIED).then(|| companion::cookie(fd)).flatten();
    let others = cookie.map(|cookie| {
        let unclaimed = move |&other: &i32| other != fd && table::kind(other) == Kind::Tcp;
        let same = move |&other: &i32| companion::cookie(other) == Some(cookie);
        table::marked(COPIED).filter(unclaimed).filter(same)
    });
    others.into_iter().flatten()
}

/// Claims a TCP socket that is about to be used. What it is afterwards: still [`Kind::Tcp`] if it is not connected.
#[cold]
pub(crate) fn claim(fd: i32) -> Kind {
    if !settings::claims() {
        return Kind::Plain; // only as long as that is so: nothing is noted
    }
    // A signal handler that interrupts a claim leaves this connection alone for good.
    let Some(_held) = LOCK.lock() else { return settle(fd, Err("used in a signal handler during a claim")) };
    match table::kind(fd) {
        Kind::Tcp => {}
        other => return other, // another thread was faster
    }
    let Ok(obstacle) = companion::obstacle(fd) else { return Kind::Tcp };
    let inherited = || epoll::is_in_inherited_set(fd) || copies(fd).any(epoll::is_in_inherited_set);
    let unseen = || if table::has(fd, ELSEWHERE) { companion::unseen_obstacle(fd) } else { None };
    let bar = match obstacle.or_else(unseen) {
        None if rule(fd) == Some(rules::RuleVerdict::Never) => Some("a rule says so"),
        None if inherited() => Some("registered with a set of epoll that a parent made"),
        None if table::has(fd, PASSED) => Some(shared::IN_A_MESSAGE),
        obstacle => obstacle,
    };
    match bar {
        // A process before this one, or the one that passed it on, may have upgraded it: the agent knows.
        Some(reason) if !table::has(fd, COPIED | ELSEWHERE) || !companion::is_local(fd) => {
            settle(fd, Err(reason))
        }
        bar => settle(fd, ask(fd, bar)),
    }
}

/// What the user's rules say of a connection.
fn rule(fd: i32) -> Option<rules::RuleVerdict> {
    let rules = &settings::settings()?.rules;
    if rules.is_empty() {
        return None;
    }
    let end = |side| sockets::name(fd, side).ok().flatten();
    rules.judge([end(Side::Own)?, end(Side::Peer)?])
}

/// What the call that is about to be made means for a connection that was not claimed yet: one of a listener whose connections were
/// short is left alone for the moment.
pub(crate) fn turn(fd: i32) -> Turn {
    if learn::is_watched(fd) && rule(fd) != Some(rules::RuleVerdict::Always) {
        learn::turn(fd)
    } else {
        Turn::Now
    }
}

/// A connection that was not claimed stays on TCP for good. What it is afterwards: another thread may just have claimed it, or a process
/// that holds it, too.
#[cold]
pub(crate) fn leave(fd: i32, reason: &'static str) -> Kind {
    let held = LOCK.lock();
    match table::kind(fd) {
        Kind::Tcp if held.is_some() && table::has(fd, ELSEWHERE) && companion::is_local(fd) => {
            settle(fd, ask(fd, Some(reason)))
        }
        Kind::Tcp if held.is_some() => settle(fd, Err(reason)),
        other => other,
    }
}

/// This process leaves a socket to the kernel, whatever others do that hold it.
pub(crate) fn note_left(fd: i32) {
    let left = |fd| {
        table::mark(fd, LEFT);
        table::set(fd, Kind::Plain);
    };
    copies(fd).for_each(left);
    left(fd);
}

/// Tells the agent, if it is there, why a connection stays on TCP: it counts that for `viaduct stat`.
fn report(reason: &str) {
    let channel = CHANNEL.load(Ordering::Acquire);
    if channel >= 0 {
        let (bytes, len) = wire::note(reason);
        let _ = sockets::send_packet(channel, &bytes[..len]);
    }
}

fn settle(fd: i32, outcome: Result<u32, &'static str>) -> Kind {
    match outcome {
        Ok(index) => table::set(fd, Kind::Ring(index)),
        Err(reason) => {
            explain(fd, "stays on TCP", reason);
            report(reason);
            note_left(fd);
        }
    }
    table::kind(fd)
}

/// Asks the agent. With a bar, which says why this process would not upgrade the connection, only one that is upgraded already
/// gets its rings.
fn ask(fd: i32, bar: Option<&'static str>) -> Result<u32, &'static str> {
    let channel = channel(bar.is_none()).ok_or(bar.unwrap_or("no agent is there"))?;
    let mut fds = [-1; MOST_FDS];
    let (answer, count) = match exchange(channel, fd, &mut fds) {
        Ok(got) => got,
        Err(_) => {
            hang_up();
            return Err("the agent does not answer");
        }
    };
    if answer.verdict != Verdict::Granted || count != 3 {
        close_all(&fds[..count]);
        return Err(if count == 3 || answer.verdict != Verdict::Granted {
            answer.verdict.reason()
        } else {
            "no descriptors are left"
        });
    }
    adopt(fd, answer, [fds[0], fds[1], fds[2]], bar)
}

/// Says that this side never opens, if it has not. Then nothing was or will be sent by the ring.
fn try_withdraw(header: &Header, side: usize) -> bool {
    let closed = |word: u32| (word & OPEN[side] == 0).then_some(word | WITHDRAWN);
    header.attached.fetch_update(Ordering::SeqCst, Ordering::SeqCst, closed).is_ok()
}

fn exchange(channel: i32, fd: i32, fds: &mut [i32; MOST_FDS]) -> Result<(Answer, usize), Errno> {
    sockets::send_with_fd(channel, &wire::claim(), fd)?;
    let end = calls::now() + ANSWER_LIMIT;
    let mut bytes = [0; ANSWER + 1];
    loop {
        match sockets::receive_with_fds(channel, &mut bytes, fds) {
            Ok((len, count)) => {
                let answer = Answer::parse(&bytes[..len]);
                if answer.is_none() {
                    close_all(&fds[..count]);
                }
                return Ok((answer.ok_or(Errno(libc::EPROTO))?, count));
            }
            Err(Errno(libc::EAGAIN)) => {
                let left = end.saturating_sub(calls::now());
                let mut wait = [libc::pollfd { fd: channel, events: libc::POLLIN, revents: 0 }];
                match calls::poll(&mut wait, Some(left), None) {
                    Ok(0) => return Err(Errno(libc::ETIMEDOUT)),
                    Ok(_) | Err(Errno(libc::EINTR)) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes over what was granted: the bells to high numbers, out of the application's way, the segment to memory.
fn adopt(
    fd: i32,
    answer: Answer,
    [segment, bell, peer_bell]: [i32; 3],
    bar: Option<&'static str>,
) -> Result<u32, &'static str> {
    let close = close_all;
    let known = || endpoint::by_id(answer.id, answer.side as usize & 1);
    if let Some(index) = answer.again.then(known).flatten() {
        // Another descriptor of a connection that this process has already.
        close(&[segment, bell, peer_bell]);
        join(fd, index);
        return Ok(index);
    }
    let (high, peer_high) = (lift(bell), lift(peer_bell));
    let cookie = companion::cookie(fd).unwrap_or(0);
    let grant = Grant { id: answer.id, cookie, side: answer.side, segment, bell: high, peer_bell: peer_high };
    let opened = if high >= 0 && peer_high >= 0 { endpoint::open(grant) } else { Err(Errno(libc::EMFILE)) };
    close(&[segment]);
    let Ok(index) = opened else {
        for fd in [high, peer_high].into_iter().filter(|&fd| fd >= 0) {
            table::forget(fd);
            close(&[fd]);
        }
        return Err("no descriptors or memory are left");
    };
    let slot = slot(index);
    let Ok(view) = slot.view() else { return Err("no memory is left") };
    let header = view.header();
    let nonblocking = calls::status_flags(fd).unwrap_or(0) & libc::O_NONBLOCK != 0;
    slot.own_end(header).nonblocking.store(u32::from(nonblocking), Ordering::Relaxed);
    let buffer = sockets::option_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(i32::MAX).max(0);
    slot.own_end(header).receive_buffer.store(buffer as u32, Ordering::Relaxed);
    let attached = header.attached.load(Ordering::Acquire);
    let here = attached & OPEN[slot.side()] != 0;
    if attached & WITHDRAWN != 0 && !here {
        endpoint::release(index);
        return Err("it was given up before");
    }
    let full = || !answer.again && room::is_enough(endpoint::live());
    let reason = bar.or_else(|| full().then_some("it has too many connections for its limit of descriptors"));
    if let Some(reason) = reason
        && !here
        && try_withdraw(header, slot.side())
    {
        endpoint::release(index);
        return Err(reason);
    }
    let here = here || reason.is_some(); // another process has just opened it
    slot.port.store(learn::port(fd).into(), Ordering::Relaxed);
    // A thread may wait for one descriptor while another thread sends by the other.
    copies(fd).for_each(|copy| join(copy, index));
    if answer.second || here {
        epoll::adopt(fd, index);
        open(slot, header);
    } else if table::has(fd, ELSEWHERE) {
        // Another process may see first that the other side is ready, while this one sleeps.
        epoll::adopt(fd, index);
    }
    Ok(index)
}

fn close_all(fds: &[i32]) {
    for &fd in fds {
        let _ = calls::close(fd);
    }
}

/// Moves one of our descriptors to a high number, out of the application's way; -1 if there is none.
fn lift(fd: i32) -> i32 {
    let high = calls::duplicate_from(fd, room::lowest()).unwrap_or(-1);
    let _ = calls::close(fd);
    if high >= table::MOST as i32 {
        let _ = calls::close(high);
        return -1;
    }
    if high >= 0 {
        table::set(high, Kind::Internal);
    }
    high
}

/// This side is ready from now on, unless another process of its has just given the connection up: the next call sees that.
fn open(slot: &Slot, header: &Header) {
    let own = OPEN[slot.side()];
    let ready = |word: u32| (word & WITHDRAWN == 0 || word & own != 0).then_some(word | own);
    if header.attached.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ready).is_ok() {
        slot.lower(PENDING);
    }
}

/// What becomes of a pending connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is, or may become, one with rings.
    Stays,
    /// The descriptor is plain from now on.
    Plain,
}

/// Looks whether the other side of a pending connection is ready; called before each use.
#[cold]
pub(crate) fn look(fd: i32, index: u32) -> Progress {
    let slot = slot(index);
    let Ok(view) = slot.view() else { return Progress::Stays };
    let header = view.header();
    let attached = header.attached.load(Ordering::SeqCst);
    let peer = OPEN[1 - slot.side()];
    if attached & WITHDRAWN != 0 {
        return give_up(fd, index, "the other side is not under Viaduct");
    }
    if attached & peer != 0 {
        if !companion::Info::of(fd).is_some_and(|info| info.can_send()) {
            return Progress::Stays;
        }
        epoll::adopt(fd, index);
        open(slot, header);
        return Progress::Stays;
    }
    let count = slot.count.fetch_add(1, Ordering::Relaxed);
    let age = || calls::now().saturating_sub(slot.since.load(Ordering::Relaxed));
    let heard = || companion::Info::of(fd).is_some_and(|info| info.has_heard());
    let hopeless = || count > 0 && count.is_multiple_of(CALLS_HEARD) && age() > HEARD_NS && heard();
    if count < PATIENCE || age() < PATIENCE_NS && !hopeless() {
        return Progress::Stays;
    }
    let given_up =
        header.attached.compare_exchange(attached, attached | WITHDRAWN, Ordering::SeqCst, Ordering::Relaxed);
    match given_up {
        Ok(_) => give_up(fd, index, "the other side is not under Viaduct"),
        Err(_) => Progress::Stays, // it has just come: the next call sees it
    }
}

/// Gives a pending connection up for good, if it is one. Whether it was: then the descriptor is plain.
pub(crate) fn withdraw(fd: i32, index: u32, reason: &'static str) -> bool {
    let slot = slot(index);
    let Ok(view) = slot.view() else { return false };
    // A side that never opens is never sent anything by the ring, whether the other one has opened or not.
    let pending = slot.has(PENDING) && try_withdraw(view.header(), slot.side());
    if pending {
        give_up(fd, index, reason);
    }
    pending
}

fn give_up(fd: i32, index: u32, reason: &'static str) -> Progress {
    explain(fd, "stays on TCP", reason);
    report(reason);
    epoll::restore(fd);
    table::set(fd, Kind::Plain);
    endpoint::release(index);
    Progress::Plain
}

/// Where this process finds the agent of a user.
fn agent(user: u32) -> Text {
    settings::settings().and_then(|settings| settings.agent).unwrap_or_else(|| agent_name(user))
}

/// The connection to the agent, which is started if it is not there and `may_start`.
fn channel(may_start: bool) -> Option<i32> {
    let known = CHANNEL.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let now = calls::now();
    if now < ABSENT_UNTIL.load(Ordering::Relaxed) {
        return None;
    }
    let user = calls::user_id();
    let name = agent(user);
    let connected = sockets::connect_abstract(name.as_c_str().to_bytes()).ok();
    if connected.is_none() && !may_start {
        return None; // it knows of no connection
    }
    let connected = connected.or_else(|| started(name, now));
    // Anyone may have taken the name.
    let ours = connected.filter(|&fd| {
        let same = sockets::peer_user(fd) == Ok(user);
        if !same {
            let _ = calls::close(fd);
        }
        same
    });
    let lifted = ours.map(lift).filter(|&fd| fd >= 0);
    match lifted {
        Some(fd) => CHANNEL.store(fd, Ordering::Release),
        None => ABSENT_UNTIL.store(now + ABSENCE, Ordering::Relaxed),
    }
    lifted
}

/// Starts an agent, at most once in a while, and connects to it.
#[cold]
fn started(name: Text, now: u64) -> Option<i32> {
    let program = settings::settings().and_then(|settings| settings.program)?;
    if now < START_AFTER.load(Ordering::Relaxed) {
        return None;
    }
    START_AFTER.store(now + STARTS_APART, Ordering::Relaxed);
    let variable = Text::join(b"VIADUCT_CLAIM=", name.as_c_str().to_bytes())?;
    start::apart(&[program.as_c_str(), c"agent", c"claims"], &[variable.as_c_str()]);
    let end = now + START_LIMIT;
    loop {
        let _ = calls::poll(&mut [], Some(1_000_000), None);
        match sockets::connect_abstract(name.as_c_str().to_bytes()) {
            Ok(fd) => return Some(fd),
            Err(_) if calls::now() >= end => return None,
            Err(_) => {}
        }
    }
}

/// No agent is started any more: one that is not there knows of no connection.
pub(crate) fn start_no_agent() {
    START_AFTER.store(u64::MAX, Ordering::Relaxed);
}

fn hang_up() {
    let fd = CHANNEL.swap(-1, Ordering::AcqRel);
    if fd >= 0 {
        table::forget(fd);
        let _ = calls::close(fd);
    }
    ABSENT_UNTIL.store(calls::now() + ABSENCE, Ordering::Relaxed);
}

/// Takes leave of the agent for a while, because the application needs the descriptor. Whether there was one.
pub(crate) fn let_go() -> bool {
    let held = LOCK.lock();
    let there = held.is_some() && CHANNEL.load(Ordering::Acquire) >= 0;
    if there {
        hang_up();
    }
    there
}

/// Connects to the agent, so that it stays while this process lives: a server may wait long for its first client.
pub fn greet() {
    if !settings::claims() {
        return; // before any system call: this process may have a filter
    }
    let here = whoami::check() == whoami::Process::Same && CHANNEL.load(Ordering::Acquire) >= 0;
    if !here && let Some(_held) = LOCK.lock() {
        channel(true);
    }
}

/// A claim that this thread makes may be left by a jump: what the agent still has to say must not be taken for the answer to
/// the next one.
pub(crate) fn leave_for(target: usize) {
    if LOCK.leave(target)
        && let Some(_held) = LOCK.lock()
        && CHANNEL.load(Ordering::Acquire) >= 0
    {
        hang_up();
    }
}

/// A child talks to the agent over a connection of its own.
pub(crate) fn after_fork() {
    LOCK.reset();
    let fd = CHANNEL.swap(-1, Ordering::AcqRel);
    if fd >= 0 {
        table::forget(fd);
        let _ = calls::close(fd);
    }
}

/// Hangs up if the connection to the agent has this number. Whether it had.
pub(crate) fn move_channel(fd: i32) -> bool {
    let ours = CHANNEL.compare_exchange(fd, -1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if ours {
        table::forget(fd);
    }
    ours
}
