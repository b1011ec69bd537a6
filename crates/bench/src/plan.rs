//! What is to be measured: the words of the command line turned into points and variants.
//!
//! A [`Point`] is one message size of one case; its [`Variant`]s (layers, or numbers of connections) are measured
//! interleaved. Plans are plain data, because the second process gets them as part of its orders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use viaduct_providers::Config;

use crate::layers::Layer;
pub use crate::motion::Motion;

/// How a receiver waits for its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Look again and again: lowest latency, a whole core.
    #[default]
    Poll,
    /// Sleep in the kernel until something arrives.
    Block,
}

impl Wait {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Poll => "poll",
            Wait::Block => "block",
        }
    }
}

/// How a provider's messages are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendMode {
    /// Small ones by value, without descriptor and completion; the others by descriptor.
    #[default]
    Auto,
    /// All by descriptor, with a completion each: VIA's own way.
    Descriptor,
}

impl SendMode {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SendMode::Auto => "auto",
            SendMode::Descriptor => "descriptor",
        }
    }
}

/// When the receive of a ping-pong is posted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Repost {
    /// After the answer is on its way; another receive is posted meanwhile.
    #[default]
    After,
    /// Before the answer is sent, as in the thesis.
    Before,
}

impl Repost {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Repost::After => "after",
            Repost::Before => "before",
        }
    }
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Layers to measure, the first one being the layer that ratios are read against.
    pub layers: Vec<Layer>,
    /// Message sizes; empty for the sizes of the case.
    pub sizes: Vec<usize>,
    /// How receivers wait.
    pub wait: Wait,
    /// How a provider's messages are sent.
    pub send: SendMode,
    /// When the receive of a ping-pong is posted again.
    pub repost: Repost,
    /// Os, Or, g and L of every variant beside its own values.
    pub logp: bool,
    /// Off-cache curves beside the usual ones.
    pub cold: bool,
    /// A first impression: cases leave out most places of their axes and most sizes.
    pub quick: bool,
    /// The cores of the two ends.
    pub cpus: [usize; 2],
    /// Messages under way; `None` for the window of the case.
    pub window: Option<usize>,
    /// Messages that the receiver of a stream takes at a time; `None` for the number of the case.
    pub batch: Option<usize>,
    /// Every exchange of a ping-pong is timed by itself: percentiles are of single messages, and contain a clock reading.
    pub single: bool,
    /// Numbers of open connections; empty for those of the case.
    pub connections: Vec<usize>,
    /// Seconds for each layer of each point.
    pub time: f64,
    /// How often the second process is started afresh within one point.
    pub launches: usize,
    /// Seed of the order in which layers and sizes are visited.
    pub seed: u64,
    /// Settings of the providers.
    pub providers: Config,
    /// The host with a listening bench, if the second process is to be there.
    pub connect: Option<String>,
}

impl Settings {
    /// Defaults for `layers` on `cpus`.
    pub fn new(layers: Vec<Layer>, cpus: [usize; 2]) -> Settings {
        Settings {
            layers,
            sizes: Vec::new(),
            wait: Wait::Poll,
            send: SendMode::Auto,
            repost: Repost::After,
            logp: false,
            cold: false,
            quick: false,
            cpus,
            window: None,
            batch: None,
            single: false,
            connections: Vec::new(),
            time: 1.0,
            launches: 10,
            seed: 1,
            providers: Config::default(),
            connect: None,
        }
    }

    /// Sizes of a case in a quick run, unless the user has named some.
    pub(crate) fn quickly<'a>(&self, sizes: &'a [usize], quick: &'a [usize]) -> &'a [usize] {
        if self.quick && self.sizes.is_empty() { quick } else { sizes }
    }

    /// Places on the axis of a case: all, or in a quick run some.
    pub(crate) fn places<'a>(&self, all: &'a [u64], quick: &'a [u64]) -> &'a [u64] {
        if self.quick { quick } else { all }
    }

    /// Both ends share one core.
    pub fn one_core(&self) -> bool {
        self.connect.is_none() && self.cpus[0] == self.cpus[1]
    }
}

/// One size of one case.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Message size in bytes.
    pub size: usize,
    /// What is measured interleaved.
    pub variants: Vec<Variant>,
}

impl Point {
    /// Bytes of shared arena that the reference layers of this point need.
    pub(crate) fn arena(&self) -> usize {
        self.variants.iter().map(|variant| variant.arena_end()).max().unwrap_or(0)
    }

    /// Gives every variant its own part of the arena.
    pub(crate) fn lay_out(mut self) -> Point {
        let mut next = 0;
        for variant in &mut self.variants {
            variant.arena = next;
            next = variant.arena_end();
        }
        self
    }
}

/// One layer as it is opened for one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Variant {
    /// The case, by which the other end knows what to open.
    pub case: String,
    /// The layer.
    pub layer: Layer,
    /// Which curve of the case this belongs to; empty if it has only one.
    pub series: String,
    /// What the numbers on its axis are, where this curve has another one than the case.
    pub axis: String,
    /// Where on the axis it lies, if there is one.
    pub x: Option<f64>,
    /// Numbers that the case gives to its own ends.
    pub args: BTreeMap<String, u64>,
    /// How messages move.
    pub motion: Motion,
    /// Message size in bytes.
    pub size: usize,
    /// Messages under way.
    pub window: usize,
    /// How receivers wait.
    pub wait: Wait,
    /// How a provider's messages are sent.
    pub send: SendMode,
    /// When the receive of a ping-pong is posted again.
    pub repost: Repost,
    /// Connections open; one of them is used.
    pub connections: usize,
    /// Nagle's algorithm stays on (TCP only).
    pub nagle: bool,
    /// Where this variant's part of the shared arena starts.
    pub arena: usize,
}

impl Variant {
    /// A number that the case has set; 0 if it has not.
    pub(crate) fn arg(&self, name: &str) -> u64 {
        self.args.get(name).copied().unwrap_or(0)
    }

    /// The variant with a number set.
    pub(crate) fn with(mut self, name: &str, value: u64) -> Variant {
        self.args.insert(name.to_owned(), value);
        self
    }

    /// The variant as a point of a curve.
    pub(crate) fn on(mut self, series: &str, x: Option<f64>) -> Variant {
        (self.series, self.x) = (series.to_owned(), x);
        self
    }

    /// Other threads of the two processes have work to do meanwhile: that they take the cores is no disturbance.
    pub(crate) fn helped(&self) -> bool {
        self.arg("helped") == 1
    }

    /// What tells it from the other variants of a point: layer, curve, place on the axis.
    pub(crate) fn label(&self) -> String {
        let mut label = self.layer.to_string();
        if !self.series.is_empty() {
            label = format!("{label}/{}", self.series);
        }
        match self.x {
            Some(x) => format!("{label}@{x}"),
            None => label,
        }
    }

    fn arena_end(&self) -> usize {
        self.arena + self.layer.arena_len(self).next_multiple_of(4096)
    }
}

/// One slice as both ends carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Messages (one way); a multiple of `batch` in a ping-pong.
    pub(crate) count: u64,
    /// Exchanges in one timed sample of a ping-pong.
    pub(crate) batch: u64,
    /// Fill and check every message instead of timing it.
    pub(crate) check: bool,
}

/// What a process saw of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Groups of bytes that were wrong; only counted in a validation pass.
    pub(crate) bad: u64,
    /// Sum over the payload, so that reading it cannot be optimised away.
    pub(crate) sum: u64,
    /// How often the core was taken away from that process during the slice.
    pub(crate) switches: u64,
    /// Nanoseconds that the process was ready to run but another one had the core.
    pub(crate) delay: u64,
    /// Further numbers of the case, by name.
    pub(crate) extra: BTreeMap<String, f64>,
    /// Samples that this end took, in ticks: the timed end takes them unless it cannot know.
    pub(crate) samples: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cases::{ALL, Case};

    /// Sizes and labels of everything that a case would measure on the shm provider.
    fn planned(case: &Case, quick: bool) -> Vec<(usize, String)> {
        let cpus = viaduct_os::cpu::allowed();
        let mut settings = Settings::new(vec![Layer::Via("shm")], [cpus[0], cpus[1]]);
        settings.quick = quick;
        let points = case.plan(&settings).unwrap();
        assert!(points.iter().all(|point| !point.variants.is_empty()), "{}", case.name);
        let variants = points.iter().flat_map(|point| &point.variants);
        variants.map(|variant| (variant.size, variant.label())).collect()
    }

    #[test]
    fn every_case_plans_each_variant_once_and_less_in_a_hurry() {
        if viaduct_os::cpu::count() < 2 {
            viaduct_kit::skip!("needs two cores");
        }
        for case in ALL {
            let all = planned(case, false);
            let few = planned(case, true);
            let (all_set, few_set): (BTreeSet<_>, BTreeSet<_>) = (all.iter().collect(), few.iter().collect());
            assert_eq!((all.len(), few.len()), (all_set.len(), few_set.len()), "{}: one twice", case.name);
            assert!(few_set.is_subset(&all_set) && !few.is_empty(), "{}", case.name);
        }
    }

    #[test]
    fn layers_that_spin_on_memory_refuse_one_core() {
        let cpu = viaduct_os::cpu::allowed()[0];
        let mut settings = Settings::new(vec![Layer::Via("shm")], [cpu, cpu]);
        settings.wait = Wait::Block;
        for (name, fits) in
            [("rdma", false), ("bidirectional", false), ("load", false), ("pairs", true), ("cpu", true)]
        {
            let plan = Case::find(name).unwrap().plan(&settings);
            assert_eq!(plan.is_ok(), fits, "{name}");
            if let Err(error) = plan {
                assert!(error.is_usage() && error.hint().unwrap().contains("--cpus 0,1"), "{error}");
            }
        }
    }

    #[test]
    fn sizes_that_rdma_cannot_watch_are_refused() {
        let cpus = viaduct_os::cpu::allowed();
        let mut settings = Settings::new(vec![Layer::Via("shm")], [cpus[0], *cpus.last().unwrap()]);
        for (size, fits) in [(8, true), (0, false), (12, false)] {
            settings.sizes = vec![size];
            let plan = Case::find("rdma-stream").unwrap().plan(&settings);
            assert_eq!(plan.is_ok(), fits && cpus.len() > 1, "{size}");
        }
    }
}
