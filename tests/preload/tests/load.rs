//! Load generators with many connections and threads: what they send comes back whole, every run of them ends, and one that does
//! not is described before it is killed.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::packages::need_program;
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::{Server, free_port};
use viaduct_preload_tests::rings;

use crate::AGENT;

/// Keys and values of 64 bytes; one in ten requests stores, and each value that is fetched is compared.
const SETTINGS: &str = "key\n64 64 1\nvalue\n64 64 1\ncmd\n0 0.1\n1 0.9\n";
const CONNECTIONS: usize = 32;
/// How long a run may take that has work for a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The lines that do not depend on speed.
fn counts(said: &str) -> Vec<&str> {
    let names =
        ["cmd_get", "cmd_set", "get_misses", "verify_misses", "verify_failed", "written_bytes", "read_bytes"];
    said.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).collect()
}

/// Runs a client to its end. If that does not come, its rings and its server's are in the message.
fn finish(stage: &Stage, mut command: Command, server: u32) -> String {
    let file = stage.folder().join("said");
    let mut child = command.stdin(Stdio::null()).stdout(File::create(&file).unwrap()).spawn().unwrap();
    let end = Instant::now() + scaled(LIMIT);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            None => {
                let words = [child.id(), server].map(rings::describe).concat();
                let _ = child.kill();
                let _ = child.wait();
                panic!("{command:?} does not end\n{words}{}", stage.notes());
            }
        }
    };
    let said = fs::read_to_string(&file).unwrap();
    assert!(status.success(), "{status}\n{said}");
    said
}

#[test]
fn every_value_that_memcaslap_stores_comes_back_on_many_connections() {
    let Some(memcached) = need_program("memcached", "memcached") else { return };
    let Some(memcaslap) = need_program("memcaslap", "libmemcached-tools") else { return };
    let times = rounds(3, 200);
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120 + 10 * times)), "memcaslap");
    let stage = Stage::new(&AGENT);
    let settings = stage.folder().join("settings");
    fs::write(&settings, SETTINGS).unwrap();
    let session = |with: bool, times: u64| {
        let port = free_port();
        let mut command = stage.maybe(with, &memcached);
        command.args(["-l", "127.0.0.1", "-U", "0", "-t", "2", "-p", &port.to_string()]);
        if geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let server = Server::start(&command, port);
        for _ in 0..times {
            let mut command = stage.maybe(with, &memcaslap);
            command.arg("-F").arg(&settings).args([
                "-s",
                &format!("127.0.0.1:{port}"),
                "-T",
                "2",
                "-v",
                "1.0",
            ]);
            command.args(["-c", &CONNECTIONS.to_string(), "-x", "16000"]);
            let said = finish(&stage, command, server.id());
            let counted = counts(&said).join("\n");
            let wanted =
                ["cmd_get: 14400", "cmd_set: 1600", "get_misses: 0", "verify_misses: 0", "verify_failed: 0"];
            assert!(
                wanted.iter().all(|line| counted.contains(line)),
                "with: {with}\n{said}\n{}",
                stage.notes()
            );
            assert!(counted.contains("read_bytes: ") && counted.contains("written_bytes: "), "{said}");
        }
    };
    session(false, 1);
    assert_eq!(stage.notes(), "");
    session(true, times);
    // Each end says once that it sends through shared memory. Many runs use ports again, so ends are not told apart by them.
    let notes = stage.notes();
    let ends = notes.lines().filter(|line| line.contains(" upgraded: sends ")).count();
    assert!(ends >= 2 * CONNECTIONS * times as usize, "{ends} ends\n{notes}");
}
