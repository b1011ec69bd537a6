//! Runs a program on the simulated cluster: one event after another, chosen by the seed.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::cluster::{Body, Cluster, Counts, PAGE, Parked, Process};
use super::handle::Handle;
use super::mutation::Mutation;
use crate::ids::{NodeId, PageId, WorkerId};
use crate::protocol::page::Access;
use crate::serve::{self, Answer};
use crate::worker::Worker;
use crate::world::{Reply, Request, World};

/// Events after which a run is taken to be stuck.
const LIMIT: usize = 400_000;

/// What a program's code sees of its worker.
pub(super) struct Thread {
    pub(super) world: Handle,
    pub(super) worker: Worker,
    pub(super) number: usize,
}

impl Thread {
    async fn access(&mut self, address: usize, access: Access) {
        let page = PageId((address / PAGE) as u32);
        let id = usize::from(self.worker.id().0);
        if self.world.at_node(|node| node.mappings[id][page.0 as usize]) < Some(access) {
            self.worker.fault(&mut self.world, page, access).await.expect("no node dies here");
            self.pause().await;
        }
    }

    /// Other processes may go on before the next step.
    pub(super) async fn pause(&mut self) {
        let mut again = true;
        self.world.found(|_| if std::mem::take(&mut again) { None } else { Some(()) }).await;
    }

    /// Loads a byte and holds it against what was stored last.
    pub(super) async fn load(&mut self, address: usize) -> u8 {
        self.access(address, Access::Read).await;
        let value = self.world.at_node(|node| node.frames[address / PAGE][address % PAGE]);
        let stored = self.world.cluster.borrow().shadow[address];
        assert_eq!(value, stored, "thread {} loads byte {address}", self.number);
        value
    }

    pub(super) async fn store(&mut self, address: usize, value: u8) {
        self.access(address, Access::Write).await;
        self.world.at_node(|node| node.frames[address / PAGE][address % PAGE] = value);
        self.world.cluster.borrow_mut().shadow[address] = value;
    }

    pub(super) async fn lock(&mut self, name: u32) {
        self.worker.lock(&mut self.world, name).await.expect("no node dies here");
    }

    pub(super) async fn unlock(&mut self, name: u32) {
        self.worker.unlock(&mut self.world, name).await.expect("no node dies here");
    }

    pub(super) async fn barrier(&mut self, name: u32) {
        self.worker.barrier(&mut self.world, name).await.expect("no node dies here");
    }

    pub(super) async fn set_flag(&mut self, name: u32) {
        self.worker.set_flag(&mut self.world, name).await.expect("no node dies here");
    }

    pub(super) async fn wait_flag(&mut self, name: u32) {
        self.worker.wait_flag(&mut self.world, name).await.expect("no node dies here");
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs `program` as every worker of the cluster, to its end.
pub(super) fn run<F: Future<Output = ()> + 'static>(
    cluster: Cluster,
    program: impl Fn(Thread) -> F,
) -> Counts {
    let (nodes, workers) = (cluster.nodes.len(), cluster.workers);
    let cluster = Rc::new(RefCell::new(cluster));
    let mut tasks: Vec<Option<Task>> = Vec::new();
    for number in 0..nodes * workers {
        let (node, id) = (NodeId((number / workers) as u8), WorkerId((number % workers) as u8));
        let world = Handle::new(&cluster, (node, Some(id)));
        tasks.push(Some(Box::pin(program(Thread { world, worker: Worker::new(id), number }))));
    }
    let mut servers: Vec<Handle> =
        (0..nodes).map(|n| Handle::new(&cluster, (NodeId(n as u8), None))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for step in 0.. {
        assert!(step < LIMIT, "no end after {LIMIT} events: {}", cluster.borrow().state());
        if step % 16 == 0 {
            cluster.borrow().check();
        }
        if tasks.iter().all(Option::is_none) {
            break;
        }
        let (choice, stores, channels) = {
            let mut cluster = cluster.borrow_mut();
            cluster.channels.retain(|(_, queue)| !queue.is_empty());
            let (stores, channels) = (cluster.effects.len(), cluster.channels.len());
            (cluster.random.below(stores + channels + tasks.len() + nodes), stores, channels)
        };
        if choice < stores {
            cluster.borrow_mut().land(choice);
        } else if choice < stores + channels {
            let ((from, to), body) = {
                // Messages overtake each other: any process of a node may take a request, and answer it.
                let mut cluster = cluster.borrow_mut();
                let Cluster { channels, random, .. } = &mut *cluster;
                let (ends, queue) = &mut channels[choice - stores];
                (*ends, queue.remove(random.below(queue.len())).expect("not empty"))
            };
            deliver(&mut servers, from, to, body);
        } else if choice < stores + channels + tasks.len() {
            let slot = &mut tasks[choice - stores - channels];
            if let Some(task) = slot
                && task.as_mut().poll(&mut context) == Poll::Ready(())
            {
                *slot = None;
            }
        } else {
            retry(&mut servers[choice - stores - channels - tasks.len()]);
        }
    }
    let end = cluster.borrow();
    end.counts
}

fn deliver(servers: &mut [Handle], from: Process, to: Process, body: Body) {
    let server = &mut servers[usize::from(to.0.0)];
    match body {
        Body::Reply { ticket, reply, frame } => {
            let broken = server.at_node(|node| node.breaks.remove(&ticket));
            match broken {
                Some(page) => {
                    server.staging = frame;
                    if serve::taken_back(server, page, reply) {
                        server.send(from.0, Request::Settled(page));
                    }
                }
                None => {
                    server.cluster.borrow_mut().replies.insert(ticket, (reply, frame));
                }
            }
        }
        Body::Request { ticket, request, diff, notices } => {
            let twice = server.cluster.borrow().mutation == Mutation::AnswerTwice;
            if server.at_node(|node| node.taken.insert(ticket)) || twice {
                serve_one(server, from, ticket, request, diff, notices);
            }
        }
    }
}

fn serve_one(
    server: &mut Handle,
    from: Process,
    ticket: u64,
    request: Request,
    diff: Vec<(usize, u8)>,
    notices: Vec<PageId>,
) {
    match request {
        Request::Claim(page) => {
            let home = server.at_node(|node| *node.claims.entry(page).or_insert(from.0));
            reply(server, from, ticket, Reply::Home(home));
        }
        Request::Notices => {
            server.at_node(|node| node.bins.extend(notices));
            reply(server, from, ticket, serve::DONE);
        }
        Request::Lock(name) => {
            let previous = server.at_node(|node| node.managers.entry(name).or_default().request(from.0));
            reply(server, from, ticket, serve::DONE);
            match previous {
                Some(node) => drop(server.send(node, Request::Forward(name, from.0))),
                None => drop(server.send(from.0, Request::Grant(name))),
            }
        }
        Request::Forward(name, next) => {
            if let Some(next) = server.with_lock(name, |lock| lock.forward(next)) {
                server.send(next, Request::Grant(name));
            }
        }
        Request::Grant(name) => {
            server.with_lock(name, |lock| lock.granted());
            reply(server, from, ticket, serve::DONE);
        }
        Request::Arrive(name) => {
            let nodes = server.nodes();
            let all = server.at_node(|node| {
                node.arrivals.push((from, ticket, name));
                node.masters.entry(name).or_default().arrive(from.0, nodes)
            });
            if all {
                let waiting = server.at_node(|node| std::mem::take(&mut node.arrivals));
                let (go, stay): (Vec<_>, Vec<_>) =
                    waiting.into_iter().partition(|(_, _, other)| *other == name);
                server.at_node(|node| node.arrivals = stay);
                for (from, ticket, _) in go {
                    reply(server, from, ticket, serve::DONE);
                }
            }
        }
        Request::Flag(name) => {
            server.at_node(|node| {
                node.words.insert(crate::world::Place::Flag(name), 1);
                node.synchronised += 1;
            });
            reply(server, from, ticket, serve::DONE);
        }
        Request::Settled(page) => {
            serve::settled(server, page);
            reply(server, from, ticket, serve::DONE);
        }
        Request::Fetch(..) | Request::Break(_) | Request::Diff(_) | Request::Leave(_) => {
            try_page(server, Parked { from, ticket, request, diff, version: 0 });
        }
    }
}

fn try_page(server: &mut Handle, mut parked: Parked) {
    server.incoming = parked.diff.clone();
    server.staging = None;
    let answer = serve::page(server, parked.from.0, parked.request).expect("a request for a page");
    let (Request::Fetch(page, _) | Request::Break(page) | Request::Diff(page) | Request::Leave(page)) =
        parked.request
    else {
        unreachable!("a request for a page")
    };
    match answer {
        Answer::Reply(answer) => {
            if answer == Reply::Frame && server.cluster.borrow().mutation == Mutation::Unsettled {
                let staging = server.staging;
                serve::settled(server, page);
                server.staging = staging;
            }
            return reply(server, parked.from, parked.ticket, answer);
        }
        Answer::Park => {}
        Answer::Break { holder } => {
            let ticket = server.send(holder, Request::Break(page));
            server.at_node(|node| node.breaks.insert(ticket, page));
        }
    }
    parked.version = server.at_node(|node| node.versions[page.0 as usize]);
    server.at_node(|node| node.parked.push(parked));
}

/// Tries parked requests again whose pages have changed, in their order.
fn retry(server: &mut Handle) {
    let parked = server.at_node(|node| std::mem::take(&mut node.parked));
    for parked in parked {
        let (Request::Fetch(page, _) | Request::Break(page) | Request::Diff(page) | Request::Leave(page)) =
            parked.request
        else {
            unreachable!("a request for a page")
        };
        if server.at_node(|node| node.versions[page.0 as usize]) == parked.version {
            server.at_node(|node| node.parked.push(parked));
        } else {
            try_page(server, parked);
        }
    }
}

fn reply(server: &mut Handle, to: Process, ticket: u64, reply: Reply) {
    let frame = match reply {
        Reply::Page(_) | Reply::Frame => server.staging.take(),
        _ => None,
    };
    let process = server.process;
    server.cluster.borrow_mut().post(process, to, Body::Reply { ticket, reply, frame });
}
