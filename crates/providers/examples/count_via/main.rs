//! The operations whose instructions `cargo xtask instructions` counts, under callgrind.
//!
//! ```text
//!  instructions                     prints the names of the operations
//!  instructions OPERATION ROUNDS    does one of them so many times
//! ```
//!
//! The count of an operation is the difference of two runs with different numbers of rounds, divided by the difference
//! of the rounds: what happens once drops out, what happens every so many rounds is averaged. `baselines.txt` has the
//! counts that are expected. Control threads are not counted.

mod counted;
mod pair;

use pair::{Call, Pair};

/// A name, the two NICs, the round, and which call of it counts.
type Operation = (&'static str, fn() -> Pair, fn(&mut Pair, Call), Call);

/// Numbers are bytes of the message, unless they are followed by a word.
const OPERATIONS: &[Operation] = &[
    ("post_recv", || Pair::new(8), Pair::inline_message, Call::PostRecv),
    ("send_inline-8", || Pair::new(8), Pair::inline_message, Call::SendInline),
    ("send_inline-64", || Pair::new(64), Pair::inline_message, Call::SendInline),
    ("poll_recv-8", || Pair::new(8), Pair::inline_message, Call::PollRecv),
    ("poll_recv-64", || Pair::new(64), Pair::inline_message, Call::PollRecv),
    ("poll_recv-nothing", || Pair::new(8), Pair::look, Call::PollRecv),
    ("post_send-8", || Pair::new(8), Pair::message, Call::PostSend),
    ("post_send-64", || Pair::new(64), Pair::message, Call::PostSend),
    ("poll_send", || Pair::new(8), Pair::message, Call::PollSend),
    ("post_send-8-cq", || Pair::bound(8, 1), Pair::message, Call::PostSend),
    ("poll_cq-send", || Pair::bound(8, 1), Pair::message, Call::PollSend),
    ("poll_cq-8", || Pair::bound(8, 1), Pair::inline_message, Call::PollCq),
    ("poll_cq-nothing-1-vi", || Pair::bound(8, 1), Pair::look, Call::PollCq),
    ("poll_cq-nothing-1024-vis", || Pair::bound(8, 1024), Pair::look, Call::PollCq),
    ("rdma_write-64", || Pair::new(64), Pair::write, Call::PostSend),
];

/// Rounds before counting starts: several laps of a ring.
const WARM_UP: u32 = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rounds] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let operation = OPERATIONS.iter().find(|(known, ..)| known == name);
    let (_, make, round, call) = operation.expect("one of the operations that are printed without arguments");
    let rounds: u32 = rounds.parse().expect("a number of rounds");
    let mut pair = make();
    (0..WARM_UP).for_each(|_| round(&mut pair, Call::Nothing));
    (0..rounds).for_each(|_| round(&mut pair, *call));
}
