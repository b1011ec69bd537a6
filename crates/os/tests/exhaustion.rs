//! Out of descriptors: a typed error, nothing half-made, and all is well after relief.
//!
//! Alone in its program, because the limit holds for the whole process.

use std::os::fd::AsFd;

use rustix::process::{Resource, getrlimit, setrlimit};
use viaduct_os::budget::Budget;
use viaduct_os::epoll::Epoll;
use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::fdpass::{Channel, Recv};
use viaduct_os::segment::Segment;

#[test]
fn out_of_descriptors() {
    let budget = Budget::new(16 << 20);
    let (a, b) = Channel::pair().unwrap();
    let spare = EventFd::new().unwrap();
    a.send(b"two", &[spare.as_fd(), spare.as_fd()]).unwrap();
    a.send(b"one", &[spare.as_fd()]).unwrap();

    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut hoard = Vec::new();
    let error = loop {
        match EventFd::new() {
            Ok(event) => hoard.push(event),
            Err(error) => break error,
        }
    };
    let exhausted = |error: OsError| {
        assert!(matches!(error, OsError::Fds { limit: 64, .. }), "{error:?}");
        assert!(error.to_string().contains("RLIMIT_NOFILE is 64"), "{error}");
    };
    exhausted(error);
    exhausted(Segment::create("test", 1, &budget).unwrap_err());
    exhausted(Channel::pair().unwrap_err());
    exhausted(Epoll::new().unwrap_err());
    assert_eq!(budget.used(), 0, "a segment that was not made must not be charged");

    // One descriptor fits, the other does not: neither stays.
    hoard.pop();
    let mut fds = Vec::new();
    exhausted(b.recv(&mut [0; 8], &mut fds, 4).unwrap_err());
    assert!(fds.is_empty());
    assert_eq!(b.recv(&mut [0; 8], &mut fds, 4).unwrap(), Recv::Message(3));
    assert_eq!(fds.len(), 1);

    drop((hoard, fds));
    limit.current = before;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(Segment::create("test", 1, &budget).is_ok());
}
