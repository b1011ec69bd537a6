//! Messages in pieces on libfabric: `fi_sendv` and `fi_recvv`, as far as the provider goes, against packing.

use crate::cases::segments::{cut, pieces};
use crate::error::Result;
use crate::layers::ofi::Site;
use crate::layers::ofi::direct::{QUEUE, end};
use crate::layers::ofi::stock::{MessagePool, messages};
use crate::layers::stocked::Needs;
use crate::loops::End;

pub(super) fn build(site: Site) -> Result<Box<dyn End>> {
    let needs = Needs::of(&site.variant, site.side);
    // One more than are posted: the answer may be sent before the last completion is seen.
    let sends = messages(&site, needs.sends + 1, cut(&site.variant, "gather"), true)?;
    let receives = messages(&site, needs.receives, cut(&site.variant, "scatter"), true)?;
    let pool = MessagePool::new(sends, receives, site.variant.size, true);
    let pool = match site.variant.arg("pack") {
        1 => pool.packed(pieces(&site.variant)),
        _ => pool.renewed(),
    };
    let queues = site.one_queue(QUEUE)?;
    end(site, pool, queues, false, Vec::new())
}
