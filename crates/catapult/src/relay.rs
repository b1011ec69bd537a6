//! What an agent does for the hosts below it in the tree: reaches them, and passes orders down and events up.
//!
//! Reaching is the work of threads, which end before the first rank begins: an agent that waits for another goes on
//! saying that it lives, and ssh is not taken for a rank.

use std::path::Path;
use std::time::Duration;

use viaduct_agent::bootstrap::{self, Payload, Ways};
use viaduct_agent::{Error, Identity, Link, PublicKey, Ticket};
use viaduct_job::pmi::server::{Pair, Root};
use viaduct_os::epoll::{self, Epoll, Interest};

use crate::errand::Errands;
use crate::far::Far;
use crate::remote::{Files, Remote};
use crate::wire::{Branch, Event, Order, Start};

/// An agent that is known answers soon, or is gone.
const KNOWN: Duration = Duration::from_secs(5);

/// A connection, and where it goes if the agent there was brought up for it.
#[derive(Debug)]
struct Reached {
    link: Link,
    brought: Option<(String, PublicKey)>,
}

/// The hosts below a node.
#[derive(Debug)]
pub(crate) struct Relay {
    branches: Vec<(Branch, Start)>,
    files: Files,
    children: Vec<Remote>,
    waiting: usize,
    errands: Errands<Reached>,
    root: Root,
    /// What was ordered while a node could not hear it yet.
    early: Vec<Order>,
    begun: bool,
    /// Tokens of its connections begin here; the bell's is one less.
    token: u64,
}

impl Relay {
    /// Watches its bell.
    ///
    /// # Errors
    /// If descriptors have run out.
    pub(crate) fn new(start: &Start, epoll: &Epoll, token: u64) -> Result<Relay, viaduct_os::error::OsError> {
        let errands = Errands::new()?;
        epoll.add(&errands, token - 1, Interest::Read)?;
        let read = |branch: &Branch| branch.read().map(|start| (branch.clone(), start));
        Ok(Relay {
            branches: start.below.iter().filter_map(read).collect(),
            files: Files::default(),
            children: Vec::new(),
            waiting: start.below.len(),
            errands,
            root: Root::new(start.nodes().into_iter().map(|(node, _)| node)),
            early: Vec::new(),
            begun: false,
            token,
        })
    }

    /// Begins to reach them by the command `ssh`. `folder` is the run-time folder; `files` what they may need.
    pub(crate) fn begin(&mut self, start: &Start, folder: &Path, ssh: &[String], files: Files) {
        self.files = files;
        self.waiting = self.branches.len();
        let limit = Duration::from_millis(start.limit);
        let ways = Ways { ssh: ssh.to_vec(), limit, allow_root: start.allow_root };
        for (index, (branch, _)) in self.branches.iter().enumerate() {
            let (branch, folder, ways) = (branch.clone(), folder.to_owned(), ways.clone());
            let work = move || reach(&branch, &folder, &ways).map_err(|why| why.to_string());
            self.errands.send_out(index, work);
        }
    }

    /// Whether each of them is connected, or given back to the launcher.
    pub(crate) fn is_settled(&self) -> bool {
        self.waiting == 0
    }

    /// Whether nothing is below any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_settled() && self.children.iter().all(Remote::is_over)
    }

    /// Our own node has begun, and gets what was ordered before.
    pub(crate) fn node_begins(&mut self) -> Vec<Order> {
        self.begun = true;
        if self.is_settled() { std::mem::take(&mut self.early) } else { self.early.clone() }
    }

    /// An order for all nodes below.
    pub(crate) fn order(&mut self, order: &Order, epoll: &Epoll) {
        if !(self.begun && self.is_settled()) {
            self.early.push(order.clone());
        }
        for (token, child) in (self.token..).zip(&mut self.children) {
            child.send(order, epoll, token);
        }
    }

    /// Something of ours is ready. What is to be told, with the number of the node.
    pub(crate) fn ready(&mut self, event: epoll::Event, epoll: &Epoll) -> Vec<(usize, Event)> {
        let mut events = Vec::new();
        if event.token + 1 == self.token {
            self.attach(epoll, &mut events);
        } else if let Some(child) = self.children.get_mut((event.token - self.token) as usize) {
            child.ready(event, epoll, event.token, &mut events);
        }
        events
    }

    /// Says that we live, and notices nodes that do not. While `full`, nothing is read from those below.
    pub(crate) fn tick(&mut self, full: bool, epoll: &Epoll) -> Vec<(usize, Event)> {
        let mut events = Vec::new();
        for (token, child) in (self.token..).zip(&mut self.children) {
            child.pause(full, epoll, token);
            child.tick(epoll, token, &mut events);
        }
        events
    }

    /// Nodes are in the barrier. If they were the last ones here: all of them, and what is new.
    pub(crate) fn arrive(&mut self, nodes: &[u32], pairs: Vec<Pair>) -> Option<Event> {
        let all = self.root.arrive(nodes, pairs)?;
        Some(Event::Arrive(self.root.nodes(), all))
    }

    /// Lets go of all: what is below notices at once.
    pub(crate) fn abandon(&mut self) {
        self.children.clear();
    }

    /// Takes in what the threads have reached.
    fn attach(&mut self, epoll: &Epoll, events: &mut Vec<(usize, Event)>) {
        for (index, reached) in self.errands.take() {
            self.waiting -= 1;
            let (branch, start) = &self.branches[index];
            let node = start.plan.node.0 as usize;
            match reached {
                Ok(Reached { link, brought }) => {
                    if let Some((address, key)) = brought {
                        events.push((node, Event::Brought(address, key.0)));
                    }
                    let mut child = Remote::start(link, start, &branch.start, self.files.clone());
                    let token = self.token + self.children.len() as u64;
                    child.pause(false, epoll, token);
                    self.early.iter().for_each(|order| child.send(order, epoll, token));
                    self.children.push(child);
                }
                Err(why) => {
                    let nodes: Vec<u32> = start.nodes().into_iter().map(|(node, _)| node).collect();
                    self.root.leave(&nodes);
                    events.push((node, Event::Unreached(why, nodes)));
                }
            }
        }
        if self.is_settled() && self.begun {
            self.early.clear();
        }
    }
}

fn reach(branch: &Branch, folder: &Path, ways: &Ways) -> Result<Reached, Error> {
    let identity = Identity::of_user(folder)?;
    if let Some((address, key, ticket)) = &branch.agent {
        let ticket = Ticket::parse(ticket);
        let limit = ways.limit.min(KNOWN);
        let link = Link::call_with(address, &identity, PublicKey(*key), ticket.as_ref(), limit)?;
        return Ok(Reached { link, brought: None });
    }
    let keys = [identity.public(), PublicKey(branch.launcher)];
    let known = bootstrap::bring_up(&branch.host, &keys, &Payload::ourselves()?, ways)?;
    let link = Link::call(&known.address, &identity, known.key, ways.limit)?;
    Ok(Reached { link, brought: Some((known.address, known.key)) })
}
