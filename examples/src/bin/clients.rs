//! Many clients of one server: how many requests each of them gets answered, and how long single ones take, beside Unix sockets.
//!
//! ```text
//!   clients                       eight clients: over VIA, over streams, over Unix sockets, two seconds of each
//!   clients 4 5 via unix          four clients, five seconds of each of these two
//! ```
//!
//! Server and clients are processes of their own, free to run on any core. A request has 16 bytes and its answer 64; every
//! client asks again as soon as it has the answer, which it compares with what it asked. The kinds are run by turns, so that all have the
//! same machine, and each number is the median of the rounds. Fairness is the fewest requests of a client against the mean. The last
//! lines are ratios to Unix sockets, round by round, with the interval in which the median lies in 19 of 20 runs.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use viaduct_net::{Arrival, Nic, Queue, Vi, ViAttributes};

const KINDS: [&str; 3] = ["via", "streams", "unix"];
const ROUNDS: usize = 7;
const REQUEST: usize = 16;
const ANSWER: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
/// Sends a request and gives its answer.
type Ask = Box<dyn FnMut(&[u8; REQUEST]) -> Outcome<[u8; ANSWER]>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", kind, place] => serve(kind, place),
        ["client", kind, place, seconds] => client(kind, place, Duration::from_secs_f64(seconds.parse()?)),
        ref words => {
            let (numbers, kinds): (Vec<&str>, Vec<&str>) =
                words.iter().copied().partition(|word: &&str| word.parse::<f64>().is_ok());
            let clients = numbers.first().map_or(Ok(8), |n| n.parse())?;
            let seconds: f64 = numbers.get(1).map_or(Ok(2.0), |n| n.parse())?;
            let kinds = if kinds.is_empty() { KINDS.to_vec() } else { kinds };
            compare(&kinds, clients, seconds / ROUNDS as f64)
        }
    }
}

/// Requests a second of all clients, the fewest, the mean and the most requests of one, fairness, and in microseconds the median and the
/// 99th percentile of the middle client, and the worst 99th percentile.
type Round = [f64; 8];

/// Runs the kinds by turns, and prints a line for each, and one for its ratios.
fn compare(kinds: &[&str], clients: usize, seconds: f64) -> Outcome<()> {
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            rounds.push(round(kind, clients, seconds)?);
        }
    }
    println!("kind     requests/s   fewest     mean     most   fairness   p50 us   p99 us   worst p99");
    for (kind, rounds) in kinds.iter().zip(&rounds) {
        let at = |column: usize| median(rounds.iter().map(|round| round[column]).collect())[0];
        let counts = format!("{:10.0} {:8.0} {:8.0} {:8.0} {:10.2}", at(0), at(1), at(2), at(3), at(4));
        println!("{kind:8} {counts} {:8.1} {:8.1} {:11.1}", at(5), at(6), at(7));
    }
    let Some(unix) = kinds.iter().position(|kind| *kind == "unix") else { return Ok(()) };
    for (kind, rounds_of_it) in kinds.iter().zip(&rounds).filter(|(kind, _)| **kind != "unix") {
        let ratio = |column: usize| {
            let pairs = rounds_of_it.iter().zip(&rounds[unix]);
            let [middle, low, high] = median(pairs.map(|(a, b)| a[column] / b[column]).collect());
            format!("{middle:.2} [{low:.2}, {high:.2}]")
        };
        println!(
            "{kind} against unix: requests {}, p99 {}, worst client's p99 {}",
            ratio(0),
            ratio(6),
            ratio(7)
        );
    }
    Ok(())
}

/// The median of numbers, and the interval between those by which it lies in 19 of 20 cases, whatever their distribution.
fn median(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let (n, last) = (numbers.len() as f64, numbers.len() - 1);
    let low = ((n - 1.96 * n.sqrt()) / 2.0).floor().max(0.0) as usize;
    [numbers[last / 2], numbers[low], numbers[last - low]]
}

/// Starts a server and its clients, and waits for what they have measured.
fn round(kind: &str, clients: usize, seconds: f64) -> Outcome<Round> {
    let place = format!("clients-{}-{kind}", std::process::id());
    let place = if kind == "unix" { format!("{}/{place}", std::env::temp_dir().display()) } else { place };
    let mut server = start(&["server", kind, &place])?;
    let measured = ask_from(&mut server, kind, &place, clients, seconds);
    server.kill()?;
    server.wait()?;
    if kind == "unix" {
        std::fs::remove_file(&place)?;
    }
    let lines = measured?;
    let column = |at: usize| {
        let mut values: Vec<f64> = lines.iter().map(|line| line[at]).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (counts, p50, p99) = (column(0), column(1), column(2));
    let (sum, last): (f64, usize) = (counts.iter().sum(), clients - 1);
    let mean = sum / clients as f64;
    let (middle, fairness) = (clients / 2, counts[0] / mean);
    Ok([sum / seconds, counts[0], mean, counts[last], fairness, p50[middle], p99[middle], p99[last]])
}

/// What each client prints: the number of its answers, and two percentiles.
fn ask_from(
    server: &mut Child,
    kind: &str,
    place: &str,
    clients: usize,
    seconds: f64,
) -> Outcome<Vec<[f64; 3]>> {
    let ready = BufReader::new(server.stdout.take().ok_or("no output")?).lines().next();
    ready.ok_or("the server has ended")??;
    let seconds = seconds.to_string();
    let started: io::Result<Vec<Child>> =
        (0..clients).map(|_| start(&["client", kind, place, &seconds])).collect();
    let mut lines = Vec::new();
    for child in started? {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
        lines.push(<[f64; 3]>::try_from(numbers?).map_err(|_| "a client failed")?);
    }
    Ok(lines)
}

fn start(arguments: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()
}

fn serve(kind: &str, place: &str) -> Outcome<()> {
    match kind {
        "via" => serve_via(place),
        "streams" => {
            let listener = viaduct_net::open_streams()?.listen(place, 64)?;
            println!("ready");
            listener.incoming().for_each(|stream| drop(thread::spawn(move || answer(stream?))));
            Ok(())
        }
        _ => {
            let listener = UnixListener::bind(place)?;
            println!("ready");
            listener.incoming().for_each(|stream| drop(thread::spawn(move || answer(stream?))));
            Ok(())
        }
    }
}

fn serve_via(place: &str) -> Outcome<()> {
    let mut nic = viaduct_net::open()?;
    let (cq, listener) = (nic.create_cq(4096)?, nic.listen(&place.parse()?, 64)?);
    println!("ready");
    loop {
        match nic.wait_any(cq, listener, None)? {
            Arrival::Request(request) => {
                let vi = nic.create_vi(ViAttributes::default().cq(cq).depth(4))?;
                nic.vi(vi)?.post_receives(2, REQUEST)?;
                nic.accept(request, vi)?;
            }
            Arrival::Completion(done) if done.queue == Queue::Receive && done.status.is_success() => {
                let (vi, answer) = (done.vi, answer_to(done.bytes().unwrap_or_default()));
                nic.post_recv(vi, done.descriptor)?;
                let _ = nic.send_inline(vi, &answer, None); // a client that is gone shows below
            }
            Arrival::Completion(done) => nic.retire(done.vi)?,
        }
    }
}

fn answer(mut stream: impl Read + Write) -> io::Result<()> {
    let mut request = [0; REQUEST];
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&answer_to(&request))?;
        stream.flush()?;
    }
}

/// The request over and over.
fn answer_to(request: &[u8]) -> [u8; ANSWER] {
    let mut answer = [0; ANSWER];
    answer.iter_mut().zip(request.iter().cycle()).for_each(|(to, from)| *to = *from);
    answer
}

/// Asks for a while, and prints the number of answers, the median and the 99th percentile in microseconds.
fn client(kind: &str, place: &str, time: Duration) -> Outcome<()> {
    let mut ask: Ask = match kind {
        "via" => {
            let (mut nic, vi) = connect(place)?;
            Box::new(move |request| {
                nic.send_inline(vi, request, None)?;
                let message = nic.wait_recv(vi, Some(PATIENCE))?;
                let answer = message.bytes().unwrap_or_default().try_into()?;
                nic.post_recv(vi, message.descriptor)?;
                Ok(answer)
            })
        }
        "streams" => asking(viaduct_net::open_streams()?.connect(place)?),
        _ => asking(UnixStream::connect(place)?),
    };
    let (start, mut times) = (Instant::now(), Vec::with_capacity(1 << 20));
    let mut request = [0; REQUEST];
    while start.elapsed() < time {
        request[..8].copy_from_slice(&times.len().to_le_bytes());
        let asked = Instant::now();
        let answer = ask(&request)?;
        times.push(asked.elapsed().as_nanos() as u64);
        if answer != answer_to(&request) {
            return Err("the answer is not to what was asked".into());
        }
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)] as f64 / 1e3;
    println!("{} {} {}", times.len(), at(50), at(99));
    Ok(())
}

fn connect(place: &str) -> Outcome<(Nic, Vi)> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default().depth(4))?;
    nic.vi(vi)?.post_receives(2, ANSWER)?;
    nic.connect(vi, &place.parse()?).timeout(PATIENCE).wait()?;
    Ok((nic, vi))
}

fn asking(mut stream: impl Read + Write + 'static) -> Ask {
    Box::new(move |request| {
        stream.write_all(request)?;
        stream.flush()?;
        let mut answer = [0; ANSWER];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    })
}
