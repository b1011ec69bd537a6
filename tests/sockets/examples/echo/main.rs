//! An echo by hyper, by axum and by tonic over Viaduct, against the same over TCP: two processes, one connection, one call after
//! the other, in turns so that both have the same machine.
//!
//! ```sh
//! cargo run --release -p viaduct-sockets --example echo [-- SECONDS [one|many|main [COPIES]]]
//! ```
//!
//! `one` is tokio's runtime of one thread, `many` the one that `#[tokio::main]` makes, a thread for each core; both ends have one of
//! a kind, and the calls are made by a task. `main` is `many` with a client that calls in the future of `main` itself, on a thread
//! that is none of the runtime's. `COPIES` has so many of them at once, each with a connection and two processes of its own
//! (`copies.rs`). Every answer is compared with what was sent before its time counts. The last lines are the medians of the rounds' ratios,
//! with an interval in which the median lies in 19 of 20 runs.

mod copies;

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use viaduct_sockets::{Network, grpc, http};
use viaduct_sovia::{Config, Sovia};
use viaduct_via::Nic;

const BODY: usize = 64;
const ROUNDS: u32 = 21;
const PROGRAMS: [&str; 3] = ["hyper", "axum", "tonic"];
const NETWORKS: [&str; 2] = ["tcp", "via"];
const RUNTIMES: [&str; 3] = ["one", "many", MAIN];
const MAIN: &str = "main";

type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Anything<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", program, network, threads] => serve(program, network, threads),
        ["copy", seconds, threads] => compare(time(seconds)?, &[threads], copies::await_turn),
        [] => compare(Duration::from_secs(20), &RUNTIMES, || Ok(())),
        [seconds] => compare(time(seconds)?, &RUNTIMES, || Ok(())),
        [seconds, threads] => compare(time(seconds)?, &[threads], || Ok(())),
        [seconds, threads, count] => copies::run(count.parse()?, seconds, threads),
        _ => Err(
            "three arguments: the seconds that all of it may take, the runtime (one, many or main), and how \
                  many are run at once"
                .into(),
        ),
    }
}

fn time(seconds: &str) -> Anything<Duration> {
    Ok(Duration::try_from_secs_f64(seconds.parse()?)?)
}

fn runtime(threads: &str) -> io::Result<Runtime> {
    match threads {
        "one" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    }
    .enable_all()
    .build()
}

fn network(name: &str) -> Anything<Network> {
    if name == "tcp" {
        return Ok(Network::Tcp);
    }
    let config = viaduct_providers::Config::from_variables(|name| std::env::var(name).ok())?;
    let provider = viaduct_providers::open("shm", &config)?;
    Ok(Network::via(Sovia::open(Nic::open(provider)?, Config::default())?)?)
}

/// The other process: tells its address and serves until its input ends, which it does with the first one.
fn serve(program: &str, name: &str, threads: &str) -> Anything<()> {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    runtime(threads)?.block_on(async {
        let (door, address) =
            network(name)?.listen(&format!("echo-{program}-{}", std::process::id())).await?;
        println!("{address}");
        match program {
            "hyper" => Ok(http::serve(door).await?),
            "axum" => Ok(http::serve_by_axum(door).await?),
            _ => Ok(grpc::serve(door).await?),
        }
    })
}

/// A served program with one client.
struct Side {
    runtime: Runtime,
    /// The calls are made by the thread that waits for the runtime, and by no task.
    in_main: bool,
    /// There unless a task has it.
    client: Option<Client>,
    server: Child,
    /// Nanoseconds of each call.
    calls: Vec<u64>,
    /// Of each round: requests a second, and the median of its calls in nanoseconds.
    rates: Vec<f64>,
    medians: Vec<f64>,
}

enum Client {
    Http(http::Client),
    Grpc(grpc::Client),
}

impl Side {
    fn open(program: &str, name: &str, threads: &str) -> Anything<Side> {
        let mut server = Command::new(std::env::current_exe()?)
            .args(["serve", program, name, threads])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        let runtime = runtime(threads)?;
        let client = runtime.block_on(async {
            let network = network(name)?;
            Anything::Ok(match program {
                "hyper" | "axum" => Client::Http(http::Client::connect(&network, address.trim()).await?),
                _ => Client::Grpc(grpc::Client::connect(&network, address.trim()).await?),
            })
        })?;
        let client = Some(client);
        let (calls, rates, medians) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Side { runtime, in_main: threads == MAIN, client, server, calls, rates, medians })
    }

    fn run(&mut self, time: Duration) -> Anything<()> {
        let mut client = self.client.take().ok_or("a client that failed")?;
        let (start, before) = (Instant::now(), self.calls.len());
        let asking = async move {
            let (body, mut calls) = (Bytes::from(vec![b'v'; BODY]), Vec::new());
            while start.elapsed() < time {
                let begin = Instant::now();
                let back = match &mut client {
                    Client::Http(client) => client.post("/echo", body.clone()).await?.1,
                    Client::Grpc(client) => client.echo(body.clone()).await?,
                };
                if back != body {
                    return Err("the answer is not what was sent".into());
                }
                calls.push(begin.elapsed().as_nanos() as u64);
            }
            Anything::Ok((client, calls))
        };
        let (client, calls) = if self.in_main {
            self.runtime.block_on(asking)?
        } else {
            self.runtime.block_on(self.runtime.spawn(asking))??
        };
        self.client = Some(client);
        self.calls.extend(calls);
        self.rates.push((self.calls.len() - before) as f64 / start.elapsed().as_secs_f64());
        let new = &mut self.calls[before..];
        new.sort_unstable();
        self.medians.push(new[new.len() / 2] as f64);
        Ok(())
    }

    fn end(mut self) -> Result<Side, io::Error> {
        drop(self.server.stdin.take());
        self.server.wait()?;
        self.calls.sort_unstable();
        Ok(self)
    }

    /// Microseconds that this share of the calls took at most.
    fn at(&self, share: f64) -> f64 {
        self.calls[((self.calls.len() - 1) as f64 * share) as usize] as f64 / 1e3
    }
}

/// The median of numbers, and the interval between those by which it lies in 19 of 20 cases, whatever their distribution.
fn median(mut numbers: Vec<f64>) -> String {
    numbers.sort_unstable_by(f64::total_cmp);
    let (n, last) = (numbers.len() as f64, numbers.len() - 1);
    let low = ((n - 1.96 * n.sqrt()) / 2.0).floor().max(0.0) as usize;
    format!("{:.2} [{:.2}, {:.2}]", numbers[last / 2], numbers[low], numbers[last - low])
}

/// Measures programs and networks in turns, each of which begins once `turn` has returned.
fn compare(time: Duration, runtimes: &[&str], turn: impl Fn() -> Anything<()>) -> Anything<()> {
    let slice = time / (ROUNDS * (PROGRAMS.len() * NETWORKS.len() * runtimes.len()) as u32);
    println!("threads  program  network   requests/s    p50 us    p99 us");
    let mut ratios = Vec::new();
    for (threads, program) in runtimes.iter().flat_map(|r| PROGRAMS.map(|p| (r, p))) {
        let opened = NETWORKS.map(|name| Side::open(program, name, threads));
        let mut sides = opened.into_iter().collect::<Result<Vec<_>, _>>()?;
        for round in 0..ROUNDS {
            for side in &mut sides {
                turn()?;
                side.run(slice)?;
                if round == 0 {
                    // The first was to warm up.
                    (side.calls, side.rates, side.medians) = (Vec::new(), Vec::new(), Vec::new());
                }
            }
        }
        let sides = sides.into_iter().map(Side::end).collect::<Result<Vec<_>, _>>()?;
        for (name, side) in NETWORKS.iter().zip(&sides) {
            let mut rates = side.rates.clone();
            rates.sort_unstable_by(f64::total_cmp);
            let (rate, p50, p99) = (rates[rates.len() / 2], side.at(0.5), side.at(0.99));
            println!("{threads:<8} {program:<8} {name:<8} {rate:>11.0} {p50:>9.1} {p99:>9.1}");
        }
        let (tcp, via) = (&sides[0], &sides[1]);
        let by_round = |via: &[f64], tcp: &[f64]| median(via.iter().zip(tcp).map(|(v, t)| v / t).collect());
        ratios.push((
            threads,
            program,
            by_round(&via.rates, &tcp.rates),
            by_round(&via.medians, &tcp.medians),
        ));
    }
    for (threads, program, rate, p50) in ratios {
        println!(
            "{threads}, {program}: via has {rate} times the requests per second of tcp, and {p50} times its p50"
        );
    }
    Ok(())
}
