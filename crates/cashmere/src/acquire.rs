//! What a worker does at an acquire: notices take mappings away (section 2.1), over any [`World`].

use crate::ids::{NodeId, PageId};
use crate::protocol::page::{Invalidate, Permission, Scene};
use crate::variant::Way;
use crate::worker::{Worker, change, scene};
use crate::world::{NodeDown, Reply, Request, World};

impl Worker {
    /// An acquire: what others released before is seen by this worker's next access.
    pub async fn acquire<W: World>(&self, world: &mut W) -> Result<(), NodeDown> {
        let (me, variant) = (world.me(), world.variant());
        let at = |now| Scene { me, variant, now, replica: None };
        world.drain(&mut |now, entry| entry.notice(&at(now))).await;
        let scene = at(world.tick());
        let mut left = Vec::new();
        for page in world.take_noticed(self.id()) {
            world.between().await;
            let mut entry = world.lock(page);
            let unmap = entry.invalidate(&scene, self.id());
            if let Invalidate::Unmap { leave } = unmap {
                world.protect(page, None);
                left.extend(leave.map(|home| (page, home)));
            }
            world.unlock(page, entry);
        }
        for (page, home) in left {
            self.say_leave(world, page, home).await?;
        }
        Ok(())
    }

    /// Leaves the sharing sets of pages that a release was the last use of.
    pub(crate) async fn leave<W: World>(
        &self,
        world: &mut W,
        pages: impl Iterator<Item = PageId>,
    ) -> Result<(), NodeDown> {
        for page in pages {
            let mut entry = world.lock(page);
            let scene = scene(world, page, &entry);
            let home = entry.leave(&scene);
            world.unlock(page, entry);
            if let Some(home) = home {
                self.say_leave(world, page, home).await?;
            }
        }
        Ok(())
    }

    async fn say_leave<W: World>(
        &self,
        world: &mut W,
        page: PageId,
        mut home: NodeId,
    ) -> Result<(), NodeDown> {
        world.between().await;
        if world.variant().metadata() == Way::Direct {
            world.publish(page, Permission::Absent).await?;
        } else {
            loop {
                let ticket = world.send(home, Request::Leave(page));
                let Reply::Moved(moved) = world.answer(ticket).await? else { break };
                change(world, page, |entry| entry.left(Some(moved)));
                home = moved;
            }
        }
        change(world, page, |entry| entry.left(None));
        Ok(())
    }
}
