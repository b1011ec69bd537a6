//! The C program of `c/unclaimed.c`: connections that several processes hold before any of them has used one. What one of them waits
//! for comes, whichever of them is the first to claim.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_kit::effort::scaled;
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::{Stage, same};

use crate::AGENT;

fn program() -> Option<&'static Compiled> {
    static PROGRAM: OnceLock<Option<Compiled>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/unclaimed.c");
    PROGRAM.get_or_init(|| compile_c_file(source, &["-O1", "-pthread"])).as_ref()
}

/// Runs scenarios; `upgraded` directions are expected at least, counted at both ends.
fn scenarios(names: &[&str], upgraded: usize) {
    if let Some(program) = program() {
        for name in names {
            let notes = same(program, &AGENT, &[name], upgraded);
            assert!(upgraded > 0 || !notes.contains(" upgraded: "), "{name}\n{notes}");
        }
    }
}

/// Runs the program under rules of its own; what was noted about its connections.
fn under_rules(rules: Option<&str>, scenario: &str, says: &str) -> Option<String> {
    let program = program()?;
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a scenario");
    let stage = Stage::new(&AGENT);
    let mut command = stage.under(program.path());
    match rules {
        Some(rules) => {
            let file = stage.folder().join("rules");
            fs::write(&file, rules).expect("the folder is ours");
            command.env("VIADUCT_RULES", file);
        }
        None => drop(command.env_remove("VIADUCT_RULES")),
    }
    let output = command.arg(scenario).output().expect("it starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let notes = stage.notes();
    assert_eq!(said, [says, ""], "{scenario}\n{notes}");
    Some(notes)
}

#[test]
fn a_parent_or_child_that_sleeps_in_a_set_is_woken_for_what_the_other_has_claimed() {
    scenarios(&["watched", "watched-late", "watched-early", "watching-child"], 4);
}

#[test]
fn a_process_that_sleeps_in_a_set_is_woken_for_what_a_program_of_its_has_claimed() {
    scenarios(&["spawned", "forked"], 4);
}

#[test]
fn a_set_that_a_borrower_of_memory_cannot_change_keeps_its_connection_on_tcp() {
    scenarios(&["vforked", "vforked-moved"], 0);
}

#[test]
fn a_connection_left_by_a_rule_is_not_upgraded_by_a_program_without_that_rule() {
    for name in ["ruled-spawn", "ruled-fork", "ruled-vfork", "ruled-moved"] {
        let Some(notes) = under_rules(Some("never program ruled\nalways\n"), name, "answered\n") else {
            return;
        };
        assert!(notes.contains("a rule says so") && !notes.contains(" upgraded: "), "{name}\n{notes}");
    }
}

#[test]
fn a_connection_passed_on_unused_is_upgraded_by_its_receiver_or_by_no_process() {
    scenarios(&["passed"], 0);
    scenarios(&["passed-whole"], 4);
}

#[test]
fn a_process_that_shares_one_of_a_listener_with_short_ones_is_woken() {
    let Some(notes) = under_rules(None, "learned", "learned\n") else { return };
    assert!(notes.contains("several threads used it before its time"), "{notes}");
}
