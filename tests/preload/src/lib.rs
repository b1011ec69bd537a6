//! What the tests of the preloaded library share: an agent of their own, and programs that run with and without it.
//!
//! The agent is a child of the test with a name of its own, so that tests do not meet each other's. The library is the
//! one beside the test binary (`cargo build -p viaduct-preload` makes it).

pub mod apps;
pub mod compatibility;
pub mod rings;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use viaduct_agent::local;
use viaduct_intercept::agent::Claims;
use viaduct_intercept::wire;
use viaduct_kit::cc::Compiled;
use viaduct_kit::child::{Child, Program, say};
use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fdpass::{Channel, Recv};

/// Becomes an agent that takes claims at the name in the first argument, until it is killed.
///
/// # Panics
/// If the name is taken.
pub fn be_agent(args: &[String]) {
    let mut claims = Claims::new(args[0].as_bytes()).expect("the name is this test's own");
    say("ready");
    local::serve(&mut [&mut claims], Duration::from_secs(3600)).expect("an agent serves");
}

fn run(mut command: Command, arguments: &[&str]) -> String {
    let output = command.args(arguments).output().expect("the program starts");
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{arguments:?}: {}\n{said}", output.status);
    said
}

/// Runs a program with and without the library: it says the same, and `upgraded` directions are expected at least,
/// counted at both ends. What was noted about its connections.
///
/// # Panics
/// If that is not so.
pub fn same(program: &Compiled, agent: &Program, arguments: &[&str], upgraded: usize) -> String {
    same_in(rounds(1, 20), program, agent, arguments, upgraded)
}

/// As [`same`], with so many rounds under the library; for what is long by itself.
///
/// # Panics
/// As [`same`].
pub fn same_in(
    times: u64,
    program: &Compiled,
    agent: &Program,
    arguments: &[&str],
    upgraded: usize,
) -> String {
    let _dog = Watchdog::arm(scaled(Duration::from_secs(rounds(120, 900))), "a scenario");
    let plain = run(program.command(), arguments);
    let mut notes = String::new();
    for _ in 0..times {
        let stage = Stage::new(agent);
        let said = run(stage.under(program.path()), arguments);
        notes = stage.notes();
        assert_eq!(said, plain, "{arguments:?}\n{notes}");
        assert!(stage.upgrades() >= upgraded, "{arguments:?}: too few upgraded\n{notes}");
    }
    notes
}

/// An agent, a folder, and programs under the library.
#[derive(Debug)]
pub struct Stage {
    agent: Child,
    name: String,
    folder: TempDir,
    library: PathBuf,
}

impl Stage {
    /// Starts the agent.
    ///
    /// # Panics
    /// If it does not start, or the library was not built.
    pub fn new(agent: &Program) -> Stage {
        let library = env::current_exe().expect("a test is a program").with_file_name("libsovia_preload.so");
        assert!(library.exists(), "{library:?} is not there: cargo build -p viaduct-preload");
        let folder = TempDir::new("preload");
        folder.open_to_all();
        let name = format!("viaduct-test-{}", folder.path().display()).replace('/', "-");
        fs::write(folder.join("always"), "always\n").expect("the folder is new and ours");
        let mut agent = agent.spawn(&[&name]);
        agent.expect_line("ready", Duration::from_secs(60));
        Stage { agent, name, folder, library }
    }

    /// A command that runs under the library.
    pub fn under(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_PRELOAD", &self.library).env("VIADUCT_CLAIM", &self.name);
        // Scenarios make many short connections, which are to be upgraded all the same.
        command.env("VIADUCT_AGENT_PROGRAM", "off").env("VIADUCT_RULES", self.folder.join("always"));
        command.env("VIADUCT_EXPLAIN", self.folder.join("explain"));
        command
    }

    /// A command that runs under the library if `with`, else without.
    pub fn maybe(&self, with: bool, program: impl AsRef<Path>) -> Command {
        if with { self.under(program) } else { Command::new(program.as_ref()) }
    }

    /// What was noted about connections so far.
    pub fn notes(&self) -> String {
        fs::read_to_string(self.folder.join("explain")).unwrap_or_default()
    }

    /// Directions that were upgraded so far, counted at both ends.
    pub fn upgrades(&self) -> usize {
        self.notes().lines().filter(|line| line.contains(" upgraded: ")).count()
    }

    /// A folder of this test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The library, as built.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The name at which the agent takes claims.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kills the agent and starts another in its place.
    pub fn replace_agent(&mut self, agent: &Program) {
        self.kill_agent();
        self.agent = agent.spawn(&[&self.name]);
        self.agent.expect_line("ready", Duration::from_secs(60));
    }

    /// What the agent has counted: a number and what became of so many connections a line.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn counts(&self) -> String {
        let channel = Channel::connect_abstract(self.name.as_bytes()).expect("the agent is there");
        assert!(channel.send(&wire::question(), &[]).expect("it reads"), "it has room");
        let mut text = vec![0; wire::COUNTS];
        loop {
            match channel.recv(&mut text, &mut Vec::new(), 0).expect("it answers") {
                Recv::Message(len) => return String::from_utf8_lossy(&text[..len]).into_owned(),
                Recv::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                Recv::Closed => panic!("the agent hung up"),
            }
        }
    }

    /// Kills the agent. It is gone afterwards, and its name is free: the kernel closes its sockets some time after the signal
    /// was sent, but before its end can be waited for.
    pub fn kill_agent(&mut self) {
        self.agent.kill();
        self.agent.wait(Duration::from_secs(60));
    }
}
