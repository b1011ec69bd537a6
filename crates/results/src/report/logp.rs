//! Table 3.1 and figures 3.5 and 3.6: LogP, from the lines of the case `logp`.

use super::chart::{Axis, Bar, Bars, Chart, Figure, Grid, Picture};
use super::read::Results;
use super::select::{Along, curves, usual_placement};
use super::text::{digits, times};
use super::thesis::{SYSTEMS, TABLE_3_1, send_overhead};
use super::{grid, words};
use crate::schema::Measurement;

/// LogP of one layer at one size.
struct Row<'a> {
    layer: &'a str,
    size: usize,
    /// As [`PARTS`] has them.
    values: [Option<f64>; PARTS.len()],
    noisy: bool,
}

/// The receive that interrupts.
const INTERRUPTED: &str = "Or-interrupt";

/// The parts, the latency measured by itself, and the receive that interrupts.
const PARTS: [&str; 6] = ["Os", "Or", "g", "L", "latency", INTERRUPTED];

/// The layers at the smallest size, in the placement that most lines have.
fn rows<'a>(lines: &[&'a Measurement]) -> Vec<Row<'a>> {
    let Some(size) = lines.iter().filter(|l| l.series == "Os").map(|l| l.size).min() else {
        return Vec::new();
    };
    // Only where all parts were measured is there a sum: the placement that most of the derived L have.
    let whole: Vec<&Measurement> =
        lines.iter().copied().filter(|line| line.size == size && line.series == "L").collect();
    let usual = usual_placement(if whole.is_empty() { lines } else { &whole });
    let mut rows: Vec<Row<'a>> = Vec::new();
    for line in lines.iter().filter(|l| l.size == size && l.placement == usual) {
        let Some(part) = PARTS.iter().position(|name| *name == line.series) else { continue };
        let at = rows.iter().position(|row| row.layer == line.layer).unwrap_or_else(|| {
            rows.push(Row { layer: &line.layer, size, values: [None; PARTS.len()], noisy: false });
            rows.len() - 1
        });
        rows[at].values[part] = line.p50;
        rows[at].noisy |= line.noisy;
    }
    rows
}

pub(crate) fn table_3_1(results: &Results) -> Figure {
    let mut figure = Figure {
        id: "table-3-1".into(),
        number: "Table 3.1".into(),
        title: "LogP parameters for small messages".into(),
        command: COMMAND.into(),
        words: vec![
            "What a message costs the sender (Os) and the receiver (Or), how close messages can follow each other (g) and \
             how long a message travels (L), in microseconds. Or-interrupt is what a receiver that computes loses to a message \
             that a handler takes on its core. On the right the table of the thesis (section 3.3.4), for 4 \
             bytes between two machines."
                .into(),
        ],
        ..Figure::default()
    };
    let lines = results.case("logp");
    let rows = rows(&lines);
    let Some(first) = rows.first() else { return figure };
    let bytes = crate::size::show(first.size);
    let mut heads = vec!["in us".to_owned()];
    heads.extend(
        rows.iter().map(|row| format!("{}, {bytes} B{}", row.layer, if row.noisy { " ~" } else { "" })),
    );
    heads.extend(SYSTEMS.iter().map(|system| format!("{system}, 2000")));
    let mut table = Grid { heads, rows: Vec::new() };
    for part in [0, 1, 5, 2, 3] {
        let name = PARTS[part];
        if name == INTERRUPTED && rows.iter().all(|row| row.values[part].is_none()) {
            continue;
        }
        let here = rows.iter().map(|row| row.values[part].map_or_else(|| "–".into(), digits));
        let then = TABLE_3_1.iter().find(|(other, _)| *other == name).map(|(_, values)| values.map(digits));
        table.rows.push(std::iter::once(name.into()).chain(here).chain(then.into_iter().flatten()).collect());
    }
    figure.words.extend(sum_words(first));
    figure.grids.push(table);
    figure
}

/// Whether the parts add up to the latency.
fn sum_words(row: &Row<'_>) -> Option<String> {
    let [os, or, _, l, latency, _] = row.values;
    let (sum, latency) = (os? + or? + l?, latency?);
    let share = (sum / latency - 1.0) * 100.0;
    let best = TABLE_3_1.iter().filter(|(name, _)| *name != "g").map(|(_, values)| values[2]).sum::<f64>();
    Some(format!(
        "{}: Os + Or + L = {} us, the latency measured by itself is {} us ({share:+.0} %). The fastest of 2000, cLAN VIA, \
         had {} us in all, {} as much.",
        row.layer,
        digits(sum),
        digits(latency),
        digits(best),
        times(best / sum)
    ))
}

pub(crate) fn figure_3_5(results: &Results) -> Figure {
    let mut figure = Figure {
        id: "fig-3-5".into(),
        number: "Figure 3.5".into(),
        title: "Contribution of each parameter to the latency".into(),
        command: COMMAND.into(),
        words: vec![
            "Each bar is one small message from post to completion, cut into the sender's share, the way, and the \
             receiver's share; the sum stands at its end. The bars of 2000 are table 3.1 of the thesis."
                .into(),
        ],
        ..Figure::default()
    };
    let lines = results.case("logp");
    let rows = rows(&lines);
    let mut bars =
        Bars { unit: "us".into(), parts: ["Os", "L", "Or"].map(Into::into).to_vec(), rows: Vec::new() };
    for row in &rows {
        if let [Some(os), Some(or), _, Some(l), ..] = row.values {
            let label = format!("{}, {} B", row.layer, crate::size::show(row.size));
            bars.rows.push(Bar { label, values: vec![os, l, or], past: false });
        }
    }
    if bars.rows.is_empty() {
        return figure;
    }
    let first = &bars.rows[0];
    let sum: f64 = first.values.iter().sum();
    figure.words.push(format!(
        "{}: the sender has {:.0} %, the way {:.0} % and the receiver {:.0} % of {} us.",
        first.label,
        100.0 * first.values[0] / sum,
        100.0 * first.values[1] / sum,
        100.0 * first.values[2] / sum,
        digits(sum)
    ));
    for (index, system) in SYSTEMS.iter().enumerate() {
        let value = |row: usize| TABLE_3_1[row].1[index];
        let values = vec![value(0), value(3), value(1)];
        bars.rows.push(Bar { label: format!("{system}, 2000"), values, past: true });
    }
    figure.pictures.push(Picture::Bars(bars));
    figure
}

pub(crate) fn figure_3_6(results: &Results) -> Figure {
    let mut figure = Figure {
        id: "fig-3-6".into(),
        number: "Figure 3.6".into(),
        title: "Send overhead for different message sizes".into(),
        command: COMMAND.into(),
        words: vec!["How long the sender's core is busy with one message, from its size.".into()],
        ..Figure::default()
    };
    let lines: Vec<&Measurement> =
        results.case("logp").into_iter().filter(|line| line.series == "Os").collect();
    if lines.is_empty() {
        return figure;
    }
    let curves = curves(&lines, Along::Size, |line| line.p50);
    let chart = Chart {
        title: String::new(),
        x: Axis::size(),
        y: Axis::new("Os in us"),
        curves,
        past: send_overhead(),
    };
    figure.words.push(words::tell(&chart, "us", true));
    figure.grids.push(grid::of_chart(&chart));
    figure.pictures.push(Picture::Chart(chart));
    figure
}

const COMMAND: &str = "viaduct bench logp --compare tcp -o results.jsonl";
