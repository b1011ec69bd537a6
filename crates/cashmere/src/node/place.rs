//! Homes that are given before the first touch: replayed from a file, captured for one (the method of section 3.4).

use std::path::Path;

use viaduct_job::Job;

use super::process::{Memory, Process, Shape};
use super::start::{Error, failed};
use crate::homes::Homes;
use crate::ids::{NodeId, PageId};
use crate::protocol::page::Page;

/// A page without a home, in what a node tells of the pages that it manages.
const NONE: u8 = u8::MAX;

/// Reads a file of homes.
///
/// # Errors
/// The file cannot be read, is no such file, or is of another layout.
pub fn read(path: &Path, page: usize, nodes: usize) -> Result<Homes, Error> {
    let named = |why: String| Error::Start("reading homes", format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|why| named(why.to_string()))?;
    let homes = Homes::parse(&text).map_err(|why| named(why.to_string()))?;
    homes.check(page, nodes).map_err(|why| named(why.to_string()))?;
    Ok(homes)
}

/// Rank 0 reads the homes and tells them to all; the server of each node, `serves`, stores them.
pub(super) fn replay(
    job: &mut Job,
    path: &Path,
    shape: Shape,
    me: NodeId,
    memory: &Memory,
    serves: bool,
) -> Result<(), Error> {
    let nodes = usize::from(shape.nodes);
    let text = if job.rank() == 0 { read(path, shape.page, nodes)?.to_string() } else { String::new() };
    let told = job.exchange(text.as_bytes()).map_err(failed("telling the homes"))?;
    if !serves {
        return Ok(());
    }
    let text = told.first().map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
    let homes = Homes::parse(&text).map_err(failed("the homes that rank 0 told"))?;
    let known = homes.iter().filter(|(page, _)| page.0 < shape.pages);
    known.for_each(|(page, home)| give(memory, shape, me, page, home));
    Ok(())
}

/// Gives a page that no worker has touched yet its home, unless it has one.
fn give(memory: &Memory, shape: Shape, me: NodeId, page: PageId, home: NodeId) {
    let slot = memory.meta.entry(page);
    let entry = slot.lock(&|| memory.meta.alive());
    slot.unlock(if entry.home().is_none() { Page::with_home(home) } else { entry });
    if page.manager(shape.nodes) == me {
        memory.region.claim(page, home);
    }
}

/// The homes of the first touch, from all nodes.
pub(super) fn capture(job: &mut Job, process: &Process) -> Result<Homes, Error> {
    let (shape, region) = (process.shape, &process.memory.region);
    let nodes = u32::from(shape.nodes);
    let ours = match process.worker {
        Some(_) => Vec::new(),
        None => {
            let managed = (u32::from(process.me.0)..shape.pages).step_by(nodes as usize);
            managed.map(|page| region.home(PageId(page)).map_or(NONE, |home| home.0)).collect()
        }
    };
    let told = job.exchange(&ours).map_err(failed("telling the homes"))?;
    let mut homes = Homes::new(shape.page, usize::from(shape.nodes));
    let group = shape.workers as usize + 1;
    for (node, bytes) in (0..).zip(told.iter().step_by(group)) {
        let pages = (node..shape.pages).step_by(nodes as usize).zip(bytes);
        let known = pages.filter(|(_, home)| **home < shape.nodes);
        known.for_each(|(page, home)| homes.set(PageId(page), NodeId(*home)));
    }
    Ok(homes)
}

impl Process {
    /// Gives a page that no worker has touched yet its home, unless it has one.
    pub(crate) fn place(&mut self, page: PageId, home: NodeId) {
        give(&self.memory, self.shape, self.me, page, home);
    }
}
