//! `viaduct run`: an unmodified program over Viaduct, and the agent that its connections need.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use viaduct_agent::local;
use viaduct_intercept::agent::Claims;
use viaduct_intercept::carry;
use viaduct_intercept::rules::Rules;
use viaduct_intercept::settings::agent_name;
use viaduct_intercept::wire;
use viaduct_os::bare::start;
use viaduct_os::fdpass::{Channel, Recv};
use viaduct_os::{children, process};

use crate::cli::run::{ClaimsArgs, RunArgs};
use crate::cmd::launch::seconds;

/// The library that is preloaded.
const LIBRARY: &str = "libsovia_preload.so";
/// Names it if it is not where it is looked for.
const LIBRARY_VARIABLE: &str = "VIADUCT_PRELOAD";
const NAME_VARIABLE: &str = "VIADUCT_CLAIM";
const PROGRAM_VARIABLE: &str = "VIADUCT_AGENT_PROGRAM";
const RULES_VARIABLE: &str = "VIADUCT_RULES";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let (program, rest) = args.program.split_first().context("a program is needed")?;
    let library = library()?;
    if is_bare(program) {
        let name = Path::new(program).display();
        writeln!(
            io::stderr(),
            "viaduct: {name} does not go through libc (static, or Go) and runs unaccelerated"
        )?;
    }
    if !args.no_upgrade {
        provide_agent()?;
    }
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", preload(&library));
    if let Ok(own) = std::env::current_exe() {
        command.env(PROGRAM_VARIABLE, own); // where the agent is gone when a connection needs it
    }
    if let Some(path) = rules()? {
        command.env(RULES_VARIABLE, path);
    }
    if args.no_upgrade {
        command.env("VIADUCT_RUN", "never");
    }
    if args.explain { explained(command) } else { Ok(cannot_run(program, &command.exec())) }
}

/// Serves claims until no one needs it.
pub(crate) fn claims(args: &ClaimsArgs) -> Result<ExitCode> {
    children::leave_session()?;
    let name = args.name.clone().map_or_else(name, String::into_bytes);
    let mut claims = Claims::new(&name)?;
    local::serve(&mut [&mut claims], seconds(args.idle)?)?;
    Ok(ExitCode::SUCCESS)
}

/// What this user's agent has counted, a row each: how many connections, and what became of them. None if there is no agent.
pub(crate) fn counts() -> Vec<(u64, String)> {
    counts_of(&name())
}

/// How many connections the agent of this name has upgraded.
pub(crate) fn upgraded(agent: &str) -> u64 {
    counts_of(agent.as_bytes()).first().map_or(0, |(count, _)| *count)
}

/// What the agent of this name has counted.
fn counts_of(name: &[u8]) -> Vec<(u64, String)> {
    let ask = || {
        let channel = Channel::connect_abstract(name).ok()?;
        let ours = channel.peer().is_ok_and(|peer| peer.uid == process::effective_uid());
        if !ours || !channel.send(&wire::question(), &[]).ok()? {
            return None;
        }
        let mut text = vec![0; wire::COUNTS];
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match channel.recv(&mut text, &mut Vec::new(), 0).ok()? {
                Recv::Message(len) => return Some(String::from_utf8_lossy(&text[..len]).into_owned()),
                Recv::Closed => return None,
                Recv::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    };
    let row = |line: &str| {
        line.split_once(' ').and_then(|(count, what)| Some((count.parse().ok()?, what.to_owned())))
    };
    ask().unwrap_or_default().lines().filter_map(row).collect()
}

fn name() -> Vec<u8> {
    match std::env::var(NAME_VARIABLE) {
        Ok(name) => name.into_bytes(),
        Err(_) => agent_name(process::effective_uid()).as_c_str().to_bytes().to_vec(),
    }
}

/// Beside this program, as built; in the folder for libraries, as installed.
fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("our own program")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = ["", "deps", "../lib", "../lib/viaduct"].map(|place| folder.join(place).join(LIBRARY));
    match places.iter().find(|path| path.exists()) {
        Some(path) => Ok(path.canonicalize()?),
        None => bail!("{LIBRARY} is not beside {} (or set {LIBRARY_VARIABLE})", own.display()),
    }
}

/// The file with the user's rules, if there is one; read once, so that mistakes are said here.
fn rules() -> Result<Option<PathBuf>> {
    let named = std::env::var_os(RULES_VARIABLE).map(PathBuf::from);
    let usual = || {
        let base = std::env::var_os("XDG_CONFIG_HOME").filter(|base| !base.is_empty()).map(PathBuf::from);
        let base = base.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".config")))?;
        Some(base.join("viaduct/rules")).filter(|path| path.exists())
    };
    let Some(path) = named.or_else(usual) else { return Ok(None) };
    let text = std::fs::read(&path).with_context(|| format!("{}: the file with rules", path.display()))?;
    if let (_, Some(line)) = Rules::parse(&text, b"") {
        bail!(
            "{}, line {line}: never or always, then program NAME, address A/BITS, port N-M, is wanted",
            path.display()
        );
    }
    Ok(Some(path))
}

/// Ours before what is preloaded already.
fn preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

/// Starts the agent if there is none, and waits until it answers.
fn provide_agent() -> Result<()> {
    let name = name();
    if Channel::connect_abstract(&name).is_ok() {
        return Ok(());
    }
    let own = std::env::current_exe().context("our own program")?;
    let own = CString::new(own.into_os_string().into_vec())?;
    let variable = CString::new([NAME_VARIABLE.as_bytes(), b"=", &name].concat())?;
    // Apart: the program that this process becomes has no child that it does not know, and the agent holds no
    // descriptor of the caller's (a lock, a pipe) for as long as it lives.
    start::apart(&[&own, c"agent", c"claims"], &[&variable]);
    let end = Instant::now() + PATIENCE;
    // Two at once start two: the one that finds the name taken ends, and the other answers.
    while Channel::connect_abstract(&name).is_err() {
        if Instant::now() >= end {
            bail!("the agent does not answer; `viaduct agent claims`, by hand, says why");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Runs the program to its end, then shows what was noted about its connections.
fn explained(mut command: Command) -> Result<ExitCode> {
    let file = new_file()?;
    command.env("VIADUCT_EXPLAIN", &file);
    let program = command.get_program().to_owned();
    let ended = match command.status() {
        Ok(ended) => ended,
        Err(error) => return Ok(cannot_run(&program, &error)),
    };
    let notes = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    let mut out = io::stderr().lock();
    for line in notes.lines() {
        writeln!(out, "viaduct: {line}")?;
    }
    if notes.is_empty() {
        writeln!(out, "viaduct: no connection over TCP was used")?;
    }
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    Ok(ExitCode::from(code as u8))
}

/// A file of this user's, which was not there: others may write into the folder for temporary files, too.
fn new_file() -> Result<PathBuf> {
    let folder = std::env::temp_dir();
    let made = (0..100).find_map(|number| {
        let file = folder.join(format!("viaduct-explain-{}-{number}", std::process::id()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).ok().map(|_| file)
    });
    made.with_context(|| format!("no file for notes can be made in {}", folder.display()))
}

/// Says why, and gives the status that a shell would: 127 for a program that is not there, 126 for one that cannot be run.
fn cannot_run(program: &OsStr, error: &io::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "viaduct: {}: {error}", Path::new(program).display());
    // A folder of the path that may not be entered hides from the kernel's answer that no folder has the program.
    let absent = error.kind() == io::ErrorKind::NotFound || find(program).is_none();
    ExitCode::from(if absent { 127 } else { 126 })
}

/// Whether it is a program that preloads nothing: without a loader, or one that enters the kernel past libc.
fn is_bare(program: &OsStr) -> bool {
    let Some(path) = find(program) else { return false };
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_end(&mut head));
    read.is_ok() && carry::form(&head) == carry::Form::Bare
}

fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|file| file.is_file())
}
