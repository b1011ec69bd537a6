//! Many clients of one server: how many requests each of them gets answered, and how long single ones take.
//!
//! ```text
//!   clients                       eight clients for two seconds: over VIA, over streams, over Unix sockets
//!   clients 4 5 via unix          four clients for five seconds, of these two
//! ```
//!
//! Server and clients are processes of their own, free to run on any core. A request has 16 bytes and its answer 64; every
//! client asks again as soon as it has the answer. Fairness is the fewest requests of a client against the mean.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use viaduct_net::{Arrival, Nic, Queue, Vi, ViAttributes};

const KINDS: [&str; 3] = ["via", "streams", "unix"];
const REQUEST: [u8; 16] = [1; 16];
const ANSWER: [u8; 64] = [2; 64];
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", kind, place] => serve(kind, place),
        ["client", kind, place, seconds] => client(kind, place, Duration::from_secs_f64(seconds.parse()?)),
        ref words => {
            let (numbers, kinds): (Vec<&str>, Vec<&str>) =
                words.iter().copied().partition(|word: &&str| word.parse::<f64>().is_ok());
            let clients = numbers.first().map_or(Ok(8), |n| n.parse())?;
            let seconds = numbers.get(1).copied().unwrap_or("2");
            let kinds = if kinds.is_empty() { KINDS.to_vec() } else { kinds };
            println!(
                "kind     requests/s   fewest     mean     most   fairness   p50 us   p99 us   worst p99"
            );
            kinds.into_iter().try_for_each(|kind| compare(kind, clients, seconds))
        }
    }
}

/// Starts a server and its clients, and prints a line.
fn compare(kind: &str, clients: usize, seconds: &str) -> Outcome<()> {
    let place = format!("clients-{}-{kind}", std::process::id());
    let place = if kind == "unix" { format!("{}/{place}", std::env::temp_dir().display()) } else { place };
    let mut server = start(&["server", kind, &place])?;
    let ready = BufReader::new(server.stdout.take().ok_or("no output")?).lines().next();
    ready.ok_or("the server has ended")??;
    let started: io::Result<Vec<Child>> =
        (0..clients).map(|_| start(&["client", kind, &place, seconds])).collect();
    let mut lines = Vec::new();
    for child in started? {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
        lines.push(<[f64; 3]>::try_from(numbers?).map_err(|_| "a client failed")?);
    }
    server.kill()?;
    server.wait()?;
    if kind == "unix" {
        std::fs::remove_file(&place)?;
    }
    let column = |at: usize| {
        let mut values: Vec<f64> = lines.iter().map(|line| line[at]).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (counts, p50, p99) = (column(0), column(1), column(2));
    let (sum, middle): (f64, usize) = (counts.iter().sum(), clients / 2);
    let (mean, time): (f64, f64) = (sum / clients as f64, seconds.parse()?);
    println!(
        "{kind:8} {:10.0} {:8.0} {mean:8.0} {:8.0} {:10.2} {:8.1} {:8.1} {:11.1}",
        sum / time,
        counts[0],
        counts[clients - 1],
        counts[0] / mean,
        p50[middle],
        p99[middle],
        p99[clients - 1],
    );
    Ok(())
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
                nic.vi(vi)?.post_receives(2, REQUEST.len())?;
                nic.accept(request, vi)?;
            }
            Arrival::Completion(done) if done.queue == Queue::Receive && done.status.is_success() => {
                let vi = done.vi;
                nic.post_recv(vi, done.descriptor)?;
                let _ = nic.send_inline(vi, &ANSWER, None); // a client that is gone shows below
            }
            Arrival::Completion(done) => nic.retire(done.vi)?,
        }
    }
}

fn answer(mut stream: impl Read + Write) -> io::Result<()> {
    loop {
        stream.read_exact(&mut { REQUEST })?;
        stream.write_all(&ANSWER)?;
        stream.flush()?;
    }
}

/// Asks for a while, and prints the number of answers, the median and the 99th percentile in microseconds.
fn client(kind: &str, place: &str, time: Duration) -> Outcome<()> {
    let mut ask: Box<dyn FnMut() -> Outcome<()>> = match kind {
        "via" => {
            let (mut nic, vi) = connect(place)?;
            Box::new(move || {
                nic.send_inline(vi, &REQUEST, None)?;
                let message = nic.wait_recv(vi, Some(PATIENCE))?;
                Ok(nic.post_recv(vi, message.descriptor)?)
            })
        }
        "streams" => asking(viaduct_net::open_streams()?.connect(place)?),
        _ => asking(UnixStream::connect(place)?),
    };
    let (start, mut times) = (Instant::now(), Vec::with_capacity(1 << 20));
    while start.elapsed() < time {
        let asked = Instant::now();
        ask()?;
        times.push(asked.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)] as f64 / 1e3;
    println!("{} {} {}", times.len(), at(50), at(99));
    Ok(())
}

fn connect(place: &str) -> Outcome<(Nic, Vi)> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default().depth(4))?;
    nic.vi(vi)?.post_receives(2, ANSWER.len())?;
    nic.connect(vi, &place.parse()?).timeout(PATIENCE).wait()?;
    Ok((nic, vi))
}

fn asking(mut stream: impl Read + Write + 'static) -> Box<dyn FnMut() -> Outcome<()>> {
    Box::new(move || {
        stream.write_all(&REQUEST)?;
        stream.flush()?;
        Ok(stream.read_exact(&mut { ANSWER })?)
    })
}
