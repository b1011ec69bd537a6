//! Several echoes at once, each with processes of its own: all of them over TCP, then all over Viaduct, turn by turn.
//!
//! A copy says that it is about to take a turn, and begins when it is told to. So no copy has the machine while others
//! are on the other network, which would give each network the load of both.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{Anything, NETWORKS};

/// What a copy says before each turn.
const TURN: &str = "turn";

/// Says that a turn is next, and waits until the other copies are as far.
pub(super) fn await_turn() -> Anything<()> {
    println!("{TURN}");
    match io::stdin().read_line(&mut String::new())? {
        0 => Err("the first process has ended".into()),
        _ => Ok(()),
    }
}

struct Program {
    process: Child,
    orders: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Program {
    fn start(seconds: &str, runtime: &str) -> Anything<Program> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["copy", seconds, runtime])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = process.stdin.take().ok_or("no input")?;
        let says = BufReader::new(process.stdout.take().ok_or("no output")?);
        Ok(Program { process, orders, says })
    }

    /// Shows what it says until its next turn. False at its end.
    fn listen(&mut self, number: usize, together: &mut Together) -> Anything<bool> {
        let mut line = String::new();
        while self.says.read_line(&mut line)? > 0 {
            if line.trim_end() == TURN {
                return Ok(true);
            }
            together.add(&line);
            print!("{number}: {line}");
            line.clear();
        }
        Ok(false)
    }
}

/// Requests a second of all copies, by program and network.
#[derive(Default)]
struct Together(Vec<(String, [f64; NETWORKS.len()])>);

impl Together {
    /// Takes the rate from a line of a copy's table.
    fn add(&mut self, line: &str) {
        let [_, program, network, rate, _, _] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return;
        };
        let (Some(network), Ok(rate)) =
            (NETWORKS.iter().position(|name| *name == network), rate.parse::<f64>())
        else {
            return;
        };
        let at = self.0.iter().position(|(name, _)| name == program).unwrap_or_else(|| {
            self.0.push((program.to_owned(), Default::default()));
            self.0.len() - 1
        });
        self.0[at].1[network] += rate;
    }
}

/// Runs copies of this program, and compares what all of them do in a second.
pub(super) fn run(count: usize, seconds: &str, runtime: &str) -> Anything<()> {
    let copies = (0..count).map(|_| Program::start(seconds, runtime));
    let (mut copies, mut together) = (copies.collect::<Result<Vec<_>, _>>()?, Together::default());
    loop {
        let mut ready = 0;
        for (number, copy) in copies.iter_mut().enumerate() {
            ready += usize::from(copy.listen(number + 1, &mut together)?);
        }
        match ready {
            0 => break,
            n if n == count => copies.iter_mut().try_for_each(|copy| writeln!(copy.orders))?,
            _ => return Err("a copy ended before the others".into()),
        }
    }
    for mut copy in copies {
        if !copy.process.wait()?.success() {
            return Err("a copy failed".into());
        }
    }
    for (program, [tcp, via]) in together.0 {
        let ratio = via / tcp;
        println!(
            "{runtime}, {program}, {count} at once: via has {ratio:.2} times the requests per second of tcp"
        );
    }
    Ok(())
}
