//! Completion queues (thesis, section 3.8, figure 3.11): what it costs to hear of sends and receives through one.
//!
//! Many VIs are bound to it and one is active, or all of them (`active.rs`). The standard that it is held against has as many VIs and asks the work
//! queues of the active one.

mod active;
mod direct;

use viaduct_via::{Cq, Descriptor, MemAttributes, Op, ViAttributes};

use crate::cases::{Apart, Case, References, by_descriptor, nothing, shape};
use crate::error::Result;
use crate::layers::half::CREDITS;
use crate::layers::stock::{DescriptorPool, Pieces, descriptors};
use crate::layers::stocked::{Needs, stocked};
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Motion, Point, Settings, Variant};

pub(super) const CASE: Case = Case {
    name: "cq",
    about: "what it costs to take completions from a completion queue that many work queues share",
    unit: "us",
    lower_is_better: true,
    sizes: &[8],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong by descriptor on one of many connected VIs, one way = half of the round trip. queue: its send and \
            receive queue are polled; cq: both queues of all VIs are bound to one completion queue and only that is \
            polled. active-queue, active-cq: that many VIs each carry a message at the same time, one way = half of \
            the time of all answers, for one message; polled in turn, or through one completion queue. libfabric has \
            no work queues that could be polled: on the layer ofi a queue is a completion queue of one endpoint alone",
    window: 1,
    axis: "queues",
    references: References::None,
    logp: Apart::Polled,
    via: build,
    ofi: Some(direct::build),
    derive: nothing,
};

const COUNTS: &[usize] = &[1, 4, 16, 64, 256, 1024];
/// For a first impression.
const FEWEST: &[usize] = &[1, 1024];
/// VIs that all carry traffic.
const ACTIVE: &[u64] = &[1, 2, 4, 16, 64];
const FEWEST_ACTIVE: &[u64] = &[2, 16];

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let counts = match &settings.connections[..] {
        [] if settings.quick => FEWEST,
        [] => COUNTS,
        asked => asked,
    };
    let point = |size: &usize| {
        let of = |(count, series): (&usize, &str)| {
            let shape = Variant { connections: *count, ..shape(Motion::PingPong, *size, CASE.window) };
            let shape = shape.on(series, Some(*count as f64)).with("cq", u64::from(series == "cq"));
            by_descriptor(settings, &shape)
        };
        let all = counts.iter().flat_map(|count| [(count, "queue"), (count, "cq")]);
        let mut variants: Vec<Variant> = all.flat_map(of).collect();
        // Numbers of queues on the command line are for one that is active.
        let busy = if settings.connections.is_empty() { settings.places(ACTIVE, FEWEST_ACTIVE) } else { &[] };
        for count in busy {
            for (series, cq) in [("active-queue", 0), ("active-cq", 1)] {
                let shape = shape(Motion::Calls, *size, CASE.window).on(series, Some(*count as f64));
                variants.extend(by_descriptor(settings, &active::active(shape.with("cq", cq), *count)));
            }
        }
        // A thread cannot sleep on many queues at once, and one core has no room for two ends that spin.
        variants.retain(|v| v.series != "active-queue" || !settings.one_core());
        Point { size: *size, variants }
    };
    Ok(sizes.iter().map(point).collect())
}

fn build(mut place: Place) -> Result<Box<dyn End>> {
    if place.variant.arg("active") > 0 {
        return active::end(place);
    }
    let needs = Needs::of(&place.variant, place.side);
    let cq = match place.variant.arg("cq") {
        1 => Some(create(&mut place, &needs)?),
        _ => None,
    };
    idle_vis(&mut place, cq)?;
    let (size, sends, receives) = (place.variant.size, needs.sends + 1, needs.receives);
    let sends = descriptors(&mut place.nic, place.tag, Op::Send, sends, Pieces::whole(size));
    let sends = sends.map_err(|e| place.failed(&e))?;
    let receives = descriptors(&mut place.nic, place.tag, Op::Receive, receives, Pieces::whole(size));
    let receives = receives.map_err(|e| place.failed(&e))?;
    stocked(place, DescriptorPool::new(sends, receives, size, true), cq)
}

/// A completion queue with an entry for everything that is ever posted at once.
fn create(place: &mut Place, needs: &Needs) -> Result<Cq> {
    let entries = place.variant.connections + 2 * (needs.sends + needs.receives + CREDITS) + 2;
    place.nic.create_cq(entries).map_err(|e| place.failed(&e))
}

/// All VIs but the active one, each with a receive posted, as a server has them.
fn idle_vis(place: &mut Place, cq: Option<Cq>) -> Result<()> {
    let idle = place.variant.connections - 1;
    if idle == 0 {
        return Ok(());
    }
    let memory = place.nic.alloc(64 * idle, MemAttributes::local(place.tag));
    for buffer in memory.map_err(|e| place.failed(&e))?.chunks(64) {
        let attributes = ViAttributes::new(place.tag).depth(2);
        let attributes = match cq {
            Some(cq) => attributes.cq(cq),
            None => attributes,
        };
        let vi = place.nic.create_vi(attributes).map_err(|e| place.failed(&e))?;
        place.nic.post_recv(vi, Descriptor::recv(buffer)).map_err(|e| place.failed(&e.error))?;
        place.join(vi, &[])?;
    }
    Ok(())
}
