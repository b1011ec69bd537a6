//! What a worker does at a page fault (section 2.1), over any [`World`].

use crate::ids::{NodeId, PageId, WorkerId, WorkerSet};
use crate::protocol::fault::Fault;
use crate::protocol::page::{Access, Busy, Page, Scene};
use crate::variant::Way;
use crate::world::{NodeDown, Reply, Request, World};

/// One worker of a node.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    id: WorkerId,
}

pub(crate) fn scene<W: World>(world: &mut W, page: PageId, entry: &Page) -> Scene {
    let replica = world.replica(page, entry.home());
    Scene { me: world.me(), variant: world.variant(), now: world.tick(), replica }
}

impl Worker {
    /// The worker of this number.
    pub fn new(id: WorkerId) -> Worker {
        Worker { id }
    }

    /// Its number on the node.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// A page fault: returns when the mapping allows the access.
    pub async fn fault<W: World>(&self, world: &mut W, page: PageId, access: Access) -> Result<(), NodeDown> {
        let mut asked = false;
        loop {
            let mut entry = world.lock(page);
            let scene = scene(world, page, &entry);
            let next = entry.fault(&scene, self.id, access, &mut asked);
            if let Fault::Map { twin, list } = next {
                if twin {
                    world.make_twin(page);
                }
                if list {
                    world.list(page, WorkerSet::of(self.id));
                }
                world.protect(page, Some(access));
                world.unlock(page, entry);
                return Ok(());
            }
            let version = world.unlock(page, entry);
            match next {
                Fault::Map { .. } => {}
                Fault::Wait => {
                    if entry.busy() == Busy::Fetching {
                        world.coalesce();
                    }
                    world.changed(page, version).await?;
                    continue;
                }
                Fault::Claim => self.claim(world, page).await?,
                Fault::Publish(permission) => {
                    world.publish(page, permission).await?;
                    change(world, page, |entry| entry.published(permission));
                }
                Fault::Fetch { home, migrates } => {
                    if migrates {
                        world.attempt_migration();
                    }
                    self.fetch(world, page, home, access).await?;
                }
                Fault::Break { holder } => self.take_back(world, page, holder).await?,
            }
            world.between().await;
        }
    }

    async fn claim<W: World>(&self, world: &mut W, page: PageId) -> Result<(), NodeDown> {
        let home = match world.variant().metadata() {
            Way::Direct => world.claim(page).await?,
            Way::Message => {
                let ticket = world.send(page.manager(world.nodes()), Request::Claim(page));
                match world.answer(ticket).await? {
                    Reply::Home(home) => home,
                    other => unreachable!("a claim is answered by a home, not {other:?}"),
                }
            }
        };
        change(world, page, |entry| entry.claimed(home));
        Ok(())
    }

    async fn fetch<W: World>(
        &self,
        world: &mut W,
        page: PageId,
        home: NodeId,
        access: Access,
    ) -> Result<(), NodeDown> {
        let ticket = world.send(home, Request::Fetch(page, access));
        let reply = world.answer(ticket).await?;
        let mut entry = world.lock(page);
        match reply {
            Reply::Page(fetched) => {
                let scene = scene(world, page, &entry);
                let merge = entry.fetched(&scene, fetched);
                world.merge(page, merge);
            }
            Reply::Moved(home) => entry.fetch_moved(home),
            other => unreachable!("a fetch is answered by a page, not {other:?}"),
        }
        world.unlock(page, entry);
        Ok(())
    }

    /// The home takes a page back from the node that has it exclusively.
    async fn take_back<W: World>(&self, world: &mut W, page: PageId, holder: NodeId) -> Result<(), NodeDown> {
        let ticket = world.send(holder, Request::Break(page));
        let reply = world.answer(ticket).await?;
        if crate::serve::taken_back(world, page, reply) {
            let ticket = world.send(holder, Request::Settled(page));
            world.answer(ticket).await?;
        }
        Ok(())
    }
}

/// Changes the entry of a page.
pub(crate) fn change<W: World>(world: &mut W, page: PageId, act: impl FnOnce(&mut Page)) {
    let mut entry = world.lock(page);
    act(&mut entry);
    world.unlock(page, entry);
}
