//! One node: starts its ranks, reads what they write, answers their PMI, buries them.
//!
//! It runs inside of the launcher for this host and inside of an agent's child for the others. It has no loop of its
//! own: the owner waits in epoll and hands over what is ready, the deaths (SIGCHLD) and the launcher's orders.

mod rank;

use viaduct_job::pmi::server::{Action, Node as Pmi};
use viaduct_os::children::{self, Exit, Reaped};
use viaduct_os::epoll::{self, Epoll};
use viaduct_os::signals::number;

use crate::error::Error;
use crate::output::Stream;
use crate::plan::NodePlan;
use crate::wire::{End, Event, Order};
use rank::Process;

/// Tokens of a node have this bit; those of its owner do not.
pub const TOKEN: u64 = 1 << 40;

/// The ranks of one host.
#[derive(Debug)]
pub struct Node {
    plan: NodePlan,
    pmi: Pmi,
    ranks: Vec<Process>,
    /// Bytes of input that came, and that were taken by all who want them.
    input: (u64, u64),
    wired: bool,
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
            paused: false,
            killed: false,
            done: false,
        };
        for local in 0..node.plan.ranks.len() {
            let process = Process::start(&node.plan, local, epoll)?;
            let rank = node.plan.ranks[local].rank;
            match process.pid() {
                Some(pid) => events.push(Event::Started(rank, pid)),
                None => events.push(Event::Exited(rank, process.end().clone(), 0)),
            }
            node.ranks.push(process);
        }
        node.settle(events);
        Ok(node)
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
            rank::What::Pmi => self.talk(local, epoll, events),
        }
        self.settle(events);
    }

    /// Some child has ended. Says what became of whom.
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

    /// Stops or goes on reading what ranks write: whoever is to get it does not keep up.
    pub fn pause(&mut self, pause: bool, epoll: &Epoll) {
        if self.paused != pause {
            self.paused = pause;
            self.ranks.iter_mut().for_each(|rank| rank.pause(pause, epoll));
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
        self.talk(local, epoll, events);
        let end = match exit {
            Exit::Code(code) => End::Code(code),
            Exit::Signal(signal) => End::Signal(signal),
        };
        let time = self.ranks[local].exited(end.clone());
        events.push(Event::Exited(rank, end.clone(), time));
        let early = self.pmi.left_early(local);
        if !self.killed && (early || (self.plan.strict && end != End::Code(0))) {
            let code = match end {
                End::Code(code) => code,
                End::Signal(signal) => 128 + signal,
                End::NotStarted(..) | End::Lost(_) => 1,
            };
            let why = if early { "ended without MPI_Finalize" } else { "ended badly" };
            events.push(Event::Abort(rank, code, why.to_owned()));
        }
    }

    /// Everything that a rank has said on its PMI socket.
    fn talk(&mut self, local: usize, epoll: &Epoll, events: &mut Vec<Event>) {
        let mut actions = Vec::new();
        let pmi = &mut self.pmi;
        let good = self.ranks[local].hear(epoll, &mut |line| pmi.line(local, line, &mut actions));
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

    /// Tells the launcher how much of the input all who want it have taken.
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
