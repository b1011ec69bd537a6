//! A worker with pages of another node in its cache and no process to talk to: for counting the instructions of what it does
//! without a message.

use std::sync::Arc;

use viaduct_os::segment::Segment;
use viaduct_via::Nic;

use crate::ids::{NodeId, NodeSet, PageId, WorkerId};
use crate::node::layout::Meta;
use crate::node::net::Net;
use crate::node::process::{Memory, Process, Shape};
use crate::node::region::{Map, Region};
use crate::node::start::{Error, failed};
use crate::node::wire::Bounds;
use crate::protocol::fault::{Fault, Fetched};
use crate::protocol::page::{Access, Page, Scene, Stamp};
use crate::raw::finish;
use crate::variant::Variant;
use crate::worker::Worker;
use crate::world::{NodeDown, World};

const PAGE: usize = 4096;
const NODES: u8 = 2;

/// The worker.
pub struct Lone {
    process: Process,
    worker: Worker,
}

impl Lone {
    /// A worker that has read `bytes` of another node's memory.
    ///
    /// # Errors
    /// If memory or the NIC fail.
    pub fn new(nic: Nic, variant: Variant, bytes: usize) -> Result<Lone, Error> {
        let pages = bytes / PAGE;
        let shape = Shape { nodes: NODES, workers: 1, pages: pages as u32, page: PAGE, variant };
        let segment = |len| Segment::create_sparse("lone", len).map_err(failed("memory"));
        let nodes = usize::from(NODES);
        let map = Map::new(nodes, pages);
        let memory = Memory {
            meta: Meta::new(segment(Meta::bytes(pages, 1, nodes))?, pages, 1, nodes),
            region: Region { segment: Arc::new(segment(map.bytes())?), map },
            frames: Arc::new(segment(bytes)?),
            twins: segment(bytes)?,
        };
        let bounds = Bounds { nodes: NODES, workers: 1, pages: shape.pages };
        let net =
            Net::new(nic, bounds, shape.payload()).map_err(failed("preparing the network interface"))?;
        let id = WorkerId(0);
        let process = Process::new(shape, NodeId(0), Some(id), memory, net, Default::default(), None);
        let mut lone = Lone { process, worker: Worker::new(id) };
        (0..shape.pages).for_each(|page| lone.cache(PageId(page)));
        Ok(lone)
    }

    /// The page as it is after it was fetched from the other node.
    fn cache(&mut self, page: PageId) {
        let process = &mut self.process;
        process.lock(page);
        let mut entry = Page::with_home(NodeId(1));
        let (me, sharers) = (NodeId(0), NodeSet::of(NodeId(1)));
        let fetched = Fetched { exclusive: false, migrated: false, sharers, home_writes: false };
        let mut asked = false;
        loop {
            let now = Stamp(process.tick().0);
            let scene =
                Scene { me, variant: process.variant(), now, replica: process.replica(page, entry.home()) };
            match entry.fault(&scene, self.worker.id(), Access::Read, &mut asked) {
                Fault::Publish(permission) => entry.published(permission),
                Fault::Fetch { .. } => drop(entry.fetched(&scene, fetched)),
                _ => break,
            }
        }
        process.unlock(page, entry);
    }

    /// Pages that the worker has mapped.
    pub fn cached(&mut self) -> usize {
        let process = &mut self.process;
        let pages = process.shape.pages;
        let mapped = |page: &PageId| {
            let entry = process.lock(*page);
            process.unlock(*page, entry);
            entry.mapped().contains(WorkerId(0))
        };
        (0..pages).map(PageId).filter(mapped).count()
    }

    /// An acquire that finds no notices.
    ///
    /// # Errors
    /// None without a network.
    pub fn acquire(&mut self) -> Result<(), NodeDown> {
        finish(self.worker.acquire(&mut self.process))
    }
}

#[cfg(test)]
mod tests {
    /// What `cargo xtask instructions` holds the counts to.
    const BASELINES: &str = include_str!("../examples/count_dsm/baselines.txt");

    #[test]
    fn an_empty_acquire_costs_the_same_whatever_is_cached() {
        let count = |name: &str| -> f64 {
            let line = BASELINES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
        };
        for way in ["messages", "remote-writes"] {
            let [few, many] = ["16-mib", "1-gib"].map(|size| count(&format!("acquire-{way}-{size}")));
            assert!((many / few - 1.0).abs() < 0.05, "{way}: {few} and {many} instructions");
        }
    }
}
