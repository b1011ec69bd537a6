//! A thread leaves calls of the library for good: a handler of a signal that interrupted them jumps to further up the stack.
//!
//! On TCP no call holds anything that such a jump could leave behind. Here one may hold a lock for a moment, and is
//! asked by name: before the jump, whatever the frames that it skips hold is given back, so that the next call, of this thread or of
//! another one, of this process or of one that shares the connection, finds it free. What they guard is changed in steps of
//! which each leaves something valid. A jump inside of a handler skips none of those frames, and changes nothing.
//!
//! Calls hold nothing while they sleep; there a jump leaves a count of sleepers that stays too high, and costs the peer a system
//! call now and then.

use std::sync::atomic::Ordering;

use viaduct_os::bare::{stack, whoami};

use crate::endpoint::{self, Slot};
use crate::wait::signals;
use crate::{claim, epoll};

/// This thread is about to go on with its stack at `target`. Cheap where the program has no handlers, or no
/// upgraded connection; else each of these is looked at.
pub fn leave(target: usize) {
    if !signals::may_be_handled() || whoami::recorded_process() == 0 {
        return;
    }
    claim::leave_for(target);
    epoll::leave_for(target);
    if endpoint::any() {
        endpoint::all().for_each(|slot| leave_slot(slot, target));
    }
}

fn leave_slot(slot: &Slot, target: usize) {
    let Ok(view) = slot.view() else { return };
    let header = view.header();
    let me = whoami::owner();
    let (sends, receives) = (&slot.outgoing(header).producer.lock, &slot.incoming(header).consumer.lock);
    if sends.is_held_by(me) && stack::is_left(stack::holder(slot.sends_at.load(Ordering::Relaxed)), target) {
        // What it was about to publish was not sent.
        slot.publishes.store(0, Ordering::Relaxed);
        slot.sends_at.store(0, Ordering::Relaxed);
        sends.unlock(me);
        // What it had published may not have been rung for.
        if slot.outgoing(header).wishes.readers.load(Ordering::SeqCst) > 0 {
            slot.ring_peer(header);
        }
    }
    if receives.is_held_by(me)
        && stack::is_left(stack::holder(slot.receives_at.load(Ordering::Relaxed)), target)
    {
        slot.receives_at.store(0, Ordering::Relaxed);
        receives.unlock(me);
        // Nor for the room that it had made, or what it had left for others of this end.
        if slot.incoming(header).writers.0.load(Ordering::SeqCst) > 0 {
            slot.ring_peer(header);
        }
        if slot.incoming(header).wishes.readers.load(Ordering::SeqCst) > 0 {
            slot.ring_own(header);
        }
    }
    slot.ring_again(header);
}
