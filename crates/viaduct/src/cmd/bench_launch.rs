//! `viaduct bench launch`: how long a program that does nothing takes to start, here and by other launchers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use viaduct_agent::serve::{admit, first_message, leave};
use viaduct_agent::{Identity, Link, PublicKey};
use viaduct_bench::launch::{LaunchWay, Taken, measure, quietly};
use viaduct_catapult::role::{JOBS, JobsAsk};
use viaduct_results::schema::Line;
use viaduct_results::table::{Better, Table};

use crate::cli::BenchArgs;
use crate::cmd::far::ssh;
use crate::cmd::launch::host_list;
use crate::cmd::rivals::Folder;
use crate::output::progress::Progress;
use crate::output::sheet::Sheet;

/// Another launcher that can be held against us.
struct Other {
    name: &'static str,
    program: &'static str,
    /// How it is told to start so many ranks of `true`.
    words: fn(usize) -> Vec<String>,
}

const OTHERS: &[Other] = &[
    Other { name: "hydra", program: "mpiexec.hydra", words: |n| words(&["-n", &n.to_string(), "true"]) },
    Other {
        name: "openmpi",
        program: "mpirun.openmpi",
        words: |n| words(&["--allow-run-as-root", "--oversubscribe", "-n", &n.to_string(), "true"]),
    },
    Other {
        name: "parallel",
        program: "parallel",
        words: |n| {
            let numbers: Vec<String> = (0..n).map(|k| k.to_string()).collect();
            [words(&["-j16", "-N0", "true", ":::"]), numbers].concat()
        },
    },
    Other {
        name: "ssh",
        program: "ssh",
        words: |_| words(&["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "localhost", "true"]),
    },
];

const REQUEST: &str = "agent request";
const PAPER: &str = "Millennium Sort, 4.3";
const ON_HOSTS: &str = "on hosts";
const OURS_ON_HOSTS: &str = "viaduct on hosts";

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let unknown = args.compare.iter().find(|name| OTHERS.iter().all(|other| other.name != **name));
    if let Some(name) = unknown {
        bail!("there is no launcher `{name}`; known: hydra, openmpi, parallel, ssh");
    }
    let mut sheet = Sheet::open(args)?;
    let rounds = if args.quick { 5 } else { 30 };
    let folder = Folder::new()?;
    let exe = std::env::current_exe()?;
    let ours = |ranks: usize| {
        let mut command = Command::new(&exe);
        command.args(["launch", "--hosts", &format!("localhost*{ranks}"), "true"]);
        command.env("VIADUCT_RUNTIME_DIR", folder.path().join("run"));
        command
    };
    let placed = args.hosts.as_deref().map(host_list).transpose()?.unwrap_or_default();
    let names: Vec<&str> =
        placed.iter().flat_map(|host| std::iter::repeat_n(&*host.name, host.slots)).collect();
    let trees: Vec<String> = args.fan_out.iter().map(|n| format!("fan-out {n} {ON_HOSTS}")).collect();
    let mut agent = Agent::start(&exe, folder.path().join("agent"))?;
    let mut ways = vec![
        LaunchWay { name: "fork+exec", ranks: 1, run: Box::new(|| quietly(Command::new("true"))) },
        LaunchWay { name: REQUEST, ranks: 0, run: Box::new(|| agent.ask()) },
    ];
    for ranks in [1, 16] {
        ways.push(LaunchWay { name: "viaduct", ranks, run: Box::new(move || quietly(ours(ranks))) });
        for other in OTHERS.iter().filter(|other| args.compare.iter().any(|name| name == other.name)) {
            // One ssh is one command on one host.
            if other.name == "ssh" && ranks > 1 {
                continue;
            }
            let run = move || {
                let mut command = Command::new(other.program);
                command.args((other.words)(ranks));
                quietly(command)
            };
            ways.push(LaunchWay { name: other.name, ranks, run: Box::new(run) });
        }
    }
    if let Some(list) = &args.hosts {
        // The user's own agents, or those that the first round brings up: they stay, and are not measured.
        let ours = |fan_out: Option<usize>| {
            let mut command = Command::new(&exe);
            command.args(["launch", "--hosts", list]).args(args.allow_root.then_some("--allow-root"));
            command.args(fan_out.map(|n| format!("--fan-out={n}"))).arg("true");
            quietly(command)
        };
        ways.push(LaunchWay { name: OURS_ON_HOSTS, ranks: names.len(), run: Box::new(move || ours(None)) });
        for (name, &fan_out) in trees.iter().zip(&args.fan_out) {
            ways.push(LaunchWay { name, ranks: names.len(), run: Box::new(move || ours(Some(fan_out))) });
        }
        if args.compare.iter().any(|name| name == "ssh") {
            ways.push(LaunchWay {
                name: "ssh on hosts",
                ranks: names.len(),
                run: Box::new(|| all_by_ssh(&names)),
            });
        }
    }
    let mut progress = Progress::new("launch");
    let taken = measure(&mut ways, rounds, &mut |done| progress.show("", done));
    progress.clear();
    drop(ways);
    let config = BTreeMap::from([
        ("rounds".into(), rounds.to_string()),
        ("hosts".into(), args.hosts.clone().unwrap_or_else(|| "localhost".into())),
    ]);
    for line in lines(&taken, &Table::new("launch", config)) {
        sheet.put(line)?;
    }
    sheet.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// One ssh for each rank, all at once.
fn all_by_ssh(hosts: &[&str]) -> bool {
    let Ok(words) = ssh() else { return false };
    let start = |host: &&str| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["-o", "BatchMode=yes", *host, "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let children: Vec<_> = hosts.iter().map(start).collect();
    let ended = |child: std::io::Result<std::process::Child>| {
        child.and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
    };
    // All of them are waited for, also after one has failed.
    children.into_iter().map(ended).filter(|good| !good).count() == 0
}

/// Lines of the table `launch`: a row for each launcher and number of ranks.
fn lines(taken: &[Taken], table: &Table) -> Vec<Line> {
    let median = |name: &str, ranks: usize| {
        let found = taken.iter().find(|one| one.name == name && one.ranks == ranks)?;
        found.time.as_ref().map(|time| time.p50)
    };
    // Each is held against ours on the same hosts.
    let ours =
        |one: &Taken| median(if one.name.ends_with(ON_HOSTS) { OURS_ON_HOSTS } else { "viaduct" }, one.ranks);
    let mut lines = Vec::new();
    for one in taken {
        let row = match one.ranks {
            0 => one.name.clone(),
            1 => format!("{}, 1 rank", one.name),
            ranks => format!("{}, {ranks} ranks", one.name),
        };
        let cell = |column, unit, better| table.cell(row.as_str(), column, unit, better);
        let time = cell("time", "ms", Better::Less);
        let Some(summary) = &one.time else {
            lines.push(time.missing("it failed"));
            continue;
        };
        lines.push(time.summary(summary));
        lines.push(cell("least", "ms", Better::Neither).one(summary.min));
        if let Some(ours) = ours(one) {
            lines.push(cell("against viaduct", "", Better::Neither).one(summary.p50 / ours));
        }
        if one.name == REQUEST {
            lines.push(table.cell("agent request, 1999", "time", "ms", Better::Less).from_paper(PAPER, 0.4));
        }
    }
    lines
}

/// An agent of our own, for requests that do nothing (the paper's took 400 us).
struct Agent {
    child: std::process::Child,
    folder: PathBuf,
    link: Link,
    first: bool,
}

impl Agent {
    fn start(exe: &PathBuf, folder: PathBuf) -> Result<Agent> {
        viaduct_os::runtime_dir::runtime_dir(Some(&folder))?;
        let mut command = Command::new(exe);
        command.args(["agent", "serve", "--idle", "60", "--allow-root"]).env("VIADUCT_RUNTIME_DIR", &folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let identity = Identity::of_user(&folder)?;
        let end = Instant::now() + Duration::from_secs(20);
        let place = loop {
            match admit(&folder, identity.public()) {
                Ok(place) => break place,
                Err(why) if Instant::now() >= end => return Err(why.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let address = format!("localhost:{}", place.port);
        let link = Link::call(&address, &identity, PublicKey(place.key), Duration::from_secs(20))?;
        Ok(Agent { child, folder, link, first: true })
    }

    fn ask(&mut self) -> bool {
        let body = JobsAsk { start: String::new(), signal: None }.to_bytes();
        let message = if std::mem::take(&mut self.first) { first_message(JOBS, &body) } else { body };
        self.link.say(&message).is_ok() && self.link.wait(Instant::now() + Duration::from_secs(10)).is_ok()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = leave(&self.folder);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
