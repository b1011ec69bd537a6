//! One node: starts its ranks, reads what they write, answers their PMI, buries them.
//!
//! It runs inside of the launcher for this host and inside of an agent's child for the others. It has no loop of its
//! own: the owner waits in epoll and hands over what is ready, the deaths (SIGCHLD) and the launcher's orders.

mod rank;

use std::path::Path;

use viaduct_job::pmi::server::{Action, Node as Pmi};
use viaduct_os::children::{self, Exit, Reaped};
use viaduct_os::epoll::{self, Epoll};
use viaduct_os::signals::{self, number};

use crate::binding::{Bind, Topology};
use crate::elf;
use crate::error::Error;
use crate::outcome::NOT_EXECUTABLE;
use crate::output::Stream;
use crate::plan::NodePlan;
use crate::wire::{End, Event, Order};
use rank::Process;

/// Pieces of PMI that are read from a rank in one turn: one that floods its socket holds up nothing else.
const AT_ONCE: usize = 16;
/// Those of a rank that has ended: its socket holds no more than this.
const AT_THE_END: usize = 1024;
/// Libraries of Open MPI, by which its programs are known.
const OPEN_MPI: &[&str] = &["libmpi.so.40", "libmpi.so.20"];

/// Descriptors that so many ranks take, with some for everything else.
pub fn descriptors(ranks: usize) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
    ranks.saturating_mul(4).saturating_add(open + 32)
}

/// Checks beforehand whether so many ranks can be started on this host, beside `more` open files.
///
/// # Errors
/// If the limit of open files is too low, also when it is raised as far as it may be.
pub fn check_descriptors(host: &str, ranks: usize, more: usize) -> Result<(), Error> {
    let (need, limit) = (descriptors(ranks) + more, children::raise_open_files());
    if need as u64 > limit { Err(too_few(host, ranks, need, limit)) } else { Ok(()) }
}

fn too_few(host: &str, ranks: usize, need: usize, limit: u64) -> Error {
    let why = format!(
        "{ranks} ranks need about {need} open files, and {limit} are allowed (`ulimit -Hn`); use more hosts, or raise it"
    );
    Error::system(host.to_owned(), why)
}

/// Tokens of a node have this bit; those of its owner do not.
pub const TOKEN: u64 = 1 << 40;

/// The ranks of one host.
#[derive(Debug)]
pub struct Node {
    plan: NodePlan,
    pmi: Pmi,
    ranks: Vec<Process>,
    /// Bytes of input that came, and that were taken by all ranks that want them.
    input: (u64, u64),
    wired: bool,
    /// Output is read from these only, if there are any.
    only: Vec<u32>,
    paused: bool,
    killed: bool,
    done: bool,
}

impl Node {
    /// Starts every rank. One that cannot be started is an event, not an error.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub fn start(plan: NodePlan, epoll: &Epoll, events: &mut Vec<Event>) -> Result<Node, Error> {
        let apps = plan.ranks.iter().map(|rank| rank.app as usize).collect();
        let pmi = Pmi::new(&plan.job, plan.size as usize, apps, &plan.mapping);
        let mut node = Node {
            plan,
            pmi,
            ranks: Vec::new(),
            input: (0, 0),
            wired: false,
            only: Vec::new(),
            paused: false,
            killed: false,
            done: false,
        };
        let limit = children::raise_open_files();
        let need = descriptors(node.plan.ranks.len());
        if need as u64 > limit {
            return Err(too_few(&node.plan.host, node.plan.ranks.len(), need, limit));
        }
        let cpus = node.cpus();
        let refused: Vec<Option<End>> = (0..node.plan.programs.len()).map(|app| node.refusal(app)).collect();
        for (local, cpus) in cpus.into_iter().enumerate() {
            let rank = node.plan.ranks[local];
            let refused = refused.get(rank.app as usize).cloned().flatten();
            let process = match (refused, cpus) {
                (Some(end), _) | (None, Err(end)) => Process::not_started(local, end),
                (None, Ok(cpus)) => Process::start(&node.plan, local, cpus.as_deref(), epoll)?,
            };
            let rank = rank.rank;
            match process.pid() {
                Some(pid) => {
                    events.push(Event::Started(rank, pid));
                    if node.plan.report_bindings {
                        events.push(Event::Bound(rank, process.cpus().to_vec()));
                    }
                }
                None => events.push(Event::Exited(rank, process.end().clone(), 0)),
            }
            node.ranks.push(process);
        }
        node.settle(events);
        Ok(node)
    }

    /// The CPUs of each rank, none where it is not bound; or why it cannot be.
    fn cpus(&self) -> Vec<Result<Option<Vec<u32>>, End>> {
        let count = self.plan.ranks.len();
        let dealt = match &self.plan.bind {
            Bind::None => Ok(vec![None; count]),
            bind => Topology::read().deal(bind, self.plan.bind_by, count),
        };
        match dealt {
            Ok(all) => all.into_iter().map(Ok).collect(),
            Err(why) => {
                let end = End::NotStarted(format!("{}: {why}", self.plan.host), NOT_EXECUTABLE);
                vec![Err(end); count]
            }
        }
    }

    /// Why a program must not be started: one of Open MPI finds no PMIx here, and each of its ranks would take itself for
    /// the only one.
    fn refusal(&self, app: usize) -> Option<End> {
        if self.plan.size < 2 || self.plan.singletons {
            return None;
        }
        let program = self.plan.programs.get(app)?;
        let name = String::from_utf8_lossy(program.command.first()?).into_owned();
        let path = elf::find(&name, program.folder.as_deref().map(Path::new))?;
        let library = elf::needed(&path).into_iter().find(|library| OPEN_MPI.contains(&&**library))?;
        let why = format!(
            "{}: {name} is a program of Open MPI ({library}), which asks for PMIx: each rank would run as a job of its own; \
             start it with Open MPI's mpirun, or with --allow-singletons if that is wanted",
            self.plan.host
        );
        Some(End::NotStarted(why, NOT_EXECUTABLE))
    }

    /// Something is ready; the token is one of ours.
    pub fn ready(&mut self, event: epoll::Event, epoll: &Epoll, events: &mut Vec<Event>) {
        let (local, what) = rank::split(event.token);
        let Some(process) = self.ranks.get_mut(local) else { return };
        let rank = self.plan.ranks[local].rank;
        match what {
            rank::What::Output(stream) => process.read(rank, stream, epoll, events),
            rank::What::Input => {
                process.feed(epoll);
                self.took(events);
            }
            rank::What::Pmi => self.talk(local, AT_ONCE, epoll, events),
        }
        self.settle(events);
    }

    /// Some child has ended. Tells which rank it was, and how it ended.
    pub fn reap(&mut self, epoll: &Epoll, events: &mut Vec<Event>) {
        loop {
            match children::reap() {
                Reaped::Ended(pid, exit) => self.buried(pid, exit, epoll, events),
                // All ranks are gone, but not all that they started.
                Reaped::Living if self.all_exited() => {
                    children::kill_descendants();
                    break;
                }
                Reaped::Living | Reaped::Childless => break,
            }
        }
        self.settle(events);
    }

    /// The launcher wants something.
    pub fn order(&mut self, order: &Order, epoll: &Epoll, events: &mut Vec<Event>) {
        match order {
            Order::Input(bytes) => {
                self.input.0 += bytes.len() as u64;
                self.ranks.iter_mut().for_each(|rank| rank.give(bytes, epoll));
                self.took(events);
            }
            Order::InputEnd => self.ranks.iter_mut().for_each(Process::end_input),
            Order::Signal(signal) => {
                self.killed |= *signal == number::KILL;
                self.ranks.iter().for_each(|rank| rank.signal(*signal));
            }
            Order::Hold(ranks) => {
                self.only.clone_from(ranks);
                self.watch(epoll);
            }
            Order::Release(news) => {
                let mut actions = Vec::new();
                self.pmi.release(news, &mut actions);
                self.act(actions, events);
            }
            Order::Alive | Order::File(..) => {}
        }
    }

    /// Kills all ranks and everything they started, now.
    pub fn kill(&mut self) {
        self.killed = true;
        self.ranks.iter().for_each(|rank| rank.signal(number::KILL));
        children::kill_descendants();
    }

    /// Stops or goes on reading what ranks write: the receiver of it does not keep up.
    pub fn pause(&mut self, pause: bool, epoll: &Epoll) {
        if self.paused != pause {
            self.paused = pause;
            self.watch(epoll);
        }
    }

    /// Reads output from those ranks from which it is wanted.
    fn watch(&mut self, epoll: &Epoll) {
        for (rank, process) in self.plan.ranks.iter().zip(&mut self.ranks) {
            let held = !self.only.is_empty() && !self.only.contains(&rank.rank);
            process.pause(self.paused || held, epoll);
        }
    }

    /// Whether everything has ended and been told.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Rank, process and whether it lives, of every rank.
    pub fn processes(&self) -> impl Iterator<Item = (u32, Option<i32>, bool)> {
        let ranks = self.plan.ranks.iter().zip(&self.ranks);
        ranks.map(|(rank, process)| (rank.rank, process.pid(), !process.has_exited()))
    }

    fn all_exited(&self) -> bool {
        self.ranks.iter().all(Process::has_exited)
    }

    fn buried(&mut self, pid: i32, exit: Exit, epoll: &Epoll, events: &mut Vec<Event>) {
        let Some(local) = self.ranks.iter().position(|rank| rank.pid() == Some(pid)) else { return };
        let rank = self.plan.ranks[local].rank;
        // What it said last comes before its end.
        self.talk(local, AT_THE_END, epoll, events);
        let end = match exit {
            Exit::Code(code) => End::Code(code),
            Exit::Signal(signal) => End::Signal(signal),
        };
        let time = self.ranks[local].exited(end.clone());
        events.push(Event::Exited(rank, end.clone(), time));
        let early = self.pmi.left_early(local);
        if !self.killed && (early || (self.plan.strict && end != End::Code(0))) {
            let (code, how) = match end {
                End::Code(code) => (code, format!("with code {code}")),
                End::Signal(signal) => (128 + signal, format!("by {}", signals::name(signal))),
                End::NotStarted(..) | End::Lost(_) => (1, "unseen".to_owned()),
            };
            let why = if early {
                "ended without finishing its job (MPI_Finalize, Job::finish)"
            } else {
                "ended badly"
            };
            events.push(Event::Abort(rank, code, format!("{why}, {how}, on {}", self.plan.host)));
        }
    }

    /// What a rank has said on its PMI socket, at most so many pieces of it: what is left is reported again.
    fn talk(&mut self, local: usize, pieces: usize, epoll: &Epoll, events: &mut Vec<Event>) {
        let mut actions = Vec::new();
        let pmi = &mut self.pmi;
        let good = self.ranks[local].hear(pieces, epoll, &mut |line| pmi.line(local, line, &mut actions));
        if !good {
            actions.push(Action::Abort(local, 1, "what it sent on PMI_FD is no PMI".to_owned()));
        }
        if !self.wired && self.pmi.has_begun() {
            self.wired = true;
            events.push(Event::Wired);
        }
        self.act(actions, events);
    }

    fn act(&mut self, actions: Vec<Action>, events: &mut Vec<Event>) {
        for action in actions {
            match action {
                Action::Reply(local, line) => self.ranks[local].answer(&line),
                Action::Arrive(news) => events.push(Event::Arrive(vec![self.plan.node.0], news)),
                Action::Abort(local, code, why) => {
                    events.push(Event::Abort(self.plan.ranks[local].rank, code, why));
                }
            }
        }
    }

    /// Tells the launcher how much of the input all ranks that want it have taken.
    fn took(&mut self, events: &mut Vec<Event>) {
        let behind = self.ranks.iter().map(Process::waiting_input).max().unwrap_or(0) as u64;
        let taken = self.input.0 - behind.min(self.input.0);
        if taken > self.input.1 {
            events.push(Event::Took(taken - self.input.1));
            self.input.1 = taken;
        }
    }

    /// Whether this was the last of it.
    fn settle(&mut self, events: &mut Vec<Event>) {
        if self.done || !self.all_exited() {
            return;
        }
        // A process that left its session may still hold a pipe; it was adopted by us, so it is found and killed.
        if !matches!(children::reap(), Reaped::Childless) {
            children::kill_descendants();
            return;
        }
        for (rank, process) in self.plan.ranks.iter().zip(&mut self.ranks) {
            for stream in [Stream::Out, Stream::Err] {
                process.drain(rank.rank, stream, events);
            }
        }
        self.done = true;
        events.push(Event::Done);
    }
}
