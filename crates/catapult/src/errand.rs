//! Work that has to wait, done by threads beside a loop that must not: each errand has a number, and a bell in the loop's
//! epoll set rings when one is done.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};

use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;

/// Errands that bring back a `T`, or why they could not.
#[derive(Debug)]
pub(crate) struct Errands<T> {
    sender: mpsc::Sender<(usize, Result<T, String>)>,
    receiver: mpsc::Receiver<(usize, Result<T, String>)>,
    bell: Arc<EventFd>,
}

impl<T: Send + 'static> Errands<T> {
    pub(crate) fn new() -> Result<Errands<T>, OsError> {
        let (sender, receiver) = mpsc::channel();
        Ok(Errands { sender, receiver, bell: Arc::new(EventFd::new()?) })
    }

    /// Sends a thread out.
    pub(crate) fn send_out(&self, number: usize, work: impl FnOnce() -> Result<T, String> + Send + 'static) {
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        let errand = move || {
            // A loop that has ended needs no answer.
            let _ = sender.send((number, work()));
            bell.signal();
        };
        if std::thread::Builder::new().spawn(errand).is_err() {
            let _ = self.sender.send((number, Err("there are too many threads".to_owned())));
            self.bell.signal();
        }
    }

    /// What has come back since the last time.
    pub(crate) fn take(&self) -> Vec<(usize, Result<T, String>)> {
        self.bell.drain();
        self.receiver.try_iter().collect()
    }
}

impl<T> AsFd for Errands<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.bell).as_fd()
    }
}
