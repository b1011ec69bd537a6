//! User-level networking for programs: one crate to depend on.
//!
//! ```text
//!   your program
//!      │  open(), open_streams(), open_for(&mut job)          settings from the environment
//!      ├── Nic, Vi, Cq, Descriptor, Buffer ...           the model of VIA      (viaduct-via)
//!      ├── streams::{Sovia, Stream, Listener}            sockets over VIA      feature `streams`, on by default
//!      ├── streams::tokio::{Sockets, Stream, Listener}   the same for tokio    feature `tokio`
//!      ├── job::Job                                      ranks of a job        feature `job`
//!      ├── dsm::{Dsm, Epoch, Array, Guarded}             shared memory         feature `dsm`
//!      └── providers                                     shm, ofi, auto, loopback, and their settings
//! ```
//!
//! [`open`] gives a NIC as the environment of the process says: `VIADUCT_PROVIDER` names the provider, `auto` unless set,
//! and every setting that `viaduct config` lists holds. A program that wants to decide by itself fills a
//! [`providers::Config`] and calls [`open_with`].
//!
//! libfabric, which carries messages between hosts, is loaded when a peer of another host is wanted; nothing has to be
//! chosen for it when a program is built.
//!
//! # Example
//!
//! A server that answers one letter, and its client; the folder `examples` has whole programs.
//!
//! ```
//! use std::time::Duration;
//! use viaduct_net::{Buffer, Descriptor, Error, ViAttributes};
//!
//! const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));
//!
//! fn server(name: &str, ready: impl FnOnce()) -> Result<(), Error> {
//!     let mut nic = viaduct_net::open()?;
//!     let listener = nic.listen(&name.parse()?, 8)?;
//!     let vi = nic.create_vi(ViAttributes::default())?;
//!     nic.vi(vi)?.post_receives(1, 4096)?; // before a client can send
//!     ready();
//!     let request = nic.wait_listener(listener, PATIENCE)?;
//!     nic.accept(request, vi)?;
//!     let letter = nic.wait_recv(vi, PATIENCE)?;
//!     let answer = Buffer::from(letter.data().to_ascii_uppercase());
//!     nic.post_send(vi, Descriptor::send(answer))?;
//!     nic.wait_send(vi, PATIENCE)?;
//!     Ok(())
//! }
//!
//! fn client(name: &str) -> Result<Vec<u8>, Error> {
//!     let mut nic = viaduct_net::open()?;
//!     let vi = nic.create_vi(ViAttributes::default())?;
//!     nic.vi(vi)?.post_receives(1, 4096)?;
//!     nic.connect(vi, &name.parse()?).timeout(Duration::from_secs(10)).wait()?;
//!     nic.post_send(vi, Descriptor::send(Buffer::from(b"hello".to_vec())))?;
//!     Ok(nic.wait_recv(vi, PATIENCE)?.data())
//! }
//!
//! let name = format!("letters-{}", std::process::id());
//! let (there, (tell, told)) = (name.clone(), std::sync::mpsc::channel());
//! let host = std::thread::spawn(move || server(&there, || tell.send(()).unwrap()));
//! told.recv().unwrap();
//! assert_eq!(client(&name)?, b"HELLO");
//! host.join().unwrap()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! # Versions
//!
//! Semantic versioning from the first release on. What is hidden in the documentation, and the traits by which providers
//! are written ([`provider`]), may change in any version. The oldest Rust compiler that builds it is the `rust-version` of
//! the manifest, checked by the lints; raising it is a minor version.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, missing_debug_implementations)]

#[cfg(feature = "dsm")]
pub mod dsm;

// No documentation here: it would stand before that of each item.
pub use viaduct_os::{budget::Budget, error::OsError, knob::BadKnob, log, segment};
#[doc(inline)]
pub use viaduct_via::{
    AcceptError, Arrival, BatchError, Buffer, Completion, ConnRequest, Connect, Connected, Counter,
    CounterSlot, Cq, CqMut, Descriptor, Driver, Ended, EntryHandler, Error, ErrorCode, ErrorEvent,
    ErrorHandler, Layer, Listener, MemAttributes, MemHandle, NetAddress, News, Next, NextRequest, Nic,
    NicAttributes, NicGuard, NotifyHandler, Op, PostError, ProtectionTag, Queue, Reach, ReceivePool,
    Reliability, RemoteAddress, RemoteAttributes, Rest, SharedErrorHandler, SharedNic, Spin, Srq, Status, Vi,
    ViAttributes, ViInfo, ViMut, ViState, WaitConfig, hooks, lend, window,
};

/// Counters of this process, and those that a layer of the program's keeps.
pub mod counters {
    pub use viaduct_via::counters::{Counter, CounterSlot, LayerSlot};
}

/// What layers of the program's own stand on.
pub mod driver {
    pub use viaduct_via::driver::{Driver, Guard, Layer, News, Rest, Watch};
}

/// The traits by which providers are written, and the types that only they and [`hooks`] see. They may change in any version.
pub mod provider {
    pub use viaduct_via::provider::*;
    pub use viaduct_via::{Fault, Queues, RegionInfo, Work, raw};
}

/// What carries the bytes: shared memory, libfabric, one of both for each peer, or one process; and their settings.
pub mod providers {
    pub use viaduct_providers::{Config, KNOWN, Known, Span, config, find, loopback, open};
}

/// Ranks of a job: number, size, addresses of the others.
#[cfg(feature = "job")]
pub mod job {
    pub use viaduct_job::{Error, HostId, Job, Token};
}

/// Stream sockets over VIA, for threads and for tokio.
#[cfg(feature = "streams")]
pub mod streams {
    #[cfg(feature = "tokio")]
    pub use viaduct_sovia::tokio;
    pub use viaduct_sovia::{
        Activity, Config, Error, Handling, Listener, Path, Readiness, Sovia, Step, Stream, StreamWatch,
        Waiting, address,
    };
}

use providers::Config;

/// Opens a NIC as the environment says.
///
/// # Errors
/// [`Error::Setting`] for a variable that is not understood; [`Error::Unavailable`] if the machine lacks what the provider
/// needs; [`Error::Os`].
pub fn open() -> Result<Nic, Error> {
    open_with(&provider_name(), &config()?)
}

/// Opens a NIC on a provider, with settings of the program's.
///
/// # Errors
/// As of [`open`], and [`Error::InvalidParameter`] for a provider that there is not.
pub fn open_with(provider: &str, config: &Config) -> Result<Nic, Error> {
    Nic::open_with(providers::open(provider, config)?, config.wait)
}

/// The settings of the providers as the environment has them; defaults for the rest.
///
/// # Errors
/// [`Error::Setting`] for a variable that is not understood.
pub fn config() -> Result<Config, Error> {
    Ok(Config::from_variables(variable)?)
}

/// Opens a NIC for a rank of a job: with the token of the job, and without the network if all ranks share one host. All
/// ranks must call it, if it is their first question about hosts.
///
/// # Errors
/// As of [`open`], and what goes wrong in the job.
#[cfg(feature = "job")]
pub fn open_for(job: &mut job::Job) -> Result<Nic, Box<dyn std::error::Error + Send + Sync>> {
    let mut config = config()?;
    config.join(job)?;
    Ok(open_with(&provider_name(), &config)?)
}

/// Joins the job that the launcher has started this process for: `viaduct launch`, `mpiexec.hydra` or `srun`. Without a
/// launcher it is a job of one.
///
/// # Errors
/// What [`Job::join`](job::Job::join) says.
#[cfg(feature = "job")]
pub fn join() -> Result<job::Job, job::Error> {
    job::Job::join(&variable)
}

/// Opens streams over a NIC, both as the environment says.
///
/// # Errors
/// As of [`open`], and a setting of streams that is not understood.
#[cfg(feature = "streams")]
pub fn open_streams() -> Result<streams::Sovia, streams::Error> {
    let config = config()?;
    let nic = open_with(&provider_name(), &config)?;
    let settings = streams::Config::from_variables(variable)?;
    streams::Sovia::open(nic, streams::Config { spin: config.wait.spin, ..settings })
}

fn provider_name() -> String {
    variable("VIADUCT_PROVIDER").unwrap_or_else(|| "auto".into())
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}
