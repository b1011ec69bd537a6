//! The pollable descriptor of a layer, for event loops.
//!
//! One descriptor stands for everything on the NIC. A thread that waits holds a [`Watch`], looks once more, and polls the
//! descriptor; several threads may do so. It stays readable until the last of them has left, because what one of them
//! clears another could miss.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use viaduct_os::error::OsError;

use super::{Driver, Layer};
use crate::error::Error;

/// Makes the pollable descriptor readable at the next piece of news, while it lives.
pub struct Watch<L: Layer> {
    driver: Driver<L>,
    fd: Arc<OwnedFd>,
}

impl<L: Layer> fmt::Debug for Watch<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl<L: Layer> Driver<L> {
    /// Begins to watch. What came before is not announced: take in what is there, then poll the descriptor.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Os`].
    pub fn watch(&self) -> Result<Watch<L>, Error> {
        let mut layer = self.lock()?;
        let nic = layer.nic();
        let fd = match self.0.pollable.get() {
            Some(fd) => fd.clone(),
            None => {
                let copy = nic.fd()?.try_clone_to_owned().map_err(|e| OsError::sys("dup", e))?;
                self.0.pollable.get_or_init(|| Arc::new(copy)).clone()
            }
        };
        self.0.sleep.arm(nic, 0)?;
        self.0.sleep.add_watcher();
        Ok(Watch { driver: self.clone(), fd })
    }
}

impl<L: Layer> Watch<L> {
    /// Begins to watch anew, after the descriptor was readable. Take in what is there afterwards.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Os`].
    pub fn again(&self) -> Result<(), Error> {
        let mut layer = self.driver.lock()?;
        self.driver.0.sleep.arm(layer.nic(), 1)
    }
}

impl<L: Layer> AsFd for Watch<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<L: Layer> Drop for Watch<L> {
    fn drop(&mut self) {
        if self.driver.is_inherited() {
            return;
        }
        let sleep = &self.driver.0.sleep;
        let last = |layer: &mut L| {
            if sleep.remove_watcher() {
                layer.nic().disarm();
            }
        };
        if self.driver.with(last).is_none() {
            sleep.remove_watcher();
        }
    }
}
