//! Locks, barriers and flags of a program, by remote write or by message (section 2.3.1).
//!
//! Each is a release, an order between nodes, and an acquire.

use crate::ids::NodeId;
use crate::protocol::barrier::Arrival;
use crate::protocol::lock::{Act, ArrayLock, Take};
use crate::variant::Way;
use crate::worker::Worker;
use crate::world::{Name, NodeDown, Place, Request, Shared, World};

/// The node at which the nodes meet in a barrier.
pub const MASTER: NodeId = NodeId(0);

impl Worker {
    /// Takes a lock.
    pub async fn lock<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        match world.variant().synchronisation() {
            Way::Direct => self.lock_array(world, name).await?,
            Way::Message => self.lock_queue(world, name).await?,
        }
        self.acquire(world).await
    }

    /// Gives a lock back.
    pub async fn unlock<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        self.release(world).await?;
        match world.variant().synchronisation() {
            Way::Direct => {
                let entry = Place::Lock(name, world.me());
                world.write_word(entry, 0).await?;
                world.clear(name);
            }
            Way::Message => {
                if let Some(next) = world.with_lock(name, |lock| lock.release(self.id())) {
                    let ticket = world.send(next, Request::Grant(name));
                    world.answer(ticket).await?;
                }
            }
        }
        Ok(())
    }

    async fn lock_queue<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        loop {
            let seen = world.node().version();
            match world.with_lock(name, |lock| lock.take(self.id())) {
                Take::Held => return Ok(()),
                Take::Wait => world.until(|node| node.version() != seen).await?,
                Take::Ask => {
                    let manager = NodeId((name % u32::from(world.nodes())) as u8);
                    let ticket = world.send(manager, Request::Lock(name));
                    world.answer(ticket).await?;
                }
            }
        }
    }

    /// The paper's lock: an entry for each node, written to all replicas. A node that has written its own entry
    /// everywhere and then finds all others empty has the lock: of two that try, at least one sees the other.
    async fn lock_array<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        world.until(|node| node.test_and_set(name)).await?;
        let (me, mut lock) = (world.me(), ArrayLock::default());
        let (mut taken, mut failures) = (false, 0);
        loop {
            match lock.next(taken) {
                Act::Write(entry) => world.write_word(Place::Lock(name, me), u64::from(entry)).await?,
                Act::Look => {
                    let mut others = (0..world.nodes()).map(NodeId).filter(|node| *node != me);
                    taken = others.any(|other| world.node().word(Place::Lock(name, other)) != 0);
                }
                Act::Held => return Ok(()),
                Act::BackOff => {
                    world.back_off(failures).await?;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// Waits until all workers of all nodes have arrived.
    pub async fn barrier<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        self.release(world).await?;
        let workers = world.workers();
        match world.with_barrier(name, |local| local.arrive(workers)) {
            Arrival::Wait { episode } => {
                world.until(|node| node.is_over(name, episode)).await?;
            }
            Arrival::Last { episode } => {
                match world.variant().synchronisation() {
                    // There is no other node to wait for.
                    _ if world.nodes() == 1 => {}
                    Way::Message => {
                        let ticket = world.send(MASTER, Request::Arrive(name));
                        world.answer(ticket).await?;
                    }
                    Way::Direct => self.arrive(world, name, episode + 1).await?,
                }
                world.with_barrier(name, |local| local.open());
            }
        }
        self.acquire(world).await
    }

    /// A node arrives by remote write; the master's last worker opens the barrier for all. Nodes but the master look at no arrivals,
    /// so that its own is not written.
    async fn arrive<W: World>(&self, world: &mut W, name: Name, episode: u64) -> Result<(), NodeDown> {
        if world.me() == MASTER {
            let nodes = world.nodes();
            let others = || (0..nodes).map(NodeId).filter(|node| *node != MASTER);
            let arrived = |node: &W::Node, other| node.word(Place::Arrived(name, other)) >= episode;
            world.until(|node| others().all(|other| arrived(node, other))).await?;
            return world.write_word(Place::Sense(name), episode).await;
        }
        world.write_word(Place::Arrived(name, world.me()), episode).await?;
        world.until(|node| node.word(Place::Sense(name)) >= episode).await
    }

    /// Sets a flag, once.
    pub async fn set_flag<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        self.release(world).await?;
        if world.variant().synchronisation() == Way::Direct {
            return world.write_word(Place::Flag(name), 1).await;
        }
        let tickets: Vec<_> =
            (0..world.nodes()).map(|node| world.send(NodeId(node), Request::Flag(name))).collect();
        for ticket in tickets {
            world.answer(ticket).await?;
        }
        Ok(())
    }

    /// Waits until a flag is set.
    pub async fn wait_flag<W: World>(&self, world: &mut W, name: Name) -> Result<(), NodeDown> {
        world.until(|node| node.word(Place::Flag(name)) != 0).await?;
        self.acquire(world).await
    }
}
