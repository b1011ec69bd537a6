//! What is to run where: programs and hosts become nodes with ranks. Pure.
//!
//! Ranks fill a host before they go on to the next, as `mpiexec` does. More ranks than slots start again at the first
//! host, so that oversubscription is even.

use serde::{Deserialize, Serialize};

use crate::binding::{Bind, Unit};
use crate::error::Error;
use crate::hosts::Host;

/// A program of the job, with what is its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name and arguments, as bytes: they need not be text.
    pub command: Vec<Vec<u8>>,
    /// Variables beyond those of the launcher.
    pub variables: Vec<(String, String)>,
    /// Where it runs.
    pub folder: Option<String>,
}

/// How many ranks of a program are wanted, and on which hosts if not on those of the job.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The program.
    pub program: Program,
    /// Ranks; as many as there are slots if not said.
    pub count: Option<usize>,
    /// Hosts of its own.
    pub hosts: Option<Vec<Host>>,
}

/// In which order ranks go to hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapBy {
    /// A host is filled before the next one begins.
    #[default]
    Slot,
    /// One to each host in turn.
    Node,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Its number in the job.
    pub rank: u32,
    /// Which program.
    pub app: u32,
}

/// Where standard input goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// To no rank.
    #[default]
    None,
    /// To one rank.
    One(u32),
    /// To all.
    All,
}

impl Input {
    /// Whether this rank gets it.
    pub fn reaches(self, rank: u32) -> bool {
        self == Input::All || self == Input::One(rank)
    }
}

/// What one node has to do: this goes over the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlan {
    /// The job.
    pub job: String,
    /// Ranks of the whole job.
    pub size: u32,
    /// Number of this node, and of all.
    pub node: (u32, u32),
    /// How this host is called.
    pub host: String,
    /// The ranks of this node.
    pub ranks: Vec<Rank>,
    /// The programs of the job.
    pub programs: Vec<Program>,
    /// Variables for all ranks.
    pub variables: Vec<(String, String)>,
    /// Which ranks are together, as PMI tells it.
    pub mapping: String,
    /// Where input goes.
    pub input: Input,
    /// The rank that runs in a debugger.
    pub debug: Option<u32>,
    /// End everything when a rank ends badly.
    pub strict: bool,
    /// Which CPUs ranks get.
    pub bind: Bind,
    /// In which order they are given out, if not by cores.
    pub bind_by: Option<Unit>,
    /// Whether the user wants to know of it.
    pub report_bindings: bool,
    /// Start programs of Open MPI although each rank is a job of its own.
    pub singletons: bool,
}

/// Ranks on hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The hosts that got a rank, in order.
    pub hosts: Vec<Host>,
    /// The ranks of each of them.
    pub nodes: Vec<Vec<Rank>>,
}

impl Placement {
    /// Distributes the ranks of all programs over the hosts. `per_node` overrides the slots.
    ///
    /// # Errors
    /// If there is nothing to run, or nowhere.
    pub fn new(
        wishes: &[Wish],
        hosts: &[Host],
        per_node: Option<usize>,
        by: MapBy,
    ) -> Result<Placement, Error> {
        if per_node == Some(0) {
            return Err(usage("--ppn 0 leaves no place for a rank: it takes 1 or more"));
        }
        let slots = |host: &Host| per_node.unwrap_or(host.slots);
        let all: usize = hosts.iter().map(slots).sum();
        let shared: Vec<&Wish> = wishes.iter().filter(|wish| wish.hosts.is_none()).collect();
        if wishes.is_empty() {
            return Err(usage("there is no program to run"));
        }
        if all == 0 && !shared.is_empty()
            || wishes.iter().any(|wish| wish.hosts.as_ref().is_some_and(Vec::is_empty))
        {
            return Err(usage("no host is left to run on: the list of hosts, or the file, is empty"));
        }
        if shared.iter().filter(|wish| wish.count.is_none()).count() > 1 {
            return Err(usage("of several programs at most one goes without -n"));
        }
        let said: usize = shared.iter().filter_map(|wish| wish.count).sum();
        let rest = all.saturating_sub(said).max(1);
        let count = |wish: &Wish| {
            let own = wish.hosts.as_ref().map(|list| list.iter().map(slots).sum());
            wish.count.or(own).unwrap_or(rest)
        };
        // Every host once, in the order in which it is first named.
        let mut union: Vec<Host> = hosts.to_vec();
        for host in wishes.iter().filter_map(|wish| wish.hosts.as_ref()).flatten() {
            if union.iter().all(|other| other.name != host.name) {
                union.push(host.clone());
            }
        }
        let seats = |list: &[Host]| -> Vec<(usize, usize)> {
            let node = |host: &Host| union.iter().position(|other| other.name == host.name).unwrap_or(0);
            list.iter().map(|host| (node(host), slots(host))).collect()
        };
        // Programs without hosts of their own share those of the job, as if they were one.
        let mut common = deal(&seats(hosts), shared.iter().map(|wish| count(wish)).sum(), by).into_iter();
        let mut nodes: Vec<Vec<Rank>> = vec![Vec::new(); union.len()];
        let mut next = 0;
        for (app, wish) in (0..).zip(wishes) {
            let places: Vec<usize> = match &wish.hosts {
                Some(own) => deal(&seats(own), count(wish), by),
                None => common.by_ref().take(count(wish)).collect(),
            };
            for node in places {
                nodes[node].push(Rank { rank: next, app });
                next += 1;
            }
        }
        if next == 0 {
            return Err(usage("at least one rank is needed"));
        }
        let used = |pair: &(Host, Vec<Rank>)| !pair.1.is_empty();
        let (hosts, nodes) = union.into_iter().zip(nodes).filter(used).unzip();
        Ok(Placement { hosts, nodes })
    }

    /// Ranks in all.
    pub fn size(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// Which ranks are together, as PMI tells it: `(first node, nodes, ranks on each)` again and again.
    pub fn mapping(&self) -> String {
        let mut blocks: Vec<(usize, usize, usize)> = Vec::new();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for node in self.node_of_ranks() {
            match runs.last_mut() {
                Some((last, count)) if *last == node => *count += 1,
                _ => runs.push((node, 1)),
            }
        }
        for (node, ranks) in runs {
            match blocks.last_mut() {
                Some((first, count, same)) if *same == ranks && *first + *count == node => *count += 1,
                _ => blocks.push((node, 1, ranks)),
            }
        }
        let list: Vec<String> =
            blocks.iter().map(|(first, count, ranks)| format!("({first},{count},{ranks})")).collect();
        format!("(vector,{})", list.join(","))
    }

    /// The host of every rank, in the order of ranks.
    pub fn host_of_ranks(&self) -> Vec<&str> {
        self.node_of_ranks().into_iter().map(|node| &*self.hosts[node].name).collect()
    }

    fn node_of_ranks(&self) -> Vec<usize> {
        let mut places: Vec<(u32, usize)> = Vec::with_capacity(self.size());
        for (node, ranks) in self.nodes.iter().enumerate() {
            places.extend(ranks.iter().map(|rank| (rank.rank, node)));
        }
        places.sort_unstable();
        places.into_iter().map(|(_, node)| node).collect()
    }
}

/// The node of each of `count` ranks, from nodes with their slots. More ranks than slots begin anew.
fn deal(seats: &[(usize, usize)], count: usize, by: MapBy) -> Vec<usize> {
    let all: usize = seats.iter().map(|(_, slots)| slots).sum();
    let mut places = Vec::with_capacity(count);
    match by {
        // A second time around is dealt to the nodes first, so that ranks of a node have numbers in a row.
        MapBy::Slot => {
            let (rounds, mut rest) = (count / all.max(1), count % all.max(1));
            for &(node, slots) in seats {
                let more = slots.min(rest);
                rest -= more;
                places.extend(std::iter::repeat_n(node, slots * rounds + more));
            }
        }
        MapBy::Node => {
            let mut left: Vec<usize> = Vec::new();
            while places.len() < count && all > 0 {
                if left.iter().all(|&slots| slots == 0) {
                    left = seats.iter().map(|&(_, slots)| slots).collect();
                }
                for (&(node, _), slots) in seats.iter().zip(&mut left).filter(|(_, slots)| **slots > 0) {
                    *slots -= 1;
                    places.push(node);
                }
            }
            places.truncate(count);
        }
    }
    places
}

fn usage(what: &str) -> Error {
    Error::Usage(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(count: Option<usize>) -> Wish {
        Wish { count, ..Wish::default() }
    }

    fn hosts(list: &[(&str, usize)]) -> Vec<Host> {
        list.iter().map(|(name, slots)| Host { name: (*name).to_owned(), slots: *slots }).collect()
    }

    fn shape(wishes: &[Wish], list: &[(&str, usize)], per_node: Option<usize>) -> Vec<usize> {
        Placement::new(wishes, &hosts(list), per_node, MapBy::Slot)
            .unwrap()
            .nodes
            .iter()
            .map(Vec::len)
            .collect()
    }

    #[test]
    fn hosts_are_filled_in_order() {
        assert_eq!(shape(&[wish(Some(3))], &[("a", 2), ("b", 2)], None), [2, 1]);
        assert_eq!(shape(&[wish(None)], &[("a", 2), ("b", 2)], None), [2, 2]);
        assert_eq!(shape(&[wish(Some(2))], &[("a", 2), ("b", 2)], Some(1)), [1, 1]);
        assert_eq!(
            shape(&[wish(Some(1))], &[("a", 2), ("b", 2)], None),
            [1],
            "a host without ranks is not used"
        );
    }

    #[test]
    fn too_many_ranks_are_spread_evenly_and_numbered_in_a_row() {
        let placement =
            Placement::new(&[wish(Some(7))], &hosts(&[("a", 2), ("b", 1)]), None, MapBy::Slot).unwrap();
        let ranks: Vec<Vec<u32>> =
            placement.nodes.iter().map(|node| node.iter().map(|rank| rank.rank).collect()).collect();
        assert_eq!(ranks, [vec![0, 1, 2, 3, 4], vec![5, 6]]);
        assert_eq!(placement.mapping(), "(vector,(0,1,5),(1,1,2))");
        assert_eq!(placement.host_of_ranks()[4..], ["a", "b", "b"]);
    }

    #[test]
    fn several_programs_share_the_ranks() {
        let placement =
            Placement::new(&[wish(Some(1)), wish(None)], &hosts(&[("a", 4)]), None, MapBy::Slot).unwrap();
        let apps: Vec<u32> = placement.nodes[0].iter().map(|rank| rank.app).collect();
        assert_eq!(apps, [0, 1, 1, 1]);
        assert!(Placement::new(&[wish(None), wish(None)], &hosts(&[("a", 4)]), None, MapBy::Slot).is_err());
        assert!(Placement::new(&[wish(Some(0))], &hosts(&[("a", 4)]), None, MapBy::Slot).is_err());
        assert!(Placement::new(&[wish(Some(1))], &[], None, MapBy::Slot).is_err());
    }

    #[test]
    fn ranks_go_to_hosts_in_turn_if_that_is_wanted() {
        let list = hosts(&[("a", 2), ("b", 1)]);
        let placement = Placement::new(&[wish(Some(5))], &list, None, MapBy::Node).unwrap();
        assert_eq!(placement.host_of_ranks(), ["a", "b", "a", "a", "b"]);
        assert_eq!(placement.mapping(), "(vector,(0,2,1),(0,1,2),(1,1,1))");
    }

    #[test]
    fn a_program_runs_on_hosts_of_its_own() {
        let own = |list: &[(&str, usize)], count| Wish { hosts: Some(hosts(list)), ..wish(count) };
        let wishes = [wish(Some(1)), own(&[("c", 2), ("a", 1)], None), wish(Some(1))];
        let list = hosts(&[("a", 1), ("b", 1)]);
        let placement = Placement::new(&wishes, &list, None, MapBy::Slot).unwrap();
        assert_eq!(placement.host_of_ranks(), ["a", "c", "c", "a", "b"]);
        assert_eq!(placement.mapping(), "(vector,(0,1,1),(2,1,2),(0,2,1))");
        assert!(Placement::new(&[own(&[], None)], &list, None, MapBy::Slot).is_err());
    }
}
