//! One node of a job, in a process that an agent forked for it: its ranks, its files, and the hosts below it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use viaduct_agent::Link;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::process;
use viaduct_os::signals::{SignalFd, number};

use crate::jobs::{Door, Report};
use crate::node::{self, Node};
use crate::relay::Relay;
use crate::remote::{ENOUGH, Files, Silence};
use crate::role::LaunchRole;
use crate::stage::{self, Incoming, Outgoing, Piece, Pump};
use crate::tidy;
use crate::wire::{Event, Order, Start, VERSION};

const LINK: u64 = 0;
const SIGNALS: u64 = 1;
const DOOR: u64 = 2;
const BELOW: u64 = 64;
const TICK: Duration = Duration::from_millis(300);

pub(crate) struct Worker<'a> {
    role: &'a LaunchRole,
    link: Link,
    start: Start,
    epoll: Epoll,
    signals: SignalFd,
    door: Option<Door>,
    node: Option<Node>,
    relay: Relay,
    missing: Vec<u32>,
    incoming: Option<(u32, Incoming)>,
    giving: Option<Pump>,
    told_end: bool,
    silence: Silence,
    told: Instant,
    begun: Instant,
    lost: bool,
}

/// The connection, the node, and why it will not do it.
pub(crate) type Refused = Box<(Link, u32, String)>;

impl<'a> Worker<'a> {
    pub(crate) fn new(role: &'a LaunchRole, link: Link, first: &[u8]) -> Result<Worker<'a>, Refused> {
        let start: Start = match postcard::from_bytes(first) {
            Ok(start) => start,
            Err(_) => return Err(Box::new((link, 0, "the launcher is of another version".to_owned()))),
        };
        let number = start.plan.node.0;
        if start.version != VERSION {
            let why = format!("the agent has version {VERSION}, the launcher {}", start.version);
            return Err(Box::new((link, number, why)));
        }
        // The agent was allowed to once; each launch has to say so.
        if process::effective_uid() == 0 && !start.allow_root {
            return Err(Box::new((link, number, viaduct_agent::Error::Root.to_string())));
        }
        let short = |link| Box::new((link, number, "descriptors have run out".to_owned()));
        let set = SignalFd::block(&[number::CHLD, number::TERM, number::INT, number::HUP]);
        let (Ok(epoll), Ok(signals)) = (Epoll::new(), set) else { return Err(short(link)) };
        let door = Door::open(&role.folder, &start.plan.job, &format!("node{number}")).ok();
        let watched = epoll.add(&signals, SIGNALS, Interest::Read).is_ok()
            && door.as_ref().is_none_or(|door| epoll.add(door, DOOR, Interest::Read).is_ok());
        let relay = Relay::new(&start, &epoll, BELOW);
        let (true, Ok(relay)) = (watched, relay) else { return Err(short(link)) };
        Ok(Worker {
            role,
            link,
            start,
            epoll,
            signals,
            door,
            node: None,
            relay,
            missing: Vec::new(),
            incoming: None,
            giving: None,
            told_end: false,
            silence: Silence::new(),
            told: Instant::now(),
            begun: Instant::now(),
            lost: false,
        })
    }

    pub(crate) fn run(&mut self) -> u8 {
        let puts = self.start.put.iter().enumerate();
        let absent = |path: Option<PathBuf>| path.is_none_or(|path| !path.exists());
        // What has a place of its own is always brought anew: a program may have changed it since.
        let wanted =
            puts.filter(|(_, head)| head.path.is_some() || absent(stage::kept(&self.role.cache, &head.hash)));
        self.missing = wanted.map(|(index, _)| index as u32).collect();
        if self.missing.is_empty() {
            self.has_files();
        } else {
            self.tell(&Event::Need(self.missing.clone()));
        }
        self.hear(); // what came together with the first message
        while !self.lost {
            self.begin();
            self.give_back();
            if self.told_end && self.relay.is_over() {
                break;
            }
            self.turn();
        }
        if self.lost {
            return self.clean_up();
        }
        self.link.linger(Duration::from_secs(10));
        0
    }

    fn turn(&mut self) {
        self.link.arm(&self.epoll, LINK, true);
        let mut ready = Vec::new();
        if self.epoll.wait(&mut ready, Some(TICK)).is_err() {
            self.lost = true;
        }
        for event in ready {
            match event.token {
                LINK => self.hear(),
                SIGNALS => self.signals(),
                DOOR => self.visitors(),
                token if token & node::TOKEN != 0 => {
                    self.with(|node, epoll, events| node.ready(event, epoll, events))
                }
                _ => {
                    let events = self.relay.ready(event, &self.epoll);
                    self.pass_on(events);
                }
            }
        }
        if self.told.elapsed() >= Duration::from_millis(self.start.lease) / 5 {
            self.tell(&Event::Alive);
        }
        self.lost |= self.silence.look() >= Duration::from_millis(self.start.lease);
        let full = self.link.backlog() > ENOUGH;
        if let Some(node) = &mut self.node {
            node.pause(full, &self.epoll);
        }
        let events = self.relay.tick(full, &self.epoll);
        self.pass_on(events);
    }

    fn with(&mut self, act: impl FnOnce(&mut Node, &Epoll, &mut Vec<Event>)) {
        let mut events = Vec::new();
        if let Some(node) = &mut self.node {
            act(node, &self.epoll, &mut events);
        }
        // The launcher hears of the end when the files that it wants are with it.
        events.retain(|event| *event != Event::Done);
        let own = self.start.plan.node.0 as usize;
        self.pass_on(events.into_iter().map(|event| (own, event)).collect());
    }

    /// What our own node says, and those below.
    fn pass_on(&mut self, events: Vec<(usize, Event)>) {
        for (node, event) in events {
            match event {
                // One message for all that are below.
                Event::Arrive(nodes, pairs) => {
                    if let Some(event) = self.relay.arrive(&nodes, pairs) {
                        self.tell(&event);
                    }
                }
                event => self.tell_of(node as u32, &event),
            }
        }
    }

    fn tell(&mut self, event: &Event) {
        self.tell_of(self.start.plan.node.0, event);
    }

    fn tell_of(&mut self, node: u32, event: &Event) {
        self.lost |= self.link.say(&postcard::to_stdvec(&(node, event)).unwrap_or_default()).is_err();
        self.told = Instant::now();
    }

    fn hear(&mut self) {
        let mut messages = Vec::new();
        let open = self.link.read(&|_, _| false, &mut messages);
        for message in messages {
            self.silence.broken();
            match postcard::from_bytes(&message) {
                Ok(Order::File(index, bytes, last)) => self.file(index, &bytes, last),
                Ok(Order::Alive) => {}
                Ok(order) => self.order(&order),
                Err(_) => self.lost = true,
            }
        }
        self.lost |= !matches!(open, Ok(true));
    }

    fn order(&mut self, order: &Order) {
        self.relay.order(order, &self.epoll);
        self.with(|node, epoll, events| node.order(order, epoll, events));
    }

    fn signals(&mut self) {
        let mut ended = false;
        while let Some(signal) = self.signals.take() {
            ended |= signal == number::CHLD;
            self.lost |= signal != number::CHLD;
        }
        if ended {
            self.with(|node, epoll, events| node.reap(epoll, events));
        }
    }

    fn visitors(&mut self) {
        let running = self.node.iter().flat_map(Node::processes).filter(|(.., alive)| *alive).count();
        let report = Report::of(std::slice::from_ref(&self.start.plan), running, self.begun);
        let signals = self.door.as_mut().map(|door| door.serve(&report)).unwrap_or_default();
        for signal in signals {
            self.with(|node, epoll, events| node.order(&Order::Signal(signal), epoll, events));
        }
    }

    /// A piece of a file.
    fn file(&mut self, index: u32, bytes: &[u8], last: bool) {
        let Some(head) = self.start.put.get(index as usize) else { return };
        let (path, what) = (self.place(index as usize), head.path.clone());
        let mode = if head.path.is_some() { head.mode } else { 0o700 };
        let begun = match (self.incoming.as_ref().is_some_and(|(current, _)| *current == index), path) {
            (true, _) => Ok(()),
            (false, Some(path)) => Incoming::new(&path, mode, Some(&head.hash))
                .map(|incoming| self.incoming = Some((index, incoming))),
            (false, None) => Err(std::io::Error::other("a name that is none")),
        };
        let put = |(_, incoming): &mut (u32, Incoming)| incoming.put(bytes, last);
        if let Err(why) = begun.and_then(|()| self.incoming.as_mut().map_or(Ok(()), put)) {
            let what = what.unwrap_or_else(|| "the program".to_owned());
            self.tell(&Event::Refused(format!("{}: {what}: {why}", self.start.plan.host)));
            self.link.linger(Duration::from_secs(2));
            self.lost = true;
        }
        if last {
            self.incoming = None;
            self.missing.retain(|&other| other != index);
            if self.missing.is_empty() && self.node.is_none() {
                self.has_files();
            }
        }
    }

    /// Where a file of the job is on this host.
    fn place(&self, index: usize) -> Option<PathBuf> {
        let head = self.start.put.get(index)?;
        match &head.path {
            Some(path) => Some(self.there(path)),
            None => stage::kept(&self.role.cache, &head.hash),
        }
    }

    /// Everything is there: those below can have it, too.
    fn has_files(&mut self) {
        let heads = self.start.put.iter().enumerate();
        let outgoing = |(index, head): (usize, &crate::wire::FileHead)| Outgoing {
            path: self.place(index).unwrap_or_default(),
            head: head.clone(),
        };
        let files = Files { put: heads.map(outgoing).collect(), get: None };
        self.relay.begin(&self.start, &self.role.folder, &self.role.ssh, files);
    }

    /// Starts the ranks, once all files are there and every host below is reached or given back.
    fn begin(&mut self) {
        if self.node.is_some() || self.lost || !self.missing.is_empty() || !self.relay.is_settled() {
            return;
        }
        if let Ok(program) = std::env::current_exe() {
            tidy::program_used(&self.role.cache, &program);
        }
        let mut plan = self.start.plan.clone();
        let programs = self.start.put.iter().filter(|head| head.path.is_none());
        for (program, head) in plan.programs.iter_mut().zip(programs) {
            let _ = stage::kept(&self.role.cache, &head.hash).map(|path| tidy::used(&path));
            if let (Some(path), Some(word)) =
                (stage::kept(&self.role.cache, &head.hash), program.command.first_mut())
            {
                *word = path.as_os_str().as_bytes().to_vec();
            }
        }
        let folder = Some(self.start.folder.clone()).filter(|folder| Path::new(folder).is_dir());
        let home = &self.role.home;
        if folder.is_none() && plan.programs.iter().any(|program| program.folder.is_none()) {
            // An agent outlives the login that started it, and so may lose what that login was allowed.
            if let Err(why) = std::fs::read_dir(home) {
                let hint = "if a login there can, `viaduct agent leave` there and launch again";
                let why = format!("{}: the home folder {}: {why}; {hint}", plan.host, home.display());
                self.tell(&Event::Refused(why));
                self.link.linger(Duration::from_secs(2));
                self.lost = true;
                return;
            }
        }
        let folder = folder.or_else(|| Some(home.to_string_lossy().into_owned()));
        for program in &mut plan.programs {
            program.folder = program.folder.take().or_else(|| folder.clone());
        }
        let mut events = Vec::new();
        match Node::start(plan, &self.epoll, &mut events) {
            Ok(node) => self.node = Some(node),
            Err(why) => {
                events.push(Event::Refused(why.to_string()));
                self.lost = true;
            }
        }
        events.retain(|event| *event != Event::Done);
        events.iter().for_each(|event| self.tell(event));
        for order in self.relay.node_begins() {
            self.with(|node, epoll, events| node.order(&order, epoll, events));
        }
    }

    /// When all ranks have ended: the files that the launcher wants, and then the end.
    fn give_back(&mut self) {
        if self.told_end || self.node.as_ref().is_none_or(|node| !node.is_done()) {
            return;
        }
        if self.giving.is_none() {
            let mut pump = Pump::default();
            for (index, path) in (0..).zip(&self.start.get) {
                pump.add(index, self.there(path));
            }
            self.giving = Some(pump);
        }
        while self.link.backlog() < ENOUGH {
            match self.giving.as_mut().and_then(Pump::piece) {
                Some(Ok(Piece { index, bytes, last })) => self.tell(&Event::File(index, bytes, last)),
                Some(Err(why)) => {
                    let rank = self.start.plan.ranks.first().map_or(0, |rank| rank.rank);
                    let why = format!("{}: {why}", self.start.plan.host);
                    self.tell(&Event::Abort(rank, 2, why));
                }
                None => {
                    self.told_end = true;
                    self.tell(&Event::Done);
                    return;
                }
            }
        }
    }

    /// A path of the launcher's on this host.
    fn there(&self, path: &str) -> PathBuf {
        let folder = Path::new(&self.start.folder);
        (if folder.is_dir() { folder } else { &self.role.home }).join(path)
    }

    /// The launcher, or the agent above, is gone: ends everything.
    fn clean_up(&mut self) -> u8 {
        self.relay.abandon();
        let end = Instant::now() + Duration::from_secs(5);
        while let Some(node) = &mut self.node {
            if node.is_done() || Instant::now() >= end {
                break;
            }
            node.kill();
            let mut events = Vec::new();
            let _ = self.epoll.wait(&mut Vec::new(), Some(Duration::from_millis(10)));
            while self.signals.take().is_some() {}
            node.reap(&self.epoll, &mut events);
        }
        1
    }
}
