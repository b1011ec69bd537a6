//! A job in a hundred lines: ranks meet, connect to a ring over `auto`, and pass a number around it.
//!
//! ```text
//!   cargo build --example ring && viaduct launch -n 4 target/debug/examples/ring
//! ```
//!
//! It runs the same under `mpiexec.hydra` and `srun --mpi=pmi2`, on one host or several, and alone. Each rank says which
//! provider carried its bytes and what it has of the network: on one host, nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use viaduct_job::Job;
use viaduct_os::budget::Budget;
use viaduct_providers::Config;
use viaduct_via::{Descriptor, Error, Nic, Vi, ViAttributes};

/// Turns a hang into a failure; only a rank that died keeps the others waiting.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    let mut job = Job::join(&variable)?;
    let mut config = Config::from_variables(variable)
        .map_err(|bad| anyhow::anyhow!("{}={}: {}", bad.env, bad.given, bad.allowed))?;
    config.join(&mut job)?;
    let mut nic = Nic::open_with(viaduct_providers::open("auto", &config)?, config.wait)?;

    // Each rank listens, and tells the others where.
    let (rank, size) = (job.rank(), job.size());
    let name = format!("ring-{:016x}-{rank}", job.token()?.name());
    let listener = nic.listen(&name.parse()?, 1)?;
    let ours = format!("{}/{name}", variable("VIADUCT_NODE_NAME").unwrap_or_else(host_name));
    let addresses = job.exchange(ours.as_bytes())?;
    let hosts = job.hosts()?.to_vec();
    let next = (rank + 1) % size;
    let there = String::from_utf8_lossy(&addresses[next]).into_owned();
    // The name alone is enough on one host.
    let there = match there.split_once('/') {
        Some((_, name)) if hosts[next] == hosts[rank] => name.to_owned(),
        _ => there,
    };

    let (from, to) = (end(&mut nic)?, end(&mut nic)?);
    nic.connect(to, &there.parse()?).timeout(PATIENCE).start()?;
    let request = nic.wait_listener(listener, Some(PATIENCE))?;
    nic.accept(request, from)?;
    nic.connect_finish(to)?;

    // Rank 0 sends 0, each adds its number, and the sum comes back.
    let mut sum = 0;
    if rank > 0 {
        sum = receive(&mut nic, from)? + rank as u64;
    }
    send(&mut nic, to, sum)?;
    if rank == 0 {
        sum = receive(&mut nic, from)?;
        ensure!(sum == (0..size as u64).sum(), "the ring lost something: {sum}");
    }
    let carrier = nic.query_vi(to)?.provider.unwrap_or("none");
    let maps = std::fs::read_to_string("/proc/self/maps").context("reading our own mappings")?;
    let network = if maps.contains("libfabric") { "libfabric" } else { "no network" };
    println!(
        "rank {rank} of {size}: sum {sum} over {carrier}, {network}, budget {}",
        Budget::process().limit()
    );
    // What was sent has arrived before any rank closes its NIC.
    job.barrier()?;
    job.finish()?;
    Ok(())
}

/// A VI with a receive posted: VIA has no flow control of its own.
fn end(nic: &mut Nic) -> Result<Vi, Error> {
    let vi = nic.create_vi(ViAttributes::default())?;
    nic.vi(vi)?.post_receives(1, 8)?;
    Ok(vi)
}

fn send(nic: &mut Nic, vi: Vi, number: u64) -> Result<()> {
    nic.post_send(vi, Descriptor::send(number.to_le_bytes().to_vec().into()))?;
    nic.wait_send(vi, Some(PATIENCE)).context("sending")?;
    Ok(())
}

fn receive(nic: &mut Nic, vi: Vi) -> Result<u64> {
    let done = nic.wait_recv(vi, Some(PATIENCE)).context("receiving")?;
    Ok(u64::from_le_bytes(done.data().try_into().ok().context("not a number")?))
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
