//! Servers and clients of the system: started on ports of their own, waited for, ended; and what their connections became.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use viaduct_kit::effort::scaled;
use viaduct_kit::packages::{find_program, skip};

/// How long a server has to end when it is asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A server that ends with the test, and whatever it has started.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts it and waits until the port answers.
    ///
    /// # Panics
    /// If it ends before that.
    pub fn start(command: &Command, port: u16) -> Server {
        let mut server = Server::start_silently(command);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "{command:?} has ended: {ended:?}");
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Its process, or that of what started it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts it without waiting.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_silently(command: &Command) -> Server {
        let mut tied = tied(command);
        tied.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        Server { child: tied.spawn().unwrap_or_else(|error| panic!("{tied:?}: {error}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
        let end = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The command, killed by the kernel when this thread ends, however it ends.
fn tied(command: &Command) -> Command {
    let mut tied = match find_program("setpriv") {
        Some(setpriv) => {
            let mut tied = Command::new(setpriv);
            tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
            tied
        }
        None => Command::new(command.get_program()),
    };
    tied.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(name, value),
            None => tied.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        tied.current_dir(folder);
    }
    tied
}

/// A port that was free a moment ago, below those that the kernel gives to clients.
///
/// # Panics
/// If none is found.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..10_000 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Tests in other processes start elsewhere.
        let spread = std::process::id().wrapping_mul(7919).wrapping_add(number.wrapping_mul(31)) % 20_000;
        let port = 10_000 + spread as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// What a program said on standard output.
///
/// # Panics
/// If it failed.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}

/// Bytes that do not repeat soon, for files.
pub fn bytes(count: usize) -> Vec<u8> {
    let words = (0..count as u64 / 8 + 1).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    bytes.truncate(count);
    bytes
}

/// Waits until something holds; a watchdog ends what takes too long.
pub fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether something holds soon; for what need not come true.
pub fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + scaled(Duration::from_secs(10));
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The program `viaduct` of this build, or `None` after having logged that this test is skipped for want of it.
pub fn need_viaduct() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let found =
        own.ancestors().skip(1).take(2).map(|folder| folder.join("viaduct")).find(|file| file.exists());
    if found.is_none() {
        skip("the program viaduct is not built (cargo build -p viaduct)");
    }
    found
}

/// A file of the system, or `None` after having logged that this test is skipped for want of it.
pub fn need_file(file: impl Into<PathBuf>, package: &str) -> Option<PathBuf> {
    let file = file.into();
    if file.exists() {
        return Some(file);
    }
    skip(&format!("{} not found (apt-get install {package})", file.display()));
    None
}

/// Connections of which at least one direction was upgraded, by the names of their ends.
pub fn upgraded(notes: &str) -> BTreeSet<[&str; 2]> {
    notes
        .lines()
        .filter_map(parse)
        .filter(|(_, verdict)| verdict.starts_with("upgraded"))
        .map(|(ends, _)| ends)
        .collect()
}

/// Why connections stayed on TCP, with the number of ends for which that was said.
pub fn reasons(notes: &str) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for reason in
        notes.lines().filter_map(parse).filter_map(|(_, verdict)| verdict.strip_prefix("stays on TCP: "))
    {
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

/// Processes that upgraded a direction of a connection with this port at one end.
pub fn upgraders(notes: &str, port: u16) -> BTreeSet<&str> {
    let end = format!(":{port}");
    let lines = notes.lines().filter(|line| {
        parse(line).is_some_and(|(ends, verdict)| {
            verdict.starts_with("upgraded") && ends.iter().any(|name| name.ends_with(&end))
        })
    });
    lines.filter_map(|line| line.split(' ').next()).collect()
}

/// `PID fd N OWN -> PEER VERDICT`: the ends in order, and the verdict.
fn parse(line: &str) -> Option<([&str; 2], &str)> {
    let mut words = line.splitn(7, ' ');
    let own = words.nth(3)?;
    let (arrow, peer, verdict) = (words.next()?, words.next()?, words.next()?);
    (arrow == "->").then_some(())?;
    let mut ends = [own, peer];
    ends.sort_unstable();
    Some((ends, verdict))
}

/// The name of the user that this process is.
pub fn user_name() -> String {
    output(Command::new("id").arg("-un")).trim().to_owned()
}

/// The source folder of this package.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &str = "\
12 fd 5 127.0.0.1:7000 -> 127.0.0.1:41000 upgraded: sends through shared memory
13 fd 6 127.0.0.1:41000 -> 127.0.0.1:7000 upgraded: receives through shared memory
12 fd 0 127.0.0.1:7001 -> 127.0.0.1:41001 stays on TCP: it has urgent data in its stream
nonsense
";

    #[test]
    fn connections_are_counted_once_for_both_ends() {
        assert_eq!(upgraded(NOTES).into_iter().collect::<Vec<_>>(), [["127.0.0.1:41000", "127.0.0.1:7000"]]);
        assert_eq!(reasons(NOTES), BTreeMap::from([("it has urgent data in its stream", 1)]));
        assert_eq!(upgraders(NOTES, 7000), BTreeSet::from(["12", "13"]));
        assert_eq!(upgraders(NOTES, 7001), BTreeSet::new());
    }

    #[test]
    fn ports_are_free_and_differ() {
        let (one, two) = (free_port(), free_port());
        assert_ne!(one, two);
        assert!(TcpListener::bind(("127.0.0.1", one)).is_ok());
    }
}
