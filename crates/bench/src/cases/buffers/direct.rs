//! Buffers on libfabric: the same kinds, registered by `fi_mr_reg`.

use crate::cases::buffers::{SAME, SHUFFLED, SPARE, at_least, register};
use crate::error::Result;
use crate::layers::ofi::Site;
use crate::layers::ofi::direct::{QUEUE, end};
use crate::layers::ofi::shelf::Shelves;
use crate::layers::ofi::stock::{MessagePool, messages};
use crate::layers::stock::Pieces;
use crate::layers::stocked::Needs;
use crate::loops::End;
use crate::rng::Rng;

pub(super) fn build(site: Site) -> Result<Box<dyn End>> {
    let (size, kind) = (site.variant.size, site.variant.arg("buffers"));
    let needs = Needs::of(&site.variant, site.side);
    let queues = site.one_queue(QUEUE)?;
    if let Some(register) = register(&site.variant) {
        let count = at_least(&site.variant, needs.sends.max(needs.receives) + SPARE);
        let shelves = Shelves::new(&site, register, count, &needs)?;
        return end(site, shelves, queues, false, Vec::new());
    }
    let pool = |needed| messages(&site, at_least(&site.variant, needed), Pieces::whole(size), true);
    let (mut sends, mut receives) = (pool(needs.sends)?, pool(needs.receives)?);
    if kind == SHUFFLED {
        Rng::new(1).shuffle(&mut sends);
        Rng::new(2).shuffle(&mut receives);
    }
    end(site, MessagePool::new(sends, receives, size, kind == SAME), queues, false, Vec::new())
}
