//! The cases `mpi-…`: the six micro-benchmarks of the thesis (section 4.2), and two that its machines did not ask for.

use crate::error::{Error, Result};

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What it finds out.
    pub about: &'static str,
    /// What is timed.
    pub timed: &'static str,
    /// us, MB/s or ms.
    pub unit: &'static str,
    /// What stands along x beside the size; empty if nothing does.
    pub axis: &'static str,
    /// What `program.c` calls it.
    pub(super) word: &'static str,
    sizes: &'static [usize],
    places: &'static [usize],
    /// The case of raw VIA that it is held against, with the places of the axis.
    pub(super) raw: Option<&'static str>,
    /// Both ranks on one core.
    pub(super) one_core: bool,
    /// It is not one of those that `mpi` means: it takes many minutes.
    pub(super) by_name: bool,
}

/// A start of the program: so many ranks, and points as words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) ranks: usize,
    pub(super) words: Vec<String>,
}

/// Ranks of a program that only starts and ends.
pub(super) const MANY: usize = 16;

const SIZES: &[usize] = &[4, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        name: "mpi-latency",
        about: "one message there and back over MPI (figures 4.1 to 4.5)",
        timed: "MPI_Send and MPI_Recv, half of the round trip; both ranks read every byte",
        unit: "us",
        axis: "",
        word: "latency",
        sizes: SIZES,
        places: &[],
        raw: Some("latency"),
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-bandwidth",
        about: "messages one way over MPI (figures 4.6 to 4.10)",
        timed: "windows of 16 MPI_Isend, MPI_Irecv and MPI_Wait with an answer after each; the receiver reads every byte",
        unit: "MB/s",
        axis: "",
        word: "bandwidth",
        sizes: SIZES,
        places: &[],
        raw: Some("bandwidth"),
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-buffers",
        about: "what it costs that every message leaves from another buffer (figure 4.11)",
        timed: "ping-pong; same: one buffer; new: the next of 16 MiB of buffers for each send",
        unit: "us",
        axis: "",
        word: "buffers",
        sizes: &[512, 4 << 10, 64 << 10],
        places: &[],
        raw: Some("buffers"),
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-connections",
        about: "what it costs two ranks that one of them has connections with many others",
        timed: "ping-pong of ranks 0 and 1 after every other rank has sent to rank 0; the others sleep outside of MPI",
        unit: "us",
        axis: "connections",
        word: "connections",
        sizes: &[16],
        places: &[1, 2, 4, 8, 16, 32, 64],
        raw: Some("connections"),
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-segments",
        about: "messages out of pieces that lie apart (figure 4.12)",
        timed: "ping-pong; derived: a vector type; packed: the program copies; contiguous: in one piece",
        unit: "us",
        axis: "segments",
        word: "segments",
        sizes: &[1 << 10, 64 << 10],
        places: &[2, 4, 8, 16, 64],
        raw: Some("segments"),
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-any",
        about: "receives from any rank against those from a named one",
        timed: "ping-pong; any: MPI_ANY_SOURCE; named: the other rank",
        unit: "us",
        axis: "",
        word: "any",
        sizes: &[8, 1 << 10, 16 << 10],
        places: &[],
        raw: Some("cq"),
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-one-core",
        about: "two ranks that share a core",
        timed: "ping-pong, half of the round trip",
        unit: "us",
        axis: "",
        word: "latency",
        sizes: &[8],
        places: &[],
        raw: None,
        one_core: true,
        by_name: false,
    },
    Case {
        name: "mpi-start",
        about: "16 ranks that call MPI_Init and MPI_Finalize",
        timed: "from the call of the launcher until it has ended",
        unit: "ms",
        axis: "",
        word: "empty",
        sizes: &[0],
        places: &[],
        raw: None,
        one_core: false,
        by_name: false,
    },
    Case {
        name: "mpi-crowd",
        about: "IMB-MPI1 with 16 ranks on two cores; not part of `mpi`, since others take minutes",
        timed: "from the call of the launcher until it has ended: Barrier, Allreduce, Bcast, Alltoall, Sendrecv up to 4 KiB",
        unit: "ms",
        axis: "",
        word: "imb",
        sizes: &[0],
        places: &[],
        raw: None,
        one_core: false,
        by_name: true,
    },
    Case {
        name: "mpi-many",
        about: "the operations of `mpi-crowd` in a program that every library compiles, Open MPI too; not part of `mpi`",
        timed: "from the call of the launcher until it has ended: Barrier, Allreduce, Bcast, Alltoall, Sendrecv up to 4 KiB",
        unit: "ms",
        axis: "",
        word: "crowd",
        sizes: &[0],
        places: &[],
        raw: None,
        one_core: false,
        by_name: true,
    },
];

impl Case {
    /// The cases that a name of the command line means: one, or all.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn find_all(name: &str) -> Result<Vec<&'static Case>> {
        let found: Vec<_> =
            CASES.iter().filter(|case| name == "mpi" && !case.by_name || case.name == name).collect();
        match found.is_empty() {
            true => Err(Error::usage(format!("there is no case `{name}`"), "see viaduct bench list")),
            false => Ok(found),
        }
    }

    /// A smaller value is a better one.
    pub fn lower_is_better(&self) -> bool {
        self.unit != "MB/s"
    }

    /// The user's sizes, or those of the case; of those few if it has to be quick.
    pub(super) fn sizes(&self, given: &[usize], quick: bool) -> Vec<usize> {
        let fixed = matches!(self.word, "empty" | "imb" | "crowd") || self.one_core;
        match (given, quick) {
            ([_, ..], _) if !fixed => given.to_vec(),
            (_, true) if self.sizes.len() > 4 => vec![8, 1 << 10, 16 << 10, 256 << 10],
            (_, true) => vec![self.sizes[0]],
            _ => self.sizes.to_vec(),
        }
    }

    fn places(&self, quick: bool) -> &[usize] {
        if quick { &self.places[..self.places.len().min(2)] } else { self.places }
    }

    /// The starts of the program that measure all points.
    pub(super) fn starts(&self, given: &[usize], quick: bool) -> Vec<Start> {
        let sizes = self.sizes(given, quick);
        let words = || sizes.iter().map(usize::to_string).collect::<Vec<_>>();
        match self.word {
            "empty" | "imb" | "crowd" => {
                vec![Start { ranks: if quick { 4 } else { MANY }, words: Vec::new() }]
            }
            "connections" => {
                let start = |&count: &usize| Start { ranks: count + 1, words: words() };
                self.places(quick).iter().map(start).collect()
            }
            "segments" => {
                let point = |size: &usize| {
                    // A piece has at least a byte, and all are of one length.
                    let size = *size;
                    let fits = move |count: &&usize| size.is_multiple_of(**count);
                    self.places(quick).iter().filter(fits).map(move |count| format!("{size}:{count}"))
                };
                vec![Start { ranks: 2, words: sizes.iter().flat_map(point).collect() }]
            }
            _ => vec![Start { ranks: 2, words: words() }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_means_all_cases_and_each_has_its_own() {
        assert_eq!(Case::find_all("mpi").unwrap().len(), CASES.len() - 2, "all but those that take long");
        for case in CASES {
            assert_eq!(Case::find_all(case.name).unwrap().len(), 1);
        }
        assert!(Case::find_all("mpi-none").is_err());
    }

    #[test]
    fn starts_name_every_point() {
        let case = |name: &str| Case::find_all(name).unwrap()[0];
        assert_eq!(
            case("mpi-latency").starts(&[8, 64], false),
            [Start { ranks: 2, words: vec!["8".into(), "64".into()] }]
        );
        let ranks: Vec<usize> =
            case("mpi-connections").starts(&[], false).iter().map(|start| start.ranks).collect();
        assert_eq!(ranks, [2, 3, 5, 9, 17, 33, 65]);
        assert_eq!(
            case("mpi-segments").starts(&[6], false)[0].words,
            ["6:2"],
            "three pieces of two bytes are not asked for"
        );
        assert_eq!(case("mpi-start").starts(&[8], false), [Start { ranks: MANY, words: Vec::new() }]);
    }
}
