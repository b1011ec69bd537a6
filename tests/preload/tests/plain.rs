//! A peer that is not under Viaduct: the program makes the system calls that it makes without the library, and the peer gets the
//! packets that it gets without.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::cc::{Compiled, compile_c_file};
use viaduct_kit::effort::scaled;
use viaduct_kit::packages::{need_program, need_root};
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::source;

use crate::AGENT;

/// Calls of one kind that are made once, when the library is loaded and when it looks at a connection.
const FEW: u64 = 24;
/// Calls of one kind that wait for the agent's answer.
const ANSWER: u64 = 190;
/// Rounds of the program. After the third it rests until it is known that no other end comes; before, the bell is put into the set
/// with the connection, and taken out.
const ROUNDS: [u32; 2] = [200, 400];

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Without,
    /// A rule leaves its connections to the kernel.
    Ruled,
    /// The connection is offered to an agent, and no other end comes.
    Offered,
}

/// How often each system call was made, by its name, as `strace -c` says.
fn counts(strace: &Path, program: &Compiled, stage: &Stage, way: Way, rounds: u32) -> BTreeMap<String, u64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let peer = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut bytes = [0; 16];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).unwrap();
        }
    });
    let folder = viaduct_kit::tempdir::TempDir::new("strace");
    let (table, rules) = (folder.join("counts"), folder.join("rules"));
    fs::write(&rules, if way == Way::Offered { "always\n" } else { "never\n" }).unwrap();
    let mut command = Command::new(strace);
    command.args(["-f", "-c", "-o"]).arg(&table);
    if way != Way::Without {
        // strace itself runs without.
        command.arg("-E").arg(format!("LD_PRELOAD={}", stage.library().display()));
        command.arg("-E").arg(format!("VIADUCT_RULES={}", rules.display()));
        command.arg("-E").arg("VIADUCT_AGENT_PROGRAM=off");
        command.arg("-E").arg(format!("VIADUCT_CLAIM={}", stage.name()));
        command.arg("-E").arg(format!("VIADUCT_EXPLAIN={}", stage.folder().join("explain").display()));
    }
    let words = [port.to_string(), rounds.to_string()];
    let output = command.arg(program.path()).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"plain\n");
    peer.join().unwrap();
    let text = fs::read_to_string(&table).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some((fields.last()?.to_string(), fields.get(3)?.parse().ok()?))
    };
    text.lines().filter_map(row).filter(|(name, _)| name != "total").collect()
}

fn client() -> Option<Compiled> {
    compile_c_file(source("c/plain.c"), &["-O1", "-Wno-unused-function"])
}

#[test]
fn a_plain_peer_costs_no_system_call_more() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a plain peer");
    let Some(strace) = need_program("strace", "strace") else { return };
    let Some(program) = client() else { return };
    let stage = Stage::new(&AGENT);
    let runs = |way| ROUNDS.map(|rounds| counts(&strace, &program, &stage, way, rounds));
    let of = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
    let without = runs(Way::Without);
    assert!(without[0].values().sum::<u64>() > 1800, "{without:?}");
    for way in [Way::Ruled, Way::Offered] {
        let with = runs(way);
        for name in without.iter().chain(&with).flat_map(BTreeMap::keys) {
            let [before, after] = [&without, &with].map(|runs| of(&runs[0], name));
            // How often the library looks for the agent's answer depends on the agent.
            let few = if way == Way::Offered && before == 0 { ANSWER } else { FEW };
            assert!(after <= before + few, "{way:?}: {name}: {before}, {after}\n{without:?}\n{with:?}");
            if few == ANSWER {
                continue;
            }
            // All that is added is added once.
            let [before, after] =
                [&without, &with].map(|runs| of(&runs[1], name) as i64 - of(&runs[0], name) as i64);
            assert_eq!(after, before, "{way:?}: {name} in 200 rounds more\n{without:?}\n{with:?}");
        }
        let notes = stage.notes();
        let said = notes.lines().last().unwrap_or_default();
        assert!(said.contains("stays on TCP"), "{way:?}: {notes}");
        assert_eq!(said.contains("a rule says so"), way == Way::Ruled, "{way:?}: {notes}");
    }
}

/// The packets of one run, a line each.
fn packets(python: &Path, program: &Compiled, library: Option<&Stage>) -> String {
    let mut command = Command::new(python);
    let mut peer = command.arg(source("python/capture.py")).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(peer.stdout.take().unwrap());
    let (mut port, mut lines) = (String::new(), String::new());
    said.read_line(&mut port).unwrap();
    let mut client = match library {
        Some(stage) => stage.under(program.path()),
        None => program.command(),
    };
    let output = client.args([port.trim(), "200"]).output().unwrap();
    assert_eq!(output.stdout, b"plain\n", "{}", String::from_utf8_lossy(&output.stderr));
    said.read_to_string(&mut lines).unwrap();
    assert!(peer.wait().unwrap().success());
    lines
}

#[test]
fn a_plain_peer_gets_the_packets_that_it_gets_without() {
    if !need_root() {
        return;
    }
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a plain peer");
    let (Some(python), Some(program)) = (need_program("python3", "python3"), client()) else { return };
    let stage = Stage::new(&AGENT);
    let (without, with) = (packets(&python, &program, None), packets(&python, &program, Some(&stage)));
    // The beginning, three messages in each of 200 rounds, the end.
    assert_eq!(without.lines().count(), 602, "{without}");
    assert_eq!(with, without);
    // The connection was offered, and no other end came.
    assert!(stage.notes().contains("stays on TCP"), "{}", stage.notes());
}
