//! The whole suite in one go: which references a case is held against, and how long it may take.
//!
//! `bench all` has a time limit, whatever the number of cases: each gets its share of what is left, and a case with many
//! variants measures each of them for a shorter time. Nothing here knows a case by name except those two whose figures
//! in the thesis (3.1-3.4) need more sizes than anybody wants in a single run.

use std::time::{Duration, Instant};

use crate::cases::{Case, References};
use crate::error::Result;
use crate::layers::Layer;
use crate::plan::Settings;

/// What the suite is held against where a case has it: the machine's own limits and the kernel's sockets and pipes.
const REFERENCES: [Layer; 5] = [Layer::Raw, Layer::Copy, Layer::Unix, Layer::Pipe, Layer::Tcp];
/// Those that a quick run does without.
const LEFT_OUT: [Layer; 2] = [Layer::Unix, Layer::Pipe];

/// Sizes of the figures, where the case's own are fewer: from 4 bytes to beyond the thesis' 32 KiB.
const FIGURES: [(&str, &[usize]); 2] = [
    ("latency", &[4, 8, 64, 256, 1 << 10, 4 << 10, 32 << 10, 64 << 10, 1 << 20]),
    ("bandwidth", &[4, 64, 256, 1 << 10, 4 << 10, 32 << 10, 64 << 10, 1 << 20]),
];

/// Most sizes of a case in a quick run.
const FEW: usize = 3;

/// Time that a launch costs for each variant, apart from what is timed: opening, validation, warm-up.
const SET_UP: f64 = 0.06;

/// Bounds of the time for a variant, in seconds: below, there would be no six slices.
const SHORTEST: f64 = 0.03;

/// Most seconds that a case takes in a quick run, so that few cases are quick too.
const QUICK_SHARE: f64 = 8.0;

/// Shares out the time of a whole run.
#[derive(Debug)]
pub struct Pace {
    end: Instant,
    cases: usize,
}

impl Pace {
    /// `cases` cases are to come, all together within `limit`.
    pub fn new(limit: Duration, cases: usize) -> Pace {
        Pace { end: Instant::now() + limit, cases }
    }

    /// The settings of the next case: `base` with the references that the case has, sizes and times that fit.
    pub fn next(&mut self, case: &Case, base: &Settings) -> Result<Settings> {
        let left = self.end.saturating_duration_since(Instant::now()).as_secs_f64();
        let share =
            (left / self.cases.max(1) as f64).min(if base.quick { QUICK_SHARE } else { f64::INFINITY });
        self.cases = self.cases.saturating_sub(1);
        let mut settings = base.clone();
        settings.sizes = sizes(case, base);
        settings.cold &= case.plan(&settings).is_ok();
        settings.layers = with_references(case, &settings);
        settings.time = time(case, &settings, share)?;
        Ok(settings)
    }
}

/// The sizes to measure: those asked for, or those of the figures, or a few of the case's own.
fn sizes(case: &Case, base: &Settings) -> Vec<usize> {
    if !base.sizes.is_empty() {
        return base.sizes.clone();
    }
    let figure = FIGURES.iter().find(|(name, _)| *name == case.name).map(|(_, sizes)| *sizes);
    if !base.quick {
        return figure.map_or_else(Vec::new, <[usize]>::to_vec);
    }
    let all = figure.unwrap_or(case.sizes);
    if all.len() <= FEW {
        return Vec::new();
    }
    // The ends and the middle: the shape of a curve, at a third of the time.
    (0..FEW).map(|i| all[i * (all.len() - 1) / (FEW - 1)]).collect()
}

/// The layers asked for, and those references that the case accepts.
fn with_references(case: &Case, settings: &Settings) -> Vec<Layer> {
    let mut layers = settings.layers.clone();
    // A case with curves or an axis of its own has many variants: there the socket alone gives the scale, if there is
    // time for it.
    let plain = case.axis.is_empty() && variants(case, settings).is_ok_and(|n| n <= points(case, settings));
    for layer in REFERENCES {
        let wanted =
            if settings.quick { plain && !LEFT_OUT.contains(&layer) } else { plain || layer == Layer::Tcp };
        if wanted
            && case.references == References::All
            && !layers.contains(&layer)
            && accepts(case, settings, layer)
        {
            layers.push(layer);
        }
    }
    layers
}

/// Whether `case` can be planned with `layer` alone.
fn accepts(case: &Case, settings: &Settings, layer: Layer) -> bool {
    case.plan(&Settings { layers: vec![layer], cold: false, ..settings.clone() }).is_ok()
}

fn variants(case: &Case, settings: &Settings) -> Result<usize> {
    let first = settings.layers.iter().copied().take(1).collect();
    let points = case.plan(&Settings { layers: first, cold: false, ..settings.clone() })?;
    Ok(points.iter().map(|point| point.variants.len()).sum())
}

fn points(case: &Case, settings: &Settings) -> usize {
    if settings.sizes.is_empty() { case.sizes.len() } else { settings.sizes.len() }
}

/// Seconds for each variant, so that all of them with their set-up take `share` seconds.
fn time(case: &Case, settings: &Settings, share: f64) -> Result<f64> {
    let plan = case.plan(settings)?;
    let variants = plan.iter().map(|point| point.variants.len()).sum::<usize>().max(1) as f64;
    let set_up = variants * settings.launches as f64 * SET_UP;
    // Slices, rests and probes run over: a fifth is kept back for that.
    Ok((0.8 * (share - set_up) / variants).clamp(SHORTEST.min(settings.time), settings.time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::ALL;

    fn base(quick: bool) -> Settings {
        let cpu = viaduct_os::cpu::allowed()[0];
        let other = viaduct_os::cpu::allowed().get(1).copied().unwrap_or(cpu);
        Settings {
            quick,
            launches: if quick { 1 } else { 10 },
            ..Settings::new(vec![Layer::Via("shm")], [cpu, other])
        }
    }

    #[test]
    fn every_case_can_be_planned_and_keeps_its_first_layer() {
        if viaduct_os::cpu::count() < 2 {
            return;
        }
        for quick in [false, true] {
            let mut pace = Pace::new(Duration::from_secs(if quick { 150 } else { 2000 }), ALL.len());
            for case in ALL {
                let settings = pace.next(case, &base(quick)).unwrap();
                assert_eq!(settings.layers[0], Layer::Via("shm"), "{}", case.name);
                assert!(settings.time > 0.0 && settings.time <= 1.0, "{}: {}", case.name, settings.time);
                let references = settings.layers.len() > 1;
                assert!(
                    !references || case.references == References::All,
                    "{}: {:?}",
                    case.name,
                    settings.layers
                );
                assert!(
                    references || quick || case.references != References::All,
                    "{}: {:?}",
                    case.name,
                    settings.layers
                );
            }
        }
    }

    #[test]
    fn references_that_a_case_refuses_are_left_out() {
        if viaduct_os::cpu::count() < 2 {
            return;
        }
        let layers = |name: &str| {
            let case = Case::find(name).unwrap();
            let mut settings = base(false);
            settings.sizes = sizes(case, &settings);
            with_references(case, &settings)
        };
        assert_eq!(layers("latency"), [Layer::Via("shm"), Layer::Raw, Layer::Unix, Layer::Pipe, Layer::Tcp]);
        assert_eq!(
            layers("bandwidth"),
            [Layer::Via("shm"), Layer::Raw, Layer::Copy, Layer::Unix, Layer::Pipe, Layer::Tcp]
        );
        assert_eq!(layers("connections"), [Layer::Via("shm"), Layer::Tcp]);
        assert_eq!(layers("logp"), [Layer::Via("shm"), Layer::Tcp]);
    }

    #[test]
    fn a_quick_run_has_few_sizes_and_asked_ones_stay() {
        let case = Case::find("latency").unwrap();
        let quick = sizes(case, &base(true));
        assert_eq!((quick.len(), quick[0], quick[2]), (3, 4, 1 << 20));
        let asked = Settings { sizes: vec![100, 200, 300, 400], ..base(true) };
        assert_eq!(sizes(case, &asked), asked.sizes);
    }

    #[test]
    fn time_runs_out_without_running_below_what_can_be_measured() {
        if viaduct_os::cpu::count() < 2 {
            return;
        }
        let case = Case::find("latency").unwrap();
        let mut pace = Pace::new(Duration::ZERO, 1);
        assert!((pace.next(case, &base(true)).unwrap().time - SHORTEST).abs() < 1e-9);
    }
}
