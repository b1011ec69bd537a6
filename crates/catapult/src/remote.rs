//! The launcher's end of a connection to one node.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use viaduct_agent::Link;
use viaduct_agent::serve::first_message;
use viaduct_os::epoll::{self, Epoll};

use crate::far::Far;
use crate::role::ROLE;
use crate::stage::{self, Incoming, Outgoing};
use crate::wire::{End, Event, Order, Start};

/// A silence that is longer counts only so much: whoever slept itself cannot complain about the other.
const MOST_AT_ONCE: Duration = Duration::from_secs(1);

/// Counts how long nothing was heard, in time that we were awake.
#[derive(Debug)]
pub(crate) struct Silence {
    since: Duration,
    looked: Instant,
}

impl Silence {
    pub(crate) fn new() -> Silence {
        Silence { since: Duration::ZERO, looked: Instant::now() }
    }

    /// Something came.
    pub(crate) fn broken(&mut self) {
        self.since = Duration::ZERO;
    }

    /// How long nothing came.
    pub(crate) fn look(&mut self) -> Duration {
        self.since += self.looked.elapsed().min(MOST_AT_ONCE);
        self.looked = Instant::now();
        self.since
    }
}

/// One node on another host.
#[derive(Debug)]
pub struct Remote {
    link: Link,
    node: usize,
    ranks: Vec<(u32, bool)>,
    lease: Duration,
    silence: Silence,
    told: Instant,
    paused: bool,
    over: bool,
    broken: Option<String>,
    put: Vec<Outgoing>,
    get: Vec<PathBuf>,
    incoming: Option<(u32, Incoming)>,
}

impl Remote {
    /// Tells the agent at the other end what to start. `get` has the places here of the files that come back.
    pub fn start(mut link: Link, start: &Start, put: Vec<Outgoing>, get: Vec<PathBuf>) -> Remote {
        let body = postcard::to_stdvec(start).unwrap_or_default();
        let broken = link.say(&first_message(ROLE, &body)).err().map(|why| why.to_string());
        Remote {
            link,
            node: start.plan.node.0 as usize,
            ranks: start.plan.ranks.iter().map(|rank| (rank.rank, false)).collect(),
            lease: Duration::from_millis(start.lease),
            silence: Silence::new(),
            told: Instant::now(),
            paused: false,
            over: false,
            broken,
            put,
            get,
            incoming: None,
        }
    }

    fn say(&mut self, order: &Order) {
        let bytes = postcard::to_stdvec(order).unwrap_or_default();
        if let (None, Err(why)) = (&self.broken, self.link.say(&bytes)) {
            self.broken = Some(why.to_string());
        }
        self.told = Instant::now();
    }

    fn lose(&mut self, why: &str, events: &mut Vec<(usize, Event)>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        for (rank, ended) in &mut self.ranks {
            if !std::mem::replace(ended, true) {
                events.push((self.node, Event::Exited(*rank, End::Lost(why.to_owned()), 0)));
            }
        }
        events.push((self.node, Event::Done));
    }

    fn heard(&mut self, event: Event, events: &mut Vec<(usize, Event)>) {
        match event {
            Event::Need(list) => {
                for index in list {
                    let Some(file) = self.put.get(index as usize).cloned() else { continue };
                    let mut orders = Vec::new();
                    let read = stage::pieces(&file.path, &mut |bytes, last| {
                        orders.push(Order::File(index, bytes, last))
                    });
                    orders.iter().for_each(|order| self.say(order));
                    if let Err(why) = read {
                        self.broken = Some(format!("{}: {why}", file.path.display()));
                    }
                }
            }
            Event::File(index, bytes, last) => {
                let Some(path) = self.get.get(index as usize).cloned() else { return };
                if self.incoming.as_ref().is_none_or(|(current, _)| *current != index) {
                    self.incoming = Incoming::new(&path, 0o644).ok().map(|incoming| (index, incoming));
                }
                let done = self.incoming.as_mut().map(|(_, incoming)| incoming.put(&bytes, last));
                if !matches!(done, Some(Ok(()))) {
                    events.push((
                        self.node,
                        Event::Abort(self.ranks[0].0, 2, format!("{}: cannot be written", path.display())),
                    ));
                }
                if last {
                    self.incoming = None;
                }
            }
            Event::Refused(why) => self.lose(&why, events),
            event => {
                if let Event::Exited(rank, ..) = &event {
                    self.ranks
                        .iter_mut()
                        .filter(|(other, _)| other == rank)
                        .for_each(|(_, ended)| *ended = true);
                }
                self.over |= event == Event::Done;
                events.push((self.node, event));
            }
        }
    }
}

impl Far for Remote {
    fn send(&mut self, order: &Order, epoll: &Epoll, token: u64) {
        if !self.over {
            self.say(order);
            self.link.arm(epoll, token, !self.paused);
        }
    }

    fn ready(&mut self, _: epoll::Event, epoll: &Epoll, token: u64, events: &mut Vec<(usize, Event)>) {
        let mut messages = Vec::new();
        let good = match self.paused {
            true => self.link.write().map(|()| true),
            false => self.link.read(&|_| false, &mut messages),
        };
        for message in messages {
            self.silence.broken();
            match postcard::from_bytes(&message) {
                Ok(event) => self.heard(event, events),
                Err(_) => self.lose("its agent speaks another language; is it another version?", events),
            }
        }
        match good {
            Ok(true) => self.link.arm(epoll, token, !self.paused && !self.over),
            Ok(false) => self.lose("the connection was closed", events),
            Err(why) => self.lose(&why.to_string(), events),
        }
        if self.over {
            self.link.forget(epoll);
        }
    }

    fn tick(&mut self, epoll: &Epoll, token: u64, events: &mut Vec<(usize, Event)>) {
        if self.over {
            return;
        }
        if self.told.elapsed() >= self.lease / 5 {
            self.say(&Order::Alive);
            self.link.arm(epoll, token, !self.paused);
        }
        // While we do not read we cannot hear.
        if self.paused {
            self.silence.broken();
        }
        if self.silence.look() >= self.lease {
            self.broken = Some("it fell silent".to_owned());
        }
        if let Some(why) = self.broken.clone() {
            self.lose(&why, events);
            self.link.forget(epoll);
        }
    }

    fn pause(&mut self, pause: bool, epoll: &Epoll, token: u64) {
        self.paused = pause;
        if !self.over {
            self.link.arm(epoll, token, !pause);
        }
    }
}
