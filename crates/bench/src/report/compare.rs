//! Two result files against each other: all points that both have, and which of them changed for sure.
//!
//! Sure means that the two 95 % intervals do not overlap. That is a stricter test than it sounds (about one in two
//! hundred by chance), which is right where hundreds of points are looked at together. A noisy point is never sure.

use super::chart::Grid;
use super::generic::lower_is_better;
use super::read::Results;
use super::text::{digits, short};
use crate::schema::Measurement;

/// What the two intervals say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They do not overlap, and the new value is the better one.
    Better,
    /// They do not overlap, and the new value is the worse one.
    Worse,
    /// They overlap.
    Same,
    /// One of the two was noisy or has no interval.
    Unknown,
}

impl Verdict {
    /// As the table has it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "",
            Verdict::Unknown => "not sure",
        }
    }
}

/// One point that both files have.
#[derive(Clone, Debug)]
pub struct Change {
    /// The point in the first file.
    pub old: Measurement,
    /// The point in the second file.
    pub new: Measurement,
    /// New value over old value.
    pub ratio: f64,
    /// What the intervals say.
    pub verdict: Verdict,
}

/// Two files compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name of the first file.
    pub old: String,
    /// Name of the second file.
    pub new: String,
    /// Points of both, in the order of the second.
    pub changes: Vec<Change>,
    /// Points that only one of them has.
    pub unmatched: usize,
    /// The files come from different machines.
    pub other_host: bool,
}

impl Comparison {
    /// How many points have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }
}

/// Compares `new` with `old`, point by point.
pub fn compare(old: &Results, new: &Results) -> Comparison {
    let valid = |line: &&Measurement| line.valid && line.p50.is_some();
    let mut changes: Vec<Change> = Vec::new();
    let mut unmatched = 0;
    for line in new.measurements.iter().filter(valid) {
        // Measured twice: the later one counts, as in the charts.
        match old.measurements.iter().rev().filter(valid).find(|other| alike(other, line)) {
            Some(other) => {
                changes.retain(|change| !alike(&change.new, line));
                changes.extend(change(other, line));
            }
            None => unmatched += 1,
        }
    }
    let gone = |line: &&Measurement| !new.measurements.iter().filter(valid).any(|other| alike(other, line));
    unmatched += old.measurements.iter().filter(valid).filter(gone).count();
    let host = |results: &Results| results.measurements.first().map(|line| line.host.cpu.clone());
    Comparison {
        old: old.name.clone(),
        new: new.name.clone(),
        changes,
        unmatched,
        other_host: host(old) != host(new),
    }
}

/// Whether two results are of one thing.
fn alike(a: &Measurement, b: &Measurement) -> bool {
    let key = |m: &Measurement| {
        let words = [&m.case, &m.layer, &m.series, &m.unit, &m.placement, &m.wait].map(Clone::clone);
        let config: Vec<_> = ["send", "repost"].map(|name| m.config.get(name).cloned()).into();
        (words, config, m.size, m.x.map(f64::to_bits), m.window, m.connections)
    };
    key(a) == key(b)
}

fn change(old: &Measurement, new: &Measurement) -> Option<Change> {
    let ratio = new.p50? / old.p50?;
    let verdict = match (old.ci95, new.ci95) {
        _ if old.noisy || new.noisy => Verdict::Unknown,
        (Some(old_one), Some(new_one)) => {
            let (below, above) = (new_one[1] < old_one[0], new_one[0] > old_one[1]);
            match (below || above, below == lower_is_better(new)) {
                (false, _) => Verdict::Same,
                (true, true) => Verdict::Better,
                (true, false) => Verdict::Worse,
            }
        }
        _ => Verdict::Unknown,
    };
    ratio.is_finite().then(|| Change { old: old.clone(), new: new.clone(), ratio, verdict })
}

/// The table of all points; sure changes first, the largest on top.
pub(crate) fn grid(comparison: &Comparison) -> Grid {
    let heads = ["point", "verdict", "new / old", "old", "new", "size", "cores"].map(Into::into).to_vec();
    let mut changes: Vec<&Change> = comparison.changes.iter().collect();
    let sure = |change: &Change| matches!(change.verdict, Verdict::Better | Verdict::Worse);
    // A derived value can be negative; such a ratio says nothing.
    let far = |change: &Change| if change.ratio > 0.0 { change.ratio.ln().abs() } else { 0.0 };
    changes.sort_by(|a, b| sure(b).cmp(&sure(a)).then(far(b).total_cmp(&far(a))));
    let row = |change: &&Change| {
        let line = &change.new;
        let mut name = format!("{} {}", line.case, line.layer);
        if !line.series.is_empty() {
            name = format!("{name} {}", line.series);
        }
        if let Some(x) = line.x {
            name = format!("{name}, {} {}", short(x), line.axis);
        }
        if line.wait == "block" {
            name += ", block";
        }
        let value = |m: &Measurement| {
            let interval = m
                .ci95
                .map_or_else(String::new, |[low, high]| format!(" [{}, {}]", digits(low), digits(high)));
            let noisy = if m.noisy { " ~" } else { "" };
            format!("{}{interval}{noisy}", m.p50.map_or_else(|| "–".into(), digits))
        };
        vec![
            format!("{name} ({})", line.unit),
            change.verdict.name().into(),
            digits(change.ratio),
            value(&change.old),
            value(&change.new),
            crate::size::show(line.size),
            line.placement.clone(),
        ]
    };
    Grid { heads, rows: changes.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::sample;

    fn one(p50: f64, ci95: [f64; 2]) -> Measurement {
        Measurement { p50: Some(p50), ci95: Some(ci95), ..sample() }
    }

    fn results(lines: Vec<Measurement>) -> Results {
        Results { name: "file".into(), measurements: lines, pairs: Vec::new() }
    }

    fn verdict(old: Measurement, new: Measurement) -> Verdict {
        let comparison = compare(&results(vec![old]), &results(vec![new]));
        assert_eq!((comparison.changes.len(), comparison.unmatched), (1, 0));
        comparison.changes[0].verdict
    }

    #[test]
    fn only_intervals_that_do_not_overlap_are_marked() {
        let old = one(1.0, [0.9, 1.1]);
        assert_eq!(verdict(old.clone(), one(0.5, [0.4, 0.6])), Verdict::Better);
        assert_eq!(verdict(old.clone(), one(2.0, [1.9, 2.1])), Verdict::Worse);
        assert_eq!(verdict(old.clone(), one(1.15, [1.05, 1.2])), Verdict::Same);
        // Touching is overlapping.
        assert_eq!(verdict(old, one(1.2, [1.1, 1.3])), Verdict::Same);
    }

    #[test]
    fn more_is_better_for_rates() {
        let rate =
            |p50, ci95| Measurement { case: "bandwidth".into(), unit: "MB/s".into(), ..one(p50, ci95) };
        assert_eq!(verdict(rate(1.0, [0.9, 1.1]), rate(2.0, [1.9, 2.1])), Verdict::Better);
        // A case that this version does not know goes by its unit.
        let strange = |p50, ci95| Measurement { case: "flood".into(), ..rate(p50, ci95) };
        assert_eq!(verdict(strange(2.0, [1.9, 2.1]), strange(1.0, [0.9, 1.1])), Verdict::Worse);
    }

    #[test]
    fn noise_and_missing_intervals_are_never_sure() {
        let noisy = Measurement { noisy: true, ..one(9.0, [9.0, 9.0]) };
        assert_eq!(verdict(one(1.0, [0.9, 1.1]), noisy), Verdict::Unknown);
        let bare = Measurement { ci95: None, ..one(9.0, [9.0, 9.0]) };
        assert_eq!(verdict(bare, one(1.0, [0.9, 1.1])), Verdict::Unknown);
    }

    #[test]
    fn only_the_same_thing_is_compared() {
        let far = Measurement { placement: "far".into(), ..one(5.0, [5.0, 5.0]) };
        let comparison = compare(&results(vec![one(1.0, [0.9, 1.1])]), &results(vec![far]));
        assert_eq!((comparison.changes.len(), comparison.unmatched), (0, 2));
        assert!(!comparison.other_host);
    }

    #[test]
    fn sure_changes_stand_on_top() {
        let sized = |size, p50, ci95| Measurement { size, ..one(p50, ci95) };
        let old = results(vec![sized(8, 1.0, [0.9, 1.1]), sized(64, 1.0, [0.9, 1.1])]);
        let new = results(vec![sized(8, 1.0, [0.9, 1.1]), sized(64, 3.0, [2.9, 3.1])]);
        let grid = grid(&compare(&old, &new));
        assert_eq!((grid.rows[0][5].as_str(), grid.rows[0][1].as_str()), ("64", "worse"));
    }
}
