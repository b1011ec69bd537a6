//! Ratios of like with like: every ordered pair of variants that share a curve or a place on the axis, in every
//! placement that both were seen in.
//!
//! The blocks that are compared are, in order of preference: the launches that both have (independent of each other, so
//! the interval is honest), the rounds that both have (some tens of milliseconds apart, so the machine was the same), or
//! simply all slices. An interval over rounds or slices does not know about the luck of page placement.

use std::collections::BTreeMap;

use crate::measure::{Measured, Slice, WANTED};
use crate::plan::Variant;
use crate::probe::Placement;
use crate::schema::{Pair, VERSION};
use crate::stats::Ratio;
use crate::summary::{Context, counted, launch_medians, line, reported};

/// Ratios of one point.
pub(crate) fn pairs(context: &Context<'_>, results: &[Measured]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for a in results.iter().filter(|r| r.valid) {
        let others = results.iter().filter(|r| r.valid && !std::ptr::eq(*r, a));
        for b in others.filter(|b| comparable(&a.variant, &b.variant)) {
            let common = reported(a).into_iter().filter(|placement| reported(b).contains(placement));
            pairs.extend(common.filter_map(|placement| pair(context, a, b, placement)));
        }
    }
    pairs
}

/// On one curve, or at one place of the axis (or off it), and the same part of a message: other pairs say nothing, and
/// there would be thousands.
fn comparable(a: &Variant, b: &Variant) -> bool {
    let placed = a.series == b.series || a.x == b.x || a.x.is_none() || b.x.is_none();
    placed && a.arg("part") == b.arg("part")
}

fn pair(context: &Context<'_>, a: &Measured, b: &Measured, placement: Placement) -> Option<Pair> {
    let (ratio, n) = ratio(context, a, b, placement)?;
    // What can be nothing at all, a share for instance, may have no ratio.
    if ratio.value <= 0.0 || !ratio.ci95.iter().all(|bound| bound.is_finite()) {
        return None;
    }
    let noisy = line(context, a, placement).noisy || line(context, b, placement).noisy;
    let differ = a.variant.series != b.variant.series || a.variant.x != b.variant.x;
    let name = |result: &Measured| {
        if differ { result.variant.label() } else { result.variant.layer.to_string() }
    };
    Some(Pair {
        schema: VERSION,
        case: context.case.name.into(),
        size: a.variant.size,
        a: name(a),
        b: name(b),
        ratio: ratio.value,
        ci95: ratio.ci95,
        placement: placement.name().into(),
        n,
        noisy,
        config: Default::default(),
    })
}

fn ratio(context: &Context<'_>, a: &Measured, b: &Measured, placement: Placement) -> Option<(Ratio, usize)> {
    let (top, bottom) = (counted(a, placement).slices, counted(b, placement).slices);
    let value = |result: &Measured, ns: f64| (context.case.value)(ns, result.variant.size);
    for medians in [launch_medians, round_medians] {
        let (top, bottom) = (medians(&top), medians(&bottom));
        let both = top.iter().filter_map(|(key, ns)| Some((value(a, *ns), value(b, *bottom.get(key)?))));
        let both: Vec<(f64, f64)> = both.collect();
        if both.len() >= WANTED {
            return Some((Ratio::of_paired_medians(&both)?, both.len()));
        }
    }
    let all = |result: &Measured, slices: &[&Slice]| -> Vec<f64> {
        slices.iter().map(|slice| value(result, slice.median)).collect()
    };
    Some((Ratio::of_medians(&all(a, &top), &all(b, &bottom))?, top.len().min(bottom.len())))
}

fn round_medians(slices: &[&Slice]) -> BTreeMap<usize, f64> {
    slices.iter().map(|slice| (slice.round, slice.median)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Layer;
    use crate::summary::tests::{measured, slices, with_context};

    #[test]
    fn only_like_placements_are_compared() {
        let shm = measured(
            Layer::Via("shm"),
            vec![slices(Placement::Near, false, &[80.0; 8]), slices(Placement::Far, false, &[300.0; 4])],
        );
        let raw = measured(
            Layer::Raw,
            vec![slices(Placement::Near, false, &[50.0; 7]), slices(Placement::Far, false, &[200.0; 1])],
        );
        with_context(|context| {
            let pairs = pairs(context, &[shm, raw]);
            let shown: Vec<_> = pairs.iter().map(|p| (p.a.as_str(), p.b.as_str(), p.ratio)).collect();
            assert_eq!(shown, [("shm", "raw", 0.08 / 0.05), ("raw", "shm", 0.05 / 0.08)]);
            assert!(pairs.iter().all(|p| p.placement == "near" && p.n == 7));
        });
    }

    #[test]
    fn launches_are_the_blocks_when_there_are_enough() {
        // In launch 0 the pages were bad luck for shm; it has most slices, and must not dominate.
        let launches = |of_first: f64, others: f64| {
            let mut all = slices(Placement::Near, false, &[of_first; 40]);
            for launch in 1..8 {
                let mut more = slices(Placement::Near, false, &[others; 3]);
                more.iter_mut().for_each(|slice| slice.launch = launch);
                all.extend(more);
            }
            all
        };
        let shm = measured(Layer::Via("shm"), vec![launches(400.0, 80.0)]);
        let raw = measured(Layer::Raw, vec![launches(50.0, 50.0)]);
        with_context(|context| {
            let pairs = pairs(context, &[shm, raw]);
            assert_eq!((pairs[0].ratio, pairs[0].n), (0.08 / 0.05, 8));
        });
    }

    #[test]
    fn nothing_has_no_ratio() {
        let some = measured(Layer::Raw, vec![slices(Placement::Near, false, &[50.0; 6])]);
        let none = measured(Layer::Via("shm"), vec![slices(Placement::Near, false, &[0.0; 6])]);
        with_context(|context| assert!(pairs(context, &[none, some]).is_empty()));
        // The median is something, but the interval reaches nothing.
        let some = measured(Layer::Raw, vec![slices(Placement::Near, false, &[50.0; 7])]);
        let mixed = [0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0];
        let mixed = measured(Layer::Via("shm"), vec![slices(Placement::Near, false, &mixed)]);
        with_context(|context| {
            let pairs = pairs(context, &[mixed, some]);
            assert!(pairs.iter().all(|pair| pair.ci95.iter().all(|bound| bound.is_finite())), "{pairs:?}");
        });
    }

    #[test]
    fn wrong_data_give_no_ratio() {
        let good = measured(Layer::Raw, vec![slices(Placement::Near, false, &[50.0; 6])]);
        let mut bad = measured(Layer::Via("shm"), vec![slices(Placement::Near, false, &[1.0; 6])]);
        bad.valid = false;
        with_context(|context| assert!(pairs(context, &[bad, good]).is_empty()));
    }
}
