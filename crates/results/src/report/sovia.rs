//! Figure 9 of SOVIA, latency and bandwidth, beside the values that stand in its text (section 5.2).
//!
//! Published in 2003, measured between two Pentium III of 500 MHz over cLAN. The text gives the ends of the curves, for packets of 4
//! bytes and of 32 KB; the other points are a picture.

use super::chart::{Axis, Chart, Dots, Figure, Past, Picture, Spot};
use super::read::Results;
use super::select::{Along, curves};
use super::{grid, words};
use crate::schema::Measurement;

/// Series that are no curve over the size.
const ALONE: [&str; 2] = ["T_sync", "HANDLER-SINGLE"];
/// In the figure, though the paper's has no such curves.
const BESIDE: [&str; 3] = ["three-way", "DACKS-blocking", "COMBINE-blocking"];

const SMALL: f64 = 4.0;
const LARGE: f64 = 32.0 * 1024.0;

/// Figure 9 (a).
pub(crate) fn figure_9a(results: &Results) -> Figure {
    let lines = results.case("sockets-latency");
    let mut figure = Figure {
        id: "sovia-9a".into(),
        number: "SOVIA, figure 9 (a)".into(),
        title: "Latency of streams, step by step, native VIA and TCP".into(),
        command: "viaduct bench sockets-latency -o results.jsonl".into(),
        words: vec![
            "Half of the round trip of one message over a stream. SINGLE: one packet under way, taken in by the application; \
             HANDLER: by a thread of its own; FLOWCTRL: a window; DACKS: acknowledgements held back; COMBINE: small requests \
             combined. A second chart has the exchange of section 3.1.1 that asks first, and calls that sleep."
                .into(),
        ],
        ..Figure::default()
    };
    charts(
        &mut figure,
        &lines,
        "us",
        true,
        &[
            ("native VIA, 2003", SMALL, 8.5),
            ("SOVIA_SINGLE, 2003", SMALL, 10.5),
            ("SOVIA_HANDLER, 2003: about 16 more", SMALL, 26.5),
            ("SOVIA with blocking calls, 2003", SMALL, 19.4),
            ("TCP, 2003", SMALL, 55.0),
        ],
    );
    waking(&mut figure, &lines);
    figure
}

/// Figure 9 (b). The paper gives Mbit/s.
pub(crate) fn figure_9b(results: &Results) -> Figure {
    let mut figure = Figure {
        id: "sovia-9b".into(),
        number: "SOVIA, figure 9 (b)".into(),
        title: "Bandwidth of streams, step by step, native VIA and TCP".into(),
        command: "viaduct bench sockets-stream -o results.jsonl".into(),
        words: vec![
            "Writes of one size one after the other; the receiver reads every byte. The paper gives Mbit/s; here MB/s of 10^6 \
             bytes."
                .into(),
        ],
        ..Figure::default()
    };
    charts(
        &mut figure,
        &results.case("sockets-stream"),
        "MB/s",
        false,
        &[
            ("native VIA, 2003: 815 Mbit/s", LARGE, 815.0 / 8.0),
            ("SOVIA, 2003: 814 Mbit/s", LARGE, 814.0 / 8.0),
            ("SOVIA with blocking calls, 2003: 780 Mbit/s", LARGE, 780.0 / 8.0),
            ("TCP, 2003: about 450 Mbit/s", LARGE, 450.0 / 8.0),
        ],
    );
    figure
}

/// For each provider a chart of the paper's curves, and one of what stands beside them.
fn charts(figure: &mut Figure, lines: &[&Measurement], unit: &str, lower: bool, past: &[(&str, f64, f64)]) {
    let mut layers: Vec<&str> = Vec::new();
    for line in lines.iter().filter(|line| line.provider.is_some()) {
        if !layers.contains(&line.layer.as_str()) {
            layers.push(&line.layer);
        }
    }
    for layer in layers {
        let beside = |line: &Measurement| BESIDE.contains(&line.series.as_str());
        let wanted = |line: &Measurement| line.layer == layer && !ALONE.contains(&line.series.as_str());
        let main: Vec<&Measurement> =
            lines.iter().copied().filter(|l| l.provider.is_none() || wanted(l) && !beside(l)).collect();
        let other: Vec<&Measurement> = lines
            .iter()
            .copied()
            .filter(|l| wanted(l) && (beside(l) || matches!(l.series.as_str(), "via" | "DACKS")))
            .collect();
        let values = past.iter().map(|(label, x, y)| Past { label: (*label).into(), x: Some(*x), y: *y });
        chart(figure, layer, &main, unit, lower, values.collect());
        if other.iter().any(|line| beside(line)) {
            chart(figure, &format!("{layer}: asking first, and sleeping"), &other, unit, lower, Vec::new());
        }
    }
}

fn chart(figure: &mut Figure, title: &str, lines: &[&Measurement], unit: &str, lower: bool, past: Vec<Past>) {
    let curves = curves(lines, Along::Size, |line| line.p50);
    let chart = Chart { title: title.into(), x: Axis::size(), y: Axis::new(unit), curves, past };
    figure.words.push(format!("{title}: {}", words::tell(&chart, unit, lower)));
    figure.grids.push(grid::of_chart(&chart));
    figure.pictures.push(Picture::Chart(chart));
}

/// T_sync, and what the handler thread costs.
fn waking(figure: &mut Figure, lines: &[&Measurement]) {
    let Some(sync) = lines.iter().find(|line| line.series == ALONE[0]) else { return };
    let mut alone: Vec<&Measurement> = vec![sync];
    alone.extend(lines.iter().filter(|l| l.series == ALONE[1] && l.size == sync.size));
    let row = |line: &&Measurement| {
        let label = format!("{} {}", line.layer, line.series);
        let spot = Spot { x: line.size as f64, y: line.p50?, interval: line.ci95, noisy: line.noisy };
        Some((label, spot))
    };
    let mut rows: Vec<(String, Spot)> = alone.iter().filter_map(row).collect();
    for (label, y) in [("T_sync, 2003", 17.0), ("HANDLER-SINGLE, 2003", 16.0)] {
        rows.push((label.into(), Spot { x: SMALL, y, interval: None, noisy: false }));
    }
    let dots = Dots { title: "waking a thread".into(), axis: Axis::new("us"), rows };
    figure.words.push(format!(
        "T_sync is the cost of waking a thread that waits for a condition; the paper explains with it what HANDLER takes \
         more than SINGLE. {}",
        words::tell_dots(&dots, "us")
    ));
    figure.grids.push(grid::of_dots(&dots));
    figure.pictures.push(Picture::Dots(dots));
}
