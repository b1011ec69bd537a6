//! The end of a peer's stream, where a registration waits for room.
//!
//! The kernel is not asked for a companion's room while bytes go through the ring, but for the end of the peer's stream: with it
//! the ring is over, and the registration becomes what the application asked for.

use std::sync::atomic::Ordering;

use viaduct_os::bare::calls;

use super::node::{FIRED, GONE, Node, all};
use super::{LOCK, set};
use crate::{companion, hangup};

/// What the kernel is asked for in the place of room.
pub(super) const NOTICE: u32 = libc::EPOLLRDHUP as u32;
/// Times that the kernel is asked again for what it then has to report.
const TURNS: usize = 4;
/// Registrations with the same data that are served with one notice.
const SAME: usize = 64;

/// Takes such notices out of what the kernel has reported, and puts what it reports afterwards in their place. Without the lock,
/// because senders that end a ring take it.
pub(super) fn hear(index: u32, events: &mut [libc::epoll_event], mut count: usize) -> usize {
    for _ in 0..TURNS {
        if events[..count].iter().all(|event| event.events & NOTICE == 0) {
            return count;
        }
        let kept = keep(index, events, count);
        if kept == count {
            return count;
        }
        let epoll = set(index).fd.load(Ordering::Relaxed);
        count = kept + calls::epoll_wait(epoll, &mut events[kept..], Some(0), None).unwrap_or(0);
    }
    count
}

fn keep(index: u32, events: &mut [libc::epoll_event], count: usize) -> usize {
    let mut kept = 0;
    for at in 0..count {
        let mut event = events[at];
        if event.events & NOTICE != 0 && !serve(index, &mut event) {
            continue;
        }
        events[kept] = event;
        kept += 1;
    }
    kept
}

/// Ends the rings that a notice is for. Whether something is left of it to report.
fn serve(index: u32, event: &mut libc::epoll_event) -> bool {
    let set = set(index);
    let data = event.u64;
    let mut heard = false;
    // Other registrations may have the same data. One that was found is not found again, unless it is the parent's of a child that
    // borrows its memory.
    for _ in 0..SAME {
        let Some((fd, endpoint, asked)) = waiting(index, data) else { break };
        hangup::hear(endpoint, fd);
        heard = true;
        if set.inherited.load(Ordering::Relaxed) != 0 {
            // The kernel's part of the registration stays as it is, since the set is the parent's, too.
            let mut fds = [libc::pollfd { fd, events: asked as i16, revents: 0 }];
            let _ = calls::poll(&mut fds, Some(0), None);
            event.events = u32::from(fds[0].revents as u16);
            return event.events != 0;
        }
    }
    !heard
}

/// A registration with these data that waits for room, and whose peer has ended its stream: its descriptor, its endpoint, and what was
/// asked for.
fn waiting(index: u32, data: u64) -> Option<(i32, u32, u32)> {
    let _held = LOCK.lock()?;
    let noticed = |node: &Node| {
        node.set() == index
            && node.kernel_data() == data
            && node.kernel_mask() & NOTICE != 0
            && node.kernel_mask() != node.events()
            && !node.has(FIRED | GONE)
            && companion::peer_has_ended(node.fd())
    };
    let (_, node) = all().find(|(_, node)| noticed(node))?;
    Some((node.fd(), node.endpoint()?, node.events() & 0xffff))
}
