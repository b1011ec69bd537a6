//! `viaduct agent`: the per-host agent, and how ssh brings it up.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use viaduct_agent::serve::{self, Place, Settings};
use viaduct_agent::{PublicKey, bootstrap, known, meet};
use viaduct_catapult::role::{JobsRole, LaunchRole};
use viaduct_catapult::tidy;
use viaduct_os::{children, process};

use crate::cli::FormatArgs;
use crate::cli::launch::{AgentArgs, AgentVerb};
use crate::cmd::jobs::folder;
use crate::cmd::launch::seconds;
use crate::knobs;
use crate::output::table;

pub(crate) fn run(args: &AgentArgs) -> Result<ExitCode> {
    match &args.what {
        AgentVerb::Serve { idle, allow_root, detach } => serve(*idle, *allow_root, *detach),
        AgentVerb::Join { allow_root } => join(*allow_root),
        AgentVerb::Leave => {
            serve::leave(&folder()?)?;
            Ok(ExitCode::SUCCESS)
        }
        AgentVerb::Claims(args) => super::run::claims(args),
        AgentVerb::List(args) => list(args),
        AgentVerb::Meet { user } => meet(user),
    }
}

/// Is the agent; what lies around of earlier ones is tidied first.
fn serve(idle: f64, allow_root: bool, detach: bool) -> Result<ExitCode> {
    if detach {
        children::leave_session()?;
    }
    let folder = folder()?;
    let config = knobs::launching()?;
    let cache = config.cache(knobs::variable);
    tidy::run_folder(&folder);
    tidy::cache(&cache);
    let home = knobs::variable("HOME").unwrap_or_default().into();
    let launch = LaunchRole { folder: folder.clone(), cache, ssh: config.ssh, home };
    let jobs = JobsRole { folder: folder.clone() };
    let settings = Settings { folder: &folder, idle: seconds(idle)?, allow_root };
    serve::serve(&settings, &[&launch, &jobs])?;
    Ok(ExitCode::SUCCESS)
}

fn join(allow_root: bool) -> Result<ExitCode> {
    if process::effective_uid() == 0 && !allow_root {
        return Err(viaduct_agent::Error::Root.into());
    }
    let folder = folder()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    // The key of the caller, and that of the launcher if it is another.
    let keys = line.split_whitespace().map(str::parse).collect::<Result<Vec<PublicKey>, _>>()?;
    let Some((&key, more)) = keys.split_first() else { bail!("a key is expected on standard input") };
    let place = match serve::admit(&folder, key) {
        Ok(place) => place,
        Err(_) => start(&folder, key, allow_root)?,
    };
    for &key in more {
        serve::admit(&folder, key)?;
    }
    let ssh = std::env::var("SSH_CONNECTION").ok();
    writeln!(io::stdout(), "{}", bootstrap::announcement(place.port, PublicKey(place.key), ssh.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the agent, which stays when we are gone, and waits until it answers.
fn start(folder: &Path, key: PublicKey, allow_root: bool) -> Result<Place> {
    let mut command = Command::new(std::env::current_exe().context("our own program")?);
    command.args(["agent", "serve", "--detach"]).args(allow_root.then_some("--allow-root"));
    command.args(["--idle", &knobs::agent()?.idle.as_secs_f64().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    let mut child = command.spawn().context("starting the agent")?;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(place) = serve::admit(folder, key) {
            return Ok(place);
        }
        // Two callers at once start two: one of them finds the place taken and ends, and the other answers.
        let ended = child.try_wait()?.is_some();
        if Instant::now() >= end {
            bail!("the agent {}", if ended { "ended at once" } else { "does not answer" });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn list(args: &FormatArgs) -> Result<ExitCode> {
    let row = |known: known::Known| [known.host, known.address, known.key.to_string()];
    let rows = known::all(&folder()?).into_iter().map(row).collect();
    table::print(args.format, ["host", "address", "key"], rows)?;
    Ok(ExitCode::SUCCESS)
}

fn meet(user: &str) -> Result<ExitCode> {
    let Some(number) = process::user_number(user) else { bail!("no user is called `{user}` here") };
    let met = meet::visit(number).with_context(|| format!("the agent of user {user} on this host"))?;
    writeln!(io::stdout(), "process {}, which takes us for user {}", met.pid, met.caller)?;
    Ok(ExitCode::SUCCESS)
}
