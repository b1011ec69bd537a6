//! `viaduct run` and `LD_PRELOAD` by itself: statuses, the agent that is started, what is said of programs that cannot be
//! accelerated.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use std::{env, fs};

use viaduct_kit::cc::compile_c_file;
use viaduct_kit::effort::scaled;
use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fdpass::Channel;
use viaduct_preload_tests::Stage;

use crate::AGENT;

/// The program `viaduct`, and the library, as built; with a name for an agent that is this test's own.
struct Built {
    program: PathBuf,
    library: PathBuf,
    folder: TempDir,
    name: String,
}

impl Built {
    fn new() -> Built {
        let deps = env::current_exe().unwrap().parent().unwrap().to_owned();
        let (program, library) = (deps.with_file_name("viaduct"), deps.join("libsovia_preload.so"));
        assert!(program.exists(), "{program:?} is not there: cargo build -p viaduct");
        let folder = TempDir::new("running");
        let name = format!("viaduct-test-{}", folder.path().display()).replace('/', "-");
        Built { program, library, folder, name }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.arg("run").args(words).env("VIADUCT_CLAIM", &self.name);
        command.env("VIADUCT_PRELOAD", &self.library).env_remove("LD_PRELOAD");
        command.output().unwrap()
    }

    fn agent(&self) -> Option<i32> {
        let channel = Channel::connect_abstract(self.name.as_bytes()).ok()?;
        channel.peer().ok().map(|peer| peer.pid)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        if let Some(pid) = self.agent() {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_that_is_not_there_ends_with_127_and_one_that_cannot_run_with_126() {
    let built = Built::new();
    let file = built.folder.join("plain");
    fs::write(&file, "no program").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    for explain in [&["--"][..], &["--explain", "--"]] {
        let missing = built.run(&[explain, &["no-such-program"]].concat());
        assert_eq!(missing.status.code(), Some(127), "{}", text(&missing.stderr));
        assert!(text(&missing.stderr).contains("no-such-program"));
        let refused = built.run(&[explain, &[file.to_str().unwrap()]].concat());
        assert_eq!(refused.status.code(), Some(126), "{}", text(&refused.stderr));
    }
    assert_eq!(built.run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn a_static_program_runs_and_is_said_to_be_unaccelerated() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/bare.c");
    let Some(bare) = compile_c_file(source, &["-O1", "-static"]) else { return };
    let built = Built::new();
    let output = built.run(&["--", bare.path().to_str().unwrap(), "nonsense"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("unaccelerated"), "{}", text(&output.stderr));
    let shell = built.run(&["--", "sh", "-c", "echo hello"]);
    assert_eq!((text(&shell.stdout), text(&shell.stderr)), ("hello\n".to_owned(), String::new()));
}

#[test]
fn a_library_preloaded_before_stays() {
    let built = Built::new();
    let mut command = Command::new(&built.program);
    command.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", "libm.so.6");
    command.env("VIADUCT_PRELOAD", &built.library).env("VIADUCT_CLAIM", &built.name);
    let said = text(&command.output().unwrap().stdout);
    assert_eq!(said, format!("{}:libm.so.6\n", built.library.display()));
}

#[test]
fn the_library_by_itself_starts_an_agent() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/streams.c");
    let Some(program) = compile_c_file(source, &["-O1", "-pthread"]) else { return };
    let built = Built::new();
    assert_eq!(built.agent(), None);
    let notes = built.folder.join("explain");
    let mut command = program.command();
    command.arg("bulk").env("LD_PRELOAD", &built.library).env("VIADUCT_CLAIM", &built.name);
    // What is beside the library, as it is when both are installed.
    command.env_remove("VIADUCT_AGENT_PROGRAM").env("VIADUCT_EXPLAIN", &notes);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let notes = fs::read_to_string(notes).unwrap_or_default();
    assert!(built.agent().is_some(), "{notes}");
    assert!(notes.contains("upgraded: "), "{notes}");
    // It has its local socket alone, and none of a network.
    let pid = built.agent().unwrap();
    let listed = |table: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(9)?.to_owned())).collect::<Vec<_>>()
    };
    let network: Vec<String> = ["tcp", "tcp6", "udp", "udp6"].into_iter().flat_map(listed).collect();
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets = links.filter_map(|link| fs::read_link(link.path()).ok()).filter_map(|target| {
        let name = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
        Some(name)
    });
    let held: Vec<String> = sockets.collect();
    assert!(!held.is_empty() && !held.iter().any(|inode| network.contains(inode)), "{held:?}");
}

#[test]
fn the_library_by_itself_finds_the_rules_of_its_user() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a program");
    let Some(python) = need_program("python3", "python3") else { return };
    let stage = Stage::new(&AGENT);
    let said = |settings: Option<&Path>, home: &Path| {
        let mut command = stage.under(&python);
        command.args(["-c", PAIRS, "1", "20"]).env_remove("VIADUCT_RULES").env("HOME", home);
        command.env_remove("XDG_CONFIG_HOME").envs(settings.map(|folder| ("XDG_CONFIG_HOME", folder)));
        let before = stage.notes().len();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        stage.notes()[before..].to_owned()
    };
    let (home, settings) = (stage.folder().join("home"), stage.folder().join("settings"));
    for folder in [home.join(".config/viaduct"), settings.join("viaduct")] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("rules"), "never address 127.0.0.0/8\n").unwrap();
    }
    let nowhere = stage.folder().join("nowhere");
    assert!(said(None, &nowhere).contains(" upgraded: "), "no rules are there");
    assert!(said(Some(&nowhere), &home).contains(" upgraded: "), "the folder that is named counts");
    for notes in [said(None, &home), said(Some(Path::new("")), &home), said(Some(&settings), &nowhere)] {
        assert_eq!(notes.matches("stays on TCP: a rule says so").count(), 2, "{notes}");
    }
}

#[test]
fn an_agent_is_no_child_of_the_program_and_holds_none_of_its_files() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(60)), "a program");
    let built = Built::new();
    let lock = built.folder.join("lock");
    let children = "read children < /proc/$$/task/$$/children; echo \"[$children]\"";
    let script = format!("exec 9>'{}'; exec \"$0\" run -- /bin/sh -c '{children}'", lock.display());
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).arg(&built.program).env("VIADUCT_CLAIM", &built.name);
    let output = command.env("VIADUCT_PRELOAD", &built.library).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(text(&output.stdout), "[]\n", "{}", text(&output.stderr));
    let pid = built.agent().expect("an agent was started");
    let held = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let held: Vec<PathBuf> = held.filter_map(|link| fs::read_link(link.path()).ok()).collect();
    assert!(!held.is_empty() && !held.contains(&lock), "{held:?}");
}

#[test]
fn an_agent_that_no_process_needs_leaves() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(60)), "an agent");
    let built = Built::new();
    let mut command = Command::new(&built.program);
    command.args(["agent", "claims", "--idle", "0.2", "--name", &built.name]);
    let mut agent = command.spawn().unwrap();
    assert!(agent.wait().unwrap().success());
    assert_eq!(built.agent(), None);
}

#[test]
fn explain_says_of_each_connection_what_became_of_it() {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a program");
    let Some(python) = need_program("python3", "python3") else { return };
    let built = Built::new();
    let words = ["--explain", "--", python.to_str().unwrap(), "-c", PAIRS, "1", "20"];
    let said = built.run(&words);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let lines = text(&said.stderr);
    assert!(lines.contains("upgraded: sends through shared memory"), "{lines}");
    assert!(lines.contains("upgraded: receives through shared memory"), "{lines}");
    let none = built.run(&["--explain", "--", "true"]);
    assert_eq!(text(&none.stderr), "viaduct: no connection over TCP was used\n");
    let rules = built.folder.join("rules");
    fs::write(&rules, "never address 127.0.0.0/8\n").unwrap();
    let mut command = Command::new(&built.program);
    command.arg("run").args(words).env("VIADUCT_CLAIM", &built.name).env("VIADUCT_RULES", &rules);
    let said = command.env("VIADUCT_PRELOAD", &built.library).output().unwrap();
    let lines = text(&said.stderr);
    assert_eq!(lines.matches("stays on TCP: a rule says so").count(), 2, "{lines}");
}

const PAIRS: &str = "
import socket, sys
a = socket.create_server(('127.0.0.1', 0))
for n in range(int(sys.argv[1])):
    c = socket.create_connection(a.getsockname()); s, _ = a.accept()
    for turn in range(int(sys.argv[2])):
        c.sendall(b'ask %d' % turn); assert s.recv(100) == b'ask %d' % turn
        s.sendall(b'answer'); assert c.recv(100) == b'answer'
    c.close(); s.close()
";

fn pairs(stage: &Stage, connections: u32, turns: u32, rules: &str) {
    let Some(python) = need_program("python3", "python3") else { return };
    let file = stage.folder().join("rules");
    fs::write(&file, rules).unwrap();
    let mut command = stage.under(python);
    command.args(["-c", PAIRS, &connections.to_string(), &turns.to_string()]).env("VIADUCT_RULES", &file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Connections of which both ends have met at the agent.
fn met(stage: &Stage) -> u32 {
    stage.counts().split(' ').next().and_then(|count| count.parse().ok()).expect("it starts with a number")
}

#[test]
fn the_agent_counts_what_became_of_connections_and_why() {
    let stage = Stage::new(&AGENT);
    pairs(&stage, 3, 20, "");
    if stage.notes().is_empty() {
        return; // there is no Python, which was said
    }
    assert_eq!(met(&stage), 3, "{}", stage.counts());
    pairs(&stage, 2, 20, "never address 127.0.0.0/8\n");
    assert_eq!(stage.counts(), "3 upgraded\n4 a rule says so\n");
}

#[test]
fn a_listener_with_short_connections_has_them_left_alone() {
    let stage = Stage::new(&AGENT);
    pairs(&stage, 60, 1, "");
    if stage.notes().is_empty() && met(&stage) == 0 {
        return; // there is no Python, which was said
    }
    assert!((1..30).contains(&met(&stage)), "{}", stage.counts());
    // A rule of the user's overrules what is learned.
    let stage = Stage::new(&AGENT);
    pairs(&stage, 60, 1, "always\n");
    assert_eq!(met(&stage), 60, "{}", stage.counts());
}

#[test]
fn a_thread_that_sleeps_on_a_connection_before_its_claim_is_woken() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/early.c");
    let Some(program) = compile_c_file(source, &["-O1", "-pthread"]) else { return };
    let _dog = Watchdog::arm(scaled(Duration::from_secs(60)), "threads on a connection that is claimed late");
    let stage = Stage::new(&AGENT);
    let output = stage.under(program.path()).env_remove("VIADUCT_RULES").output().unwrap();
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("early\n".into(), "".into()),
        "{}",
        stage.notes()
    );
    assert!(met(&stage) >= 1, "short ones are claimed first:\n{}", stage.counts());
    assert_eq!(
        stage.notes().matches("several threads used it before its time").count(),
        3,
        "{}",
        stage.notes()
    );
}

#[test]
fn stat_shows_what_the_agent_counted_and_bad_rules_are_named() {
    let built = Built::new();
    assert_eq!(built.run(&["--", "true"]).status.code(), Some(0));
    let mut command = Command::new(&built.program);
    let output =
        command.args(["stat", "--format", "json"]).env("VIADUCT_CLAIM", &built.name).output().unwrap();
    assert!(
        text(&output.stdout).contains(r#"{"connections":0,"run":"upgraded"}"#),
        "{}",
        text(&output.stdout)
    );
    let file = built.folder.join("rules");
    fs::write(&file, "never port 1\nperhaps\n").unwrap();
    let mut command = Command::new(&built.program);
    command.args(["run", "--", "true"]).env("VIADUCT_RULES", &file).env("VIADUCT_PRELOAD", &built.library);
    let output = command.output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("line 2"), "{}", text(&output.stderr));
}
