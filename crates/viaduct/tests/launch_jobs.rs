//! What the ranks of a job have in common under `viaduct launch` and `mpiexec.hydra`: host, token, memory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use viaduct_job::Job;
use viaduct_kit::packages::{need_program, skip};
use viaduct_os::budget::Budget;
use viaduct_providers::Config;
use viaduct_via::Nic;

use crate::launching::{Folder, Lines, Run, command, finish, verb};

const NAME: &str = "VIADUCT_TEST_CHILD";

fn this_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// The example, which is built beside the program.
fn ring() -> Option<String> {
    let folder = Path::new(env!("CARGO_BIN_EXE_viaduct")).parent().unwrap();
    let path: PathBuf = folder.join("examples/ring");
    if !path.exists() {
        skip("the example `ring` was not built: cargo build -p viaduct --example ring");
        return None;
    }
    Some(path.to_str().unwrap().to_owned())
}

/// The program of the book, which is built beside this one with the tests of all packages.
fn ranks() -> Option<String> {
    let path = Path::new(env!("CARGO_BIN_EXE_viaduct")).with_file_name("ranks");
    if !path.exists() {
        skip("the example `ranks` was not built: cargo build -p viaduct-examples --bin ranks");
        return None;
    }
    Some(path.to_str().unwrap().to_owned())
}

fn hydra() -> Option<Command> {
    let mut command = Command::new(need_program("mpiexec.hydra", "mpich")?);
    for stray in ["VIADUCT_TOKEN", "VIADUCT_TOKEN_FILE", "PMI_FD"] {
        command.env_remove(stray);
    }
    Some(command)
}

fn has_libfabric() -> bool {
    viaduct_providers::ofi::find(&Config::default().ofi).is_ok_and(|found| !found.offers.is_empty())
}

fn lines(run: &Run) -> Vec<&str> {
    let mut lines: Vec<&str> = run.out.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_ring_goes_round_on_one_host_without_a_network() {
    let Some(ring) = ring() else { return };
    let folder = Folder::new();
    let whole = Budget::process().limit();
    let check = |run: Run, size: usize| {
        assert_eq!(run.status, 0, "{}", run.err);
        assert_eq!(lines(&run).len(), size, "{}", run.out);
        for (rank, line) in lines(&run).iter().enumerate() {
            assert!(line.starts_with(&format!("rank {rank} of {size}: sum ")), "{line}");
            assert!(line.contains(" over shm, no network, "), "{line}");
            assert!(
                line.ends_with(&format!(" budget {}", whole / size as u64)),
                "a share of {whole}: {line}"
            );
        }
    };
    check(finish(command(&folder, &["-n", "4", &ring])), 4);
    let mut alone = Command::new(&ring);
    alone.env("VIADUCT_RUNTIME_DIR", folder.path()).env_remove("PMI_FD");
    check(finish(alone), 1);
    let Some(mut hydra) = hydra() else { return };
    hydra.args(["-n", "3", &ring]).env("VIADUCT_RUNTIME_DIR", folder.path());
    check(finish(hydra), 3);
}

/// What the chapter on launching shows, as it says.
#[test]
fn the_ranks_of_the_book_send_blocks_to_each_other() {
    let Some(ranks) = ranks() else { return };
    let folder = Folder::new();
    for size in [1, 4] {
        let run = finish(command(&folder, &["-n", &size.to_string(), &ranks]));
        assert_eq!(run.status, 0, "{} {}", run.out, run.err);
        let said = |rank| format!("rank {rank} of {size}: {} blocks of 262144 bytes", size - 1);
        assert_eq!(lines(&run), (0..size).map(said).collect::<Vec<_>>());
    }
    if !has_libfabric() {
        return skip("libfabric is not here (Debian: libfabric1)");
    }
    // A host for each rank, played by one machine.
    let script = "VIADUCT_HOST=host$VIADUCT_RANK VIADUCT_NODE_NAME=127.0.0.1 exec \"$0\"";
    let run = finish(command(&folder, &["-n", "3", "sh", "-c", script, &ranks]));
    assert_eq!(run.status, 0, "{} {}", run.out, run.err);
    assert_eq!(lines(&run).len(), 3, "{}", run.out);
}

/// One machine plays a host for each rank. Hydra gives no token, so that the ranks have that of rank 0.
#[test]
fn the_ring_goes_round_between_hosts_with_the_token_of_rank_0() {
    let Some(ring) = ring() else { return };
    let Some(mut hydra) = hydra() else { return };
    if !has_libfabric() {
        return skip("libfabric is not here (Debian: libfabric1)");
    }
    let folder = Folder::new();
    hydra.args(["-n", "3", "sh", "-c", "VIADUCT_HOST=host$PMI_RANK exec \"$0\"", &ring]);
    hydra.env("VIADUCT_RUNTIME_DIR", folder.path()).env("VIADUCT_NODE_NAME", "127.0.0.1");
    let run = finish(hydra);
    assert_eq!(run.status, 0, "{} {}", run.out, run.err);
    assert_eq!(lines(&run).len(), 3, "{}", run.out);
    assert!(
        lines(&run).iter().all(|line| line.contains(" over ofi") && line.contains(", libfabric, ")),
        "{}",
        run.out
    );
}

// A rank that forms no job: whatever it listens at, its launcher has said that no other host takes part.
viaduct_kit::child!(LISTENER, |_| {
    let variable = |name: &str| std::env::var(name).ok();
    let config = Config::from_variables(variable).unwrap_or_else(|bad| panic!("{bad:?}"));
    let mut nic = Nic::open(viaduct_providers::open("auto", &config).unwrap()).unwrap();
    let name = format!("listener-{}", std::process::id());
    let _listener = nic.listen(&name.parse().unwrap(), 1).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let budget = Budget::process().limit();
    println!(
        "libfabric {}, network sockets {}, budget {budget}",
        maps.contains("libfabric"),
        network_sockets()
    );
});

/// How many sockets of this process are of the internet families.
fn network_sockets() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
    });
    let own: BTreeSet<String> = descriptors.collect();
    let count = |table: &str| {
        let text = std::fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        text.lines().skip(1).filter(|line| line.split_whitespace().any(|word| own.contains(word))).count()
    };
    ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"].map(count).iter().sum()
}

#[test]
fn a_launcher_on_one_host_keeps_listeners_off_the_network() {
    let folder = Folder::new();
    let run = |more: Option<(&str, &str)>| {
        let mut command = command(&folder, &["-n", "4", &this_program()]);
        command.env(NAME, LISTENER.name()).env_remove("VIADUCT_AUTO_LOCAL_ONLY").envs(more);
        finish(command)
    };
    let quiet = run(None);
    assert_eq!(quiet.status, 0, "{}", quiet.err);
    // Memory of the host is shared, although no rank asks for its job.
    let share = Budget::process().limit() / 4;
    let wanted = format!("libfabric false, network sockets 0, budget {share}");
    assert_eq!(lines(&quiet), [&wanted; 4], "{}", quiet.err);
    // The check can fail: a user that asks for the network has it, where libfabric is.
    let loud = run(Some(("VIADUCT_AUTO_LOCAL_ONLY", "off")));
    let can = has_libfabric();
    assert!(lines(&loud).iter().all(|line| line.starts_with(&format!("libfabric {can}"))), "{}", loud.out);
}

// A rank that opens a NIC, says so, and ends with its input.
viaduct_kit::child!(IDLER, |_| {
    let config =
        Config::from_variables(|name| std::env::var(name).ok()).unwrap_or_else(|bad| panic!("{bad:?}"));
    let _nic = Nic::open(viaduct_providers::open("shm", &config).unwrap()).unwrap();
    let _layer = viaduct_via::counters::LayerSlot::open("idling", &["naps"]).unwrap();
    println!("up");
    let _ = std::io::stdin().read_line(&mut String::new());
});

#[test]
fn stat_shows_job_rank_and_layer() {
    let folder = Folder::new();
    let mut command = command(&folder, &["-n", "2", "--stdin", "all", &this_program()]);
    command.env(NAME, IDLER.name()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = Lines::new(child.stdout.take().unwrap());
    assert_eq!((lines.next().as_deref(), lines.next().as_deref()), (Some("up"), Some("up")));
    let stat = |args: &[&str]| -> Vec<serde_json::Value> {
        let run = verb(&folder, &[&["stat", "--format", "json"], args].concat());
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let idle = stat(&[]).into_iter().find(|slot| slot["layer"] == "idling").expect("a slot of the layer");
    let job = idle["job"].as_str().expect("a job").to_owned();
    let mut seen: Vec<(u64, String)> = stat(&["--job", &job])
        .iter()
        .map(|slot| (slot["rank"].as_u64().unwrap(), slot["layer"].as_str().unwrap().to_owned()))
        .collect();
    seen.sort();
    let both = |rank| [(rank, "idling".to_owned()), (rank, "shm".to_owned())];
    assert_eq!(seen, [both(0), both(1)].concat());
    assert_eq!(idle["counters"]["naps"], 0);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

// A rank that shares memory with some of the others: pairs at the same time, then three of them, twice.
viaduct_kit::child!(SHARER, |_| {
    let mut job = Job::join(&|name| std::env::var(name).ok()).unwrap();
    let folder = PathBuf::from(std::env::var_os("VIADUCT_RUNTIME_DIR").unwrap());
    let rank = job.rank();
    assert_eq!(job.neighbours().unwrap(), [0, 1, 2, 3]);
    let mut share = |group: &[usize]| {
        let segment = job.share(group, 4096, Budget::process(), &folder).unwrap();
        // SAFETY: a zeroed page that only atomics of the ranks touch.
        let words = unsafe { &*segment.as_ptr().cast::<[AtomicU32; 64]>() };
        words[rank].store(100 + rank as u32, Ordering::Release);
        let there = || group.iter().all(|member| words[*member].load(Ordering::Acquire) != 0);
        while !there() {
            std::thread::sleep(Duration::from_millis(1));
        }
        words.iter().map(|word| word.load(Ordering::Acquire)).sum::<u32>()
    };
    let mut sums = vec![share(if rank.is_multiple_of(2) { &[2, 0] } else { &[1, 3] })];
    if rank != 2 {
        sums.extend([share(&[0, 1, 3]), share(&[0, 1, 3])]);
    }
    println!("rank {rank}: {sums:?}, token {:016x}", job.token().unwrap().name());
    job.finish().unwrap();
});

#[test]
fn any_group_of_ranks_shares_memory_and_all_have_one_token() {
    let folder = Folder::new();
    let check = |run: Run| {
        assert_eq!(run.status, 0, "{}", run.err);
        let lines = lines(&run);
        let expected = ["[202, 304, 304]", "[204, 304, 304]", "[202]", "[204, 304, 304]"];
        assert_eq!(lines.len(), 4, "{}", run.out);
        for (rank, (line, sums)) in lines.iter().zip(expected).enumerate() {
            assert!(line.starts_with(&format!("rank {rank}: {sums}, token ")), "{line}");
        }
        let token = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
        assert!(lines.iter().all(|line| token(line) == token(lines[0])), "{lines:?}");
        let left = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
        let left: Vec<_> =
            left.filter(|entry| entry.file_name().to_string_lossy().contains("segment")).collect();
        assert!(left.is_empty(), "{left:?}");
    };
    let mut ours = command(&folder, &["-n", "4", &this_program()]);
    ours.env(NAME, SHARER.name());
    check(finish(ours));
    let Some(mut hydra) = hydra() else { return };
    hydra.args(["-n", "4", &this_program()]).env(NAME, SHARER.name());
    hydra.env("VIADUCT_RUNTIME_DIR", folder.path());
    check(finish(hydra));
}
