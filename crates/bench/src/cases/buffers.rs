//! Buffers (thesis, section 3.4, figure 3.7): another page-aligned buffer for each message.
//!
//! Held against messages from the same buffers again and again: buffers registered beforehand (also against their
//! number, in order and in no order: caches and TLBs see to that), registered for each message, out of a registration
//! cache that has so many of a hundred, and never registered.

use viaduct_via::Op;

use crate::cases::{Apart, Case, by_descriptor, nothing, shape};
use crate::error::Result;
use crate::layers::heap::{Heap, Register};
use crate::layers::stock::{Pieces, Pool, descriptors};
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
    references: false,
    logp: Apart::Polled,
    via: build,
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
            shape(IMPLICIT).on("implicit", None).with("pages", many),
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

fn build(mut place: Place) -> Result<Box<dyn End>> {
    let (size, kind) = (place.variant.size, place.variant.arg("buffers"));
    let needs = Needs::of(&place.variant, place.side);
    // A stream has more under way than a small pool has pages.
    let at_least = |needed: usize| match (kind, needed) {
        (_, 0) => 0,
        (SAME, _) => needed,
        _ => needed.max(place.variant.arg("pages") as usize),
    };
    let register = match kind {
        REGISTER => Some(Register::Each),
        IMPLICIT => Some(Register::Never),
        CACHE => Some(Register::Missing(place.variant.arg("reuse"))),
        _ => None,
    };
    if let Some(register) = register {
        let count = at_least(needs.sends.max(needs.receives) + 32);
        let heap = Heap::new(register, place.tag, size, count, &needs);
        return stocked(place, heap, None);
    }
    let (sends, receives) = (at_least(needs.sends), at_least(needs.receives));
    let sends = descriptors(&mut place.nic, place.tag, Op::Send, sends, Pieces::whole(size));
    let mut sends = sends.map_err(|e| place.failed(&e))?;
    let receives = descriptors(&mut place.nic, place.tag, Op::Receive, receives, Pieces::whole(size));
    let mut receives = receives.map_err(|e| place.failed(&e))?;
    if kind == SHUFFLED {
        Rng::new(1).shuffle(&mut sends);
        Rng::new(2).shuffle(&mut receives);
    }
    stocked(place, Pool::new(sends, receives, size, kind == SAME), None)
}
