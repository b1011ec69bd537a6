//! Windows of protected pages: each engine, the faults of a program, faults of others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use viaduct_os::fault::{Access, EngineKind, Protection, Stack, Window, serve};
use viaduct_os::segment::{Segment, page_size};

/// One window is served at a time in a process, and its address is fixed.
static ONE: Mutex<()> = Mutex::new(());
const ADDRESS: usize = 0x2C00_0000_0000;

static WINDOW: AtomicUsize = AtomicUsize::new(0);
static READS: AtomicUsize = AtomicUsize::new(0);
static WRITES: AtomicUsize = AtomicUsize::new(0);

/// Opens what was touched as far as it was touched.
fn open(address: usize, access: Access) -> bool {
    // SAFETY: the test keeps the window alive while faults are served.
    let window = unsafe { &*(WINDOW.load(Ordering::Acquire) as *const Window) };
    let page = (address - ADDRESS) / page_size() * page_size();
    let (count, protection) = match access {
        Access::Write => (&WRITES, Protection::Write),
        Access::Read | Access::Unknown => (&READS, Protection::Read),
    };
    count.fetch_add(1, Ordering::Relaxed);
    window.protect(page..page + page_size(), protection).is_ok()
}

fn counts() -> (usize, usize) {
    (READS.load(Ordering::Relaxed), WRITES.load(Ordering::Relaxed))
}

/// Runs `test` with a window of `pages` pages and their bytes as the program sees them.
fn with_window(kind: EngineKind, pages: usize, test: impl FnOnce(&Segment, &Window, *mut u8)) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let segment = Segment::create_sparse("fault", pages * page_size()).unwrap();
    if kind == EngineKind::Uffd
        && let Some(why) = viaduct_kit::userfaultfd::lacks()
    {
        viaduct_kit::skip!("{why}");
    }
    let window = Window::new(&segment, ADDRESS, Some(kind)).unwrap_or_else(|error| panic!("{error}"));
    WINDOW.store(&raw const window as usize, Ordering::Release);
    READS.store(0, Ordering::Relaxed);
    WRITES.store(0, Ordering::Relaxed);
    let _stack = Stack::install().unwrap();
    let _serving = serve(ADDRESS..ADDRESS + window.len(), open).unwrap();
    assert_eq!(window.engine(), kind);
    test(&segment, &window, window.as_ptr());
}

fn load(base: *mut u8, at: usize) -> u8 {
    // SAFETY: inside the window, whose faults are served.
    unsafe { base.add(at).read_volatile() }
}

fn store(base: *mut u8, at: usize, value: u8) {
    // SAFETY: as in `load`.
    unsafe { base.add(at).write_volatile(value) };
}

fn first_touches_fault_and_no_others(kind: EngineKind) {
    with_window(kind, 8, |segment, window, base| {
        let page = page_size();
        store(segment.as_ptr(), 3 * page + 7, 42);
        assert_eq!((load(base, 3 * page + 7), counts()), (42, (1, 0)));
        assert_eq!((load(base, 3 * page), counts()), (0, (1, 0)));
        store(base, 3 * page, 1);
        store(base, 3 * page + 1, 2);
        assert_eq!((load(segment.as_ptr(), 3 * page + 1), counts()), (2, (1, 1)));
        // A page that was never touched, first by a store.
        store(base, 5 * page, 9);
        assert_eq!((load(segment.as_ptr(), 5 * page), counts()), (9, (1, 2)));
        // Closed again, it keeps what was stored.
        window.protect(0..window.len(), Protection::Closed).unwrap();
        assert_eq!((load(base, 5 * page), counts()), (9, (2, 2)));
        // Several pages at once, some of them mapped already; then only stores fault.
        window.protect(page..7 * page, Protection::Write).unwrap();
        store(base, 5 * page, 10);
        store(base, 6 * page, 11);
        window.protect(page..7 * page, Protection::Read).unwrap();
        assert_eq!((load(base, 6 * page), load(base, 5 * page), counts()), (11, 10, (2, 2)));
        store(base, 6 * page, 12);
        assert_eq!((load(segment.as_ptr(), 6 * page), counts()), (12, (2, 3)));
    });
}

#[test]
fn first_touches_fault_with_mprotect() {
    first_touches_fault_and_no_others(EngineKind::Mprotect);
}

#[test]
fn first_touches_fault_with_userfaultfd() {
    first_touches_fault_and_no_others(EngineKind::Uffd);
}

#[test]
fn the_engine_is_userfaultfd_where_the_machine_has_it() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let segment = Segment::create_sparse("fault", 4 * page_size()).unwrap();
    let window = Window::new(&segment, ADDRESS, None).unwrap();
    let lacks = viaduct_kit::userfaultfd::lacks();
    let wanted = if lacks.is_none() { EngineKind::Uffd } else { EngineKind::Mprotect };
    assert_eq!(window.engine(), wanted, "{lacks:?}");
}

#[test]
fn userfaultfd_takes_more_alternating_pages_than_there_may_be_mappings() {
    with_window(EngineKind::Uffd, 131_072, |_, window, base| {
        let page = page_size();
        for number in (0..131_072).step_by(2) {
            window.protect(number * page..(number + 1) * page, Protection::Write).unwrap();
        }
        store(base, 131_070 * page, 1);
        assert_eq!(counts(), (0, 0));
        store(base, 131_071 * page, 1);
        assert_eq!(counts(), (0, 1));
    });
}

#[test]
fn ranges_that_are_not_pages_are_refused() {
    with_window(EngineKind::Mprotect, 4, |_, window, _| {
        let page = page_size();
        for range in [1..page, 0..page + 1, 0..5 * page] {
            assert!(window.protect(range, Protection::Read).is_err());
        }
        window.protect(page..page, Protection::Read).unwrap();
    });
}

#[test]
fn a_second_window_and_a_taken_address_are_refused() {
    with_window(EngineKind::Mprotect, 4, |segment, window, _| {
        assert!(serve(0..1, open).is_err());
        let error = Window::new(segment, window.as_ptr() as usize, None).unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
    });
}
