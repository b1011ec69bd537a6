//! `viaduct bench rpc` and `ftp`: unmodified programs, over TCP and under `viaduct run`. They take a while: full runs alone.

use std::collections::BTreeSet;

use serde_json::Value;
use viaduct_kit::effort::full;
use viaduct_kit::packages::need_program;
use viaduct_kit::skip;

use crate::common::bench;

/// The rows that were measured here; every one has a value.
fn rows(lines: &[Value], table: &str) -> BTreeSet<String> {
    let ours = lines.iter().filter(|line| line["source"].is_null());
    ours.map(|line| {
        assert_eq!(line["table"], table);
        assert!(line["value"].as_f64().is_some_and(|value| value > 0.0), "{line}");
        line["row"].as_str().unwrap().to_owned()
    })
    .collect()
}

#[test]
fn remote_procedure_calls_are_measured_in_every_way() {
    if !full() {
        skip!("a long measurement: cargo xtask test --full");
    }
    if need_program("rpcgen", "rpcsvc-proto").is_none() {
        return;
    }
    let rows = rows(&bench(&["rpc", "--quick"]), "rpc");
    assert_eq!(rows, ["TCP", "TCP, spinning", "Viaduct"].map(String::from).into());
}

#[test]
fn file_transfer_is_measured_in_every_way() {
    if !full() {
        skip!("a long measurement: cargo xtask test --full");
    }
    if need_program("vsftpd", "vsftpd").is_none() {
        return;
    }
    let rows = rows(&bench(&["ftp", "--quick"]), "ftp");
    let wanted = ["TCP", "TCP, sendfile", "Viaduct", "Viaduct, sendfile", "local copy"];
    assert_eq!(rows, wanted.map(String::from).into());
}
