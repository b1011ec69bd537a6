//! Very many connections that are open and idle: megabytes, a few descriptors, no time.
//!
//! The item 5. Both ends are in this process, so each connection is counted twice.

use crate::world;

use std::io::{Read, Write};
use std::time::Duration;

use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::watchdog::Watchdog;
use viaduct_sovia::{Config, Stream};
use world::{World, patient};

/// Memory of its own and of shared segments, in bytes.
fn memory() -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let pss = smaps.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    pss.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() << 10
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Time that all threads have run, in clock ticks of the kernel.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

viaduct_kit::isolated! {
    fn many_idle_connections_cost_little() {
        let count = rounds(1_000, 10_000) as usize;
        let _watchdog = Watchdog::arm(Duration::from_secs(300), "idle connections");
        let world = World::new("shm");
        let config = Config { exit_limit: Duration::from_millis(10), ..patient(&Config::default()) };
        let (server, client) = (world.open(&config), world.open(&config));
        let listener = server.listen("idle", 64).unwrap();
        let (memory_before, descriptors_before) = (memory(), descriptors());
        let mut pairs: Vec<(Stream, Stream)> = Vec::with_capacity(count);
        for _ in 0..count {
            let one = client.connect_timeout("idle", scaled(Duration::from_secs(60))).unwrap();
            pairs.push((one, listener.accept_timeout(scaled(Duration::from_secs(60))).unwrap()));
        }
        let each = memory().saturating_sub(memory_before) / count;
        let used = descriptors() - descriptors_before;
        eprintln!("{count} connections: {each} bytes each for both ends, {used} descriptors");
        // The first have their rings already; what the others have fits into a few pages.
        let first = 2 * Config::default().ring_memory / count;
        assert!(each < first + (64 << 10), "{each} bytes for each connection");
        assert!(descriptors() < 1024 - 64, "{} descriptors, of 1024 that a process has by default", descriptors());

        // Nothing runs while no stream is used. Others may have taken the CPU, but that does not count here.
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        let ran = ticks() - before;
        assert!(ran <= 3, "{ran} ticks of a hundredth second in a second of nothing");

        // The last one is as good as the first: more than fits into a message, there and back.
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i / 3) as u8).collect();
        for at in [0, count / 2, count - 1] {
            let (one, other) = &mut pairs[at];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut got = vec![0; bytes.len()];
                    other.read_exact(&mut got).unwrap();
                    other.write_all(&got).unwrap();
                    other.flush().unwrap();
                });
                one.write_all(&bytes).unwrap();
                one.flush().unwrap();
                let mut back = vec![0; bytes.len()];
                one.read_exact(&mut back).unwrap();
                assert!(back == bytes, "connection {at}");
            });
        }
    }
}
