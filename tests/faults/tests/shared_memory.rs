//! Shared memory between nodes, looked at from below: no allocation on the way of a fault, no operation on remote memory in variants
//! by message, bins that are full, and what a process says that ends in a fault.

use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use viaduct_cashmere::node::start::{Error, Role, Settings, start};
use viaduct_cashmere::statistics::Counter;
use viaduct_cashmere::variant::{Variant, Way};
use viaduct_cashmere::{Array, Dsm, Epoch, Placement};
use viaduct_faults::node::{Mode, config};
use viaduct_job::{Job, Token};
use viaduct_kit::alloc::CountingAlloc;
use viaduct_kit::child::{Child, Program, say};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::fault::EngineKind;
use viaduct_via::hooks::{Hook, Hooked, Verdict};
use viaduct_via::{Nic, WaitConfig, Work};

mod counted;

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

const HANG: Duration = Duration::from_secs(60);
/// Pages of each kind that are touched in a round.
const PAGES: usize = 24;
/// Values in a page.
const PAGE: usize = 4096 / size_of::<u64>();

viaduct_kit::child!(ALTERNATES, alternates);
viaduct_kit::child!(ALTERNATES_BY_UFFD, alternates_by_uffd);
viaduct_kit::child!(IS_SILENT, is_silent);
viaduct_kit::child!(GOES_BY_ROW, goes_by_row);
viaduct_kit::child!(LENDS, lends);
viaduct_kit::child!(LOSES_ITS_HOME, loses_its_home);
viaduct_kit::child!(LACKS_FRAMES, lacks_frames);
viaduct_kit::child!(LACKS_TWINS, lacks_twins);
viaduct_kit::child!(LACKS_WINDOW, lacks_window);

/// Counts operations on the memory of others, as they are handed to the provider.
#[derive(Default)]
struct Remote(AtomicU64);

impl Hook for Remote {
    fn submit(&self, work: &Work, _: u32) -> Verdict {
        self.0.fetch_add(u64::from(work.op.is_rdma()), Ordering::Relaxed);
        Verdict::Pass
    }

    fn submit_inline(&self, _: &[u8]) -> Verdict {
        Verdict::Pass
    }

    fn write_inline(&self, _: &[u8]) -> Verdict {
        self.0.fetch_add(1, Ordering::Relaxed);
        Verdict::Pass
    }
}

/// A process of a run: folder, where ranks meet, token, rank, nodes, workers of each, variant.
fn join(args: &[String], memory: usize, engine: Option<EngineKind>) -> Result<Option<Dsm>, Error> {
    join_watched(args, memory, engine, Arc::default())
}

/// A process of a run, with a hook that sees what goes through the NIC.
fn join_watched(
    args: &[String],
    memory: usize,
    engine: Option<EngineKind>,
    hook: Arc<Remote>,
) -> Result<Option<Dsm>, Error> {
    let [folder, meet, token, rank, nodes, workers, variant] = args else { panic!("{args:?}") };
    let [nodes, workers]: [usize; 2] = [nodes, workers].map(|count| count.parse().expect("a number"));
    let variable = |name: &str| match name {
        "VIADUCT_MEET" => Some(meet.clone()),
        "VIADUCT_TOKEN" => Some(token.clone()),
        "VIADUCT_RANK" => Some(rank.clone()),
        "VIADUCT_SIZE" => Some((nodes * (1 + workers)).to_string()),
        _ => None,
    };
    let job = Job::join(&variable).expect("a job");
    let provider =
        viaduct_providers::open("shm", &config(folder.as_ref(), Mode::Direct)).expect("a provider");
    let nic = Nic::open_with(Hooked::new(provider, hook), WaitConfig::default()).expect("a NIC");
    let variant: Variant = variant.parse().expect("a variant");
    let (homes_in, homes_out) = (None, None);
    let settings = Settings { nodes, workers, variant, engine, memory, page: 4096, homes_in, homes_out };
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
    run_many(program, folder, nodes, 1, variant)
}

/// Starts a server and workers for each node.
fn run_many(
    program: &'static Program,
    folder: &TempDir,
    nodes: usize,
    workers: usize,
    variant: Variant,
) -> Vec<Child> {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let (meet, token) = (format!("127.0.0.1:{port}"), Token::random().secret_text());
    let (folder, [count, each]) =
        (folder.path().display().to_string(), [nodes, workers].map(|count| count.to_string()));
    let child = |rank: usize| {
        let words = [&folder, &meet, &token, &rank.to_string(), &count, &each, variant.name()];
        let mut command = program.command(&words);
        command.stderr(File::create(errors(Path::new(&folder), rank)).expect("a file"));
        Child::start(program.name(), command)
    };
    (0..nodes * (1 + workers)).map(child).collect()
}

fn load_all(epoch: &Epoch<'_>, array: Array<u64>) -> u64 {
    (0..PAGES).map(|page| epoch.read(array, page * PAGE..page * PAGE + 1)[0]).sum()
}

fn store_all(epoch: &Epoch<'_>, array: Array<u64>, value: u64) {
    (0..PAGES).for_each(|page| epoch.write(array, page * PAGE..page * PAGE + 1)[0] = value);
}

/// The worker of node 1 waits for a flag and takes no notices, of which the other one makes more than a bin has room for; then it
/// loads. Twice, with a barrier between that has few notices.
fn is_silent(args: &[String]) {
    // 256 pages: a bin has room for 1,024 notices.
    const TURNS: u64 = 100;
    let Some(mut dsm) = join(args, 1 << 20, None).expect("a node") else { return };
    let array: Array<u64> = dsm.placed(PAGES * PAGE, Placement::Node(0)).expect("memory");
    let [untouched, late]: [Array<u64>; 2] =
        [(); 2].map(|()| dsm.placed(PAGES * PAGE, Placement::Node(0)).expect("memory"));
    let stores = dsm.rank() == 0;
    let mut epoch = dsm.epoch();
    for (flag, turn) in [(0, 0), (1, TURNS)] {
        epoch = epoch.barrier(0).expect("all nodes");
        // Node 1 has all pages, and says so by a flag, which takes no notices.
        assert_eq!(load_all(&epoch, array) + load_all(&epoch, untouched), turn * PAGES as u64);
        assert_eq!(load_all(&epoch, late), turn * PAGES as u64);
        if stores {
            epoch = epoch.wait_flag(flag + 10).expect("all nodes");
            for value in turn + 1..=turn + TURNS {
                epoch.locked(1, |epoch| store_all(epoch, array, value)).expect("all nodes");
            }
            // Pages of which the bin, which is full by now, has no notice.
            store_all(&epoch, late, turn + TURNS);
            epoch = epoch.set_flag(flag).expect("all nodes");
        } else {
            epoch = epoch.set_flag(flag + 10).and_then(|epoch| epoch.wait_flag(flag)).expect("all nodes");
            assert_eq!(load_all(&epoch, array), (turn + TURNS) * PAGES as u64, "after the flag");
            assert_eq!(load_all(&epoch, untouched), 0);
            assert_eq!(load_all(&epoch, late), (turn + TURNS) * PAGES as u64, "pages without a notice");
        }
        for value in [1, 2, turn + TURNS] {
            epoch = epoch.barrier(1).expect("all nodes");
            if stores {
                store_all(&epoch, array, value);
            }
            epoch = epoch.barrier(0).expect("all nodes");
            assert_eq!(load_all(&epoch, array), value * PAGES as u64, "after a barrier");
        }
        epoch = epoch.barrier(1).expect("all nodes");
    }
    drop(epoch);
    let counts = dsm.finish().expect("all nodes");
    say(format!("spills {} notices {}", counts.get(Counter::Spills), counts.get(Counter::Notices)));
}

#[test]
fn a_node_that_takes_no_notices_for_long_misses_none() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "bins that are full");
    for variant in Variant::ALL {
        let folder = TempDir::new("silent");
        let mut children = run(&IS_SILENT, &folder, 2, variant);
        let line = children[1].expect_line("spills", HANG);
        children.remove(3).finish(HANG);
        children.into_iter().for_each(|child| child.finish(HANG));
        // By message a node's bin has room for all pages, each once.
        let spilled = !line.trim_start().starts_with("0 ");
        assert_eq!(spilled, variant.metadata() == Way::Direct, "{variant}: {line}");
    }
}

/// Pages that both nodes store to, a lock, barriers and flags; says what went through the NIC as an operation on remote memory.
fn goes_by_row(args: &[String]) {
    let remote = Arc::new(Remote::default());
    let dsm = join_watched(args, 1 << 20, None, remote.clone()).expect("a node");
    let counts = dsm.map(|mut dsm| {
        let array: Array<u64> = dsm.array((PAGES + 1) * PAGE).expect("memory");
        let (me, last) = (dsm.rank(), PAGES * PAGE);
        let mut epoch = dsm.epoch();
        for turn in 1..=5_u64 {
            (0..PAGES).for_each(|page| epoch.write(array, page * PAGE + me..page * PAGE + me + 1)[0] = turn);
            epoch.locked(1, |epoch| epoch.write(array, last..last + 1)[0] += 1).expect("all nodes");
            let flag = turn as u32;
            epoch = match me {
                0 => epoch.set_flag(flag),
                _ => epoch.wait_flag(flag),
            }
            .expect("all nodes");
            epoch = epoch.barrier(0).expect("all nodes");
            let found = (0..PAGES).map(|page| epoch.read(array, page * PAGE..page * PAGE + 2).to_vec());
            found.for_each(|found| assert_eq!(found, [turn, turn]));
            assert_eq!(epoch.read(array, last..last + 1)[0], 2 * turn);
            epoch = epoch.barrier(1).expect("all nodes");
        }
        drop(epoch);
        let counts = dsm.finish().expect("all nodes");
        [Counter::DataWrites, Counter::MetaWrites, Counter::SyncWrites]
            .map(|area| counts.get(area))
            .iter()
            .sum()
    });
    let counted: u64 = counts.unwrap_or_default();
    say(format!("remote {} {counted}", remote.0.load(Ordering::Relaxed)));
}

#[test]
fn variants_by_message_do_nothing_to_remote_memory_at_the_nic() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "operations at the NIC");
    for variant in Variant::ALL {
        let folder = TempDir::new("row");
        let (mut at_nic, mut counted) = (0, 0);
        for mut child in run(&GOES_BY_ROW, &folder, 2, variant) {
            let line = child.expect_line("remote", HANG);
            let words: Vec<u64> =
                line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
            at_nic += words[0];
            // Every worker knows the counts of all.
            counted = counted.max(words[1]);
            child.finish(HANG);
        }
        if variant.metadata() == Way::Direct {
            assert!(counted > 0 && at_nic >= counted, "{variant}: {at_nic} at the NICs, {counted} counted");
        } else {
            assert_eq!((at_nic, counted), (0, 0), "{variant}");
        }
    }
}

/// Stores to every other page of more than there may be mappings, by mprotect.
fn alternates(args: &[String]) {
    if alternate(args, EngineKind::Mprotect) {
        say("this machine has no limit of mappings");
    }
}

/// As `alternates`, by userfaultfd, which takes no mappings.
fn alternates_by_uffd(args: &[String]) {
    if alternate(args, EngineKind::Uffd) {
        say("all stored");
    }
}

/// Stores to every other page; false at a server.
fn alternate(args: &[String], engine: EngineKind) -> bool {
    const MANY: usize = 140_000;
    let Some(mut dsm) = join(args, MANY * 4096, Some(engine)).expect("a node") else { return false };
    let array: Array<u64> = dsm.array(MANY * PAGE).expect("memory");
    let mut epoch = dsm.epoch();
    let pages = || (0..MANY).step_by(2);
    pages().for_each(|page| epoch.write(array, page * PAGE..page * PAGE + 1)[0] = page as u64);
    epoch = epoch.barrier(0).expect("all nodes");
    pages().for_each(|page| assert_eq!(epoch.read(array, page * PAGE..page * PAGE + 1)[0], page as u64));
    drop(epoch);
    dsm.finish().expect("all nodes");
    true
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
    let words = ["viaduct dsm: page", "cannot be protected", "vm.max_map_count", "--engine uffd-sync"];
    ends_with(children.remove(1), folder.path(), &words);
}

#[test]
fn a_worker_by_userfaultfd_has_more_alternating_pages_than_there_may_be_mappings() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "alternating pages");
    if let Some(why) = viaduct_kit::userfaultfd::lacks() {
        viaduct_kit::skip!("{why}");
    }
    let folder = TempDir::new("alternating");
    let mut children = run(&ALTERNATES_BY_UFFD, &folder, 1, Variant::NoneMg);
    children[1].expect_line("all stored", 2 * HANG);
    children.into_iter().for_each(|child| child.finish(HANG));
}

/// Stores on a thread of its own: first where the worker has stored before, then where it has not.
fn lends(args: &[String]) {
    let Some(mut dsm) = join(args, 1 << 20, None).expect("a node") else { return };
    let array: Array<u64> = dsm.array(2 * PAGE).expect("memory");
    let epoch = dsm.epoch();
    let mut values = epoch.write(array, 0..2 * PAGE);
    values[0] = 1;
    let values: &mut [u64] = &mut values;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            values[1] = values[0] + 1;
            say(format!("stored {}", values[1]));
            values[PAGE] = 3;
            say("stored where no page is mapped");
        });
    });
}

#[test]
fn another_thread_that_touches_a_page_ends_the_worker_with_a_word() {
    let _watchdog = Watchdog::arm(Duration::from_secs(200), "a thread that is not the worker's");
    let folder = TempDir::new("lends");
    let mut children = run(&LENDS, &folder, 1, Variant::NoneMg);
    children[1].expect_line("stored 2", HANG);
    assert_eq!(children[1].next_line(HANG), None, "it ends at the store");
    ends_with(children.remove(1), folder.path(), &["a thread other than the worker's", "hint", "--procs"]);
}

/// What the program and its subscriber both take.
static LOG: Mutex<()> = Mutex::new(());

/// Takes a lock for each line.
struct Locks;

impl Subscriber for Locks {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        drop(LOG.lock().expect("the lock of the log"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Loads from a node that is dead by then, in the middle of what the lock of the log guards.
fn loses_its_home(args: &[String]) {
    tracing::subscriber::set_global_default(Locks).expect("the only subscriber");
    let Some(mut dsm) = join(args, 1 << 20, None).expect("a node") else { return };
    let array: Array<u64> = dsm.placed(PAGE, Placement::Node(1)).expect("memory");
    let waits = dsm.rank() == 0;
    let epoch = dsm.epoch().barrier(0).expect("all nodes");
    let _log = waits.then(|| LOG.lock().expect("the lock of the log"));
    say("ready");
    let dead = Path::new(&args[0]).join("dead");
    while !dead.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    say(format!("loaded {}", epoch.read(array, 0..1)[0]));
}

#[test]
fn a_fault_whose_home_is_dead_logs_nothing_and_says_why() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "a load from a dead node");
    for variant in Variant::ALL {
        let folder = TempDir::new("dead");
        let mut children = run(&LOSES_ITS_HOME, &folder, 2, variant);
        for worker in [1, 3] {
            children[worker].expect_line("ready", HANG);
        }
        // This node's server says nothing of it: the worker finds it by itself.
        for rank in [0, 3, 2] {
            children[rank].kill();
            children[rank].wait(HANG);
        }
        File::create(folder.path().join("dead")).expect("a file");
        assert_eq!(children[1].next_line(HANG), None, "{variant}: it ends at the load");
        ends_with(children.remove(1), folder.path(), &["is gone", "a page of shared memory cannot be had"]);
    }
}

/// A mapping of this process: its place and the number of its file.
fn mappings() -> Vec<(Range<usize>, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    let mapping = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-')?;
        let number = |word| usize::from_str_radix(word, 16).ok();
        Some((number(start)?..number(end)?, words[4].to_owned()))
    };
    maps.lines().filter_map(mapping).collect()
}

/// Puts a file without bytes in the place of a mapping: a touch is then a SIGBUS, as it is without memory.
fn empty(place: &Range<usize>, protection: libc::c_int) {
    let file = memfd_create("empty", MemfdFlags::CLOEXEC).expect("a file");
    let (at, flags) = (place.start as *mut libc::c_void, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: takes the place of a mapping that the library has for shared memory; what it touches there ends the process.
    let mapped = unsafe { libc::mmap(at, place.len(), protection, flags, file.as_raw_fd(), 0) };
    assert_eq!(mapped, at, "{}", std::io::Error::last_os_error());
}

/// The worker of node 0 has a page of the other node, then loses its frames, its twins or its window, and stores.
fn lacks(args: &[String], engine: Option<EngineKind>, what: &str) {
    const MEMORY: usize = 1 << 20;
    let Some(mut dsm) = join(args, MEMORY, engine).expect("a node") else { return };
    let array: Array<u64> = dsm.placed(2 * PAGE, Placement::Node(1)).expect("memory");
    let stores = dsm.rank() == 0;
    let mut epoch = dsm.epoch();
    assert_eq!(epoch.read(array, 0..1)[0], 0);
    epoch = epoch.barrier(0).expect("all nodes");
    if stores {
        let start = epoch.read(array, 0..0).as_ptr() as usize / MEMORY * MEMORY;
        let all = mappings();
        let (_, frames) = all.iter().find(|(place, _)| place.start == start).expect("the window");
        // Frames and twins are as long, and of different files.
        let mut aliases = all.iter().filter(|(place, _)| place.len() == MEMORY && place.start != start);
        match what {
            "window" => empty(&(start + 4096..start + 8192), libc::PROT_NONE),
            _ => {
                let alias = aliases.find(|(_, file)| (file == frames) == (what == "frames"));
                empty(&alias.expect("a mapping of the library's").0, libc::PROT_READ | libc::PROT_WRITE);
            }
        }
        // The first page is here, the second was never touched.
        let value = if what == "twins" { 0 } else { PAGE };
        epoch.write(array, value..value + 1)[0] = 1;
        say("stored");
    }
    drop(epoch.barrier(0));
}

fn lacks_frames(args: &[String]) {
    lacks(args, None, "frames");
}

fn lacks_twins(args: &[String]) {
    lacks(args, None, "twins");
}

fn lacks_window(args: &[String]) {
    lacks(args, Some(EngineKind::Mprotect), "window");
}

#[test]
fn a_process_without_memory_says_so_and_ends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "a process without memory");
    for program in [&LACKS_FRAMES, &LACKS_TWINS, &LACKS_WINDOW] {
        let folder = TempDir::new("lacks");
        // Homes stay where they are: there are twins.
        let mut children = run(program, &folder, 2, Variant::None);
        assert_eq!(children[1].next_line(HANG), None, "{}: it ends at the store", program.name());
        ends_with(children.remove(1), folder.path(), &["no memory is left for a page", "hint", "touch less"]);
    }
}

/// A worker of rank 1 that ends in a fault, with these words.
fn ends_with(mut worker: Child, folder: &Path, words: &[&str]) {
    let status = worker.wait(HANG);
    let said = std::fs::read_to_string(errors(folder, 1)).expect("what it said");
    assert_eq!(status.signal(), Some(6), "{status:?}: {said}");
    for word in words.iter().chain(&["viaduct dsm: "]) {
        assert!(said.contains(word), "{word}: {said}");
    }
}
