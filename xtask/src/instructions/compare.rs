//! Counts held against their baselines: which are worse, and the table that shows it. Counts nothing itself.

use super::baselines::Baselines;

/// A count is worse if it is above its baseline by more than this share ...
const WORSE_SHARE: f64 = 0.03;

/// ... and by at least so many instructions, since one more in a short operation is no news.
const WORSE_COUNT: f64 = 3.0;

/// A count that is lower by more than this share makes the baseline too lenient.
const BETTER_SHARE: f64 = 0.05;

/// Operations that may take so many times the instructions of another one at most, whatever their baselines say: a message that meets the
/// last of ten thousand receives.
const AT_MOST: [(&str, f64, &str); 1] = [("match-10000", 1.5, "match-10")];

/// Operations that take more than another one allows, and how much more.
pub(super) fn beyond(now: &Baselines) -> Vec<String> {
    let one = |&(operation, most, other): &(&str, f64, &str)| {
        let (count, allowed) = (now.count(operation)?, most * now.count(other)?);
        (count > allowed)
            .then(|| format!("{operation}: {count:.1}, and {most} times {other} is {allowed:.1}"))
    };
    AT_MOST.iter().filter_map(one).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    Worse,
    Better,
    /// The file has no baseline for it.
    New,
    /// The program has no such operation any more.
    Gone,
}

/// One operation.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) operation: String,
    pub(super) verdict: Verdict,
    baseline: Option<f64>,
    now: Option<f64>,
}

/// Every operation of the program, then those that only the file has.
pub(super) fn compare(baselines: &Baselines, now: &Baselines) -> Vec<Line> {
    let counted = now.counts.iter().map(|(operation, count)| {
        let baseline = baselines.count(operation);
        let verdict = baseline.map_or(Verdict::New, |baseline| judge(baseline, *count));
        Line { operation: operation.clone(), verdict, baseline, now: Some(*count) }
    });
    let gone = baselines.counts.iter().filter(|(operation, _)| now.count(operation).is_none());
    let gone = gone.map(|(operation, count)| Line {
        operation: operation.clone(),
        verdict: Verdict::Gone,
        baseline: Some(*count),
        now: None,
    });
    counted.chain(gone).collect()
}

fn judge(baseline: f64, now: f64) -> Verdict {
    if now > baseline * (1.0 + WORSE_SHARE) && now - baseline >= WORSE_COUNT {
        Verdict::Worse
    } else if now < baseline * (1.0 - BETTER_SHARE) {
        Verdict::Better
    } else {
        Verdict::Same
    }
}

impl Verdict {
    /// A file that does not fit the program is as bad as a count that grew: it would be ignored for ever.
    pub(super) fn is_good(self) -> bool {
        matches!(self, Self::Same | Self::Better)
    }

    fn remark(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Worse => "WORSE",
            Self::Better => "better: renew",
            Self::New => "NO BASELINE: renew",
            Self::Gone => "NOT COUNTED ANY MORE: renew",
        }
    }
}

/// Operation, baseline, now, change.
pub(super) fn table(lines: &[Line]) -> String {
    let mut table = row("operation", "baseline", "now", "change", "");
    for line in lines {
        let shown = |count: Option<f64>| count.map_or("-".to_owned(), |count| format!("{count:.1}"));
        let change = line.baseline.zip(line.now).map_or("-".to_owned(), |(baseline, now)| {
            if baseline == now { "=".to_owned() } else { format!("{:+.1} %", 100.0 * (now / baseline - 1.0)) }
        });
        table +=
            &row(&line.operation, &shown(line.baseline), &shown(line.now), &change, line.verdict.remark());
    }
    table
}

fn row(operation: &str, baseline: &str, now: &str, change: &str, remark: &str) -> String {
    format!("{operation:<26}{baseline:>10}{now:>10}{change:>10}  {remark}").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(counts: &[(&str, f64)]) -> Baselines {
        let counts = counts.iter().map(|(operation, count)| ((*operation).to_owned(), *count)).collect();
        Baselines { counts, ..Baselines::default() }
    }

    #[test]
    fn worse_needs_both_a_share_and_a_number() {
        assert_eq!(judge(200.0, 206.0), Verdict::Same);
        assert_eq!(judge(200.0, 206.5), Verdict::Worse);
        assert_eq!(judge(20.0, 22.9), Verdict::Same);
        assert_eq!(judge(20.0, 23.0), Verdict::Worse);
        assert_eq!(judge(1000.0, 1004.0), Verdict::Same);
    }

    #[test]
    fn matching_many_receives_may_cost_half_as_much_again_as_matching_few() {
        assert!(beyond(&counts(&[("match-10", 100.0), ("match-10000", 150.0)])).is_empty());
        let beyond = beyond(&counts(&[("match-10", 100.0), ("match-10000", 151.0)]));
        assert!(beyond.len() == 1 && beyond[0].contains("match-10000: 151.0"), "{beyond:?}");
        assert!(super::beyond(&counts(&[("post_recv", 60.0)])).is_empty());
    }

    #[test]
    fn a_much_lower_count_asks_for_a_new_baseline() {
        assert_eq!(judge(200.0, 190.0), Verdict::Same);
        assert_eq!(judge(200.0, 189.0), Verdict::Better);
        assert!(Verdict::Better.is_good());
    }

    #[test]
    fn file_and_program_must_have_the_same_operations() {
        let lines = compare(&counts(&[("a", 10.0), ("b", 20.0)]), &counts(&[("a", 10.0), ("c", 5.0)]));
        let verdicts: Vec<_> = lines.iter().map(|line| (line.operation.as_str(), line.verdict)).collect();
        assert_eq!(verdicts, [("a", Verdict::Same), ("c", Verdict::New), ("b", Verdict::Gone)]);
        assert!(!Verdict::New.is_good() && !Verdict::Gone.is_good() && !Verdict::Worse.is_good());
    }

    #[test]
    fn the_table_shows_baseline_now_and_change() {
        let lines = compare(&counts(&[("a", 100.0), ("b", 20.0)]), &counts(&[("a", 110.5), ("b", 20.0)]));
        let table = table(&lines);
        let cells: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["operation", "baseline", "now", "change"]);
        assert_eq!(cells[1], ["a", "100.0", "110.5", "+10.5", "%", "WORSE"]);
        assert_eq!(cells[2], ["b", "20.0", "20.0", "="]);
    }
}
