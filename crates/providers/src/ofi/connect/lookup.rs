//! Look-ups of names, beside the engine: a name server may take many seconds to answer, or never do, and signs of life
//! and messages of all other connections go on meanwhile.
//!
//! Each look-up has a thread of its own, a few at once; requests beyond that wait for their turn. A thread that is still
//! in the resolver when the NIC closes is left alone: it finds the NIC gone, and ends.

use std::net::SocketAddr;
use std::sync::Arc;

use viaduct_os::error::OsError;
use viaduct_via::Error;

use super::Call;
use crate::ofi::engine::Engine;
use crate::ofi::nic::Core;

/// Look-ups at once.
const AT_ONCE: usize = 4;

impl Engine {
    /// Notes a request whose host has to be looked up.
    pub(super) fn look_up(&mut self, core: &Arc<Core>, call: Call) {
        self.calls.push_back(call);
        self.start_look_ups(core);
    }

    fn start_look_ups(&mut self, core: &Arc<Core>) {
        while self.looking_up < AT_ONCE {
            let Some(call) = self.calls.pop_front() else { return };
            if !self.is_pending(&call) {
                continue;
            }
            match look_up_beside(core, call.clone()) {
                Ok(()) => self.looking_up += 1,
                Err(error) => self.start_at(core, call, Err(error)),
            }
        }
    }

    /// A look-up has its answer; the next one has its turn.
    fn on_places(&mut self, core: &Arc<Core>, call: Call, places: Result<Vec<SocketAddr>, Error>) {
        self.looking_up -= 1;
        self.start_at(core, call, places);
        self.start_look_ups(core);
    }
}

fn look_up_beside(core: &Arc<Core>, call: Call) -> Result<(), Error> {
    let (names, core) = (core.names.clone(), Arc::downgrade(core));
    let work = move || {
        let places = names.places(&call.remote);
        if let Some(core) = core.upgrade() {
            core.hold().on_places(&core, call, places);
        }
    };
    let thread = std::thread::Builder::new().name("viaduct-names".into()).stack_size(512 << 10);
    thread.spawn(work).map(drop).map_err(|e| OsError::sys("clone", e).into())
}
