//! The protocol of shared memory between real processes: what loads find on every variant, engine and level, how each variant
//! communicates, and nodes on different hosts.

use std::time::Duration;

use viaduct_kit::effort::{self, scaled};
use viaduct_kit::watchdog::Watchdog;

use crate::launching::cluster::Cluster;
use crate::launching::{Folder, Run, finish, verb};

const VARIANTS: [&str; 4] = ["dms", "ms-mg", "none", "none-mg"];
const ENGINES: [&str; 2] = ["mprotect", "uffd-sync"];
/// Bytes of a page, from what most machines have to the most that a run takes.
const PAGES: [u64; 4] = [4096, 8192, 16_384, 32_768];

fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(1200)), "nodes that share memory")
}

fn dsm(words: &[&str]) -> Run {
    let run = verb(&Folder::new(), &[&["dsm"], words, &["--allow-root"]].concat());
    assert_eq!(run.status, 0, "{words:?}: {}{}", run.out, run.err);
    run
}

fn json(run: &Run) -> serde_json::Value {
    serde_json::from_str(run.out.trim()).expect("a line of JSON")
}

/// What a run counted, by name.
struct Counts(serde_json::Value);

impl Counts {
    fn of(words: &[&str]) -> Counts {
        Counts(json(&dsm(&[words, &["--json"]].concat()))["counts"].clone())
    }

    fn get(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }
}

#[test]
fn loads_find_what_was_stored_on_every_variant_engine_and_level() {
    let _watchdog = watch();
    let (rounds, seeds) = (effort::rounds(4, 60).to_string(), effort::rounds(1, 5));
    let mut incoming = [0; VARIANTS.len()];
    for (number, variant) in VARIANTS.into_iter().enumerate() {
        for (kind, engine) in ENGINES.into_iter().enumerate() {
            for level in [1, 2] {
                for seed in 0..seeds {
                    // Every variant runs with pages of each size, and so does every engine.
                    let page = PAGES[(number + kind + 2 * level + seed as usize) % PAGES.len()];
                    // Three nodes where time is: one that takes part in what two others do.
                    let nodes = if seed % 2 == 1 { "3" } else { "2" };
                    let (size, level) = ((seed + number as u64).to_string(), level.to_string());
                    let layout = ["--nodes", nodes, "--procs", "2", "--levels", &level, "--size", &size];
                    let words = ["litmus", "--variant", variant, "--engine", engine, "--rounds", &rounds];
                    let bytes = page.to_string();
                    let line = json(&dsm(&[&words[..], &layout[..], &["--page", &bytes, "--json"]].concat()));
                    assert_eq!((&line["page"], &line["engine"]), (&page.into(), &engine.into()), "{line}");
                    incoming[number] += Counts(line["counts"].clone()).get("incoming_diffs");
                }
            }
        }
    }
    // Pages came in that a sibling had changed, for all variants to merge.
    assert!(incoming.iter().all(|count| *count > 0), "incoming diffs by variant: {incoming:?}");
}

#[test]
fn every_variant_communicates_as_its_row_of_table_one_says() {
    let _watchdog = watch();
    for variant in VARIANTS {
        let counts = Counts::of(&["litmus", "--nodes", "3", "--rounds", "3", "--variant", variant]);
        let (direct, data) = (!variant.starts_with("none"), variant == "dms");
        let used = |name: &str, wanted: bool| {
            assert_eq!(counts.get(name) > 0, wanted, "{variant}, {name}: {}", counts.0);
        };
        // Pages are fetched by message in all of them.
        used("messages_of_data", true);
        used("messages_of_diffs", !data);
        used("remote_writes_of_data", data);
        for area in ["metadata", "synchronisation"] {
            used(&format!("messages_of_{area}"), !direct);
            used(&format!("remote_writes_of_{area}"), direct);
        }
        used("migrations", variant.ends_with("mg"));
    }
}

#[test]
fn pages_that_one_node_alone_uses_send_nothing() {
    let _watchdog = watch();
    for variant in VARIANTS {
        let counts = |turns: &str| {
            let words = ["litmus", "--nodes", "2", "--rounds", "0", "--size", turns, "--variant", variant];
            let counts = Counts::of(&words);
            // Every page has its home at the other node, and is given to the one that stores to it alone.
            assert!(counts.get("exclusive_pages") >= 64, "{variant}: {}", counts.0);
            ["messages_of_data", "messages_of_metadata", "remote_writes_of_data", "remote_writes_of_metadata"]
                .map(|name| counts.get(name))
        };
        assert_eq!(counts("2"), counts("30"), "{variant}");
    }
}

#[test]
fn nodes_on_different_hosts_share_memory() {
    let Some(cluster) = Cluster::new(2) else { return };
    let _watchdog = watch();
    let run = |words: &[&str]| {
        let run = finish(cluster.verb(&[&["dsm"], words, &["--allow-root", "--hosts", "h0,h1"]].concat()));
        assert_eq!(run.status, 0, "{words:?}: {}{}", run.out, run.err);
        run
    };
    // One of each in the default run, all of them in a full one.
    let chosen = |turn: usize| effort::full() || turn == 0;
    let mut turn = 0;
    for variant in VARIANTS {
        for engine in ENGINES {
            for level in ["2", "1"] {
                if chosen(turn) {
                    let page = PAGES[(1 + turn + turn / PAGES.len()) % PAGES.len()].to_string();
                    let layout = ["--procs", "2", "--levels", level, "--page", &page, "--json"];
                    let words = ["litmus", "--rounds", "2", "--variant", variant, "--engine", engine];
                    let line = json(&run(&[&words[..], &layout[..]].concat()));
                    let served = Counts(line["counts"].clone()).get("requests_served_by_workers");
                    assert!(served > 0, "{words:?} {layout:?}: workers that waited served nothing: {line}");
                }
                turn += 1;
            }
        }
    }
    let mut turn = 0;
    for app in ["sor", "gauss", "lu"] {
        for variant in VARIANTS.into_iter().rev() {
            if chosen(turn) {
                let words = [app, "--size", "64", "--rounds", "4", "--check", "--variant", variant];
                let run = run(&words);
                assert!(
                    run.out.contains("equal to the sequential program, bit by bit"),
                    "{words:?}: {}",
                    run.out
                );
            }
            turn += 1;
        }
    }
}
