//! Two result files against each other: all points that both have, and which of them changed for sure.
//!
//! Sure means that the two 95 % intervals do not overlap. That is a stricter test than it sounds (about one in two
//! hundred by chance), which is right where hundreds of points are looked at together. A noisy point is never sure.

use super::Catalogue;
use super::chart::Grid;
use super::read::Results;
use super::text::{digits, short};
use crate::schema::{Better, Cell, Measurement};

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

/// One value with what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The median.
    pub value: f64,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// The machine was disturbed.
    pub noisy: bool,
}

/// One point that both files have.
#[derive(Clone, Debug)]
pub struct Change {
    /// What was measured, with its unit.
    pub point: String,
    /// Message size, and placement of the two cores; empty for a value of a table.
    pub place: [String; 2],
    /// The point in the first file.
    pub old: Reading,
    /// The point in the second file.
    pub new: Reading,
    /// New value over old value.
    pub ratio: f64,
    /// What the intervals say.
    pub verdict: Verdict,
}

impl Change {
    /// How many times the larger value is the smaller one: the size of the change, whichever direction is the better one.
    /// A derived value can be negative; its change has no size.
    pub fn factor(&self) -> f64 {
        if self.ratio > 0.0 { self.ratio.max(self.ratio.recip()) } else { 1.0 }
    }

    /// The point with its place, as one line of text names it.
    pub fn named(&self) -> String {
        let place = self.place.iter().filter(|word| !word.is_empty());
        [&self.point].into_iter().chain(place).map(String::as_str).collect::<Vec<_>>().join(", ")
    }
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

    /// The points that are worse for sure, and by more than `factor`, largest first.
    pub fn worse(&self, factor: f64) -> Vec<&Change> {
        let much = |change: &&Change| change.verdict == Verdict::Worse && change.factor() > factor;
        let mut worse: Vec<&Change> = self.changes.iter().filter(much).collect();
        worse.sort_by(|a, b| b.factor().total_cmp(&a.factor()));
        worse
    }
}

/// Compares `new` with `old`, point by point; `known` says for which cases less is better.
pub fn compare(old: &Results, new: &Results, known: &Catalogue) -> Comparison {
    let direction = |line: &Measurement| match known.lower_is_better(line) {
        true => Better::Less,
        false => Better::More,
    };
    let valid = |line: &Measurement| line.valid && line.p50.is_some();
    let measured = |results: &Results| -> Vec<Measurement> {
        results.measurements.iter().filter(|line| valid(line)).cloned().collect()
    };
    let (mut changes, mut unmatched) = matched(&measured(old), &measured(new), alike, |old, new| {
        let place = [crate::size::show(new.size), new.placement.clone()];
        change(name(new), place, reading(old)?, reading(new)?, direction(new))
    });
    // What a paper says does not change.
    let tables = |results: &Results| -> Vec<Cell> {
        let measured = |cell: &&Cell| cell.valid && cell.value.is_some() && cell.source.is_none();
        results.cells.iter().filter(measured).cloned().collect()
    };
    let (cells, left) = matched(&tables(old), &tables(new), same_cell, |old, new| {
        let point = format!("{} {}, {} ({})", new.table, new.row, new.column, new.unit);
        change(point, Default::default(), of_cell(old)?, of_cell(new)?, new.better)
    });
    changes.extend(cells);
    unmatched += left;
    let host = |results: &Results| {
        let lines = results.measurements.first().map(|line| line.host.cpu.clone());
        lines.or_else(|| results.cells.first().map(|cell| cell.host.cpu.clone()))
    };
    Comparison {
        old: old.name.clone(),
        new: new.name.clone(),
        changes,
        unmatched,
        other_host: host(old) != host(new),
    }
}

/// The changes of all points that both lists have, and how many points only one has.
fn matched<T>(
    old: &[T],
    new: &[T],
    alike: fn(&T, &T) -> bool,
    change: impl Fn(&T, &T) -> Option<Change>,
) -> (Vec<Change>, usize) {
    let (mut changes, mut unmatched) = (Vec::new(), 0);
    for (index, line) in new.iter().enumerate() {
        // Measured twice: the later one counts, as in the charts.
        if new[index + 1..].iter().any(|later| alike(later, line)) {
            continue;
        }
        match old.iter().rev().find(|other| alike(other, line)) {
            Some(other) => changes.extend(change(other, line)),
            None => unmatched += 1,
        }
    }
    unmatched += old.iter().filter(|line| !new.iter().any(|other| alike(other, line))).count();
    (changes, unmatched)
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

/// Whether two cells are of one thing.
fn same_cell(a: &Cell, b: &Cell) -> bool {
    (&a.table, &a.row, &a.column, &a.unit) == (&b.table, &b.row, &b.column, &b.unit)
}

fn reading(line: &Measurement) -> Option<Reading> {
    Some(Reading { value: line.p50?, ci95: line.ci95, noisy: line.noisy })
}

fn of_cell(cell: &Cell) -> Option<Reading> {
    Some(Reading { value: cell.value?, ci95: cell.ci95, noisy: cell.noisy })
}

fn change(point: String, place: [String; 2], old: Reading, new: Reading, better: Better) -> Option<Change> {
    let ratio = new.value / old.value;
    let verdict = match (old.ci95, new.ci95) {
        _ if old.noisy || new.noisy => Verdict::Unknown,
        (Some(before), Some(after)) => match (after[1] < before[0], after[0] > before[1], better) {
            (false, false, _) => Verdict::Same,
            (_, _, Better::Neither) => Verdict::Unknown,
            (below, _, better) if below == (better == Better::Less) => Verdict::Better,
            _ => Verdict::Worse,
        },
        _ => Verdict::Unknown,
    };
    ratio.is_finite().then_some(Change { point, place, old, new, ratio, verdict })
}

/// What a measurement is of, in words.
fn name(line: &Measurement) -> String {
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
    format!("{name} ({})", line.unit)
}

/// The table of all points; sure changes first, the largest on top.
pub(crate) fn grid(comparison: &Comparison) -> Grid {
    let heads = ["point", "verdict", "new / old", "old", "new", "size", "cores"].map(Into::into).to_vec();
    let mut changes: Vec<&Change> = comparison.changes.iter().collect();
    let sure = |change: &Change| matches!(change.verdict, Verdict::Better | Verdict::Worse);
    changes.sort_by(|a, b| sure(b).cmp(&sure(a)).then(b.factor().total_cmp(&a.factor())));
    let value = |reading: &Reading| {
        let interval = reading
            .ci95
            .map_or_else(String::new, |[low, high]| format!(" [{}, {}]", digits(low), digits(high)));
        format!("{}{interval}{}", digits(reading.value), if reading.noisy { " ~" } else { "" })
    };
    let row = |change: &&Change| {
        let [size, placement] = change.place.clone();
        vec![
            change.point.clone(),
            change.verdict.name().into(),
            digits(change.ratio),
            value(&change.old),
            value(&change.new),
            size,
            placement,
        ]
    };
    Grid { heads, rows: changes.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Line, sample};
    use crate::table::Table;

    fn compare(old: &Results, new: &Results) -> Comparison {
        super::compare(old, new, &Catalogue::default())
    }

    fn one(p50: f64, ci95: [f64; 2]) -> Measurement {
        Measurement { p50: Some(p50), ci95: Some(ci95), ..sample() }
    }

    fn results(lines: Vec<Measurement>) -> Results {
        Results { name: "file".into(), measurements: lines, ..Results::default() }
    }

    fn verdict(old: Measurement, new: Measurement) -> Verdict {
        let comparison = compare(&results(vec![old]), &results(vec![new]));
        assert_eq!((comparison.changes.len(), comparison.unmatched), (1, 0));
        comparison.changes[0].verdict
    }

    #[test]
    fn much_worse_points_are_named_with_their_place() {
        let other = |size| Measurement { size, ..one(1.0, [0.99, 1.01]) };
        let worse = |size, p50: f64| Measurement { size, ..one(p50, [p50 * 0.99, p50 * 1.01]) };
        let old = results(vec![other(8), other(64), other(512)]);
        let new = results(vec![worse(8, 1.04), worse(64, 1.2), worse(512, 1.5)]);
        let comparison = compare(&old, &new);
        let named: Vec<_> = comparison.worse(1.05).into_iter().map(Change::named).collect();
        assert_eq!(comparison.count(Verdict::Worse), 3);
        assert_eq!(named.len(), 2);
        assert!(named[0].contains("512") && named[1].contains("64"), "{named:?}");
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

    #[test]
    fn cells_of_tables_are_compared_in_their_own_direction() {
        let table = Table::new("sort", Default::default());
        let file = |better, values: [f64; 3], paper| {
            let lines = [
                table.cell("viaduct", "rate", "MB/s", better).of(&values),
                table.cell("paper", "rate", "MB/s", better).from_paper("there", paper),
            ];
            let cells = lines.into_iter().map(|line| match line {
                Line::Cell(cell) => *cell,
                other => panic!("{other:?}"),
            });
            Results { cells: cells.collect(), ..Results::default() }
        };
        for (better, verdict) in [
            (Better::More, Verdict::Better),
            (Better::Less, Verdict::Worse),
            (Better::Neither, Verdict::Unknown),
        ] {
            let old = file(better, [1.0, 1.1, 1.2], 1.0);
            let comparison = compare(&old, &file(better, [2.0, 2.1, 2.2], 5.0));
            assert_eq!(
                (comparison.changes.len(), comparison.unmatched),
                (1, 0),
                "a paper's value is no change"
            );
            assert_eq!(comparison.changes[0].verdict, verdict, "{better:?}");
            assert_eq!(comparison.changes[0].point, "sort viaduct, rate (MB/s)");
        }
    }
}
