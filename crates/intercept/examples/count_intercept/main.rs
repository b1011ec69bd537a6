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
//! `baselines.txt` has the counts; `cargo xtask instructions` compares.

use std::hint::black_box;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use viaduct_intercept::table::{self, Kind};
use viaduct_intercept::{descriptors, epoll, poll, route};
use viaduct_os::epoll::Epoll;

const OPERATIONS: [&str; 6] =
    ["call_plain", "call_unknown", "poll_plain", "epoll_ctl_plain", "epoll_wait_plain", "close_plain"];

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

/// epoll_ctl, whole: the system call itself is one instruction.
#[inline(never)]
fn count_this_control(set: i32, fd: i32, event: libc::epoll_event) -> bool {
    epoll::control(set, libc::EPOLL_CTL_MOD, fd, Some(event)).is_ok()
}

/// Before and after epoll_wait, for a set whose connections are all the kernel's.
#[inline(never)]
fn count_this_wait(index: u32) -> bool {
    epoll::enter(index) && epoll::leave(index).is_none()
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
    let event = libc::epoll_event { events: libc::EPOLLOUT as u32, u64: 7 };
    let made = Epoll::new().expect("the kernel has room for a set");
    let set = made.as_fd().as_raw_fd();
    epoll::note_set(set);
    let Kind::Epoll(index) = table::kind(set) else { panic!("a set that is looked after") };
    descriptors::note_plain(fd);
    epoll::control(set, libc::EPOLL_CTL_ADD, fd, Some(event)).expect("a set has room");
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
            "epoll_ctl_plain" => assert!(black_box(count_this_control(set, black_box(fd), event))),
            "epoll_wait_plain" => assert!(black_box(count_this_wait(black_box(index)))),
            "close_plain" => {
                descriptors::note_plain(fd);
                count_this_close(black_box(fd));
            }
            _ => panic!("one of the operations that are printed without arguments"),
        }
    }
}
