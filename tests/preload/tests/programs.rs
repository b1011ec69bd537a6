//! Programs of the system, unmodified: servers and clients with the library at both ends, at one, at none.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::packages::need_program;
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::upgraded;
use viaduct_preload_tests::compatibility::{Entry, Outcome, note};

use crate::AGENT;

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts it and waits until the port answers.
    fn start(mut command: Command, port: u16) -> Server {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Server(child);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "{command:?} has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}

fn dog() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(120)), "a program")
}

fn redis(stage: &Stage, with: bool, port: u16) -> Option<Server> {
    let program = need_program("redis-server", "redis-server")?;
    let mut command = stage.maybe(with, program);
    command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    command.current_dir(stage.folder());
    Some(Server::start(command, port))
}

fn redis_session(stage: &Stage, server: bool, client: bool) -> Option<String> {
    let port = free_port();
    let _server = redis(stage, server, port)?;
    let port = port.to_string();
    let cli = need_program("redis-cli", "redis-tools")?;
    let benchmark = need_program("redis-benchmark", "redis-tools")?;
    let mut said = String::new();
    for words in [
        "set key value",
        "get key",
        "incr n",
        "incrby n 41",
        "rpush list a b c",
        "lrange list 0 -1",
        "setrange long 300000 x",
        "strlen long",
        "get long",
        "config get maxmemory",
    ] {
        said += &output(stage.maybe(client, &cli).args(["-p", &port]).args(words.split(' ')));
    }
    for clients in ["1", "20"] {
        let mut load = stage.maybe(client, &benchmark);
        load.args(["-p", &port, "-c", clients, "-n", "1000", "-t", "set,get,mset", "-q", "--csv"]);
        // Times differ; the tests that were run do not.
        let names = output(&mut load);
        said.extend(names.lines().filter_map(|line| line.split(',').next()).map(|name| format!("{name}\n")));
    }
    said += &output(stage.maybe(client, &cli).args(["-p", &port, "dbsize"]));
    Some(said)
}

#[test]
fn redis_answers_the_same_with_the_library_at_both_ends_at_one_and_at_none() {
    let _dog = dog();
    let stage = Stage::new(&AGENT);
    let Some(plain) = redis_session(&stage, false, false) else { return };
    assert_eq!(redis_session(&stage, true, false), Some(plain.clone()));
    assert_eq!(redis_session(&stage, false, true), Some(plain.clone()));
    assert_eq!(stage.upgrades(), 0, "{}", stage.notes());
    assert_eq!(redis_session(&stage, true, true), Some(plain));
    // Of three tests with 1 and 20 clients nearly all connections see several requests.
    assert!(stage.upgrades() > 100, "{}", stage.notes());
    note(&Entry {
        program: "redis",
        with: "redis-cli, redis-benchmark with 1 and 20 clients",
        outcome: Outcome::Works,
        upgraded: upgraded(&stage.notes()).len(),
        remark: "",
    });
}

const PYTHON: &str = r#"
import asyncio, hashlib, socket, threading, sys

def blob(n): return b''.join(hashlib.sha256(str(i).encode()).digest() for i in range(n // 32))

async def main():
    async def serve(reader, writer):
        while True:
            head = await reader.read(4)
            if not head: break
            while len(head) < 4: head += await reader.readexactly(4 - len(head))
            body = await reader.readexactly(int.from_bytes(head, 'big'))
            writer.write(head + body[::-1]); await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    async def client(k):
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        seen = hashlib.sha256()
        for i in range(30):
            body = blob(32 * (1 + (i * k * 7919) % 4000))
            writer.write(len(body).to_bytes(4, 'big') + body); await writer.drain()
            n = int.from_bytes(await reader.readexactly(4), 'big')
            back = await reader.readexactly(n)
            assert back == body[::-1]
            seen.update(back)
        writer.close(); await writer.wait_closed()
        return seen.hexdigest()
    print('asyncio', await asyncio.gather(*[client(k) for k in range(1, 9)]))
    server.close(); await server.wait_closed()
asyncio.run(main())

listener = socket.create_server(('127.0.0.1', 0))
def answer():
    peer, _ = listener.accept()
    with peer, peer.makefile('rwb') as f:
        for line in f: f.write(line.upper()); f.flush()
thread = threading.Thread(target=answer); thread.start()
with socket.create_connection(listener.getsockname()) as s:
    f = s.makefile('rwb')
    for i in range(50):
        f.write(b'hello %d\n' % i); f.flush()
        assert f.readline() == b'HELLO %d\n' % i
    s.settimeout(0.05)
    try: s.recv(1)
    except TimeoutError: print('timeout')
    s.shutdown(socket.SHUT_WR); s.settimeout(None)
    print('end', s.recv(1))
    f.close()
thread.join(); print('threads')
"#;

#[test]
fn python_sockets_and_asyncio_work_in_one_process() {
    let _dog = dog();
    let Some(python) = need_program("python3", "python3") else { return };
    let stage = Stage::new(&AGENT);
    let script = stage.folder().join("script.py");
    fs::write(&script, PYTHON).unwrap();
    let plain = output(Command::new(&python).arg(&script));
    assert_eq!(output(stage.under(&python).arg(&script)), plain);
    assert!(stage.upgrades() >= 18, "{}", stage.notes());
}

/// Python's file server as `-m http.server` starts it, but connections live on after an answer.
const FILES: &str = r#"
import http.server as h, sys
h.test(h.SimpleHTTPRequestHandler, h.ThreadingHTTPServer, 'HTTP/1.1', int(sys.argv[1]), '127.0.0.1')
"#;

/// The file is fetched twice over one connection: the first answer may lie whole in the kernel's buffers before the client
/// looks, and a connection that ends there has no use for a ring; when the second request is sent both ends have come.
#[test]
fn curl_gets_the_same_file_from_a_python_server() {
    let _dog = dog();
    let (Some(python), Some(curl)) = (need_program("python3", "python3"), need_program("curl", "curl"))
    else {
        return;
    };
    let stage = Stage::new(&AGENT);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    fs::write(stage.folder().join("file"), &bytes).unwrap();
    for (server, client) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(stage.upgrades(), 0, "{}", stage.notes());
        let port = free_port();
        let mut command = stage.maybe(server, &python);
        command.args(["-c", FILES, &port.to_string()]).current_dir(stage.folder());
        let _server = Server::start(command, port);
        let targets = ["first", "second"].map(|name| stage.folder().join(name));
        let mut command = stage.maybe(client, &curl);
        command.args(["-sS", "--noproxy", "*", "-w", "%{num_connects} "]);
        for target in &targets {
            command.arg("-o").arg(target).arg(format!("http://127.0.0.1:{port}/file"));
        }
        assert_eq!(output(&mut command), "1 0 ", "one connection");
        for target in targets {
            assert!(fs::read(&target).unwrap() == bytes, "server {server}, client {client}, {target:?}");
            fs::remove_file(target).unwrap();
        }
    }
    assert!(stage.upgrades() > 0, "{}", stage.notes());
}

/// Nothing is ever sent in-band: what a plain server receives is what the program wrote.
#[test]
fn a_plain_peer_sees_not_one_byte_more() {
    let _dog = dog();
    let Some(curl) = need_program("curl", "curl") else { return };
    let stage = Stage::new(&AGENT);
    let seen = |with: bool| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                peer.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            peer.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello").unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            peer.read_to_end(&mut request).unwrap();
            request
        });
        let url = format!("http://{address}/x");
        let said = output(stage.maybe(with, &curl).args(["-sS", "--noproxy", "*", "-H", "Host: here", &url]));
        (said, server.join().unwrap())
    };
    assert_eq!(seen(true), seen(false));
    assert_eq!(stage.upgrades(), 0);
}

#[test]
fn connections_live_on_when_the_agent_is_killed() {
    let _dog = dog();
    let Some(python) = need_program("python3", "python3") else { return };
    let mut stage = Stage::new(&AGENT);
    let script = "
import os, socket, sys
a = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(a.getsockname()); s, _ = a.accept()
def turn(c, s):
    c.sendall(b'x' * 1000); assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
    s.sendall(b'y'); assert c.recv(1) == b'y'
for _ in range(8): turn(c, s)
print('up', flush=True); sys.stdin.readline()
for _ in range(100): turn(c, s)
c2 = socket.create_connection(a.getsockname()); s2, _ = a.accept()
for _ in range(8): turn(c2, s2)
print('done', flush=True)
";
    let mut command = stage.under(&python);
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut up = [0; 3];
    out.read_exact(&mut up).unwrap();
    assert_eq!(&up, b"up\n");
    assert!(stage.upgrades() >= 4, "{}", stage.notes());
    stage.kill_agent();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
    assert!(child.wait().unwrap().success());
}

/// Both ends in one process, and a second descriptor of one of them from before it was upgraded.
#[test]
fn a_duplicate_from_before_the_upgrade_is_the_same_end() {
    let _dog = dog();
    let Some(python) = need_program("python3", "python3") else { return };
    let stage = Stage::new(&AGENT);
    let script = "
import socket
a = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(a.getsockname()); s, _ = a.accept()
other = s.dup()
for _ in range(8):
    c.sendall(b'x' * 1000); assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
    s.sendall(b'y'); assert c.recv(1) == b'y'
other.send(b'other'); assert c.recv(100) == b'other'
c.send(b'back'); assert other.recv(100) == b'back'
s.close(); other.send(b'last'); other.close()
assert c.recv(100) == b'last' and c.recv(100) == b''
";
    output(stage.under(&python).args(["-c", script]));
    assert!(stage.upgrades() >= 4, "{}", stage.notes());
}
