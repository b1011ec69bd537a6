//! The provider between hosts, on libfabric: InfiniBand, RoCE, plain TCP and whatever else has connected endpoints.
//!
//! ```text
//!   nic       the provider of one NIC            vi        an endpoint
//!   engine    libfabric's queues, all lanes      lane      one connection, frame by frame
//!   outgoing  send queue to wire                 progress  wire to queues
//!   rdma      RDMA and atomics by messages
//!   connect   set-up                             greeting  which end proves what     (pure)
//!   flow      credits (pure)                     wire      headers and greetings     (pure)
//!   place     from names to ports                frames    buffers      mem  regions
//!   control   the thread; pace  when it looks      fabric endpoint info sys abi   libfabric itself
//!   bare      libfabric without VIA, to measure what VIA costs
//! ```
//!
//! Every connection of two VIs is one connection of libfabric's (`FI_EP_MSG`). What is promised to VIs is kept here, not
//! there: credits, so that a frame always meets a buffer; the ledger of the model, so that every descriptor comes back;
//! a heartbeat; authentication by job token. RDMA and atomics are messages that the target's engine carries out, also
//! while its program computes. ADR 0009 has the reasons, `docs/protocols/ofi.md` the protocol.

mod abi;
// For measurements alone, and behind a feature of its own.
#[cfg(feature = "bare")]
#[allow(missing_debug_implementations)]
pub mod bare;
mod connect;
mod control;
mod endpoint;
mod engine;
mod fabric;
mod flow;
mod frames;
mod greeting;
mod handlers;
mod info;
mod lane;
mod mem;
mod nic;
mod outgoing;
mod pace;
mod place;
mod progress;
mod rdma;
mod sys;
#[cfg(all(test, not(loom)))]
mod tests;
mod vi;
mod watch;
pub(crate) mod wire;

use std::path::Path;
use std::sync::Mutex;

use viaduct_job::Token;
use viaduct_os::runtime_dir;
use viaduct_via::Error;
use viaduct_via::provider::Provider;

pub use info::Offer;

use crate::config::OfiConfig;
use fabric::Fabric;
use info::Info;
pub(crate) use nic::{MAX_VI, Ofi, Parts};
pub(crate) use pace::Paced;
pub(crate) use place::HostPart;
use sys::Fi;

/// Providers of libfabric that are taken if none is asked for, the best first.
const PREFERRED: [&str; 2] = ["verbs", "tcp"];

/// Opens a provider.
pub(crate) fn open(config: OfiConfig) -> Result<Box<dyn Provider>, Error> {
    Ok(Box::new(open_with(config, Parts::new()?)?))
}

/// Opens a provider that shares these parts of its NIC with others.
pub(crate) fn open_with(config: OfiConfig, parts: Parts) -> Result<Ofi, Error> {
    let (info, name) = choose(&config)?;
    let (sends, receives) = info.queue_sizes();
    let needed = 2 * config.window + flow::SPARE;
    if sends < needed || receives < needed {
        return Err(Error::Unavailable {
            provider: "ofi",
            why: format!("{name} has queues of {sends} and {receives}, {needed} are needed"),
            hint: "make ofi.window smaller",
        });
    }
    let fabric = Fabric::open(info.fi, info, true)?;
    Ofi::open(config, fabric, lasting_name(&name), parts)
}

/// The provider of libfabric's that was asked for, or the best there is, and its name.
fn choose(config: &OfiConfig) -> Result<(Info, String), Error> {
    let fi = Fi::load(&config.library)?;
    let list = Info::find(fi, config.provider.as_deref(), abi::FI_MSG)?;
    let offers = list.offers();
    let known = |name: &&str| offers.iter().any(|o| o.name == **name);
    let wanted = match &config.provider {
        Some(name) => Some(name.as_str()),
        None => PREFERRED.into_iter().find(known),
    };
    let none = || Error::Unavailable {
        provider: "ofi",
        why: "libfabric has neither verbs nor tcp here".into(),
        hint: "name one of those that `viaduct info` lists, as in ofi:NAME",
    };
    let name = wanted.ok_or_else(none)?.to_owned();
    Ok((list.first_of(&name).ok_or_else(none)?, name))
}

/// The name of a provider, which every endpoint gives out; kept once for each that was ever opened.
fn lasting_name(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
    let full = format!("ofi:{name}");
    if let Some(known) = names.iter().find(|known| **known == full) {
        return known;
    }
    let fresh: &'static str = Box::leak(full.into_boxed_str());
    names.push(fresh);
    fresh
}

/// What libfabric has on this machine.
#[derive(Clone, Debug)]
pub struct Found {
    /// Version of the library, major and minor.
    pub version: (u32, u32),
    /// Providers with connected endpoints.
    pub offers: Vec<Offer>,
    /// Providers with reliable datagrams alone, which Viaduct does not use (ADR 0014).
    pub datagrams: Vec<String>,
}

/// Looks for libfabric and what it offers.
///
/// # Errors
/// [`Error::Unavailable`] if it is missing, too old, or has nothing that can be used.
pub fn find(config: &OfiConfig) -> Result<Found, Error> {
    let fi = Fi::load(&config.library)?;
    let offers = Info::find(fi, None, 0)?.offers();
    let others = Info::find_with(fi, None, 0, abi::FI_EP_RDM).map(|info| info.offers()).unwrap_or_default();
    // Layers of libfabric's own over another provider have a name with a semicolon.
    let datagrams = others.into_iter().map(|o| o.name);
    let datagrams = datagrams.filter(|n| !n.contains(';') && !offers.iter().any(|o| o.name == *n)).collect();
    Ok(Found { version: fi.version(), offers, datagrams })
}

/// The token of the job that these settings stand for; without one, that of this user on this host.
///
/// # Errors
/// [`Error::Unavailable`] if its file cannot be read, or is not private.
pub fn job_token(config: &OfiConfig) -> Result<Token, Error> {
    token(config, &runtime_dir::runtime_dir(config.runtime_dir.as_deref())?)
}

fn token(config: &OfiConfig, folder: &Path) -> Result<Token, Error> {
    if let Some(token) = &config.token {
        return Ok(token.clone());
    }
    let found = match &config.token_file {
        Some(file) => Token::from_file(file),
        None => Token::of_user(folder),
    };
    found.map_err(|e| Error::Unavailable {
        provider: "ofi",
        why: e.to_string(),
        hint: "VIADUCT_TOKEN_FILE names the file of a job's token",
    })
}
