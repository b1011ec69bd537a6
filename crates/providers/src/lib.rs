//! Providers: the ways a VI's bytes travel.
//!
//! ```text
//!   viaduct-via  (Nic, Vi, queues, ledger)
//!        │  trait Provider / Endpoint
//!        ├── loopback/   one process; deterministic; for tests and models
//!        ├── shm/        processes of one host; shared memory, no daemon, no privileges
//!        ├── ofi/        between hosts, on libfabric, which is loaded at run time
//!        └── auto/       shm for peers of this host, ofi for the others
//! ```
//!
//! What the folders of providers have in common is in files of one name: `nic` (the provider), `vi` (an endpoint), `mem` (allocation
//! and registration), `connect` (connection set-up), `progress` (what moves things on).
//!
//! ```
//! use viaduct_via::Nic;
//!
//! let nic = Nic::open(viaduct_providers::open("loopback", &Default::default())?)?;
//! assert_eq!(nic.attributes().name, "loopback");
//! # Ok::<(), viaduct_via::Error>(())
//! ```

#![warn(clippy::missing_errors_doc, missing_debug_implementations)]

pub mod auto;
mod backlog;
mod bell;
pub mod config;
#[cfg(any(feature = "fuzzing", all(test, not(loom))))]
#[doc(hidden)]
pub mod fuzz;
mod heap;
mod here;
pub mod loopback;
pub mod ofi;
mod parties;
pub mod shm;
pub mod vipl;

use std::collections::VecDeque;

use viaduct_os::budget::Budget;
use viaduct_via::provider::{Event, ListenId, Provider, RequestId};
use viaduct_via::{Error, RemoteAttributes};

pub use config::Config;
use config::{OfiConfig, OtherUsers, ShmConfig};

/// A provider that [`open`] knows.
#[derive(Debug)]
#[non_exhaustive]
pub struct Known {
    /// The word for [`open`].
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// How far away peers can be.
    pub span: Span,
    open: fn(&Config) -> Result<Box<dyn Provider>, Error>,
}

/// How far a provider's connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// Both ends are in one process.
    Process,
    /// Both ends are on one host.
    Host,
    /// To other hosts as well.
    Network,
}

/// Every provider, the one that chooses among the others first. This is the one list of them: `viaduct info`, the
/// benchmarks, the C libraries and the house checks take it from here.
pub const KNOWN: &[Known] = &[
    Known {
        name: "auto",
        about: "shm for peers of this host, ofi for the others; one completion queue over both",
        span: Span::Network,
        open: auto::open,
    },
    Known {
        name: "shm",
        about: "processes of one host through shared memory; no set-up, no daemon, no privileges",
        span: Span::Host,
        open: |config| shm::open(local(config)?),
    },
    Known {
        name: "ofi",
        about: "between hosts, on libfabric; ofi:tcp, ofi:verbs and so on name one of its providers",
        span: Span::Network,
        open: |config| ofi::open(config.ofi.clone()),
    },
    Known {
        name: "loopback",
        about: "one process; deterministic; for tests and models",
        span: Span::Process,
        open: |_| Ok(loopback::provider()),
    },
];

/// The provider of this name; one of libfabric's, `ofi:NAME`, is `ofi`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Known> {
    let base = if of_libfabric(name).is_some() { "ofi" } else { name };
    KNOWN.iter().find(|known| known.name == base)
}

/// What stands behind `ofi:`.
fn of_libfabric(name: &str) -> Option<&str> {
    name.strip_prefix("ofi:").filter(|provider| !provider.is_empty())
}

/// Opens a provider by name.
///
/// # Errors
/// [`Error::InvalidParameter`] for a name that there is not; [`Error::Unavailable`] if the machine lacks what the provider needs;
/// [`Error::Os`].
pub fn open(name: &str, config: &Config) -> Result<Box<dyn Provider>, Error> {
    if let Some((job, rank)) = &config.member {
        viaduct_via::counters::join_job(job, *rank)?;
    }
    // A job does this when its ranks meet; a program that a launcher started need not ask for its job.
    if config.shm.neighbours > 1 {
        Budget::share_process(config.shm.neighbours);
    }
    if let Some(provider) = of_libfabric(name) {
        return ofi::open(OfiConfig { provider: Some(provider.into()), ..config.ofi.clone() });
    }
    let known = find(name)
        .ok_or(Error::InvalidParameter("unknown provider; `viaduct info` lists those that are known"))?;
    (known.open)(config)
}

/// Settings of the shared-memory provider: other users are met with the job's token, if one was given.
pub(crate) fn local(config: &Config) -> Result<ShmConfig, Error> {
    let mut local = config.shm.clone();
    if local.other_users != OtherUsers::Nobody && local.token.is_none() && config.ofi.has_token() {
        local.token = Some(ofi::job_token(&config.ofi)?);
    }
    Ok(local)
}

/// Takes the requests at a listener that goes out of what its owner has not seen yet. Those it has seen are its own to
/// answer.
pub(crate) fn unseen_requests(events: &mut VecDeque<Event>, at: ListenId) -> Vec<RequestId> {
    let request = |event: &Event| match event {
        Event::Incoming { listener, request, .. } if *listener == at => Some(*request),
        _ => None,
    };
    let unseen = events.iter().filter_map(request).collect();
    events.retain(|event| request(event).is_none());
    unseen
}

/// What both sides of a peer connection are told when they ask for different things.
pub(crate) fn mismatch(a: &RemoteAttributes, b: &RemoteAttributes) -> Option<(Error, Error)> {
    let both = |f: fn(&RemoteAttributes, &RemoteAttributes) -> Error| Some((f(a, b), f(b, a)));
    if a.reliability != b.reliability {
        return both(|a, b| Error::ReliabilityMismatch { ours: a.reliability, theirs: b.reliability });
    }
    if a.max_transfer_size != b.max_transfer_size {
        return both(|a, b| Error::TransferSizeMismatch {
            ours: a.max_transfer_size,
            theirs: b.max_transfer_size,
        });
    }
    if a.qos != b.qos {
        return both(|a, b| Error::QosMismatch { ours: a.qos, theirs: b.qos });
    }
    None
}
