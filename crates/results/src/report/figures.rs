//! The figures of the report in their order: chapters 3 and 4 of the thesis, figure 7 of Millennium Sort, figure 9 of SOVIA, then
//! every further case.

use super::chart::{Axis, Chart, Figure, Past, Picture};
use super::difference::difference;
use super::read::Results;
use super::select::{Along, curves};
use super::{Catalogue, generic, grid, logp, mpi, sovia, tables, thesis, words};
use crate::schema::Measurement;

/// Messages that the thesis calls small.
const SMALL: usize = 1024;

/// All figures, with and without data.
pub(crate) fn all(results: &Results, known: &Catalogue) -> Vec<Figure> {
    let mut figures = vec![
        sized(
            results,
            "fig-3-1",
            "Figure 3.1",
            "One-way latency for different message sizes",
            "latency",
            usize::MAX,
        ),
        sized(results, "fig-3-2", "Figure 3.2", "One-way latency for small messages", "latency", SMALL),
        sized(
            results,
            "fig-3-3",
            "Figure 3.3",
            "Bandwidth for different message sizes",
            "bandwidth",
            usize::MAX,
        ),
        sized(results, "fig-3-4", "Figure 3.4", "Bandwidth for small message sizes", "bandwidth", SMALL),
        logp::table_3_1(results),
        logp::figure_3_5(results),
        logp::figure_3_6(results),
        figure_3_7(results),
        figure_3_8(results, known),
        figure_3_9(results),
        figure_3_10(results, known),
        figure_3_11(results),
        figure_7(results),
        sovia::figure_9a(results),
        sovia::figure_9b(results),
    ];
    figures.extend(mpi::all(results));
    let drawn = |name: &str| DRAWN.contains(&name) || mpi::DRAWN.contains(&name);
    let cases = known.cases.iter().map(|case| case.name);
    let mut names: Vec<&str> = cases.filter(|name| !drawn(name)).collect();
    for name in results.cases() {
        if !names.contains(&name) && !drawn(name) {
            names.push(name);
        }
    }
    figures.extend(names.into_iter().map(|name| generic::figure(name, &results.case(name), known)));
    for case in results.cases() {
        // Where the case has a figure that shows everything, else where the thesis has one, else its own.
        let id = OF_CASE
            .iter()
            .chain(&mpi::OF_CASE)
            .find(|(name, _)| *name == case)
            .map(|(_, id)| (*id).to_owned());
        let id = id.unwrap_or_else(|| format!("case-{}", generic::id(case)));
        if let Some(figure) = figures.iter_mut().find(|figure| figure.id == id) {
            generic::missing(figure, &results.missing(case));
        }
    }
    figures.extend(tables::all(results, known));
    figures
}

/// Figures that tell what a layer lacks for a case.
const OF_CASE: [(&str, &str); 8] = [
    ("latency", "fig-3-1"),
    ("bandwidth", "fig-3-3"),
    ("logp", "fig-3-5"),
    ("buffers", "fig-3-7"),
    ("connections", "fig-3-8"),
    ("blocking", "fig-3-9"),
    ("segments", "fig-3-10"),
    ("cq", "fig-3-11"),
];

/// Cases of which the figures above show everything.
const DRAWN: [&str; 7] = [
    "latency",
    "bandwidth",
    "connections",
    "translation",
    "translation-stream",
    "sockets-latency",
    "sockets-stream",
];

/// Figures 3.1 to 3.4: a case from its sizes, beside the values of the text.
fn sized(results: &Results, id: &str, number: &str, title: &str, case: &str, most: usize) -> Figure {
    let latency = case == "latency";
    let (small, references) =
        if latency { ("4,16,64,256,1K", "raw,unix,tcp") } else { ("4,64,256,1K", "copy,tcp") };
    let sizes = if most == SMALL { small.to_owned() } else { format!("{small},4K,32K,64K,1M") };
    let mut figure = Figure {
        id: id.into(),
        number: number.into(),
        title: title.into(),
        command: format!("viaduct bench {case} --sizes {sizes} --compare {references} -o results.jsonl"),
        words: vec![if latency {
            "Half of the round trip of one message, there and back, between two processes.".into()
        } else {
            "Messages one way with a few under way; the receiver reads every byte. The thesis gives Mbit/s; here MB/s of \
             10^6 bytes."
                .into()
        }],
        ..Figure::default()
    };
    let lines: Vec<&Measurement> = results.case(case).into_iter().filter(|line| line.size <= most).collect();
    let (unit, past) = if latency { ("us", thesis::latency()) } else { ("MB/s", thesis::bandwidth()) };
    // What the thesis says of bandwidth holds for large messages.
    let past = if latency || most > SMALL { past } else { Vec::new() };
    sheet(&mut figure, &lines, Along::Size, unit, latency, past);
    figure
}

/// One chart of all `lines` with its words and its table.
pub(crate) fn sheet(
    figure: &mut Figure,
    lines: &[&Measurement],
    along: Along,
    unit: &str,
    lower: bool,
    past: Vec<Past>,
) {
    let Some(first) = lines.first() else { return };
    let x = if along == Along::Size { Axis::size() } else { Axis::new(first.axis.replace('_', " ")) };
    let curves = curves(lines, along, |line| line.p50);
    let chart = Chart { title: String::new(), x, y: Axis::new(unit), curves, past };
    figure.words.push(words::tell(&chart, unit, lower));
    figure.grids.push(grid::of_chart(&chart));
    figure.pictures.push(Picture::Chart(chart));
}

pub(crate) fn new(id: &str, number: &str, title: &str, command: &str, about: &str) -> Figure {
    Figure {
        id: id.into(),
        number: number.into(),
        title: title.into(),
        command: format!("{command} -o results.jsonl"),
        words: vec![about.into()],
        ..Figure::default()
    }
}

fn figure_3_7(results: &Results) -> Figure {
    let mut figure = new(
        "fig-3-7",
        "Figure 3.7",
        "The cost of address translation for different message sizes",
        "viaduct bench buffers",
        "How much longer a message takes when every one comes from another buffer (new), when its buffer is registered for \
         it (register) or by the library (implicit), than when all use the same one. In the thesis (section 3.3.5) the \
         change of buffers cost GM and Berkeley VIA something and the others nothing; its text gives no numbers.",
    );
    let lines = results.case("buffers");
    let plain: Vec<&Measurement> = lines.into_iter().filter(|line| line.x.is_none()).collect();
    let differences = difference(&plain, |l| l.series == "same", |l| l.series != "same");
    sheet(&mut figure, &differences.iter().collect::<Vec<_>>(), Along::Size, "us more", true, Vec::new());
    figure
}

fn figure_3_8(results: &Results, known: &Catalogue) -> Figure {
    let mut figure = new(
        "fig-3-8",
        "Figure 3.8",
        "Latency in the presence of many open connections, 16-byte messages",
        "viaduct bench connections --compare tcp",
        "Half of a round trip on one connection while the others are open and idle. In the thesis (section 3.3.6) Berkeley \
         VIA slowed down with every connection, because its card polled all of them; the text gives no numbers.",
    );
    generic::fill(&mut figure, &results.case("connections"), known);
    figure
}

fn figure_3_9(results: &Results) -> Figure {
    let mut figure = new(
        "fig-3-9",
        "Figure 3.9",
        "Cost of using blocking completions",
        "viaduct bench blocking",
        "How much longer a message takes when the receiver sleeps until it comes, after looking for a while (the spin \
         budget), than when it polls. In the thesis (section 3.3.7) the cost was close to zero in M-VIA, which looks a few \
         times before it sleeps, and high in GM; the text gives no numbers.",
    );
    let lines = results.case("blocking");
    // After a pause a message is slower however it is received, so that those are no part of the difference.
    let mut differences = difference(&lines, |l| l.series == "poll", |l| l.series == "spin");
    let latency = results.case("latency");
    differences.extend(difference(&latency, |l| l.wait == "poll", |l| l.wait == "block"));
    let refs: Vec<&Measurement> = differences.iter().collect();
    let sizes = refs.iter().any(|line| line.size != refs[0].size);
    let along = if sizes || refs.iter().all(|line| line.x.is_none()) { Along::Size } else { Along::Axis };
    sheet(&mut figure, &refs, along, "us more", true, Vec::new());
    figure
}

fn figure_3_10(results: &Results, known: &Catalogue) -> Figure {
    let mut figure = new(
        "fig-3-10",
        "Figure 3.10",
        "Latency when sending from non-contiguous buffers, 1,024-byte messages",
        "viaduct bench segments",
        "One message made of several segments that lie apart: gathered by the sender, scattered by the receiver, both, or \
         packed by the user into one buffer first. In the thesis (section 3.3.8) only cLAN VIA could be measured, and many \
         segments had a significant cost; the text gives no numbers.",
    );
    let all = results.case("segments");
    let right: Vec<&Measurement> = all.iter().copied().filter(|line| line.size == SMALL).collect();
    generic::fill(&mut figure, if right.is_empty() { &all } else { &right }, known);
    figure
}

fn figure_3_11(results: &Results) -> Figure {
    let mut figure = new(
        "fig-3-11",
        "Figure 3.11",
        "Cost of using completion queues",
        "viaduct bench cq",
        "Latency with completions taken from a completion queue, less the latency with completions taken from the work \
         queue, from the number of work queues bound to it. Thesis: section 3.3.9.",
    );
    let lines = results.case("cq");
    let differences = difference(&lines, |l| l.series == "queue", |l| l.series == "cq");
    let refs: Vec<&Measurement> = differences.iter().collect();
    sheet(&mut figure, &refs, Along::Axis, "us more", true, thesis::completion_queues());
    figure
}

fn figure_7(results: &Results) -> Figure {
    let mut figure = new(
        "fig-7",
        "Millennium Sort, figure 7",
        "One-way time and streaming with translation hits, strides and misses",
        "viaduct bench translation; viaduct bench translation-stream",
        "Every message finds the mapping of its buffer in the cache (hit), walks through more memory than the cache spans \
         (stride), or never finds it (miss). The paper (section 4.1) found little between them; of the one-way time its \
         text gives no number.",
    );
    figure.command =
        "viaduct bench translation -o one-way.jsonl; viaduct bench translation-stream -o stream.jsonl".into();
    sheet(&mut figure, &results.case("translation"), Along::Size, "us", true, Vec::new());
    let stream = results.case("translation-stream");
    sheet(&mut figure, &stream, Along::Size, "MB/s", false, thesis::millennium_stream());
    generic::extras(&mut figure, &results.case("translation"));
    figure
}
