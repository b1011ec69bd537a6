//! What the report says about the cases of this package, and about the tables that verbs of `viaduct bench` write. To add a
//! table: a line in [`TABLES`].

use viaduct_results::report::{CaseInfo, Catalogue, TableInfo};

use crate::cases;

/// Every table that a verb of `viaduct bench` writes.
const TABLES: &[TableInfo] = &[TableInfo {
    name: "launch",
    title: "Starting programs that do nothing",
    words: "From the call of a launcher until it has ended, for so many ranks of a program that ends at once; all \
            launchers take turns. The paper (Millennium Sort, section 4.3) gives 400 us for a request to an agent.",
    command: "viaduct bench launch --compare hydra,openmpi,parallel,ssh -o results.jsonl",
}];

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
