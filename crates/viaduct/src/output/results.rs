//! Benchmark results as a table for people and as CSV.

use std::io::{self, Write};

use viaduct_bench::{Case, Settings};
pub(crate) use viaduct_results::report::digits;
use viaduct_results::schema::{Line, Measurement, Pair};
use viaduct_results::size;

use crate::output::table;

/// Prints what was measured, in words, then the numbers.
pub(crate) fn table(case: &Case, settings: &Settings, lines: &[Line]) -> io::Result<()> {
    let (measurements, pairs) = split(lines);
    let mut out = io::stdout().lock();
    for line in case.header(settings).iter().flat_map(|line| wrap(line, 96)) {
        writeln!(out, "# {line}")?;
    }
    if let Some(any) = measurements.first() {
        let window =
            if any.window > 1 { format!(" Window: {} messages.", any.window) } else { String::new() };
        let host = &any.host;
        let kind = if host.virtualised { "virtual" } else { "real" };
        writeln!(out, "# Reading the clock costs {:.0} ns.{window}", any.timer_ns)?;
        writeln!(out, "# {}, {} cores ({kind} machine), Linux {}", host.cpu, host.cores, host.kernel)?;
    }
    let first = settings.layers.first().map_or("", |layer| layer.name());
    writeln!(out, "\n{}\n", draw(case, first, &measurements, &pairs))?;
    for line in legend(&measurements).iter().flat_map(|line| wrap(line, 96)) {
        writeln!(out, "# {line}")?;
    }
    Ok(())
}

/// What the columns and marks of a table mean, as far as they are in it.
fn legend(lines: &[&Measurement]) -> Vec<String> {
    let batch = lines.iter().map(|line| line.batch).max().unwrap_or(1);
    let tail = match batch {
        0 | 1 => "p99: of single messages".to_owned(),
        _ => format!(
            "p99: of the means of batches of {batch} messages at most. p99 single: of ping-pongs that were timed one by one in \
             slices of their own; each contains one reading of the clock"
        ),
    };
    let mut legend = vec![format!(
        "{tail}. n: slices of time behind the value. against: the median beside that of the layer named there, in the \
         same placement of the two cores"
    )];
    if lines.iter().any(|line| !line.series.is_empty()) {
        legend.push(
            "against, with curves: the first curve of the layer at the same place of its axis; another layer is held against \
             the same curve of the first"
                .to_owned(),
        );
    }
    let marks: Vec<&str> = lines.iter().flat_map(|line| marks(line)).collect();
    for (mark, meaning) in [
        ("few", "few: this placement was seen in too few slices or starts; another run may differ"),
        (
            "noisy",
            "noisy: the machine was disturbed, or the placement seldom seen; do not build on the value",
        ),
        ("INVALID", "INVALID: the data did not arrive intact"),
    ] {
        if marks.contains(&mark) {
            legend.push(meaning.to_owned());
        }
    }
    legend
}

/// The table of one case.
pub(crate) fn draw(case: &Case, first: &str, lines: &[&Measurement], pairs: &[&Pair]) -> String {
    let mut lines = lines.to_vec();
    lines.sort_by_key(|line| line.size);
    let p50 = format!("p50 {}", case.unit);
    let mut bases: Vec<String> = lines.iter().map(|line| base(line, first, &lines)).collect();
    bases.iter_mut().for_each(|base| base.truncate(base.find('@').unwrap_or(base.len())));
    bases.sort_unstable();
    bases.dedup();
    let against = match bases.as_slice() {
        [one] => format!("against {one}"),
        _ => "against first".into(),
    };
    let heads =
        ["size", "layer", "placement", &p50, "95 % interval", "p99", "p99 single", &against, "n", "marks"];
    let rows: Vec<[String; 10]> = lines.iter().map(|line| row(case, line, first, &lines, pairs)).collect();
    table::draw(&heads, &rows, &[0, 3, 4, 5, 6, 7, 8])
}

/// Prints one line for each measurement, below a `heading` if wanted.
pub(crate) fn csv(lines: &[Line], heading: bool) -> io::Result<()> {
    let (measurements, _) = split(lines);
    let mut out = io::stdout().lock();
    if heading {
        writeln!(out, "{}", COLUMNS.map(|(name, _)| name).join(","))?;
    }
    for line in measurements {
        writeln!(out, "{}", table::csv_row(COLUMNS.map(|(_, cell)| cell(line))))?;
    }
    Ok(())
}

/// Lines of cases, both kinds apart.
pub(crate) fn split(lines: &[Line]) -> (Vec<&Measurement>, Vec<&Pair>) {
    let (mut measurements, mut pairs) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            Line::Measurement(measurement) => measurements.push(&**measurement),
            Line::Pair(pair) => pairs.push(pair),
            Line::Cell(_) => {}
        }
    }
    (measurements, pairs)
}

/// Breaks text at spaces.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.into());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// A ratio of two results in words: how many times faster or slower the first of them is, or greater and smaller where the
/// unit is not one of speed.
pub(crate) fn compared(ratio: f64, unit: &str, lower_is_better: bool) -> String {
    let speed = unit == "us" || unit.ends_with("/s");
    let word = match (ratio > 1.0, lower_is_better) {
        (more, _) if !speed => ["smaller", "greater"][usize::from(more)],
        (more, lower) if more == lower => "slower",
        _ => "faster",
    };
    match digits(ratio.max(1.0 / ratio)).as_str() {
        "1" | "1.0" | "1.00" => "equal".to_owned(),
        times => format!("{times} x {word}"),
    }
}

fn row(case: &Case, line: &Measurement, first: &str, all: &[&Measurement], pairs: &[&Pair]) -> [String; 10] {
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), digits);
    let name = label(line, all);
    let base = base(line, first, all);
    let pair = pairs.iter().find(|pair| {
        pair.a == name && pair.b == base && pair.size == line.size && pair.placement == line.placement
    });
    let ratio = beside(line, first, all).or(pair.map(|pair| pair.ratio));
    [
        size::show(line.size),
        name.clone(),
        if line.missing.is_some() { "-".into() } else { line.placement.clone() },
        if line.missing.is_some() { "missing".into() } else { number(line.p50) },
        line.ci95.map_or_else(|| "-".into(), |[low, high]| format!("[{}, {}]", digits(low), digits(high))),
        number(line.p99),
        number(line.p99_single),
        ratio.map_or_else(|| "-".into(), |ratio| compared(ratio, case.unit, case.lower_is_better)),
        line.n.to_string(),
        marks(line).join(" "),
    ]
}

fn marks(line: &Measurement) -> Vec<&str> {
    let mut marks = Vec::new();
    if let Some(cause) = &line.missing {
        marks.push(cause.as_str());
    }
    if !line.valid {
        marks.push("INVALID");
    }
    if line.noisy {
        marks.push("noisy");
    }
    let asked = line.config.get("launches").and_then(|text| text.parse().ok()).unwrap_or(1);
    if line.valid && line.missing.is_none() && (line.n < 6 || line.launches < asked.min(6)) {
        marks.push("few");
    }
    marks
}

/// The median of a line beside that of the first layer on the same curve and at the same place of it, where a case has curves or an
/// axis: another curve, or the beginning of the axis, says nothing of another layer.
fn beside(line: &Measurement, first: &str, all: &[&Measurement]) -> Option<f64> {
    let there = twin(line, first, all).find(|other| other.placement == line.placement)?;
    Some(line.p50? / there.p50.filter(|p50| *p50 > 0.0)?)
}

/// What the first layer has on the same curve at the same place, for a line of another layer.
fn twin<'a>(
    line: &'a Measurement,
    first: &'a str,
    all: &'a [&'a Measurement],
) -> impl Iterator<Item = &'a Measurement> {
    let other_layer = line.layer != first && (line.x.is_some() || !line.series.is_empty());
    all.iter().copied().filter(move |other| {
        other_layer
            && other.layer == first
            && (other.size, other.x, &other.series, &other.axis)
                == (line.size, line.x, &line.series, &line.axis)
    })
}

/// What a line is held against: the first layer, at the beginning of the axis; or its first curve, at the same place, where
/// a case has several. A line of another layer is held against its twin, if there is one.
fn base(line: &Measurement, first: &str, all: &[&Measurement]) -> String {
    if !line.series.is_empty()
        && let Some(twin) = twin(line, first, all).next()
    {
        return label(twin, all);
    }
    let placed = |other: &Measurement| {
        other.x.is_none() || line.x.is_none() || other.x == line.x && other.axis == line.axis
    };
    let mut same =
        all.iter().filter(|other| other.layer == first && other.size == line.size && placed(other));
    match same.next() {
        Some(curve) if !curve.series.is_empty() => label(curve, all),
        _ if label(line, all).contains('@') => format!("{first}@1"),
        _ => first.to_owned(),
    }
}

/// The layer, with curve and place on the axis if those vary.
fn label(line: &Measurement, all: &[&Measurement]) -> String {
    let varies = all.iter().any(|other| other.series != line.series || other.x != line.x);
    let mut label = line.layer.clone();
    if varies && !line.series.is_empty() {
        label = format!("{label}/{}", line.series);
    }
    match line.x.filter(|_| varies) {
        Some(x) => format!("{label}@{x}"),
        None => label,
    }
}

type Column = (&'static str, fn(&Measurement) -> String);

const COLUMNS: [Column; 32] = [
    ("case", |m| m.case.clone()),
    ("layer", |m| m.layer.clone()),
    ("provider", |m| m.provider.clone().unwrap_or_default()),
    ("size", |m| m.size.to_string()),
    ("unit", |m| m.unit.clone()),
    ("p50", |m| cell(m.p50)),
    ("ci95_low", |m| cell(m.ci95.map(|ci| ci[0]))),
    ("ci95_high", |m| cell(m.ci95.map(|ci| ci[1]))),
    ("n", |m| m.n.to_string()),
    ("launches", |m| m.launches.to_string()),
    ("valid", |m| m.valid.to_string()),
    ("noisy", |m| m.noisy.to_string()),
    ("min", |m| cell(m.min)),
    ("p90", |m| cell(m.p90)),
    ("p99", |m| cell(m.p99)),
    ("p99_single", |m| cell(m.p99_single)),
    ("p999", |m| cell(m.p999)),
    ("max", |m| cell(m.max)),
    ("samples", |m| m.samples.to_string()),
    ("batch", |m| m.batch.to_string()),
    ("ns_per_message", |m| cell(m.ns_per_message)),
    ("placement", |m| m.placement.clone()),
    ("probe_ns", |m| cell(m.probe_ns)),
    ("cpus", |m| format!("{} {}", m.cpus[0], m.cpus[1])),
    ("wait", |m| m.wait.clone()),
    ("window", |m| m.window.to_string()),
    ("connections", |m| m.connections.to_string()),
    ("dropped", |m| m.dropped.to_string()),
    ("series", |m| m.series.clone()),
    ("axis", |m| m.axis.clone()),
    ("x", |m| cell(m.x)),
    ("missing", |m| m.missing.clone().unwrap_or_default()),
];

fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::osu::tests::line;

    #[test]
    fn ratios_say_which_is_faster() {
        assert_eq!(compared(2.0, "us", true), "2.00 x slower");
        assert_eq!(compared(0.5, "us", true), "2.00 x faster");
        assert_eq!(compared(2.0, "MB/s", false), "2.00 x faster");
        assert_eq!(compared(0.25, "Mmsg/s", false), "4.00 x slower");
        assert_eq!(compared(2.0, "%", false), "2.00 x greater");
        assert_eq!(compared(1.0, "us", true), "equal");
    }

    #[test]
    fn curves_are_held_against_the_first_one_at_their_place() {
        let line = |series: &str, x: Option<f64>| Measurement {
            series: series.into(),
            x,
            ..line(r#""size":8,"p50":1.0"#)
        };
        let all = [
            line("queue", Some(1.0)),
            line("cq", Some(1.0)),
            line("queue", Some(16.0)),
            line("cq", Some(16.0)),
        ];
        let all: Vec<&Measurement> = all.iter().collect();
        let bases: Vec<String> = all.iter().map(|line| base(line, "shm", &all)).collect();
        assert_eq!(bases, ["shm/queue@1", "shm/queue@1", "shm/queue@16", "shm/queue@16"]);
        let alone = [line("", Some(1.0)), line("", Some(8.0))];
        let alone: Vec<&Measurement> = alone.iter().collect();
        assert_eq!(base(alone[1], "shm", &alone), "shm@1");
        let plain = line("", None);
        assert_eq!(base(&plain, "shm", &[&plain]), "shm");
        let unix = Measurement { layer: "unix".into(), p50: Some(3.0), ..line("", Some(8.0)) };
        let elsewhere = Measurement { x: Some(9.0), ..unix.clone() };
        assert_eq!(beside(&unix, "shm", &alone), Some(3.0));
        assert_eq!((beside(&elsewhere, "shm", &alone), beside(alone[1], "shm", &alone)), (None, None));
    }

    #[test]
    fn another_layer_is_held_against_the_same_curve() {
        let line = |layer: &str, series: &str, axis: &str, p50: f64| Measurement {
            layer: layer.into(),
            series: series.into(),
            axis: axis.into(),
            x: Some(100.0),
            p50: Some(p50),
            ..line(r#""size":8,"p50":1.0"#)
        };
        // Two axes that have a place of the same name.
        let all = [
            line("shm", "poll", "spin", 1.0),
            line("shm", "spin", "spin", 2.0),
            line("shm", "gap", "gap", 4.0),
            line("unix", "gap", "gap", 12.0),
            line("unix", "poll", "spin", 5.0),
            line("unix", "else", "gap", 5.0),
        ];
        let all: Vec<&Measurement> = all.iter().collect();
        let bases: Vec<String> = all.iter().map(|line| base(line, "shm", &all)).collect();
        let (poll, gap) = ("shm/poll@100", "shm/gap@100");
        assert_eq!(bases, [poll, poll, gap, gap, poll, gap]);
        let ratios: Vec<_> = all.iter().map(|line| beside(line, "shm", &all)).collect();
        assert_eq!(ratios, [None, None, None, Some(3.0), Some(5.0), None]);
    }

    #[test]
    fn a_table_explains_its_words() {
        let calm = Measurement { batch: 1, n: 40, launches: 10, ..line(r#""size":8,"p50":1.0"#) };
        let noisy = Measurement { batch: 32, n: 2, noisy: true, ..calm.clone() };
        let text = legend(&[&calm]).join("\n");
        assert!(text.contains("of single messages.") && !text.contains("noisy:"), "{text}");
        let text = legend(&[&calm, &noisy]).join("\n");
        for word in ["batches of 32 messages", "p99 single: of ping-pongs", "n: slices", "few:", "noisy:"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }

    #[test]
    fn text_is_wrapped_at_spaces() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("longer-than-the-width x", 5), ["longer-than-the-width", "x"]);
    }
}
