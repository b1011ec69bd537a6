//! What the report says about the cases of this package, and about the tables that verbs of `viaduct bench` write. To add a
//! table: a line in [`TABLES`].

use viaduct_results::report::{CaseInfo, Catalogue, TableInfo};

use crate::cases;

/// Every table that a verb of `viaduct bench` writes.
const TABLES: &[TableInfo] = &[
    TableInfo {
        name: "launch",
        title: "Starting programs that do nothing",
        words: "From the call of a launcher until it has ended, for so many ranks of a program that ends at once; all \
            launchers take turns. The paper (Millennium Sort, section 4.3) gives 400 us for a request to an agent.",
        command: "viaduct bench launch --compare hydra,openmpi,parallel,ssh -o results.jsonl",
    },
    TableInfo {
        name: "ftp",
        title: "File transfer by vsftpd and curl",
        words: "Unmodified programs on one host: the file lies in memory, the client writes to the null device, the daemon's sandbox \
            is off; `times TCP` is taken round by round. After table I of the SOVIA paper, whose values were measured \
            between two hosts.",
        command: "viaduct bench ftp -o results.jsonl",
    },
    TableInfo {
        name: "rpc",
        title: "Remote procedure calls on libtirpc",
        words: "A service and a client made by rpcgen, unmodified, on one host: the time of one call that answers with a number, \
            by the length of its argument. `spinning` is kernel TCP with the library's way of waiting. After figure 10 of the \
            SOVIA paper.",
        command: "viaduct bench rpc -o results.jsonl",
    },
    TableInfo {
        name: "apps",
        title: "Servers of today under viaduct run",
        words: "Unmodified servers with the load that their own tools make, both ends on one host: redis-benchmark without \
            pipelining, memcaslap, wrk with connections that stay open, pgbench. All ways take turns; `times TCP` is taken round by \
            round.",
        command: "viaduct bench apps -o results.jsonl",
    },
];

/// Words for the report.
pub fn catalogue() -> Catalogue {
    let case = |case: &&cases::Case| CaseInfo {
        name: case.name,
        about: case.about,
        timed: case.timed,
        lower_is_better: case.lower_is_better,
    };
    Catalogue { cases: cases::ALL.iter().map(case).collect(), tables: TABLES.to_vec() }
}
