//! Peer to peer: two NICs ask for each other, and the one with the smaller address waits and plays the server.

use std::sync::Arc;

use viaduct_os::epoll::Interest;
use viaduct_os::point::point;
use viaduct_via::provider::Event;
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};

use super::client::How;
use crate::mismatch;
use crate::shm::control::{Call, PeerWant, SOCKET, Socket, token};
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
        let want = PeerWant {
            vi,
            local: local.clone(),
            remote: remote.clone(),
            attributes: ours.clone(),
            trying: false,
        };
        if want.waits() {
            let mut control = lock(&self.control);
            if let Some(socket) = control.sockets.values_mut().find(|s| s.address == *local) {
                socket.peers += 1;
            } else {
                let listener = self.bind(local)?;
                let number = control.number();
                self.epoll.add(&listener, token(SOCKET, number), Interest::Read)?;
                let socket = Socket { listener, address: local.clone(), listen: None, peers: 1 };
                control.sockets.insert(number, socket);
            }
        }
        point("peer.wants");
        lock(&self.control).wants.push(want);
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
                let (from, remote) = (w.local.clone(), w.remote.clone());
                Call { vi: w.vi, from, remote, attributes: w.attributes.clone() }
            })
            .collect()
        };
        for call in missing {
            if !matches!(self.connect(&call, How::Peer), Ok(true)) {
                self.peer_not_there(call.vi);
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
        let want = {
            let mut control = lock(&self.control);
            let at = control.wants.iter().position(|w| w.local == *to && w.remote == *from);
            at.map(|at| {
                let want = control.wants.swap_remove(at);
                if let Some(socket) = control.sockets.values_mut().find(|s| s.address == want.local) {
                    socket.peers -= 1;
                }
                self.drop_unused_sockets(&mut control);
                want
            })
        };
        let Some(want) = want else {
            self.finish_with(id, hello::NO_MATCH, &[]);
            return;
        };
        point("peer.met");
        let event = match mismatch(&want.attributes, theirs) {
            Some((error, _)) => {
                let mut answer = Hello::new(hello::MISMATCH, self.uid);
                answer.set_attributes(&want.attributes);
                self.finish(id, &answer);
                Event::Refused { vi: want.vi, error }
            }
            None => {
                let Some(h) = self.take_handshake(id) else { return };
                match self.accept_on(id, h.channel, &hello, passed, want.vi, &want.attributes) {
                    Ok(endpoint) => Event::Established {
                        vi: want.vi,
                        endpoint: Box::new(endpoint),
                        remote: theirs.clone(),
                    },
                    Err(error) => Event::Refused { vi: want.vi, error },
                }
            }
        };
        lock(&self.control).events.push_back(event);
        self.tell();
    }

    pub(super) fn peer_not_there(&self, vi: Vi) {
        if let Some(want) = lock(&self.control).wants.iter_mut().find(|w| w.vi == vi) {
            want.trying = false;
        }
    }
}
