//! Peer to peer: two NICs ask for each other, and the one with the smaller address waits and plays the server.

use std::sync::Arc;

use viaduct_os::point::point;
use viaduct_via::provider::Event;
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};

use crate::mismatch;
use crate::shm::control::{Call, Control, PeerWant};
use crate::shm::nic::Core;
use crate::shm::pair::{Passed, lock};
use crate::shm::wire::{Hello, hello};

impl Core {
    pub(crate) fn request_peer(
        self: &Arc<Core>,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        let mut control = lock(&self.control);
        if local < remote {
            if let Some(socket) = control.sockets.values_mut().find(|s| s.address == *local) {
                socket.peers += 1;
            } else {
                self.open_socket(&mut control, local, None, 1)?;
            }
        }
        let call = control.ask(vi, local, remote, ours);
        point("peer.wants");
        control.wants.push(PeerWant { call, trying: false });
        drop(control);
        self.wake.signal();
        Ok(())
    }

    /// Tries the peers that were not there yet.
    pub(crate) fn retry_peers(self: &Arc<Core>) {
        let missing: Vec<Call> = {
            let mut control = lock(&self.control);
            let idle = control.wants.iter_mut().filter(|w| !w.waits() && !w.trying);
            idle.map(|w| {
                w.trying = true;
                w.call.clone()
            })
            .collect()
        };
        for call in missing {
            if !matches!(self.connect(&call, true), Ok(true)) {
                self.peer_not_there(&call);
            }
        }
    }

    /// Server side of a peer-to-peer request.
    pub(super) fn peer_requested(
        self: &Arc<Core>,
        id: u64,
        hello: Hello,
        passed: Passed,
        to: &NetAddress,
        from: &NetAddress,
        theirs: &RemoteAttributes,
    ) {
        let asks_for_it = |w: &&PeerWant| w.call.from == *to && w.call.remote == *from;
        let call = lock(&self.control).wants.iter().find(asks_for_it).map(|w| w.call.clone());
        let Some(call) = call else {
            self.finish_with(id, hello::NO_MATCH, &[]);
            return;
        };
        point("peer.met");
        if let Some((error, _)) = mismatch(&call.attributes, theirs) {
            let mut answer = Hello::new(hello::MISMATCH, self.uid);
            answer.parties.set_attributes(&call.attributes);
            self.finish(id, &answer);
            self.refused(&call, error);
            return;
        }
        let Some(h) = self.take_handshake(id) else { return };
        match self.accept_on(id, h.channel, &hello, passed, call.vi, &call.attributes) {
            Ok(endpoint) => {
                let (endpoint, remote) = (Box::new(endpoint), theirs.clone());
                self.answer_to(&call, Event::Established { vi: call.vi, endpoint, remote });
            }
            // It asked and is gone: we wait for one that stays.
            Err(Error::NotReachable(_)) => {}
            Err(error) => self.refused(&call, error),
        }
    }

    /// A VI that has its answer, or gave up, wants no peer any more, and the socket it waited at may go.
    pub(super) fn stop_wanting(&self, control: &mut Control, vi: Vi) {
        let Some(at) = control.wants.iter().position(|w| w.call.vi == vi) else { return };
        let want = control.wants.swap_remove(at);
        if want.waits()
            && let Some(socket) = control.sockets.values_mut().find(|s| s.address == want.call.from)
        {
            socket.peers -= 1;
        }
        self.drop_unused_sockets(control);
    }

    pub(super) fn peer_not_there(&self, call: &Call) {
        if let Some(want) = lock(&self.control).wants.iter_mut().find(|w| w.call.number == call.number) {
            want.trying = false;
        }
    }
}
