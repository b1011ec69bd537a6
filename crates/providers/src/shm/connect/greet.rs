//! Processes of different users meet at an abstract name, since neither can enter the folder of the other. There both
//! prove that they are of one job, before anything else is said (`greeting`).

use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::{fs, io};

use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::{Channel, Listener};
use viaduct_os::point::point;
use viaduct_os::process;
use viaduct_os::segment::Segment;
use viaduct_via::{Error, NetAddress, Reach};
use zerocopy::IntoBytes;

use crate::shm::control::{Call, HANDSHAKE, Handshake, Stage, token};
use crate::shm::directory::chunk_len;
use crate::shm::greeting::{Client, Greeting, Meeting, Server};
use crate::shm::nic::Core;
use crate::shm::pair::{lock, reach};
use crate::shm::wire::Hello;

impl Core {
    /// Whether the other end belongs to another user, or is to be treated so.
    pub(super) fn is_foreign(&self, channel: &Channel) -> Result<bool, Error> {
        Ok(self.config.isolate || channel.peer()?.uid != process::effective_uid())
    }

    /// How a listener at this address would be reached: directly if it is one of our own user. Whether it keeps its memory to
    /// itself (`shm.isolate`) is known when it answers.
    pub(crate) fn reach(&self, remote: &NetAddress) -> Reach {
        let ours = |file: fs::Metadata| file.uid() == process::effective_uid();
        let mapped = self.config.direct && !self.config.isolate;
        reach(mapped && fs::symlink_metadata(self.path(remote)).is_ok_and(ours))
    }

    /// How the client that said this is reached.
    pub(super) fn reach_of(&self, hello: &Hello, channel: &Channel) -> Reach {
        let foreign = hello.isolated() || self.is_foreign(channel).unwrap_or(true);
        reach(self.config.direct && hello.direct() && !foreign)
    }

    /// Listens where other users come to, if there are any that may.
    pub(super) fn bind_meeting(&self, address: &NetAddress) -> Result<Option<Listener>, Error> {
        let Some(meeting) = &self.meeting else { return Ok(None) };
        match Listener::bind_abstract(&meeting.name(&address.to_string())) {
            Ok(listener) => Ok(Some(listener)),
            Err(OsError::InUse { .. }) => Err(Error::AddressInUse(address.to_string())),
            Err(e) => Err(Error::Os(e)),
        }
    }

    /// No process of our own user is there: calls that of another user at the address. False as in `connect`.
    pub(super) fn call_abroad(
        self: &Arc<Core>,
        call: &Call,
        peer: bool,
        meeting: &Meeting,
    ) -> Result<bool, Error> {
        let no_match = || Error::NoMatch(call.remote.to_string());
        let channel = match Channel::connect_abstract(&meeting.name(&call.remote.to_string())) {
            Ok(channel) => channel,
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::ConnectionRefused => return Err(no_match()),
                _ => return Err(Error::Os(OsError::sys("connect", e))),
            },
        };
        let server = channel.peer()?.uid;
        if !meeting.lets_in(server) {
            return Err(Error::NotOfThisJob(
                "the listener is of a user that our shm.other-users does not name",
            ));
        }
        let (client, greeting) = Client::new(meeting, server);
        let mut control = lock(&self.control);
        if !control.is_asked(call) {
            // Given up meanwhile.
            return Ok(true);
        }
        let id = control.number();
        self.epoll.add(&channel, token(HANDSHAKE, id), Interest::Read)?;
        point("greet.before-send");
        if !matches!(channel.send(greeting.as_bytes(), &[]), Ok(true)) {
            let _ = self.epoll.del(&channel);
            return Err(Error::NotOfThisJob(super::NOT_LET_IN));
        }
        point("greet.sent");
        control.calls.retain(|c| c.number != call.number);
        let stage = Stage::Calling { call: call.clone(), peer, client: Box::new(client) };
        control.handshakes.insert(id, Handshake { channel, deadline: None, stage });
        Ok(true)
    }

    /// Whether the next message on a connection is a greeting.
    pub(super) fn is_greeting(&self, id: u64) -> bool {
        let of = |h: &Handshake| {
            matches!(h.stage, Stage::Stranger { .. } | Stage::Greeted { .. } | Stage::Calling { .. })
        };
        lock(&self.control).handshakes.get(&id).is_some_and(of)
    }

    /// A greeting came.
    pub(super) fn greeted(self: &Arc<Core>, id: u64, message: &[u8]) {
        let Some(meeting) = &self.meeting else { return self.drop_handshake(id) };
        point("greet.received");
        let greeting = match Greeting::parse(message) {
            Ok(greeting) => greeting,
            Err(error @ Error::VersionMismatch { .. }) => return self.other_greeting(id, meeting, error),
            Err(_) => return self.drop_handshake(id),
        };
        let mut control = lock(&self.control);
        let Some(h) = control.handshakes.get_mut(&id) else { return };
        let failure = match &h.stage {
            Stage::Stranger { socket } => {
                let socket = *socket;
                match h.channel.peer() {
                    Ok(client) => {
                        let (server, answer) = Server::new(&greeting, meeting, client.uid);
                        h.stage = Stage::Greeted { socket, server: Box::new(server) };
                        (!matches!(h.channel.send(answer.as_bytes(), &[]), Ok(true))).then_some(None)
                    }
                    Err(_) => Some(None),
                }
            }
            Stage::Greeted { socket, server } => {
                let (socket, proven) = (*socket, server.proven(&greeting, &meeting.token));
                h.stage = Stage::Fresh { socket };
                (!proven).then_some(None)
            }
            Stage::Calling { call, peer, client } => match client.greeted(&greeting, &meeting.token) {
                Ok(proof) => {
                    let (call, peer) = (call.clone(), *peer);
                    let said = matches!(h.channel.send(proof.as_bytes(), &[]), Ok(true))
                        && matches!(self.say_request(&h.channel, &call, peer), Ok(true));
                    h.stage = Stage::Asking { call, peer };
                    (!said).then_some(None)
                }
                Err(error) => Some(Some((call.clone(), error))),
            },
            _ => None,
        };
        drop(control);
        point("greet.answered");
        match failure {
            None => {}
            Some(None) => self.drop_handshake(id),
            Some(Some((call, error))) => {
                drop(self.take_handshake(id));
                self.refused(&call, error);
            }
        }
    }

    /// A greeting of another version: a client is told by a greeting of ours, and a request of ours is refused.
    fn other_greeting(self: &Arc<Core>, id: u64, meeting: &Meeting, error: Error) {
        let Some(h) = self.take_handshake(id) else { return };
        match h.stage.call() {
            Some(call) => self.refused(call, error),
            None => drop(h.channel.send(Client::new(meeting, 0).1.as_bytes(), &[])),
        }
    }

    /// An empty directory, for other users: where our regions are is none of their business. Made when first needed.
    pub(super) fn no_directory(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.no_directory.get().is_none() {
            let empty = Segment::create_read_only_for_peers("viaduct-none", chunk_len(0), &self.budget)?;
            let _ = self.no_directory.set(empty);
        }
        let empty = self.no_directory.get().and_then(Segment::fd);
        empty.ok_or(Error::Protocol("a segment without descriptor"))
    }
}
