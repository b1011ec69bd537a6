//! The example programs as jobs: on one host over shared memory and over TCP, and between network namespaces over libfabric.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use viaduct_kit::effort::{self, scaled};
use viaduct_kit::hosts::Hosts;
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(120)), "an example")
}

/// The program of an example, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

/// Runs an example as a job of `size` ranks that meet at the first: in `folder`, on `hosts` in turn if there are any.
fn job(folder: &Path, name: &str, size: usize, links: &str, hosts: Option<&Hosts>) -> Vec<Output> {
    let address = hosts.map_or("127.0.0.1".to_owned(), |hosts| hosts.address(0).to_string());
    // A port that was free a moment ago; each process has others.
    let port = match hosts {
        None => std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
        Some(_) => 4711,
    };
    let start = |rank: usize| {
        let mut command = Command::new(example(name));
        command.args(["d%r/in", "d%r/out"]).current_dir(folder).env("RIVER_LINKS", links);
        command
            .env("VIADUCT_MEET", format!("{address}:{port}"))
            .env("VIADUCT_TOKEN", format!("{:064x}", std::process::id()));
        command.env("VIADUCT_RANK", rank.to_string()).env("VIADUCT_SIZE", size.to_string());
        command.env_remove("PMI_FD").env_remove("PMI_PORT");
        let host = hosts.map_or(0, |_| rank % 2);
        command.env("VIADUCT_RUNTIME_DIR", folder.join(format!("run{host}")));
        if let Some(hosts) = hosts {
            hosts.enter(host as u8, &mut command);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..size).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn good(folder: &Path, name: &str, size: usize, links: &str, hosts: Option<&Hosts>) {
    for (rank, output) in job(folder, name, size, links, hosts).into_iter().enumerate() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} over {links}, rank {rank}: {said}");
    }
}

/// A folder for each node, with `text` of its own.
fn folders(size: usize, text: impl Fn(usize) -> Vec<u8>) -> TempDir {
    let folder = TempDir::new("river-examples");
    for node in 0..size {
        std::fs::create_dir(folder.join(format!("d{node}"))).unwrap();
        std::fs::write(folder.join(format!("d{node}/in")), text(node)).unwrap();
    }
    folder
}

fn read(folder: &TempDir, node: usize) -> Vec<u8> {
    std::fs::read(folder.join(format!("d{node}/out"))).unwrap()
}

fn words_are_counted(size: usize, links: &str, hosts: Option<&Hosts>) {
    let text = |node: usize| -> Vec<u8> {
        let words = (0..30_000).flat_map(|n| format!("w{} of{node}\nend ", n * 7919 % 5000).into_bytes());
        // A word that is longer than a message.
        words.chain(std::iter::repeat_n(b'l', 100_000)).collect()
    };
    let folder = folders(size, text);
    good(folder.path(), "word_count", size, links, hosts);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for node in 0..size {
        let text = String::from_utf8(text(node)).unwrap();
        text.split_whitespace().for_each(|word| *expected.entry(word.to_owned()).or_default() += 1);
    }
    let mut found = BTreeMap::new();
    for node in 0..size {
        let text = String::from_utf8(read(&folder, node)).unwrap();
        assert!(text.lines().count() > 100, "node {node} has its part of the words");
        for line in text.lines() {
            let (word, count) = line.split_once(' ').unwrap();
            assert!(found.insert(word.to_owned(), count.parse().unwrap()).is_none(), "{word} at two nodes");
        }
    }
    assert!(found == expected, "{links}");
}

fn files_are_copied(size: usize, links: &str, hosts: Option<&Hosts>) {
    let bytes =
        |node: usize| (0..700_000u32 + 13 * node as u32).map(|n| (n / 7) as u8 ^ node as u8).collect();
    let folder = folders(size, bytes);
    good(folder.path(), "parallel_copy", size, links, hosts);
    (0..size).for_each(|node| assert!(read(&folder, node) == bytes(node), "{links}: node {node}"));
}

#[test]
fn words_are_counted_and_files_copied_on_one_host() {
    let _watchdog = watch();
    for links in ["shm", "tcp"] {
        words_are_counted(3, links, None);
        files_are_copied(3, links, None);
    }
    words_are_counted(1, "shm", None);
    files_are_copied(1, "shm", None);
}

#[test]
fn words_are_counted_and_files_copied_between_hosts() {
    let _watchdog = watch();
    if let Err(error) = viaduct_providers::open("ofi:tcp", &Default::default()) {
        skip(&format!("ofi:tcp cannot be used: {error}"));
        return;
    }
    let Some(hosts) = Hosts::new(2) else { return };
    let all = ["ofi", "auto", "tcp"];
    for links in &all[..effort::rounds(1, 3) as usize] {
        words_are_counted(3, links, Some(&hosts));
        files_are_copied(2, links, Some(&hosts));
    }
}

#[test]
fn a_file_that_is_missing_at_one_node_fails_there_and_at_its_neighbour() {
    let _watchdog = watch();
    let folder = folders(2, |_| vec![1; 1000]);
    std::fs::remove_file(folder.join("d1/in")).unwrap();
    let outputs = job(folder.path(), "parallel_copy", 2, "shm", None);
    assert!(outputs.iter().all(|output| !output.status.success()));
    let said = String::from_utf8_lossy(&outputs[1].stderr).into_owned();
    assert!(said.contains("d1/in"), "{said}");
    assert!(!folder.join("d0/out").exists() && !folder.join("d1/out").exists());
}
