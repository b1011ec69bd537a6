//! Models of the directory (`src/shm/directory.rs`, the real source): a peer that reads an entry while its owner changes
//! it gets the old region, the new one or none, never a mixture; and once a region is withdrawn no peer writes to it.
#![cfg(loom)]

mod model;

#[path = "../src/shm/directory.rs"]
#[allow(dead_code)]
mod directory;

#[path = "../src/parties.rs"]
#[allow(dead_code)]
mod parties;

/// Stands for `src/shm/shared.rs`: entries of loom's atomics instead of those in the segment.
mod shared {
    use std::cell::RefCell;
    use std::ops::Deref;
    use std::sync::Arc;

    use viaduct_os::segment::Segment;

    use crate::directory::Entry;

    #[derive(Clone)]
    pub(crate) struct Entries(Arc<[Entry]>);

    std::thread_local! {
        static MAPPED: RefCell<Option<Entries>> = const { RefCell::new(None) };
    }

    impl Entries {
        pub(crate) fn of(_segment: &Arc<Segment>) -> Entries {
            let entries = Entries([Entry::fresh()].into());
            MAPPED.set(Some(entries.clone()));
            entries
        }

        /// The directory's entries as a peer has them.
        pub(crate) fn mapped() -> Entries {
            MAPPED.with_borrow(Clone::clone).expect("the directory was made before")
        }
    }

    impl Deref for Entries {
        type Target = [Entry];

        fn deref(&self) -> &[Entry] {
            &self.0
        }
    }
}

use std::sync::Arc;

use directory::{Directory, Found};
use model::{Plain, Without, barrier, check, check_without, sync, thread};
use shared::Entries;
use sync::{AtomicU32, Ordering};
use viaduct_os::budget::Budget;
use viaduct_via::handle::RawHandle;
use viaduct_via::raw::Locator;
use viaduct_via::{MemAttributes, MemHandle, ProtectionTag, RegionInfo};

const HANDLE: u32 = 1 << 20;

/// A region in which every field has the number in it.
fn region(n: u32) -> RegionInfo {
    let attributes = MemAttributes::remote(ProtectionTag::from_raw(RawHandle { index: n, generation: n }));
    let wide = u64::from(n);
    // SAFETY: never given to a provider; only numbers are compared.
    unsafe { RegionInfo::new(wide, wide, attributes, Some(Locator { slab: n, offset: wide })) }
}

fn assert_whole(found: Found) {
    let n = found.base;
    let place = Some((n as u32, n));
    assert_eq!((found.len, found.tag, found.place), (n, n << 32 | n, place), "mixture in {found:?}");
}

/// A directory with region 1 in its only entry, and the peer's view of it.
fn fresh() -> (Directory, Entries) {
    let mut directory = Directory::new(Budget::new(1 << 20)).unwrap();
    let peer = Entries::mapped();
    assert!(peer[0].read(MemHandle::NONE).is_some(), "loom knows every word now");
    directory.publish(handle(), &region(1)).unwrap();
    (directory, peer)
}

fn handle() -> MemHandle {
    MemHandle::from_number(HANDLE)
}

/// The owner gives the region other attributes, while a peer reads the entry. The reader is the second thread: see the
/// first page of `model` on what loom does not reorder by itself.
fn changed_while_read() {
    let (mut directory, peer) = fresh();
    let reader = thread::spawn(move || {
        if let Some(found) = peer[0].read(handle()) {
            assert_whole(found);
        }
        peer
    });
    directory.publish(handle(), &region(2)).unwrap();
    let peer = reader.join().unwrap();
    let last = peer[0].read(handle()).unwrap();
    assert_whole(last);
    assert_eq!(last.base, 2);
}

/// The owner withdraws the region, while a peer reads the entry.
fn withdrawn_while_read() {
    let (mut directory, peer) = fresh();
    let reader = thread::spawn(move || {
        if let Some(found) = peer[0].read(handle()) {
            assert_whole(found);
        }
        peer
    });
    directory.withdraw(handle());
    let peer = reader.join().unwrap();
    assert!(peer[0].read(handle()).is_none());
}

/// The owner withdraws region 1 and frees its memory (`Core::quiesce`), while a peer writes to it by RDMA
/// (`ShmVi::mapped`; `enter_copy` and `wait_while_busy` are copied as in `loom_push.rs`).
fn withdrawn_while_written(look_again: bool) {
    let (mut directory, peer) = fresh();
    let lane = Arc::new((AtomicU32::new(0), Plain::new(0)));
    lane.0.load(Ordering::Relaxed);
    let theirs = lane.clone();
    let writer = thread::spawn(move || {
        let (busy, memory) = &*theirs;
        let Some(found) = peer[0].read(handle()) else { return };
        busy.store(1, Ordering::Release);
        barrier::light();
        if !look_again || peer[0].read(handle()) == Some(found) {
            memory.write(1);
        }
        busy.store(2, Ordering::Release);
    });
    directory.withdraw(handle());
    barrier::heavy();
    while lane.0.load(Ordering::Acquire) == 1 {
        thread::yield_now();
    }
    lane.1.write(99);
    writer.join().unwrap();
    assert_eq!(lane.1.read(), 99);
}

#[test]
fn an_entry_is_never_read_as_a_mixture() {
    check(changed_while_read);
}

#[test]
fn a_withdrawn_entry_is_whole_or_gone() {
    check(withdrawn_while_read);
}

#[test]
fn no_peer_writes_to_a_region_that_was_withdrawn() {
    check(|| withdrawn_while_written(true));
}

#[test]
#[should_panic(expected = "mixture")]
fn an_entry_without_fences_is_noticed() {
    check_without(Without::Fences, changed_while_read);
}

#[test]
#[should_panic(expected = "mixture")]
fn an_entry_finished_without_release_is_noticed() {
    check_without(Without::Release, changed_while_read);
}

#[test]
#[should_panic(expected = "mixture")]
fn an_entry_begun_without_acquire_is_noticed() {
    check_without(Without::Acquire, changed_while_read);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn writing_without_a_second_look_is_noticed() {
    check(|| withdrawn_while_written(false));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn withdrawing_without_barrier_is_noticed() {
    check_without(Without::Heavy, || withdrawn_while_written(true));
}
