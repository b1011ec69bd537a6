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

/// Calls that are made once, when the library is loaded and when it looks at a connection.
const FEW: u64 = 40;

/// How often each system call was made, by its name, as `strace -c` says.
fn counts(strace: &Path, program: &Compiled, library: Option<&Stage>) -> BTreeMap<String, u64> {
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
    let (table, rules) = (folder.join("counts"), folder.join("never"));
    fs::write(&rules, "never\n").unwrap();
    let mut command = Command::new(strace);
    command.args(["-f", "-c", "-o"]).arg(&table);
    if let Some(stage) = library {
        // strace itself runs without.
        command.arg("-E").arg(format!("LD_PRELOAD={}", stage.library().display()));
        command.arg("-E").arg(format!("VIADUCT_RULES={}", rules.display()));
        command.arg("-E").arg("VIADUCT_AGENT_PROGRAM=off");
    }
    let output = command.arg(program.path()).arg(port.to_string()).output().unwrap();
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
    let (without, with) = (counts(&strace, &program, None), counts(&strace, &program, Some(&stage)));
    assert!(without.values().sum::<u64>() > 1800, "{without:?}");
    for name in without.keys().chain(with.keys()) {
        let [before, after] = [&without, &with].map(|counts| counts.get(name).copied().unwrap_or(0));
        // libc's epoll_wait is the older call of the kernel.
        let other = if name == "epoll_wait" { with.get("epoll_pwait").copied().unwrap_or(0) } else { 0 };
        let made_up = name == "epoll_pwait" && before == 0;
        assert!(made_up || after + other <= before + FEW, "{name}: {before}, {after}\n{without:?}\n{with:?}");
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
    let output = client.arg(port.trim()).output().unwrap();
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
