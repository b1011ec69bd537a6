//! Short runs of the cases about what VIA offers: valid data, every promised curve, and what each proves itself with.
//! No test looks at a time.

use crate::common;

use std::collections::BTreeSet;
use std::process::Command;

use common::two_cores;
use serde_json::Value;

/// Runs a short benchmark on the shm provider and gives its measured lines, all of them valid.
fn bench(case: &str, args: &[&str]) -> Vec<Value> {
    let lines = common::bench(&[&[case, "--provider", "shm"], args].concat()).into_iter();
    let lines: Vec<Value> = lines.filter(|line| line.get("ratio").is_none()).collect();
    for line in &lines {
        assert_eq!(
            (&line["case"], &line["layer"], &line["valid"]),
            (&case.into(), &"shm".into(), &true.into())
        );
        assert!(line["p50"].is_f64(), "{line}");
    }
    lines
}

/// Every curve with the places on its axis, and what the axis is.
fn curves(lines: &[Value]) -> BTreeSet<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let place = |line: &Value| line["x"].as_f64().unwrap_or(0.0) as u64;
    lines.iter().map(|line| (text(&line["series"]), text(&line["axis"]), place(line))).collect()
}

fn expected(curves: &[(&str, &str, &[u64])]) -> BTreeSet<(String, String, u64)> {
    let places = |(series, axis, places): &(&str, &str, &[u64])| {
        let of = |x: &u64| ((*series).to_owned(), (*axis).to_owned(), *x);
        places.iter().map(of).collect::<Vec<_>>()
    };
    curves.iter().flat_map(places).collect()
}

#[test]
fn messages_in_pieces() {
    if two_cores() {
        let of = |places: &'static [u64]| {
            expected(&["gather", "scatter", "both", "pack"].map(|series| (series, "segments", places)))
        };
        let by_line = |places: &'static [u64]| {
            expected(&["gather-line", "both-line", "pack-line"].map(|series| (series, "segments", places)))
        };
        // No more pieces than bytes.
        assert_eq!(curves(&bench("segments", &["--sizes", "20"])), of(&[1, 4, 16]));
        assert_eq!(curves(&bench("segments", &["--sizes", "5000", "--wait", "block"])), of(&[1, 4, 16, 64]));
        let all: BTreeSet<_> = of(&[1, 16]).union(&by_line(&[16])).cloned().collect();
        assert_eq!(curves(&bench("segments", &["--quick"])), all);
    }
}

#[test]
fn completion_queues() {
    if two_cores() {
        let lines = bench("cq", &["--connections", "1,9"]);
        assert_eq!(curves(&lines), expected(&[("queue", "queues", &[1, 9]), ("cq", "queues", &[1, 9])]));
        let lines = bench("cq", &["--connections", "70", "--wait", "block", "--sizes", "8,4K"]);
        assert_eq!(curves(&lines), expected(&[("queue", "queues", &[70]), ("cq", "queues", &[70])]));
        let active = ["active-queue", "active-cq"].map(|series| (series, "active queues", &[2, 16][..]));
        let one = ["queue", "cq"].map(|series| (series, "queues", &[1, 1024][..]));
        for args in [&["--quick"][..], &["--quick", "--wait", "block", "--sizes", "4K"]] {
            assert_eq!(curves(&bench("cq", args)), expected(&[one[0], one[1], active[0], active[1]]));
        }
    }
}

#[test]
fn other_buffers_for_each_message() {
    if two_cores() {
        let lines = bench("buffers", &["--quick"]);
        let curve = |series, axis, places| (series, axis, places);
        assert_eq!(
            curves(&lines),
            expected(&[
                curve("same", "", &[0][..]),
                curve("new", "", &[0]),
                curve("register", "", &[0]),
                curve("implicit", "", &[0]),
                curve("cache", "reuse %", &[50]),
                curve("pool", "pages", &[512]),
                curve("pool-shuffled", "pages", &[512]),
            ])
        );
        for line in lines.iter().filter(|line| line["series"] == "cache") {
            let (asked, found) = (line["x"].as_f64().unwrap(), line["extra"]["reuse"].as_f64().unwrap());
            assert!((asked - found).abs() < 5.0, "asked for {asked} %, found {found} %");
        }
        bench("buffers", &["--quick", "--sizes", "20000"]);
    }
}

#[test]
fn blocking_receives() {
    let spins = ("spin", "spin_us", &[0, 50][..]);
    let gaps = ["gap-spin-0", "gap-spin-50", "gap-poll"].map(|series| (series, "gap_us", &[100][..]));
    let mut runs = vec![(vec!["--quick", "--cpus", "0,0"], expected(&[spins, gaps[0], gaps[1]]))];
    if two_cores() {
        let poll = ("poll", "spin_us", &[0][..]);
        let all = expected(&[spins, poll, gaps[0], gaps[1], gaps[2]]);
        runs.push((vec!["--quick", "--sizes", "8,4K"], all));
    }
    for (args, curves_expected) in runs {
        let lines = bench("blocking", &args);
        assert_eq!(curves(&lines), curves_expected);
        for line in &lines {
            assert!(line["extra"]["cpu_us"].as_f64().unwrap() > 0.0, "{line}");
            let polls = line["series"].as_str().unwrap().ends_with("poll");
            assert_eq!(line["wait"], if polls { "poll" } else { "block" });
        }
    }
}

#[test]
fn targets_in_and_out_of_the_mapping_cache() {
    if two_cores() {
        for case in ["translation", "translation-stream"] {
            let lines = bench(case, &["--quick"]);
            assert_eq!(curves(&lines), expected(&["hit", "stride", "miss"].map(|s| (s, "", &[0][..]))));
            for line in &lines {
                let rate = line["extra"]["miss_rate"].as_f64().unwrap();
                let right = if line["series"] == "miss" { rate > 0.95 } else { rate < 0.05 };
                assert!(right && line["config"]["map-cache"] == "4", "{line}");
            }
        }
    }
}

#[test]
fn every_ping_pong_can_be_taken_apart() {
    if !two_cores() {
        return;
    }
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    for (case, args, series) in [
        ("latency", &["--sizes", "8,4K"][..], &[""][..]),
        ("connections", &["--connections", "3"], &[""]),
        ("cq", &["--connections", "5"], &["queue", "cq"]),
        ("buffers", &["--quick"], &["same", "new", "register", "implicit", "cache", "pool", "pool-shuffled"]),
        ("blocking", &["--quick"], &["poll", "spin"]),
        ("segments", &["--quick"], &["gather", "scatter", "both", "pack", "gather-line"]),
        ("translation", &["--quick"], &["hit", "stride", "miss"]),
    ] {
        let lines = bench(case, &[args, &["--logp"]].concat());
        let found: BTreeSet<String> = lines.iter().map(|line| text(line, "series")).collect();
        for whole in series {
            let prefix = if whole.is_empty() { String::new() } else { format!("{whole}:") };
            assert!(found.contains(*whole), "{case}: {found:?}");
            for part in ["Os", "Or", "g", "one-way"] {
                assert!(
                    found.contains(&format!("{prefix}{part}")),
                    "{case}, {whole}: no {part} in {found:?}"
                );
            }
        }
        let interrupted = found.iter().any(|name| name.ends_with("Or-interrupt"));
        assert_eq!(interrupted, ["latency", "connections"].contains(&case), "{case}: {found:?}");
        // L is there wherever the three it follows from were measured in one placement.
        for way in lines.iter().filter(|line| text(line, "series").ends_with("one-way")) {
            let of = |part: &str| {
                let wanted = text(way, "series").replace("one-way", part);
                let like = |line: &&Value| {
                    text(line, "series") == wanted
                        && ["x", "size", "placement"].iter().all(|field| line[field] == way[field])
                };
                lines.iter().find(like).map(|line| line["p50"].as_f64().unwrap())
            };
            if let (Some(os), Some(or)) = (of("Os"), of("Or")) {
                let left = way["p50"].as_f64().unwrap() - os - or;
                assert!((of("L").expect("an L") - left).abs() < 1e-6, "{way}");
            }
        }
    }
}

#[test]
fn receives_that_interrupt() {
    if two_cores() {
        let lines = bench("logp", &["--sizes", "8,5000"]);
        let woken: Vec<_> = lines.iter().filter(|line| line["series"] == "Or-interrupt").collect();
        let sizes: BTreeSet<_> = woken.iter().map(|line| line["size"].as_u64().unwrap()).collect();
        assert_eq!(sizes, BTreeSet::from([8, 5000]));
    }
}

#[test]
fn a_case_about_via_refuses_what_has_none() {
    for (layer, hint) in [("tcp", "measure a provider"), ("loopback", "use --provider shm")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        let output = command.args(["bench", "segments", "--layer", layer]).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && talk.contains(hint), "{talk}");
    }
}
