//! What a program sees: shared arrays at one address everywhere, epochs between barriers, locks.
//!
//! An [`Epoch`] is the time between two barriers of a worker. What a program borrows from shared memory it borrows from the
//! epoch, and a barrier uses the epoch up: no slice outlives the synchronisation that may change it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use viaduct_job::Job;
use viaduct_os::fault::{self, EngineKind, Serving, Stack, Window};

use crate::ids::PageId;
use crate::node::process::Process;
use crate::node::start::{self, Error, WINDOW};
use crate::node::wire::Says;
use crate::protocol::page::Access;
use crate::raw::{self, Plain, finish};
use crate::statistics::{Counter, Statistics};
use crate::worker::Worker;
use crate::world::{Name, NodeDown};

/// What page faults go to.
struct Inner {
    process: Process,
    worker: Worker,
}

impl Inner {
    fn fault(&mut self, address: usize, access: fault::Access) -> bool {
        let page = PageId(((address - WINDOW) / self.process.shape.page) as u32);
        let access = match access {
            fault::Access::Write => Access::Write,
            fault::Access::Read => Access::Read,
            // A page that can be loaded from faults at a store only.
            fault::Access::Unknown => {
                let mapped = self.process.memory.meta.entry(page);
                let entry = mapped.lock(&|| true);
                mapped.unlock(entry);
                if entry.mapped().contains(self.worker.id()) { Access::Write } else { Access::Read }
            }
        };
        let counter = if access == Access::Write { Counter::WriteFaults } else { Counter::ReadFaults };
        self.process.count(counter, 1);
        match finish(self.worker.fault(&mut self.process, page, access)) {
            Ok(()) => true,
            Err(down) => start::give_up(&format!("{down}: a page of shared memory cannot be had")),
        }
    }
}

fn catch(address: usize, access: fault::Access) -> bool {
    raw::with_current(|inner: &mut Inner| inner.fault(address, access)).unwrap_or(false)
}

/// A worker of a node: the program's own process.
pub struct Dsm {
    inner: raw::Current<Inner>,
    job: Job,
    rank: usize,
    size: usize,
    engine: EngineKind,
    bytes: usize,
    next: usize,
    _serving: Serving,
    _stack: Stack,
}

impl Dsm {
    pub(crate) fn new(job: Job, mut process: Process, engine: Option<EngineKind>) -> Result<Dsm, Error> {
        let failed = |step| move |why: viaduct_os::error::OsError| Error::Start(step, why.to_string());
        let window =
            Window::new(&process.memory.frames, WINDOW, engine).map_err(failed("mapping shared memory"))?;
        let (bytes, engine) = (window.len(), window.engine());
        process.window = Some(window);
        let stack = Stack::install().map_err(failed("a stack for faults"))?;
        let serving = fault::serve(WINDOW..WINDOW + bytes, catch).map_err(failed("catching faults"))?;
        let shape = process.shape;
        let worker = process.worker.expect("a worker");
        let rank = usize::from(process.me.0) * shape.workers as usize + usize::from(worker.0);
        let size = usize::from(shape.nodes) * shape.workers as usize;
        let inner = raw::Current::set(Inner { process, worker: Worker::new(worker) });
        Ok(Dsm { inner, job, rank, size, engine, bytes, next: 0, _serving: serving, _stack: stack })
    }

    /// This worker among all workers of all nodes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many workers there are on all nodes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The access engine at work.
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Shared values, zero at first, beginning at a page. Every worker makes the same arrays in the same order.
    ///
    /// # Errors
    /// If the shared memory has no room for them.
    pub fn array<T: Plain>(&mut self, len: usize) -> Result<Array<T>, Error> {
        let page = self.inner.with(|inner| inner.process.shape.page);
        let at = self.next.next_multiple_of(page);
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(at));
        match end.filter(|end| *end <= self.bytes) {
            Some(end) => {
                self.next = end;
                Ok(Array { at: WINDOW + at, len, kind: PhantomData })
            }
            None => Err(Error::Settings(format!(
                "{len} values of {} bytes do not fit into the {} bytes of shared memory that are left; \
                 hint: give the run more memory",
                size_of::<T>(),
                self.bytes.saturating_sub(at)
            ))),
        }
    }

    /// The first epoch. One at a time.
    pub fn epoch(&mut self) -> Epoch<'_> {
        Epoch { dsm: self, borrowed: RefCell::default() }
    }

    /// Leaves: after a barrier nothing of the shared memory can be used any more. Gives what all nodes counted.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn finish(mut self) -> Result<Statistics, Error> {
        self.epoch().barrier(END)?;
        self.inner.with(|inner| {
            let nodes = inner.process.shape.nodes;
            let byes = (0..nodes).map(|node| inner.process.post(crate::ids::NodeId(node), Says::Bye, &[]));
            let byes: Vec<_> = byes.collect::<Result<_, _>>()?;
            byes.into_iter().try_for_each(|bye| inner.process.wait_answer(bye).map(drop))
        })?;
        let Dsm { inner, job, .. } = self;
        start::end(job, &inner.take().process)
    }
}

/// The barrier of [`Dsm::finish`].
const END: Name = crate::node::layout::NAMES as Name - 1;

/// Values of type `T` in shared memory, at the same address in every worker.
#[derive(Debug)]
pub struct Array<T> {
    at: usize,
    len: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Array<T> {
        *self
    }
}

impl<T> Copy for Array<T> {}

impl<T> Array<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place(&self, range: &Range<usize>) -> Range<usize> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of an array of {}", self.len);
        self.at + range.start * size_of::<T>()..self.at + range.end * size_of::<T>()
    }
}

/// The time of a worker between two barriers.
///
/// Programs must be free of data races: what one worker writes in an epoch no other worker touches in that epoch, unless a
/// lock orders them.
pub struct Epoch<'a> {
    dsm: &'a mut Dsm,
    /// What is borrowed: addresses, and whether it is to be changed.
    borrowed: RefCell<Vec<(Range<usize>, bool)>>,
}

impl<'a> Epoch<'a> {
    /// This worker among all.
    pub fn rank(&self) -> usize {
        self.dsm.rank
    }

    /// How many workers there are.
    pub fn size(&self) -> usize {
        self.dsm.size
    }

    fn borrow(&self, place: Range<usize>, writes: bool) {
        let mut borrowed = self.borrowed.borrow_mut();
        let clash = |other: &(Range<usize>, bool)| {
            (writes || other.1) && other.0.start < place.end && place.start < other.0.end
        };
        assert!(!borrowed.iter().any(clash), "shared values are borrowed twice, once to be changed");
        borrowed.push((place, writes));
    }

    fn give_back(&self, place: &Range<usize>, writes: bool) {
        let mut borrowed = self.borrowed.borrow_mut();
        if let Some(index) = borrowed.iter().position(|one| one.0 == *place && one.1 == writes) {
            borrowed.swap_remove(index);
        }
    }

    /// Values to be read.
    ///
    /// # Panics
    /// If the range is outside, or values of it are borrowed to be changed.
    pub fn read<T: Plain>(&self, array: Array<T>, range: Range<usize>) -> Ref<'_, T> {
        let place = array.place(&range);
        self.borrow(place.clone(), false);
        Ref { values: raw::shared(place.start, range.len()), place, epoch: self }
    }

    /// Values to be changed.
    ///
    /// # Panics
    /// If the range is outside, or values of it are borrowed.
    pub fn write<T: Plain>(&self, array: Array<T>, range: Range<usize>) -> Mut<'_, T> {
        let place = array.place(&range);
        self.borrow(place.clone(), true);
        Mut { values: raw::shared_mut(place.start, range.len()), place, epoch: self }
    }

    /// Waits until all workers of all nodes have come to the barrier of this name; then what they wrote is seen.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn barrier(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        let Epoch { dsm, .. } = self;
        dsm.inner.with(|inner| {
            inner.process.count(Counter::Barriers, 1);
            finish(inner.worker.barrier(&mut inner.process, name))
        })?;
        Ok(Epoch { dsm, borrowed: RefCell::default() })
    }

    /// Sets a flag, once: a worker that waits for it sees what this one wrote before.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn set_flag(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        let Epoch { dsm, .. } = self;
        dsm.inner.with(|inner| finish(inner.worker.set_flag(&mut inner.process, name)))?;
        Ok(Epoch { dsm, borrowed: RefCell::default() })
    }

    /// Waits until a flag is set.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn wait_flag(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        let Epoch { dsm, .. } = self;
        dsm.inner.with(|inner| finish(inner.worker.wait_flag(&mut inner.process, name)))?;
        Ok(Epoch { dsm, borrowed: RefCell::default() })
    }

    /// Runs `act` under a lock: it sees what others wrote under it. Nothing else may be borrowed meanwhile.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn locked<R>(&mut self, name: Name, act: impl FnOnce(&Epoch<'_>) -> R) -> Result<R, NodeDown> {
        let inner = &self.dsm.inner;
        inner.with(|inner| {
            inner.process.count(Counter::Locks, 1);
            finish(inner.worker.lock(&mut inner.process, name))
        })?;
        let result = act(self);
        self.dsm.inner.with(|inner| finish(inner.worker.unlock(&mut inner.process, name)))?;
        Ok(result)
    }
}

/// Shared values, read.
pub struct Ref<'e, T> {
    values: &'e [T],
    place: Range<usize>,
    epoch: &'e Epoch<'e>,
}

impl<T> Deref for Ref<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.values
    }
}

impl<T> Drop for Ref<'_, T> {
    fn drop(&mut self) {
        self.epoch.give_back(&self.place, false);
    }
}

/// Shared values, to be changed.
pub struct Mut<'e, T> {
    values: &'e mut [T],
    place: Range<usize>,
    epoch: &'e Epoch<'e>,
}

impl<T> Deref for Mut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.values
    }
}

impl<T> DerefMut for Mut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.values
    }
}

impl<T> Drop for Mut<'_, T> {
    fn drop(&mut self) {
        self.epoch.give_back(&self.place, true);
    }
}
