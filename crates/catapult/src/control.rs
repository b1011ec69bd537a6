//! The launcher's loop: nodes here and elsewhere, the user's signals and input, output, time limits.
//!
//! One epoll set, and nothing in it waits for anything else. Other threads exist only while hosts are reached that the
//! agents above them could not reach; ranks of this host begin afterwards.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use viaduct_job::pmi::server::Root;
use viaduct_os::epoll::{self, Epoll, Interest};
use viaduct_os::signals::{self, SignalFd, number};

use crate::binding;
use crate::complaints::Complaints;
use crate::error::Error;
use crate::far::Far;
use crate::guard::Leash;
use crate::input::Input as Source;
use crate::jobs::{Door, Report};
use crate::node::{self, Node};
use crate::outcome::{Fate, Outcome};
use crate::output::{Merger, Mode, OutputFiles, Stream};
use crate::plan::NodePlan;
use crate::rescue::{Rescue, Rescued};
use crate::wire::{End, Event, Order};
use crate::writer::Writer;

const LEASH: u64 = 0;
const CHILD: u64 = 1;
const STDIN: u64 = 2;
const STDOUT: u64 = 3;
const STDERR: u64 = 4;
const DOOR: u64 = 5;
const RESCUE: u64 = 6;
const FAR: u64 = 64;

/// How often nodes and launcher look whether the other still lives.
const TICK: Duration = Duration::from_millis(500);
/// How long hosts may take to be reached before the user hears which.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long a line that is too long to be kept back may stand still before others go on.
const STANDSTILL: Duration = Duration::from_secs(1);

/// What is to be done, all decided.
#[derive(Debug)]
pub struct Launch {
    /// What each node does, in the order of nodes.
    pub plans: Vec<NodePlan>,
    /// Which of them is this host's.
    pub local: Option<usize>,
    /// How output is shown.
    pub mode: Mode,
    /// The longest that the job may take.
    pub timeout: Option<Duration>,
    /// How long ranks have between being asked to end and being killed.
    pub grace: Duration,
    /// Whether the user hears of what the launcher does.
    pub quiet: bool,
    /// Output that goes to files.
    pub files: OutputFiles,
    /// Reaches the others.
    pub rescue: Option<Rescue>,
}

/// Runs a job to its end.
///
/// # Errors
/// If this host cannot do it; what happens to ranks is in the outcome.
pub fn run(launch: Launch, leash: Leash, door: Option<Door>) -> Result<Outcome, Error> {
    let mut control = Control::new(launch, leash, door)?;
    control.begin()?;
    while !control.is_over() {
        control.turn()?;
    }
    control.finish();
    Ok(control.outcome)
}

struct Control {
    launch: Launch,
    epoll: Epoll,
    leash: Leash,
    orphaned: bool,
    children: SignalFd,
    door: Option<Door>,
    node: Option<(usize, Node)>,
    far: Vec<Box<dyn Far>>,
    root: Root,
    /// Nodes that have said something, or never will: the others may have to be reached from here.
    settled: Vec<bool>,
    /// What was ordered before all were.
    early: Vec<Order>,
    wired: bool,
    merger: Merger,
    out: [Writer; 2],
    input: Source,
    outcome: Outcome,
    done: Vec<bool>,
    complaints: Complaints,
    /// Ranks in the middle of a long line, from which alone output is read, and when they last went on.
    held: (Vec<u32>, Instant),
    interrupts: u32,
    begun: Instant,
    /// When the user hears next which hosts are not reached yet.
    progress_at: Instant,
    kill_at: Option<Instant>,
}

impl Control {
    fn new(launch: Launch, leash: Leash, door: Option<Door>) -> Result<Control, Error> {
        let failed = |why: viaduct_os::error::OsError| Error::system("starting the job", why);
        let epoll = Epoll::new().map_err(failed)?;
        let children = SignalFd::block(&[number::CHLD]).map_err(failed)?;
        epoll.add(&children, CHILD, Interest::Read).map_err(failed)?;
        epoll.add(&leash, LEASH, Interest::Read).map_err(failed)?;
        if let Some(door) = &door {
            epoll.add(door, DOOR, Interest::Read).map_err(failed)?;
        }
        let ours = |fd: io::Result<_>, token| fd.map(|fd| Writer::new(fd, token));
        let out = ours(io::stdout().as_fd().try_clone_to_owned(), STDOUT);
        let err = ours(io::stderr().as_fd().try_clone_to_owned(), STDERR);
        let (Ok(out), Ok(err)) = (out, err) else {
            return Err(Error::system("standard output", "it is closed"));
        };
        let mut places: Vec<(u32, &String)> = launch
            .plans
            .iter()
            .flat_map(|plan| plan.ranks.iter().map(|rank| (rank.rank, &plan.host)))
            .collect();
        places.sort_unstable();
        let hosts: Vec<String> = places.into_iter().map(|(_, host)| host.clone()).collect();
        let outcome = Outcome::new(&hosts);
        let nodes = launch.plans.len();
        let input = Source::new(&launch.plans, STDIN, &epoll);
        Ok(Control {
            merger: Merger::new(launch.mode, hosts),
            root: Root::new(0..nodes as u32),
            settled: (0..nodes).map(|node| launch.local == Some(node)).collect(),
            early: Vec::new(),
            done: vec![false; nodes],
            launch,
            epoll,
            leash,
            orphaned: false,
            children,
            door,
            node: None,
            far: Vec::new(),
            wired: false,
            out: [out, err],
            input,
            outcome,
            complaints: Complaints::default(),
            held: (Vec::new(), Instant::now()),
            interrupts: 0,
            begun: Instant::now(),
            progress_at: Instant::now() + PROGRESS,
            kill_at: None,
        })
    }

    fn begin(&mut self) -> Result<(), Error> {
        if let Some(plan) = self.launch.local.and_then(|index| self.launch.plans.get(index)) {
            node::check_descriptors(&plan.host, plan.ranks.len(), self.launch.files.count())?;
        }
        if let Some(rescue) = &self.launch.rescue {
            self.epoll
                .add(rescue, RESCUE, Interest::Read)
                .map_err(|e| Error::system("starting the job", e))?;
        }
        self.begin_here()
    }

    /// Starts the ranks of this host, once all others are reached: an ssh that is under way must not be taken for a rank.
    fn begin_here(&mut self) -> Result<(), Error> {
        let Some(index) = self.launch.local.filter(|_| self.node.is_none() && self.is_settled()) else {
            return Ok(());
        };
        let mut events = Vec::new();
        let node = Node::start(self.launch.plans[index].clone(), &self.epoll, &mut events)?;
        self.node = Some((index, node));
        self.heard(index, events);
        for order in std::mem::take(&mut self.early) {
            self.local(|node, epoll, events| node.order(&order, epoll, events));
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.settled.iter().all(|&settled| settled)
    }

    /// Whether every node that will ever run is there, the one of this host too.
    fn all_can_hear(&self) -> bool {
        self.is_settled() && (self.launch.local.is_none() || self.node.is_some())
    }

    /// A node that was never reached.
    fn lose(&mut self, node: usize, why: &str) {
        let ranks = self.launch.plans[node].ranks.clone();
        let lost = ranks.iter().map(|rank| Event::Exited(rank.rank, End::Lost(why.to_owned()), 0));
        self.heard(node, lost.chain([Event::Done]).collect());
    }

    /// Waits for no host any more that is not there yet.
    fn give_up(&mut self) {
        let given = self.launch.rescue.as_mut().map(Rescue::give_up).unwrap_or_default();
        for node in given {
            self.lose(node, "it was not reached before the job was ended");
        }
    }

    /// Hosts that were reached from here.
    fn rescued(&mut self) {
        let found = self.launch.rescue.as_mut().map(Rescue::take).unwrap_or_default();
        for rescued in found {
            match rescued {
                Rescued::Here(mut far) => {
                    let token = FAR + self.far.len() as u64;
                    far.pause(false, &self.epoll, token);
                    self.early.iter().for_each(|order| far.send(order, &self.epoll, token));
                    self.far.push(far);
                }
                Rescued::Lost(node, why) => self.lose(node, &why),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.orphaned || (self.done.iter().all(|&done| done) && self.out.iter().all(Writer::is_empty))
    }

    fn turn(&mut self) -> Result<(), Error> {
        let mut ready = Vec::new();
        self.epoll.wait(&mut ready, self.patience()).map_err(|e| Error::system("waiting", e))?;
        for event in ready {
            match event.token {
                LEASH => self.signals(),
                CHILD => self.deaths(),
                STDIN => self.read_input(),
                STDOUT => self.out[0].flush(),
                STDERR => self.out[1].flush(),
                DOOR => self.visitors(),
                RESCUE => self.rescued(),
                token if token & node::TOKEN != 0 => {
                    self.local(|node, epoll, events| node.ready(event, epoll, events))
                }
                token => self.hear_far((token - FAR) as usize, event),
            }
        }
        if self.input.is_always_ready() {
            self.read_input();
        }
        self.begin_here()?;
        self.times();
        self.flow();
        Ok(())
    }

    /// How long nothing has to be looked at.
    fn patience(&self) -> Option<Duration> {
        if self.input.is_always_ready() && self.all_can_hear() {
            return Some(Duration::ZERO);
        }
        let limit = self.launch.timeout.filter(|_| !self.outcome.timed_out).map(|limit| self.begun + limit);
        let standstill = (!self.held.0.is_empty()).then(|| self.held.1 + STANDSTILL);
        let progress = (!self.is_settled()).then_some(self.progress_at);
        let next = [limit, self.kill_at, standstill, progress].into_iter().flatten().min();
        let next = next.map(|at| at.saturating_duration_since(Instant::now()));
        match (next, self.far.is_empty()) {
            (next, true) => next,
            (next, false) => Some(next.map_or(TICK, |next| next.min(TICK))),
        }
    }

    fn local(&mut self, with: impl FnOnce(&mut Node, &Epoll, &mut Vec<Event>)) {
        let Some((index, node)) = &mut self.node else { return };
        let (index, mut events) = (*index, Vec::new());
        with(node, &self.epoll, &mut events);
        self.heard(index, events);
    }

    fn deaths(&mut self) {
        while self.children.take().is_some() {}
        self.local(|node, epoll, events| node.reap(epoll, events));
    }

    fn hear_far(&mut self, index: usize, event: epoll::Event) {
        let Some(far) = self.far.get_mut(index) else { return };
        let mut events = Vec::new();
        far.ready(event, &self.epoll, FAR + index as u64, &mut events);
        for (node, event) in events {
            self.heard(node, vec![event]);
        }
    }

    fn heard(&mut self, node: usize, events: Vec<Event>) {
        for event in events {
            self.event(node, event);
        }
    }

    fn event(&mut self, node: usize, event: Event) {
        let known = !matches!(event, Event::Unreached(..) | Event::Brought(..));
        if let Some(settled) = self.settled.get_mut(node).filter(|_| known) {
            *settled = true;
        }
        let out = &mut self.out;
        let mut write = |stream: Stream, bytes: &[u8]| out[stream.index()].put(bytes);
        match event {
            Event::Started(rank, pid) => self.fate(rank, |fate| fate.pid = Some(pid)),
            Event::Bound(rank, cpus) => {
                let host = self.outcome.fates.get(rank as usize).map_or("", |fate| &fate.host);
                let what = match &cpus[..] {
                    [] => "not bound".to_owned(),
                    cpus => format!("bound to CPUs {}", binding::show(cpus)),
                };
                self.say(&format!("rank {rank}: {host}: {what}"));
            }
            Event::Output(rank, stream, bytes) => {
                if self.held.0.contains(&rank) {
                    self.held.1 = Instant::now();
                }
                if !self.launch.files.put(rank, stream, &bytes) {
                    self.merger.put(rank, stream, &bytes, &mut write);
                }
            }
            Event::OutputEnd(rank, stream) => {
                if !self.launch.files.end(rank, stream) {
                    self.merger.end(rank, stream, &mut write);
                }
            }
            Event::Exited(rank, end, time) => {
                if let (End::NotStarted(why, _) | End::Lost(why), Some(fate)) =
                    (&end, self.outcome.fates.get(rank as usize))
                {
                    self.complaints.add(rank, &fate.host, why);
                }
                self.outcome.ended(rank, end, time);
                self.end_if_incomplete();
            }
            Event::Took(bytes) => self.input.took(node, bytes),
            Event::Arrive(nodes, pairs) => {
                if let Some(all) = self.root.arrive(&nodes, pairs) {
                    self.tell(&Order::Release(all));
                }
            }
            Event::Abort(rank, code, why) => {
                self.outcome.end_by_rank(rank, code);
                self.end_all(&format!("rank {rank}: {why}"));
            }
            Event::Wired => {
                self.wired = true;
                self.end_if_incomplete();
            }
            Event::Alive | Event::Need(_) | Event::File(..) | Event::Refused(_) => {}
            Event::Brought(address, key) => {
                let _ = self.launch.rescue.as_mut().map(|rescue| rescue.remember(node, address, key));
            }
            Event::Unreached(why, nodes) => match &mut self.launch.rescue {
                Some(rescue) if !rescue.gave_up() => rescue.call(node),
                _ => nodes.iter().for_each(|&node| self.lose(node as usize, &why)),
            },
            Event::Done => {
                self.done[node] = true;
                self.input.ended(node);
            }
        }
    }

    fn fate(&mut self, rank: u32, change: impl FnOnce(&mut Fate)) {
        if let Some(fate) = self.outcome.fates.get_mut(rank as usize) {
            change(fate);
        }
    }

    fn is_strict(&self) -> bool {
        self.launch.plans.iter().any(|plan| plan.strict)
    }

    /// Ends a job whose ranks wait for one that cannot come, or that wants all of its ranks.
    fn end_if_incomplete(&mut self) {
        if !self.wired && !self.is_strict() {
            return;
        }
        let missing = self.outcome.fates.iter().position(Fate::never_came);
        let Some((rank, fate)) = missing.map(|rank| (rank, &self.outcome.fates[rank])) else { return };
        let why = match fate.end {
            Some(End::Lost(_)) => "a host was lost".to_owned(),
            _ => format!("rank {rank} could not be started"),
        };
        let status = fate.status();
        self.outcome.end_by_rank(rank as u32, i32::from(status));
        self.end_all(&why);
    }

    /// To every node.
    fn tell(&mut self, order: &Order) {
        if !self.all_can_hear() {
            self.early.push(order.clone());
        }
        for (n, far) in self.far.iter_mut().enumerate() {
            far.send(order, &self.epoll, FAR + n as u64);
        }
        self.local(|node, epoll, events| node.order(order, epoll, events));
    }

    /// Asks all ranks to end, and kills them if they do not.
    fn end_all(&mut self, why: &str) {
        if self.kill_at.is_none() {
            self.outcome.is_ending();
            self.complain();
            self.say(&format!("{why}; ending the job"));
            self.kill_at = Some(Instant::now() + self.launch.grace);
            self.give_up();
            self.tell(&Order::Signal(number::TERM));
            self.tell(&Order::Signal(number::CONT));
        }
    }

    fn signals(&mut self) {
        let Some(signals) = self.leash.read() else {
            // The process that started us is gone, and with it all readers.
            self.orphaned = true;
            self.tell(&Order::Signal(number::KILL));
            if let Some((_, node)) = &mut self.node {
                node.kill();
            }
            return;
        };
        for signal in signals {
            self.signal(signal);
        }
    }

    fn signal(&mut self, signal: i32) {
        match signal {
            number::INT => {
                self.interrupts += 1;
                let signal = match self.interrupts {
                    1 => number::INT,
                    2 => number::TERM,
                    _ => number::KILL,
                };
                self.say(&format!("interrupted: {} to all ranks", signals::name(signal)));
                self.give_up();
                self.tell(&Order::Signal(signal));
            }
            number::TERM | number::HUP => self.end_all(&format!("got {}", signals::name(signal))),
            number::TSTP => self.tell(&Order::Signal(number::STOP)),
            signal => self.tell(&Order::Signal(signal)),
        }
    }

    fn times(&mut self) {
        let now = Instant::now();
        if self.launch.timeout.is_some_and(|limit| now >= self.begun + limit) && !self.outcome.timed_out {
            self.outcome.timed_out = true;
            self.end_all("the time is up");
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.kill_at = Some(now + self.launch.grace.max(TICK));
            self.tell(&Order::Signal(number::KILL));
        }
        if now >= self.progress_at && !self.is_settled() {
            self.progress_at = now + 2 * PROGRESS;
            self.say_missing_hosts();
        }
        if !self.held.0.is_empty() && now >= self.held.1 + STANDSTILL {
            let out = &mut self.out;
            self.merger.relax(&mut |stream, bytes| out[stream.index()].put(bytes));
        }
        for index in 0..self.far.len() {
            let mut events = Vec::new();
            self.far[index].tick(&self.epoll, FAR + index as u64, &mut events);
            for (node, event) in events {
                self.heard(node, vec![event]);
            }
        }
    }

    /// Ranks write no faster than our output is read, and we read no faster than ranks take input.
    fn flow(&mut self) {
        self.complain();
        if let Some(rank) = self.merger.broken() {
            self.say(&format!(
                "rank {rank} stopped in a line of more than 1 MiB; it was ended so that others could go on"
            ));
        }
        let owners = self.merger.owners();
        if owners != self.held.0 {
            self.held = (owners.clone(), Instant::now());
            self.tell(&Order::Hold(owners));
        }
        if self.out[0].is_closed() && !self.outcome.is_pipe_closed() && self.launch.mode != Mode::Fold {
            self.outcome.closed_pipe();
            self.end_all("the reader of the output is gone");
        }
        let full = self.out.iter().any(Writer::is_full);
        if let Some((_, node)) = &mut self.node {
            node.pause(full, &self.epoll);
        }
        for (n, far) in self.far.iter_mut().enumerate() {
            far.pause(full, &self.epoll, FAR + n as u64);
        }
        self.out.iter_mut().for_each(|out| out.arm(&self.epoll));
        self.input.arm(&self.epoll, STDIN);
    }

    fn read_input(&mut self) {
        // A node that is not there yet would miss it.
        if let Some(order) = self.all_can_hear().then(|| self.input.read(&self.epoll)).flatten() {
            self.tell(&order);
        }
    }

    fn visitors(&mut self) {
        let Some(door) = &mut self.door else { return };
        let report = Report::new(&self.launch.plans, &self.outcome, self.begun);
        for signal in door.serve(&report) {
            match signal {
                number::TERM => self.end_all("`viaduct kill` was called"),
                signal => self.tell(&Order::Signal(signal)),
            }
        }
    }

    /// What went wrong with ranks and files since the last time.
    fn complain(&mut self) {
        for line in self.complaints.take().into_iter().chain(self.launch.files.complaints()) {
            self.say(&line);
        }
    }

    fn say_missing_hosts(&mut self) {
        let all = self.settled.len();
        let missing = self.settled.iter().zip(&self.launch.plans).filter(|(settled, _)| !**settled);
        let hosts: Vec<&str> = missing.map(|(_, plan)| &*plan.host).collect();
        let more = if hosts.len() > 5 { ", …" } else { "" };
        let names = hosts[..hosts.len().min(5)].join(", ");
        self.say(&format!("{} of {all} hosts are not reached yet: {names}{more}", hosts.len()));
    }

    /// What the launcher itself has to say.
    fn say(&mut self, what: &str) {
        if !self.launch.quiet {
            self.out[1].put(format!("viaduct launch: {what}\n").as_bytes());
        }
    }

    fn finish(&mut self) {
        self.complain();
        let out = &mut self.out;
        self.merger.finish(&mut |stream, bytes| out[stream.index()].put(bytes));
        // What is folded is shown at the end, to a reader that may be slow.
        while !self.orphaned && self.out.iter().any(|out| !out.is_empty()) {
            self.out.iter_mut().for_each(|out| out.arm(&self.epoll));
            let mut ready = Vec::new();
            let _ = self.epoll.wait(&mut ready, Some(TICK));
            self.out.iter_mut().for_each(Writer::flush);
            if ready.iter().any(|event| event.token == LEASH) {
                self.signals();
                self.orphaned |= self.interrupts > 0;
            }
        }
    }
}
