//! What `bench --help` tells people to type gives what they asked for: percentiles of single messages, and sockets beside Viaduct.
//! No test looks at a time.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{bench, two_cores};

fn measured(args: &[&str]) -> Vec<Value> {
    bench(args).into_iter().filter(|line| line.get("ratio").is_none()).collect()
}

fn layers(lines: &[Value]) -> BTreeSet<&str> {
    lines.iter().map(|line| line["layer"].as_str().expect("a layer")).collect()
}

#[test]
fn single_messages_are_timed_one_by_one() {
    if two_cores() {
        let args =
            ["latency", "--layer", "raw", "--provider", "shm", "--compare", "via,unix", "--sizes", "8"];
        let lines = measured(&[&args[..], &["--single"]].concat());
        assert_eq!(layers(&lines), ["raw", "shm", "unix"].into());
        assert!(lines.iter().all(|line| line["batch"] == 1 && line["p99"].is_f64()), "{lines:?}");
        // Without the word, the shortest messages come in batches: reading the clock takes longer than they do.
        let batches = measured(&args);
        let batched = |line: &Value| line["layer"] == "raw" && line["batch"].as_u64() > Some(1);
        assert!(batches.iter().any(batched), "{batches:?}");
        let both = |line: &Value| line["p99"].is_f64() && line["p99_single"].is_f64();
        assert!(batches.iter().filter(|line| batched(line)).any(both), "{batches:?}");
    }
}

#[test]
fn waits_are_compared_with_sockets() {
    if two_cores() {
        for case in ["wakeup", "blocking", "load"] {
            let lines =
                bench(&[case, "--provider", "shm", "--compare", "unix,tcp", "--quick", "--sizes", "64"]);
            let (pairs, lines): (Vec<_>, Vec<_>) =
                lines.into_iter().partition(|line| line.get("ratio").is_some());
            assert_eq!(layers(&lines), ["shm", "unix", "tcp"].into(), "{case}");
            assert!(
                lines.iter().all(|line| line["valid"] == true && line["p50"].is_f64()),
                "{case}: {lines:?}"
            );
            let beside =
                |layer: &str| pairs.iter().any(|pair| pair.to_string().contains(&format!("\"{layer}")));
            assert!(beside("unix") && beside("tcp"), "{case}: {pairs:?}");
        }
    }
}
