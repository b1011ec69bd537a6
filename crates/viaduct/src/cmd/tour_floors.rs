//! The tour through what stands on VIA: unmodified programs, a job, MPI, shared memory, a sort. A few seconds each.
//!
//! Each part runs the command that its heading names, by this program, so that what is shown is what a user gets. A part that
//! misses something (a C compiler) says so, and the tour goes on.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::tour::section;
use crate::cli::{Format, TourTcpArgs};
use crate::output::table;

/// A part that is one command: its title, and the words.
const PARTS: [(&str, &str); 4] = [
    ("A job of four ranks", "launch -n 4 --label -- uname -s"),
    (
        "Memory that processes share, checked against the sequential program",
        "dsm sor --nodes 2 --procs 2 --check --quiet",
    ),
    ("A million records, sorted from disk to disk, beside other programs", "bench sort-1m --launches 3"),
    ("MPI, beside other libraries", "bench mpi-latency --quick --sizes 8,64K"),
];

/// Walks through the floors. Whether all went well.
pub(super) fn walk(first: u32) -> Result<bool> {
    let program = std::env::current_exe().context("our own program")?;
    section(
        first,
        "An unmodified program over TCP, alone and under `viaduct run`",
        "viaduct run -- PROGRAM",
    )?;
    let mut good = complained(ping_pong());
    for (number, (title, words)) in (first + 1..).zip(PARTS) {
        section(number, title, &format!("viaduct {words}"))?;
        let status = Command::new(&program).args(words.split(' ')).stdin(Stdio::null()).status();
        good &= complained(status.context("starting it").and_then(|status| {
            ensure!(status.success(), "it ended with {status}");
            Ok(())
        }));
    }
    Ok(good)
}

fn complained(done: Result<()>) -> bool {
    if let Err(why) = &done {
        let _ = writeln!(io::stderr(), "viaduct: this part failed: {why:#}");
    }
    done.is_ok()
}

/// Bytes that go there and back.
const LENGTH: usize = 64;
/// Round trips.
const ROUNDS: u32 = 20_000;
/// Round trips that are not timed: connections move to shared memory in their first ones.
const FIRST: u32 = 2_000;
/// How often each way is tried.
const TIMES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(20);

/// A ping-pong over TCP by a program that knows nothing of Viaduct, in two ways by turns.
fn ping_pong() -> Result<()> {
    let (mut plain, mut under) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        plain.push(round_trip(&[])?);
        under.push(round_trip(&["run", "--"])?);
    }
    let [plain, under] = [plain, under].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[TIMES / 2]
    });
    let row = |way: &str, time: f64| [way.to_owned(), format!("{time:.2}"), format!("{:.1}x", plain / time)];
    let rows = vec![row("TCP", plain), row("TCP under viaduct run", under)];
    table::print(Format::Table, ["64 bytes there and back", "us, median of 3", "faster"], rows)?;
    Ok(())
}

/// One server and one client of it, both started with these words before them. Microseconds.
fn round_trip(before: &[&str]) -> Result<f64> {
    let program = std::env::current_exe().context("our own program")?;
    let start = |words: &[String]| {
        let mut command = Command::new(&program);
        // `run --` stands before the program that it runs: this one, too.
        command.args(before).args((!before.is_empty()).then_some(&program)).arg("tour-tcp").args(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map(Ended)
            .context("starting a program over TCP")
    };
    let mut server = start(&[])?;
    let port = server.line()?;
    let mut client = start(&["--connect".to_owned(), port])?;
    client.line()?.parse().context("the client's answer")
}

/// A child that is gone when this is dropped.
struct Ended(Child);

impl Ended {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().context("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Body of the hidden verb: answers one client, or is one and prints the microseconds of a round trip.
pub(crate) fn tcp(args: &TourTcpArgs) -> Result<ExitCode> {
    let mut message = [0; LENGTH];
    match args.connect {
        None => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            while stream.read_exact(&mut message).is_ok() {
                stream.write_all(&message)?;
            }
        }
        Some(port) => {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut begin = Instant::now();
            for round in 0..FIRST + ROUNDS {
                if round == FIRST {
                    begin = Instant::now();
                }
                let sent = [round as u8; LENGTH];
                stream.write_all(&sent)?;
                stream.read_exact(&mut message)?;
                ensure!(message == sent, "round {round}: other bytes came back");
            }
            writeln!(io::stdout(), "{}", begin.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
