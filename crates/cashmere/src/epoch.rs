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

    /// How many nodes they are on.
    pub fn nodes(&self) -> usize {
        self.dsm.nodes()
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
    /// If the name is 65,534 or above.
    pub fn barrier(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        assert!(name < BARRIERS, "barrier {name}: their names are below {BARRIERS}");
        self.pass(name)
    }

    /// A barrier of any name.
    pub(crate) fn pass(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        let dsm = self.without_locks();
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
    /// If the name is 65,536 or above.
    pub fn set_flag(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        assert!(name < FLAGS, "flag {name}: their names are below {FLAGS}");
        let dsm = self.without_locks();
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
    /// If the name is 65,536 or above.
    pub fn wait_flag(self, name: Name) -> Result<Epoch<'a>, NodeDown> {
        assert!(name < FLAGS, "flag {name}: their names are below {FLAGS}");
        let dsm = self.without_locks();
        dsm.inner
            .with(|inner| inner.synchronise(|worker, process| finish(worker.wait_flag(process, name))))?;
        Ok(Epoch::of(dsm))
    }

    /// Runs `act` under a lock: it sees what others wrote under it. Nothing else may be borrowed meanwhile.
    ///
    /// `act` may take other locks from the epoch that it gets, which are given back before this one:
    ///
    /// ```no_run
    /// # use viaduct_cashmere::{Array, Epoch, node::start::Error};
    /// fn moves(mut epoch: Epoch<'_>, from: u32, to: u32, money: Array<u64>) -> Result<(), Error> {
    ///     // Every worker takes the two in one order: else two workers could wait for each other for ever.
    ///     let (first, second) = (from.min(to), from.max(to));
    ///     epoch.locked(first, |epoch| {
    ///         epoch.locked(second, |epoch| {
    ///             epoch.write(money, from as usize..from as usize + 1)[0] -= 1;
    ///             epoch.write(money, to as usize..to as usize + 1)[0] += 1;
    ///         })
    ///     })??;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// If the name is 32,768 or above (those are for [`Guarded`] values), or this worker holds the lock already.
    pub fn locked<R>(&mut self, name: Name, act: impl FnOnce(&mut Epoch<'_>) -> R) -> Result<R, NodeDown> {
        check_lock(name);
        self.take(name)?;
        let result = act(self);
        self.leave(name)?;
        Ok(result)
    }

    /// Runs `act` with values that their lock guards, while it is held. Nothing else may be borrowed meanwhile but by `act`,
    /// from the epoch that it gets; it may take other locks, as in [`locked`](Self::locked).
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// If this worker holds their lock already.
    pub fn with<T: Plain, R>(
        &mut self,
        guarded: Guarded<T>,
        act: impl FnOnce(&mut [T], &mut Epoch<'_>) -> R,
    ) -> Result<R, NodeDown> {
        let Guarded { values, lock } = guarded;
        self.take(lock)?;
        // A pointer may lead to them. After a panic they stay borrowed, as the lock stays held.
        let place = values.place(&(0..values.len()));
        self.borrowed.add(place.clone(), true);
        let result = act(raw::shared_mut(place.start, values.len()), self);
        self.borrowed.give_back(&place, true);
        self.leave(lock)?;
        Ok(result)
    }

    /// Runs `act` under a lock that it passes on to the next one, for lists and trees with a lock for each element: the
    /// [`Hand`] takes the next lock before it gives the last one back, so that no other worker comes in between.
    ///
    /// ```no_run
    /// # use viaduct_cashmere::{Array, Epoch, world::NodeDown};
    /// /// The elements of a list have the numbers of their locks; each holds the number of the next, the last one a 0.
    /// fn last(mut epoch: Epoch<'_>, list: Array<u32>) -> Result<u32, NodeDown> {
    ///     epoch.hand_over_hand(0, |hand| loop {
    ///         let at = hand.name();
    ///         let next = hand.read(list, at as usize..at as usize + 1)[0];
    ///         if next == 0 {
    ///             return Ok(at);
    ///         }
    ///         hand.over(next)?;
    ///     })?
    /// }
    /// ```
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// As [`locked`](Self::locked).
    pub fn hand_over_hand<R>(
        &mut self,
        first: Name,
        act: impl FnOnce(&mut Hand<'_, '_>) -> R,
    ) -> Result<R, NodeDown> {
        check_lock(first);
        self.take(first)?;
        let mut hand = Hand { epoch: self, name: first };
        let result = act(&mut hand);
        let last = hand.name;
        self.leave(last)?;
        Ok(result)
    }

    fn take(&mut self, name: Name) -> Result<(), NodeDown> {
        let Dsm { inner, held, .. } = &mut *self.dsm;
        assert!(
            !held.contains(&name),
            "lock {name} is held by this worker already, which would wait for itself"
        );
        inner.with(|inner| {
            inner.process.count(Counter::Locks, 1);
            inner.synchronise(|worker, process| finish(worker.lock(process, name)))
        })?;
        held.push(name);
        Ok(())
    }

    fn leave(&mut self, name: Name) -> Result<(), NodeDown> {
        let Dsm { inner, held, .. } = &mut *self.dsm;
        held.retain(|other| *other != name);
        inner.with(|inner| inner.synchronise(|worker, process| finish(worker.unlock(process, name))))
    }

    /// The worker that goes on from a barrier or a flag, which holds no lock. Only after a panic under a lock that the program caught
    /// does it: others would wait for the lock for ever.
    fn without_locks(self) -> &'a mut Dsm {
        let held = &self.dsm.held;
        assert!(
            held.is_empty(),
            "locks {held:?} are held at a barrier, at a flag or at the end: a panic under them was caught"
        );
        self.dsm
    }
}

fn check_lock(name: Name) {
    assert!(name < LOCKS, "lock {name}: their names are below {LOCKS}");
}

/// One lock after the other, of which this worker holds one at a time, or two: [`Epoch::hand_over_hand`].
///
/// It stands for the epoch: what is borrowed under one lock does not go over to the next.
///
/// ```compile_fail
/// # use viaduct_cashmere::{Array, Epoch, world::NodeDown};
/// fn over_the_next_lock(mut epoch: Epoch<'_>, list: Array<u32>) -> Result<u32, NodeDown> {
///     epoch.hand_over_hand(0, |hand| {
///         let value = hand.read(list, 0..1);
///         hand.over(1)?;
///         Ok(value[0])
///     })?
/// }
/// ```
pub struct Hand<'h, 'a> {
    epoch: &'h mut Epoch<'a>,
    name: Name,
}

impl Hand<'_, '_> {
    /// The lock that is held.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Takes the next lock, then gives the one that was held back.
    ///
    /// # Errors
    /// If a node is gone.
    ///
    /// # Panics
    /// As [`Epoch::locked`].
    pub fn over(&mut self, next: Name) -> Result<(), NodeDown> {
        check_lock(next);
        self.epoch.take(next)?;
        let before = std::mem::replace(&mut self.name, next);
        self.epoch.leave(before)
    }
}

impl<'a> Deref for Hand<'_, 'a> {
    type Target = Epoch<'a>;

    fn deref(&self) -> &Epoch<'a> {
        self.epoch
    }
}

/// Other locks may be taken under the one that is held.
impl<'a> DerefMut for Hand<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Epoch<'a> {
        self.epoch
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
