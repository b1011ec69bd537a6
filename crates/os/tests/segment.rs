//! Segments between processes: what a peer can do to one, and what is refused from a peer.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use viaduct_os::budget::Budget;
use viaduct_os::error::OsError;
use viaduct_os::segment::{Access, Segment, page_size};

const MAX: usize = 1 << 20;
/// Every test has a small budget: a mistake must not fill the machine's memory.
const SMALL: u64 = 16 << 20;

fn sealed(len: u64, allocate: bool, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    if allocate {
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len).unwrap();
    }
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn all() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn read(segment: &Segment, at: usize) -> u8 {
    assert!(at < segment.len());
    // SAFETY: inside the mapping.
    unsafe { segment.as_ptr().add(at).read_volatile() }
}

fn write(segment: &Segment, at: usize, value: u8) {
    assert!(at < segment.len());
    // SAFETY: inside the mapping.
    unsafe { segment.as_ptr().add(at).write_volatile(value) }
}

#[test]
fn memory_of_huge_pages_is_refused() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(fd) = memfd_create("viaduct-test-huge", flags) else {
        viaduct_kit::skip!("this kernel has no huge pages");
    };
    ftruncate(&fd, 2 << 20).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    assert!(!Segment::is_one(std::os::fd::AsFd::as_fd(&fd)));
    let Err(OsError::BadSegment(why)) = Segment::open(fd, Access::ReadWrite, 1 << 30) else {
        panic!("a hole in it could fault");
    };
    assert!(why.contains("tmpfs"), "{why}");
}

#[test]
fn two_mappings_are_one_memory() {
    let budget = Budget::new(SMALL);
    let mut ours = Segment::create("test", 5000, &budget).unwrap();
    assert_eq!(ours.len(), 5000usize.next_multiple_of(page_size()));
    assert_eq!(budget.used(), ours.len() as u64);
    let theirs = Segment::open(ours.dup_fd().unwrap(), Access::ReadWrite, MAX).unwrap();
    let last = ours.len() - 1;
    assert_eq!(read(&theirs, last), 0);
    write(&ours, last, 7);
    assert_eq!(read(&theirs, last), 7);
    ours.drop_fd();
    assert!(ours.fd().is_none() && ours.dup_fd().is_err());
    write(&theirs, 0, 9);
    assert_eq!(read(&ours, 0), 9);
    drop(ours);
    assert_eq!((budget.used(), read(&theirs, last)), (0, 7));
}

#[test]
fn a_peer_cannot_resize_or_unseal() {
    let ours = Segment::create("test", 1, &Budget::new(SMALL)).unwrap();
    let fd = ours.dup_fd().unwrap();
    for len in [0, 1 << 30] {
        assert_eq!(ftruncate(&fd, len), Err(Errno::PERM));
    }
    assert_eq!(fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
    assert_eq!(ftruncate(ours.fd().unwrap(), 0), Err(Errno::PERM));
}

#[test]
fn read_only_for_peers_is_kept_by_the_kernel() {
    let ours = Segment::create_read_only_for_peers("test", 1, &Budget::new(SMALL)).unwrap();
    let fd = || ours.dup_fd().unwrap();
    assert!(matches!(Segment::open(fd(), Access::ReadWrite, MAX), Err(OsError::BadSegment(_))));
    let theirs = Segment::open(fd(), Access::ReadOnly, MAX).unwrap();
    assert_eq!(theirs.access(), Access::ReadOnly);
    write(&ours, 3, 5);
    assert_eq!(read(&theirs, 3), 5);
    assert_eq!(rustix::io::pwrite(fd(), b"x", 0), Err(Errno::PERM));
}

#[test]
fn a_segment_that_a_peer_could_make_fault_is_refused() {
    let page = page_size() as u64;
    let refused = |what: &str, fd: OwnedFd| match Segment::open(fd, Access::ReadOnly, MAX) {
        Err(OsError::BadSegment(_)) => {}
        other => panic!("{what}: {other:?}"),
    };
    refused("unsealed", sealed(page, true, SealFlags::empty()));
    refused("can shrink", sealed(page, true, SealFlags::GROW | SealFlags::SEAL));
    refused("can grow", sealed(page, true, SealFlags::SHRINK | SealFlags::SEAL));
    refused("can still be sealed", sealed(page, true, SealFlags::GROW | SealFlags::SHRINK));
    refused("empty", sealed(0, false, all()));
    refused("too long", sealed(MAX as u64 + page, true, all()));
    refused("half a page", sealed(page / 2, true, all()));
    refused("sparse", sealed(4 * page, false, all()));
    refused("pipe", rustix::pipe::pipe().unwrap().0);
    refused("device", File::open("/dev/zero").unwrap().into());
    refused("file", File::open("/proc/self/exe").unwrap().into());
    assert!(Segment::open(sealed(page, true, all()), Access::ReadWrite, MAX).is_ok());
}

#[test]
fn the_budget_refuses_before_anything_is_made() {
    let budget = Budget::new(3 * page_size() as u64);
    let first = Segment::create("test", 2 * page_size(), &budget).unwrap();
    match Segment::create("test", page_size() + 1, &budget) {
        Err(OsError::Budget { used, limit, .. }) => assert!(used < limit),
        other => panic!("{other:?}"),
    }
    drop(first);
    assert!(Segment::create("test", 3 * page_size(), &budget).is_ok());
    assert_eq!(budget.used(), 0);
}

#[test]
fn absurd_lengths_are_errors() {
    let budget = Budget::new(SMALL);
    for len in [usize::MAX, usize::MAX / 2, 1 << 62, 1 << 30] {
        assert!(Segment::create("test", len, &budget).is_err());
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn names_may_be_anything() {
    let budget = Budget::new(SMALL);
    for name in ["", "a\0b", &"ä".repeat(500)] {
        let segment = Segment::create(name, 1, &budget).unwrap();
        assert!(segment.fd().is_some_and(|fd| rustix::fs::fstat(fd.as_fd()).is_ok()));
    }
}

fn resident(segment: &Segment) -> u64 {
    rustix::fs::fstat(segment.fd().unwrap()).unwrap().st_blocks as u64 * 512
}

#[test]
fn a_sparse_segment_takes_memory_where_it_is_touched() {
    // More than any machine has.
    let ours = Segment::create_sparse("test", 1 << 42).unwrap();
    assert!(ours.is_sparse() && resident(&ours) == 0);
    let far = (1 << 41) + 12_345;
    write(&ours, far, 7);
    assert!((1..1 << 22).contains(&resident(&ours)));
    assert_eq!(ftruncate(ours.fd().unwrap(), 0), Err(Errno::PERM));
    let fd = || ours.dup_fd().unwrap();
    assert!(matches!(Segment::open(fd(), Access::ReadWrite, usize::MAX), Err(OsError::BadSegment(_))));
    assert!(Segment::open_sparse(fd(), Access::ReadWrite, 1 << 41).is_err(), "longer than what is accepted");
    let theirs = Segment::open_sparse(fd(), Access::ReadWrite, 1 << 42).unwrap();
    assert!(theirs.is_sparse() && read(&theirs, far) == 7);
}

#[test]
fn a_file_that_no_peer_may_send_is_refused_as_a_sparse_segment_too() {
    let page = page_size() as u64;
    let refused = |fd: OwnedFd| Segment::open_sparse(fd, Access::ReadOnly, MAX).is_err();
    assert!(refused(sealed(page, true, SealFlags::empty())) && refused(sealed(0, false, all())));
    assert!(refused(sealed(page, false, SealFlags::GROW | SealFlags::SEAL)), "can shrink");
    assert!(refused(sealed(page / 2, false, all())) && refused(rustix::pipe::pipe().unwrap().0));
    assert!(!refused(sealed(page, false, all())));
}

#[test]
fn pages_of_a_sparse_segment_are_given_back() {
    let (page, all) = (page_size(), 8 * page_size());
    let ours = Segment::create_sparse("test", all).unwrap();
    (0..8).for_each(|n| write(&ours, n * page, n as u8 + 1));
    let alias = ours.map_again(Access::ReadOnly).unwrap();
    ours.punch(2 * page..5 * page).unwrap();
    ours.punch(page..page).unwrap();
    // Before they are looked at: a look at a hole fills it.
    assert!(resident(&ours) < all as u64);
    let left: Vec<u8> = (0..8).map(|n| read(&alias, n * page)).collect();
    assert_eq!(left, [1, 2, 0, 0, 0, 6, 7, 8]);
    for range in [1..page, 0..all + page, all..all + page, page..page + 1] {
        assert!(matches!(ours.punch(range), Err(OsError::BadSegment(_))));
    }
    let full = Segment::create("test", all, &Budget::new(SMALL)).unwrap();
    assert!(matches!(full.punch(0..page), Err(OsError::BadSegment(_))), "it stays allocated in full");
}

#[test]
fn a_second_mapping_lies_where_the_caller_wants_it() {
    let budget = Budget::new(SMALL);
    let ours = Segment::create("test", 4 * page_size(), &budget).unwrap();
    // A range that was free a moment ago: another thread may have taken it since, and then the next one is tried.
    let alias = (0..100).find_map(|_| {
        let free = ours.map_again(Access::ReadWrite).unwrap().as_ptr() as usize;
        ours.map_at(free, Access::ReadWrite).ok().inspect(|alias| assert_eq!(alias.as_ptr() as usize, free))
    });
    let alias = alias.expect("one of a hundred free ranges");
    write(&alias, 5, 9);
    assert_eq!(read(&ours, 5), 9);
    let taken = alias.as_ptr() as usize;
    for addr in [taken, taken + page_size(), taken + 1, 0] {
        let refused = ours.map_at(addr, Access::ReadWrite).unwrap_err();
        assert!(matches!(refused, OsError::BadPlace { .. }), "{refused}");
    }
    assert_eq!(read(&alias, 5), 9, "nothing was replaced");
    drop(ours);
    assert_eq!((budget.used(), read(&alias, 5)), (alias.len() as u64, 9), "in use as long as one mapping is");
    drop(alias);
    assert_eq!(budget.used(), 0);
}

#[test]
fn memory_that_may_only_be_read_stays_so_in_another_mapping() {
    let ours = Segment::create_read_only_for_peers("test", 1, &Budget::new(SMALL)).unwrap();
    assert!(matches!(ours.map_again(Access::ReadWrite), Err(OsError::BadSegment(_))));
    let mut alias = ours.map_again(Access::ReadOnly).unwrap();
    write(&ours, 0, 4);
    alias.drop_fd();
    assert_eq!(read(&alias, 0), 4);
    assert!(alias.map_again(Access::ReadOnly).is_err() && ours.map_again(Access::ReadOnly).is_ok());
}
