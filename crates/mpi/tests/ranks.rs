//! Starts the ranks of a job as processes of this test binary, without a launcher.

use std::error::Error;
use std::process::{self, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use viaduct_job::Job;
use viaduct_kit::child::Child;
use viaduct_kit::effort;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::datatype::{Datatype, basic};
use viaduct_mpi::raw::Span;
use viaduct_mpi::world::World;
use viaduct_os::cpu;
use viaduct_providers::Config;
use viaduct_via::Nic;

/// How long a job may take before it counts as hung.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// What each rank runs, by name.
#[expect(clippy::type_complexity, reason = "a table of names and functions")]
const SCENARIOS: &[(&str, fn(&World))] = &[
    ("ring", crate::point::ring),
    ("lengths", crate::point::lengths),
    ("wildcards", crate::point::wildcards),
    ("flood", crate::away::flood),
    ("away", crate::away::away),
    ("gigabyte", crate::away::gigabyte),
    ("empty-ones", crate::away::empty_ones),
    ("crossing", crate::point::crossing),
    ("threads", crate::point::threads),
    ("pulled", crate::reading::pulled),
    ("gathered", crate::reading::gathered),
    ("packed", crate::reading::packed),
    ("private", crate::reading::private),
    ("modes", crate::point::modes),
    ("collectives", crate::collectives::all),
    ("mismatch", crate::collectives::mismatch),
    ("crowd", crate::crowd::told),
    ("short-mismatch", crate::short::mismatch),
    ("other-root", crate::unlike::other_root),
    ("other-root-awaited", crate::unlike::other_root_awaited),
    ("other-reduction", crate::unlike::other_reduction),
    ("other-type", crate::unlike::other_type),
    ("uneven", crate::short::uneven),
    ("running-ahead", crate::short::running_ahead),
    ("communicators", crate::short::communicators),
    ("far", crate::hosts::far),
    ("making", crate::making::all),
    ("making-threads", crate::making::threads),
    ("death", crate::faults::death),
    ("leaving", crate::faults::leaving),
    ("idle", crate::faults::idle),
    ("no-vi", crate::faults::no_vi),
];

viaduct_kit::child!(RANK, |args| {
    let (scenario, rank, size) = (args[0].clone(), args[1].clone(), args[2].clone());
    let (address, token) = (args[3].clone(), args[4].clone());
    let extra: Vec<(String, String)> =
        args[5..].iter().filter_map(|pair| pair.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect();
    let has = |word: &str| args[5..].iter().any(|setting| setting == word);
    // How many ranks each host has that this one machine plays.
    let each = if has("between-hosts") { 1 } else { 2 };
    let between_hosts = has("between-hosts") || has("two-on-each-host");
    let host = format!("host{}", rank.parse::<usize>().unwrap() / each);
    let variable = move |name: &str| match name {
        "VIADUCT_MEET" => Some(address.clone()),
        "VIADUCT_RANK" => Some(rank.clone()),
        "VIADUCT_SIZE" => Some(size.clone()),
        "VIADUCT_TOKEN" => Some(token.clone()),
        "VIADUCT_HOST" if between_hosts => Some(host.clone()),
        "VIADUCT_NODE_NAME" => Some("127.0.0.1".into()),
        _ => extra.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone()),
    };
    if let Some(cpu) = variable("cpu") {
        cpu::pin(cpu.parse().unwrap()).expect("a CPU of ours");
    }
    let world = World::init(&variable, |job| {
        assert_eq!(job.is_on_one_host()?, !between_hosts);
        open_as(job, &variable)
    })
    .expect("a world");
    let run = SCENARIOS.iter().find(|(name, _)| *name == scenario).expect("a scenario").1;
    run(&world);
    world.finalize().expect("an orderly end");
});

/// The NIC of a rank.
pub(crate) fn open(job: &mut Job) -> Result<Nic, Box<dyn Error>> {
    open_as(job, &|_| None)
}

fn open_as(job: &mut Job, variable: &dyn Fn(&str) -> Option<String>) -> Result<Nic, Box<dyn Error>> {
    let mut config = Config::default();
    config.ofi.host = variable("VIADUCT_HOST");
    config.shm.memory_budget = variable("VIADUCT_SHM_MEMORY_BUDGET").map(|bytes| bytes.parse().unwrap());
    config.join(job)?;
    Ok(Nic::open(viaduct_providers::open(config.usual_provider(), &config)?)?)
}

/// Starts all ranks of a job. `settings` are variables with values.
pub(crate) fn start(scenario: &str, size: usize, settings: &[&str]) -> Vec<Child> {
    start_with(&arguments(scenario, size, settings))
}

/// Starts ranks with these arguments.
pub(crate) fn start_with(args: &[Vec<String>]) -> Vec<Child> {
    args.iter().map(|args| RANK.spawn(&args.iter().map(String::as_str).collect::<Vec<_>>())).collect()
}

/// What each rank of a job is started with.
pub(crate) fn arguments(scenario: &str, size: usize, settings: &[&str]) -> Vec<Vec<String>> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    // An address of this process alone, so that tests beside this one cannot be met.
    let (job, pid) = (JOBS.fetch_add(1, Ordering::Relaxed), process::id());
    let host = format!("127.{}.{}.{}", 64 + (pid >> 14 & 0x3f), pid >> 7 & 0x7f, 1 + (pid & 0x7f));
    let address = format!("{host}:{}", 20_000 + job);
    let token = "5a".repeat(32);
    let args = |rank: usize| {
        let fixed = [scenario.to_owned(), rank.to_string(), size.to_string(), address.clone(), token.clone()];
        fixed.into_iter().chain(settings.iter().map(|setting| (*setting).to_owned())).collect()
    };
    (0..size).map(args).collect()
}

/// A rank whose words to people are kept.
pub(crate) fn heard(args: &[String]) -> process::Child {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = RANK.command(&args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a job to its end.
pub(crate) fn run(scenario: &str, size: usize, settings: &[&str]) {
    let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job");
    for (rank, mut child) in start(scenario, size, settings).into_iter().enumerate() {
        let status = child.wait(LIMIT);
        assert!(status.success(), "rank {rank} of {size} in {scenario}: {status}");
    }
}

/// Numbers of ranks: these in a quick run, and all that count in a full one.
pub(crate) fn ranks(quick: &'static [usize]) -> &'static [usize] {
    if effort::full() { &[1, 2, 3, 4, 5, 8, 16] } else { quick }
}

/// Elements of a basic type in memory that lives long enough.
pub(crate) fn span<T>(memory: &mut [T], handle: u32) -> Span {
    let kind = Datatype::of_basic(basic::find(handle).expect("a basic type"));
    let count = size_of_val(memory) / kind.size();
    // SAFETY: tests wait for their requests before the memory goes.
    unsafe { Span::new(memory.as_mut_ptr().cast(), count, &kind) }
}

/// `MPI_INT`.
pub(crate) const INT: u32 = 0x4c00_0405;
/// `MPI_BYTE`.
pub(crate) const BYTE: u32 = 0x4c00_010d;
/// `MPI_DOUBLE`.
pub(crate) const DOUBLE: u32 = 0x4c00_080b;
