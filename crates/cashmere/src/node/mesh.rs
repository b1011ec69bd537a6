//! The ranks of a run find each other: addresses, places for remote writes, connections.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use viaduct_job::Job;
use viaduct_os::networks;
use viaduct_os::random;
use viaduct_via::{Listener, MemHandle, NetAddress, RemoteAddress};

use super::net::{BETWEEN_WORKERS, Net, WITH_SERVER};
use super::process::{Memory, Shape};
use super::remote::Targets;
use super::start::{Error, failed};
use super::wire::Peer;
use crate::ids::{NodeId, WorkerId};
use crate::variant::Way;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What connections carry: all ranks are connected.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Processes of a node.
    pub(super) group: usize,
}

impl Plan {
    pub(super) fn of(shape: Shape) -> Plan {
        Plan { group: shape.workers as usize + 1 }
    }

    /// The process with a rank.
    pub(super) fn peer(self, rank: usize) -> Peer {
        let worker = (rank % self.group).checked_sub(1).map(|worker| WorkerId(worker as u8));
        Peer { node: NodeId((rank / self.group) as u8), worker }
    }

    fn serves(self, rank: usize) -> bool {
        rank.is_multiple_of(self.group)
    }

    /// Receives of the VI between two ranks. Requests go to servers and to workers of other nodes; workers of one node only
    /// wake each other.
    pub(super) fn receives(self, a: usize, b: usize) -> usize {
        match self.serves(a) || self.serves(b) {
            true => WITH_SERVER,
            false if a / self.group != b / self.group => BETWEEN_WORKERS,
            false => 0,
        }
    }
}

/// What a rank tells the others: where its node's memory is for them, the name it listens at, addresses of its host.
struct Card {
    region: RemoteAddress,
    frames: RemoteAddress,
    name: String,
    addresses: Vec<IpAddr>,
}

const NOWHERE: RemoteAddress = RemoteAddress { addr: 0, handle: MemHandle::NONE };

impl Card {
    fn to_bytes(&self) -> Vec<u8> {
        let place = |p: RemoteAddress| format!("{} {}", p.addr, p.handle.number());
        let mut text = format!("{} {} {}", place(self.region), place(self.frames), self.name);
        self.addresses.iter().for_each(|address| text += &format!(" {address}"));
        text.into_bytes()
    }

    fn parse(bytes: &[u8]) -> Option<Card> {
        let text = std::str::from_utf8(bytes).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let [a, b, c, d, name, addresses @ ..] = &words[..] else { return None };
        let place = |addr: &str, handle: &str| {
            let handle = MemHandle::from_number(handle.parse().ok()?);
            Some(RemoteAddress { addr: addr.parse().ok()?, handle })
        };
        let (region, frames) = (place(a, b)?, place(c, d)?);
        let addresses = addresses.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Card { region, frames, name: (*name).to_owned(), addresses })
    }
}

/// Connects this process with those it talks to, and gives the places of the other nodes' memory.
pub(super) fn connect(job: &mut Job, net: &mut Net, shape: Shape, memory: &Memory) -> Result<Targets, Error> {
    let (me, plan) = (job.rank(), Plan::of(shape));
    let mut open = |way, segment| match way {
        Way::Direct => net.open(segment).map_err(failed("opening memory to the other nodes")),
        Way::Message => Ok(NOWHERE),
    };
    let region = open(shape.variant.metadata(), &memory.region.segment)?;
    let frames = open(shape.variant.data(), &memory.frames)?;
    let name = format!("dsm.{:016x}.{me}", random::u64());
    let address = NetAddress::local(&name).map_err(failed("an address"))?;
    let listener = net.listen(&address).map_err(failed("listening for the other ranks"))?;
    let hosts = job.hosts().map_err(failed("meeting the other ranks"))?.to_vec();
    let alone = hosts.iter().all(|host| *host == hosts[me]);
    let networks = if alone { Vec::new() } else { networks::addresses() };
    let addresses = networks.iter().map(|network| network.address).collect();
    let ours = Card { region, frames, name, addresses };
    let cards = job.exchange(&ours.to_bytes()).map_err(failed("telling the other ranks the address"))?;
    let strange = || Error::Start("the address of a rank", "it cannot be read".to_owned());
    let cards: Vec<Card> =
        cards.iter().map(|card| Card::parse(card)).collect::<Option<_>>().ok_or_else(strange)?;
    let mut pending = Vec::new();
    for rank in 0..me {
        // The name alone is enough on one host.
        let host = if hosts[rank] == hosts[me] {
            String::new()
        } else {
            let nowhere =
                || failed("the address of a rank")(format!("rank {rank} has none; see `ip addr` there"));
            networks::nearest(&networks, &cards[rank].addresses).ok_or_else(nowhere)?.to_string()
        };
        let address = NetAddress::new(host.as_bytes(), cards[rank].name.as_bytes());
        let address = address.map_err(failed("the address of a rank"))?;
        let vi = net.connect(me, rank, &address, plan.receives(me, rank));
        pending.push(vi.map_err(failed("connecting with a rank"))?);
    }
    let missing = cards.len() - me - 1;
    stand(net, listener, pending, missing, |rank| plan.receives(me, rank))?;
    let servers = || cards.iter().step_by(plan.group);
    Ok(Targets {
        regions: servers().map(|card| card.region).collect(),
        frames: servers().map(|card| card.frames).collect(),
    })
}

/// Waits until all connections stand.
fn stand(
    net: &mut Net,
    listener: Listener,
    mut pending: Vec<viaduct_via::Vi>,
    mut missing: usize,
    receives: impl Fn(usize) -> usize,
) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    while missing > 0 || !pending.is_empty() {
        let mut moved = false;
        while missing > 0 && net.accept(listener, &receives).map_err(failed("accepting a rank"))? {
            missing -= 1;
            moved = true;
        }
        let mut index = 0;
        while index < pending.len() {
            if net.connected(pending[index]).map_err(failed("connecting with a rank"))? {
                pending.swap_remove(index);
                moved = true;
            } else {
                index += 1;
            }
        }
        if !moved {
            std::thread::sleep(Duration::from_micros(200));
        }
        if Instant::now() > end {
            let why =
                format!("{} connections are missing after {} s", missing + pending.len(), PATIENCE.as_secs());
            return Err(Error::Start("connecting the nodes", why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_comes_back_as_it_was() {
        let place = |addr| RemoteAddress { addr, handle: MemHandle::from_number(7) };
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let addresses = vec![ip("10.1.0.1"), ip("fd00::1")];
        let card = Card { region: place(1), frames: place(1 << 63), name: "dsm.1.2".to_owned(), addresses };
        let read = Card::parse(&card.to_bytes()).expect("a card");
        assert_eq!((read.region, read.frames), (card.region, card.frames));
        assert_eq!((&read.addresses, &read.name), (&card.addresses, &card.name));
        assert!(Card::parse(b"1 2 3").is_none() && Card::parse(b"1 2 3 4 n h").is_none());
    }

    #[test]
    fn workers_of_one_node_send_each_other_no_messages() {
        let plan = Plan { group: 3 };
        assert_eq!((plan.receives(0, 1), plan.receives(1, 3)), (WITH_SERVER, WITH_SERVER));
        assert_eq!((plan.receives(1, 4), plan.receives(1, 2)), (BETWEEN_WORKERS, 0));
    }
}
