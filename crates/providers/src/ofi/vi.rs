//! An endpoint: a lane of the engine, as the VI that is bound to it sees it.

use std::sync::Arc;

use viaduct_os::{clock, fork};
use viaduct_via::provider::{Endpoint, Small, Submit};
use viaduct_via::raw::WatchWord;
use viaduct_via::{Error, Fault, Queues, Reach, RemoteAddress, Work};

use super::connect::Stage;
use super::nic::Core;
use super::outgoing::{Handed, MOST_BY_VALUE};
use crate::parties::READ_PRIVATE;

/// How long the end of a connection waits for messages that libfabric has begun to send.
const LET_GO_NS: u64 = 20_000_000;

pub(super) struct OfiVi {
    core: Arc<Core>,
    lane: u32,
    closed: bool,
}

impl OfiVi {
    pub(super) fn new(core: Arc<Core>, lane: u32) -> OfiVi {
        OfiVi { core, lane, closed: false }
    }
}

// SAFETY: segments are read until the descriptor is completed, and `close` lets go of them; messages are judged before they are
// scattered.
unsafe impl Endpoint for OfiVi {
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit {
        let mut engine = self.core.hold();
        let Some(lane) = engine.lanes.get_mut(&self.lane) else { return Submit::Busy };
        match lane.hand_over(work, index) {
            Handed::Done => Submit::Done,
            Handed::Pending => Submit::Pending,
            Handed::Busy => Submit::Busy,
        }
    }

    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        let mut engine = self.core.hold();
        let Some(lane) = engine.lanes.get_mut(&self.lane).filter(|l| l.end.is_none()) else {
            return Submit::Busy;
        };
        if lane.hand_over_value(&[bytes], bytes.len() as u32, immediate) {
            Submit::Done
        } else {
            Submit::Busy
        }
    }

    fn most_by_value(&self) -> u32 {
        MOST_BY_VALUE
    }

    fn submit_value(&mut self, parts: &[&[u8]], total: u32, immediate: Option<u32>) -> Submit {
        let mut engine = self.core.hold();
        let Some(lane) = engine.lanes.get_mut(&self.lane).filter(|l| l.end.is_none()) else {
            return Submit::Busy;
        };
        if lane.hand_over_value(parts, total, immediate) { Submit::Done } else { Submit::Busy }
    }

    fn nudge(&mut self) {
        let mut engine = self.core.hold();
        let engine = &mut *engine;
        if let Some(lane) = engine.lanes.get_mut(&self.lane).filter(|l| l.end.is_none()) {
            lane.nudge_due = true;
            lane.flush(&engine.regions);
        }
    }

    fn reads_private(&self) -> bool {
        false
    }

    fn read_private(&mut self, _: u64, _: &mut [u8]) -> Result<(), Error> {
        Err(Error::NotSupported(READ_PRIVATE))
    }

    fn write_inline(&mut self, _: &[u8], _: RemoteAddress, _: Option<u32>) -> Submit {
        Submit::Busy
    }

    fn take_small(&mut self, _: &Work) -> Option<Small> {
        None
    }

    fn watch(&self) -> WatchWord {
        WatchWord::NONE
    }

    fn tell_receives_from(&self) -> u32 {
        u32::MAX
    }

    fn recv_posted(&mut self, _: &Work, _: u32) {}

    fn poll(&mut self, queues: &mut Queues<'_>) {
        let mut engine = self.core.hold();
        engine.poll(&self.core);
        engine.looked = true;
        let engine = &mut *engine;
        let Some(lane) = engine.lanes.get_mut(&self.lane) else {
            queues.broken(Fault::Lost);
            return;
        };
        lane.poll(queues);
        if lane.flush(&engine.regions) {
            // What was sent now may be done at once, and no other look is due.
            engine.progress(&self.core);
            if let Some(lane) = engine.lanes.get_mut(&self.lane) {
                lane.poll(queues);
            }
        }
    }

    fn set_armed(&mut self, armed: bool) {
        if let Some(lane) = self.core.hold().lanes.get_mut(&self.lane) {
            lane.armed = armed;
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let mut engine = self.core.hold();
        let engine = &mut *engine;
        // From here on memory of the VI's descriptors is neither read nor written: what libfabric still sends from there
        // mostly leaves in no time, and a peer that does not take it is not waited for.
        let give_up = clock::now_ns() + LET_GO_NS;
        while let Some(lane) = engine.lanes.get_mut(&self.lane) {
            lane.outgoing.clear();
            if lane.uncopied.is_let_go() {
                break;
            }
            if lane.end == Some(Fault::Lost) || clock::now_ns() > give_up {
                engine.remove(self.lane);
                break;
            }
            engine.progress(&self.core);
        }
        let Some(lane) = engine.lanes.get_mut(&self.lane) else { return };
        lane.flights.clear();
        lane.vi = None;
        lane.armed = false;
        while let Some(held) = lane.inbox.pop_front() {
            lane.release(held.buffer, held.kind);
        }
        lane.flush(&engine.regions);
        // A peer that has closed, or is gone, does not wait for our close.
        let ended = matches!(lane.end, Some(Fault::Disconnected | Fault::Lost));
        lane.close_due = !ended;
        lane.stage = Stage::Closing { until: clock::now_ns() + self.core.silence_ns() };
        lane.flush(&engine.regions);
        if lane.end == Some(Fault::Lost) || ended && !lane.closed_due && lane.all_sent() {
            engine.remove(self.lane);
        }
        self.core.pace.call();
    }

    fn provider(&self) -> &'static str {
        self.core.name
    }

    fn reach(&self) -> Reach {
        Reach::Messages
    }
}

impl Drop for OfiVi {
    fn drop(&mut self) {
        // In a forked child the connection is the parent's, and the lock may be held by a thread that is not here.
        if fork::generation() == self.core.generation {
            self.close();
        }
    }
}
