//! The calls of the C library whose instructions `cargo xtask instructions` counts, beside the same calls of the Rust
//! interface underneath: their difference is what the C layer costs.
//!
//! ```text
//!  instructions                     prints the names of the operations
//!  instructions OPERATION ROUNDS    does one of them so many times
//!  instructions time                prints the nanoseconds of each, as a hint
//! ```

mod c;
mod rust;

use std::time::Instant;

/// One end-to-end round, of which one call is counted.
pub(crate) trait Rounds {
    fn round(&mut self, counted: Call);

    /// One call many times. In the order of [`CALLS`] they make [`BATCH`] rounds.
    fn batch(&mut self, call: Call);
}

/// The call that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// None: to warm up, or to time all.
    Nothing,
    PostRecv,
    PostSend,
    RecvDone,
    RecvNotDone,
    SendDone,
}

type Operation = (&'static str, fn() -> Box<dyn Rounds>, Call);

const OPERATIONS: &[Operation] = &[
    ("rust-post_recv", rust::pair, Call::PostRecv),
    ("c-post_recv", c::pair, Call::PostRecv),
    ("rust-post_send", rust::pair, Call::PostSend),
    ("c-post_send", c::pair, Call::PostSend),
    ("rust-recv_done", rust::pair, Call::RecvDone),
    ("c-recv_done", c::pair, Call::RecvDone),
    ("rust-recv_not_done", rust::pair, Call::RecvNotDone),
    ("c-recv_not_done", c::pair, Call::RecvNotDone),
    ("rust-send_done", rust::pair, Call::SendDone),
    ("c-send_done", c::pair, Call::SendDone),
];

/// Bytes of a message.
pub(crate) const BYTES: usize = 8;
/// Calls that are timed together. The ring of a connection holds more messages.
pub(crate) const BATCH: usize = 32;
const WARM_UP: u32 = 256;
const TIMED: usize = 20_000;
const CALLS: [(&str, Call); 5] = [
    ("post_recv", Call::PostRecv),
    ("recv_not_done", Call::RecvNotDone),
    ("post_send", Call::PostSend),
    ("send_done", Call::SendDone),
    ("recv_done", Call::RecvDone),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name, rounds] => {
            let operation = OPERATIONS.iter().find(|(known, ..)| *known == name);
            let (_, make, call) =
                operation.expect("one of the operations that are printed without arguments");
            let rounds: u32 = rounds.parse().expect("a number of rounds");
            let mut pair = make();
            (0..WARM_UP).for_each(|_| pair.round(Call::Nothing));
            (0..rounds).for_each(|_| pair.round(*call));
        }
        ["time"] => time(),
        _ => OPERATIONS.iter().for_each(|(name, ..)| println!("{name}")),
    }
}

/// A batch of each, in turn, so that what disturbs the machine disturbs both; of each call the median.
fn time() {
    let mut pairs = [rust::pair(), c::pair()];
    let mut times = [const { [const { Vec::new() }; CALLS.len()] }; 2];
    for _ in 0..TIMED {
        for (pair, times) in pairs.iter_mut().zip(&mut times) {
            for ((_, call), times) in CALLS.iter().zip(times) {
                let start = Instant::now();
                pair.batch(*call);
                times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
            }
        }
    }
    let [rust, c] = times.map(|calls| calls.map(median));
    for (at, (name, _)) in CALLS.iter().enumerate() {
        println!(
            "{name:14} Rust {:5.1} ns, C {:5.1} ns, more by {:4.1} ns",
            rust[at],
            c[at],
            c[at] - rust[at]
        );
    }
    let more = c.iter().sum::<f64>() - rust.iter().sum::<f64>();
    println!("{:14} more by {:.1} ns a call", "all", more / CALLS.len() as f64);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
