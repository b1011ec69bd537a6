//! How many requests a second the store answers as it is written, beside the store that uses unsafe slices.
//!
//! Both servers are processes, this one is a client of each. They are asked by turns, so that both have the same machine; every
//! answer is compared with the value. A line is of one kind of request and one length: the medians of the rounds, and the ratio, round by
//! round, with the interval in which its median lies in 19 of 20 runs.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use viaduct_net::{Error, NetAddress};

use super::{Client, PATIENCE, raw};

/// Seconds of one turn.
pub(super) const TURN: f64 = 0.1;
const ROUNDS: usize = 11;
const LENGTHS: [usize; 3] = [64, 16 << 10, 128 << 10];
const KEY: &[u8] = b"key";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Call<'a> = &'a mut dyn FnMut(u8, &[u8]) -> Result<(u8, Vec<u8>), Error>;

/// A server that ends with this process.
struct Server(Child);

impl Server {
    fn start(verb: &str, name: &str) -> Outcome<Server> {
        Ok(Server(Command::new(std::env::current_exe()?).args([verb, name]).spawn()?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended by itself
        let _ = self.0.wait();
    }
}

/// Prints a line for each kind of request and each length.
pub(super) fn measure(seconds: f64) -> Outcome<()> {
    let [safe, by_hand] = ["safe", "unsafe"].map(|kind| format!("kv-{kind}-{}", std::process::id()));
    let _servers = [Server::start("serve", &safe)?, Server::start("serve-raw", &by_hand)?];
    let mut safe = patiently(|| Client::connect(viaduct_net::open()?, &address(&safe)?))?;
    let mut by_hand = patiently(|| raw::Client::connect(viaduct_net::open()?, &address(&by_hand)?))?;
    println!("request   length   as written/s   unsafe/s   as written against unsafe");
    for length in LENGTHS {
        let value: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        for (operation, name) in [(b'P', "put"), (b'G', "get")] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(turn(&mut |op, value| safe.call(op, KEY, value), operation, &value, seconds)?);
                theirs.push(turn(&mut |op, value| by_hand.call(op, KEY, value), operation, &value, seconds)?);
            }
            let ratios = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
            let [middle, low, high] = median(ratios);
            let (ours, theirs) = (median(ours)[0], median(theirs)[0]);
            println!("{name:9} {length:6} {ours:14.0} {theirs:10.0}   {middle:.2} [{low:.2}, {high:.2}]");
        }
    }
    Ok(())
}

/// Requests a second.
fn turn(call: Call<'_>, operation: u8, value: &[u8], seconds: f64) -> Outcome<f64> {
    let (sent, expected): (&[u8], &[u8]) = if operation == b'P' { (value, &[]) } else { (&[], value) };
    let (start, mut count) = (Instant::now(), 0_u64);
    while count == 0 || start.elapsed().as_secs_f64() < seconds {
        let (status, answer) = call(operation, sent)?;
        if status != 0 || answer != expected {
            return Err("the answer is not what was stored".into());
        }
        count += 1;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn address(name: &str) -> Result<NetAddress, Error> {
    name.parse()
}

/// Tries again as long as the server does not listen yet, or has no room.
fn patiently<T>(connect: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        match connect() {
            Err(Error::NoMatch(_) | Error::NoRoom { .. }) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5))
            }
            done => return done,
        }
    }
}

/// The median of numbers, and the interval between those by which it lies in 19 of 20 cases, whatever their distribution.
fn median(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let (n, last) = (numbers.len() as f64, numbers.len() - 1);
    let low = ((n - 1.96 * n.sqrt()) / 2.0).floor().max(0.0) as usize;
    [numbers[last / 2], numbers[low], numbers[last - low]]
}
