//! The operations of shared memory whose instructions `cargo xtask instructions` counts, under callgrind.
//!
//! An acquire that finds nothing costs the same whatever the node has cached: the counts of 16 MiB and of 1 GiB stand side by
//! side in `baselines.txt`.

use viaduct_cashmere::lone::Lone;
use viaduct_cashmere::variant::Variant;
use viaduct_cashmere::world::NodeDown;
use viaduct_via::Nic;

/// A name, the variant, and the bytes that are cached.
const OPERATIONS: &[(&str, Variant, usize)] = &[
    ("acquire-messages-16-mib", Variant::NoneMg, 16 << 20),
    ("acquire-messages-1-gib", Variant::NoneMg, 1 << 30),
    ("acquire-remote-writes-16-mib", Variant::Dms, 16 << 20),
    ("acquire-remote-writes-1-gib", Variant::Dms, 1 << 30),
];

#[inline(never)]
fn count_this_acquire(lone: &mut Lone) -> Result<(), NodeDown> {
    lone.acquire()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rounds] = arguments.as_slice() else {
        OPERATIONS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let operation = OPERATIONS.iter().find(|(known, ..)| known == name);
    let (_, variant, bytes) = *operation.expect("one of the operations that are printed without arguments");
    let rounds: u32 = rounds.parse().expect("a number of rounds");
    let provider = viaduct_providers::open("loopback", &Default::default()).expect("a provider");
    let mut lone = Lone::new(Nic::open(provider).expect("a NIC"), variant, bytes).expect("memory");
    assert_eq!(lone.cached(), bytes / 4096, "all pages are cached");
    (0..rounds).for_each(|_| count_this_acquire(&mut lone).expect("no node is gone"));
}
