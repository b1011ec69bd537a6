//! Servers and clients of every kind, as packages have them: each session with and without the library, compared.
//!
//! Sessions give text that does not depend on speed: what arrived, and what the programs say of errors. They are for full
//! runs; `programs.rs` has redis, Python and curl for every run.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;
use viaduct_kit::effort::{full, scaled};
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::{Server, bytes, free_port, output, reasons, source, upgraded, user_name};
use viaduct_preload_tests::compatibility::{Entry, Outcome, note};

use crate::AGENT;

/// A program with another that uses it.
pub(crate) struct App {
    pub(crate) program: &'static str,
    pub(crate) with: &'static str,
    /// Connections that are upgraded at least; 0 if they stay on TCP.
    pub(crate) least: usize,
    pub(crate) remark: &'static str,
    /// What the programs said, with the library or without; `None` if one is not here, which was said.
    pub(crate) session: fn(&Stage, bool) -> Option<String>,
}

impl App {
    /// Runs the session both ways and compares; in full runs alone.
    pub(crate) fn compare(&self) {
        if !full() {
            return skip("many programs: cargo xtask test --full");
        }
        let _dog = Watchdog::arm(scaled(Duration::from_secs(300)), self.program);
        let stage = Stage::new(&AGENT);
        let Some(plain) = (self.session)(&stage, false) else { return };
        assert_eq!((self.session)(&stage, true).as_ref(), Some(&plain), "{}", stage.notes());
        let notes = stage.notes();
        let count = upgraded(&notes).len();
        assert!(count >= self.least, "{count} upgraded; stayed: {:?}", reasons(&notes));
        let outcome = if self.least > 0 { Outcome::Works } else { Outcome::FallsBack };
        note(&Entry {
            program: self.program,
            with: self.with,
            outcome,
            upgraded: count,
            remark: self.remark,
        });
    }
}

/// Bytes of the files that are moved.
pub(crate) const LENGTH: usize = 9_876_543;

pub(crate) fn curl(stage: &Stage, with: bool, words: &[&str], url: &str) -> Option<String> {
    let mut command = stage.maybe(with, need_program("curl", "curl")?);
    command.args(["-sS", "--fail", "--noproxy", "*"]).args(words).arg(url).current_dir(stage.folder());
    Some(output(&mut command))
}

/// Fetches the file `file` of a server; whether all of it came.
pub(crate) fn fetched(stage: &Stage, with: bool, url: &str) -> Option<String> {
    curl(stage, with, &["-o", "got"], url)?;
    let same = fs::read(stage.folder().join("got")).unwrap() == bytes(LENGTH);
    Some(format!("{same}\n"))
}

fn nginx_server(stage: &Stage, with: bool, port: u16) -> Option<Server> {
    let program = need_program("nginx", "nginx-light")?;
    let folder = stage.folder().join("nginx");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("file"), bytes(LENGTH)).unwrap();
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {0}/{kind};", folder.display()))
        .join(" ");
    let text = format!(
        "daemon off; worker_processes 2; {user} pid {0}/pid; error_log {0}/error.log; events {{ worker_connections 256; }}\n\
         http {{ access_log off; {temporary} keepalive_requests 1000000; server {{ listen 127.0.0.1:{port} reuseport; root {0};\n\
         location = /small {{ return 200 \"a small body\"; }}\n\
         location = /plain {{ sendfile off; alias {0}/file; }} location = /file {{ sendfile on; }} }} }}\n",
        folder.display()
    );
    let conf = folder.join(format!("{port}.conf"));
    fs::write(&conf, text).unwrap();
    let mut command = stage.maybe(with, program);
    command.arg("-e").arg(folder.join("error.log")).arg("-c").arg(conf);
    Some(Server::start(&command, port))
}

const NGINX: App = App {
    program: "nginx",
    with: "wrk, curl: keep-alive, small bodies, files with sendfile and without",
    least: 10,
    remark: "",
    session: |stage, with| {
        let port = free_port();
        let _server = nginx_server(stage, with, port)?;
        let url = format!("http://127.0.0.1:{port}");
        let mut said = fetched(stage, with, &format!("{url}/file"))?;
        said += &fetched(stage, with, &format!("{url}/plain"))?;
        said += &curl(stage, with, &[], &format!("{url}/small"))?;
        let mut load = stage.maybe(with, need_program("wrk", "wrk")?);
        let words = output(load.args(["-t", "2", "-c", "20", "-d", "1s"]).arg(format!("{url}/small")));
        let some = words.lines().any(|line| line.contains("requests in") && !line.trim().starts_with("0 "));
        let bad = words.lines().filter(|line| line.contains("Socket errors") || line.contains("Non-2xx"));
        Some(format!("{said}\n{some} {}", bad.collect::<String>()))
    },
};

const HAPROXY: App = App {
    program: "haproxy",
    with: "in front of nginx, with splice; curl",
    least: 1,
    remark: "",
    session: |stage, with| {
        let (port, behind) = (free_port(), free_port());
        let _behind = nginx_server(stage, with, behind)?;
        let conf = stage.folder().join("haproxy.conf");
        let text = format!(
            "global\n  maxconn 100\ndefaults\n  mode http\n  option splice-auto\n  timeout connect 60s\n  timeout client 60s\n  \
             timeout server 60s\nlisten front\n  bind 127.0.0.1:{port}\n  server one 127.0.0.1:{behind}\n"
        );
        fs::write(&conf, text).unwrap();
        let mut command = stage.maybe(with, need_program("haproxy", "haproxy")?);
        let _server = Server::start(command.arg("-f").arg(&conf), port);
        let url = format!("http://127.0.0.1:{port}");
        let mut said = fetched(stage, with, &format!("{url}/file"))?;
        for _ in 0..5 {
            let urls = format!("{url}/small");
            said += &curl(stage, with, &[&urls, &urls, &urls], &urls)?;
        }
        Some(said)
    },
};

const MEMCACHED: App = App {
    program: "memcached",
    with: "memccapable",
    least: 1,
    remark: "",
    session: |stage, with| {
        let port = free_port();
        let mut command = stage.maybe(with, need_program("memcached", "memcached")?);
        command.args(["-l", "127.0.0.1", "-U", "0", "-t", "2", "-p", &port.to_string(), "-u", &user_name()]);
        let _server = Server::start(&command, port);
        let mut client = stage.maybe(with, need_program("memccapable", "libmemcached-tools")?);
        let said = client.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", "60"]).output().unwrap();
        Some(String::from_utf8_lossy(&said.stdout).into_owned())
    },
};

fn postgres_program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).find(|file| file.exists());
    if found.is_none() {
        skip(&format!("{name} not found (apt-get install postgresql)"));
    }
    found
}

const POSTGRESQL: App = App {
    program: "postgresql",
    with: "pgbench, psql",
    least: 4,
    remark: "",
    session: |stage, with| {
        if geteuid().is_root() {
            skip("postgresql does not run as root");
            return None;
        }
        let [initdb, postgres, psql, pgbench] =
            ["initdb", "postgres", "psql", "pgbench"].map(postgres_program);
        let (initdb, postgres, psql, pgbench) = (initdb?, postgres?, psql?, pgbench?);
        let port = free_port();
        let data = stage.folder().join(format!("data-{port}"));
        output(Command::new(initdb).args(["-A", "trust", "-U", "test", "--no-sync", "-D"]).arg(&data));
        let port = port.to_string();
        let mut command = stage.maybe(with, postgres);
        command.args(["-F", "-h", "127.0.0.1", "-p", &port, "-k"]).arg(stage.folder()).arg("-D").arg(&data);
        let _server = Server::start(&command, port.parse().unwrap());
        let connect = ["-h", "127.0.0.1", "-p", &port, "-U", "test", "postgres"];
        // It answers before it lets clients in.
        while !Command::new(&psql).args(connect).args(["-c", "select 1"]).output().unwrap().status.success() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let query = "create table t as select n, md5(n::text) as word from generate_series(1, 20000) as n; \
                     select count(*), md5(string_agg(word, ',' order by n)) from t; table t;";
        let mut said = output(stage.maybe(with, &psql).args(connect).args(["-c", query]));
        output(stage.maybe(with, &pgbench).args(["-i", "-q", "-s", "1"]).args(connect));
        for words in
            [&["-S", "-c", "4", "-t", "300"][..], &["-N", "-c", "2", "-t", "100", "-M", "prepared"][..]]
        {
            let report = output(stage.maybe(with, &pgbench).args(words).args(connect));
            let counts = report.lines().filter(|line| line.contains("processed") || line.contains("failed"));
            said.extend(counts.map(|line| format!("{line}\n")));
        }
        Some(said)
    },
};

const IPERF3: App = App {
    program: "iperf3",
    with: "itself: both ways, at once, in parallel, by sendfile, paced, small windows and blocks, IPv6, UDP",
    least: 10,
    remark: "",
    session: |stage, with| {
        let program = need_program("iperf3", "iperf3")?;
        let port = free_port();
        let mut command = stage.maybe(with, &program);
        let server = Server::start_silently(command.args(["-s", "-p", &port.to_string()]));
        let mut said = String::new();
        for way in [
            "-n 50M",
            "-n 50M -R",
            "-n 20M --bidir",
            "-n 40M -P 4",
            "-n 20M -Z",
            "-n 2M -l 100 -N",
            "-n 10M -w 20K",
            "-t 1 -b 50M",
            "-t 1 -O 1",
            "-k 200 -l 64K",
            "-n 10M -6",
            "-u -n 2M -b 100M",
        ] {
            // The server may not be there yet, or still at its last client.
            let host = if way.ends_with("-6") { "::1" } else { "127.0.0.1" };
            let mut received = false;
            while !received {
                let mut client = stage.maybe(with, &program);
                client.args(["-c", host, "-p", &port.to_string(), "--json"]).args(way.split(' '));
                let words = client.output().unwrap().stdout;
                received = String::from_utf8_lossy(&words).contains("\"sum_received\"");
                if !received {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            said += &format!("{way} {received}\n");
        }
        drop(server);
        Some(said)
    },
};

const SOCKPERF: App = App {
    program: "sockperf",
    with: "ping-pong, under load and as fast as it can, over TCP",
    least: 1,
    remark: "",
    session: |stage, with| {
        let program = need_program("sockperf", "sockperf")?;
        let port = free_port().to_string();
        let mut command = stage.maybe(with, &program);
        command.args(["server", "--tcp", "-i", "127.0.0.1", "-p", &port]);
        let _server = Server::start(&command, port.parse().unwrap());
        let mut said = String::new();
        for way in
            ["ping-pong -m 64", "ping-pong -m 4000", "under-load --mps 1000 -m 200", "throughput -m 1400"]
        {
            let mut client = stage.maybe(with, &program);
            client.args(way.split(' ')).args(["--tcp", "-i", "127.0.0.1", "-p", &port, "-t", "1"]);
            let words = output(&mut client);
            // Of what is sent as fast as it can no answers are asked for, so that none are missed.
            let lost = words.lines().filter(|line| line.contains("# dropped messages"));
            said += &format!("{way}: {}\n", lost.map(plain_text).collect::<String>());
        }
        Some(said)
    },
};

/// A line without colours.
fn plain_text(line: &str) -> String {
    let parts = line.split('\u{1b}').enumerate();
    let text =
        parts.map(|(n, part)| if n == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
    text.collect::<String>().trim().to_owned()
}

const SOCAT: App = App {
    program: "socat",
    with: "itself: a cat and an ls that it starts, one of them on the socket itself",
    least: 1,
    remark: "",
    session: |stage, with| {
        let program = need_program("socat", "socat")?;
        fs::write(stage.folder().join("input"), bytes(LENGTH)).unwrap();
        let mut said = String::new();
        for service in ["EXEC:cat", "EXEC:ls /usr/lib,nofork"] {
            let port = free_port();
            let mut command = stage.maybe(with, &program);
            command.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr")).arg(service);
            let _server = Server::start(&command, port);
            let mut client = stage.maybe(with, &program);
            client.args(["-t", "60", "-", &format!("TCP:127.0.0.1:{port}")]);
            // What is not read would reset the connection when ls ends.
            let cat = service == "EXEC:cat";
            let input = if cat { stage.folder().join("input") } else { "/dev/null".into() };
            let output = client.stdin(File::open(input).unwrap()).output().unwrap();
            said += &format!("{}\n", output.status.success());
            said += &if cat {
                format!("{}\n", output.stdout == bytes(LENGTH))
            } else {
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
        }
        Some(said)
    },
};

const NODE: App = App {
    program: "Node.js http",
    with: "its own client, connections kept open",
    least: 2,
    remark: "",
    session: |stage, with| {
        let node = need_program("node", "nodejs")?;
        let (script, port) = (source("node/web.js"), free_port());
        let mut command = stage.maybe(with, &node);
        let _server = Server::start(command.arg(&script).args(["serve", &port.to_string()]), port);
        Some(output(stage.maybe(with, &node).arg(&script).args(["fetch", &port.to_string()])))
    },
};

const JAVA: App = App {
    program: "Java com.sun.net.httpserver",
    with: "java.net.HttpURLConnection",
    least: 1,
    remark: "",
    session: |stage, with| {
        let (java, javac) = (
            need_program("java", "openjdk-17-jdk-headless")?,
            need_program("javac", "openjdk-17-jdk-headless")?,
        );
        output(Command::new(javac).arg("-d").arg(stage.folder()).arg(source("java/Web.java")));
        let port = free_port();
        let words = ["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", "."];
        let mut command = stage.maybe(with, &java);
        command.args(words).args(["Web", "serve", &port.to_string()]).current_dir(stage.folder());
        let _server = Server::start(&command, port);
        let mut client = stage.maybe(with, &java);
        client.args(words).args(["Web", "fetch", &port.to_string()]).current_dir(stage.folder());
        Some(output(&mut client))
    },
};

/// A program without a loader loads no library; it talks to one that does, over plain TCP.
const STATIC: App = App {
    program: "a static program",
    with: "curl",
    least: 0,
    remark: "it loads no library, so that its connections are never claimed",
    session: |stage, with| {
        let gcc = need_program("gcc", "gcc")?;
        let (text, program) = (stage.folder().join("static.c"), stage.folder().join("static"));
        fs::write(&text, STATIC_SERVER).unwrap();
        output(Command::new(gcc).args(["-static", "-o"]).arg(&program).arg(&text));
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let port = free_port();
        let mut command = stage.maybe(with, &program);
        let _server = Server::start(command.arg(port.to_string()), port);
        curl(stage, with, &[], &format!("http://127.0.0.1:{port}/"))
    },
};

const STATIC_SERVER: &str = r#"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words)
{
    const char *answer = "HTTP/1.0 200 OK\r\n\r\nhello\n";
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(words[count - 1])) };
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
        return 1;
    for (;;) {
        char request[4096];
        int peer = accept(listener, NULL, NULL);
        if (read(peer, request, sizeof request) > 0 && write(peer, answer, strlen(answer)) > 0)
            shutdown(peer, SHUT_WR);
        while (read(peer, request, sizeof request) > 0)
            ;
        close(peer);
    }
}
"#;

#[test]
fn nginx_serves_the_same() {
    NGINX.compare();
}

#[test]
fn haproxy_passes_on_the_same() {
    HAPROXY.compare();
}

#[test]
fn memcached_keeps_the_same() {
    MEMCACHED.compare();
}

#[test]
fn postgresql_answers_the_same() {
    POSTGRESQL.compare();
}

#[test]
fn iperf3_moves_its_bytes() {
    IPERF3.compare();
}

#[test]
fn sockperf_loses_nothing() {
    SOCKPERF.compare();
}

#[test]
fn socat_relays_the_same() {
    SOCAT.compare();
}

#[test]
fn node_serves_the_same() {
    NODE.compare();
}

#[test]
fn java_serves_the_same() {
    JAVA.compare();
}

#[test]
fn a_static_program_is_served_over_plain_tcp() {
    STATIC.compare();
}
