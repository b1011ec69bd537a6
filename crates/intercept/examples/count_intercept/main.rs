//! What the library does on a call for a descriptor that is the kernel's, before it makes the system call, to be counted under
//! callgrind: against a plain peer a call may cost 60 instructions more than without the library.
//!
//! ```text
//!  count_intercept                     prints the names of the operations
//!  count_intercept OPERATION ROUNDS    does one of them so many times
//!
//!  valgrind --tool=callgrind --toggle-collect='*count_this_*' target/release/examples/count_intercept call_plain 1024
//! ```
//!
//! In a release build with rustc 1.95.0: call_plain 26, call_unknown 40, poll_plain 53, close_plain 16.

use std::hint::black_box;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use viaduct_intercept::{descriptors, poll, route};

const OPERATIONS: [&str; 4] = ["call_plain", "call_unknown", "poll_plain", "close_plain"];

/// Before read, write, recv and send.
#[inline(never)]
fn count_this_call(fd: i32) -> bool {
    route(fd).is_some()
}

/// Before poll.
#[inline(never)]
fn count_this_poll(fds: &[libc::pollfd]) -> bool {
    poll::concerns(fds)
}

/// Before close.
#[inline(never)]
fn count_this_close(fd: i32) {
    descriptors::closing(fd);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operation, rounds] = &arguments[..] else {
        OPERATIONS.iter().for_each(|name| println!("{name}"));
        return;
    };
    let rounds: u32 = rounds.parse().expect("a number of rounds");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let fd = stream.as_raw_fd();
    for _ in 0..rounds {
        match operation.as_str() {
            "call_plain" => {
                descriptors::note_plain(fd);
                assert!(!black_box(count_this_call(black_box(fd))));
            }
            "call_unknown" => {
                descriptors::note_unknown(fd);
                assert!(!black_box(count_this_call(black_box(fd))));
            }
            "poll_plain" => {
                descriptors::note_plain(fd);
                let entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                assert!(!black_box(count_this_poll(black_box(&[entry]))));
            }
            "close_plain" => {
                descriptors::note_plain(fd);
                count_this_close(black_box(fd));
            }
            _ => panic!("one of the operations that are printed without arguments"),
        }
    }
}
