//! Where a program runs: workers that share numbers and meet at barriers. On nodes it is an [`Epoch`]; the benchmarks have
//! threads of one process, to compare with the same program.

use std::ops::{Deref, DerefMut, Range};

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Epoch};

/// A worker, between two barriers.
pub trait Team: Sized {
    /// A handle of shared numbers.
    type Numbers: Copy;

    /// This worker among all.
    fn rank(&self) -> usize;
    /// How many workers there are.
    fn size(&self) -> usize;
    /// Whether all workers share one memory, in which a first touch brings no page from elsewhere.
    fn is_together(&self) -> bool;
    /// Numbers to be read.
    fn read(&self, numbers: Self::Numbers, range: Range<usize>) -> impl Deref<Target = [f64]>;
    /// Numbers to be changed, which no other worker touches before the next barrier.
    fn write(&self, numbers: Self::Numbers, range: Range<usize>) -> impl DerefMut<Target = [f64]>;
    /// Waits for all workers.
    ///
    /// # Errors
    /// If one is gone.
    fn barrier(self) -> Result<Self, Error>;
    /// Says how far the program has come.
    fn progress(&self, _share: f64) {}
}

impl Team for Epoch<'_> {
    type Numbers = Array<f64>;

    fn rank(&self) -> usize {
        Epoch::rank(self)
    }

    fn size(&self) -> usize {
        Epoch::size(self)
    }

    fn is_together(&self) -> bool {
        self.nodes() == 1
    }

    fn read(&self, numbers: Array<f64>, range: Range<usize>) -> impl Deref<Target = [f64]> {
        Epoch::read(self, numbers, range)
    }

    fn write(&self, numbers: Array<f64>, range: Range<usize>) -> impl DerefMut<Target = [f64]> {
        Epoch::write(self, numbers, range)
    }

    fn barrier(self) -> Result<Self, Error> {
        Ok(Epoch::barrier(self, 0)?)
    }

    fn progress(&self, share: f64) {
        Epoch::progress(self, share);
    }
}
