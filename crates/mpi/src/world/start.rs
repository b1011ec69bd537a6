//! The start of a process: joins its job, opens its NIC, tells the others where it is, and connects with them.

use std::sync::Mutex;

use viaduct_job::Job;
use viaduct_os::random;
use viaduct_via::{NetAddress, Nic};

use super::comm::{Comm, Contexts};
use super::engine::Engine;
use super::links::Links;
use super::settings::Settings;
use super::shared::Shared;
use super::wire::{self, KEY, Wire};
use super::{Reach, World, failed};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::protocol::Limits;

pub(super) fn start(
    variable: &dyn Fn(&str) -> Option<String>,
    open: &mut dyn FnMut(Reach) -> std::result::Result<Nic, viaduct_via::Error>,
) -> Result<World> {
    let settings =
        Settings::from_variables(variable).map_err(|why| Error::new(Class::Arg, why.to_string()))?;
    let mut job = Job::join(variable).map_err(|why| failed("joining the job")(&why))?;
    let (me, size) = (job.rank(), job.size());
    let limits = settings.limits(size);
    let hosts = job.hosts().map_err(|why| failed("meeting the other ranks")(&why))?.to_vec();
    let reach = if hosts.iter().all(|host| *host == hosts[me]) { Reach::Host } else { Reach::Network };
    let mut nic = open(reach).map_err(|why| failed("opening the network interface")(&why))?;
    let listening = if size > 1 { Some(listen(&mut nic, me)?) } else { None };
    let (listener, address) = listening.unzip();
    let mut wire = Wire::new(me, listener);
    if let Some(address) = address {
        let (addresses, key) = exchange(&mut job, &address, &limits)?;
        wire.meet(addresses, key);
    }
    let links =
        Links::new(nic, size, limits, wire).map_err(|why| failed("preparing the network interface")(&why))?;
    let shared = Shared::new(Engine::new(me, size, limits, links));
    if size > 1 && size <= settings.connect_all {
        connect_all(&shared, me)?;
    } else if size > 1 {
        shared.serve()?;
    }
    let contexts = Contexts::new();
    Ok(World {
        world: Comm::predefined(0, Group::new(0..size as u32), me as i32),
        own: Comm::predefined(1, Group::new([me as u32]), 0),
        contexts,
        shared,
        job: Mutex::new(Some(job)),
        settings,
        hosts,
        buffered: Mutex::default(),
        heap: Mutex::default(),
    })
}

fn listen(nic: &mut Nic, me: usize) -> Result<(viaduct_via::Listener, NetAddress)> {
    let name = format!("mpi.{:016x}.{me}", random::u64());
    wire::listen(nic, b"", &name).map_err(|why| failed("listening for the other ranks")(&why))
}

/// Tells the other ranks where this one is. Their addresses, and the secret of the first.
fn exchange(job: &mut Job, address: &NetAddress, limits: &Limits) -> Result<(Vec<NetAddress>, [u8; KEY])> {
    let mut card = Vec::new();
    card.extend(random::u64().to_le_bytes());
    card.extend(random::u64().to_le_bytes());
    let bounds = [limits.eager as u64, u64::from(limits.credits), u64::from(limits.room)];
    let bounds: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
    card.extend(&bounds);
    card.extend(address.to_string().as_bytes());
    let cards = job.exchange(&card).map_err(|why| failed("telling the other ranks the address")(&why))?;
    let strange =
        |rank: usize| Error::new(Class::Other, format!("rank {rank} has told an address that is none"));
    let mut addresses = Vec::new();
    let mut key = [0; KEY];
    for (rank, card) in cards.iter().enumerate() {
        let (secret, rest) = card.split_at_checked(KEY).ok_or_else(|| strange(rank))?;
        let (theirs, address) = rest.split_at_checked(bounds.len()).ok_or_else(|| strange(rank))?;
        if theirs != bounds {
            let cause =
                format!("rank {rank} was started with other values of VIADUCT_MPI_EAGER, _CREDITS or _ROOM");
            return Err(Error::new(Class::NotSame, cause));
        }
        let text = std::str::from_utf8(address).map_err(|_| strange(rank))?;
        addresses.push(text.parse().map_err(|_| strange(rank))?);
        if rank == 0 {
            key.copy_from_slice(secret);
        }
    }
    Ok((addresses, key))
}

/// Connects with all ranks, and waits until all connections stand.
fn connect_all(shared: &Shared, me: usize) -> Result<()> {
    shared.with(|engine| (0..me).for_each(|peer| engine.links.wire.want(peer)))?;
    let outcome = shared.wait(|engine| {
        engine.look();
        if let Some(peer) = engine.lost_peer() {
            return Some(Err(peer));
        }
        (engine.links.wire.missing() == 0).then_some(Ok(()))
    })?;
    outcome.map_err(|peer| {
        Error::new(Class::ProcAborted, format!("rank {peer} could not be reached; see its output"))
    })
}
