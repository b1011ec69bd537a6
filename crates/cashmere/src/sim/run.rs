//! Runs a program on the simulated cluster: one event after another, chosen by the seed or by a search.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::cluster::{Cluster, Counts, PAGE};
use super::handle::Handle;
use super::{fingerprint, server};
use crate::ids::{NodeId, PageId, WorkerId};
use crate::protocol::page::Access;
use crate::protocol::rules::break_rule;
use crate::worker::Worker;

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
            self.world.pause().await;
        }
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

    pub(super) async fn acquire(&mut self) {
        self.worker.acquire(&mut self.world).await.expect("no node dies here");
    }

    /// Waits until the program has come so far.
    pub(super) async fn after(&mut self, stage: u8) {
        self.world.found(|cluster| (cluster.stage >= stage).then_some(())).await;
    }

    /// The program has come so far.
    pub(super) fn reach(&mut self, stage: u8) {
        self.world.cluster.borrow_mut().stage = stage;
    }

    pub(super) async fn release(&mut self) {
        self.worker.release(&mut self.world).await.expect("no node dies here");
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

/// What can happen next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A store of a remote write lands.
    Land(usize),
    /// A message of a channel comes: any of them, since any process of a node may take a request and answer it.
    Deliver { channel: usize, message: usize },
    /// A worker goes on, if it can.
    Step(usize),
    /// A server tries again what it could not answer.
    Retry(usize),
}

/// A cluster with a program on it.
pub(super) struct Simulation {
    pub(super) cluster: Rc<RefCell<Cluster>>,
    tasks: Vec<Option<Task>>,
    servers: Vec<Handle>,
    /// What each worker has found by its waits, and what it saw of its node then: what it does next follows from it.
    progress: Vec<Rc<Cell<u64>>>,
    histories: Vec<u64>,
}

impl Simulation {
    pub(super) fn new<F: Future<Output = ()> + 'static>(
        cluster: Cluster,
        program: impl Fn(Thread) -> F,
    ) -> Simulation {
        let (nodes, workers) = (cluster.nodes.len(), cluster.workers);
        break_rule(cluster.mutation.rule());
        let cluster = Rc::new(RefCell::new(cluster));
        let (mut tasks, mut progress): (Vec<Option<Task>>, _) = (Vec::new(), Vec::new());
        for number in 0..nodes * workers {
            let (node, id) = (NodeId((number / workers) as u8), WorkerId((number % workers) as u8));
            let world = Handle::new(&cluster, (node, Some(id)));
            progress.push(Rc::clone(&world.progress));
            tasks.push(Some(Box::pin(program(Thread { world, worker: Worker::new(id), number }))));
        }
        let servers = (0..nodes).map(|n| Handle::new(&cluster, (NodeId(n as u8), None))).collect();
        let histories = vec![0; tasks.len()];
        Simulation { cluster, tasks, servers, progress, histories }
    }

    /// Whether every worker has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.tasks.iter().all(Option::is_none)
    }

    /// An event from the seed; it may change nothing.
    fn draw(&self) -> Event {
        let (tasks, nodes) = (self.tasks.len(), self.servers.len());
        let mut cluster = self.cluster.borrow_mut();
        let Cluster { channels, effects, random, .. } = &mut *cluster;
        channels.retain(|(_, queue)| !queue.is_empty());
        let choice = random.below(effects.len() + channels.len() + tasks + nodes);
        let Some(choice) = choice.checked_sub(effects.len()) else { return Event::Land(choice) };
        if let Some((_, queue)) = channels.get(choice) {
            return Event::Deliver { channel: choice, message: random.below(queue.len()) };
        }
        let choice = choice - channels.len();
        if choice < tasks { Event::Step(choice) } else { Event::Retry(choice - tasks) }
    }

    /// Every event, the workers' steps first; some may change nothing.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut cluster = self.cluster.borrow_mut();
        cluster.channels.retain(|(_, queue)| !queue.is_empty());
        let steps = (0..self.tasks.len()).filter(|task| self.tasks[*task].is_some()).map(Event::Step);
        let retries = (0..cluster.nodes.len()).filter(|node| !cluster.nodes[*node].parked.is_empty());
        let messages = |(channel, (_, queue)): (usize, &(_, VecDeque<_>))| {
            (0..queue.len()).map(move |message| Event::Deliver { channel, message })
        };
        let deliveries = cluster.channels.iter().enumerate().flat_map(messages);
        let stores = (0..cluster.effects.len()).map(Event::Land);
        steps.chain(retries.map(Event::Retry)).chain(deliveries).chain(stores).collect()
    }

    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Land(store) => self.cluster.borrow_mut().land(store),
            Event::Deliver { channel, message } => {
                let (ends, body) = {
                    let (ends, queue) = &mut self.cluster.borrow_mut().channels[channel];
                    (*ends, queue.remove(message).expect("a message"))
                };
                server::deliver(&mut self.servers, ends.0, ends.1, body);
            }
            Event::Step(task) => self.step(task),
            Event::Retry(node) => server::retry(&mut self.servers[node]),
        }
    }

    fn step(&mut self, number: usize) {
        let Some(task) = &mut self.tasks[number] else { return };
        let (cluster, before) = (&self.cluster, self.progress[number].get());
        let seen = cluster.borrow().explored.then(|| {
            let cluster = cluster.borrow();
            fingerprint::of_node(&cluster.nodes[number / cluster.workers])
        });
        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            self.tasks[number] = None;
        }
        let after = self.progress[number].get();
        if before != after {
            self.histories[number] = fingerprint::number((self.histories[number], seen, after));
        }
    }

    /// The whole state as one number.
    pub(super) fn fingerprint(&self) -> u64 {
        let over: Vec<bool> = self.tasks.iter().map(Option::is_none).collect();
        fingerprint::number((fingerprint::of_cluster(&self.cluster.borrow()), &self.histories, over))
    }
}

/// Runs `program` as every worker of the cluster, to its end, by the seed.
pub(super) fn run<F: Future<Output = ()> + 'static>(
    cluster: Cluster,
    program: impl Fn(Thread) -> F,
) -> Counts {
    let mut simulation = Simulation::new(cluster, program);
    for step in 0.. {
        assert!(step < LIMIT, "no end after {LIMIT} events: {}", simulation.cluster.borrow().state());
        if step % 16 == 0 {
            simulation.cluster.borrow().check();
        }
        if simulation.is_over() {
            break;
        }
        let event = simulation.draw();
        simulation.apply(event);
    }
    let end = simulation.cluster.borrow();
    end.counts
}
