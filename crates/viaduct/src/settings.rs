//! Every setting that exists, as rows: those of the crates below by their tables, and those that are read by a program or
//! a C library itself.

use std::collections::BTreeMap;

use anyhow::Result;
use viaduct_os::knob::{self, Knob, Purpose};
use viaduct_os::log::VARIABLE;

use crate::cmd::bench::USUAL;
use crate::knobs;

/// A setting with its value.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) env: &'static str,
    pub(crate) purpose: Purpose,
    pub(crate) help: &'static str,
}

/// A setting that is not in a table of the crates below: name, variable, default, purpose, help. A [`Knob`] parses into a
/// field of a `Config` that a crate is opened with; these are shown as they were given, for they have none:
///
/// - `provider` is a name that decides which `Config` counts, and [`log`] is needed, and parsed, before anything is opened;
/// - `run.*` is read inside of applications, by a library that has no allocation and no standard library there
///   (`crates/intercept`), and by what starts these;
/// - `dsm.run` is a message from a launcher to its processes (`crates/cashmere/src/given.rs`);
/// - `test.*` is read by the tests, which no program carries.
struct Other(&'static str, &'static str, &'static str, Purpose, &'static str);

const OTHERS: &[Other] = &[
    Other(
        "provider",
        "VIADUCT_PROVIDER",
        USUAL,
        Purpose::Use,
        "provider that tools use unless told otherwise",
    ),
    Other(
        "log",
        VARIABLE,
        "warn",
        Purpose::Use,
        "what is said on standard error: off, error, warn, info, debug or trace, or MODULE=LEVEL, with commas",
    ),
    Other(
        "run.library",
        "VIADUCT_PRELOAD",
        "automatic",
        Purpose::Use,
        "the library that viaduct run preloads, where it is not beside the program",
    ),
    Other(
        "run.agent",
        "VIADUCT_AGENT_PROGRAM",
        "automatic",
        Purpose::Use,
        "the program that the preloaded library starts as an agent where none answers; off: none",
    ),
    Other(
        "run.rules",
        "VIADUCT_RULES",
        "~/.config/viaduct/rules",
        Purpose::Use,
        "file with the connections that a preloaded library never, or always, upgrades",
    ),
    Other(
        "run.upgrade",
        "VIADUCT_RUN",
        "auto",
        Purpose::Use,
        "never: a preloaded library leaves every connection to TCP",
    ),
    Other(
        "run.explain",
        "VIADUCT_EXPLAIN",
        "",
        Purpose::Use,
        "where a preloaded library says what became of each connection; set by viaduct run --explain",
    ),
    Other(
        "run.claim",
        "VIADUCT_CLAIM",
        "automatic",
        Purpose::Figures,
        "name of the local socket at which preloaded libraries meet their agent",
    ),
    Other(
        "dsm.run",
        "VIADUCT_DSM",
        "",
        Purpose::Figures,
        "how a run of shared memory is laid out; set by viaduct dsm for the processes that it starts",
    ),
    Other("test.scale", "VIADUCT_TEST_SCALE", "1", Purpose::Figures, "factor of all time limits in tests"),
    Other("test.full", "VIADUCT_TEST_FULL", "off", Purpose::Figures, "the long form of tests"),
    Other(
        "test.compatibility",
        "VIADUCT_TEST_COMPATIBILITY",
        "",
        Purpose::Figures,
        "file to which tests of outside programs write what became of these",
    ),
    Other(
        "test.seed",
        "VIADUCT_UBERTEST_SEED",
        "random",
        Purpose::Figures,
        "seed of the random programs among the tests",
    ),
    Other(
        "test.fuzz-seed",
        "VIADUCT_FUZZ_SEED",
        "random",
        Purpose::Figures,
        "seed of the inputs for parsers",
    ),
];

/// All of them.
pub(crate) fn all() -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = OTHERS.iter().map(other).collect();
    let (defaults, config) = (viaduct_providers::Config::default(), knobs::from_environment()?);
    rows.extend(of(viaduct_providers::config::KNOBS, &config, &defaults));
    let (defaults, config) = (viaduct_sovia::Config::default(), knobs::streams()?);
    rows.extend(of(viaduct_sovia::knobs::KNOBS, &config, &defaults));
    let (defaults, config) = (viaduct_catapult::knobs::Config::default(), knobs::launching()?);
    rows.extend(of(viaduct_catapult::knobs::KNOBS, &config, &defaults));
    let (defaults, config) = (viaduct_agent::knobs::Config::default(), knobs::agent()?);
    rows.extend(of(viaduct_agent::knobs::KNOBS, &config, &defaults));
    let (defaults, config) = (viaduct_providers::vipl::Config::default(), knobs::vipl()?);
    rows.extend(of(viaduct_providers::vipl::KNOBS, &config, &defaults));
    let (defaults, config) = (viaduct_mpi::world::Settings::default(), knobs::mpi()?);
    rows.extend(of(viaduct_mpi::world::settings::KNOBS, &config, &defaults));
    Ok(rows)
}

/// Names and values of those that are not at their defaults, secrets apart. Results record them.
pub(crate) fn changed() -> Result<BTreeMap<String, String>> {
    let told = |row: &Row| row.value != row.default && row.purpose != Purpose::Secret;
    let rows = all()?.into_iter().filter(told);
    Ok(rows.map(|row| (row.name.to_owned(), row.value)).collect())
}

fn of<C>(table: &[Knob<C>], config: &C, defaults: &C) -> Vec<Row> {
    let row = |knob: &Knob<C>| {
        let Knob { name, env, help, purpose, .. } = *knob;
        Row { name, value: (knob.show)(config), default: (knob.show)(defaults), env, purpose, help }
    };
    table.iter().map(row).collect()
}

fn other(&Other(name, env, default, purpose, help): &Other) -> Row {
    let value = knobs::variable(env).unwrap_or_else(|| default.to_owned());
    Row { name, value, default: default.to_owned(), env, purpose, help }
}

/// The filter of `VIADUCT_LOG`, and what is wrong with it.
pub(crate) fn log() -> (viaduct_os::log::Filter, Option<knob::BadKnob>) {
    let Some(given) = knobs::variable(VARIABLE) else { return Default::default() };
    match given.parse() {
        Ok(filter) => (filter, None),
        Err(allowed) => {
            let bad = knob::BadKnob { env: VARIABLE, given, name: "log", allowed };
            (Default::default(), Some(bad))
        }
    }
}
