//! The provider for every peer: shared memory for those of this host, libfabric for the others, one NIC over both.
//!
//! Queues, completion queues, regions and the place to sleep are the NIC's, so a program does not see which of the two
//! carries a connection, unless it asks (`ViInfo::provider`). libfabric is loaded when it is first needed: when a program
//! connects to another host, or when a job with a token listens.
//!
//! `connect` decides which way an address goes; `nic` passes everything on.

mod connect;
mod nic;

use viaduct_via::Error;
use viaduct_via::provider::Provider;

use crate::config::Config;

/// Opens a provider.
///
/// # Errors
/// [`Error::Unavailable`] if the machine lacks what it needs; [`Error::Os`].
pub fn open(config: &Config) -> Result<Box<dyn Provider>, Error> {
    Ok(Box::new(nic::Auto::open(config)?))
}
