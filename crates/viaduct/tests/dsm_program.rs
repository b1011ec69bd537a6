//! Programs of others on shared memory: the book's, built outside the workspace and run by `viaduct dsm PATH`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::packages::{need_program, need_root};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

use crate::launching::cluster::Cluster;
use crate::launching::{Folder, Run, finish, verb};

const CHAPTER: &str = include_str!("../../../docs/book/src/shared-memory.md");

/// The whole program on nodes of the chapter, and the one with threads.
fn programs() -> [&'static str; 2] {
    let blocks: Vec<&str> = CHAPTER.split("```").skip(1).step_by(2).collect();
    ["dsm::run(heat)", "thread::scope"].map(|mark| {
        let block = blocks.iter().find(|block| block.starts_with("rust") && block.contains(mark));
        block.and_then(|block| block.split_once('\n')).expect("a program in the chapter").1
    })
}

/// One worker touches everything first, then each writes its own part: with the homes as they fall, or in bands. It wishes for
/// large pages.
const PLACES: &str = "
use viaduct_net::dsm::{self, Array, Dsm, Error, Placement, Wishes};

fn main() -> std::process::ExitCode {
    dsm::run_with(Wishes { page: 8192, ..Wishes::default() }, program)
}

fn program(dsm: &mut Dsm) -> Result<(), Error> {
    let banded = std::env::args().nth(1).as_deref() == Some(\"bands\");
    let placement = if banded { Placement::Bands } else { Placement::Node(0) };
    let len = 64 * dsm.page();
    let array: Array<u8> = dsm.placed(len, placement)?;
    if dsm.placed::<u8>(1, Placement::Node(99)).is_ok() {
        return Err(Error::Settings(\"node 99 is not there\".to_owned()));
    }
    let mut epoch = dsm.epoch();
    let (rank, size) = (epoch.rank(), epoch.size());
    let part = len * rank / size..len * (rank + 1) / size;
    for round in 0..4 {
        epoch.write(array, part.clone()).fill(round);
        epoch = epoch.barrier(0)?;
        assert!(epoch.read(array, 0..len).iter().all(|byte| *byte == round));
        epoch = epoch.barrier(0)?;
    }
    Ok(())
}
";

/// A crate of its own beside the workspace, with the programs built.
fn build(folder: &Path) -> Option<[PathBuf; 3]> {
    need_program("cargo", "cargo")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    let net = root.join("crates/net");
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         viaduct-net = {{ path = \"{}\", features = [\"dsm\"] }}\n\n[workspace]\n\n[profile.dev]\ndebug = 0\n",
        net.display()
    );
    let [nodes, threads] = programs();
    write("Cargo.toml", &manifest);
    write("src/bin/heat.rs", nodes);
    write("src/bin/threads.rs", threads);
    write("src/bin/places.rs", PLACES);
    // The versions that are at hand: nothing is downloaded.
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the list of versions");
    // What was built before is used again, where it may be written.
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let kept = if std::fs::create_dir_all(&kept).is_ok() && is_writable(&kept) {
        kept
    } else {
        folder.join("target")
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--offline", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", &kept);
    for stray in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(stray);
    }
    let output = cargo.output().expect("cargo starts");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        // An ordinary user may have a cargo without what it needs.
        assert!(!need_root(), "{why}");
        return None;
    }
    Some(["heat", "threads", "places"].map(|name| kept.join("debug").join(name)))
}

fn is_writable(folder: &Path) -> bool {
    let probe = folder.join(format!("probe.{}", std::process::id()));
    std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(&probe)).is_ok()
}

fn dsm(folder: &Folder, program: &Path, words: &[&str]) -> Run {
    let program = program.to_str().expect("a name");
    verb(folder, &[&["dsm", program, "--allow-root"], words].concat())
}

#[test]
fn the_books_program_is_built_outside_and_runs_by_its_path() {
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(900)), "a program of others");
    let (outside, folder) = (TempDir::new("outside"), Folder::new());
    let Some([heat, threads, places]) = build(outside.path()) else { return };
    let wanted = Command::new(threads).output().expect("it runs").stdout;
    let wanted = String::from_utf8(wanted).expect("text");
    assert!(wanted.contains("rounds, mean"), "{wanted}");
    for (variant, nodes, procs) in [("none-mg", "2", "2"), ("dms", "3", "1"), ("ms-mg", "1", "2")] {
        let words = ["--variant", variant, "--nodes", nodes, "--procs", procs];
        let run = dsm(&folder, &heat, &words);
        assert_eq!((run.status, &run.out), (0, &wanted), "{words:?}: {}", run.err);
        assert!(run.err.contains("barriers") && run.err.contains(variant), "{}", run.err);
    }
    // A node on each host: the program is taken along.
    if let Some(cluster) = Cluster::new(2) {
        let heat = heat.to_str().expect("a name");
        let run = finish(cluster.verb(&["dsm", heat, "--allow-root", "--hosts", "h0,h1"]));
        assert_eq!((run.status, &run.out), (0, &wanted), "on two hosts: {}", run.err);
        assert!(run.err.contains("2 nodes of 1 workers"), "{}", run.err);
    }
    let quiet = dsm(&folder, &heat, &["--quiet"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), (wanted.as_str(), ""));
    // Placed where they are written, pages need no diffs.
    let diffs = |placement: &str| {
        let run = dsm(&folder, &places, &["--variant", "none", "--json", "--", placement]);
        assert_eq!(run.status, 0, "{}{}", run.out, run.err);
        let line: serde_json::Value =
            serde_json::from_str(run.err.trim()).unwrap_or_else(|_| panic!("{}", run.err));
        line["counts"]["diffs"].as_u64().expect("a count")
    };
    assert!(diffs("bands") == 0 && diffs("one") > 0);
    // Pages are as large as the program wishes, unless the launcher says another size; homes are replayed on the same size alone.
    let homes = folder.path().join("homes").display().to_string();
    let run = |words: &[&str]| dsm(&folder, &places, &[words, &["--json", "--", "bands"]].concat());
    let turns: [(&[&str], u64); 3] =
        [(&["--homes-out", &homes], 8192), (&["--homes-in", &homes], 8192), (&["--page", "16384"], 16_384)];
    for (words, page) in turns {
        let run = run(words);
        assert_eq!(run.status, 0, "{words:?}: {}{}", run.out, run.err);
        let line: serde_json::Value = serde_json::from_str(run.err.trim()).expect("a line of JSON");
        assert_eq!(line["page"], page, "{words:?}: {line}");
    }
    let refused = run(&["--homes-in", &homes, "--page", "4096"]);
    assert!(refused.status != 0 && refused.err.contains("8192 bytes a page"), "{}", refused.err);
    // A program that no launcher started, and one that is not there.
    let alone = Command::new(&heat).env_remove("VIADUCT_DSM").output().expect("it runs");
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!alone.status.success() && said.contains("hint: viaduct dsm ./PROGRAM"), "{said}");
    let refused = [
        (vec!["dsm", "./nowhere"], "there is no program ./nowhere"),
        (vec!["dsm", "nowhere"], "./nowhere"),
        (vec!["dsm", "./nowhere", "--check"], "for the programs that come with Viaduct"),
        (vec!["dsm", "sor", "--", "word"], "for a program of yours"),
    ];
    for (words, reason) in refused {
        let run = verb(&folder, &words);
        assert!(run.status != 0 && run.err.contains(reason), "{words:?}: {}", run.err);
    }
}

#[test]
fn progress_is_shown_on_a_terminal_and_leaves_before_the_result() {
    let Some(script) = need_program("script", "bsdutils") else { return };
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(300)), "a run on a terminal");
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_viaduct");
    let command = format!("{program} dsm sor --size 512 --rounds 400 --allow-root");
    let mut run = Command::new(script);
    run.args(["-qec", &command, "/dev/null"]).env("VIADUCT_RUNTIME_DIR", folder.path());
    let output = run.stdin(std::process::Stdio::null()).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let (bar, result) = (text.rfind(" barriers ["), text.find("sor: 2 nodes of 1 workers"));
    assert!(bar.is_some() && bar < result, "{text:?}");
    assert!(
        std::fs::read_dir(folder.path())
            .expect("the folder")
            .flatten()
            .all(|entry| { !entry.file_name().to_string_lossy().starts_with("progress.") })
    );
}
