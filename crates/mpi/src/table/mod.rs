//! The one table of entry points: what MPI 3.1 has, what works here, and which programs show it.
//!
//! `functions.txt` is the table. The C library's functions, its refusals and its Fortran forms are made from it, and
//! `viaduct mpi coverage` prints it, so the three cannot differ.

mod parse;

pub use parse::{Argument, Entry, Fortran, Kind};

/// The text of the table.
const TEXT: &str = include_str!("functions.txt");

/// The programs that the letters of evidence stand for.
pub const PROGRAMS: [(char, &str); 7] = [
    ('c', "C set"),
    ('f', "Fortran set"),
    ('n', "NetPIPE"),
    ('i', "IMB"),
    ('p', "mpi4py"),
    ('l', "LAMMPS"),
    ('s', "ScaLAPACK"),
];

/// Every entry point, in the order of the table.
pub fn entries() -> Vec<Entry<'static>> {
    parse::parse(TEXT).expect("the table is part of the program, and a test reads it")
}

/// The names of the programs that call an entry point in our tests.
pub fn programs(entry: &Entry<'_>) -> Vec<&'static str> {
    let called = PROGRAMS.iter().filter(|(letter, _)| entry.evidence.contains(*letter));
    called.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_is_read_and_every_name_is_there_once() {
        let entries = parse::parse(TEXT).unwrap();
        let names: HashSet<_> = entries.iter().map(|entry| entry.name).collect();
        assert_eq!((names.len(), entries.len()), (421, 421));
        assert!(names.iter().all(|name| name.starts_with("MPI_")));
    }

    #[test]
    fn arguments_are_understood() {
        let entries = entries();
        let kinds = |name: &str| -> Vec<Kind> {
            let entry = entries.iter().find(|entry| entry.name == name).unwrap();
            entry.arguments.iter().map(|argument| argument.kind).collect()
        };
        assert_eq!(
            kinds("MPI_Recv"),
            [Kind::Buffer, Kind::Int, Kind::Handle, Kind::Int, Kind::Int, Kind::Handle, Kind::Status]
        );
        assert_eq!(kinds("MPI_Waitall"), [Kind::Int, Kind::Handles, Kind::Statuses]);
        assert_eq!(kinds("MPI_Group_range_incl"), [Kind::Handle, Kind::Int, Kind::Ranges, Kind::Handles]);
        assert_eq!(kinds("MPI_Op_create"), [Kind::Function, Kind::Int, Kind::Handles]);
        assert_eq!(kinds("MPI_Info_get"), [Kind::Handle, Kind::Text, Kind::Int, Kind::TextOut, Kind::Ints]);
        assert_eq!(kinds("MPI_Finalize"), []);
        assert_eq!(kinds("MPI_Pcontrol"), [Kind::Int]);
        assert_eq!(kinds("MPI_Init"), [Kind::Ints, Kind::Opaque]);
    }

    #[test]
    fn letters_of_evidence_are_those_of_programs() {
        let known: HashSet<char> = PROGRAMS.iter().map(|(letter, _)| *letter).collect();
        for entry in entries() {
            assert!(entry.evidence.chars().all(|letter| known.contains(&letter)), "{}", entry.prototype);
        }
    }

    #[test]
    fn the_sets_of_our_own_call_everything_that_is_implemented() {
        for entry in entries().iter().filter(|entry| entry.implemented) {
            assert!(entry.evidence.contains('c'), "{}", entry.name);
            assert!(entry.evidence.contains('f') || entry.fortran == Fortran::None, "{}", entry.name);
        }
    }

    #[test]
    fn collectives_that_do_not_block_are_refused() {
        for entry in entries() {
            if matches!(entry.group, "nonblocking collectives" | "neighbourhood collectives") {
                assert!(!entry.implemented, "{}", entry.name);
            }
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let error = parse::parse("[x]\n\n+ f . int MPI_X(int a)\n* f . int MPI_Y(int a)\n").unwrap_err();
        assert!(error.contains("line 4") && error.contains("MPI_Y"), "{error}");
    }
}
