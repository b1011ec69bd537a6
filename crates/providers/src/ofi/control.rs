//! The control thread: moves everything on while the owner of the NIC does not look. It sleeps on the descriptors of
//! libfabric's queues and wakes a few times a second while there are connections, for signs of life.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::nic::{Core, lock};
use super::watch::ControlWatch;

/// Longest wait for the last words of a NIC that closes.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) fn run(core: &Arc<Core>) {
    let (mut watch, mut seen) = (ControlWatch::default(), 0);
    while !core.stop.load(Ordering::Acquire) {
        core.pace.clear_call();
        let timeout = {
            let mut engine = lock(&core.engine);
            engine.events(core);
            engine.on_clock(core);
            // Last: the queue has to be empty when its descriptor is slept on.
            let all = engine.progress(core);
            let may_sleep = all && engine.fabric.may_sleep();
            match watch.begin(&mut engine, core) && may_sleep {
                true => engine.sleep_ns(core).map(Duration::from_nanos),
                false => Some(Duration::ZERO),
            }
        };
        // Messages may be the owner's to take; connections that come and go are not.
        let messages = watch.sleep(core, timeout);
        if core.pace.defers_to_owner(messages) {
            core.pace.step_aside(&mut seen);
        }
    }
}

/// The NIC closes and the thread has ended: what was said last is still sent.
pub(super) fn finish(core: &Arc<Core>) {
    let stale = {
        let mut engine = lock(&core.engine);
        engine.close_all(core);
        std::mem::take(&mut engine.events)
    };
    drop(stale); // an endpoint in it takes the lock
    let give_up = Instant::now() + LAST_WORDS;
    let mut watch = ControlWatch::default();
    loop {
        let mut engine = lock(&core.engine);
        engine.events(core);
        engine.on_clock(core);
        engine.progress(core);
        if engine.lanes.is_empty() || Instant::now() >= give_up {
            let ids: Vec<u32> = engine.lanes.keys().copied().collect();
            for id in ids {
                engine.remove(id);
            }
            engine.forget_half_connected();
            return;
        }
        let may_sleep = engine.fabric.may_sleep();
        let sleep = watch.begin(&mut engine, core) && may_sleep;
        drop(engine);
        if sleep {
            watch.sleep(core, Some(Duration::from_millis(20)));
        }
        watch.end(core);
    }
}
