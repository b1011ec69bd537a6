//! Benchmarks over libfabric: chapter 3 of the thesis directly on it, and every case of VIA on the provider `ofi:tcp`.
//! Short runs, with valid data; what is missing is told with its cause. No test looks at a time. That every case runs
//! on `auto` is shown by the whole suite, which goes by it (`bench.rs`).

use crate::common;

use std::collections::BTreeSet;
use std::process::Command;

use common::two_cores;
use serde_json::Value;
use viaduct_kit::effort;
use viaduct_kit::packages::skip;
use viaduct_providers::config::OfiConfig;

/// libfabric is here and has TCP, and each process has a core.
fn libfabric() -> bool {
    let tcp = |found: viaduct_providers::ofi::Found| found.offers.iter().any(|offer| offer.name == "tcp");
    if !viaduct_providers::ofi::find(&OfiConfig::default()).is_ok_and(tcp) {
        skip("libfabric with TCP is not here (Debian: libfabric1)");
        return false;
    }
    two_cores()
}

/// Measured lines of a run.
fn bench(args: &[&str]) -> Vec<Value> {
    common::bench(args).into_iter().filter(|line| line.get("ratio").is_none()).collect()
}

/// Runs a case directly on libfabric; gives the curves that it could not measure, with their causes.
fn direct(case: &str, args: &[&str], curves: &[&str]) -> BTreeSet<(String, String)> {
    let lines = bench(&[&[case, "--layer", "ofi"], args].concat());
    let mut missing = BTreeSet::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for line in &lines {
        let (layer, provider) = (&line["layer"], &line["provider"]);
        assert_eq!((layer, provider, &line["valid"]), (&"ofi".into(), &Value::Null, &true.into()), "{line}");
        assert!(line["config"]["libfabric"].is_string(), "{line}");
        if line["missing"].is_string() {
            assert!(line["p50"].is_null() && line["n"] == 0, "{line}");
            missing.insert((text(&line["series"]), text(&line["missing"])));
        } else {
            assert!(line["p50"].is_f64(), "{line}");
        }
    }
    // What follows from several curves is only there where the cores were as near for all of them.
    let measured = lines.iter().filter(|line| line["samples"] != 0 || line["missing"].is_string());
    let seen: BTreeSet<String> = measured.map(|line| text(&line["series"])).collect();
    assert_eq!(seen, curves.iter().map(|curve| (*curve).to_owned()).collect(), "{case}");
    missing
}

#[test]
fn latency_bandwidth_and_rate_of_libfabric() {
    if libfabric() {
        // By value and by descriptor, polled and slept for.
        assert!(direct("latency", &["--sizes", "0,1000"], &[""]).is_empty());
        assert!(
            direct("latency", &["--sizes", "8", "--wait", "block", "--send", "descriptor"], &[""]).is_empty()
        );
        assert!(direct("bandwidth", &["--sizes", "4K"], &[""]).is_empty());
        assert!(direct("rate", &["--window", "300"], &[""]).is_empty(), "more than a queue holds");
    }
}

#[test]
fn log_p_and_connections_of_libfabric() {
    if libfabric() {
        let parts = ["latency", "Os", "Or", "g", "one-way"];
        let whole = ["train-1", "train-n", "train-d", "Or-interrupt"];
        let missing = direct("logp", &["--sizes", "8K"], &[&parts[..], &whole].concat());
        let [(series, cause)] = &missing.into_iter().collect::<Vec<_>>()[..] else { panic!("one") };
        assert!(series == "Or-interrupt" && cause.contains("no handler"), "{series}: {cause}");
        assert!(direct("connections", &["--connections", "1,5"], &[""]).is_empty());
    }
}

#[test]
fn buffers_and_blocking_of_libfabric() {
    if libfabric() {
        let kinds = ["same", "new", "register", "implicit", "cache", "pool", "pool-shuffled"];
        // TCP sends from any memory; a card would not.
        assert!(direct("buffers", &["--quick"], &kinds).is_empty());
        let waits = ["poll", "spin", "gap-poll", "gap-spin-0", "gap-spin-50"];
        assert!(direct("blocking", &["--quick"], &waits).is_empty());
    }
}

#[test]
fn pieces_and_completion_queues_of_libfabric() {
    if libfabric() {
        let plain = ["gather", "scatter", "both", "pack"];
        let missing = direct(
            "segments",
            &["--quick"],
            &[&plain[..], &["gather-line", "both-line", "pack-line"]].concat(),
        );
        let series: BTreeSet<&str> = missing.iter().map(|(series, _)| series.as_str()).collect();
        assert_eq!(series, BTreeSet::from(["gather", "scatter", "both", "gather-line", "both-line"]));
        assert!(missing.iter().all(|(_, cause)| cause.contains("iov_limit")), "{missing:?}");
        assert!(direct("cq", &["--connections", "1,3"], &["queue", "cq"]).is_empty());
        let many = if effort::full() { &["--quick"][..] } else { &["--quick", "--connections", "2"] };
        let curves = ["queue", "cq", "active-queue", "active-cq"];
        let curves = if effort::full() { &curves[..] } else { &curves[..2] };
        assert!(direct("cq", &[many, &["--wait", "block"]].concat(), curves).is_empty());
    }
}

#[test]
fn one_table_with_viaduct_and_tcp() {
    if !libfabric() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(["bench", "segments", "--provider", "ofi:tcp", "--compare", "ofi", "--quick"]);
    command.args(["--time", "0.03", "--launches", "1"]).env_remove("VIADUCT_PROVIDER");
    command.env("VIADUCT_OFI_SILENCE_MS", "60000");
    let output = command.output().unwrap();
    let (text, talk) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{talk}");
    let row = |name: &str| {
        let found = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        found.unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert!(row("via:ofi:tcp/gather@16").contains(" ["), "a number with its interval");
    assert!(row("ofi:tcp/gather@1").contains(" ["));
    assert!(row("ofi:tcp/gather@16").contains(" missing "));
    let lines = bench(&["latency", "--sizes", "8", "--provider", "ofi:tcp", "--compare", "ofi,tcp"]);
    let layers: BTreeSet<_> = lines.iter().map(|line| line["layer"].as_str().unwrap()).collect();
    assert_eq!(layers, BTreeSet::from(["via:ofi:tcp", "ofi:tcp", "tcp", "tcp-spin"]));
}

#[test]
fn every_case_of_viaduct_over_libfabric() {
    if !libfabric() {
        return;
    }
    // Those that can sleep do: other tests want the cores too. Two that take long wait for a full run.
    let short = ["--sizes", "8K", "--connections", "2", "--wait", "block", "--skip", "failure,load"];
    let short = if effort::full() { &[][..] } else { &short };
    let lines = bench(&[&["all", "--quick", "--provider", "ofi:tcp"], short].concat());
    let ours = lines.iter().filter(|line| line["provider"].is_string());
    let mut seen = BTreeSet::new();
    for line in ours {
        assert_eq!((&line["provider"], &line["valid"]), (&"ofi:tcp".into(), &true.into()), "{line}");
        // What VIA has on shared memory alone is told by name.
        assert!(line["p50"].is_f64() || line["missing"].is_string(), "{line}");
        if line["p50"].is_f64() {
            seen.insert(line["case"].as_str().unwrap());
        }
    }
    let wanted: BTreeSet<&str> = viaduct_bench::cases::ALL.iter().map(|case| case.name).collect();
    let mut cannot = BTreeSet::from(["translation", "translation-stream"]);
    if !effort::full() {
        cannot.extend(["failure", "load"]);
    }
    assert_eq!(seen, wanted.difference(&cannot).copied().collect());
}
