//! Faults of shared memory: no allocation on their way, whatever they ask for; and what a process says that ends in one.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use viaduct_cashmere::node::start::{Error, Role, Settings, start};
use viaduct_cashmere::statistics::Counter;
use viaduct_cashmere::variant::Variant;
use viaduct_cashmere::{Array, Dsm, Epoch, Placement};
use viaduct_faults::node::{Mode, Place};
use viaduct_job::{Job, Token};
use viaduct_kit::alloc::{CountingAlloc, allocations_during};
use viaduct_kit::child::{Child, Program, say};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fault::EngineKind;

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

const HANG: Duration = Duration::from_secs(60);
/// Pages of each kind that are touched in a round.
const PAGES: usize = 24;
/// Values in a page.
const PAGE: usize = 4096 / size_of::<u64>();

viaduct_kit::child!(COUNTS, counts);
viaduct_kit::child!(ALTERNATES, alternates);

/// A process of a run: folder, where ranks meet, token, rank, nodes, variant.
fn join(args: &[String], memory: usize, engine: Option<EngineKind>) -> Result<Option<Dsm>, Error> {
    let [folder, meet, token, rank, nodes, variant] = args else { panic!("{args:?}") };
    let nodes: usize = nodes.parse().expect("a number");
    let variable = |name: &str| match name {
        "VIADUCT_MEET" => Some(meet.clone()),
        "VIADUCT_TOKEN" => Some(token.clone()),
        "VIADUCT_RANK" => Some(rank.clone()),
        "VIADUCT_SIZE" => Some((2 * nodes).to_string()),
        _ => None,
    };
    let job = Job::join(&variable).expect("a job");
    let nic = Place { folder: folder.as_ref(), mode: Mode::Direct }.open();
    let variant: Variant = variant.parse().expect("a variant");
    let (homes_in, homes_out) = (None, None);
    let settings = Settings { nodes, workers: 1, variant, engine, memory, page: 4096, homes_in, homes_out };
    Ok(match start(job, nic, folder.as_ref(), &settings)? {
        Role::Server => None,
        Role::Worker(dsm) => Some(*dsm),
    })
}

/// Where a process writes its errors.
fn errors(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("errors-{rank}"))
}

/// Starts a server and a worker for each node.
fn run(program: &'static Program, folder: &TempDir, nodes: usize, variant: Variant) -> Vec<Child> {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let (meet, token) = (format!("127.0.0.1:{port}"), Token::random().secret_text());
    let (folder, count) = (folder.path().display().to_string(), nodes.to_string());
    let child = |rank: usize| {
        let words = [&folder, &meet, &token, &rank.to_string(), &count, variant.name()];
        let mut command = program.command(&words);
        command.stderr(File::create(errors(Path::new(&folder), rank)).expect("a file"));
        Child::start(program.name(), command)
    };
    (0..2 * nodes).map(child).collect()
}

fn load_all(epoch: &Epoch<'_>, array: Array<u64>) -> u64 {
    (0..PAGES).map(|page| epoch.read(array, page * PAGE..page * PAGE + 1)[0]).sum()
}

fn store_all(epoch: &Epoch<'_>, array: Array<u64>, value: u64) {
    (0..PAGES).for_each(|page| epoch.write(array, page * PAGE..page * PAGE + 1)[0] = value);
}

/// Touches pages in every way that makes a fault of its own; the worker of node 0 counts what it allocates meanwhile. The first
/// round makes what is made once.
fn counts(args: &[String]) {
    let Some(mut dsm) = join(args, 4 << 20, None).expect("a node") else { return };
    let mut phases: Vec<(&str, u64)> = Vec::with_capacity(64);
    for round in 0..2_u64 {
        let count = PAGES * PAGE;
        let [claimed, stored]: [Array<u64>; 2] = [(); 2].map(|()| dsm.array(count).expect("memory"));
        let [far, alone]: [Array<u64>; 2] =
            [(); 2].map(|()| dsm.placed(count, Placement::Node(1)).expect("memory"));
        let near: Array<u64> = dsm.placed(count, Placement::Node(0)).expect("memory");
        let counting = dsm.rank() == 0;
        let mut measure = |epoch: &Epoch<'_>, name: &'static str, act: &mut dyn FnMut(&Epoch<'_>)| {
            if counting {
                let allocations = allocations_during(|| act(epoch));
                if round > 0 {
                    phases.push((name, allocations));
                }
            }
        };
        let mut epoch = dsm.epoch();
        let mut value = 10 * round;
        measure(&epoch, "a first load", &mut |epoch| assert_eq!(load_all(epoch, claimed), 0));
        measure(&epoch, "a first store", &mut |epoch| store_all(epoch, stored, 1));
        measure(&epoch, "a store to a page that no other node uses", &mut |epoch| store_all(epoch, alone, 1));
        for _ in 0..2 {
            value += 1;
            // The other node changes its pages, and has pages of this one alone.
            if !counting {
                store_all(&epoch, far, value);
                store_all(&epoch, near, value);
            }
            epoch = epoch.barrier(0).expect("all nodes");
            let sum = value * PAGES as u64;
            measure(&epoch, "a load of what another node stored", &mut |epoch| {
                assert_eq!(load_all(epoch, far), sum);
            });
            measure(&epoch, "a load of a page taken back", &mut |epoch| {
                assert_eq!(load_all(epoch, near), sum)
            });
            measure(&epoch, "a store to a page that was loaded", &mut |epoch| store_all(epoch, far, 5));
            epoch = epoch.barrier(1).expect("all nodes");
            if !counting {
                assert_eq!(load_all(&epoch, far), 5 * PAGES as u64);
                store_all(&epoch, far, value);
            }
            epoch = epoch.barrier(0).expect("all nodes");
            measure(&epoch, "a store to a page that another node stored to", &mut |epoch| {
                store_all(epoch, far, 6);
            });
            epoch = epoch.barrier(1).expect("all nodes");
        }
        drop(epoch);
    }
    let counting = dsm.rank() == 0;
    let counts = dsm.finish().expect("all nodes");
    if counting {
        phases.iter().for_each(|(name, allocations)| say(format!("{allocations} {name}")));
        let counters = [
            Counter::ReadFaults,
            Counter::WriteFaults,
            Counter::PageTransfers,
            Counter::Twins,
            Counter::Exclusive,
        ];
        let counts: Vec<String> = counters.map(|counter| counts.get(counter).to_string()).into();
        say(format!("done {}", counts.join(" ")));
    }
}

#[test]
fn no_fault_allocates() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "faults that are counted");
    for variant in Variant::ALL {
        let folder = TempDir::new("faults");
        let mut children = run(&COUNTS, &folder, 2, variant);
        let mut phases = 0;
        loop {
            let line = children[1].next_line(HANG).unwrap_or_else(|| panic!("{variant}: the worker ended"));
            if let Some(counts) = line.strip_prefix("done ") {
                let counts: Vec<usize> =
                    counts.split(' ').map(|count| count.parse().expect("a count")).collect();
                // All that was to be counted has happened: loads, stores, transfers, twins, pages of one node alone.
                assert!(counts.iter().all(|count| *count >= PAGES), "{variant}: {counts:?}");
                break;
            }
            assert!(line.starts_with("0 "), "{variant}: allocations in {PAGES} faults: {line}");
            phases += 1;
        }
        assert_eq!(phases, 3 + 2 * 4, "{variant}");
        children.into_iter().for_each(|child| child.finish(HANG));
    }
}

/// Stores to every other page of more than there may be mappings, by mprotect.
fn alternates(args: &[String]) {
    const MANY: usize = 140_000;
    let Some(mut dsm) = join(args, MANY * 4096, Some(EngineKind::Mprotect)).expect("a node") else { return };
    let array: Array<u64> = dsm.array(MANY * PAGE).expect("memory");
    let epoch = dsm.epoch();
    (0..MANY).step_by(2).for_each(|page| epoch.write(array, page * PAGE..page * PAGE + 1)[0] = 1);
    say("this machine has no limit of mappings");
}

#[test]
fn a_process_without_mappings_says_so_and_ends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(200), "a process without mappings");
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("a limit");
    if limit.trim().parse::<usize>().expect("a number") > 65_530 {
        viaduct_kit::skip!("vm.max_map_count is above its default here");
    }
    let folder = TempDir::new("mappings");
    let mut children = run(&ALTERNATES, &folder, 1, Variant::NoneMg);
    assert_eq!(children[1].next_line(HANG), None, "it ends at a store");
    let status = children.remove(1).wait(HANG);
    let said = std::fs::read_to_string(errors(folder.path(), 1)).expect("what it said");
    assert_eq!(status.signal(), Some(6), "{status:?}: {said}");
    for word in ["viaduct dsm: page", "cannot be protected", "vm.max_map_count", "--engine uffd-sync"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}
