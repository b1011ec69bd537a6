//! The asking side of connection set-up.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use viaduct_via::provider::Event;
use viaduct_via::{Error, NetAddress, RemoteAttributes, Vi};

use super::{Call, Stage};
use crate::mismatch;
use crate::ofi::abi::FI_ECONNREFUSED;
use crate::ofi::engine::Engine;
use crate::ofi::greeting::{Client, refusal};
use crate::ofi::nic::Core;
use crate::ofi::place;
use crate::ofi::vi::OfiVi;
use crate::ofi::wire::{Hello, step};

impl Engine {
    /// Notes a request of ours.
    pub(in crate::ofi) fn ask(
        &mut self,
        vi: Vi,
        from: NetAddress,
        remote: &NetAddress,
        attributes: &RemoteAttributes,
        peer: bool,
    ) -> Call {
        let number = self.number();
        self.asked.insert(vi, number);
        let (remote, attributes) = (remote.clone(), attributes.clone());
        let (trying, redirected, place, places) = (false, false, None, VecDeque::new());
        Call { vi, number, from, remote, attributes, peer, trying, place, places, redirected }
    }

    /// Whether a request has been neither answered nor given up.
    pub(super) fn is_pending(&self, call: &Call) -> bool {
        self.asked.get(&call.vi) == Some(&call.number)
    }

    /// Looks up where to go, and goes. Names that need a name server are looked up beside.
    pub(in crate::ofi) fn start(&mut self, core: &Arc<Core>, call: Call) {
        if !place::is_plain(&call.remote) {
            return self.look_up(core, call);
        }
        let places = core.names.places(&call.remote);
        self.start_at(core, call, places);
    }

    /// Goes to the first of these places.
    pub(in crate::ofi) fn start_at(
        &mut self,
        core: &Arc<Core>,
        mut call: Call,
        places: Result<Vec<SocketAddr>, Error>,
    ) {
        match places {
            Ok(places) => {
                call.places = places.into();
                self.dial(core, call);
            }
            Err(error) => self.fail_call(core, &call, error),
        }
    }

    /// Goes to the next place there is.
    fn dial(&mut self, core: &Arc<Core>, mut call: Call) {
        if !self.is_pending(&call) {
            return;
        }
        let Some(place) = call.places.pop_front() else {
            let error = Error::NoMatch(call.remote.to_string());
            return self.fail_call(core, &call, error);
        };
        call.place = Some(place);
        let info = self.fabric.info.leading_to(place);
        let stage = Stage::Dialling { call: Box::new(call.clone()) };
        let made = self.make_lane(core, &info, stage, call.attributes.clone());
        let id = match made {
            Ok(id) => id,
            Err(error) => return self.fail_call(core, &call, error),
        };
        let dialled = self.lanes.get_mut(&id).map_or(Ok(()), |lane| {
            lane.port = place.port();
            lane.ep.connect(place)
        });
        if let Err(errno) = dialled {
            self.remove(id);
            self.try_next(core, call, errno);
        }
        core.pace.call();
    }

    /// There was no answer at a place.
    pub(super) fn try_next(&mut self, core: &Arc<Core>, mut call: Call, errno: i32) {
        let refused = matches!(errno, 0 | FI_ECONNREFUSED | libc::ECONNRESET | libc::ENOTCONN);
        if let Some(place) = call.place.filter(|_| !refused) {
            // A host that does not answer at one port does not at the others, and each takes its time to find out.
            call.places.retain(|p| p.ip() != place.ip());
        }
        if !call.places.is_empty() {
            return self.dial(core, call);
        }
        let error = match refused {
            true => Error::NoMatch(call.remote.to_string()),
            false => {
                let why = self.fabric.fi.explain(errno.into());
                unreachable(&call.remote, &why, core.config.has_token())
            }
        };
        self.fail_call(core, &call, error);
    }

    /// A request came to nothing: a peer may still come, other requests fail.
    fn fail_call(&mut self, core: &Arc<Core>, call: &Call, error: Error) {
        if call.peer && matches!(error, Error::NoMatch(_) | Error::NoRoom { .. } | Error::NotReachable(_)) {
            self.retry_later(call);
            core.pace.call();
        } else {
            self.refuse_call(core, call, error);
        }
    }

    /// libfabric has connected: the request goes out.
    pub(super) fn on_connected(&mut self, core: &Arc<Core>, id: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Stage::Dialling { call } = &lane.stage else { return };
        let call = call.clone();
        let mut hello = Hello::new(if call.peer { step::PEER_REQUEST } else { step::REQUEST });
        hello.set_host(core.host);
        hello.parties.set_addresses(&call.remote, &call.from);
        hello.parties.set_attributes(&call.attributes);
        hello.set_window(core.window(), core.config.frame);
        let (client, request) = Client::new(hello, lane.port);
        lane.stage = Stage::Greeting { call, client: Box::new(client) };
        lane.say(&request);
    }

    /// The server has proved that it is of this job; now we do.
    pub(super) fn on_challenge(&mut self, core: &Arc<Core>, id: u32, challenge: &Hello) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Stage::Greeting { call, client } = &lane.stage else { return };
        let call = call.clone();
        match client.answer_challenge(challenge, &core.token) {
            Ok(proof) => {
                lane.stage = Stage::Asking { call };
                lane.say(&proof);
                self.touch(id);
            }
            Err(error) => {
                self.remove(id);
                self.next_or(core, *call, error);
            }
        }
    }

    /// The server's answer.
    pub(super) fn on_answer(&mut self, core: &Arc<Core>, id: u32, answer: &Hello) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Stage::Asking { call } = &lane.stage else { return };
        let call = (**call).clone();
        if let (step::ELSEWHERE, Some(place), false) = (answer.step(), call.place, call.redirected) {
            let places = [SocketAddr::new(place.ip(), answer.port())].into();
            self.remove(id);
            return self.dial(core, Call { places, redirected: true, ..call });
        }
        let accepted = match answer.step() {
            step::ACCEPT => answer.parties.attributes().and_then(|remote| Ok((remote, answer.window()?))),
            step::MISMATCH => Err(match answer.parties.attributes() {
                Ok(theirs) => mismatch(&call.attributes, &theirs)
                    .map_or(Error::Protocol("a mismatch where there is none"), |(ours, _)| ours),
                Err(error) => error,
            }),
            _ => Err(refusal(answer, &call.remote.to_string())),
        };
        match accepted {
            Ok((remote, (theirs, frame))) if self.is_pending(&call) => {
                let Some(lane) = self.lanes.get_mut(&id) else { return };
                lane.open(core, call.vi, theirs, frame);
                let endpoint = Box::new(OfiVi::new(core.clone(), id));
                let event = Event::Established { vi: call.vi, endpoint, remote };
                self.answer(core, &call, event);
            }
            Ok(_) => drop(self.remove(id)),
            Err(error @ (Error::NoMatch(_) | Error::NoRoom { .. })) => {
                self.remove(id);
                self.next_or(core, call, error);
            }
            Err(error) => {
                self.remove(id);
                self.refuse_call(core, &call, error);
            }
        }
    }

    /// Tries the next place, if there is one.
    fn next_or(&mut self, core: &Arc<Core>, call: Call, error: Error) {
        match call.places.is_empty() {
            true => self.fail_call(core, &call, error),
            false => self.dial(core, call),
        }
    }

    /// A request of ours is answered, unless it was given up.
    pub(super) fn answer(&mut self, core: &Arc<Core>, call: &Call, event: Event) {
        if !self.is_pending(call) {
            return;
        }
        self.asked.remove(&call.vi);
        self.stop_wanting(call.vi);
        self.tell(core, event);
    }

    pub(super) fn refuse_call(&mut self, core: &Arc<Core>, call: &Call, error: Error) {
        self.answer(core, call, Event::Refused { vi: call.vi, error });
    }

    /// Gives up a request. What is returned has to be dropped without the lock.
    pub(in crate::ofi) fn cancel(&mut self, vi: Vi) -> VecDeque<Event> {
        self.asked.remove(&vi);
        self.stop_wanting(vi);
        self.calls.retain(|c| c.vi != vi);
        let ours = |stage: &Stage| stage.call().is_some_and(|c| c.vi == vi);
        let lanes: Vec<u32> = self.lanes.values().filter(|l| ours(&l.stage)).map(|l| l.id).collect();
        for id in lanes {
            self.remove(id);
        }
        let of_it = |e: &Event| matches!(e, Event::Established { vi: v, .. } | Event::Refused { vi: v, .. } if *v == vi);
        let (stale, rest) = std::mem::take(&mut self.events).into_iter().partition(of_it);
        self.events = rest;
        stale
    }
}

/// No connection came about. What libfabric says of it is the kernel's number in words, and seldom the cause; a missing token
/// may well be, since the ports of an address without one come from it.
fn unreachable(remote: &NetAddress, why: &str, has_token: bool) -> Error {
    let hint = match has_token {
        true => "",
        false => {
            "; this process was given no job token, and other hosts are reached with theirs alone: VIADUCT_TOKEN_FILE names \
             its file"
        }
    };
    Error::NotReachable(format!("{remote}: no connection came about ({why}){hint}"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_host_is_told_with_the_missing_token() {
        let remote: NetAddress = "192.0.2.1/door".parse().unwrap();
        let [without, with] = [false, true].map(|token| unreachable(&remote, "why", token).to_string());
        assert_eq!(with, "not reachable: 192.0.2.1/door: no connection came about (why)");
        assert!(without.starts_with(&with) && without.contains("VIADUCT_TOKEN_FILE"), "{without}");
    }
}
