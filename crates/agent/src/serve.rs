//! The agent's life: its doors, a worker for each conversation, and an end when nothing happens.
//!
//! The agent itself does little, so that little can break it: it checks its callers, and forks. A worker is guarded: it is
//! told when the agent dies, and what it leaves behind when *it* dies the agent kills.

use std::collections::VecDeque;
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use viaduct_os::children::{self, Forked, Reaped};
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::fdpass::{Channel, Listener, Recv};
use viaduct_os::process;
use viaduct_os::signals::{SignalFd, number};

use crate::error::Error;
use crate::identity::{Identity, PublicKey};
use crate::link::Link;
use crate::meet;
use crate::ticket::Ticket;

/// The name of the agent's socket in the run-time folder.
pub const SOCKET: &str = "agent";
/// Callers that have not proven their key: so many, so long.
const MOST_STRANGERS: usize = 64;
const STRANGER: Duration = Duration::from_secs(10);
/// Most keys that are known at once.
const MOST_KEYS: usize = 1024;

const UNIX: u64 = 0;
const TCP: u64 = 1;
const SIGNALS: u64 = 2;
const MEETING: u64 = 3;
const CALLER: u64 = 16;

/// Something that an agent can do.
pub trait Role {
    /// Callers ask for it by this name.
    fn name(&self) -> &'static str;

    /// Does it, in a process of its own; `first` is what the caller said first. More may have come with it: read the link
    /// once before waiting for it. The status of that process.
    fn run(&self, link: Link, first: &[u8]) -> u8;
}

/// How an agent is set up.
#[derive(Debug)]
pub struct Settings<'a> {
    /// The run-time folder.
    pub folder: &'a Path,
    /// How long it stays when nothing happens.
    pub idle: Duration,
    /// Whether root may do this.
    pub allow_root: bool,
}

/// What the agent of a host is asked for over its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Ask {
    /// Let the owner of this key in.
    Admit([u8; 32]),
    /// Leave, once all workers are done.
    Leave,
}

/// Where an agent can be found, and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its port.
    pub port: u16,
    /// Its key.
    pub key: [u8; 32],
    /// Its process.
    pub pid: u32,
}

/// The first message of a caller.
pub fn first_message(role: &str, rest: &[u8]) -> Vec<u8> {
    [&[role.len() as u8], role.as_bytes(), rest].concat()
}

fn read_first(message: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = message.split_first()?;
    let (role, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((std::str::from_utf8(role).ok()?, rest))
}

/// Asks the agent of this host to let the owner of a key in; tells where the agent is.
///
/// # Errors
/// If there is none.
pub fn admit(folder: &Path, key: PublicKey) -> Result<Place, Error> {
    ask(folder, &Ask::Admit(key.0))
}

/// Asks the agent of this host to leave.
///
/// # Errors
/// If there is none.
pub fn leave(folder: &Path) -> Result<Place, Error> {
    ask(folder, &Ask::Leave)
}

fn ask(folder: &Path, ask: &Ask) -> Result<Place, Error> {
    let failed = |why: &dyn ToString| Error::system("the agent of this host", why.to_string());
    let channel = Channel::connect(&folder.join(SOCKET)).map_err(|_| Error::NoAgent)?;
    let bytes = postcard::to_stdvec(ask).map_err(|e| failed(&e))?;
    channel.send(&bytes, &[]).map_err(|e| failed(&e))?;
    let epoll = Epoll::new().map_err(|e| failed(&e))?;
    epoll.add(&channel, 0, Interest::Read).map_err(|e| failed(&e))?;
    let end = Instant::now() + STRANGER;
    loop {
        let mut answer = [0; 256];
        match channel.recv(&mut answer, &mut Vec::new(), 0).map_err(|e| failed(&e))? {
            Recv::Message(n) => return postcard::from_bytes(&answer[..n]).map_err(|e| failed(&e)),
            Recv::Closed => return Err(failed(&"it hung up")),
            Recv::WouldBlock if Instant::now() < end => {
                epoll.wait(&mut Vec::new(), Some(Duration::from_millis(100))).map_err(|e| failed(&e))?;
            }
            Recv::WouldBlock => return Err(failed(&"it does not answer")),
        }
    }
}

/// Runs the agent of this user and host until nothing happens any more. The process must have one thread.
///
/// # Errors
/// If there is one already, or root was not allowed to.
pub fn serve(settings: &Settings<'_>, roles: &[&dyn Role]) -> Result<(), Error> {
    if process::effective_uid() == 0 && !settings.allow_root {
        return Err(Error::Root);
    }
    let mut agent = Agent::new(settings, roles)?;
    while !agent.is_over() {
        agent.turn()?;
    }
    // Workers that are still there end with us, and nothing of theirs stays.
    agent.workers.iter().for_each(|&pid| children::signal(pid, number::TERM));
    Ok(())
}

struct Agent<'a> {
    settings: &'a Settings<'a>,
    roles: &'a [&'a dyn Role],
    identity: Identity,
    keys: Vec<PublicKey>,
    unix: Listener,
    guests: VecDeque<(Channel, Instant)>,
    /// None in a worker, which has no doors.
    tcp: Option<TcpListener>,
    port: u16,
    /// Where agents of other users come, unless another process has taken the name: then they do without us.
    meeting: Option<UnixListener>,
    strangers: Vec<Option<(Link, Instant)>>,
    signals: SignalFd,
    epoll: Epoll,
    workers: Vec<i32>,
    used: Instant,
    leaving: bool,
}

impl<'a> Agent<'a> {
    fn new(settings: &'a Settings<'a>, roles: &'a [&'a dyn Role]) -> Result<Agent<'a>, Error> {
        let failed = |why: &dyn ToString| Error::system("starting the agent", why.to_string());
        let signals = SignalFd::block(&[number::CHLD, number::TERM, number::INT, number::HUP])
            .map_err(|e| failed(&e))?;
        children::adopt_orphans().map_err(|e| failed(&e))?;
        let unix = Listener::bind(&settings.folder.join(SOCKET)).map_err(|e| failed(&e))?;
        // All addresses of both families; where there is no IPv6, those of IPv4.
        let tcp = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind("0.0.0.0:0"));
        let tcp = tcp.map_err(|e| failed(&e))?;
        tcp.set_nonblocking(true).map_err(|e| failed(&e))?;
        let port = tcp.local_addr().map_err(|e| failed(&e))?.port();
        let epoll = Epoll::new().map_err(|e| failed(&e))?;
        epoll.add(&unix, UNIX, Interest::Read).map_err(|e| failed(&e))?;
        epoll.add(&tcp, TCP, Interest::Read).map_err(|e| failed(&e))?;
        epoll.add(&signals, SIGNALS, Interest::Read).map_err(|e| failed(&e))?;
        let meeting = meet::listen().ok();
        if let Some(meeting) = &meeting {
            epoll.add(meeting, MEETING, Interest::Read).map_err(|e| failed(&e))?;
        }
        Ok(Agent {
            settings,
            roles,
            identity: Identity::of_user(settings.folder)?,
            keys: Vec::new(),
            unix,
            guests: VecDeque::new(),
            tcp: Some(tcp),
            port,
            meeting,
            strangers: Vec::new(),
            signals,
            epoll,
            workers: Vec::new(),
            used: Instant::now(),
            leaving: false,
        })
    }

    fn is_over(&self) -> bool {
        let quiet = self.workers.is_empty() && self.strangers.iter().all(Option::is_none);
        quiet && (self.leaving || self.used.elapsed() >= self.settings.idle)
    }

    fn turn(&mut self) -> Result<(), Error> {
        let mut ready = Vec::new();
        let look = self.settings.idle.min(Duration::from_secs(1));
        self.epoll.wait(&mut ready, Some(look)).map_err(|e| Error::system("waiting", e))?;
        for event in ready {
            match event.token {
                UNIX => {}
                TCP => self.accept(),
                SIGNALS => self.signals(),
                MEETING => self.meeting.iter().for_each(meet::greet),
                token => self.caller((token - CALLER) as usize),
            }
        }
        self.guests();
        let old = |entry: &Option<(Link, Instant)>| {
            entry.as_ref().is_some_and(|(_, since)| since.elapsed() > STRANGER)
        };
        for entry in self.strangers.iter_mut().filter(|entry| old(entry)) {
            *entry = None;
        }
        Ok(())
    }

    fn signals(&mut self) {
        while let Some(signal) = self.signals.take() {
            if signal != number::CHLD {
                self.leaving = true;
                self.workers.iter().for_each(|&pid| children::signal(pid, number::TERM));
            }
        }
        while let Reaped::Ended(pid, _) = children::reap() {
            if let Some(at) = self.workers.iter().position(|&worker| worker == pid) {
                self.workers.remove(at);
                self.used = Instant::now();
                children::kill_strays(&self.workers);
            }
        }
    }

    /// Those of the same user on this host. The oldest one that said nothing makes room for a new one.
    fn guests(&mut self) {
        for _ in 0..MOST_STRANGERS {
            let Ok(Some(guest)) = self.unix.accept() else { break };
            let ours = guest.peer().is_ok_and(|peer| peer.uid == process::effective_uid());
            if ours && self.epoll.add(&guest, UNIX, Interest::Read).is_ok() {
                if self.guests.len() >= MOST_STRANGERS {
                    self.guests.pop_front();
                }
                self.guests.push_back((guest, Instant::now()));
            }
        }
        let mut asked = Vec::new();
        let place = Place { port: self.port, key: self.identity.public().0, pid: std::process::id() };
        self.guests.retain(|(guest, since)| {
            let mut bytes = [0; 256];
            let ask = match guest.recv(&mut bytes, &mut Vec::new(), 0) {
                Ok(Recv::WouldBlock) => return since.elapsed() < STRANGER,
                Ok(Recv::Message(n)) => postcard::from_bytes::<Ask>(&bytes[..n]),
                _ => return false,
            };
            let Ok(ask) = ask else { return false };
            asked.push(ask);
            let _ = guest.send(&postcard::to_stdvec(&place).unwrap_or_default(), &[]);
            true
        });
        for ask in asked {
            self.used = Instant::now();
            match ask {
                Ask::Leave => self.leaving = true,
                Ask::Admit(key) if !self.keys.contains(&PublicKey(key)) => {
                    self.keys.truncate(MOST_KEYS - 1);
                    self.keys.push(PublicKey(key));
                }
                Ask::Admit(_) => {}
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..MOST_STRANGERS {
            let Some(Ok((stream, _))) = self.tcp.as_ref().map(TcpListener::accept) else { return };
            let place = self.strangers.iter().position(Option::is_none).unwrap_or(self.strangers.len());
            if place >= MOST_STRANGERS {
                continue; // dropped: too many callers have said nothing yet
            }
            let Ok(mut link) = Link::answer(stream, &self.identity) else { continue };
            link.arm(&self.epoll, CALLER + place as u64, true);
            let entry = Some((link, Instant::now()));
            if place == self.strangers.len() {
                self.strangers.push(entry)
            } else {
                self.strangers[place] = entry
            }
        }
    }

    fn caller(&mut self, place: usize) {
        let Some(Some((link, _))) = self.strangers.get_mut(place) else { return };
        let mut messages = Vec::new();
        let keys = &self.keys;
        let identity = &self.identity;
        let admit = |key: PublicKey, shown: &[u8]| {
            let good = |ticket: &Ticket| keys.contains(&ticket.giver()) && ticket.admits(identity, key);
            keys.contains(&key) || Ticket::parse(shown).is_some_and(|ticket| good(&ticket))
        };
        let good = link.read(&admit, &mut messages);
        link.arm(&self.epoll, CALLER + place as u64, true);
        match (good, messages.is_empty()) {
            (Ok(true), true) => {}
            (Ok(true), false) => {
                let (mut link, _) = self.strangers[place].take().expect("it was just there");
                link.forget(&self.epoll);
                let first = messages.remove(0);
                // A caller with a ticket says what it is for, and nothing else.
                if Ticket::parse(link.shown()).is_some_and(|ticket| !ticket.is_for(&first)) {
                    return;
                }
                link.unread(messages);
                self.used = Instant::now();
                self.start(link, &first);
            }
            _ => self.strangers[place] = None,
        }
    }

    fn start(&mut self, link: Link, first: &[u8]) {
        let Some((name, rest)) = read_first(first) else { return };
        let Some(role) = self.roles.iter().find(|role| role.name() == name) else { return };
        match children::fork_worker() {
            Ok(Forked::Parent(pid)) => self.workers.push(pid),
            Ok(Forked::Worker) => {
                // The doors and other callers are the agent's: a connection that this process held, too, would not be
                // seen to end when the agent ends. Its epoll set is one set for both, and is not touched.
                self.strangers.clear();
                self.guests.clear();
                (self.tcp, self.meeting) = (None, None);
                let _ = children::adopt_orphans();
                let status = role.run(link, rest);
                children::quit(status);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_messages_there_and_back() {
        assert_eq!(read_first(&first_message("launch", b"plan")), Some(("launch", &b"plan"[..])));
        assert_eq!(read_first(&[]), None);
        assert_eq!(read_first(&[9, b'x']), None);
    }
}
