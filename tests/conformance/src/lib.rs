//! One suite of tests for every provider: what a program may rely on, whatever carries its bytes.
//!
//! ```text
//!   harness   the worlds: loopback, shm, each with settings and hooks      one function each
//!   world     two NICs that reach each other, and helpers
//!   table     every test by topic; `suite!(world)` makes a #[test] of each
//!   states connecting listening peering completing waiting reliability flush notify sharing cq protection rdma atomics
//!   srq inline value nudging driving memory face baduse badsharing hooks ubertest                the tests: `pub fn name(w: World)`
//! ```
//!
//! To add a provider: a function in `harness`, and a line in `tests/main.rs`. To add a test: a function, and its
//! name in `table` (forgetting the second fails a test). The rules come from the VIA interface; those that were
//! recalled rather than read are decisions of ours, listed with their tests in `docs/via-decisions.md`.
//!
//! Every test runs under a watchdog. None asserts that something is fast.

use std::time::Duration;

use viaduct_kit::watchdog::Watchdog;
use viaduct_via::Error;

pub mod atomics;
pub mod badsharing;
pub mod baduse;
pub mod completing;
pub mod connecting;
pub mod cq;
pub mod driving;
pub mod face;
pub mod flush;
pub mod harness;
pub mod hooks;
pub mod inline;
pub mod listening;
pub mod memory;
pub mod notify;
pub mod nudging;
pub mod pattern;
pub mod peering;
pub mod protection;
pub mod rdma;
pub mod reliability;
pub mod sharing;
pub mod srq;
pub mod states;
mod table;
pub mod ubertest;
pub mod value;
pub mod waiting;
pub mod world;

pub use world::World;

/// Runs one test in a fresh world. A provider that is not there skips it, by name.
pub fn run(setup: harness::Setup, test: &str, limit: u64, body: fn(World)) {
    let what = format!("{} in {}", test, setup.name);
    let _watchdog = Watchdog::arm(Duration::from_secs(limit), &what);
    match World::open(setup) {
        Ok(world) => body(world),
        Err(Error::NotSupported(name)) => {
            viaduct_kit::packages::skip(&format!("no provider {name} in this build"))
        }
        Err(e @ Error::Unavailable { .. }) => viaduct_kit::packages::skip(&e.to_string()),
        Err(e) => panic!("{what}: cannot open a NIC: {e}"),
    }
}
