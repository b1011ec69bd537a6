//! Servers of today with the load that their own tools make: redis (also with both ends on one core), memcached, nginx,
//! postgresql; requests a second. Then a C program of ours (`plain`).
//!
//! A program that is not installed leaves its cells empty with the reason; the others are measured.

use std::fs;
use std::path::PathBuf;

use viaduct_results::schema::Line;
use viaduct_results::table::Better;

use super::{Ground, Programs, RunWay, Subject, Upgraded, free_port, plain, table, turns};
use crate::error::{Error, Result};
use crate::rivals::child::{Running, failed};

/// A server that runs, and what is asked of it.
pub(super) struct Load {
    pub(super) column: String,
    pub(super) unit: &'static str,
    pub(super) tool: PathBuf,
    /// Words of the client for a port.
    pub(super) words: Vec<String>,
    /// What it said, as a number.
    pub(super) parse: fn(&str) -> Option<f64>,
    /// Connections are too short to be upgraded, or the peer is plain.
    pub(super) stays: bool,
}

/// One kind of server.
pub(super) struct App {
    /// For a cell that stays empty.
    pub(super) name: &'static str,
    pub(super) start: fn(&Ground, RunWay, u16) -> Result<Running>,
    pub(super) loads: fn(&Ground, u16) -> Result<Vec<Load>>,
}

const APPS: [App; 5] = [
    App { name: "redis GET, 1 client", start: start_redis, loads: redis_loads },
    App { name: "redis GET, 1 client, one core", start: start_redis_on_one_core, loads: one_core_loads },
    App { name: "memcached, 8 clients", start: start_memcached, loads: memcached_loads },
    App { name: "nginx, 16 connections", start: start_nginx, loads: nginx_loads },
    App { name: "postgresql, select only", start: start_postgresql, loads: postgresql_loads },
];

pub(super) fn run(ground: &Ground, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<Line>> {
    let table = table(Programs::Apps, ground);
    let (mut lines, mut servers, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
    for app in APPS.iter().chain(&plain::APPS) {
        let mut started = Vec::new();
        let mut missing = None;
        for way in RunWay::ALL {
            let port = free_port()?;
            match (app.start)(ground, way, port).and_then(|server| Ok((server, (app.loads)(ground, port)?))) {
                Ok((server, loads)) => {
                    servers.push(server);
                    started.push((way, loads));
                }
                Err(error) => missing = Some(error.to_string()),
            }
        }
        if let Some(why) = missing {
            lines.extend(
                RunWay::ALL.map(|way| {
                    table.cell(way.row(), app.name, "requests/s", Better::More).missing(why.clone())
                }),
            );
            continue;
        }
        for (way, loads) in started {
            for load in loads {
                let (column, unit) = (load.column.clone(), load.unit);
                let upgraded = Upgraded::default();
                let count = upgraded.clone();
                let run = move || {
                    let said = match load.stays {
                        true => ground.client(way, &load.tool, &load.words)?,
                        false => ground.counted(way, &load.tool, &load.words, &count)?,
                    };
                    (load.parse)(&said)
                        .ok_or_else(|| failed(&load.tool.display().to_string(), "printed no number"))
                };
                subjects.push(Subject {
                    row: way.row().to_owned(),
                    column,
                    unit,
                    better: Better::More,
                    against: way.against(),
                    upgraded,
                    run: Box::new(run),
                });
            }
        }
    }
    // The ways of one load directly after each other.
    subjects.sort_by(|one, other| one.column.cmp(&other.column));
    lines.extend(turns(&table, ground.rounds, &mut subjects, progress));
    Ok(lines)
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

const REQUESTS: &str = "requests/s";
const REDIS: [&str; 8] = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"];

fn start_redis(ground: &Ground, way: RunWay, port: u16) -> Result<Running> {
    let tool = ground.need("redis-server", "redis-server")?;
    let list = [&words(&["--port", &port.to_string()])[..], &words(&REDIS)].concat();
    ground.server(way, &tool, &list, port)
}

/// Both ends on the first core.
fn start_redis_on_one_core(ground: &Ground, way: RunWay, port: u16) -> Result<Running> {
    let tool = ground.need("redis-server", "redis-server")?.display().to_string();
    let list = [&words(&["-c", "0", &tool, "--port", &port.to_string()])[..], &words(&REDIS)].concat();
    ground.server(way, &ground.need("taskset", "util-linux")?, &list, port)
}

fn one_core_loads(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let taskset = ground.need("taskset", "util-linux")?;
    let first = redis_loads(ground, port)?.into_iter().take(1);
    let pin = |load: Load| Load {
        column: format!("{}, one core", load.column),
        words: [&words(&["-c", "0", &load.tool.display().to_string()])[..], &load.words].concat(),
        tool: taskset.clone(),
        ..load
    };
    Ok(first.map(pin).collect())
}

fn redis_loads(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let tool = ground.need("redis-benchmark", "redis-tools")?;
    let load = |test: &str, clients: &str, count: &str| Load {
        column: format!(
            "redis {}, {clients} client{}",
            test.to_uppercase(),
            if clients == "1" { "" } else { "s" }
        ),
        unit: REQUESTS,
        tool: tool.clone(),
        words: words(&["-p", &port.to_string(), "-c", clients, "-n", count, "-t", test, "--csv"]),
        parse: redis_rate,
        stays: false,
    };
    let [few, many] = if ground.quick { ["10000", "20000"] } else { ["40000", "80000"] };
    Ok(vec![load("get", "1", few), load("set", "1", few), load("get", "50", many), load("set", "50", many)])
}

/// The second field of the line behind the heading.
fn redis_rate(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.split(',').nth(1)?.trim_matches('"').parse().ok())
}

fn start_memcached(ground: &Ground, way: RunWay, port: u16) -> Result<Running> {
    let tool = ground.need("memcached", "memcached")?;
    let root = rustix::process::geteuid().is_root();
    let mut list = words(&["-l", "127.0.0.1", "-U", "0", "-t", "1", "-p", &port.to_string()]);
    list.extend(root.then(|| words(&["-u", "root"])).into_iter().flatten());
    ground.server(way, &tool, &list, port)
}

/// Keys and values of 64 bytes; one in ten requests stores.
const MEMCASLAP: &str = "key\n64 64 1\nvalue\n64 64 1\ncmd\n0 0.1\n1 0.9\n";

fn memcached_loads(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let tool = ground.need("memcaslap", "libmemcached-tools")?;
    let time = if ground.quick { "1s" } else { "2s" };
    // Without a file it looks for one in the user's home.
    let file = ground.folder.join("memcaslap");
    fs::write(&file, MEMCASLAP).map_err(Error::os("writing settings of memcaslap"))?;
    let file = file.display().to_string();
    let list = ["-F", &file, "-s", &format!("127.0.0.1:{port}"), "-T", "1", "-c", "8", "-t", time];
    let load = Load {
        column: "memcached, 8 clients".to_owned(),
        unit: REQUESTS,
        tool,
        words: words(&list),
        parse: |said| after(said, "TPS:"),
        stays: false,
    };
    Ok(vec![load])
}

fn start_nginx(ground: &Ground, way: RunWay, port: u16) -> Result<Running> {
    let tool = ground.need("nginx", "nginx-light")?;
    let folder = ground.folder.join(format!("nginx-{port}"));
    fs::create_dir_all(&folder).map_err(Error::os("making a folder for nginx"))?;
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {0}/{kind};", folder.display()))
        .join(" ");
    let text = format!(
        "daemon off; worker_processes 1; {user} pid {0}/pid; error_log {0}/error.log; events {{ worker_connections 256; }}\n\
         http {{ access_log off; {temporary} keepalive_requests 100000000; server {{ listen 127.0.0.1:{port};\n\
         location / {{ return 200 \"a small body of no more than sixty-four bytes\"; }} }} }}\n",
        folder.display()
    );
    let conf = folder.join("conf");
    fs::write(&conf, text).map_err(Error::os("writing settings of nginx"))?;
    let log = folder.join("error.log").display().to_string();
    ground.server(way, &tool, &words(&["-e", &log, "-c", &conf.display().to_string()]), port)
}

fn nginx_loads(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let tool = ground.need("wrk", "wrk")?;
    let time = if ground.quick { "1s" } else { "2s" };
    let list = ["-t", "1", "-c", "16", "-d", time, &format!("http://127.0.0.1:{port}/")];
    let load = Load {
        column: "nginx, 16 connections".to_owned(),
        unit: REQUESTS,
        tool,
        words: words(&list),
        parse: |said| after(said, "Requests/sec:"),
        stays: false,
    };
    Ok(vec![load])
}

/// The newest one of the system.
fn postgresql(program: &str) -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions
        .map(|version| version.path().join("bin").join(program))
        .filter(|file| file.exists())
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| Error::usage(format!("{program} is not installed"), "apt-get install postgresql"))
}

fn start_postgresql(ground: &Ground, way: RunWay, port: u16) -> Result<Running> {
    if rustix::process::geteuid().is_root() {
        return Err(Error::usage("postgresql does not run as root", "measure as an ordinary user"));
    }
    let data = ground.folder.join(format!("postgresql-{port}"));
    let place = data.display().to_string();
    let list = words(&["-A", "trust", "-U", "bench", "--no-sync", "-D", &place]);
    ground.client(RunWay::Tcp, &postgresql("initdb")?, &list)?;
    let folder = ground.folder.display().to_string();
    let list = words(&["-F", "-h", "127.0.0.1", "-k", &folder, "-p", &port.to_string(), "-D", &place]);
    let server = ground.server(way, &postgresql("postgres")?, &list, port)?;
    fill(ground, port)?;
    Ok(server)
}

/// Makes pgbench's tables; the server may answer before it lets clients in.
fn fill(ground: &Ground, port: u16) -> Result<()> {
    let tool = postgresql("pgbench")?;
    let list = words(&[
        "-i",
        "-q",
        "-s",
        "1",
        "-h",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        "bench",
        "postgres",
    ]);
    let mut last = Ok(());
    for _ in 0..20 {
        last = ground.client(RunWay::Tcp, &tool, &list).map(drop);
        if last.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    last
}

fn postgresql_loads(ground: &Ground, port: u16) -> Result<Vec<Load>> {
    let time = if ground.quick { "1" } else { "2" };
    let list =
        ["-S", "-c", "4", "-T", time, "-h", "127.0.0.1", "-p", &port.to_string(), "-U", "bench", "postgres"];
    let load = Load {
        column: "postgresql, select only".to_owned(),
        unit: REQUESTS,
        tool: postgresql("pgbench")?,
        words: words(&list),
        parse: |said| after(said, "tps ="),
        stays: false,
    };
    Ok(vec![load])
}

/// The number behind a word.
fn after(said: &str, word: &str) -> Option<f64> {
    let (_, rest) = said.split_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_tools_say() {
        let redis = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"21276.60\",\"0.043\"\n";
        assert_eq!(redis_rate(redis), Some(21_276.6));
        assert_eq!(after("Requests/sec:  1234.5\nTransfer/sec: 1MB", "Requests/sec:"), Some(1234.5));
        assert_eq!(after("cmd_get: 1\nRun time: 2.0s Ops: 9 TPS: 4711 Net_rate: 1M/s", "TPS:"), Some(4711.0));
        assert_eq!(after("tps = 815.25 (without initial connection time)", "tps ="), Some(815.25));
        assert_eq!((redis_rate("nothing"), after("nothing", "TPS:")), (None, None));
    }
}
