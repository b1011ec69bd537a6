//! The Datamation benchmark: a million records from disk to disk, with the launch (figures 8 and 9).

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;
use viaduct_results::stats::median;
use viaduct_results::table::{Better, Table};

use super::{Bench, Emit, Run, bars, kernels};

/// The paper's phases, as the summary of a sort calls them. What is none of the others is overhead.
const PHASES: [&str; 4] = ["overhead", "read", "sort", "write"];

/// Causes of overhead.
const CAUSES: [&str; 5] = ["launch", "barrier", "connect", "memory", "sample"];

/// One way to sort, and what it took.
struct SortWay {
    transport: &'static str,
    nodes: usize,
    runs: Vec<Run>,
    /// A run failed, or its output was not the input in order.
    wrong: bool,
}

impl SortWay {
    fn new(transport: &'static str, nodes: usize) -> SortWay {
        SortWay { transport, nodes, runs: Vec::new(), wrong: false }
    }
}

/// Sorts a million records on 1 to 16 nodes, over shared memory and over TCP, then beside rivals.
///
/// # Errors
/// If the input cannot be written, or a line cannot be put.
pub fn datamation(bench: &Bench, progress: &mut dyn FnMut(&str, f64), emit: Emit<'_>) -> io::Result<()> {
    let (records, rounds) = if bench.quick { (20_000, 1) } else { (1_000_000, bench.rounds) };
    let nodes: &[usize] = if bench.quick { &[1, 2] } else { &[1, 2, 4, 8, 16] };
    bench.generate(records, "in", &[])?;
    let mut ways = vec![SortWay::new("", 0)];
    for transport in ["shm", "tcp"] {
        ways.extend(nodes.iter().map(|&nodes| SortWay::new(transport, nodes)));
    }
    for round in 0..=rounds {
        for (n, way) in ways.iter_mut().enumerate() {
            progress(
                way.transport,
                (round * ways_len(nodes) + n) as f64 / ((rounds + 1) * ways_len(nodes)) as f64,
            );
            let count = way.nodes.to_string();
            let words = ["--nodes", &count, "--transport", way.transport];
            let run = bench.sort("in", if way.nodes == 0 { &[] } else { &words });
            way.wrong |= run.is_none();
            // The first round warms caches.
            if round > 0 || rounds == 1 {
                way.runs.extend(run);
            }
        }
    }
    let config =
        BTreeMap::from([("records".into(), records.to_string()), ("rounds".into(), rounds.to_string())]);
    phases(&ways, &Table::new("datamation", config.clone()), emit)?;
    overheads(&ways, &Table::new("datamation-overhead", config.clone()), emit)?;
    kernels::lines(bench, records as usize, &Table::new("sort-kernels", config), emit)?;
    bars::records(bench, 1, progress, emit)
}

fn ways_len(nodes: &[usize]) -> usize {
    1 + 2 * nodes.len()
}

/// Figure 8: phases and speed-up by nodes.
fn phases(ways: &[SortWay], table: &Table, emit: Emit<'_>) -> io::Result<()> {
    let one = |transport: &str| {
        let way = ways.iter().find(|way| way.transport == transport && way.nodes == 1)?;
        median(&way.runs.iter().map(|run| run.seconds).collect::<Vec<_>>())
    };
    for way in ways {
        let row = match way.nodes {
            0 => "threads alone".to_owned(),
            nodes => format!("{} {nodes}", way.transport),
        };
        let of = |pick: &dyn Fn(&Run) -> f64| way.runs.iter().map(pick).collect::<Vec<f64>>();
        let total = table.cell(&row, "total", "s", Better::Less);
        if way.wrong {
            emit(total.wrong("a run failed, or its output was not the input in order"))?;
            continue;
        }
        emit(total.of(&of(&|run| run.seconds)))?;
        for (n, phase) in PHASES.into_iter().enumerate() {
            let cell = table.cell(&row, phase, "s", Better::Less);
            emit(cell.of(&of(&|run| parts(run)[n])))?;
        }
        if let Some(one) = one(way.transport).filter(|_| way.nodes > 0) {
            emit(table.cell(&row, "speed-up", "times", Better::More).of(&of(&|run| one / run.seconds)))?;
        }
    }
    let paper = "Millennium Sort, section 4.2";
    for (row, value) in [("paper, 16 nodes", 1.18), ("paper, sockets, 16 nodes", 2.21)] {
        emit(table.cell(row, "total", "s", Better::Less).from_paper(paper, value))?;
    }
    Ok(())
}

/// Seconds of the phases, which are the time of the run together: those of the node that was busy longest, and what went by
/// before, between and after them.
fn parts(run: &Run) -> [f64; 4] {
    let nodes = run.summary["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let busy = nodes.iter().map(|node| {
        let seconds = |phase: &str| node["phases"][phase].as_f64().unwrap_or(0.0);
        [seconds(PHASES[1]), seconds(PHASES[2]), seconds(PHASES[3])]
    });
    let sum = |phases: &[f64; 3]| phases.iter().sum::<f64>();
    let longest = busy.max_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or_default();
    [run.seconds - sum(&longest), longest[0], longest[1], longest[2]]
}

/// Figure 9 and section 4.3: what the overhead is, for VIA and for sockets.
fn overheads(ways: &[SortWay], table: &Table, emit: Emit<'_>) -> io::Result<()> {
    for way in ways.iter().filter(|way| way.nodes > 0 && !way.wrong) {
        let row = format!("{} {}", way.transport, way.nodes);
        for cause in CAUSES {
            let of = way.runs.iter().map(|run| 1e3 * slowest(&run.summary, "overhead", cause));
            emit(table.cell(&row, cause, "ms", Better::Less).of(&of.collect::<Vec<_>>()))?;
        }
        let all = way.runs.iter().map(|run| 1e3 * slowest(&run.summary, "phases", "overhead"));
        emit(table.cell(&row, "all", "ms", Better::Less).of(&all.collect::<Vec<_>>()))?;
    }
    for (row, value) in [("paper, VIA, 16 nodes", 480.0), ("paper, sockets, 16 nodes", 1200.0)] {
        emit(table.cell(row, "all", "ms", Better::Less).from_paper("Millennium Sort, section 4.2", value))?;
    }
    Ok(())
}

/// Seconds of the node that took longest.
fn slowest(summary: &Value, group: &str, name: &str) -> f64 {
    let nodes = summary["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    nodes.iter().filter_map(|node| node[group][name].as_f64()).fold(0.0, f64::max)
}
