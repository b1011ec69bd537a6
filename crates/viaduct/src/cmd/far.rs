//! The part of `viaduct launch` that is about other hosts: agents, and files that go there and back.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use viaduct_agent::bootstrap::Ways;
use viaduct_catapult::control::Launch;
use viaduct_catapult::far::Far;
use viaduct_catapult::hosts::Host;
use viaduct_catapult::plan::Wish;
use viaduct_catapult::reach::Reach;
use viaduct_catapult::remote::Remote;
use viaduct_catapult::stage::Outgoing;
use viaduct_catapult::wire::{Start, VERSION};

use crate::cli::launch::LaunchArgs;
use crate::cmd::launch::seconds;

/// How long launcher and nodes wait for a sign of life.
const LEASE: u64 = 2500;

/// Files that travel with a job.
pub(crate) struct Cargo {
    put: Vec<Outgoing>,
    get: Vec<(String, PathBuf)>,
}

impl Cargo {
    pub(crate) fn new(args: &LaunchArgs, wishes: &[Wish]) -> Result<Cargo> {
        let mut put = Vec::new();
        // Programs come first, in their order: nodes count on it.
        for wish in wishes.iter().filter(|_| args.stage) {
            let name = String::from_utf8_lossy(&wish.program.command[0]).into_owned();
            put.push(Outgoing::new(&find(&name)?, None)?);
        }
        for text in &args.put {
            let (here, there) = text.split_once(':').unwrap_or((text, text));
            put.push(Outgoing::new(Path::new(here), Some(there.to_owned()))?);
        }
        let parts = |text: &String| {
            let (there, here) = text.split_once(':').unwrap_or((text, text));
            (there.to_owned(), PathBuf::from(here))
        };
        Ok(Cargo { put, get: args.get.iter().map(parts).collect() })
    }
}

/// Connects to the agents of all other hosts and tells them what to do. Those that cannot be reached are noted.
pub(crate) fn reach(
    args: &LaunchArgs,
    launch: &mut Launch,
    folder: Result<&Path, &anyhow::Error>,
    cargo: &Cargo,
) -> Result<Vec<Box<dyn Far>>> {
    let is_local = |name: &str| Host { name: name.to_owned(), slots: 1 }.is_local();
    let nodes: Vec<usize> = (0..launch.plans.len()).filter(|&n| !is_local(&launch.plans[n].host)).collect();
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let folder = folder.map_err(|why| anyhow!("{why:#}"))?;
    let ssh = std::env::var("VIADUCT_SSH").unwrap_or_else(|_| "ssh".to_owned());
    let ways = Ways {
        ssh: ssh.split_whitespace().map(str::to_owned).collect(),
        limit: seconds(args.connect_timeout)?,
        allow_root: args.allow_root,
    };
    let reach = Reach { folder, ways, retries: args.retries, at_once: args.fan_out };
    let hosts: Vec<&str> = nodes.iter().map(|&node| &*launch.plans[node].host).collect();
    let links = reach.all(&hosts)?;
    let here = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    let (mut far, mut lost): (Vec<Box<dyn Far>>, Vec<_>) = (Vec::new(), Vec::new());
    for (&node, link) in nodes.iter().zip(links) {
        let plan = launch.plans[node].clone();
        match link {
            Err(why) => lost.push((node, why)),
            Ok(link) => {
                let name = |path: &PathBuf| match launch.plans.len() {
                    1 => path.clone(),
                    _ => PathBuf::from(format!("{}.{}", path.display(), plan.host)),
                };
                let get: Vec<PathBuf> = cargo.get.iter().map(|(_, path)| name(path)).collect();
                let start = Start {
                    version: VERSION,
                    put: cargo.put.iter().map(|file| file.head.clone()).collect(),
                    get: cargo.get.iter().map(|(there, _)| there.clone()).collect(),
                    folder: here.clone(),
                    lease: LEASE,
                    plan: plan.clone(),
                };
                far.push(Box::new(Remote::start(link, &start, cargo.put.clone(), get)));
            }
        }
    }
    launch.lost = lost;
    Ok(far)
}

/// A program as a shell finds it.
fn find(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("--stage: {name} is not on the path"))
}
