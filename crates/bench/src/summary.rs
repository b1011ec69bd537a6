//! From slices to result lines: medians, intervals and percentiles for each variant and placement.

use std::collections::BTreeMap;

use viaduct_os::knob;
use viaduct_providers::Config;
use viaduct_providers::config::KNOBS;

use crate::cases::{Case, sockets};
use crate::layers::Layer;
use crate::measure::{Measured, Slice, WANTED};
use crate::plan::{Settings, Variant};
use crate::probe::Placement;
use crate::schema::{Host, Measurement, VERSION};
use crate::stats::{Summary, median};

/// What is the same for every line of a run.
#[derive(Clone, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) case: &'a Case,
    pub(crate) settings: &'a Settings,
    pub(crate) host: &'a Host,
    pub(crate) timer_ns: f64,
    /// Which of libfabric's providers the layer `ofi` stands for, if it is measured.
    pub(crate) fabric: Option<&'a str>,
}

/// Fewest slices for which a placement gets a line of its own if another placement has more.
const FEWEST: usize = 3;

/// Hypervisor's share of the time above which a result is marked.
const STEAL_LIMIT: f64 = 0.02;

/// Lines of one point: one for each variant and placement.
pub(crate) fn measurements(context: &Context<'_>, results: &[Measured]) -> Vec<Measurement> {
    let mut lines = Vec::new();
    for result in results {
        if !result.valid || result.missing.is_some() {
            lines.push(Measurement {
                valid: result.valid,
                missing: result.missing.clone(),
                ..blank(context, result)
            });
            continue;
        }
        lines.extend(reported(result).into_iter().map(|placement| line(context, result, placement)));
    }
    lines
}

/// Placements worth a line: those with enough slices, or else the one with most.
pub(crate) fn reported(result: &Measured) -> Vec<Placement> {
    let count = |placement| result.placed(placement, false).count();
    let good: Vec<_> = Placement::STEADY.into_iter().filter(|p| count(*p) >= FEWEST).collect();
    if !good.is_empty() {
        return good;
    }
    let best = Placement::STEADY.into_iter().chain([Placement::Mixed]).rev().max_by_key(|p| count(*p));
    best.filter(|p| count(*p) > 0).into_iter().collect()
}

/// The slices that count.
pub(crate) struct Counted<'a> {
    /// The undisturbed ones, or all if there are hardly any.
    pub(crate) slices: Vec<&'a Slice>,
    /// More undisturbed ones were wanted, and there were others.
    pub(crate) too_few: bool,
}

pub(crate) fn counted(result: &Measured, placement: Placement) -> Counted<'_> {
    let clean: Vec<_> = result.placed(placement, true).collect();
    let all: Vec<_> = result.placed(placement, false).collect();
    let too_few = clean.len() < WANTED && clean.len() < all.len();
    match clean.len() >= FEWEST.min(all.len()) {
        true => Counted { slices: clean, too_few },
        false => Counted { slices: all, too_few: true },
    }
}

pub(crate) fn line(context: &Context<'_>, result: &Measured, placement: Placement) -> Measurement {
    let Counted { slices, too_few: kept_disturbed } = counted(result, placement);
    let values = |ns: &f64| (context.case.value)(*ns, result.variant.size);
    let (blocks, launches) = blocks(&slices);
    let medians: Vec<f64> = blocks.iter().map(values).collect();
    let samples: Vec<f64> = slices.iter().flat_map(|s| s.ns.iter().map(values)).collect();
    let probes: Vec<f64> = slices.iter().filter_map(|s| s.probe_ns).collect();
    let batches: Vec<f64> = slices.iter().map(|s| s.batch as f64).collect();
    let of_blocks = Summary::of(&medians);
    let of_samples = Summary::of(&samples);
    let batch = median(&batches).unwrap_or(1.0) as u64;
    let p99_single = match batch {
        0 | 1 => of_samples.as_ref().map(|s| s.p99),
        _ => p99_of_singles(result, placement, values),
    };
    // A placement that was only seen in a few launches says more about their pages than about the layer.
    let few = launches < WANTED.min(context.settings.launches);
    let noisy = few || kept_disturbed || placement == Placement::Mixed || result.steal > STEAL_LIMIT;
    Measurement {
        p50: of_blocks.as_ref().map(|s| s.p50),
        ci95: of_blocks.as_ref().map(|s| s.ci95),
        n: slices.len(),
        launches,
        noisy,
        min: of_samples.as_ref().map(|s| s.min),
        p90: of_samples.as_ref().map(|s| s.p90),
        p99: of_samples.as_ref().map(|s| s.p99),
        p99_single,
        p999: of_samples.as_ref().map(|s| s.p999),
        max: of_samples.as_ref().map(|s| s.max),
        samples: samples.len(),
        batch,
        ns_per_message: median(&blocks),
        placement: placement.name().into(),
        probe_ns: median(&probes),
        gap: slices.iter().map(|s| s.gap).fold(0.0, f64::max),
        dropped: dropped(result),
        extra: extra(&slices),
        by_round: slices.iter().map(|slice| (slice.round, values(&slice.median))).collect(),
        ..blank(context, result)
    }
}

/// The 99th percentile of the messages that were timed one by one in a placement, of undisturbed slices if there are any.
fn p99_of_singles(result: &Measured, placement: Placement, value: impl Fn(&f64) -> f64) -> Option<f64> {
    let of = |clean: bool| -> Vec<f64> {
        let slices = result.singles.iter().filter(|s| s.placement == placement && !(clean && s.disturbed));
        slices.flat_map(|s| s.ns.iter().map(&value)).collect()
    };
    Summary::of(&of(true)).or_else(|| Summary::of(&of(false))).map(|s| s.p99)
}

/// Medians of the further numbers of the slices.
fn extra(slices: &[&Slice]) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in slices.iter().flat_map(|slice| &slice.extra) {
        all.entry(name.clone()).or_default().push(*value);
    }
    all.into_iter().filter_map(|(name, values)| Some((name, median(&values)?))).collect()
}

/// What the median and its interval are taken over: the medians of the launches if there are enough of them, for they
/// are independent of each other, else the slices. Also tells how many launches there were.
fn blocks(slices: &[&Slice]) -> (Vec<f64>, usize) {
    let by_launch = launch_medians(slices);
    let launches = by_launch.len();
    let blocks = if launches >= WANTED {
        by_launch.into_values().collect()
    } else {
        slices.iter().map(|s| s.median).collect()
    };
    (blocks, launches)
}

/// The median of every launch, in nanoseconds for a message.
pub(crate) fn launch_medians(slices: &[&Slice]) -> BTreeMap<usize, f64> {
    let mut launches: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for slice in slices {
        launches.entry(slice.launch).or_default().push(slice.median);
    }
    launches.into_iter().filter_map(|(launch, medians)| Some((launch, median(&medians)?))).collect()
}

/// Slices that no line of this variant uses.
fn dropped(result: &Measured) -> usize {
    let used: usize =
        reported(result).into_iter().map(|placement| counted(result, placement).slices.len()).sum();
    result.slices.len() - used
}

fn blank(context: &Context<'_>, result: &Measured) -> Measurement {
    let Context { case, settings, host, timer_ns, .. } = context;
    let variant = &result.variant;
    Measurement {
        schema: VERSION,
        case: case.name.into(),
        layer: variant.layer.name().into(),
        provider: variant.layer.provider().map(Into::into),
        size: variant.size,
        unit: case.unit.into(),
        p50: None,
        ci95: None,
        n: 0,
        valid: true,
        missing: None,
        noisy: false,
        min: None,
        p90: None,
        p99: None,
        p99_single: None,
        p999: None,
        max: None,
        launches: 0,
        samples: 0,
        batch: 1,
        ns_per_message: None,
        placement: Placement::Mixed.name().into(),
        probe_ns: None,
        cpus: settings.cpus,
        wait: variant.wait.name().into(),
        window: variant.window,
        connections: variant.connections,
        series: variant.series.clone(),
        axis: if variant.axis.is_empty() { case.axis.into() } else { variant.axis.clone() },
        x: variant.x,
        extra: BTreeMap::new(),
        by_round: BTreeMap::new(),
        dropped: 0,
        timer_ns: *timer_ns,
        steal: result.steal,
        gap: 0.0,
        host: (*host).clone(),
        commit: crate::schema::commit(),
        config: config(context, variant),
    }
}

/// How the run was set up, and every knob of the providers and of streams that is not at its default.
fn config(context: &Context<'_>, variant: &Variant) -> BTreeMap<String, String> {
    let settings = context.settings;
    let mut config = BTreeMap::from([
        ("launches".into(), settings.launches.to_string()),
        ("seed".into(), settings.seed.to_string()),
        ("time".into(), settings.time.to_string()),
    ]);
    if variant.nagle {
        config.insert("nagle".into(), "on".into());
    }
    let bare = matches!(variant.layer, Layer::Fabric(_));
    if let Some(fabric) = context.fabric.filter(|_| bare) {
        config.insert("libfabric".into(), fabric.into());
    }
    if bare || variant.layer.provider().is_some() {
        config.insert("send".into(), variant.send.name().into());
        config.insert("repost".into(), variant.repost.name().into());
        config.extend(variant.args.iter().map(|(name, value)| (name.clone(), value.to_string())));
        let named = |(name, value): (&str, String)| (name.to_owned(), value);
        config.extend(knob::changed(KNOBS, &settings.providers, &Config::default()).map(named));
        if let Some(streams) = sockets::settings(variant, &settings.providers) {
            let usual = viaduct_sovia::Config::default();
            config.extend(knob::changed(viaduct_sovia::knobs::KNOBS, &streams, &usual).map(named));
        }
    }
    config
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cases::shape;
    use crate::plan::{Motion, Wait};

    pub(crate) fn slices(placement: Placement, disturbed: bool, ns: &[f64]) -> Vec<Slice> {
        let slice = |(round, ns): (usize, &f64)| Slice {
            launch: 0,
            round,
            placement,
            probe_ns: Some(55.0),
            disturbed,
            gap: 0.0,
            ns: vec![*ns; 3],
            median: *ns,
            batch: 20,
            extra: BTreeMap::new(),
        };
        ns.iter().enumerate().map(slice).collect()
    }

    pub(crate) fn measured(layer: Layer, slices: Vec<Vec<Slice>>) -> Measured {
        let variant = Variant { layer, wait: Wait::Poll, ..shape(Motion::PingPong, 8, 1) };
        Measured {
            variant,
            valid: true,
            missing: None,
            slices: slices.concat(),
            singles: Vec::new(),
            steal: 0.0,
        }
    }

    pub(crate) fn with_context<T>(body: impl FnOnce(&Context<'_>) -> T) -> T {
        let mut settings = Settings::new(vec![Layer::Via("shm"), Layer::Raw], [0, 1]);
        settings.launches = 1;
        let host = Host::default();
        let case = Case::find("latency").unwrap();
        body(&Context { case, settings: &settings, host: &host, timer_ns: 20.0, fabric: None })
    }

    #[test]
    fn placements_are_kept_apart() {
        let shm = measured(
            Layer::Via("shm"),
            vec![
                slices(Placement::Near, false, &[80.0; 8]),
                slices(Placement::Far, false, &[300.0; 4]),
                slices(Placement::Mixed, false, &[999.0; 2]),
            ],
        );
        let raw = measured(
            Layer::Raw,
            vec![slices(Placement::Near, false, &[50.0; 7]), slices(Placement::Far, false, &[200.0; 1])],
        );
        with_context(|context| {
            let lines = measurements(context, &[shm, raw]);
            let shown: Vec<_> = lines.iter().map(|l| (l.layer.as_str(), l.placement.as_str(), l.n)).collect();
            assert_eq!(shown, [("shm", "near", 8), ("shm", "far", 4), ("raw", "near", 7)]);
            assert_eq!((lines[0].p50, lines[0].samples, lines[0].dropped), (Some(0.08), 24, 2));
            assert_eq!((lines[0].provider.as_deref(), lines[2].provider.as_deref()), (Some("shm"), None));
        });
    }

    #[test]
    fn disturbed_slices_count_only_if_there_are_no_others() {
        let clean = slices(Placement::Near, false, &[50.0; 6]);
        let wild = slices(Placement::Near, true, &[9000.0; 9]);
        with_context(|context| {
            let line = &measurements(context, &[measured(Layer::Raw, vec![clean, wild.clone()])])[0];
            assert_eq!((line.p50, line.noisy, line.n, line.dropped), (Some(0.05), false, 6, 9));
            let line = &measurements(context, &[measured(Layer::Raw, vec![wild])])[0];
            assert_eq!((line.p50, line.noisy, line.n), (Some(9.0), true, 9));
        });
    }

    #[test]
    fn the_p99_of_single_messages_stands_beside_that_of_batches() {
        let mut shm = measured(
            Layer::Via("shm"),
            vec![slices(Placement::Near, false, &[80.0; 8]), slices(Placement::Far, false, &[300.0; 8])],
        );
        shm.singles = slices(Placement::Near, false, &[70.0, 2000.0]);
        shm.singles.extend(slices(Placement::Near, true, &[9e6]));
        with_context(|context| {
            let lines = measurements(context, std::slice::from_ref(&shm));
            let found: Vec<_> = lines.iter().map(|l| (l.batch, l.p99, l.p99_single)).collect();
            assert_eq!(found, [(20, Some(0.08), Some(2.0)), (20, Some(0.3), None)]);
            shm.slices.iter_mut().for_each(|slice| slice.batch = 1);
            let line = &measurements(context, &[shm])[0];
            assert_eq!((line.p99, line.p99_single), (Some(0.08), Some(0.08)), "they are single already");
        });
    }

    #[test]
    fn wrong_data_give_no_number() {
        let good = measured(Layer::Raw, vec![slices(Placement::Near, false, &[50.0; 6])]);
        let mut bad = measured(Layer::Via("shm"), vec![slices(Placement::Near, false, &[1.0; 6])]);
        bad.valid = false;
        with_context(|context| {
            let lines = measurements(context, &[bad, good]);
            assert_eq!((lines[0].valid, lines[0].p50, lines[0].n), (false, None, 0));
            assert!(lines[1].valid);
        });
    }

    #[test]
    fn a_missing_ability_of_a_layer_is_a_line_with_the_reason() {
        let mut absent = measured(Layer::Fabric("ofi"), Vec::new());
        absent.missing = Some("no gathering".into());
        with_context(|context| {
            let lines = measurements(&Context { fabric: Some("tcp"), ..context.clone() }, &[absent]);
            let [line] = &lines[..] else { panic!("one line") };
            assert_eq!((line.missing.as_deref(), line.p50, line.valid), (Some("no gathering"), None, true));
            assert_eq!((line.config["libfabric"].as_str(), line.provider.as_deref()), ("tcp", None));
        });
    }
}
