//! `viaduct bench-peer` (hidden): the second process of a benchmark.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::PeerArgs;
use crate::cmd::{bench, rivals};
use crate::knobs;

pub(crate) fn run(args: &PeerArgs) -> Result<ExitCode> {
    if let (Some(address), Some(provider)) = (&args.standby, &args.provider) {
        let providers = knobs::from_environment()?;
        viaduct_bench::serve_standby(args.cpu, args.parent, provider, address, &providers)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.far {
        let tools = rivals::launcher(&bench::peer_command()?);
        viaduct_bench::serve_far(args.cpu, args.parent, knobs::from_environment()?, tools)?;
        return Ok(ExitCode::SUCCESS);
    }
    viaduct_bench::serve_peer(args.cpu, args.one_core, args.parent, knobs::from_environment()?)?;
    Ok(ExitCode::SUCCESS)
}
