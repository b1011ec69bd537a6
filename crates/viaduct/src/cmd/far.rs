//! The part of `viaduct launch` that is about other hosts: agents, and files that go there and back.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use viaduct_agent::Identity;
use viaduct_agent::bootstrap::Ways;
use viaduct_agent::known;
use viaduct_catapult::control::Launch;
use viaduct_catapult::hosts::Host;
use viaduct_catapult::plan::Wish;
use viaduct_catapult::reach::Reach;
use viaduct_catapult::rescue::Rescue;
use viaduct_catapult::stage::Outgoing;
use viaduct_catapult::tree::{Place, Tree};
use viaduct_catapult::wire::{Start, VERSION};

use crate::cli::launch::LaunchArgs;
use crate::cmd::launch::seconds;
use crate::knobs;

/// Shortest silence after which the other end may be taken for lost.
const SHORTEST: Duration = Duration::from_millis(500);

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

/// Begins to reach the first of the other hosts, which are told what to do, and whom to tell what else.
pub(crate) fn reach(
    args: &LaunchArgs,
    launch: &mut Launch,
    folder: Result<&Path, &anyhow::Error>,
    cargo: &Cargo,
) -> Result<()> {
    let is_local = |name: &str| Host { name: name.to_owned(), slots: 1 }.is_local();
    let nodes: Vec<usize> = (0..launch.plans.len()).filter(|&n| !is_local(&launch.plans[n].host)).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let folder = folder.map_err(|why| anyhow!("{why:#}"))?;
    let ways = Ways { ssh: ssh()?, limit: seconds(args.connect_timeout)?, allow_root: args.allow_root };
    let lease = args.silence.map_or_else(|| Ok(knobs::launching()?.silence), seconds)?;
    if lease < SHORTEST {
        bail!(
            "--silence {}: at least {} s, as signs of life come five times in it",
            lease.as_secs_f64(),
            SHORTEST.as_secs_f64()
        );
    }
    let here = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    let place = |&node: &usize| Place {
        start: Start {
            version: VERSION,
            put: cargo.put.iter().map(|file| file.head.clone()).collect(),
            get: cargo.get.iter().map(|(there, _)| there.clone()).collect(),
            folder: here.clone(),
            lease: lease.as_millis() as u64,
            limit: ways.limit.as_millis() as u64,
            allow_root: args.allow_root,
            plan: launch.plans[node].clone(),
            below: Vec::new(),
        },
        known: known::find(folder, &launch.plans[node].host),
    };
    let get = |&node: &usize| {
        let name = |path: &PathBuf| match launch.plans.len() {
            1 => path.clone(),
            _ => PathBuf::from(format!("{}.{}", path.display(), launch.plans[node].host)),
        };
        (node as u32, cargo.get.iter().map(|(_, path)| name(path)).collect())
    };
    let tree = Tree::new(nodes.iter().map(place).collect(), args.fan_out);
    let get = nodes.iter().map(get).collect();
    let reach = Reach {
        folder: folder.to_owned(),
        ways,
        retries: args.retries,
        at_once: args.fan_out,
        payload: OnceLock::new(),
    };
    let mut rescue = Rescue::new(tree, reach, Identity::of_user(folder)?, cargo.put.clone(), get)?;
    rescue.begin();
    launch.rescue = Some(rescue);
    Ok(())
}

/// How ssh is called: the user may have another word for it.
pub(crate) fn ssh() -> Result<Vec<String>> {
    Ok(knobs::launching()?.ssh)
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
