//! The network between the nodes of a job: an edge from each to each, over VIA or over TCP.
//!
//! Every node listens before it tells the others where; then it connects to all of them while it accepts from all of them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use viaduct_job::{HostId, Job, Token};
use viaduct_os::networks;
use viaduct_via::NetAddress;

use super::door::Door;
use super::{Port, ViaSink, ViaSource};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::flow::{Sink, Source};
use crate::pool::MemPool;

/// How long nodes wait for each other.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What carries records between nodes. The caller has chosen it.
#[derive(Clone, Debug)]
pub enum Links {
    /// An opened NIC.
    Via(Port),
    /// TCP; both ends of a connection prove that they have the job's token.
    Tcp(Token),
}

/// The edges of one node, by the number of the other; none to itself.
pub struct Mesh {
    /// To the others.
    pub sinks: Vec<Option<Arc<dyn Sink>>>,
    /// From the others.
    pub sources: Vec<Option<Arc<dyn Source>>>,
}

impl Links {
    /// A pool of buffers that edges can use; over VIA it is registered, in windows of so many bytes if that is said.
    pub fn pool(&self, count: usize, size: usize, window: Option<usize>) -> Result<MemPool, Error> {
        match self {
            Links::Via(port) => Ok(MemPool::registered(port, count, size, window)?),
            Links::Tcp(_) => Ok(MemPool::new(count, size)?),
        }
    }

    /// Makes all edges of this node; all nodes call it. Messages of others go into buffers of `pool`, of which there are
    /// enough for every other node, and which have one size everywhere. `name` is that of the program.
    pub fn connect(&self, name: &str, job: &mut Job, pool: &MemPool) -> Result<Mesh, Error> {
        let hosts = job.hosts().map_err(of_job)?.to_vec();
        let alone = hosts.iter().all(|host| *host == hosts[0]);
        match self {
            Links::Via(port) => connect_via(port, name, job, &hosts, alone, pool),
            Links::Tcp(token) => connect_tcp(token, job, &hosts, alone, pool),
        }
    }
}

/// Where a node is found, as it tells the others: a port, and its addresses.
struct Whereabouts {
    port: u16,
    addresses: Vec<IpAddr>,
}

impl Whereabouts {
    fn to_bytes(&self) -> Vec<u8> {
        let addresses = self.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        format!("{} {}", self.port, addresses.join(" ")).into_bytes()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Whereabouts> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split_whitespace();
        let port = words.next()?.parse().ok()?;
        let addresses = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Whereabouts { port, addresses })
    }
}

/// Tells the others where this node is, and gives for each the port and the address that this one reaches it by.
fn meet(
    job: &mut Job,
    hosts: &[HostId],
    alone: bool,
    port: u16,
) -> Result<Vec<(u16, Option<IpAddr>)>, Error> {
    let networks = if alone { Vec::new() } else { networks::addresses() };
    let ours = Whereabouts { port, addresses: networks.iter().map(|network| network.address).collect() };
    let all = job.exchange(&ours.to_bytes()).map_err(of_job)?;
    let rank = job.rank();
    all.iter()
        .enumerate()
        .map(|(node, bytes)| {
            let said = Whereabouts::of_bytes(bytes);
            let said =
                said.ok_or_else(|| Error::Network(format!("node {node} told no address that makes sense")))?;
            if hosts[node] == hosts[rank] {
                return Ok((said.port, None));
            }
            let address = networks::nearest(&networks, &said.addresses);
            let address = address.ok_or_else(|| {
                Error::Network(format!(
                    "node {node} has no address but those of its own host; hint: see `ip addr` there"
                ))
            })?;
            Ok((said.port, Some(address)))
        })
        .collect()
}

fn connect_via(
    port: &Port,
    program: &str,
    job: &mut Job,
    hosts: &[HostId],
    alone: bool,
    pool: &MemPool,
) -> Result<Mesh, Error> {
    let network = |error: viaduct_via::Error| Error::Network(error.to_string());
    let (rank, size) = (job.rank(), job.size());
    let name = |node: usize| format!("{program}-{}-{node}", job.name());
    let names: Vec<String> = (0..size).map(name).collect();
    let own = NetAddress::local(&names[rank]).map_err(network)?;
    let listener = port.nic().try_lock().map_err(network)?.listen(&own, size).map_err(network)?;
    let places = meet(job, hosts, alone, 0)?;
    let connect = || {
        let mut sinks: Vec<Option<Arc<dyn Sink>>> = (0..size).map(|_| None).collect();
        for node in others(rank, size) {
            let host = places[node].1.map(|address| address.to_string()).unwrap_or_default();
            let address = NetAddress::new(host.as_bytes(), names[node].as_bytes()).map_err(network)?;
            let title = format!("to node {node}");
            let greeting = (rank as u32).to_le_bytes();
            let room = pool.buffer_size();
            let sink = ViaSink::connect_with(&title, port, node as u32, &address, room, &greeting, PATIENCE)?;
            sinks[node] = Some(Arc::new(sink));
        }
        Ok(sinks)
    };
    let accept = || {
        let mut sources: Vec<Option<Arc<dyn Source>>> = (0..size).map(|_| None).collect();
        for _ in 1..size {
            let request =
                port.nic().wait_until(Some(PATIENCE), |nic| nic.poll_listener(listener).transpose());
            let request = request.map_err(network)?;
            let said = request.remote().private_data.first_chunk::<4>().map(|four| u32::from_le_bytes(*four));
            let node = said.map(|node| node as usize).filter(|&node| node < size && node != rank);
            let node = node.filter(|&node| sources[node].is_none());
            let node = node.ok_or_else(|| Error::Network("a connection from a node that is none".into()))?;
            let title = format!("from node {node}");
            let source = ViaSource::accept(&title, port, node as u32, request, pool.clone())?;
            sources[node] = Some(Arc::new(source));
        }
        Ok(sources)
    };
    let mesh = both(connect, accept);
    let _ = port.nic().try_lock().map(|mut nic| nic.unlisten(listener));
    mesh
}

fn connect_tcp(
    token: &Token,
    job: &mut Job,
    hosts: &[HostId],
    alone: bool,
    pool: &MemPool,
) -> Result<Mesh, Error> {
    let (rank, size) = (job.rank(), job.size());
    let door = Door::open(alone, rank, size, token)?;
    let places = meet(job, hosts, alone, door.port())?;
    let connect = || {
        let mut sinks: Vec<Option<Arc<dyn Sink>>> = (0..size).map(|_| None).collect();
        for node in others(rank, size) {
            let (port, address) = places[node];
            let address = address.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
            sinks[node] = Some(Arc::new(door.connect(node, (address, port).into())?));
        }
        Ok(sinks)
    };
    let accept = || {
        let mut sources: Vec<Option<Arc<dyn Source>>> = (0..size).map(|_| None).collect();
        for (node, source) in door.accept_all(pool)? {
            sources[node] = Some(Arc::new(source));
        }
        Ok(sources)
    };
    both(connect, accept)
}

/// All other nodes, beginning behind this one: not all begin with the same.
fn others(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (1..size).map(move |n| (rank + n) % size)
}

fn both(
    connect: impl FnOnce() -> Result<Vec<Option<Arc<dyn Sink>>>, Error> + Send,
    accept: impl FnOnce() -> Result<Vec<Option<Arc<dyn Source>>>, Error> + Send,
) -> Result<Mesh, Error> {
    std::thread::scope(|scope| {
        let accepted = scope.spawn(accept);
        let sinks = connect();
        let sources = accepted.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Mesh { sinks: sinks?, sources: sources? })
    })
}

impl Mesh {
    /// Gives every other node some bytes, not more than a buffer has, and gets those of all, before the first record. This
    /// node's own stand in its place.
    pub fn exchange(&self, rank: usize, ours: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        for sink in self.sinks.iter().flatten() {
            let mut buffer = Buffer::heap(ours.len());
            buffer.push_record(ours);
            sink.put(buffer)?;
        }
        let pull = |node: usize| match &self.sources[node] {
            None => Ok(if node == rank { ours.to_vec() } else { Vec::new() }),
            Some(source) => {
                let ended = || Error::Network(format!("node {node} ended before it said anything"));
                Ok(source.pull()?.ok_or_else(ended)?.data().to_vec())
            }
        };
        // One after the other: what the others send waits at their edges.
        (0..self.sources.len()).map(pull).collect()
    }
}

/// The job's failure as one of the flow.
fn of_job(error: viaduct_job::Error) -> Error {
    Error::Network(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_told_is_read() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let place = Whereabouts { port: 7, addresses: vec![ip("10.0.0.7"), ip("fd00::1")] };
        let back = Whereabouts::of_bytes(&place.to_bytes()).unwrap();
        assert_eq!((back.port, back.addresses), (7, place.addresses));
        assert!(Whereabouts::of_bytes(b"x").is_none() && Whereabouts::of_bytes(b"1 x").is_none());
    }
}
