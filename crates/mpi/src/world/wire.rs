//! Connecting: a process asks the ranks below it for a connection, those above ask it; at the start or on first use.
//!
//! On first use two ranks may ask each other at the same time: the request of the higher one counts, the lower one's is
//! refused and comes to nothing.

use std::time::Duration;

use viaduct_via::{ConnRequest, Error, Listener, NetAddress, Vi};

use super::links::Links;

/// How long a connection may take: only a rank that died keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes by which a request proves to be of this job.
pub(super) const KEY: usize = 16;

/// What is known of the ranks' addresses, and requests under way.
pub(super) struct Wire {
    me: usize,
    key: [u8; KEY],
    listener: Option<Listener>,
    addresses: Vec<NetAddress>,
    wanted: Vec<usize>,
    asked: Vec<(usize, Vi)>,
    /// Ranks that are not connected yet.
    missing: usize,
}

impl Wire {
    /// A process that listens, and has no peers yet.
    pub(super) fn new(me: usize, listener: Option<Listener>) -> Wire {
        Wire {
            me,
            key: [0; KEY],
            listener,
            addresses: Vec::new(),
            wanted: Vec::new(),
            asked: Vec::new(),
            missing: 0,
        }
    }

    /// The addresses of all ranks, and what proves that a request is of this job.
    pub(super) fn meet(&mut self, addresses: Vec<NetAddress>, key: [u8; KEY]) {
        self.missing = addresses.len() - 1;
        (self.addresses, self.key) = (addresses, key);
    }

    /// A connection with this rank is needed.
    pub(super) fn want(&mut self, peer: usize) {
        self.wanted.push(peer);
    }

    /// Whether connections are still to come.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.missing > 0
    }

    /// How many ranks are not connected yet.
    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    fn card(&self) -> Vec<u8> {
        [&self.key[..], &(self.me as u32).to_le_bytes()].concat()
    }

    /// The rank that asks, if the request is of this job.
    fn asker(&self, request: &ConnRequest) -> Option<usize> {
        let card = &request.remote().private_data;
        let (key, rank) = card.split_at_checked(KEY)?;
        let rank = u32::from_le_bytes(rank.try_into().ok()?) as usize;
        (key == self.key && rank < self.addresses.len() && rank != self.me).then_some(rank)
    }
}

impl Links {
    /// Moves connections on. Returns the ranks whose connection stands from now on.
    pub(super) fn connect(&mut self) -> Vec<usize> {
        let mut opened = Vec::new();
        while let Some(peer) = self.wire.wanted.pop() {
            let asked = self.is_bound(peer) || self.wire.asked.iter().any(|(other, _)| *other == peer);
            if asked {
                continue;
            }
            if let Err(why) = self.ask(peer) {
                self.lose(peer, unreachable(&why));
            }
        }
        for (peer, vi) in std::mem::take(&mut self.wire.asked) {
            match self.nic.connect_poll(vi) {
                Ok(None) => self.wire.asked.push((peer, vi)),
                Ok(Some(_)) => self.stands(peer, vi, &mut opened),
                // A rank above us has asked us at the same time, or is about to be found gone.
                Err(Error::Rejected(_)) if peer > self.wire.me => self.drop_vi(vi),
                Err(why) => self.lose(peer, unreachable(&why)),
            }
        }
        while let Some(listener) = self.wire.listener
            && let Ok(Some(request)) = self.nic.poll_listener(listener)
        {
            self.answer(request, &mut opened);
        }
        opened
    }

    fn answer(&mut self, request: ConnRequest, opened: &mut Vec<usize>) {
        let asker = self.wire.asker(&request).filter(|peer| !self.is_bound(*peer));
        let Some(peer) = asker else {
            let _ = self.nic.reject(request);
            return;
        };
        if let Some(at) = self.wire.asked.iter().position(|(other, _)| *other == peer) {
            if peer < self.wire.me {
                let _ = self.nic.reject(request);
                return;
            }
            let (_, vi) = self.wire.asked.swap_remove(at);
            self.drop_vi(vi);
        }
        match self.vi_for(peer) {
            Ok(vi) => match self.nic.accept(request, vi) {
                Ok(()) => self.stands(peer, vi, opened),
                Err(refused) => self.lose(peer, unreachable(&refused.error)),
            },
            Err(why) => {
                let _ = self.nic.reject(request);
                self.lose(peer, unreachable(&why));
            }
        }
    }

    fn ask(&mut self, peer: usize) -> Result<(), Error> {
        let vi = self.vi_for(peer)?;
        let (address, card) = (self.wire.addresses[peer].clone(), self.wire.card());
        self.nic.connect_start(vi, None, &address, &card, Some(PATIENCE))?;
        self.wire.asked.push((peer, vi));
        Ok(())
    }

    fn stands(&mut self, peer: usize, vi: Vi, opened: &mut Vec<usize>) {
        self.bind(peer, vi);
        self.wire.missing -= 1;
        opened.push(peer);
    }

    /// Gives up a VI that was never connected; its receives come back as flushed and belong to no rank.
    fn drop_vi(&mut self, vi: Vi) {
        let _ = self.nic.disconnect(vi);
    }
}

fn unreachable(why: &Error) -> String {
    format!("it could not be connected: {why}; hint: fewer VIADUCT_MPI_CREDITS need less shared memory")
}
