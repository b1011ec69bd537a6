//! An echo by hyper and by tonic over Viaduct, against the same over TCP: two processes, one connection, one call after
//! the other, in turns so that both have the same machine.
//!
//! ```sh
//! cargo run --release -p viaduct-sockets --example echo [-- SECONDS]
//! ```
//!
//! Every answer is compared with what was sent before its time counts. The last lines are the medians of the rounds' ratios,
//! with an interval in which the median lies in 19 of 20 runs.

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
const PROGRAMS: [&str; 2] = ["hyper", "tonic"];
const NETWORKS: [&str; 2] = ["tcp", "via"];

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", program, network] => serve(program, network),
        [] => compare(Duration::from_secs(10)),
        [seconds] => compare(Duration::from_secs_f64(seconds.parse()?)),
        _ => Err("one argument: the seconds that all of it may take".into()),
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
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
fn serve(program: &str, name: &str) -> Anything<()> {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    runtime()?.block_on(async {
        let (door, address) =
            network(name)?.listen(&format!("echo-{program}-{}", std::process::id())).await?;
        println!("{address}");
        match program {
            "hyper" => Ok(http::serve(door).await?),
            _ => Ok(grpc::serve(door).await?),
        }
    })
}

/// A served program with one client.
struct Side {
    runtime: Runtime,
    client: Client,
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
    fn open(program: &str, name: &str) -> Anything<Side> {
        let mut server = Command::new(std::env::current_exe()?)
            .args(["serve", program, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        let runtime = runtime()?;
        let client = runtime.block_on(async {
            let network = network(name)?;
            Anything::Ok(match program {
                "hyper" => Client::Http(http::Client::connect(&network, address.trim()).await?),
                _ => Client::Grpc(grpc::Client::connect(&network, address.trim()).await?),
            })
        })?;
        Ok(Side { runtime, client, server, calls: Vec::new(), rates: Vec::new(), medians: Vec::new() })
    }

    fn run(&mut self, time: Duration) -> Anything<()> {
        let body = Bytes::from(vec![b'v'; BODY]);
        let (start, before) = (Instant::now(), self.calls.len());
        while start.elapsed() < time {
            let begin = Instant::now();
            let back = self.runtime.block_on(async {
                Anything::Ok(match &mut self.client {
                    Client::Http(client) => client.post("/echo", body.clone()).await?.1,
                    Client::Grpc(client) => client.echo(body.clone()).await?,
                })
            })?;
            if back != body {
                return Err("the answer is not what was sent".into());
            }
            self.calls.push(begin.elapsed().as_nanos() as u64);
        }
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

fn compare(time: Duration) -> Anything<()> {
    let slice = time / (ROUNDS * 4);
    println!("program  network   requests/s    p50 us    p99 us");
    let mut ratios = Vec::new();
    for program in PROGRAMS {
        let mut sides =
            NETWORKS.map(|name| Side::open(program, name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        for round in 0..ROUNDS {
            for side in &mut sides {
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
            println!("{program:<8} {name:<8} {rate:>11.0} {p50:>9.1} {p99:>9.1}");
        }
        let (tcp, via) = (&sides[0], &sides[1]);
        let by_round = |via: &[f64], tcp: &[f64]| median(via.iter().zip(tcp).map(|(v, t)| v / t).collect());
        ratios.push((program, by_round(&via.rates, &tcp.rates), by_round(&via.medians, &tcp.medians)));
    }
    for (program, rate, p50) in ratios {
        println!("{program}: via has {rate} times the requests per second of tcp, and {p50} times its p50");
    }
    Ok(())
}
