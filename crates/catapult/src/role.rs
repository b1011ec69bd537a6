//! What an agent does for a launcher: one node of a job, in a worker of its own; and looking after jobs.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use viaduct_agent::Link;
use viaduct_agent::serve::Role;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::signals::{SignalFd, number};

use crate::jobs::{self, Door, Report};
use crate::node::{self, Node};
use crate::remote::Silence;
use crate::stage::{self, Incoming};
use crate::wire::{Event, Order, Start, VERSION};

/// The name of the role.
pub const ROLE: &str = "launch";
/// That of looking after jobs.
pub const JOBS: &str = "jobs";

const LINK: u64 = 0;
const SIGNALS: u64 = 1;
const DOOR: u64 = 2;
const TICK: Duration = Duration::from_millis(300);
/// When so much waits for the launcher, no more is read from ranks.
const ENOUGH: usize = 1 << 20;

/// Runs nodes of jobs.
#[derive(Debug)]
pub struct LaunchRole {
    /// The run-time folder.
    pub folder: PathBuf,
    /// Where files are kept by content.
    pub cache: PathBuf,
}

impl Role for LaunchRole {
    fn name(&self) -> &'static str {
        ROLE
    }

    fn run(&self, link: Link, first: &[u8]) -> u8 {
        match Worker::new(self, link, first) {
            Ok(mut worker) => worker.run(),
            Err(refused) => {
                let (mut link, why) = *refused;
                let _ = link.say(&postcard::to_stdvec(&Event::Refused(why)).unwrap_or_default());
                link.flush(Duration::from_secs(2));
                1
            }
        }
    }
}

struct Worker<'a> {
    role: &'a LaunchRole,
    link: Link,
    start: Start,
    epoll: Epoll,
    signals: SignalFd,
    door: Option<Door>,
    node: Option<Node>,
    missing: Vec<u32>,
    incoming: Option<(u32, Incoming)>,
    silence: Silence,
    told: Instant,
    begun: Instant,
    lost: bool,
}

impl<'a> Worker<'a> {
    fn new(role: &'a LaunchRole, link: Link, first: &[u8]) -> Result<Worker<'a>, Box<(Link, String)>> {
        let start: Start = match postcard::from_bytes(first) {
            Ok(start) => start,
            Err(_) => return Err(Box::new((link, "the launcher is of another version".to_owned()))),
        };
        if start.version != VERSION {
            return Err(Box::new((
                link,
                format!("the agent has version {VERSION}, the launcher {}", start.version),
            )));
        }
        let set = SignalFd::block(&[number::CHLD, number::TERM, number::INT, number::HUP]);
        let (Ok(epoll), Ok(signals)) = (Epoll::new(), set) else {
            return Err(Box::new((link, "descriptors have run out".to_owned())));
        };
        let door = Door::open(&role.folder, &start.plan.job, &format!("node{}", start.plan.node.0)).ok();
        let watched = epoll.add(&signals, SIGNALS, Interest::Read).is_ok()
            && door.as_ref().is_none_or(|door| epoll.add(door, DOOR, Interest::Read).is_ok());
        if !watched {
            return Err(Box::new((link, "descriptors have run out".to_owned())));
        }
        Ok(Worker {
            role,
            link,
            start,
            epoll,
            signals,
            door,
            node: None,
            missing: Vec::new(),
            incoming: None,
            silence: Silence::new(),
            told: Instant::now(),
            begun: Instant::now(),
            lost: false,
        })
    }

    fn run(&mut self) -> u8 {
        let puts = self.start.put.iter().enumerate();
        let absent = |path: Option<PathBuf>| path.is_none_or(|path| !path.exists());
        // What has a place of its own is always brought anew: whoever put it there may have changed it.
        let wanted =
            puts.filter(|(_, head)| head.path.is_some() || absent(stage::kept(&self.role.cache, &head.hash)));
        self.missing = wanted.map(|(index, _)| index as u32).collect();
        if self.missing.is_empty() {
            self.begin();
        } else {
            self.tell(&Event::Need(self.missing.clone()));
        }
        self.hear(); // what came together with the first message
        while !self.lost && self.node.as_ref().is_none_or(|node| !node.is_done()) {
            self.turn();
        }
        if self.lost {
            return self.clean_up();
        }
        self.give_back();
        self.link.flush(Duration::from_secs(10));
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
                _ => {}
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
    }

    fn with(&mut self, act: impl FnOnce(&mut Node, &Epoll, &mut Vec<Event>)) {
        let mut events = Vec::new();
        if let Some(node) = &mut self.node {
            act(node, &self.epoll, &mut events);
        }
        for event in events {
            // The launcher hears of the end when the files that it wants are with it.
            if event != Event::Done {
                self.tell(&event);
            }
        }
    }

    fn tell(&mut self, event: &Event) {
        self.lost |= self.link.say(&postcard::to_stdvec(event).unwrap_or_default()).is_err();
        self.told = Instant::now();
    }

    fn hear(&mut self) {
        let mut messages = Vec::new();
        let open = self.link.read(&|_| false, &mut messages);
        for message in messages {
            self.silence.broken();
            match postcard::from_bytes(&message) {
                Ok(Order::File(index, bytes, last)) => self.file(index, &bytes, last),
                Ok(order) => self.with(|node, epoll, events| node.order(&order, epoll, events)),
                Err(_) => self.lost = true,
            }
        }
        self.lost |= !matches!(open, Ok(true));
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
        let path = match &head.path {
            Some(path) => Some(self.there(path)),
            None => stage::kept(&self.role.cache, &head.hash),
        };
        let mode = if head.path.is_some() { head.mode } else { 0o700 };
        if self.incoming.as_ref().is_none_or(|(current, _)| *current != index) {
            self.incoming =
                path.and_then(|path| Incoming::new(&path, mode).ok()).map(|incoming| (index, incoming));
        }
        let done = self.incoming.as_mut().map(|(_, incoming)| incoming.put(bytes, last));
        if !matches!(done, Some(Ok(()))) {
            let what = head.path.clone().unwrap_or_else(|| "the program".to_owned());
            self.tell(&Event::Refused(format!("{what}: cannot be written there")));
            self.link.flush(Duration::from_secs(2));
            self.lost = true;
        }
        if last {
            self.incoming = None;
            self.missing.retain(|&other| other != index);
            if self.missing.is_empty() && self.node.is_none() {
                self.begin();
            }
        }
    }

    /// Everything is there: starts the ranks.
    fn begin(&mut self) {
        let mut plan = self.start.plan.clone();
        let programs = self.start.put.iter().filter(|head| head.path.is_none());
        for (program, head) in plan.programs.iter_mut().zip(programs) {
            if let (Some(path), Some(word)) =
                (stage::kept(&self.role.cache, &head.hash), program.command.first_mut())
            {
                *word = path.as_os_str().as_bytes().to_vec();
            }
        }
        let folder = Some(self.start.folder.clone()).filter(|folder| Path::new(folder).is_dir());
        let folder = folder.or_else(|| std::env::var("HOME").ok());
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
    }

    /// The files that the launcher wants, and then the end.
    fn give_back(&mut self) {
        for (index, path) in self.start.get.clone().iter().enumerate() {
            let path = self.there(path);
            let mut pieces = Vec::new();
            let read =
                stage::pieces(&path, &mut |bytes, last| pieces.push(Event::File(index as u32, bytes, last)));
            match read {
                Ok(()) => pieces.iter().for_each(|piece| {
                    self.tell(piece);
                    self.link.flush(Duration::from_secs(30));
                }),
                Err(why) => {
                    let rank = self.start.plan.ranks[0].rank;
                    self.tell(&Event::Abort(rank, 2, format!("{}: {why}", path.display())));
                }
            }
        }
        self.tell(&Event::Done);
    }

    /// A path of the launcher's on this host.
    fn there(&self, path: &str) -> PathBuf {
        let folder = Path::new(&self.start.folder);
        let home = || PathBuf::from(std::env::var("HOME").unwrap_or_default());
        (if folder.is_dir() { folder.to_owned() } else { home() }).join(path)
    }

    /// Nobody wants this job any more.
    fn clean_up(&mut self) -> u8 {
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

/// What is asked of [`JobsRole`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobsAsk {
    /// The beginning of the names of jobs that get the signal; all of them if it is empty.
    pub start: String,
    /// The signal; none to look only.
    pub signal: Option<i32>,
}

impl JobsAsk {
    /// As it travels.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }
}

/// Looks after the jobs of a host. What it is asked last for, it answers with what it found.
#[derive(Debug)]
pub struct JobsRole {
    /// The run-time folder.
    pub folder: PathBuf,
}

impl Role for JobsRole {
    fn name(&self) -> &'static str {
        JOBS
    }

    fn run(&self, mut link: Link, first: &[u8]) -> u8 {
        let mut next = Some(first.to_vec());
        // As often as it is asked: a benchmark asks often.
        while let Some(bytes) = next {
            let Ok(ask) = postcard::from_bytes::<JobsAsk>(&bytes) else { return 1 };
            let wanted = |job: &str| ask.signal.filter(|_| job.starts_with(&ask.start));
            let found = jobs::visit(&self.folder, &wanted).unwrap_or_default();
            let answer = postcard::to_stdvec(&found).unwrap_or_default();
            if link.say(&answer).is_err() {
                return 1;
            }
            link.flush(Duration::from_secs(5));
            let more = link.wait(Instant::now() + Duration::from_secs(10));
            next = more.ok().and_then(|messages| messages.into_iter().next());
        }
        0
    }
}
