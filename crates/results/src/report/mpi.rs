//! Figures 4.1 to 4.12 of the thesis: MPI libraries beside each other, and each of ours beside the transport below it.
//!
//! The thesis measured MVICH on M-VIA and on Berkeley VIA, MPICH on GM, and MPICH on TCP as a reference. In their places here: our
//! library on shared memory, our library on libfabric, MPICH forced onto TCP, and every other library that is installed. Of
//! the two benchmarks without a figure (sections 4.3.5 and 4.3.7) there is one here.

use super::chart::{Figure, Past};
use super::difference::difference;
use super::figures::{new, sheet};
use super::read::Results;
use super::select::Along;
use crate::schema::Measurement;

/// Cases of which the figures below show everything.
pub(crate) const DRAWN: [&str; 6] =
    ["mpi-latency", "mpi-bandwidth", "mpi-buffers", "mpi-connections", "mpi-segments", "mpi-any"];

/// Figures that tell what a library lacks for a case.
pub(crate) const OF_CASE: [(&str, &str); 6] = [
    ("mpi-latency", "fig-4-1"),
    ("mpi-bandwidth", "fig-4-6"),
    ("mpi-buffers", "fig-4-11"),
    ("mpi-connections", "fig-4-connections"),
    ("mpi-segments", "fig-4-12"),
    ("mpi-any", "fig-4-any"),
];

/// Messages that the thesis calls small.
const SMALL: usize = 1024;

/// A library and what is below it: layers, and their words.
struct Stack {
    figures: [&'static str; 2],
    layers: [&'static str; 2],
    ours: &'static str,
    theirs: &'static str,
    latency: &'static str,
    share: &'static str,
}

const STACKS: [Stack; 3] = [
    Stack {
        figures: ["4.3", "4.8"],
        layers: ["shm", "mpi"],
        ours: "raw VIA and MPI on shared memory",
        theirs: "raw M-VIA and MVICH",
        latency: "In the thesis MVICH added about 11 us up to 1 KB and more beyond, for a further copy.",
        share: "In the thesis almost 40 % of the bandwidth of M-VIA reached the application.",
    },
    Stack {
        figures: ["4.4", "4.9"],
        layers: ["via:ofi:tcp", "mpi:ofi"],
        ours: "raw VIA and MPI on libfabric's TCP",
        theirs: "raw Berkeley VIA and MVICH",
        latency: "In the thesis this port of MVICH added a lot, since completion queues were emulated.",
        share: "In the thesis about 10 % of the bandwidth of Berkeley VIA reached the application.",
    },
    Stack {
        figures: ["4.5", "4.10"],
        layers: ["tcp", "rival:mpich-tcp"],
        ours: "raw TCP and MPICH on TCP",
        theirs: "raw GM and MPICH",
        latency: "In the thesis MPICH added as little as 1 us to GM, and more for long messages.",
        share: "In the thesis about 50 % of the bandwidth of GM reached the application.",
    },
];

/// All figures of chapter 4, with and without data.
pub(crate) fn all(results: &Results) -> Vec<Figure> {
    let mut figures = vec![
        libraries(results, "4.1", "mpi-latency", usize::MAX),
        libraries(results, "4.2", "mpi-latency", SMALL),
    ];
    figures.extend(STACKS.iter().map(|stack| beside(results, stack, 0)));
    figures.push(libraries(results, "4.6", "mpi-bandwidth", usize::MAX));
    figures.push(libraries(results, "4.7", "mpi-bandwidth", SMALL));
    figures.extend(STACKS.iter().map(|stack| beside(results, stack, 1)));
    figures.extend([buffers(results), connections(results), segments(results), any(results)]);
    figures
}

fn is_mpi(line: &Measurement) -> bool {
    line.layer.starts_with("mpi") || line.layer.starts_with("rival:")
}

fn id(number: &str) -> String {
    format!("fig-{}", number.replace('.', "-"))
}

/// Figures 4.1, 4.2, 4.6, 4.7: all libraries.
fn libraries(results: &Results, number: &str, case: &str, most: usize) -> Figure {
    let latency = case == "mpi-latency";
    let (what, unit) = if latency { ("One-way latency", "us") } else { ("Bandwidth", "MB/s") };
    let title = format!("{what} of MPI libraries{}", if most == SMALL { " for small messages" } else { "" });
    let about = if latency {
        "Half of the round trip of a message by MPI_Send and MPI_Recv. In the thesis (section 4.3.2) MPI on TCP took five \
         times as long for small messages as MPI on M-VIA and on GM."
    } else {
        "Windows of 16 messages one way; the receiver reads every byte. In the thesis (section 4.3.3) MPICH on GM delivered \
         most, but less than MVICH on M-VIA for small messages."
    };
    let mut figure =
        new(&id(number), &format!("Figure {number}"), &title, &format!("viaduct bench {case}"), about);
    let lines: Vec<&Measurement> =
        results.case(case).into_iter().filter(|line| is_mpi(line) && line.size <= most).collect();
    sheet(&mut figure, &lines, Along::Size, unit, latency, Vec::new());
    figure
}

/// Figures 4.3 to 4.5 and 4.8 to 4.10: a library and the transport below it.
fn beside(results: &Results, stack: &Stack, which: usize) -> Figure {
    let number = stack.figures[which];
    let (case, what, unit, said) = match which {
        0 => ("mpi-latency", "One-way latency", "us", stack.latency),
        _ => ("mpi-bandwidth", "Bandwidth", "MB/s", stack.share),
    };
    let title = format!("{what} of {}", stack.ours);
    let about =
        format!("What MPI adds to the layer below it; the thesis' figure has {}. {said}", stack.theirs);
    let mut figure =
        new(&id(number), &format!("Figure {number}"), &title, &format!("viaduct bench {case}"), &about);
    let lines = results.case(case);
    let lines: Vec<&Measurement> =
        lines.into_iter().filter(|line| stack.layers.contains(&line.layer.as_str())).collect();
    sheet(&mut figure, &lines, Along::Size, unit, which == 0, Vec::new());
    figure
}

fn buffers(results: &Results) -> Figure {
    let mut figure = new(
        "fig-4-11",
        "Figure 4.11",
        "Cost of buffer management in MPI",
        "viaduct bench mpi-buffers",
        "How much longer a message takes that leaves from another buffer each time than one that always leaves from the same. In the \
         thesis (section 4.3.4, messages of 512 bytes) it cost MVICH on Berkeley VIA something constant, and the others \
         nothing.",
    );
    let lines = results.case("mpi-buffers");
    let differences = difference(&lines, |l| l.series == "same", |l| l.series == "new");
    sheet(&mut figure, &differences.iter().collect::<Vec<_>>(), Along::Size, "us more", true, Vec::new());
    figure
}

fn connections(results: &Results) -> Figure {
    let mut figure = new(
        "fig-4-connections",
        "Section 4.3.5",
        "Latency of MPI in the presence of many open connections, 16-byte messages",
        "viaduct bench mpi-connections",
        "Half of a round trip of two ranks while one of them has connections with all others, which sleep. The thesis saw no \
         difference from 1 to 16.",
    );
    let lines = results.case("mpi-connections");
    let lines: Vec<&Measurement> = lines.into_iter().filter(|line| line.x.is_some()).collect();
    sheet(&mut figure, &lines, Along::Axis, "us", true, Vec::new());
    figure
}

fn segments(results: &Results) -> Figure {
    let mut figure = new(
        "fig-4-12",
        "Figure 4.12",
        "Latency of MPI when sending from non-contiguous buffers",
        "viaduct bench mpi-segments",
        "How much longer a message takes that lies in pieces than one in one piece, by the number of pieces: described by a derived \
         datatype, or packed by the program. Raw VIA stands beside it: gathered and scattered by its descriptors, or packed. In the thesis (section 4.3.6) MPICH on GM took longer for large messages, by any \
         number of pieces alike, and MVICH did it wrong.",
    );
    let lines = results.case("mpi-segments");
    let (mpi, raw): (Vec<&Measurement>, Vec<_>) = lines.into_iter().partition(|line| is_mpi(line));
    let mut differences =
        difference(&mpi, |l| l.series == "contiguous", |l| matches!(l.series.as_str(), "derived" | "packed"));
    differences.extend(raw_segments(&raw));
    let mut sizes: Vec<usize> = differences.iter().map(|line| line.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        for series in ["derived", "packed"] {
            let part: Vec<&Measurement> =
                differences.iter().filter(|line| line.size == size && line.series == series).collect();
            let before = figure.pictures.len();
            sheet(&mut figure, &part, Along::Axis, "us more", true, Vec::<Past>::new());
            if let Some(super::chart::Picture::Chart(chart)) = figure.pictures.get_mut(before) {
                chart.title = format!("{series}, {} bytes", crate::size::show(size));
            }
        }
    }
    figure
}

/// What gathering costs raw VIA, whose message in one piece is a place on the axis, under the names that MPI has for it.
fn raw_segments(lines: &[&Measurement]) -> Vec<Measurement> {
    let whole = |l: &Measurement| l.series == "both" && l.x == Some(1.0);
    let apart =
        |l: &Measurement| matches!(l.series.as_str(), "both" | "pack") && l.x.is_some_and(|x| x > 1.0);
    let mut found = difference(lines, whole, apart);
    for line in &mut found {
        line.series = if line.series == "both" { "derived" } else { "packed" }.into();
    }
    found
}

fn any(results: &Results) -> Figure {
    let mut figure = new(
        "fig-4-any",
        "Section 4.3.7",
        "Cost of receiving from any rank",
        "viaduct bench mpi-any",
        "How much longer a message takes whose receive names MPI_ANY_SOURCE than one whose receive names its sender; of raw VIA, whose completion \
         is taken from a completion queue instead of the work queue. The thesis saw no \
         difference, since MVICH takes every completion from a completion queue, as our library does.",
    );
    let lines = results.case("mpi-any");
    let base = |l: &Measurement| matches!(l.series.as_str(), "named" | "queue");
    let differences = difference(&lines, base, |l| matches!(l.series.as_str(), "any" | "cq"));
    sheet(&mut figure, &differences.iter().collect::<Vec<_>>(), Along::Size, "us more", true, Vec::new());
    figure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sample;

    fn line(case: &str, layer: &str, series: &str, size: usize, x: Option<f64>, p50: f64) -> Measurement {
        let (case, layer, series) = (case.into(), layer.into(), series.into());
        Measurement { case, layer, series, size, x, p50: Some(p50), placement: "any".into(), ..sample() }
    }

    fn labels(figure: &Figure) -> Vec<String> {
        let charts = figure.pictures.iter().filter_map(|picture| match picture {
            super::super::chart::Picture::Chart(chart) => Some(chart),
            _ => None,
        });
        charts.flat_map(|chart| chart.curves.iter().map(|curve| curve.label.clone())).collect()
    }

    #[test]
    fn every_figure_of_the_chapter_is_there_without_data() {
        let figures = all(&Results::default());
        let mut numbers: Vec<&str> = figures.iter().map(|figure| figure.number.as_str()).collect();
        numbers.retain(|number| number.starts_with("Figure 4."));
        let wanted: Vec<String> = (1..=12).map(|n| format!("Figure 4.{n}")).collect();
        assert_eq!(numbers, wanted);
        assert!(
            figures.iter().all(|figure| !figure.has_data() && figure.command.contains("viaduct bench mpi-"))
        );
        assert!(OF_CASE.iter().all(|(_, id)| figures.iter().any(|figure| figure.id == *id)));
    }

    #[test]
    fn libraries_and_transports_are_drawn_apart() {
        let mut lines = Vec::new();
        for size in [8, 4096] {
            for layer in ["mpi", "mpi:ofi", "rival:mpich", "rival:mpich-tcp", "shm", "tcp", "via:ofi:tcp"] {
                lines.push(line("mpi-latency", layer, "", size, None, size as f64));
            }
        }
        let figures = all(&Results { measurements: lines, ..Results::default() });
        let of = |id: &str| labels(figures.iter().find(|figure| figure.id == id).unwrap());
        assert_eq!(of("fig-4-1").len(), 4, "libraries alone");
        assert_eq!(of("fig-4-3"), ["mpi", "shm"]);
        assert_eq!(of("fig-4-4").len(), 2);
        assert_eq!(of("fig-4-5"), ["rival:mpich-tcp", "tcp"]);
        assert!(of("fig-4-6").is_empty());
    }

    #[test]
    fn the_cost_of_a_service_is_the_difference() {
        let lines = vec![
            line("mpi-any", "mpi", "named", 8, None, 1.0),
            line("mpi-any", "mpi", "any", 8, None, 1.5),
            line("mpi-segments", "mpi", "contiguous", 1024, Some(4.0), 1.0),
            line("mpi-segments", "mpi", "derived", 1024, Some(4.0), 3.0),
            line("mpi-segments", "mpi", "packed", 1024, Some(4.0), 2.0),
        ];
        let figures = all(&Results { measurements: lines, ..Results::default() });
        let of = |id: &str| {
            let figure = figures.iter().find(|figure| figure.id == id).unwrap();
            figure
                .pictures
                .iter()
                .filter_map(|picture| match picture {
                    super::super::chart::Picture::Chart(chart) => Some(chart.curves[0].spots[0].y),
                    _ => None,
                })
                .collect::<Vec<f64>>()
        };
        assert_eq!(of("fig-4-any"), [0.5]);
        assert_eq!(of("fig-4-12"), [2.0, 1.0]);
    }

    #[test]
    fn raw_via_is_drawn_beside_what_pieces_and_wildcards_cost() {
        let lines = vec![
            line("mpi-any", "mpi", "named", 8, None, 1.0),
            line("mpi-any", "mpi", "any", 8, None, 1.5),
            line("mpi-any", "shm", "queue", 8, None, 0.5),
            line("mpi-any", "shm", "cq", 8, None, 0.75),
            line("mpi-segments", "mpi", "contiguous", 1024, Some(16.0), 1.0),
            line("mpi-segments", "mpi", "derived", 1024, Some(16.0), 3.0),
            line("mpi-segments", "mpi", "packed", 1024, Some(16.0), 2.0),
            line("mpi-segments", "shm", "both", 1024, Some(1.0), 0.5),
            line("mpi-segments", "shm", "both", 1024, Some(16.0), 1.5),
            line("mpi-segments", "shm", "gather", 1024, Some(16.0), 1.25),
            line("mpi-segments", "shm", "pack", 1024, Some(1.0), 0.75),
            line("mpi-segments", "shm", "pack", 1024, Some(16.0), 1.0),
        ];
        let figures = all(&Results { measurements: lines, ..Results::default() });
        let of = |id: &str| {
            let figure = figures.iter().find(|figure| figure.id == id).unwrap();
            let charts = figure.pictures.iter().filter_map(|picture| match picture {
                super::super::chart::Picture::Chart(chart) => Some(chart),
                _ => None,
            });
            let curves = charts.flat_map(|chart| &chart.curves);
            curves.map(|curve| (curve.label.clone(), curve.spots[0].y)).collect::<Vec<_>>()
        };
        let raw = |id: &str| of(id).into_iter().filter(|(label, _)| label.contains("shm")).map(|(_, y)| y);
        assert_eq!(raw("fig-4-any").collect::<Vec<_>>(), [0.25]);
        assert_eq!(raw("fig-4-12").collect::<Vec<_>>(), [1.0, 0.5], "{:?}", of("fig-4-12"));
        assert_eq!(of("fig-4-12").len(), 4);
    }
}
