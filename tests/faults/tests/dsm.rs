//! Nodes that share memory, one of whose processes is killed: at each named step of the protocol, seeded. Every other
//! process hears of it at its next synchronisation or fault, and nothing stays behind.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use viaduct_cashmere::node::start::{Error, Role, Settings, start};
use viaduct_cashmere::variant::Variant;
use viaduct_cashmere::{Array, Dsm};
use viaduct_faults::node::{Mode, Place};
use viaduct_job::{Job, Token};
use viaduct_kit::child::{Child, say};
use viaduct_kit::effort;
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::point::{self, Action};

/// A process hears of a death within this time from its next synchronisation or fault, on a machine that lets it run. Other
/// processes may keep it from the CPU for longer now and then: one survivor of ten.
const BOUND: Duration = Duration::from_secs(2);
/// What takes longer hangs: ten times the bound of the contract.
const HANG: Duration = Duration::from_secs(20);
/// How long a process may take to come to the point it dies at.
const PATIENCE: Duration = Duration::from_secs(3);
const NODES: usize = 2;
const WORKERS: usize = 2;
const GROUP: usize = WORKERS + 1;
/// Turns of a program that is recorded; one of whose processes is killed goes on for longer.
const TURNS: usize = 6;
const LONG: usize = 1_000_000;

viaduct_kit::child!(RANK, rank);

/// A process of the run: folder, where ranks meet, token, rank, variant, turns, and the point it dies at with its number.
fn rank(args: &[String]) {
    let [folder, meet, token, rank, variant, turns, point, nth] = args else { panic!("{args:?}") };
    let variable = |name: &str| match name {
        "VIADUCT_MEET" => Some(meet.clone()),
        "VIADUCT_TOKEN" => Some(token.clone()),
        "VIADUCT_RANK" => Some(rank.clone()),
        "VIADUCT_SIZE" => Some((NODES * GROUP).to_string()),
        _ => None,
    };
    let job = Job::join(&variable).expect("a job");
    let nic = Place { folder: folder.as_ref(), mode: Mode::Direct }.open();
    let variant: Variant = variant.parse().expect("a variant");
    let settings = Settings {
        nodes: NODES,
        workers: WORKERS,
        variant,
        engine: None,
        memory: 1 << 20,
        page: 4096,
        homes_in: None,
        homes_out: None,
    };
    match point.is_empty() {
        true => point::record(),
        false => point::arm(point, nth.parse().expect("a number"), Action::Kill),
    }
    let ended = match start(job, nic, folder.as_ref(), &settings) {
        Ok(Role::Server) => Ok(()),
        Ok(Role::Worker(dsm)) => program(*dsm, turns.parse().expect("a number")),
        Err(error) => Err(error),
    };
    let seen = point::seen();
    point::disarm();
    match ended {
        Ok(()) => {
            let points: Vec<String> = seen
                .iter()
                .filter(|(name, _)| name.starts_with("dsm."))
                .map(|(name, count)| format!("{name}={count}"))
                .collect();
            say(format!("done {}", points.join(" ")));
        }
        Err(Error::Down(down)) => {
            // A server is in no call.
            let entered = *ENTERED.lock().expect("a time");
            let took = entered.map_or(0, |entered| entered.elapsed().as_millis());
            say(format!("down {} {took}", down.0.0));
        }
        Err(other) => say(format!("failed {other}")),
    }
}

/// When this process began its last synchronisation, or what comes before it in the epoch.
static ENTERED: Mutex<Option<Instant>> = Mutex::new(None);

fn enter() {
    *ENTERED.lock().expect("a time") = Some(Instant::now());
}

/// Pages that all nodes write, counters under locks, barriers and flags.
fn program(mut dsm: Dsm, turns: usize) -> Result<(), Error> {
    let shared: Array<u64> = dsm.array(4096)?;
    let (me, all) = (dsm.rank(), dsm.size());
    let mut epoch = dsm.epoch();
    for turn in 0..turns {
        for page in 0..4 {
            epoch.write(shared, page * 512 + me..page * 512 + me + 1)[0] = turn as u64 + 1;
        }
        enter();
        epoch.locked(1, |epoch| {
            let value = epoch.read(shared, 4000..4001)[0];
            epoch.write(shared, 4000..4001)[0] = value + 1;
            enter();
        })?;
        enter();
        epoch = epoch.barrier(0)?;
        for page in 0..4 {
            assert_eq!(epoch.read(shared, page * 512..page * 512 + all).to_vec(), vec![turn as u64 + 1; all]);
        }
        enter();
        if turn < 100 {
            epoch = match me == turn % all {
                true => epoch.set_flag(100 + turn as u32)?,
                false => epoch.wait_flag(100 + turn as u32)?,
            };
        }
        enter();
        epoch = epoch.barrier(1)?;
    }
    drop(epoch);
    enter();
    dsm.finish().map(drop)
}

/// A process of a run, and what it writes to its standard error.
struct Started {
    child: Child,
    errors: File,
}

impl Started {
    fn said(&self) -> String {
        let mut bytes = vec![0; 4096];
        let len = self.errors.read_at(&mut bytes, 0).expect("what it said");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

/// Starts all processes; `victim` dies at a point.
fn run(folder: &TempDir, variant: Variant, turns: usize, victim: Option<(usize, &str, u64)>) -> Vec<Started> {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let (meet, token) = (format!("127.0.0.1:{port}"), Token::random().secret_text());
    let child = |rank: usize| {
        let (point, nth) = match victim {
            Some((number, point, nth)) if number == rank => (point, nth),
            _ => ("", 0),
        };
        let folder = folder.path().display().to_string();
        let (rank, turns, nth) = (rank.to_string(), turns.to_string(), nth.to_string());
        let words = [&folder, &meet, &token, &rank, variant.name(), &turns, point, &nth];
        let errors = File::from(memfd_create("errors", MemfdFlags::CLOEXEC).expect("memory"));
        let mut command = RANK.command(&words);
        command.stderr(errors.try_clone().expect("a descriptor"));
        Started { child: Child::start(RANK.name(), command), errors }
    };
    (0..NODES * GROUP).map(child).collect()
}

/// The points that each process passes in a run without a death.
fn record(folder: &TempDir, variant: Variant) -> Vec<Vec<(String, u64)>> {
    let points = |Started { mut child, .. }: Started| {
        let line = child.expect_line("done", HANG);
        child.finish(HANG);
        let words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.map(|(name, count)| (name.to_owned(), count.parse().expect("a count"))).collect()
    };
    run(folder, variant, TURNS, None).into_iter().map(points).collect()
}

/// Kills a process and sees the others end. Gives how long each worker among them took from its last call on, and whether the
/// process came to the point it was to die at.
fn outlive(folder: &TempDir, variant: Variant, victim: (usize, &str, u64)) -> (Vec<Duration>, bool) {
    let what = format!("{variant}, rank {} dies at {} {}", victim.0, victim.1, victim.2);
    let mut children = run(folder, variant, LONG, Some(victim));
    let mut dead = children.remove(victim.0).child;
    // A process may pass a point more seldom than in the recorded run, as other processes do its work: then it dies anywhere.
    let patience = Instant::now() + effort::scaled(PATIENCE);
    while dead.is_running() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    let came = !dead.is_running();
    if !came {
        dead.kill();
    }
    let status = dead.wait(HANG);
    assert_eq!(status.signal(), Some(9), "{what}: {status:?}");
    let killed = Instant::now();
    let bound = effort::scaled(HANG);
    let mut times = Vec::new();
    let ranks = (0..NODES * GROUP).filter(|rank| *rank != victim.0);
    for (place, mut survivor) in ranks.zip(children) {
        let line = survivor.child.next_line(HANG);
        let status = survivor.child.wait(HANG);
        let took = match line {
            // The first loss that a node hears of may be that of a node which gave up before.
            Some(line) => {
                let words: Vec<&str> = line.split(' ').collect();
                let ["down", _, took] = words[..] else { panic!("{what}, survivor {place}: {line}") };
                Duration::from_millis(took.parse().expect("a number"))
            }
            // A page could not be had: the process says so and ends.
            None => {
                let said = survivor.said();
                assert_eq!(status.signal(), Some(6), "{what}, survivor {place}: {status:?}: {said}");
                let why = said.contains("is gone") && said.contains("a page of shared memory cannot be had");
                assert!(why, "{what}, survivor {place}: {said}");
                // It says nothing of when the fault was: not before the death.
                killed.elapsed()
            }
        };
        assert!(took <= bound, "{what}, survivor {place} heard of it after {took:?}, more than {bound:?}");
        // A server is in no call whose time there is.
        if place % GROUP != 0 {
            times.push(took);
        }
    }
    (times, came)
}

viaduct_kit::isolated! { limit 3_600;
    fn every_process_hears_of_the_death_of_another_at_any_step() {
        let _watchdog = Watchdog::arm(Duration::from_secs(3_000), "nodes with a dead process");
        let folder = TempDir::new("dsm");
        drop(Place { folder: folder.path(), mode: Mode::Direct }.open());
        let leaks = LeakCheck::start_with_folders([folder.path()]).adopt_orphans();
        let (mut times, mut kills, mut came, mut turn) = (Vec::new(), 0, 0, 0_u64);
        for variant in Variant::ALL {
            let points = record(&folder, variant);
            // Node 0 is the barriers' master: its server and a worker, then those of node 1.
            for victim in [0, 1, GROUP, GROUP + 2] {
                for (point, count) in &points[victim] {
                    turn += 1;
                    // Each point of each kind of process in a full run, else every fifth.
                    if !effort::full() && !turn.is_multiple_of(5) {
                        continue;
                    }
                    let nth = 1 + turn * 7_919 % count;
                    let (took, at_point) = outlive(&folder, variant, (victim, point, nth));
                    times.extend(took);
                    kills += 1;
                    came += usize::from(at_point);
                }
            }
        }
        drop(Place { folder: folder.path(), mode: Mode::Direct }.open());
        leaks.finish();
        assert!(kills >= 8 && 2 * came >= kills, "{kills} kills, {came} of them at their point");
        times.sort_unstable();
        let (usual, slowest) = (times[times.len() / 2], times[times.len() - 1]);
        let bound = effort::scaled(BOUND);
        let late = times.iter().filter(|took| **took > bound).count();
        let said = format!(
            "{kills} kills, {came} at their point; {late} of {} surviving workers heard of it after more than {bound:?}, the \
             slowest after {slowest:?}, the usual one after {usual:?}",
            times.len()
        );
        eprintln!("{said}");
        // A full run has the machine for itself; in any other run no time but that of a hang fails a test.
        assert!(!effort::full() || 10 * late <= times.len(), "{said}");
    }
}
