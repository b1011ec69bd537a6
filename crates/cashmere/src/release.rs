//! What a worker does at a release: diffs to the homes, then notices to the sharers (section 2.1), over any [`World`].

use crate::ids::{NodeId, NodeSet, PageId};
use crate::protocol::flush::Flush;
use crate::protocol::page::{Access, View};
use crate::variant::Way;
use crate::worker::{Worker, change, scene};
use crate::world::{NodeDown, Reply, Request, World};

/// Diffs that a release has under way at most: each is kept until its home has it.
const MOST: usize = if cfg!(test) { 2 } else { 64 };

impl Worker {
    /// A release: the changes of this worker are at their homes and every sharer has been notified when it returns.
    pub async fn release<W: World>(&self, world: &mut W) -> Result<(), NodeDown> {
        let started = world.tick();
        let mut sent = Vec::new();
        let mut notify = Vec::new();
        for page in world.take_list(self.id()) {
            world.between().await;
            loop {
                let mut entry = world.lock(page);
                let scene = scene(world, page, &entry);
                let step = entry.flush(&scene, self.id(), started);
                if !matches!(step, Flush::Wait | Flush::Nothing) && entry.mapped().contains(self.id()) {
                    world.protect(page, Some(Access::Read));
                }
                let changed = match step {
                    Flush::Diff { keep_twin, .. } => world.diff(page, keep_twin),
                    _ => false,
                };
                let version = world.unlock(page, entry);
                match step {
                    // What was sent has to end before this worker waits for another, which may wait for it.
                    Flush::Wait => {
                        self.finish(world, &mut sent, 0, &mut notify).await?;
                        world.changed(page, version).await?;
                        continue;
                    }
                    Flush::Nothing => {}
                    Flush::Notify => notify.push((page, entry.home())),
                    Flush::Publish(permission) => {
                        world.publish(page, permission).await?;
                        change(world, page, |entry| entry.published(permission));
                        notify.push((page, entry.home()));
                    }
                    Flush::Diff { .. } if !changed => {
                        world.settle_diff(page);
                        change(world, page, |entry| entry.acknowledged(None));
                        notify.push((page, entry.home()));
                    }
                    Flush::Diff { home, .. } if world.variant().data() == Way::Direct => {
                        world.write_diff(page, home).await?;
                        world.settle_diff(page);
                        change(world, page, |entry| entry.acknowledged(None));
                        notify.push((page, Some(home)));
                    }
                    Flush::Diff { home, .. } => {
                        sent.push((page, home, world.send(home, Request::Diff(page))));
                        if sent.len() == MOST {
                            self.finish(world, &mut sent, MOST / 2, &mut notify).await?;
                        }
                    }
                }
                break;
            }
        }
        self.finish(world, &mut sent, 0, &mut notify).await?;
        if notify.is_empty() {
            return Ok(());
        }
        world.between().await;
        self.notify(world, &notify).await?;
        world.between().await;
        self.leave(world, notify.iter().map(|&(page, _)| page)).await
    }

    /// Waits until the homes have all diffs that were sent but for the last `left`.
    async fn finish<W: World>(
        &self,
        world: &mut W,
        sent: &mut Vec<(PageId, NodeId, W::Ticket)>,
        left: usize,
        notify: &mut Vec<(PageId, Option<NodeId>)>,
    ) -> Result<(), NodeDown> {
        for (page, mut home, mut ticket) in sent.drain(..sent.len().saturating_sub(left)) {
            let view = loop {
                match world.answer(ticket).await? {
                    Reply::Done(view) => break view,
                    Reply::Moved(moved) => {
                        change(world, page, |entry| entry.diff_moved(moved));
                        home = moved;
                        ticket = world.send(home, Request::Diff(page));
                    }
                    other => unreachable!("a diff is acknowledged, not answered by {other:?}"),
                }
            };
            world.settle_diff(page);
            change(world, page, |entry| entry.acknowledged(Some(view)));
            notify.push((page, Some(home)));
        }
        Ok(())
    }

    /// Notifies every node of the sharing sets but this one and the homes that have the changes already.
    async fn notify<W: World>(
        &self,
        world: &mut W,
        pages: &[(PageId, Option<NodeId>)],
    ) -> Result<(), NodeDown> {
        let me = world.me();
        let mut bins: Vec<Vec<PageId>> = vec![Vec::new(); usize::from(world.nodes())];
        for &(page, home) in pages {
            let entry = world.lock(page);
            world.unlock(page, entry);
            let scene = scene(world, page, &entry);
            let View { sharers, .. } = entry.view(&scene);
            for node in sharers.without(me).iter().filter(|&node| Some(node) != home) {
                bins[usize::from(node.0)].push(page);
            }
        }
        let mut tickets = Vec::new();
        for (node, pages) in (0..).map(NodeId).zip(&bins).filter(|(_, pages)| !pages.is_empty()) {
            match world.variant().metadata() {
                Way::Direct => world.write_notices(NodeSet::of(node), pages).await?,
                Way::Message => tickets.push(world.send_notices(node, pages)),
            }
        }
        for ticket in tickets {
            world.answer(ticket).await?;
        }
        Ok(())
    }
}
