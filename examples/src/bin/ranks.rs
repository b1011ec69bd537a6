//! Ranks of a job that exchange data: each sends a block to every other one.
//!
//! ```text
//!   viaduct launch -n 4 target/debug/ranks
//! ```
//!
//! It also runs under `mpiexec.hydra` and `srun`, on one host or several, and alone.

use std::error::Error;
use std::time::Duration;

use viaduct_net::job::Job;
use viaduct_net::{Buffer, Descriptor, NetAddress, Nic, Vi, ViAttributes};

const BLOCK: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut job = viaduct_net::join()?;
    let mut nic = viaduct_net::open_for(&mut job)?;
    let received = all_to_all(&mut job, &mut nic)?;
    println!("rank {} of {}: {received} blocks of {BLOCK} bytes", job.rank(), job.size());
    job.finish()?;
    Ok(())
}

/// Sends one block to every other rank and receives one from each. Gives the number of blocks that came.
fn all_to_all(job: &mut Job, nic: &mut Nic) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let peers = connect_all(job, nic)?;
    let rank = job.rank();
    for (peer, vi) in &peers {
        let block = Buffer::from(vec![(rank * 16 + peer) as u8; BLOCK]);
        nic.post_send(*vi, Descriptor::send(block))?;
    }
    for (peer, vi) in &peers {
        let message = nic.wait_recv(*vi, Some(PATIENCE))?;
        let wanted = (peer * 16 + rank) as u8;
        if message.data() != vec![wanted; BLOCK] {
            return Err(format!("rank {peer} sent something else").into());
        }
    }
    for (_, vi) in &peers {
        nic.wait_send(*vi, Some(PATIENCE))?;
    }
    // No rank ends while another still reads from it.
    job.barrier()?;
    Ok(peers.len())
}

/// Connects with every other rank. Both ends of a pair ask, with their addresses crossed, so that no rank has to listen
/// and the order does not matter.
fn connect_all(job: &mut Job, nic: &mut Nic) -> Result<Vec<(usize, Vi)>, Box<dyn Error + Send + Sync>> {
    let (rank, name) = (job.rank(), job.name().to_owned());
    let hosts = job.exchange(host_name().as_bytes())?;
    let same = job.hosts()?.to_vec();
    let address = |of: usize, with: usize| -> Result<NetAddress, viaduct_net::Error> {
        let local = format!("{name}-{of}-{with}");
        // The name alone is enough on one host.
        if same[of] == same[rank] {
            return local.parse();
        }
        format!("{}/{local}", String::from_utf8_lossy(&hosts[of])).parse()
    };
    let mut peers = Vec::new();
    for peer in (0..job.size()).filter(|peer| *peer != rank) {
        let vi = nic.create_vi(ViAttributes::default())?;
        nic.vi(vi)?.post_receives(1, BLOCK)?;
        nic.connect_peer_request(vi, &address(rank, peer)?, &address(peer, rank)?, Some(PATIENCE))?;
        peers.push((peer, vi));
    }
    for (_, vi) in &peers {
        nic.connect_finish(*vi)?;
    }
    Ok(peers)
}

fn host_name() -> String {
    std::env::var("VIADUCT_NODE_NAME").unwrap_or_else(|_| {
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
    })
}
