//! libfabric as it is: connected endpoints, completion queues and memory, with safe calls and nothing of VIA.
//!
//! What a program would write that uses libfabric itself; the benchmarks measure it (thesis, chapter 3, where GM has this
//! part), so that one sees what VIA costs on the same provider. No credits, no heartbeat, no authentication.
//!
//! ```text
//!   Domain    an opened provider                 Cq        completions, of one endpoint or of many
//!   Endpoint  a connection; Listener, Request    Message   memory, owned by the part that may touch it
//! ```
//!
//! A message that is posted belongs to the domain's ledger until its completion hands it out again, so that no one can
//! touch memory that libfabric uses. One thread has it all.

mod endpoint;
mod ledger;
mod message;
mod queue;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use viaduct_via::Error;

pub use endpoint::{Endpoint, Listener, Queues, Request};
use ledger::Ledger;
pub use message::Message;
pub use queue::{Cq, Done};

use super::choose;
use super::fabric::{Fabric, News};
use crate::config::OfiConfig;

/// What a provider of libfabric can do, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its name: `tcp`, `verbs`.
    pub name: String,
    /// Longest message that is copied by the call that sends it.
    pub inject: usize,
    /// Pieces that one send may gather.
    pub gather: usize,
    /// Pieces that one receive may scatter to.
    pub scatter: usize,
    /// Memory must be registered before it is posted (`FI_MR_LOCAL`).
    pub registers: bool,
    /// Sends and receives that one endpoint may have posted.
    pub posted: usize,
    /// Longest message.
    pub longest: usize,
}

/// An opened provider of libfabric.
pub struct Domain {
    inner: Rc<Inner>,
}

/// What endpoints, queues and messages keep open.
struct Inner {
    fabric: Fabric,
    facts: Facts,
    ledger: RefCell<Ledger>,
    /// News that came while others were waited for.
    news: RefCell<Vec<News>>,
}

impl Domain {
    /// Opens the provider that `config` names, or the best one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if libfabric or the provider is not there.
    pub fn open(config: &OfiConfig) -> Result<Domain, Error> {
        let (info, name) = choose(config)?;
        let (sends, receives) = info.queue_sizes();
        // SAFETY: an entry of the library's has all its parts.
        let (gather, scatter, longest) = unsafe {
            let entry = &*info.ptr;
            ((*entry.tx_attr).iov_limit, (*entry.rx_attr).iov_limit, (*entry.ep_attr).max_msg_size)
        };
        let facts = Facts {
            name,
            inject: info.inject_size(),
            gather,
            scatter,
            registers: info.registers_buffers(),
            posted: sends.min(receives),
            longest,
        };
        let fabric = Fabric::open(info.fi, info, false)?;
        let (ledger, news) = (RefCell::default(), RefCell::default());
        Ok(Domain { inner: Rc::new(Inner { fabric, facts, ledger, news }) })
    }

    /// What it can do.
    pub fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    /// Listens at an address; port 0 takes any.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    pub fn listen(&self, address: SocketAddr) -> Result<Listener, Error> {
        Listener::open(&self.inner, address)
    }

    /// A completion queue for so many completions; one that can be slept on costs some providers more.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    pub fn cq(&self, entries: usize, sleeps: bool) -> Result<Cq, Error> {
        Cq::open(&self.inner, entries, sleeps)
    }

    /// An endpoint that will lead to an address; receives may be posted at once.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    pub fn endpoint(&self, to: SocketAddr, queues: &Queues) -> Result<Endpoint, Error> {
        Endpoint::leading_to(&self.inner, to, queues)
    }

    /// `count` messages of pieces with these lengths, `step` bytes from the start of one to that of the next, registered or
    /// not (see [`Facts::registers`]). Every page is touched.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if a piece is longer than the step; [`Error::Transport`] if registering fails.
    pub fn messages(
        &self,
        count: usize,
        lengths: &[usize],
        step: usize,
        registered: bool,
    ) -> Result<Vec<Message>, Error> {
        Message::several(&self.inner, count, lengths, step, registered)
    }
}

impl Inner {
    /// The first piece of news that is wanted; others are kept for those that want them.
    fn hear(&self, wanted: impl Fn(&News) -> bool) -> Option<News> {
        let mut news = self.news.borrow_mut();
        news.extend(self.fabric.read_eq());
        let at = news.iter().position(wanted)?;
        Some(news.swap_remove(at))
    }
}
