//! Two ranks send a message to and fro: `viaduct launch -n 2 -- target/release/examples/mpi_pingpong`.
//!
//! Prints half the time of a round trip and the bytes per second one way, by length. The receiver looks at every byte.

use std::hint::black_box;
use std::time::Instant;

use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Mode, World};
use viaduct_providers::Config;
use viaduct_via::Nic;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let variable = |name: &str| std::env::var(name).ok();
    let mut config = Config::from_variables(variable)?;
    let world = World::init(&variable, |job| {
        config.join(job)?;
        Ok(Nic::open_with(viaduct_providers::open(config.usual_provider(), &config)?, config.wait)?)
    })?;
    let comm = world.comm_world();
    if comm.rank() < 2 && comm.size() > 1 {
        let peer = 1 - comm.rank();
        for len in [0, 8, 64, 256, 1024, 4096, 8192, 16_384, 65_536, 262_144, 1 << 20, 4 << 20] {
            let rounds = (200_000_000 / (len + 4000)).clamp(20, 20_000);
            let mut best = f64::MAX;
            let (span, mut memory) = (Span::owned(&vec![1u8; len]), vec![0u8; len]);
            for _ in 0..8 {
                let start = Instant::now();
                for _ in 0..rounds / 8 + 1 {
                    if comm.rank() == 0 {
                        world.send(Mode::Standard, &span, peer, 0, comm)?;
                    }
                    world.recv(&span, peer, 0, comm)?;
                    span.read(0, &mut memory);
                    black_box(memory.iter().map(|byte| u64::from(*byte)).sum::<u64>());
                    if comm.rank() == 1 {
                        world.send(Mode::Standard, &span, peer, 0, comm)?;
                    }
                }
                let one_way = start.elapsed().as_secs_f64() / (rounds / 8 + 1) as f64 / 2.0;
                best = best.min(one_way);
            }
            if comm.rank() == 0 {
                println!("{len:>8} bytes  {:>9.3} us  {:>9.1} MB/s", best * 1e6, len as f64 / best / 1e6);
            }
        }
    }
    world.finalize()?;
    Ok(())
}
