//! The calls of the C library whose instructions `cargo xtask instructions` counts, beside the same calls of the Rust
//! interface underneath: their difference is what the C layer costs.
//!
//! ```text
//!  instructions                     prints the names of the operations
//!  instructions OPERATION ROUNDS    does one of them so many times
//!  instructions time                prints the nanoseconds of each, for whoever wants to know
//! ```

mod c;
mod rust;

use std::time::Instant;

/// One end-to-end round, of which one call is counted.
pub(crate) trait Rounds {
    fn round(&mut self, counted: Call);
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
const WARM_UP: u32 = 256;
const TIMED: u32 = 1_000_000;
/// Calls of a round.
const CALLS: f64 = 5.0;

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

/// A round of each, in turn, so that what disturbs the machine disturbs both.
fn time() {
    let (mut rust, mut c) = (rust::pair(), c::pair());
    let mut best = [f64::MAX; 2];
    for _ in 0..10 {
        for (best, pair) in best.iter_mut().zip([&mut rust, &mut c]) {
            let start = Instant::now();
            (0..TIMED / 10).for_each(|_| pair.round(Call::Nothing));
            *best = best.min(start.elapsed().as_nanos() as f64 / f64::from(TIMED / 10));
        }
    }
    let each = (best[1] - best[0]) / CALLS;
    println!(
        "a round of five calls: Rust {:.1} ns, C {:.1} ns; a call more by {each:.1} ns",
        best[0], best[1]
    );
}
