//! More services as packages have them: logins and files, repositories, databases, Python's web servers; and what enters
//! the kernel past libc. Each session is compared with and without the library, in full runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use viaduct_kit::effort::{full, scaled};
use viaduct_kit::packages::{need_program, skip};
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::{Server, bytes, free_port, need_viaduct, output, source, user_name};

use crate::apps::{App, LENGTH, curl, fetched};

/// A folder for one session, with a file to fetch.
fn site(stage: &Stage, name: &str, port: u16) -> std::path::PathBuf {
    let folder = stage.folder().join(format!("{name}-{port}"));
    fs::create_dir_all(folder.join("public")).unwrap();
    fs::write(folder.join("public/file"), bytes(LENGTH)).unwrap();
    folder
}

fn is_whole(file: &Path) -> bool {
    fs::read(file).unwrap() == bytes(LENGTH)
}

/// The daemon shuts the process that talks to a client not yet known into a filter of system calls.
const SSH: App = App {
    program: "OpenSSH",
    with: "sftp: get, put, ls",
    least: 0,
    remark: "its daemon has a filter of system calls; connections are moved back to TCP before that",
    session: |stage, with| {
        let (sshd, sftp) = (need_program("sshd", "openssh-server")?, need_program("sftp", "openssh-client")?);
        let keygen = need_program("ssh-keygen", "openssh-client")?;
        if rustix::process::geteuid().is_root() && !Path::new("/run/sshd").exists() {
            skip("as root sshd wants /run/sshd");
            return None;
        }
        let port = free_port();
        let folder = site(stage, "ssh", port);
        for name in ["host", "key"] {
            output(
                Command::new(&keygen).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name)),
            );
        }
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nAuthorizedKeysFile {0}/key.pub\nStrictModes no\n\
             UsePAM yes\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\nSubsystem sftp internal-sftp\n",
            folder.display()
        );
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = stage.maybe(with, sshd);
        command.arg("-D").arg("-f").arg(folder.join("conf")).arg("-E").arg(folder.join("log"));
        let _server = Server::start(&command, port);
        // Where the daemon begins depends on the home of the user: whole paths.
        let words = "get ROOT/public/file ROOT/one\nput ROOT/public/file ROOT/two\nls -1 ROOT/public\n";
        fs::write(folder.join("words"), words.replace("ROOT", &folder.display().to_string())).unwrap();
        let mut client = stage.maybe(with, sftp);
        client.args(["-q", "-F", "none", "-P", &port.to_string(), "-b"]).arg(folder.join("words"));
        client.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no"]);
        client.args(["-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-i"]).arg(folder.join("key"));
        client.arg(format!("{}@127.0.0.1", user_name())).current_dir(&folder);
        client.env("HOME", &folder).stdin(Stdio::null());
        let said = output(&mut client).replace(&folder.display().to_string(), "");
        Some(format!("{said}{} {}\n", is_whole(&folder.join("one")), is_whole(&folder.join("two"))))
    },
};

const RSYNC: App = App {
    program: "rsync",
    with: "its daemon: get, put, get what has changed",
    least: 2,
    remark: "",
    session: |stage, with| {
        let rsync = need_program("rsync", "rsync")?;
        let port = free_port();
        let folder = site(stage, "rsync", port);
        for n in 0..200 {
            fs::write(folder.join(format!("public/small-{n}")), bytes(n * 37)).unwrap();
        }
        let root = if rustix::process::geteuid().is_root() { "uid = root\ngid = root\n" } else { "" };
        let text = format!(
            "port = {port}\naddress = 127.0.0.1\nuse chroot = no\n{root}[files]\npath = {}/public\nread only = no\n",
            folder.display()
        );
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = stage.maybe(with, &rsync);
        command.args(["--daemon", "--no-detach", "--config"]).arg(folder.join("conf"));
        let _server = Server::start(&command, port);
        let url = format!("rsync://127.0.0.1:{port}/files/");
        let rsync = |words: &[&str]| {
            let mut client = stage.maybe(with, &rsync);
            output(client.args(words).current_dir(&folder))
        };
        let mut said = rsync(&["-a", "--out-format=%n", &url, "got/"]);
        fs::write(folder.join("two"), bytes(LENGTH)).unwrap();
        said += &rsync(&["-a", "two", &url]);
        let mut changed = bytes(LENGTH);
        changed[LENGTH / 2] ^= 1;
        fs::write(folder.join("public/file"), &changed).unwrap();
        said += &rsync(&["-a", "--no-times", "--checksum", "--out-format=%n", &url, "got/"]);
        let same = fs::read(folder.join("got/file")).unwrap() == changed;
        Some(format!("{said}{same} {}\n", is_whole(&folder.join("public/two"))))
    },
};

const GIT: App = App {
    program: "git",
    with: "its daemon: clone, push, ls-remote",
    least: 1,
    remark: "",
    session: |stage, with| {
        let git = need_program("git", "git")?;
        let port = free_port();
        let folder = site(stage, "git", port);
        let run = |with: bool, place: &Path, words: &[&str]| {
            let mut command = stage.maybe(with, &git);
            command.args(["-c", "user.name=a", "-c", "user.email=b", "-c", "safe.directory=*"]).args(words);
            // Everything that names a commit: the same both times.
            command
                .env("GIT_AUTHOR_DATE", "2001-01-01T00:00Z")
                .env("GIT_COMMITTER_DATE", "2001-01-01T00:00Z");
            command.current_dir(place).env("HOME", &folder).env("GIT_CONFIG_NOSYSTEM", "1");
            output(&mut command)
        };
        let public = folder.join("public");
        run(false, &folder, &["init", "-q", "--bare", "-b", "main", "repo.git"]);
        run(false, &public, &["init", "-q", "-b", "main"]);
        run(false, &public, &["add", "file"]);
        run(false, &public, &["commit", "-q", "-m", "one"]);
        run(false, &public, &["push", "-q", "../repo.git", "main"]);
        let mut command = stage.maybe(with, &git);
        command.args([
            "-c",
            "safe.directory=*",
            "daemon",
            "--listen=127.0.0.1",
            "--export-all",
            "--reuseaddr",
        ]);
        command.arg(format!("--port={port}")).arg(format!("--base-path={}", folder.display()));
        command.arg("--enable=receive-pack").env("HOME", &folder).env("GIT_CONFIG_NOSYSTEM", "1");
        let _server = Server::start(&command, port);
        let url = format!("git://127.0.0.1:{port}/repo.git");
        run(with, &folder, &["clone", "-q", &url, "copy"]);
        let copy = folder.join("copy");
        fs::write(copy.join("more"), bytes(100_000)).unwrap();
        run(with, &copy, &["add", "more"]);
        run(with, &copy, &["commit", "-q", "-m", "two"]);
        run(with, &copy, &["push", "-q", "origin", "main"]);
        let said = run(with, &copy, &["ls-remote", &url]);
        Some(format!("{said}{}\n", is_whole(&copy.join("file"))))
    },
};

const MARIADB: App = App {
    program: "MariaDB",
    with: "its own client: tables, large answers, many statements",
    least: 0,
    remark: "it uses io_uring for its files; not with --innodb-use-native-aio=0",
    session: |stage, with| mariadb(stage, with, &[]),
};

const MARIADB_WITHOUT_URING: App = App {
    program: "MariaDB, --innodb-use-native-aio=0",
    with: "its own client: tables, large answers, many statements",
    least: 2,
    remark: "",
    session: |stage, with| mariadb(stage, with, &["--innodb-use-native-aio=0"]),
};

fn mariadb(stage: &Stage, with: bool, words: &[&str]) -> Option<String> {
    let (daemon, install) = (
        need_program("mariadbd", "mariadb-server-core")?,
        need_program("mariadb-install-db", "mariadb-server-core")?,
    );
    let client = need_program("mariadb", "mariadb-client-core")?;
    let port = free_port();
    let folder = stage.folder().join(format!("mariadb-{port}"));
    fs::create_dir_all(&folder).unwrap();
    let data = format!("--datadir={}", folder.join("data").display());
    let user = format!("--user={}", user_name());
    let quiet = ["--auth-root-authentication-method=normal", "--skip-test-db"];
    output(Command::new(install).args(["--no-defaults", &data, &user]).args(quiet));
    let mut command = stage.maybe(with, daemon);
    command.args(["--no-defaults", &data, &user, "--bind-address=127.0.0.1", "--skip-grant-tables"]);
    command.args(words);
    command.arg(format!("--port={port}")).arg(format!("--socket={}", folder.join("s").display()));
    let _server = Server::start(command.stderr(Stdio::null()), port);
    let ask = |statements: &str| {
        let mut command = stage.maybe(with, &client);
        command.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-N", "-P", &port.to_string()]);
        output(command.args(["-e", statements]))
    };
    let mut said = ask("create database d; use d; create table t (n int primary key, word varchar(64)); \
         insert into t select seq, md5(seq) from seq_1_to_20000; select count(*), md5(group_concat(word)) from t; \
         select * from t order by n");
    let many = (0..500).map(|n| format!("select word from d.t where n = {};", n * 37 + 1));
    said += &ask(&many.collect::<String>());
    Some(said)
}

/// Answers as long as asked for, and what was sent to it.
const PYTHON_APP: &str = r#"
import hashlib

def application(environ, start_response):
    length = int(environ.get('CONTENT_LENGTH') or 0)
    body = environ['wsgi.input'].read(length)
    answer = (environ['PATH_INFO'] + ' ' + hashlib.sha256(body).hexdigest() + '\n').encode() * int(environ['QUERY_STRING'])
    start_response('200 OK', [('Content-Length', str(len(answer)))])
    return [answer]

async def serve(scope, receive, send):
    if scope['type'] != 'http': return
    body = b''
    while True:
        part = await receive()
        body += part.get('body', b'')
        if not part.get('more_body'): break
    answer = (scope['path'] + ' ' + hashlib.sha256(body).hexdigest() + '\n').encode() * int(scope['query_string'])
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', str(len(answer)).encode())]})
    await send({'type': 'http.response.body', 'body': answer})
"#;

const PYTHON_CLIENT: &str = r#"
import asyncio, hashlib, httpx, sys
url = f'http://127.0.0.1:{sys.argv[1]}'
seen = hashlib.sha256()
with httpx.Client(trust_env=False, timeout=300) as client:
    for n in range(60):
        answer = client.post(f'{url}/{n}?{1 + n * n}', content=b'x' * (n * 5000))
        assert answer.status_code == 200; seen.update(answer.content)
async def main():
    async with httpx.AsyncClient(trust_env=False, timeout=300) as client:
        answers = await asyncio.gather(*[client.get(f'{url}/{n}?{n + 1}') for n in range(20)])
        for answer in answers: seen.update(answer.content)
asyncio.run(main())
print(seen.hexdigest())
"#;

/// Which interpreter has these modules.
fn need_modules(modules: &str, packages: &str) -> Option<&'static str> {
    let python = "/usr/bin/python3";
    let mut probe = Command::new(python);
    probe.args(["-c", &format!("import {modules}")]).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return Some(python);
    }
    skip(&format!("no Python modules {modules} (apt-get install {packages})"));
    None
}

fn python_web(stage: &Stage, with: bool, module: &str, words: &[&str]) -> Option<String> {
    let python = need_modules(&format!("httpx, {module}"), &format!("python3-httpx python3-{module}"))?;
    let port = free_port();
    let folder = stage.folder();
    fs::write(folder.join("app.py"), PYTHON_APP).unwrap();
    fs::write(folder.join("client.py"), PYTHON_CLIENT).unwrap();
    let mut command = stage.maybe(with, python);
    let port_text = port.to_string();
    command.args(["-m", module]).args(words.iter().map(|word| word.replace("PORT", &port_text)));
    command.current_dir(folder).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", folder);
    let _server = Server::start(&command, port);
    Some(output(stage.maybe(with, python).arg(folder.join("client.py")).arg(&port_text).current_dir(folder)))
}

const GUNICORN: App = App {
    program: "gunicorn",
    with: "httpx: processes and threads, connections kept open",
    least: 1,
    remark: "",
    session: |stage, with| {
        let words = "--log-level error -b 127.0.0.1:PORT -w 2 -k gthread --threads 4 --worker-tmp-dir . app:application";
        python_web(stage, with, "gunicorn", &words.split(' ').collect::<Vec<_>>())
    },
};

const UVICORN: App = App {
    program: "uvicorn",
    with: "httpx: one after the other, and many at once",
    least: 1,
    remark: "",
    session: |stage, with| {
        let words = "--log-level error --host 127.0.0.1 --port PORT app:serve";
        python_web(stage, with, "uvicorn", &words.split(' ').collect::<Vec<_>>())
    },
};

const APACHE: App = App {
    program: "Apache",
    with: "its event module; ab and curl: keep-alive, files",
    least: 4,
    remark: "",
    session: |stage, with| {
        let (apache, ab) = (need_program("apache2", "apache2-bin")?, need_program("ab", "apache2-utils")?);
        let port = free_port();
        let folder = site(stage, "apache", port);
        fs::write(folder.join("public/small"), "a small body\n").unwrap();
        let modules = ["mpm_event", "authz_core"]
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .concat();
        let user = if rustix::process::geteuid().is_root() { "User nobody\nGroup nogroup\n" } else { "" };
        let text = format!(
            "{modules}{user}Listen 127.0.0.1:{port}\nServerName here\nServerRoot {0}\nDocumentRoot {0}/public\n\
             PidFile {0}/pid\nErrorLog {0}/log\nDefaultRuntimeDir {0}\nMutex pthread\nEnableSendfile On\n\
             MaxKeepAliveRequests 0\n",
            folder.display()
        );
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = stage.maybe(with, apache);
        command.arg("-DFOREGROUND").arg("-f").arg(folder.join("conf"));
        let _server = Server::start(&command, port);
        let url = format!("http://127.0.0.1:{port}");
        let mut said = fetched(stage, with, &format!("{url}/file"))?;
        said += &curl(stage, with, &[], &format!("{url}/small"))?;
        let mut load = stage.maybe(with, ab);
        let words = output(load.args(["-k", "-q", "-n", "2000", "-c", "8"]).arg(format!("{url}/small")));
        let counts =
            words.lines().filter(|line| line.contains("requests:") || line.contains("Document Length"));
        Some(said + &counts.map(|line| format!("{line}\n")).collect::<String>())
    },
};

/// Its compiler's library enters the kernel by itself, so that the program's sockets are never seen.
const GO: App = App {
    program: "a Go program (Caddy)",
    with: "curl",
    least: 0,
    remark: "it enters the kernel past libc, so that its connections are never claimed; `viaduct run` says so",
    session: |stage, with| {
        let caddy = need_program("caddy", "caddy")?;
        let port = free_port();
        let folder = site(stage, "caddy", port);
        let mut command = stage.maybe(with, caddy);
        command.args(["file-server", "--listen", &format!("127.0.0.1:{port}"), "--root"]);
        command.arg(folder.join("public")).env("HOME", &folder).stderr(Stdio::null());
        let _server = Server::start(&command, port);
        fetched(stage, with, &format!("http://127.0.0.1:{port}/file"))
    },
};

/// Made with liburing, which enters the kernel by itself once a ring is made.
const URING: App = App {
    program: "a program with io_uring",
    with: "itself: a connection that was upgraded, then used through liburing, and through system calls by number",
    least: 2,
    remark: "its connections are moved back to TCP when it makes its first ring, and later ones stay there",
    session: |stage, with| {
        let gcc = need_program("gcc", "gcc")?;
        if !Path::new("/usr/include/liburing.h").exists() {
            skip("liburing.h not found (apt-get install liburing-dev)");
            return None;
        }
        let program = stage.folder().join("uring");
        let mut compile = Command::new(gcc);
        compile.args(["-O1", "-pthread", "-o"]).arg(&program).arg(source("c/uring.c"));
        output(compile.arg("-luring"));
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let mut said = String::new();
        for scenario in ["liburing", "number"] {
            said += &output(stage.maybe(with, &program).arg(scenario));
        }
        Some(said)
    },
};

#[test]
fn files_go_through_ssh_the_same() {
    SSH.compare();
}

#[test]
fn rsync_copies_the_same() {
    RSYNC.compare();
}

#[test]
fn git_clones_and_pushes_the_same() {
    GIT.compare();
}

#[test]
fn mariadb_answers_the_same() {
    MARIADB.compare();
    MARIADB_WITHOUT_URING.compare();
}

#[test]
fn gunicorn_answers_the_same() {
    GUNICORN.compare();
}

#[test]
fn uvicorn_answers_the_same() {
    UVICORN.compare();
}

#[test]
fn apache_serves_the_same() {
    APACHE.compare();
}

#[test]
fn a_go_program_is_served_over_plain_tcp() {
    GO.compare();
}

#[test]
fn a_go_program_runs_and_is_said_to_be_unaccelerated() {
    if !full() {
        return skip("many programs: cargo xtask test --full");
    }
    let _dog = Watchdog::arm(scaled(Duration::from_secs(120)), "a Go program");
    let (Some(caddy), Some(viaduct)) = (need_program("caddy", "caddy"), need_viaduct()) else { return };
    let ran = Command::new(viaduct).args(["run", "--"]).arg(caddy).arg("version").output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !ran.stdout.is_empty(), "{errors}");
    assert!(errors.contains("unaccelerated"), "{errors}");
}

#[test]
fn a_program_with_io_uring_gets_every_byte() {
    URING.compare();
}
