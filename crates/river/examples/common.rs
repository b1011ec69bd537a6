//! What the examples share: a job, and the network of its nodes. Not an example itself.

use viaduct_job::Job;
use viaduct_providers::Config;
use viaduct_river::net::{Links, Port};
use viaduct_via::{Nic, SharedNic};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Joins the job that started this process, and opens what `RIVER_LINKS` says: shm, ofi, auto or tcp. Without it, nodes of one
/// host use shared memory.
pub(crate) fn join() -> Result<(Job, Links)> {
    let variable = |name: &str| std::env::var(name).ok();
    let mut job = Job::join(&variable)?;
    let mut config = Config::from_variables(variable).map_err(|bad| format!("{bad:?}"))?;
    config.join(&mut job)?;
    let name = variable("RIVER_LINKS").unwrap_or_else(|| config.usual_provider().to_owned());
    if name == "tcp" {
        let token = job.token()?;
        return Ok((job, Links::Tcp(token)));
    }
    let nic = Nic::open_with(viaduct_providers::open(&name, &config)?, config.wait)?;
    Ok((job, Links::Via(Port::new(SharedNic::new(nic))?)))
}
