//! Which CPUs a rank may use. Pure but for reading the kernel's description of the machine.
//!
//! ```text
//!   --bind-to core|hwthread|socket|numa|none|user:LIST      what a rank gets
//!   --map-by  slot|node|core|hwthread|socket|numa           in which order: the first rank of a host gets the first unit
//! ```
//!
//! The words are those of hydra and Open MPI. Units are cut from the CPUs that the node itself may use, so that a
//! container or `taskset` around the launcher still holds. More ranks than units begin again at the first.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use viaduct_os::cpu;

use crate::error::Error;

/// What a rank is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bind {
    /// Nothing.
    #[default]
    None,
    /// So many units of a kind.
    To(Unit, u32),
    /// The CPUs of each rank of a host, by its number there.
    User(Vec<Vec<u32>>),
}

/// A part of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// One CPU as the kernel counts them.
    Thread,
    /// The CPUs of one core.
    Core,
    /// Those of one socket.
    Socket,
    /// Those next to one memory.
    Numa,
}

impl Bind {
    /// What `--bind-to` says.
    ///
    /// # Errors
    /// If it is not understood.
    pub fn parse(text: &str) -> Result<Bind, Error> {
        if let Some(list) = text.strip_prefix("user:") {
            let rank =
                |part: &str| part.split('+').map(range).collect::<Option<Vec<_>>>().map(|list| list.concat());
            let all: Option<Vec<Vec<u32>>> = list.split(',').map(rank).collect();
            return all.map(Bind::User).ok_or_else(|| refused(text));
        }
        let (word, more) = text.split_once(':').unwrap_or((text, ""));
        let count = match more {
            // Ranks share a unit here when there are too few, as this word of Open MPI's allows.
            "" | "overload-allowed" => 1,
            number => number.parse().ok().filter(|&n| n > 0).ok_or_else(|| refused(text))?,
        };
        match word {
            "none" => Ok(Bind::None),
            _ => Ok(Bind::To(Unit::parse(word).ok_or_else(|| refused(text))?, count)),
        }
    }
}

impl Unit {
    /// A word of hydra's or Open MPI's.
    pub fn parse(word: &str) -> Option<Unit> {
        match word {
            "hwthread" | "rr" => Some(Unit::Thread),
            "core" => Some(Unit::Core),
            "socket" | "package" => Some(Unit::Socket),
            "numa" => Some(Unit::Numa),
            _ => None,
        }
    }
}

fn refused(text: &str) -> Error {
    Error::Option {
        word: format!("--bind-to {text}"),
        why: "is not understood",
        hint: "write core, hwthread, socket, numa or none, core:2 for two of them, or user:0,2-3,4+6 with the CPUs of \
               each rank of a host"
            .to_owned(),
    }
}

/// `2` and `2-4`.
fn range(text: &str) -> Option<Vec<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < 65_536).then(|| (first..=last).collect())
}

/// A CPU and what it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    number: u32,
    core: u32,
    socket: u32,
    numa: u32,
}

/// The CPUs of a host that ranks may use.
#[derive(Clone, Debug)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

impl Topology {
    /// Of this host, as far as this process may use it.
    pub fn read() -> Topology {
        Topology::at(Path::new("/sys/devices/system"), &cpu::allowed())
    }

    fn at(system: &Path, allowed: &[usize]) -> Topology {
        let list = |path: String| {
            let text = fs::read_to_string(system.join(path)).unwrap_or_default();
            text.trim().split(',').filter_map(range).flatten().collect::<Vec<u32>>()
        };
        let nodes = list("node/online".to_owned());
        let memories: Vec<(u32, Vec<u32>)> =
            nodes.into_iter().map(|node| (node, list(format!("node/node{node}/cpulist")))).collect();
        let describe = |&number: &usize| {
            let number = number as u32;
            let first = |name: &str| list(format!("cpu/cpu{number}/topology/{name}")).first().copied();
            let numa = memories.iter().find(|(_, cpus)| cpus.contains(&number)).map(|(node, _)| *node);
            Cpu {
                number,
                // The first CPU of a core, and of a socket, names it.
                core: first("core_cpus_list").or_else(|| first("thread_siblings_list")).unwrap_or(number),
                socket: first("package_cpus_list").or_else(|| first("core_siblings_list")).unwrap_or(0),
                numa: numa.unwrap_or(0),
            }
        };
        Topology { cpus: allowed.iter().map(describe).collect() }
    }

    /// The CPUs of each of `count` ranks of this host; none where a rank is not bound. `by` says in which order units
    /// are given out: the first of each socket, then the second of each, for [`Unit::Socket`].
    ///
    /// # Errors
    /// If a list of the user's names CPUs that cannot be used here, or is too short.
    pub fn deal(&self, bind: &Bind, by: Option<Unit>, count: usize) -> Result<Vec<Option<Vec<u32>>>, String> {
        let units = match bind {
            Bind::None => return Ok(vec![None; count]),
            Bind::User(lists) => lists.clone(),
            Bind::To(unit, many) => {
                let units = self.ordered(*unit, by);
                units.chunks((*many).max(1) as usize).map(<[_]>::concat).collect()
            }
        };
        let allowed = |cpu: &u32| self.cpus.iter().any(|own| own.number == *cpu);
        if let Some(cpu) = units.iter().flatten().find(|cpu| !allowed(cpu)) {
            return Err(format!(
                "CPU {cpu} of --bind-to is not there, or may not be used; these may: {}",
                self.names()
            ));
        }
        if units.is_empty() {
            return Ok(vec![None; count]);
        }
        Ok(units.into_iter().map(Some).cycle().take(count).collect())
    }

    fn names(&self) -> String {
        show(&self.cpus.iter().map(|cpu| cpu.number).collect::<Vec<_>>())
    }

    fn ordered(&self, unit: Unit, by: Option<Unit>) -> Vec<Vec<u32>> {
        let mut units: Vec<Vec<Cpu>> = Vec::new();
        for cpu in &self.cpus {
            match units.iter_mut().find(|list| list[0].belongs(unit) == cpu.belongs(unit)) {
                Some(list) => list.push(*cpu),
                None => units.push(vec![*cpu]),
            }
        }
        // Without a wish, neighbours are near each other: whole cores, then whole sockets.
        units.sort_by_key(|list| (list[0].socket, list[0].core, list[0].number));
        if let Some(by) = by.filter(|by| matches!(by, Unit::Socket | Unit::Numa | Unit::Core)) {
            let mut seen: Vec<(u32, usize)> = Vec::new();
            let mut turns = Vec::new();
            for list in &units {
                let place = list[0].belongs(by);
                let turn = match seen.iter_mut().find(|(other, _)| *other == place) {
                    Some((_, turn)) => {
                        *turn += 1;
                        *turn
                    }
                    None => {
                        seen.push((place, 0));
                        0
                    }
                };
                turns.push(turn);
            }
            let mut both: Vec<(usize, Vec<Cpu>)> = turns.into_iter().zip(units).collect();
            both.sort_by_key(|(turn, _)| *turn);
            units = both.into_iter().map(|(_, list)| list).collect();
        }
        units.iter().map(|list| list.iter().map(|cpu| cpu.number).collect()).collect()
    }
}

impl Cpu {
    fn belongs(&self, unit: Unit) -> u32 {
        match unit {
            Unit::Thread => self.number,
            Unit::Core => self.core,
            Unit::Socket => self.socket,
            Unit::Numa => self.numa,
        }
    }
}

/// `0-3,7`.
pub fn show(cpus: &[u32]) -> String {
    let mut cpus: Vec<usize> = cpus.iter().map(|&cpu| cpu as usize).collect();
    cpus.sort_unstable();
    crate::output::ranges(&cpus)
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    /// Two sockets of two cores of two threads, numbered as most machines do: 0 and 4 are one core.
    fn machine(allowed: &[usize]) -> (TempDir, Topology) {
        let folder = TempDir::new("topology");
        for cpu in 0..8usize {
            let place = folder.join(format!("cpu/cpu{cpu}/topology"));
            fs::create_dir_all(&place).unwrap();
            let (core, socket) = (cpu % 4, (cpu % 4) / 2 * 2);
            fs::write(place.join("core_cpus_list"), format!("{core},{}\n", core + 4)).unwrap();
            fs::write(
                place.join("package_cpus_list"),
                format!("{socket}-{},{}-{}\n", socket + 1, socket + 4, socket + 5),
            )
            .unwrap();
        }
        for node in 0..2 {
            let place = folder.join(format!("node/node{node}"));
            fs::create_dir_all(&place).unwrap();
            fs::write(
                place.join("cpulist"),
                format!("{}-{},{}-{}\n", node * 2, node * 2 + 1, node * 2 + 4, node * 2 + 5),
            )
            .unwrap();
        }
        fs::write(folder.join("node/online"), "0-1\n").unwrap();
        let topology = Topology::at(folder.path(), allowed);
        (folder, topology)
    }

    fn dealt(bind: &str, by: Option<Unit>, count: usize) -> Vec<String> {
        let (_folder, topology) = machine(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let cpus = topology.deal(&Bind::parse(bind).unwrap(), by, count).unwrap();
        cpus.into_iter().map(|list| list.map_or_else(|| "any".to_owned(), |list| show(&list))).collect()
    }

    #[test]
    fn ranks_get_units_in_order_and_begin_again() {
        assert_eq!(dealt("none", None, 2), ["any", "any"]);
        assert_eq!(dealt("core", None, 5), ["0,4", "1,5", "2,6", "3,7", "0,4"]);
        assert_eq!(dealt("hwthread", None, 3), ["0", "4", "1"]);
        assert_eq!(dealt("hwthread", Some(Unit::Core), 5), ["0", "1", "2", "3", "4"]);
        assert_eq!(dealt("core", Some(Unit::Socket), 4), ["0,4", "2,6", "1,5", "3,7"]);
        assert_eq!(dealt("socket", None, 2), ["0-1,4-5", "2-3,6-7"]);
        assert_eq!(dealt("numa", None, 2), ["0-1,4-5", "2-3,6-7"]);
        assert_eq!(dealt("core:2", None, 2), ["0-1,4-5", "2-3,6-7"]);
        assert_eq!(dealt("user:3,0-1+7", None, 3), ["3", "0-1,7", "3"]);
        assert_eq!(dealt("core:overload-allowed", None, 1), ["0,4"]);
    }

    #[test]
    fn only_what_may_be_used_is_given_out() {
        let (_folder, topology) = machine(&[1, 5, 6]);
        let core = Bind::parse("core").unwrap();
        assert_eq!(topology.deal(&core, None, 2).unwrap(), [Some(vec![1, 5]), Some(vec![6])]);
        let why = topology.deal(&Bind::parse("user:0").unwrap(), None, 1).unwrap_err();
        assert!(why.contains("CPU 0") && why.contains("1,5-6"), "{why}");
    }

    #[test]
    fn words_that_are_not_understood_are_refused() {
        for text in ["", "board", "core:0", "core:x", "user:", "user:x", "user:3-1", "l3cache"] {
            assert!(Bind::parse(text).is_err(), "{text:?}");
        }
    }
}
