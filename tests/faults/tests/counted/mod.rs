//! What workers allocate in faults, and where they answer other nodes in the middle of one: nothing, from the first fault on.

use std::time::Duration;

use viaduct_cashmere::statistics::Counter;
use viaduct_cashmere::variant::Variant;
use viaduct_cashmere::{Array, Epoch, Placement};
use viaduct_kit::alloc::allocations_during;
use viaduct_kit::child::say;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

use super::{HANG, PAGE, PAGES, join, load_all, run, run_many, store_all};

viaduct_kit::child!(COUNTS, counts);
viaduct_kit::child!(COUNTS_AMONG_SIBLINGS, counts_among_siblings);

/// Touches pages in every way that makes a fault of its own; the worker of node 0 counts what it allocates meanwhile.
fn counts(args: &[String]) {
    let Some(mut dsm) = join(args, 4 << 20, None).expect("a node") else { return };
    let mut phases: Vec<(&str, u64)> = Vec::with_capacity(64);
    let count = PAGES * PAGE;
    let counting = dsm.rank() == 0;
    for round in 0..2_u64 {
        let [claimed, stored]: [Array<u64>; 2] = [(); 2].map(|()| dsm.array(count).expect("memory"));
        let [far, alone]: [Array<u64>; 2] =
            [(); 2].map(|()| dsm.placed(count, Placement::Node(1)).expect("memory"));
        let near: Array<u64> = dsm.placed(count, Placement::Node(0)).expect("memory");
        let mut measure = |epoch: &Epoch<'_>, name: &'static str, act: &mut dyn FnMut(&Epoch<'_>)| {
            if counting {
                phases.push((name, allocations_during(|| act(epoch))));
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
        assert_eq!(phases, 2 * (3 + 2 * 4), "{variant}");
        children.into_iter().for_each(|child| child.finish(HANG));
    }
}

/// Every worker of a node stores to a place of its own in each page.
fn store_mine(epoch: &Epoch<'_>, array: Array<u64>, value: u64) {
    let me = epoch.rank() % 2;
    (0..PAGES).for_each(|page| epoch.write(array, page * PAGE + me..page * PAGE + me + 1)[0] = value);
}

/// Two workers of a node touch pages together, and those of the other node touch pages of this one meanwhile; the first worker of
/// node 0 counts what it allocates.
fn counts_among_siblings(args: &[String]) {
    let Some(mut dsm) = join(args, 4 << 20, None).expect("a node") else { return };
    let count = PAGES * PAGE;
    let [near, far]: [Array<u64>; 2] =
        [0, 1].map(|node| dsm.placed(count, Placement::Node(node)).expect("memory"));
    let counting = dsm.rank() == 0;
    let (own, other) = if dsm.rank() < 2 { (near, far) } else { (far, near) };
    let mut epoch = dsm.epoch();
    let mut phases: Vec<(&str, u64)> = Vec::with_capacity(64);
    for round in 0..6_u64 {
        let mut measure = |epoch: &Epoch<'_>, name: &'static str, act: &mut dyn FnMut(&Epoch<'_>)| {
            let allocations = allocations_during(|| act(epoch));
            if counting {
                phases.push((name, allocations));
            }
        };
        let value = 100 + round;
        measure(&epoch, "stores by all", &mut |epoch| store_mine(epoch, own, value));
        epoch = epoch.barrier(0).expect("all nodes");
        let sum = value * PAGES as u64;
        measure(&epoch, "loads by all", &mut |epoch| assert_eq!(load_all(epoch, other), sum));
        epoch = epoch.barrier(1).expect("all nodes");
        measure(&epoch, "stores by all to what was loaded", &mut |epoch| store_mine(epoch, other, 2 * value));
        epoch = epoch.barrier(0).expect("all nodes");
        measure(&epoch, "loads by all of what came back", &mut |epoch| {
            assert_eq!(load_all(epoch, own), 2 * sum)
        });
        epoch = epoch.barrier(1).expect("all nodes");
    }
    drop(epoch);
    let counts = dsm.finish().expect("all nodes");
    if counting {
        phases.iter().for_each(|(name, allocations)| say(format!("{allocations} {name}")));
        let counters =
            [Counter::Coalesced, Counter::ServedByWorkers, Counter::ReadFaults, Counter::WriteFaults];
        say(format!("done {}", counters.map(|counter| counts.get(counter).to_string()).join(" ")));
    }
}

#[test]
fn no_fault_among_siblings_allocates() {
    let _watchdog = Watchdog::arm(Duration::from_secs(400), "faults of siblings that are counted");
    let mut sums = [0; 4];
    for variant in Variant::ALL {
        let folder = TempDir::new("siblings");
        let mut children = run_many(&COUNTS_AMONG_SIBLINGS, &folder, 2, 2, variant);
        let mut phases = 0;
        loop {
            let line = children[1].next_line(HANG).unwrap_or_else(|| panic!("{variant}: the worker ended"));
            if let Some(counts) = line.strip_prefix("done ") {
                for (sum, count) in sums.iter_mut().zip(counts.split(' ')) {
                    *sum += count.parse::<usize>().expect("a count");
                }
                break;
            }
            assert!(line.starts_with("0 "), "{variant}: allocations in {PAGES} faults: {line}");
            phases += 1;
        }
        assert_eq!(phases, 6 * 4, "{variant}");
        children.into_iter().for_each(|child| child.finish(HANG));
    }
    // Faults that waited for a sibling's, requests that workers answered, loads, stores.
    eprintln!("{sums:?}");
    assert!(sums.iter().all(|sum| *sum > 0), "{sums:?}");
}
