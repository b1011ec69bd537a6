//! The one place of this crate that touches shared memory: entries of a node, frames, twins, and what a program sees.
//!
//! The processes of a node are one program and fail together: what one of them writes into these segments is trusted as its
//! own memory would be. What comes from other nodes goes through messages, and is checked there.

#![allow(unsafe_code, reason = "memory that several processes map")]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use viaduct_os::bare::calls;
use viaduct_os::segment::Segment;
use viaduct_os::{copy, differ, futex};

use crate::array::Plain;

/// How long a sleeper goes without looking whether its node still lives.
const NAP: Duration = Duration::from_millis(50);
/// Looks before a process sleeps.
const LOOKS: u32 = 200;

/// A value that processes of a node change under a lock, and can wait for.
#[repr(C)]
pub(crate) struct Guarded<T> {
    /// 0 free, 1 taken, 2 taken with sleepers.
    lock: AtomicU32,
    /// Changes of the value; 0: it was never stored.
    version: AtomicU32,
    waiters: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is read and written under the lock only.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T: Copy + Default + PartialEq> Guarded<T> {
    /// Takes the lock and gives the value. `alive` is asked now and then while another process has the lock.
    pub(crate) fn lock(&self, alive: &dyn Fn() -> bool) -> T {
        if self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.contend(alive);
        }
        if self.version.load(Ordering::Relaxed) == 0 {
            return T::default();
        }
        // SAFETY: under the lock, and some process has stored a value.
        unsafe { *self.value.get() }
    }

    fn contend(&self, alive: &dyn Fn() -> bool) {
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        while self.lock.swap(2, Ordering::Acquire) != 0 {
            futex::wait(&self.lock, 2, Some(NAP));
            // The owner died in the middle: there is nothing to go on with.
            if !alive() {
                return;
            }
        }
    }

    /// Stores the value and gives the lock back. Says whether a process waits for the change.
    pub(crate) fn unlock(&self, value: T) -> Unlocked {
        let (version, changed) = self.put_back(value);
        let awaited = changed && {
            fence(Ordering::SeqCst);
            self.waiters.load(Ordering::Relaxed) != 0
        };
        Unlocked { version: u64::from(version), changed, awaited }
    }

    /// Stores a value whose changes no process awaits by [`await_change`](Self::await_change), and gives the lock back.
    pub(crate) fn unlock_unawaited(&self, value: T) {
        self.put_back(value);
    }

    /// Gives the value's version, and whether it is another than before.
    #[inline]
    fn put_back(&self, value: T) -> (u32, bool) {
        let before = self.version.load(Ordering::Relaxed);
        // SAFETY: under the lock; the old value is only looked at if there is one.
        let changed = before == 0 || unsafe { *self.value.get() != value };
        let version = if changed { before.wrapping_add(1).max(1) } else { before };
        if changed {
            // SAFETY: under the lock.
            unsafe { *self.value.get() = value };
            self.version.store(version, Ordering::Release);
        }
        if self.lock.swap(0, Ordering::Release) == 2 {
            futex::wake(&self.lock, 1);
        }
        (version, changed)
    }

    /// Changes of the value.
    pub(crate) fn version(&self) -> u64 {
        u64::from(self.version.load(Ordering::Acquire))
    }

    /// A process begins to wait for a change: [`Unlocked::awaited`] says so from here on.
    pub(crate) fn await_change(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// The process has waited.
    pub(crate) fn awaited(&self) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What became of a value that was unlocked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlocked {
    pub(crate) version: u64,
    /// Whether it is another than before.
    pub(crate) changed: bool,
    /// Whether it has changed and a process waits for that, which the caller wakes.
    pub(crate) awaited: bool,
}

/// A part of a segment that holds `count` values, all zero at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) count: usize,
}

/// The values of a part. `T` must be valid as zeroes and changed through shared references only.
pub(crate) fn part<T: Shareable>(segment: &Segment, part: Part) -> &[T] {
    let end = part.at + part.count * size_of::<T>();
    assert!(end <= segment.len() && part.at.is_multiple_of(align_of::<T>()), "a part inside its segment");
    // SAFETY: inside the mapping, aligned, zeroed at first, and `Shareable` types allow other processes to write.
    unsafe { std::slice::from_raw_parts(segment.as_ptr().add(part.at).cast(), part.count) }
}

/// # Safety
/// All zeroes is a valid value, and the type is changed through atomics or under its own lock only.
pub(crate) unsafe trait Shareable {}
// SAFETY: atomics.
unsafe impl Shareable for AtomicU8 {}
// SAFETY: atomics.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: atomics.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: the value is not looked at before it was stored once, and only under the lock.
unsafe impl<T: Copy> Shareable for Guarded<T> {}

/// The first byte of a range of a segment.
fn start(segment: &Segment, range: &Range<usize>) -> *mut u8 {
    assert!(range.start <= range.end && range.end <= segment.len(), "a range inside its segment");
    // SAFETY: inside the mapping.
    unsafe { segment.as_ptr().add(range.start) }
}

/// Copies a range of one segment to the same place of another.
pub(crate) fn copy_between(from: &Segment, to: &Segment, range: Range<usize>) {
    let (source, target) = (start(from, &range), start(to, &range));
    // SAFETY: two mappings of different memory, both as long as the range says.
    unsafe { copy::copy(target, source, range.len()) };
}

/// Copies a range out.
pub(crate) fn copy_out(from: &Segment, range: Range<usize>, into: &mut [u8]) {
    let source = start(from, &range);
    // SAFETY: as long as the range says; `into` is private memory.
    unsafe { copy::copy(into.as_mut_ptr(), source, range.len().min(into.len())) };
}

/// Copies bytes in.
pub(crate) fn copy_in(to: &Segment, range: Range<usize>, bytes: &[u8]) {
    let target = start(to, &range);
    // SAFETY: as in `copy_out`, the other way.
    unsafe { copy::copy(target, bytes.as_ptr(), range.len().min(bytes.len())) };
}

/// Finds the bytes of `range` at which frame and twin differ: `run` gets each run of them, by its place in the range.
/// With `update` they reach the twin too.
///
/// Workers of the node may store to other bytes meanwhile: each byte is looked at once.
pub(crate) fn differences(
    frame: &Segment,
    twin: &Segment,
    range: Range<usize>,
    update: bool,
    run: &mut dyn FnMut(usize, &[u8]),
) {
    let (ours, old) = (start(frame, &range), start(twin, &range));
    let mut open = Open { at: 0, len: 0, bytes: [0; LONGEST] };
    let mut from = 0;
    // SAFETY: both ranges are as long as the range says, and whole pages.
    while let Some(block) = unsafe { differ::next(ours, old, range.len(), from) } {
        from = block.at + differ::BLOCK;
        block.runs().for_each(|(at, bytes)| open.add(at, bytes, run));
        if update {
            // SAFETY: a block of the twin, which is changed under the page's lock only. Bytes that do not differ stay as they are.
            unsafe { copy::copy(old.add(block.at), block.bytes.as_ptr(), differ::BLOCK) };
        }
    }
    open.close(run);
}

/// The longest run: it is cut there.
const LONGEST: usize = 512;

/// A run that may go on in the next block.
struct Open {
    at: usize,
    len: usize,
    bytes: [u8; LONGEST],
}

impl Open {
    fn add(&mut self, mut at: usize, mut bytes: &[u8], run: &mut dyn FnMut(usize, &[u8])) {
        if at != self.at + self.len {
            self.close(run);
        }
        while !bytes.is_empty() {
            if self.len == 0 {
                self.at = at;
            }
            let (now, later) = bytes.split_at(bytes.len().min(LONGEST - self.len));
            self.bytes[self.len..self.len + now.len()].copy_from_slice(now);
            self.len += now.len();
            at += now.len();
            bytes = later;
            if self.len == LONGEST {
                self.close(run);
            }
        }
    }

    fn close(&mut self, run: &mut dyn FnMut(usize, &[u8])) {
        if self.len > 0 {
            run(self.at, &self.bytes[..self.len]);
            self.len = 0;
        }
    }
}

/// Stores the bytes of `fresh`, which is as long as the range, that differ from the twin into frame and twin: what other
/// nodes changed.
///
/// Workers of the node store to other bytes of the frame meanwhile: nothing wider than what differs is written there.
pub(crate) fn merge(frame: &Segment, twin: &Segment, range: Range<usize>, fresh: &[u8]) {
    assert_eq!(range.len(), fresh.len(), "a whole page is merged");
    let (ours, old) = (start(frame, &range), start(twin, &range));
    let mut from = 0;
    // SAFETY: `fresh` and the range of the twin are as long.
    while let Some(block) = unsafe { differ::next(fresh.as_ptr(), old, range.len(), from) } {
        from = block.at + differ::BLOCK;
        for (at, bytes) in block.runs() {
            // SAFETY: bytes of the frame, and these only.
            unsafe { copy::copy(ours.add(at), bytes.as_ptr(), bytes.len()) };
        }
        // SAFETY: a block of the twin, which is changed under the page's lock only. Bytes that do not differ stay as they are.
        unsafe { copy::copy(old.add(block.at), block.bytes.as_ptr(), differ::BLOCK) };
    }
}

/// Values of the program's window. The caller has seen to it that the place is inside, and borrowed from an epoch.
///
/// Other workers store to them only if the program has a data race, which is the program's promise not to have.
pub(crate) fn shared<'a, T: Plain>(at: usize, len: usize) -> &'a [T] {
    // SAFETY: inside the window, whose faults are served while a worker lives; any bytes are a value of a plain type, and
    // the start is aligned: arrays begin at pages.
    unsafe { std::slice::from_raw_parts(at as *const T, len) }
}

/// Values of the program's window, to be changed. The caller has seen to it that nothing else borrows them.
pub(crate) fn shared_mut<'a, T: Plain>(at: usize, len: usize) -> &'a mut [T] {
    // SAFETY: as in `shared`, and the epoch gives no other borrow of them.
    unsafe { std::slice::from_raw_parts_mut(at as *mut T, len) }
}

/// Runs a future that never waits: a real world waits inside its calls.
pub(crate) fn finish<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => unreachable!("a call of a real world does not return before it is done"),
    }
}

/// The value of this process that page faults go to.
static CURRENT: AtomicU64 = AtomicU64::new(0);
/// The thread that has made it, as the kernel numbers it.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The one value that page faults go to, on the thread that made it.
///
/// The library touches no page of a window, so that a fault never comes while the value is in use.
pub(crate) struct Current<T> {
    value: *mut T,
}

impl<T> Current<T> {
    pub(crate) fn set(value: T) -> Current<T> {
        let value = Box::into_raw(Box::new(value));
        OWNER.store(calls::thread_id(), Ordering::Release);
        CURRENT.store(value as u64, Ordering::Release);
        Current { value }
    }

    /// Runs `act` with the value. Only the thread that made it has it: `Current` is neither `Send` nor `Sync`.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: made by `set` and not yet taken; one thread, and no fault comes while `act` runs, as said above.
        act(unsafe { &mut *self.value })
    }

    /// Takes the value back: faults find none from here on.
    pub(crate) fn take(mut self) -> Box<T> {
        CURRENT.store(0, Ordering::Release);
        let value = std::mem::replace(&mut self.value, std::ptr::null_mut());
        // SAFETY: made by `set`, and this is its end.
        unsafe { Box::from_raw(value) }
    }
}

impl<T> Drop for Current<T> {
    fn drop(&mut self) {
        if !self.value.is_null() {
            CURRENT.store(0, Ordering::Release);
            // SAFETY: made by `set`, and this is its end.
            drop(unsafe { Box::from_raw(self.value) });
        }
    }
}

/// Why a fault has no value to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// None is set.
    None,
    /// Another thread has set it, and may be in the middle of using it.
    Elsewhere,
}

/// Runs `act` with the value that was [set](Current::set), in a fault of the thread that set it.
///
/// What a program borrows are plain slices, which it may give to other threads. These can touch pages that are mapped.
pub(crate) fn with_current<T, R>(act: impl FnOnce(&mut T) -> R) -> Result<R, Unserved> {
    let value = CURRENT.load(Ordering::Acquire) as *mut T;
    if value.is_null() {
        return Err(Unserved::None);
    }
    if OWNER.load(Ordering::Acquire) != calls::thread_id() {
        return Err(Unserved::Elsewhere);
    }
    // SAFETY: only the worker's own type is ever set. This is the thread that set it, in a fault, so it does not use the value;
    // no other thread comes here, nor does a forked child.
    Ok(act(unsafe { &mut *value }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const PAGE: usize = 4096;

    /// Two pages each of a frame and its twin, of which the second one is looked at.
    struct Pages {
        frame: Segment,
        twin: Segment,
    }

    const SECOND: Range<usize> = PAGE..2 * PAGE;

    impl Pages {
        fn new(fill: impl Fn(usize) -> u8) -> Pages {
            let segment = || Segment::create_sparse("pages", 2 * PAGE).expect("memory");
            let pages = Pages { frame: segment(), twin: segment() };
            let bytes: Vec<u8> = (0..PAGE).map(fill).collect();
            copy_in(&pages.frame, SECOND, &bytes);
            copy_in(&pages.twin, SECOND, &bytes);
            pages
        }

        fn bytes(segment: &Segment) -> Vec<u8> {
            let mut bytes = vec![0; PAGE];
            copy_out(segment, SECOND, &mut bytes);
            bytes
        }

        /// All runs of a diff.
        fn diff(&self, update: bool) -> Vec<(usize, Vec<u8>)> {
            let mut all = Vec::new();
            differences(&self.frame, &self.twin, SECOND, update, &mut |at, bytes| {
                all.push((at, bytes.to_vec()))
            });
            all
        }
    }

    /// What a loop over bytes finds; runs are cut at their longest.
    fn byte_by_byte(now: &[u8], old: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
        for at in (0..now.len()).filter(|&at| now[at] != old[at]) {
            match all.last_mut().filter(|(start, run)| start + run.len() == at && run.len() < LONGEST) {
                Some((_, run)) => run.push(now[at]),
                None => all.push((at, vec![now[at]])),
            }
        }
        all
    }

    /// Numbers for tests, the same in each run.
    fn numbers(seed: u64) -> impl FnMut() -> usize {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize
        }
    }

    #[test]
    fn runs_of_a_diff_are_those_that_a_loop_over_bytes_finds() {
        // Runs at the ends of the page, over edges of blocks, as long as the longest and around it, and none.
        let shapes: [&[(usize, usize)]; 9] = [
            &[],
            &[(0, 1)],
            &[(PAGE - 1, 1)],
            &[(31, 2), (64, 32), (127, 66)],
            &[(0, LONGEST)],
            &[(5, LONGEST + 1)],
            &[(7, 2 * LONGEST)],
            &[(0, PAGE)],
            &[(100, 600), (701, 3)],
        ];
        let mut random = numbers(7);
        let scattered =
            (0..60).map(|_| (0..random() % 40).map(|_| (random() % PAGE, 1 + random() % 9)).collect());
        for runs in shapes.iter().map(|runs| runs.to_vec()).chain(scattered.collect::<Vec<Vec<_>>>()) {
            for update in [false, true] {
                let pages = Pages::new(|at| (at % 253) as u8);
                let old = Pages::bytes(&pages.twin);
                let mut now = old.clone();
                for &(at, len) in &runs {
                    now[at..(at + len).min(PAGE)].iter_mut().for_each(|byte| *byte = !*byte);
                }
                copy_in(&pages.frame, SECOND, &now);
                assert_eq!(pages.diff(update), byte_by_byte(&now, &old), "{runs:?}");
                let twin = if update { &now } else { &old };
                assert_eq!(&Pages::bytes(&pages.twin), twin, "{runs:?}");
                assert_eq!(pages.diff(false).is_empty(), update || now == old);
            }
        }
    }

    #[test]
    fn a_merge_leaves_what_this_node_changed() {
        let mut random = numbers(11);
        for _ in 0..60 {
            let pages = Pages::new(|at| (at % 253) as u8);
            let old = Pages::bytes(&pages.twin);
            let (mut frame, mut fresh) = (old.clone(), old.clone());
            for at in 0..PAGE {
                match random() % 50 {
                    0 => frame[at] = !old[at],
                    1 => fresh[at] = !old[at],
                    _ => {}
                }
            }
            copy_in(&pages.frame, SECOND, &frame);
            merge(&pages.frame, &pages.twin, SECOND, &fresh);
            let both = |at: usize| if fresh[at] == old[at] { frame[at] } else { fresh[at] };
            assert_eq!(Pages::bytes(&pages.frame), (0..PAGE).map(both).collect::<Vec<_>>());
            assert_eq!(Pages::bytes(&pages.twin), fresh);
        }
    }

    #[test]
    fn a_merge_does_not_touch_what_is_stored_beside_it() {
        let pages = Pages::new(|_| 0);
        const TURNS: u32 = 3_000;
        let over = AtomicBool::new(false);
        // The other thread has every third byte of the frame, the merges change the two between.
        let ours = |at: usize| at.is_multiple_of(3);
        let frame = part::<AtomicU8>(&pages.frame, Part { at: PAGE, count: PAGE });
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| {
                let mut rounds = 0_u32;
                while !over.load(Ordering::Relaxed) || rounds < 2 {
                    rounds += 1;
                    for at in (0..PAGE).filter(|at| ours(*at)) {
                        frame[at].store(rounds as u8, Ordering::Relaxed);
                    }
                    for at in (0..PAGE).filter(|at| ours(*at)) {
                        assert_eq!(
                            frame[at].load(Ordering::Relaxed),
                            rounds as u8,
                            "byte {at} in round {rounds}"
                        );
                    }
                }
            });
            for turn in 1..=TURNS {
                let fresh: Vec<u8> = (0..PAGE).map(|at| if ours(at) { 0 } else { turn as u8 }).collect();
                merge(&pages.frame, &pages.twin, SECOND, &fresh);
                if storing.is_finished() {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!((0..PAGE).filter(|at| !ours(*at)).all(|at| frame[at].load(Ordering::Relaxed) == TURNS as u8));
    }
}
