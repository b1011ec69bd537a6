//! The start of a process: joins its job, opens its NIC, tells the others where it is, and connects with them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use viaduct_job::{HostId, Job};
use viaduct_os::networks::{self, Network};
use viaduct_os::{cpu, random, runtime_dir};
use viaduct_via::{Listener, NetAddress, Nic, Spin, WaitConfig};

use super::board::{Board, Seat};
use super::comm::{Comm, Contexts};
use super::engine::Engine;
use super::links::Links;
use super::settings::Settings;
use super::shared::Shared;
use super::wire::{KEY, PATIENCE, Wire};
use super::{World, failed};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::protocol::Limits;
use crate::protocol::packet::VERSION;

/// Requests that wait at the listener of a rank; more are refused, and tried again by their ranks.
const BACKLOG: usize = 1024;
/// More CPUs than a host has.
const MOST_CPUS: usize = 1 << 16;

pub(super) fn start(
    variable: &dyn Fn(&str) -> Option<String>,
    open: impl FnOnce(&mut Job) -> std::result::Result<Nic, Box<dyn std::error::Error>>,
) -> Result<World> {
    let settings =
        Settings::from_variables(variable).map_err(|why| Error::new(Class::Arg, why.to_string()))?;
    let spin = variable("VIADUCT_WAIT_SPIN").map_or(Ok(Spin::Auto), |text| text.parse());
    let wait =
        WaitConfig { spin: spin.map_err(|why| Error::new(Class::Arg, format!("VIADUCT_WAIT_SPIN: {why}")))? };
    let mut job = Job::join(variable).map_err(|why| failed("joining the job")(&why))?;
    let (me, size) = (job.rank(), job.size());
    let limits = settings.limits(size);
    let hosts = job.hosts().map_err(|why| failed("meeting the other ranks")(&why))?.to_vec();
    let one_host = hosts.iter().all(|host| *host == hosts[me]);
    let mut nic = open(&mut job).map_err(|why| failed("opening the network interface")(&why))?;
    let listening = if size > 1 { Some(listen(&mut nic, me)?) } else { None };
    let (listener, name) = listening.unzip();
    let mut wire = Wire::new(me, listener);
    let mut cpus = usize::MAX;
    if let Some(name) = name {
        let named = variable("VIADUCT_NODE_NAME").unwrap_or_else(super::host_name);
        let places = Places::of(named, one_host);
        let met = exchange(&mut job, &hosts, &places, &name, &limits, &settings)?;
        wire.meet(met.addresses, met.key);
        cpus = met.cpus.len();
    }
    // Ranks wake each other over connections, so that all of them have to stand.
    let board = if settings.board && one_host && size > 1 && size <= settings.connect_all {
        let folder = variable("VIADUCT_RUNTIME_DIR").map(std::path::PathBuf::from);
        let folder =
            runtime_dir::runtime_dir(folder.as_deref()).map_err(|why| failed("the run-time folder")(&why))?;
        Some(Arc::new(Board::share(&mut job, &folder).map_err(|why| failed("sharing memory")(&why))?))
    } else {
        None
    };
    let links = Links::new(nic, size, limits, settings.private(), wire)
        .map_err(|why| failed("preparing the network interface")(&why))?;
    let here = hosts.iter().filter(|host| **host == hosts[me]).count();
    // A quota is no set of CPUs.
    let crowded = here > cpus.min(cpu::machine());
    let shared = Shared::new(Engine::new(me, size, limits, links), wait, crowded);
    if size > 1 && size <= settings.connect_all {
        connect_all(&shared, me)?;
    } else if size > 1 {
        shared.serve()?;
    }
    let contexts = Contexts::new(board.is_some());
    let seat = board.as_ref().and_then(|board| Seat::new(board, 0));
    Ok(World {
        world: Comm::predefined(0, Group::new(0..size as u32), me as i32, seat),
        own: Comm::predefined(1, Group::new([me as u32]), 0, None),
        contexts,
        board,
        shared,
        job: Mutex::new(Some(job)),
        settings,
        hosts,
        buffered: Mutex::default(),
        heap: Mutex::default(),
    })
}

/// Listens at a name that no other process has.
fn listen(nic: &mut Nic, me: usize) -> Result<(Listener, String)> {
    let name = format!("mpi.{:016x}.{me}", random::u64());
    let listening = NetAddress::local(&name).and_then(|address| nic.listen(&address, BACKLOG));
    let listener = listening.map_err(|why| failed("listening for the other ranks")(&why))?;
    Ok((listener, name))
}

/// What a rank has learnt of the others.
struct Met {
    addresses: Vec<NetAddress>,
    /// The secret of the first rank.
    key: [u8; KEY],
    /// The CPUs that the ranks of this host may run on, one or another of them.
    cpus: BTreeSet<usize>,
}

/// Where ranks of other hosts reach this one.
struct Places {
    networks: Vec<Network>,
    /// What this rank says: an address that its environment names, else those of its networks. A name is the last resort: that
    /// by which a launcher calls the host may be one of the ssh configuration alone.
    told: Vec<String>,
}

impl Places {
    fn of(named: String, one_host: bool) -> Places {
        let is_address = named.parse::<IpAddr>().is_ok();
        let networks = if one_host || is_address { Vec::new() } else { networks::addresses() };
        let told: Vec<String> = networks.iter().map(|network| network.address.to_string()).collect();
        Places { networks, told: if told.is_empty() { vec![named] } else { told } }
    }

    /// The place out of those that a peer has told at which this rank reaches it.
    fn nearest(&self, told: &str) -> String {
        let addresses: Vec<IpAddr> = told.split(',').filter_map(|place| place.parse().ok()).collect();
        networks::nearest(&self.networks, &addresses).map_or_else(|| told.to_owned(), |near| near.to_string())
    }
}

/// Tells the other ranks where this one is.
fn exchange(
    job: &mut Job,
    hosts: &[HostId],
    places: &Places,
    name: &str,
    limits: &Limits,
    settings: &Settings,
) -> Result<Met> {
    let me = job.rank();
    let mut card = Vec::new();
    card.extend(random::u64().to_le_bytes());
    card.extend(random::u64().to_le_bytes());
    let bounds = [
        VERSION,
        limits.eager as u64,
        limits.fragment as u64,
        u64::from(limits.credits),
        u64::from(limits.room),
        u64::from(settings.board),
        settings.connect_all as u64,
    ];
    let bounds: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
    card.extend(&bounds);
    card.extend(format!("{}/{name}/{}", places.told.join(","), list(&cpu::allowed())).as_bytes());
    let cards = job.exchange(&card).map_err(|why| failed("telling the other ranks the address")(&why))?;
    let strange =
        |rank: usize| Error::new(Class::Other, format!("rank {rank} has told an address that is none"));
    let mut addresses = Vec::new();
    let (mut key, mut cpus) = ([0; KEY], BTreeSet::new());
    for (rank, card) in cards.iter().enumerate() {
        let (secret, rest) = card.split_at_checked(KEY).ok_or_else(|| strange(rank))?;
        let (theirs, address) = rest.split_at_checked(bounds.len()).ok_or_else(|| strange(rank))?;
        if theirs != bounds {
            // Every rank finds such a one: none leaves before all have.
            let _ = job.barrier();
            let cause = format!(
                "rank {rank} was started with other values of VIADUCT_MPI_EAGER, _FRAGMENT, _CREDITS, _ROOM, _BOARD or \
                 _CONNECT_ALL, or has another version of the library"
            );
            return Err(Error::new(Class::NotSame, cause));
        }
        let text = std::str::from_utf8(address).map_err(|_| strange(rank))?;
        let (address, theirs) = text.rsplit_once('/').ok_or_else(|| strange(rank))?;
        let (told, name) = address.rsplit_once('/').ok_or_else(|| strange(rank))?;
        let mut host = String::new();
        if hosts[rank] == hosts[me] {
            // The name alone is enough on one host.
            cpus.extend(listed(theirs).ok_or_else(|| strange(rank))?);
        } else {
            host = places.nearest(told);
        }
        addresses.push(NetAddress::new(host.as_bytes(), name.as_bytes()).map_err(|_| strange(rank))?);
        if rank == 0 {
            key.copy_from_slice(secret);
        }
    }
    Ok(Met { addresses, key, cpus })
}

/// CPUs in ascending order in few words, as `0-3,8-8`.
fn list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|one, next| one + 1 == *next);
    runs.map(|run| format!("{}-{}", run[0], run[run.len() - 1])).collect::<Vec<_>>().join(",")
}

/// The CPUs of a list. None: it is none.
fn listed(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for run in list.split(',') {
        let (first, last) = run.split_once('-')?;
        let last: usize = last.parse().ok().filter(|last| *last < MOST_CPUS)?;
        cpus.extend(first.parse().ok()?..=last);
    }
    Some(cpus)
}

/// Connects with all ranks, and waits until all connections stand. A rank that ended before it could ask is not heard of: without a
/// launcher to end this one, it is waited for as long as a connection may take.
fn connect_all(shared: &Shared, me: usize) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    shared.with(|engine| (0..me).for_each(|peer| engine.links.wire.want(peer)))?;
    shared.wait(|engine| {
        engine.look();
        if let Some(error) = engine.first_loss() {
            return Some(Err(error));
        }
        match engine.links.wire.missing() {
            0 => Some(Ok(())),
            missing if Instant::now() >= end => {
                let cause = format!(
                    "{missing} ranks have not connected in {} s: have they ended?",
                    PATIENCE.as_secs()
                );
                Some(Err(Error::new(Class::Other, cause)))
            }
            _ => None,
        }
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_reached_by_an_address_before_a_name() {
        let network = Network { address: [10, 0, 0, 1].into(), prefix: 24 };
        let places = Places { networks: vec![network], told: Vec::new() };
        assert_eq!(places.nearest("192.168.1.2,10.0.0.7"), "10.0.0.7");
        assert_eq!((&*places.nearest("fd00::1"), &*places.nearest("node7")), ("fd00::1", "node7"));
        let told = |named: &str| Places::of(named.to_owned(), true).told;
        assert_eq!(
            (told("127.0.0.1"), told("node7")),
            (vec!["127.0.0.1".to_owned()], vec!["node7".to_owned()])
        );
    }

    #[test]
    fn lists_of_cpus_are_read_as_they_are_written() {
        for cpus in [vec![0], vec![0, 1, 2, 3], vec![1, 3, 4, 1023]] {
            assert_eq!(listed(&list(&cpus)), Some(cpus));
        }
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8-8");
        for bad in ["", "1", "1-", "a-b", "0-4294967295", "0-1,"] {
            assert_eq!(listed(bad), None, "{bad}");
        }
    }
}
