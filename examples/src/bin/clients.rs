//! Many clients of one server: how many requests each of them gets answered, and how long single ones take, beside Unix sockets.
//!
//! ```text
//!   clients                       eight clients: over VIA, over streams, over Unix sockets, two seconds of each
//!   clients 4 5 via unix          four clients, five seconds of each of these two
//! ```
//!
//! Server and clients are processes of their own, free to run on any core. A request has 16 bytes and its answer 64; every
//! client asks again as soon as it has the answer, which it compares with what it asked. The kinds are run by turns, so that all have the
//! same machine, and each number is the median of the rounds. Fairness is the fewest requests of a client against the mean. The p99 is
//! that of all requests of all clients taken together; beside it stand that of the middle client and the worst one's. The last
//! lines are ratios to Unix sockets, round by round, with the interval in which the median lies in 19 of 20 runs.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use viaduct_net::{Arrival, ConnRequest, Cq, Nic, Vi, ViAttributes};

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
/// 99th percentile of all requests together, the 99th percentile of the middle client, and the worst one's.
type Round = [f64; 9];

/// Runs the kinds by turns, and prints a line for each, and one for its ratios.
fn compare(kinds: &[&str], clients: usize, seconds: f64) -> Outcome<()> {
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            rounds.push(round(kind, clients, seconds)?);
        }
    }
    println!(
        "kind     requests/s   fewest     mean     most   fairness   p50 us   p99 us   middle p99   worst p99"
    );
    for (kind, rounds) in kinds.iter().zip(&rounds) {
        let at = |column: usize| median(rounds.iter().map(|round| round[column]).collect())[0];
        let counts = format!("{:10.0} {:8.0} {:8.0} {:8.0} {:10.2}", at(0), at(1), at(2), at(3), at(4));
        println!("{kind:8} {counts} {:8.1} {:8.1} {:12.1} {:11.1}", at(5), at(6), at(7), at(8));
    }
    let Some(unix) = kinds.iter().position(|kind| *kind == "unix") else { return Ok(()) };
    for (kind, rounds_of_it) in kinds.iter().zip(&rounds).filter(|(kind, _)| **kind != "unix") {
        let ratio = |column: usize| {
            let pairs = rounds_of_it.iter().zip(&rounds[unix]);
            let [middle, low, high] = median(pairs.map(|(a, b)| a[column] / b[column]).collect());
            format!("{middle:.2} [{low:.2}, {high:.2}]")
        };
        println!(
            "{kind} against unix: requests {}, p99 of all {}, middle client's p99 {}, worst client's p99 {}",
            ratio(0),
            ratio(6),
            ratio(7),
            ratio(8)
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
    Ok(figures(measured?, seconds))
}

/// The figures of a round, of the nanoseconds that the requests of each client took.
fn figures(mut times: Vec<Vec<u64>>, seconds: f64) -> Round {
    times.iter_mut().for_each(|times| times.sort_unstable());
    let mut counts: Vec<usize> = times.iter().map(Vec::len).collect();
    let mut p99s: Vec<f64> = times.iter().map(|times| percentile(times, 99)).collect();
    counts.sort_unstable();
    p99s.sort_by(f64::total_cmp);
    let mut all = times.concat();
    all.sort_unstable();
    let (sum, last) = (all.len() as f64, counts.len() - 1);
    let (mean, fewest, most) = (sum / counts.len() as f64, counts[0] as f64, counts[last] as f64);
    let (p50, p99, middle) = (percentile(&all, 50), percentile(&all, 99), p99s[p99s.len() / 2]);
    [sum / seconds, fewest, mean, most, fewest / mean, p50, p99, middle, p99s[last]]
}

/// Microseconds that this share of sorted nanoseconds took at most; nothing of nothing.
fn percentile(times: &[u64], share: usize) -> f64 {
    times
        .get((times.len() * share / 100).min(times.len().saturating_sub(1)))
        .map_or(f64::NAN, |ns| *ns as f64 / 1e3)
}

/// The nanoseconds that the requests of each client took.
fn ask_from(
    server: &mut Child,
    kind: &str,
    place: &str,
    clients: usize,
    seconds: f64,
) -> Outcome<Vec<Vec<u64>>> {
    let ready = BufReader::new(server.stdout.take().ok_or("no output")?).lines().next();
    ready.ok_or("the server has ended")??;
    let seconds = seconds.to_string();
    let started: io::Result<Vec<Child>> =
        (0..clients).map(|_| start(&["client", kind, place, &seconds])).collect();
    let mut times = Vec::new();
    for child in started? {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err("a client failed".into());
        }
        let (words, _) = output.stdout.as_chunks();
        times.push(words.iter().map(|word| u64::from_le_bytes(*word)).collect());
    }
    Ok(times)
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
            // One that is not let in has gone already, or there is no room for it: the others are served on.
            Arrival::Request(request) => drop(let_in(&mut nic, cq, request)),
            Arrival::Completion(done) => {
                let vi = done.vi();
                let served = done.ok().and_then(|request| {
                    let answer = answer_to(request.bytes().unwrap_or_default());
                    nic.post_recv(vi, request.descriptor)?;
                    nic.send_inline(vi, &answer, None)
                });
                if served.is_err() {
                    nic.retire(vi)?;
                }
            }
        }
    }
}

/// Gives a client a VI. Without one its request is dropped, and so rejected.
fn let_in(nic: &mut Nic, cq: Cq, request: ConnRequest) -> Result<(), viaduct_net::Error> {
    let vi = nic.create_vi(ViAttributes::default().cq(cq).depth(4))?;
    let posted = nic.vi(vi)?.post_receives(2, REQUEST);
    let accepted = posted.and_then(|()| Ok(nic.accept(request, vi)?));
    if accepted.is_err() {
        nic.retire(vi)?;
    }
    accepted
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

/// Asks for a while, and writes the nanoseconds that each answer took.
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
    let (start, mut times) = (Instant::now(), Vec::<u64>::with_capacity(1 << 20));
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
    let bytes: Vec<u8> = times.into_iter().flat_map(u64::to_le_bytes).collect();
    Ok(io::stdout().write_all(&bytes)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_that_of_all_requests_and_not_of_a_client() {
        // A client of many short requests, and two with few long ones.
        let times = vec![vec![1000; 97], vec![50_000, 50_000], vec![80_000]];
        let [rate, fewest, mean, most, fairness, p50, p99, middle, worst] = figures(times, 2.0);
        assert_eq!((rate, fewest, most), (50.0, 1.0, 97.0));
        assert_eq!((mean, fairness), (100.0 / 3.0, 0.03));
        assert_eq!((p50, p99, middle, worst), (1.0, 80.0, 50.0, 80.0));
    }
}
