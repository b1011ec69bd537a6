//! What the agent does for preloaded programs: it takes claims, finds the two ends of one connection, and hands out
//! the segment and the bells.
//!
//! A claim brings the socket itself; the kernel says which connection it is and to which namespace it belongs, so nothing
//! can be claimed that is not held. The socket is closed again before the answer goes out: the agent never keeps a
//! connection open. Only processes of the agent's own user are answered.

mod connections;
mod proc_net;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use viaduct_agent::local::Resident;
use viaduct_os::bare::calls;
use viaduct_os::bare::sockets::{self, Side};
use viaduct_os::children;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::process;
use viaduct_os::segment::Segment;
use viaduct_via::counters::LayerSlot;

use crate::layout::SEGMENT;
use crate::wire::{self, Answer, Verdict};
use connections::{Connections, Place, Tuple};

/// Processes that are served at a time, if there are descriptors for them.
const MOST_GUESTS: usize = 8192;
/// Processes that are served at a time under the usual hard limit of descriptors, 4,096.
const LEAST_GUESTS: usize = 1024;
/// Connections that are remembered at a time, likewise.
const MOST_CONNECTIONS: usize = 16_384;
/// Descriptors of a connection.
const EACH: usize = 3;
/// Descriptors for all else: this program's own, and what a claim brings until it is answered.
const OTHERS: usize = 64;
/// How often connections that are gone are looked for while new ones come, and at least.
const SWEEP: Duration = Duration::from_secs(5);
const SWEEP_IDLE: Duration = Duration::from_secs(60);
/// Reasons that are told apart.
const MOST_REASONS: usize = 60;
/// Claims of one process that are answered before others have their turn.
const MOST_CLAIMS: usize = 16;

/// Counters of claims, in the order of [`Verdict::ALL`].
const COUNTED: [&str; Verdict::ALL.len()] =
    ["granted", "malformed", "not-connected", "other-namespace", "to-itself", "exhausted"];

const SO_NETNS_COOKIE: i32 = 71;
const LISTENER: u64 = 0;

/// What a connection is given.
#[derive(Debug)]
struct Rings {
    segment: Segment,
    bells: [EventFd; 2],
}

impl Rings {
    fn new() -> Result<Rings, OsError> {
        // Pages come as they are used: most connections never fill their rings.
        let segment = Segment::create_sparse("viaduct-rings", SEGMENT)?;
        Ok(Rings { segment, bells: [EventFd::new()?, EventFd::new()?] })
    }
}

/// The role.
#[derive(Debug)]
pub struct Claims {
    listener: Listener,
    epoll: Epoll,
    guests: HashMap<u64, Channel>,
    most_guests: usize,
    next_guest: u64,
    connections: Connections<Rings>,
    namespace: Option<u64>,
    swept: Instant,
    /// How long after that the next look is due, if no new connection comes.
    pause: Duration,
    /// What became of claims, by verdict; `viaduct stat` shows it.
    counters: Option<LayerSlot>,
    upgraded: u64,
    /// Ends of connections that stay on TCP, by reason.
    left: BTreeMap<String, u64>,
}

impl Claims {
    /// Takes claims at this abstract name, with as many descriptors as this process may get.
    ///
    /// # Errors
    /// If the name is taken: another agent is there already.
    pub fn new(name: &[u8]) -> Result<Claims, OsError> {
        let listener = Listener::bind_abstract(name)?;
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, Interest::Read)?;
        let namespace = long_option(listener.as_fd(), SO_NETNS_COOKIE);
        let (most_guests, most) = shares(children::raise_open_files() as usize);
        Ok(Claims {
            listener,
            epoll,
            guests: HashMap::new(),
            most_guests,
            next_guest: LISTENER + 1,
            // Fewer connections are made than nanoseconds pass.
            connections: Connections::new(most, calls::now().max(1)),
            namespace,
            swept: Instant::now(),
            pause: SWEEP,
            // Without memory for it, nothing is counted.
            counters: LayerSlot::open("intercept", &COUNTED).ok(),
            upgraded: 0,
            left: BTreeMap::new(),
        })
    }

    fn accept(&mut self) {
        while let Ok(Some(guest)) = self.listener.accept() {
            let ours = guest.peer().is_ok_and(|peer| peer.uid == process::effective_uid());
            let token = self.next_guest;
            let room = self.guests.len() < self.most_guests;
            if ours && room && self.epoll.add(&guest, token, Interest::Read).is_ok() {
                self.next_guest += 1;
                self.guests.insert(token, guest);
            }
        }
    }

    /// Answers a guest; `None` once it is gone or has talked nonsense.
    fn serve(&mut self, token: u64) -> Option<()> {
        for _ in 0..MOST_CLAIMS {
            let guest = self.guests.get(&token)?;
            let (mut bytes, mut fds) = ([0; wire::NOTE + 1], Vec::new());
            let len = match guest.recv(&mut bytes, &mut fds, 1) {
                Ok(Recv::Message(len)) => len,
                Ok(Recv::WouldBlock) => return Some(()),
                Ok(Recv::Closed) | Err(_) => return None,
            };
            if let Some(reason) = wire::parse_note(&bytes[..len]) {
                self.count(reason);
                continue;
            }
            if bytes[..len] == wire::question() {
                guest.send(self.counts().as_bytes(), &[]).ok().filter(|&sent| sent)?;
                continue;
            }
            let socket = fds.pop().filter(|_| wire::is_claim(&bytes[..len]));
            let (answer, rings) = match socket {
                Some(socket) => self.judge(socket),
                None => (Answer::refusal(Verdict::Malformed), None),
            };
            if let Some(counters) = &self.counters {
                counters.add(answer.verdict as usize, 1);
            }
            let guest = self.guests.get(&token)?;
            let sent = match rings.and_then(|place| self.connections.get(place)) {
                Some(rings) => {
                    let side = answer.side as usize & 1;
                    let segment = rings.segment.fd()?;
                    let all = [segment, rings.bells[side].as_fd(), rings.bells[1 - side].as_fd()];
                    guest.send(&answer.render(), &all)
                }
                None => guest.send(&answer.render(), &[]),
            };
            sent.ok().filter(|&sent| sent)?;
        }
        Some(())
    }

    fn count(&mut self, reason: &str) {
        if let Some(count) = self.left.get_mut(reason) {
            *count += 1;
        } else if self.left.len() < MOST_REASONS {
            self.left.insert(reason.to_owned(), 1);
        }
    }

    /// What was counted, as text.
    fn counts(&self) -> String {
        let mut text = format!("{} upgraded\n", self.upgraded);
        for (reason, count) in &self.left {
            text += &format!("{count} {reason}\n");
        }
        text.truncate(wire::COUNTS);
        text
    }

    /// Which connection it is, and what it gets. The socket is closed on the way.
    fn judge(&mut self, socket: OwnedFd) -> (Answer, Option<Place>) {
        let refused = |verdict| (Answer::refusal(verdict), None);
        let fd = socket.as_raw_fd();
        let names = [Side::Own, Side::Peer].map(|side| sockets::name(fd, side).ok().flatten());
        let ([Some(own), Some(peer)], Some(cookie)) = (names, long_option(socket.as_fd(), libc::SO_COOKIE))
        else {
            return refused(Verdict::NotConnected);
        };
        let namespace = long_option(socket.as_fd(), SO_NETNS_COOKIE);
        drop(socket);
        if namespace != self.namespace {
            return refused(Verdict::OtherNamespace);
        }
        if own == peer {
            return refused(Verdict::ToItself);
        }
        match self.connections.claim(Tuple { own, peer }, cookie, Instant::now(), Rings::new) {
            Ok(claimed) => {
                if !claimed.again {
                    self.pause = SWEEP;
                }
                self.upgraded += u64::from(claimed.second && !claimed.again);
                let answer = Answer {
                    verdict: Verdict::Granted,
                    side: claimed.side,
                    second: claimed.second,
                    again: claimed.again,
                    id: claimed.id,
                };
                (answer, Some(claimed.place))
            }
            Err(_) => refused(Verdict::Exhausted),
        }
    }
}

impl Resident for Claims {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn turn(&mut self) {
        let mut ready = Vec::new();
        if self.epoll.wait(&mut ready, Some(Duration::ZERO)).is_err() {
            return;
        }
        for event in ready {
            if event.token == LISTENER {
                self.accept();
            } else if self.serve(event.token).is_none() {
                self.guests.remove(&event.token);
            }
        }
        if self.swept.elapsed() >= self.pause && !self.connections.is_empty() {
            self.swept = Instant::now();
            self.pause = (self.pause * 2).min(SWEEP_IDLE);
            if let Some(there) = proc_net::connections() {
                self.connections.sweep(Instant::now(), |tuple| there.contains(&tuple));
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.guests.is_empty()
    }
}

/// How many processes and how many connections so many descriptors are for. A process that cannot be accepted would keep the
/// listener ready, so these have their own share: a quarter, or half if that is not enough for [`LEAST_GUESTS`].
fn shares(limit: usize) -> (usize, usize) {
    let limit = limit.saturating_sub(OTHERS);
    let guests = MOST_GUESTS.min((limit / 4).max(LEAST_GUESTS.min(limit / 2)));
    (guests, MOST_CONNECTIONS.min((limit - guests) / EACH))
}

fn long_option(fd: BorrowedFd<'_>, name: i32) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = sockets::option_bytes(fd.as_raw_fd(), libc::SOL_SOCKET, name, &mut bytes).ok()?;
    (len == 8).then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_processes() {
        for limit in [0, 64, 256, 1024, 20_000, 1 << 20] {
            let (guests, connections) = shares(limit);
            assert!(guests + connections * EACH <= limit.saturating_sub(OTHERS), "{limit}");
        }
        assert_eq!(shares(1 << 20), (MOST_GUESTS, MOST_CONNECTIONS));
        assert!(shares(20_000).0 > 4900 && shares(20_000).1 > 4900);
        assert!(shares(4096).0 >= LEAST_GUESTS && shares(4096).1 > 900);
    }
}
