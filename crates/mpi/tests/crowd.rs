//! Ranks know whether they are more than the CPUs that they may run on, which may be fewer than the machine has.

use viaduct_kit::child::say;
use viaduct_kit::effort;
use viaduct_kit::packages::skip;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::world::World;
use viaduct_os::cpu;

use crate::ranks::{LIMIT, arguments, start_with};

#[test]
fn ranks_are_a_crowd_by_the_cpus_that_they_may_use() {
    let cpus = cpu::allowed();
    if cpu::machine() < 2 || cpus.len() < 2 {
        return skip("two CPUs are needed");
    }
    for (second, crowded) in [(cpus[0], true), (cpus[1], false)] {
        let _watch = Watchdog::arm(effort::scaled(LIMIT), "ranks that are bound to CPUs");
        let mut args = arguments("crowd", 2, &[]);
        args[0].push(format!("cpu={}", cpus[0]));
        args[1].push(format!("cpu={second}"));
        let mut ranks = start_with(&args);
        for rank in &mut ranks {
            assert_eq!(
                rank.expect_line("crowded: ", LIMIT),
                crowded.to_string(),
                "CPUs {} and {second}",
                cpus[0]
            );
            assert!(rank.wait(LIMIT).success());
        }
    }
}

pub(crate) fn told(world: &World) {
    say(format!("crowded: {}", world.is_crowded()));
}
