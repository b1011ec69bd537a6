//! Connecting: a process asks the ranks below it for a connection, those above ask it; at the start or on first use.
//!
//! On first use two ranks may ask each other at the same time: the request of the higher one counts, the lower one's is
//! refused as a crossing one and comes to nothing. Any other refusal means that there is no connection, and says why.

use std::time::{Duration, Instant};

use viaduct_via::{ConnRequest, Error, Listener, NetAddress, Vi};

use super::links::Links;

/// How long a connection may take: only a rank that died keeps others waiting.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long after a refusal as a crossing request the other rank's may take, before this rank asks again.
const CROSSING: Duration = Duration::from_secs(1);
/// What is told with a refusal because the rank that refuses has itself asked.
const CROSSED: &[u8] = b"crossed";
/// Most bytes of a cause that are told with a refusal.
const CAUSE: usize = 100;
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
    /// Ranks whose own request is to come, and when they are asked again if it does not.
    crossed: Vec<(usize, Instant)>,
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
            crossed: Vec::new(),
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
        self.ask_again();
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
                Err(why) => {
                    self.drop_vi(vi);
                    match why {
                        Error::Rejected(words) if words == CROSSED => {
                            self.wire.crossed.push((peer, Instant::now() + CROSSING));
                        }
                        Error::Rejected(words) => self.lose(peer, refused(&words)),
                        why => self.lose(peer, unreachable(&why)),
                    }
                }
            }
        }
        while let Some(listener) = self.wire.listener
            && let Ok(Some(request)) = self.nic.poll_listener(listener)
        {
            self.answer(request, &mut opened);
        }
        opened
    }

    /// Asks ranks whose own request has not come: most likely they have ended.
    fn ask_again(&mut self) {
        if self.wire.crossed.is_empty() {
            return;
        }
        let now = Instant::now();
        let due = self.wire.crossed.extract_if(.., |(_, at)| *at <= now);
        self.wire.wanted.extend(due.map(|(peer, _)| peer));
    }

    fn answer(&mut self, request: ConnRequest, opened: &mut Vec<usize>) {
        let Some(peer) = self.wire.asker(&request) else {
            let _ = self.nic.reject(request);
            return;
        };
        let asked = self.wire.asked.iter().position(|(other, _)| *other == peer);
        if self.is_bound(peer) || asked.is_some() && peer < self.wire.me {
            let _ = self.nic.reject_with(request, CROSSED);
            return;
        }
        if let Some(at) = asked {
            let (_, vi) = self.wire.asked.swap_remove(at);
            self.drop_vi(vi);
        }
        match self.vi_for(peer) {
            Ok(vi) => match self.nic.accept(request, vi) {
                Ok(()) => self.stands(peer, vi, opened),
                Err(refused) => {
                    self.drop_vi(vi);
                    self.lose(peer, unreachable(&refused.error));
                }
            },
            Err(why) => {
                let words = why.to_string();
                let _ = self.nic.reject_with(request, &words.as_bytes()[..words.len().min(CAUSE)]);
                self.lose(peer, unreachable(&why));
            }
        }
    }

    fn ask(&mut self, peer: usize) -> Result<(), Error> {
        let vi = self.vi_for(peer)?;
        let (address, card) = (self.wire.addresses[peer].clone(), self.wire.card());
        if let Err(why) = self.nic.connect_start(vi, None, &address, &card, Some(PATIENCE)) {
            self.drop_vi(vi);
            return Err(why);
        }
        self.wire.asked.push((peer, vi));
        Ok(())
    }

    fn stands(&mut self, peer: usize, vi: Vi, opened: &mut Vec<usize>) {
        self.bind(peer, vi);
        self.wire.missing -= 1;
        opened.push(peer);
    }

    /// Gives up a VI that was never connected, with its receives.
    pub(super) fn drop_vi(&mut self, vi: Vi) {
        let _ = self.nic.retire(vi);
    }
}

const LESS: &str = "fewer VIADUCT_MPI_CREDITS need less shared memory";
const OTHER: &str = "VIADUCT_NODE_NAME may name an address at which the other ranks reach this one";

fn unreachable(why: &Error) -> String {
    let hint = match why {
        Error::NotReachable(_) | Error::NoMatch(_) | Error::Timeout => OTHER,
        _ => LESS,
    };
    format!("it could not be connected: {why}; hint: {hint}")
}

/// What a rank says that refuses a connection: it has no memory for one.
fn refused(words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    format!("it could not be connected: the other side says: {words}; hint: {LESS}")
}
