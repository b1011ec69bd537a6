//! Peer to peer: two NICs ask for each other, and the one with the smaller name waits and plays the server.

use std::net::IpAddr;
use std::sync::Arc;

use viaduct_os::clock;
use viaduct_via::provider::Event;
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};

use super::{Call, Listening, RETRY_NS};
use crate::mismatch;
use crate::ofi::engine::Engine;
use crate::ofi::nic::Core;
use crate::ofi::wire::{Hello, step};

/// Whether the one with this address waits. Names decide, since the host may be called differently at its other end.
pub(in crate::ofi) fn waits(local: &NetAddress, remote: &NetAddress) -> bool {
    (local.discriminator(), local.host()) < (remote.discriminator(), remote.host())
}

impl Engine {
    pub(in crate::ofi) fn request_peer(
        &mut self,
        core: &Arc<Core>,
        vi: Vi,
        (local, at): (&NetAddress, (Option<IpAddr>, Option<u16>)),
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        if waits(local, remote) {
            let known = |l: &&mut Listening| l.address.discriminator() == local.discriminator();
            if let Some(listening) = self.listening.values_mut().find(known) {
                listening.peers += 1;
            } else {
                let mut bound = self.bind(core, local, at)?;
                bound.peers = 1;
                let number = self.number();
                self.listening.insert(number, bound);
            }
        }
        let call = self.ask(vi, local.clone(), remote, ours, true);
        self.wants.push(call);
        self.retry = Some(clock::now_ns());
        core.pace.call();
        Ok(())
    }

    /// Tries the peers that were not there yet.
    pub(super) fn retry_peers(&mut self, core: &Arc<Core>) {
        let idle = self.wants.iter_mut().filter(|w| !w.trying && !waits(&w.from, &w.remote));
        let missing: Vec<Call> = idle
            .map(|want| {
                want.trying = true;
                want.clone()
            })
            .collect();
        for call in missing {
            self.start(core, call);
        }
    }

    /// A peer asks for one of ours that asks for it, or does not yet.
    pub(super) fn on_peer_request(
        &mut self,
        core: &Arc<Core>,
        id: u32,
        hello: Hello,
        to: &NetAddress,
        from: &NetAddress,
        theirs: &RemoteAttributes,
    ) {
        let crossed = |w: &&Call| {
            w.from.discriminator() == to.discriminator() && w.remote.discriminator() == from.discriminator()
        };
        let Some(call) = self.wants.iter().find(crossed).cloned() else {
            return self.say_last(core, id, &Hello::new(step::NO_MATCH));
        };
        if let Some((error, _)) = mismatch(&call.attributes, theirs) {
            let mut answer = Hello::new(step::MISMATCH);
            answer.parties.set_attributes(&call.attributes);
            self.say_last(core, id, &answer);
            self.refuse_call(core, &call, error);
            return;
        }
        // If the one that asked is gone, the request goes on waiting.
        if let Some(endpoint) = self.accept_on(core, id, &hello, call.vi, &call.attributes) {
            let (endpoint, remote) = (Box::new(endpoint), theirs.clone());
            self.answer(core, &call, Event::Established { vi: call.vi, endpoint, remote });
        }
    }

    /// A VI that has its answer, or gave up, wants no peer any more, and the name it waited under may go.
    pub(super) fn stop_wanting(&mut self, vi: Vi) {
        let Some(at) = self.wants.iter().position(|w| w.vi == vi) else { return };
        let want = self.wants.swap_remove(at);
        let its = |l: &&mut Listening| l.address.discriminator() == want.from.discriminator();
        if waits(&want.from, &want.remote)
            && let Some(listening) = self.listening.values_mut().find(its)
        {
            listening.peers -= 1;
        }
        self.drop_unused_names();
    }

    /// It is tried again in a moment.
    pub(super) fn retry_later(&mut self, call: &Call) {
        if let Some(want) = self.wants.iter_mut().find(|w| w.number == call.number) {
            want.trying = false;
            self.retry.get_or_insert(clock::now_ns() + RETRY_NS);
        }
    }
}
