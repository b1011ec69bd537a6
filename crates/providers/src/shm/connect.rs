//! Connection set-up: request, accept, acknowledge over a Unix socket in the user's run-time folder.
//!
//! ```text
//!   client                         server
//!   REQUEST  page directory bell ─▶        its NIC's owner sees the request
//!            ◀─ ACCEPT page directory bell lane      or REJECT, NO_MATCH, FULL, EXHAUSTED
//!   ACK      ─▶                            only if the server had a channel to this NIC before
//! ```
//!
//! The socket becomes the pair's channel for each end that has none yet. A server that had one says so in ACCEPT and waits for
//! ACK, which tells whether the client keeps the socket; else both know and nothing more is said. Notes between the two NICs
//! follow over the same socket, and none may be ahead of ACCEPT or ACK (`Pair::introduced`).
//!
//! This file is what both sides do. [`client`] and [`server`] have the steps of each, [`peer`] those of two NICs that
//! ask for each other, [`sockets`] the listening addresses. Processes of different users meet elsewhere, and greet first
//! ([`greet`]).

mod client;
mod greet;
mod peer;
mod server;
mod sockets;
#[cfg(all(test, not(loom)))]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use smallvec::SmallVec;
use viaduct_os::barrier;
use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::{Channel, Recv, close_apart};
use viaduct_os::point::point;
use viaduct_via::Error;
use viaduct_via::provider::Event;
use zerocopy::IntoBytes;

use super::control::{CHANNEL, Handshake, MOST_EXTRA, PROCESS, Stage, token};
use super::nic::Core;
use super::pair::{Modes, Pair, Passed, lock};
use super::wire::{Hello, hello};

/// Told to a client whose server hangs up.
const NOT_LET_IN: &str = "the listener hung up on our greeting; its shm.other-users has to name our user";

impl Core {
    /// Something came from a connection being set up.
    pub(crate) fn handshake(self: &Arc<Core>, id: u64, buffer: &mut [u8]) {
        let mut fds = Vec::new();
        let received = {
            let control = lock(&self.control);
            let Some(h) = control.handshakes.get(&id) else { return };
            h.channel.recv(buffer, &mut fds, 4)
        };
        let hello = match received {
            Ok(Recv::WouldBlock) => return,
            Ok(Recv::Message(n)) if self.is_greeting(id) => {
                close_apart(fds);
                self.greeted(id, &buffer[..n]);
                return;
            }
            Ok(Recv::Message(n)) => Hello::parse(&buffer[..n]),
            Ok(Recv::Closed) => {
                self.drop_handshake(id);
                return;
            }
            Err(e) => {
                self.fail_handshake(id, e);
                return;
            }
        };
        let hello = match hello {
            Ok(hello) => hello,
            Err(error) => {
                close_apart(fds);
                match error {
                    Error::VersionMismatch { .. } => self.other_version(id, error),
                    _ => self.drop_handshake(id),
                }
                return;
            }
        };
        let (asks, ends) =
            (matches!(hello.kind, hello::REQUEST | hello::PEER_REQUEST), hello.kind == hello::ACK);
        let in_turn = match lock(&self.control).handshakes.get(&id).map(|h| &h.stage) {
            Some(Stage::Fresh { .. }) => asks,
            Some(Stage::Accepted { .. }) => ends,
            Some(Stage::Asking { .. }) => !asks && !ends,
            _ => false,
        };
        match in_turn {
            // A message out of turn ends the attempt.
            false => {
                close_apart(fds);
                self.drop_handshake(id);
            }
            true if asks => self.requested(id, hello, fds),
            true if ends => {
                close_apart(fds);
                self.acknowledged(id, &hello);
            }
            true => self.answered(id, hello, fds),
        }
    }

    /// The other side speaks another version: a client is told by us, a client of ours is told why.
    fn other_version(self: &Arc<Core>, id: u64, error: Error) {
        let Some(h) = self.take_handshake(id) else { return };
        match h.stage.call() {
            Some(call) => self.refused(call, error),
            None => drop(h.channel.send(Hello::new(hello::WRONG_VERSION, self.uid).as_bytes(), &[])),
        }
    }

    /// What came could not be taken, for want of descriptors perhaps: not the peer's fault.
    fn fail_handshake(self: &Arc<Core>, id: u64, error: OsError) {
        let asking = lock(&self.control).handshakes.get(&id).map(|h| h.stage.call().cloned());
        let Some(Some(call)) = asking else {
            // A client may ask again later.
            return match error {
                OsError::Fds { .. } => self.finish_with(id, hello::EXHAUSTED, &[]),
                _ => self.drop_handshake(id),
            };
        };
        drop(self.take_handshake(id));
        self.refused(&call, Error::Os(error));
    }

    /// A connection being set up ended before its time.
    pub(crate) fn drop_handshake(self: &Arc<Core>, id: u64) {
        let asked = {
            let control = lock(&self.control);
            match control.handshakes.get(&id).map(|h| &h.stage) {
                Some(Stage::Asked { request, .. }) => Some(*request),
                _ => None,
            }
        };
        if let Some(request) = asked {
            // The owner may have been told of it already; its accept will fail.
            self.take_asked(request);
            lock(&self.control)
                .events
                .retain(|e| !matches!(e, Event::Incoming { request: r, .. } if *r == request));
            return;
        }
        let Some(h) = self.take_handshake(id) else { return };
        match h.stage {
            Stage::Asking { call, peer: true } | Stage::Calling { call, peer: true, .. } => {
                self.peer_not_there(&call);
            }
            Stage::Calling { call, .. } => self.refused(&call, Error::NotOfThisJob(NOT_LET_IN)),
            Stage::Asking { call, .. } => self.refused(&call, Error::NoMatch(call.remote.to_string())),
            Stage::Accepted { pair, lane, .. } => self.abandoned(&pair, lane),
            _ => {}
        }
    }

    fn take_handshake(&self, id: u64) -> Option<Handshake> {
        let h = lock(&self.control).handshakes.remove(&id)?;
        let _ = self.epoll.del(&h.channel);
        Some(h)
    }

    /// The pair with the sender of a hello. The channel is left to the caller if the pair had one already, or there can be
    /// none; else the caller says what it has to say over the pair's and then calls `Pair::introduced`.
    fn pair_with(
        self: &Arc<Core>,
        channel: &mut Option<Channel>,
        hello: &Hello,
        passed: Passed,
    ) -> Result<Arc<Pair>, Error> {
        // One side without membarrier, and both must fence for themselves.
        if !hello.asymmetric() {
            barrier::force_symmetric();
        }
        // The number is no secret among a NIC's peers. One that comes from another process is another NIC, so that a process
        // which uses a number it has seen keeps its owner from nothing.
        let from = channel.as_ref().ok_or(Error::Protocol("a pair without a channel"))?;
        let key = (hello.uid, from.peer()?.pid);
        let mut control = lock(&self.control);
        if let Some(pair) = control.pairs.get(&key) {
            return Ok(pair.clone());
        }
        let id = control.number();
        let foreign = hello.isolated() || self.is_foreign(from)?;
        let modes = Modes { foreign, direct: self.config.direct, vm: self.config.process_vm };
        point("pair.before-open");
        let wake = self.wake.clone();
        let pair = Arc::new(Pair::open(id, channel, hello, passed, self.config.ring_slots, modes, wake)?);
        point("pair.opened");
        self.epoll.add(&pair.channel, token(CHANNEL, id), Interest::Read)?;
        self.epoll.add(pair.pidfd.as_fd(), token(PROCESS, id), Interest::Read)?;
        control.pairs.insert(key, pair.clone());
        if self.crowd.has_asked() {
            pair.ask_for_fences(); // what we said to it may be older than that
        }
        point("pair.watched");
        Ok(pair)
    }

    /// A connection was not to be: its pair goes too, unless there are others.
    fn drop_unused_pair(self: &Arc<Core>, pair: &Arc<Pair>) {
        let used = lock(&self.lanes).values().any(|lane| Arc::ptr_eq(&lane.pair, pair));
        if !used {
            self.peer_gone(pair);
        }
    }

    /// The server speaks to us over this channel, although we have another one.
    fn keep_extra(self: &Arc<Core>, channel: Channel, pair: &Arc<Pair>) -> Result<(), Error> {
        let mut control = lock(&self.control);
        if control.extra.values().filter(|(_, p)| Arc::ptr_eq(p, pair)).count() >= MOST_EXTRA {
            return Err(Error::Protocol("too many channels"));
        }
        let id = control.number();
        self.epoll.add(&channel, token(CHANNEL, id), Interest::Read)?;
        control.extra.insert(id, (channel, pair.clone()));
        Ok(())
    }

    /// Our page, directory and bell, as peers of our own user get them. Another user gets the page and an empty directory.
    fn own_fds(&self, foreign: bool) -> Result<SmallVec<[BorrowedFd<'_>; 4]>, Error> {
        let none = || Error::Protocol("a segment without descriptor");
        // The first part of the directory lives as long as the NIC, so its descriptor does too.
        let page = self.page_segment.fd().ok_or_else(none)?;
        Ok(match foreign {
            true => SmallVec::from_slice(&[page, self.no_directory()?]),
            false => SmallVec::from_slice(&[page, self.directory_fd.as_fd(), self.bell_fd.as_fd()]),
        })
    }
}
