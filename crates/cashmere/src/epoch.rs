//! Epochs: the time of a worker between two points of synchronisation, from which all that it borrows of shared memory
//! is borrowed.
//!
//! A barrier or a flag uses the epoch up, a lock borrows it as a whole: no slice outlives the synchronisation that may
//! change it.

use std::ops::{Deref, DerefMut, Range};

use crate::array::{Array, Guarded, Plain, Ptr};
use crate::borrowed::Borrowed;
use crate::dsm::{BARRIERS, Dsm, FLAGS, LOCKS};
use crate::raw::{self, finish};
use crate::statistics::Counter;
use crate::world::{Name, NodeDown};

/// The time of a worker between two barriers.
///
/// Programs must be free of data races: what one worker writes in an epoch no other worker touches in that epoch, unless a
/// lock orders them.
///
/// What is borrowed does not outlive a barrier,
///
/// ```compile_fail
/// # use viaduct_cashmere::{Array, Epoch, node::start::Error};
/// fn over_a_barrier(epoch: Epoch<'_>, numbers: Array<u64>) -> Result<u64, Error> {
///     let first = epoch.read(numbers, 0..1);
///     epoch.barrier(0)?;
///     Ok(first[0])
/// }
/// ```
///
/// nor a flag,
///
/// ```compile_fail
/// # use viaduct_cashmere::{Array, Epoch, node::start::Error};
/// fn over_a_flag(epoch: Epoch<'_>, numbers: Array<u64>) -> Result<(), Error> {
///     let mut first = epoch.write(numbers, 0..1);
///     epoch.set_flag(0)?;
///     first[0] = 1;
///     Ok(())
/// }
/// ```
///
/// nor a lock,
///
/// ```compile_fail
/// # use viaduct_cashmere::{Array, Epoch, Guarded, node::start::Error};
/// fn over_a_lock(mut epoch: Epoch<'_>, numbers: Array<u64>, total: Guarded<u64>) -> Result<u64, Error> {
///     let first = epoch.read(numbers, 0..1);
///     epoch.with(total, |total, _| total[0] += 1)?;
///     Ok(first[0])
/// }
/// ```
///
/// and guarded values do not leave their lock:
///
/// ```compile_fail
/// # use viaduct_cashmere::{Epoch, Guarded, node::start::Error};
/// fn out_of_the_lock<'e>(epoch: &'e mut Epoch<'_>, total: Guarded<u64>) -> Result<&'e mut u64, Error> {
///     Ok(epoch.with(total, |total, _| &mut total[0])?)
/// }
/// ```
///
/// This is how they are meant:
///
/// ```no_run
/// # use viaduct_cashmere::{Array, Epoch, Guarded, node::start::Error};
/// fn fine<'a>(mut epoch: Epoch<'a>, numbers: Array<u64>, total: Guarded<u64>) -> Result<Epoch<'a>, Error> {
///     let first = epoch.read(numbers, 0..1)[0];
///     epoch.with(total, |total, _| total[0] += first)?;
///     Ok(epoch.barrier(0)?)
/// }
/// ```
pub struct Epoch<'a> {
    dsm: &'a mut Dsm,
    borrowed: Borrowed,
}

impl<'a> Epoch<'a> {
    pub(crate) fn of(dsm: &'a mut Dsm) -> Epoch<'a> {
        Epoch { dsm, borrowed: Borrowed::default() }
    }

    /// This worker among all.
    pub fn rank(&self) -> usize {
        self.dsm.rank()
    }

    /// How many workers there are.
    pub fn size(&self) -> usize {
        self.dsm.size()
    }

    /// Says how far the program has come, from 0 to 1; the launcher shows what the first worker says.
    pub fn progress(&self, share: f64) {
        self.dsm.progress.share(share);
    }

    /// Values to be read.
    ///
    /// # Panics
    /// If the range is outside, or values of it are borrowed to be changed.
    pub fn read<T: Plain>(&self, array: Array<T>, range: Range<usize>) -> Ref<'_, T> {
        let place = array.place(&range);
        self.borrowed.add(place.clone(), false);
        Ref { values: raw::shared(place.start, range.len()), place, epoch: self }
    }

    /// Values to be changed.
    ///
    /// # Panics
    /// If the range is outside, or values of it are borrowed.
    pub fn write<T: Plain>(&self, array: Array<T>, range: Range<usize>) -> Mut<'_, T> {
        let place = array.place(&range);
        self.borrowed.add(place.clone(), true);
        Mut { values: raw::shared_mut(place.start, range.len()), place, epoch: self }
    }

    fn place<T>(&self, ptr: Ptr<T>) -> Range<usize> {
        let place = ptr.place(&self.dsm.allocated());
        place.unwrap_or_else(|| panic!("{ptr:?} does not lead to a value that this worker has allocated"))
    }

    /// The value that a pointer leads to.
    ///
    /// # Panics
    /// If it leads nowhere, or the value is borrowed to be changed.
    pub fn load<T: Plain>(&self, ptr: Ptr<T>) -> T {
        let place = self.place(ptr);
        self.borrowed.add(place.clone(), false);
        let value = raw::shared::<T>(place.start, 1)[0];
        self.borrowed.give_back(&place, false);
        value
    }

    /// Changes the value that a pointer leads to.
    ///
    /// # Panics
    /// If it leads nowhere, or the value is borrowed.
    pub fn store<T: Plain>(&self, ptr: Ptr<T>, value: T) {
        let place = self.place(ptr);
        self.borrowed.add(place.clone(), true);
        raw::shared_mut::<T>(place.start, 1)[0] = value;
        self.borrowed.give_back(&place, true);
    }

    /// Waits until all workers of all nodes have come to the barrier of this name; then what they wrote is seen.
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// If the name is 1022 or above.
    pub fn barrier(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        assert!(name < BARRIERS, "barrier {name}: their names are below {BARRIERS}");
        self.pass(name)
    }

    /// A barrier of any name.
    pub(crate) fn pass(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        let Epoch { dsm, .. } = self;
        dsm.inner.with(|inner| {
            inner.process.count(Counter::Barriers, 1);
            inner.synchronise(|worker, process| finish(worker.barrier(process, name)))
        })?;
        dsm.progress.barrier();
        Ok(Epoch::of(dsm))
    }

    /// Sets a flag, once: a worker that waits for it sees what this one wrote before.
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// If the name is 1024 or above.
    pub fn set_flag(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        assert!(name < FLAGS, "flag {name}: their names are below {FLAGS}");
        let Epoch { dsm, .. } = self;
        dsm.inner
            .with(|inner| inner.synchronise(|worker, process| finish(worker.set_flag(process, name))))?;
        Ok(Epoch::of(dsm))
    }

    /// Waits until a flag is set.
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// If the name is 1024 or above.
    pub fn wait_flag(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        assert!(name < FLAGS, "flag {name}: their names are below {FLAGS}");
        let Epoch { dsm, .. } = self;
        dsm.inner
            .with(|inner| inner.synchronise(|worker, process| finish(worker.wait_flag(process, name))))?;
        Ok(Epoch::of(dsm))
    }

    /// Runs `act` under a lock: it sees what others wrote under it. Nothing else may be borrowed meanwhile.
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// If the name is 512 or above: those are for [`Guarded`] values.
    pub fn locked<R>(&mut self, name: Name, act: impl FnOnce(&Epoch<'_>) -> R) -> Result<R, NodeDown> {
        assert!(name < LOCKS, "lock {name}: their names are below {LOCKS}");
        self.hold(name, act)
    }

    /// Runs `act` with values that their lock guards, while it is held. Nothing else may be borrowed meanwhile but by `act`,
    /// from the epoch that it gets.
    ///
    /// # Errors
    /// If a node is gone.
    pub fn with<T: Plain, R>(
        &mut self,
        guarded: Guarded<T>,
        act: impl FnOnce(&mut [T], &Epoch<'_>) -> R,
    ) -> Result<R, NodeDown> {
        self.hold(guarded.lock, |epoch| act(&mut epoch.write(guarded.values, 0..guarded.values.len()), epoch))
    }

    fn hold<R>(&mut self, name: Name, act: impl FnOnce(&Epoch<'_>) -> R) -> Result<R, NodeDown> {
        let inner = &self.dsm.inner;
        inner.with(|inner| {
            inner.process.count(Counter::Locks, 1);
            inner.synchronise(|worker, process| finish(worker.lock(process, name)))
        })?;
        let result = act(self);
        self.dsm
            .inner
            .with(|inner| inner.synchronise(|worker, process| finish(worker.unlock(process, name))))?;
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
        self.epoch.borrowed.give_back(&self.place, false);
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
        self.epoch.borrowed.give_back(&self.place, true);
    }
}
