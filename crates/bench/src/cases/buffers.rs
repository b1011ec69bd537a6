//! Buffers (thesis, section 3.4, figure 3.7): another page-aligned buffer for each message.
//!
//! Held against messages from the same buffers again and again: buffers registered beforehand (also against their
//! number, in order and in no order: caches and TLBs see to that), registered for each message, out of a registration
//! cache that has so many of a hundred, and never registered.

mod direct;

use viaduct_via::Op;

use crate::cases::{Apart, Case, References, by_descriptor, nothing, shape};
use crate::error::Result;
use crate::layers::heap::{Heap, Register};
use crate::layers::stock::{DescriptorPool, Pieces, descriptors};
use crate::layers::stocked::{Needs, stocked};
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Motion, Point, Settings, Variant};
use crate::rng::Rng;

pub(super) const CASE: Case = Case {
    name: "buffers",
    about: "what it costs to send from and receive into another buffer each time, registered or not",
    unit: "us",
    lower_is_better: true,
    sizes: &[64, 1024, 4096, 32 << 10],
    value: |ns, _| ns / 1e3,
    points,
    timed: "ping-pong by descriptor, one way = half of the round trip. same: the same buffers each time; new: others \
            each time, registered beforehand; pool: that many pages in turn, in order or shuffled. On the heap: \
            register: registered and deregistered for each message; cache: registered buffers used again for so many \
            percent of the messages; implicit: never registered",
    window: 1,
    axis: "",
    references: References::None,
    logp: Apart::Polled,
    via: build,
    ofi: Some(direct::build),
    derive: nothing,
};

/// Two receives are posted at a time, so that two pages are the least.
const PAGES: &[u64] = &[2, 8, 32, 128, 512, 2048, 4096];
const REUSE: &[u64] = &[0, 25, 50, 75, 100];

/// How the buffers are had: the number behind the series.
const SAME: u64 = 0;
const POOL: u64 = 1;
const SHUFFLED: u64 = 2;
const REGISTER: u64 = 3;
const IMPLICIT: u64 = 4;
const CACHE: u64 = 5;

fn points(settings: &Settings, sizes: &[usize]) -> Result<Vec<Point>> {
    let quick = settings.quick && settings.sizes.is_empty();
    let sizes = if quick { &[1024] } else { sizes };
    let (pages, reuse): (&[u64], &[u64]) = if settings.quick { (&[512], &[50]) } else { (PAGES, REUSE) };
    // Pools of different sizes are one curve, of one size of message.
    let pooled = if sizes.contains(&1024) { Some(1024) } else { sizes.iter().min().copied() };
    let point = |size: &usize| {
        let shape = |kind| shape(Motion::PingPong, *size, CASE.window).with("buffers", kind);
        let many = (MEMORY / Pieces::whole(*size).step).clamp(64, 1024) as u64;
        let mut all = vec![
            shape(SAME).on("same", None),
            shape(POOL).on("new", None).with("pages", many),
            shape(REGISTER).on("register", None).with("pages", many),
            shape(IMPLICIT).on("implicit", None).with("pages", many).with("unregistered", 1),
        ];
        all.extend(reuse.iter().map(|percent| {
            // A sample has as many hits as it should only if it is a whole turn of the pattern.
            let shape = shape(CACHE).with("pages", many).with("reuse", *percent).with("turn", 4);
            Variant { axis: "reuse %".into(), ..shape.on("cache", Some(*percent as f64)) }
        }));
        // Where the message itself costs least, and a buffer is a page.
        if pooled == Some(*size) && *size <= 4096 {
            for (kind, series) in [(POOL, "pool"), (SHUFFLED, "pool-shuffled")] {
                all.extend(pages.iter().map(|pages| {
                    let shape = shape(kind).with("pages", *pages);
                    Variant { axis: "pages".into(), ..shape.on(series, Some(*pages as f64)) }
                }));
            }
        }
        let variants = all.iter().flat_map(|shape| by_descriptor(settings, shape)).collect();
        Point { size: *size, variants }
    };
    Ok(sizes.iter().map(point).collect())
}

/// Bytes of the pool of another buffer each time, in either direction: more than the nearer caches hold.
const MEMORY: usize = 16 << 20;

/// Buffers that an end needs of a kind, if so many are in use at a time: a stream has more than a small pool has pages.
fn at_least(variant: &Variant, needed: usize) -> usize {
    match (variant.arg("buffers"), needed) {
        (_, 0) => 0,
        (SAME, _) => needed,
        _ => needed.max(variant.arg("pages") as usize),
    }
}

/// How the buffers of a kind are registered, if not beforehand.
fn register(variant: &Variant) -> Option<Register> {
    match variant.arg("buffers") {
        REGISTER => Some(Register::Each),
        IMPLICIT => Some(Register::Never),
        CACHE => Some(Register::Missing(variant.arg("reuse"))),
        _ => None,
    }
}

/// Buffers beyond those in use, where they are registered as they are needed.
const SPARE: usize = 32;

fn build(mut place: Place) -> Result<Box<dyn End>> {
    let (size, kind) = (place.variant.size, place.variant.arg("buffers"));
    let needs = Needs::of(&place.variant, place.side);
    if let Some(register) = register(&place.variant) {
        let count = at_least(&place.variant, needs.sends.max(needs.receives) + SPARE);
        let heap = Heap::new(register, place.tag, size, count, &needs);
        return stocked(place, heap, None);
    }
    let (sends, receives) = (at_least(&place.variant, needs.sends), at_least(&place.variant, needs.receives));
    let sends = descriptors(&mut place.nic, place.tag, Op::Send, sends, Pieces::whole(size));
    let mut sends = sends.map_err(|e| place.failed(&e))?;
    let receives = descriptors(&mut place.nic, place.tag, Op::Receive, receives, Pieces::whole(size));
    let mut receives = receives.map_err(|e| place.failed(&e))?;
    if kind == SHUFFLED {
        Rng::new(1).shuffle(&mut sends);
        Rng::new(2).shuffle(&mut receives);
    }
    stocked(place, DescriptorPool::new(sends, receives, size, kind == SAME), None)
}
