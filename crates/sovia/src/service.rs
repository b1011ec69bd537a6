//! The threads of the library: one service thread, and a handler thread where that was asked for.
//!
//! SOVIA, sections 3.1.2, 3.2.3 and 3.3. The service thread is the paper's connection thread (it accepts connections that
//! the application has not asked for), its close thread (it takes packets in while no socket is open and some are closing)
//! and the timer of combining. It is parked otherwise, which costs senders nothing: no bell rings for it. Only as
//! close thread does it sleep on the bell, and a connection that comes about wakes it from there.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use viaduct_os::clock;
use viaduct_os::wait::{Sleep, WaitPolicy};

use crate::config::Handling;
use crate::engine::Engine;
use crate::library::Shared;

/// While others are open, closing connections are looked at this often; usually the others' calls have done it before.
const LOOK: Duration = Duration::from_millis(20);

/// Sends that wait, for a mapping or for room, are looked at this often.
const MIND: Duration = Duration::from_millis(1);

/// Most that is taken in before others get the lock.
const ROUNDS: usize = 4;

/// How the service thread goes on.
enum Next {
    Park(Option<Duration>),
    /// As the close thread, this long at most.
    Sleep(Duration),
}

/// The service thread.
pub(crate) fn serve(shared: &Shared) {
    while !shared.exiting.load(Ordering::Acquire) {
        match work(shared) {
            Next::Park(None) => thread::park(),
            Next::Park(Some(time)) => thread::park_timeout(time),
            Next::Sleep(most) => {
                let ticket = shared.sleepers.announce();
                // What came in between was not announced.
                if let Next::Sleep(_) = work(shared)
                    && !shared.exiting.load(Ordering::Acquire)
                {
                    shared.close_rounds.fetch_add(1, Ordering::Relaxed);
                    shared.sleepers.park(ticket, Some(most));
                }
                shared.sleepers.cancel();
            }
        }
    }
}

/// The handler thread of HANDLER.
pub(crate) fn handle(shared: &Shared) {
    let mut policy = WaitPolicy::new(shared.wait);
    let _ = shared.look(&mut policy, None, |_| shared.exiting.load(Ordering::Acquire).then_some(()));
}

fn work(shared: &Shared) -> Next {
    let mut engine = shared.lock();
    engine.accept_requests();
    let more = engine.closing > 0 && (0..ROUNDS).all(|_| engine.handle());
    engine.expire();
    let stuck = engine.mind_stuck();
    let next = match next(shared, &mut engine) {
        _ if more => Next::Park(Some(Duration::ZERO)),
        Next::Park(time) if stuck => Next::Park(Some(time.map_or(MIND, |t| t.min(MIND)))),
        Next::Sleep(time) if stuck => Next::Park(Some(time.min(MIND))),
        next => next,
    };
    shared.release(engine);
    next
}

fn next(shared: &Shared, engine: &mut Engine) -> Next {
    let now = clock::now_ns();
    let timer = engine.tick_at.map(|at| Duration::from_nanos(at.saturating_sub(now)));
    if engine.closing == 0 {
        return Next::Park(timer);
    }
    let cut = engine.sockets.iter_mut().filter_map(|(_, s)| s.cut_at).min().unwrap_or(now);
    let cut = Duration::from_nanos(cut.saturating_sub(now)).max(Duration::from_millis(1));
    if engine.open > 0 || shared.handling == Handling::Handler {
        return Next::Park(Some(timer.map_or(LOOK, |t| t.min(LOOK)).min(cut)));
    }
    Next::Sleep(cut)
}
