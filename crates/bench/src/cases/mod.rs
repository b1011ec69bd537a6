//! The benchmark cases. To add one: a file here with a [`Case`] in it, and one line in [`ALL`].

mod bandwidth;
mod bidirectional;
mod blocking;
mod buffers;
mod calls;
mod connections;
mod cpu;
mod cq;
mod failure;
mod latency;
mod load;
pub(crate) mod logp;
mod overlap;
mod pairs;
pub(crate) mod parts;
mod rate;
mod rdma;
mod rdma_stream;
mod reliability;
mod segments;
pub(crate) mod sockets;
mod sockets_stream;
mod spinning;
mod translation;
mod translation_stream;
mod wakeup;

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::host;
use crate::layers::ofi::Site;
use crate::layers::via::Place;
use crate::layers::{Layer, cold};
use crate::loops::End;
use crate::plan::{Motion, Point, Repost, SendMode, Settings, Variant, Wait};
use crate::schema::{Line, Measurement};
use crate::size;

/// Every case.
pub const ALL: &[&Case] = &[
    &latency::CASE,
    &bandwidth::CASE,
    &logp::CASE,
    &buffers::CASE,
    &connections::CASE,
    &blocking::CASE,
    &segments::CASE,
    &cq::CASE,
    &translation::CASE,
    &translation_stream::CASE,
    &rate::CASE,
    &bidirectional::CASE,
    &pairs::CASE,
    &rdma::CASE,
    &rdma_stream::CASE,
    &sockets::CASE,
    &sockets_stream::CASE,
    &reliability::CASE,
    &cpu::CASE,
    &wakeup::CASE,
    &load::CASE,
    &calls::CASE,
    &overlap::CASE,
    &failure::CASE,
];

/// One benchmark.
#[derive(Debug)]
pub struct Case {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// One sentence about it.
    pub about: &'static str,
    /// Unit of its values.
    pub unit: &'static str,
    /// A smaller value is a better one.
    pub lower_is_better: bool,
    /// Sizes measured unless told otherwise.
    pub sizes: &'static [usize],
    /// Turns nanoseconds for one message of a size into the unit.
    pub(crate) value: fn(ns: f64, size: usize) -> f64,
    /// What to measure for these settings.
    pub(crate) points: fn(&Settings, &[usize]) -> Result<Vec<Point>>,
    /// What is timed, in plain words.
    pub(crate) timed: &'static str,
    /// Messages under way unless told otherwise.
    pub(crate) window: usize,
    /// What the numbers on the axis of the case are; empty if only the size varies.
    pub axis: &'static str,
    /// Which reference layers have it too.
    pub(crate) references: References,
    /// How far `--logp` can take its ping-pongs apart.
    pub logp: Apart,
    /// Builds one end on a provider.
    pub(crate) via: fn(Place) -> Result<Box<dyn End>>,
    /// Builds one end directly on libfabric; none where the case is about what VIA alone has.
    pub(crate) ofi: Option<OnLibfabric>,
    /// Values that follow from the measured ones: further lines of the result.
    pub(crate) derive: fn(&[Measurement]) -> Vec<Line>,
}

/// The references that a case can be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum References {
    /// Sockets, raw, copy.
    All,
    /// What the kernel has: sockets and pipes.
    Sockets,
    None,
}

/// Builds one end directly on libfabric.
pub(crate) type OnLibfabric = fn(Site) -> Result<Box<dyn End>>;

/// Into what `--logp` takes the ping-pongs of a case apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// It has none, or their ends do not work as streams.
    Not,
    /// Os, Or, g and L of messages that are polled for.
    Polled,
    /// Measured apart, and Or of messages that interrupt as well: its ends are the plain ones.
    Interrupted,
}

/// Nothing follows.
pub(crate) fn nothing(_: &[Measurement]) -> Vec<Line> {
    Vec::new()
}

impl Case {
    /// The case called `name`.
    pub fn find(name: &str) -> Result<&'static Case> {
        ALL.iter().copied().find(|case| case.name == name).ok_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|case| case.name).collect();
            Error::usage(format!("there is no case `{name}`"), format!("known cases: {}", names.join(", ")))
        })
    }

    /// The cases that `name` stands for: one, or several that are drawn as one figure.
    pub fn find_all(name: &str) -> Result<Vec<&'static Case>> {
        match name {
            // Figure 9 of SOVIA, (a) and (b).
            "sockets" => Ok(vec![&sockets::CASE, &sockets_stream::CASE]),
            _ => Case::find(name).map(|case| vec![case]),
        }
    }

    /// Checks the settings and lays out the work.
    pub(crate) fn plan(&self, settings: &Settings) -> Result<Vec<Point>> {
        if !(settings.time.is_finite() && settings.time > 0.0 && settings.time <= 3600.0) {
            return Err(Error::usage(
                format!("{} seconds a point make no sense", settings.time),
                "use --time 1",
            ));
        }
        check_cpus(settings)?;
        if settings.window == Some(0)
            || settings.batch == Some(0)
            || settings.launches == 0
            || settings.connections.contains(&0)
        {
            return Err(Error::usage("a window, batch, launch or connection count of 0", "use at least 1"));
        }
        let sizes = if settings.sizes.is_empty() { self.sizes } else { &settings.sizes };
        let mut points = (self.points)(settings, sizes)?;
        if settings.logp && self.logp != Apart::Not {
            parts::extend(settings, self.logp, &mut points)?;
        }
        let cold = points.iter().flat_map(|point| &point.variants).any(|variant| variant.arg("cold") > 0);
        if settings.cold && !cold {
            return Err(Error::usage(
                format!("case `{}` is not measured out of the cache", self.name),
                "leave out --cold; latency and bandwidth have it",
            ));
        }
        for variant in points.iter_mut().flat_map(|point| &mut point.variants) {
            variant.case = self.name.into();
        }
        let points: Vec<Point> = points.into_iter().map(Point::lay_out).collect();
        for point in &points {
            check_memory(point)?;
            for variant in &point.variants {
                check_variant(self, settings, variant)?;
            }
        }
        Ok(points)
    }

    /// What a reader needs to know in order to understand the numbers.
    pub fn header(&self, settings: &Settings) -> Vec<String> {
        let [here, there] = settings.cpus;
        let mut lines = vec![format!("{}: {}", self.name, self.about), format!("Timed: {}.", self.timed)];
        if settings.logp && self.logp != Apart::Not {
            lines.push(
                "Beside each: Os, a post in bursts of 16 on an idle connection; Or, taking a message that has come; g, \
                 the time between messages of a stream; one-way, from just before the post to just after the taking; \
                 L = one-way - Os - Or."
                    .into(),
            );
            if self.logp == Apart::Interrupted {
                lines.push(
                    "Or-interrupt: what a loop on the receiver's core loses to a message that a handler takes there."
                        .into(),
                );
            }
        }
        if settings.cold {
            lines.push(cold::words());
        }
        lines.push(if settings.one_core() {
            format!("Two processes share core {here}, so every message needs a switch from one to the other.")
        } else {
            format!(
                "Two processes, pinned to cores {here} and {there}. A bare cache-line ping-pong before and after every \
                 slice tells how near they are: smt (< 40 ns one way), near (to 150 ns) or far; only like is compared \
                 with like."
            )
        });
        lines.push(
            "p50 is the median over fresh launches (over slices if few), [..] its 95 % confidence interval. Every \
             layer was first checked with patterned data; the receiver reads every byte."
                .into(),
        );
        // What a case of its own sends and how is part of `timed`.
        if self.references == References::All
            && settings.layers.iter().any(|layer| layer.provider().is_some())
        {
            lines.push(match settings.send {
                SendMode::Auto => "Viaduct sends messages up to its inline limit by value, without descriptor and completion \
                               (--send descriptor measures descriptors); it receives into posted descriptors."
                    .into(),
                SendMode::Descriptor => "Viaduct sends every message by descriptor and reaps its completion.".into(),
            });
            lines.push(match settings.repost {
                Repost::After => "In a ping-pong it posts its receive again once the answer is on its way (--repost before \
                                  is the order of the thesis)."
                    .into(),
                Repost::Before => "In a ping-pong it posts its receive again before it answers.".into(),
            });
        }
        if settings.layers.iter().any(|layer| matches!(layer, Layer::Fabric(_))) {
            lines.push(
                "The layer ofi is libfabric itself, without VIA, on connected endpoints: small messages by fi_inject unless \
                 --send descriptor, the others by fi_send; it keeps no credits."
                    .into(),
            );
        }
        lines
    }
}

/// The layers of the settings in the form in which one case opens them.
pub(crate) fn variants(settings: &Settings, layers: &[Layer], shape: &Variant) -> Vec<Variant> {
    let variant = |layer: &Layer| Variant {
        layer: *layer,
        wait: layer.wait(settings.wait),
        send: settings.send,
        repost: settings.repost,
        nagle: shape.nagle && *layer == Layer::Tcp || *layer == Layer::TcpNagle,
        ..shape.clone()
    };
    layers.iter().map(variant).collect()
}

/// Variants of a case that sends nothing by value, whatever the settings say.
pub(crate) fn by_descriptor(settings: &Settings, shape: &Variant) -> Vec<Variant> {
    let all = variants(settings, &settings.layers, shape).into_iter();
    all.map(|variant| Variant { send: SendMode::Descriptor, ..variant }).collect()
}

/// A variant to fill in.
pub(crate) fn shape(motion: Motion, size: usize, window: usize) -> Variant {
    Variant {
        case: String::new(),
        layer: Layer::Raw,
        series: String::new(),
        axis: String::new(),
        x: None,
        args: BTreeMap::new(),
        motion,
        size,
        window,
        wait: Wait::Poll,
        send: SendMode::Auto,
        repost: Repost::After,
        connections: 1,
        nagle: false,
        arena: 0,
    }
}

/// `layers` with `extra` right behind `after`, unless it is there already.
pub(crate) fn with_extra(layers: &[Layer], after: Layer, extra: Layer) -> Vec<Layer> {
    let mut layers = layers.to_vec();
    if let (Some(at), false) = (layers.iter().position(|l| *l == after), layers.contains(&extra)) {
        layers.insert(at + 1, extra);
    }
    layers
}

fn check_cpus(settings: &Settings) -> Result<()> {
    let allowed = viaduct_os::cpu::allowed();
    match settings.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let list: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            Err(Error::usage(
                format!("this process may not run on core {cpu}"),
                format!("cores it may use: {}", list.join(", ")),
            ))
        }
    }
}

fn check_variant(case: &Case, settings: &Settings, variant: &Variant) -> Result<()> {
    let layer = variant.layer;
    let has_it = match layer {
        Layer::Fabric(_) => case.ofi.is_some(),
        _ if layer.is_kernel() => case.references != References::None,
        _ => case.references == References::All || layer.provider().is_some(),
    };
    if !has_it {
        return Err(Error::usage(
            format!("layer `{layer}` has no {}", case.name),
            "this case is about what VIA offers; measure a provider",
        ));
    }
    if case.references != References::All && layer.is_one_process() {
        return Err(Error::usage(
            format!("layer `{layer}` has both ends in one process, which case `{}` cannot use", case.name),
            "use --provider shm",
        ));
    }
    if settings.one_core() && variant.wait == Wait::Poll {
        return Err(Error::usage(
            format!("layer `{layer}` would spin while the other process waits for the same core"),
            "with one core for both use --wait block and layers that can sleep: unix, pipe, tcp, or a provider",
        ));
    }
    if layer == Layer::Copy && !variant.motion.is_stream() {
        return Err(Error::usage(
            format!("layer `copy` has no {}", case.name),
            "the limit for latency is layer `raw`",
        ));
    }
    if layer == Layer::Raw && variant.motion.is_stream() && variant.wait == Wait::Block {
        return Err(Error::usage("layer `raw` only streams with --wait poll", "leave --wait out"));
    }
    let stream = !matches!(layer, Layer::Raw | Layer::Fabric(_)) && layer.provider().is_none();
    if variant.size == 0 && (stream || variant.motion.is_stream()) {
        return Err(Error::usage(
            format!("messages of 0 bytes cannot be measured with `{}` on `{layer}`", case.name),
            "use --sizes 1 or more",
        ));
    }
    Ok(())
}

fn check_memory(point: &Point) -> Result<()> {
    let available = host::available_memory();
    let of = |v: &Variant| match v.arg("cold") {
        0 => (v.window as u128 + 4) * 2 * v.size as u128,
        // Both directions at both ends.
        _ => 4 * cold::memory() as u128,
    };
    let wanted: u128 = point.variants.iter().map(of).sum();
    if wanted > u128::from(available / 2) {
        return Err(Error::usage(
            format!(
                "messages of {} with their windows need {} MB, half of the free memory is {} MB",
                size::show(point.size),
                wanted / 1_000_000,
                available / 2_000_000
            ),
            "use smaller --sizes or a smaller --window",
        ));
    }
    Ok(())
}
