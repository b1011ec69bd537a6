//! Streams beside native VIA and TCP, in one run: latency of a small message, and how fast a stream is.
//!
//! SOVIA, section 5.2. Two processes on two CPUs, rounds of every way in turn, the best of each counted:
//!
//! ```text
//!   compare [ring|messages|auto] [rounds]
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use viaduct_providers::config::{OfiConfig, ShmConfig};
use viaduct_sovia::{Config, Path as Bytes, Sovia, Step, Stream, Waiting};
use viaduct_via::{Descriptor, MemAttributes, Nic, Vi, ViAttributes};

const PINGS: usize = 20_000;
const LARGE: usize = 32 << 10;
const LARGES: usize = 4_000;
const SMALLS: usize = 200_000;
const WINDOW: usize = 32;

/// One way to move bytes, at one end.
trait Way {
    fn send(&mut self, bytes: &[u8]);
    /// All bytes of `into`, which are read.
    fn receive(&mut self, into: &mut [u8]);
    /// Nothing is held back any more.
    fn push(&mut self) {}
}

struct Native {
    nic: Nic,
    vi: Vi,
    free: Vec<Descriptor>,
    sent: usize,
    got: usize,
}

impl Native {
    /// Two receives of a buffer each beyond the window, for the words that open it.
    fn new(folder: &Path, server: bool) -> Native {
        let mut nic = Nic::open(provider(folder)).unwrap();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        let memory = MemAttributes::local(tag);
        for buffer in nic.alloc((WINDOW + 2) * LARGE, memory).unwrap().chunks(LARGE) {
            nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        let free = nic.alloc(4 * LARGE, memory).unwrap().chunks(LARGE);
        let free = free.into_iter().map(Descriptor::send).collect();
        if server {
            let at = nic.listen(&"native".parse().unwrap(), 1).unwrap();
            say("native");
            let request = loop {
                if let Some(request) = nic.poll_listener(at).unwrap() {
                    break request;
                }
            };
            nic.accept(request, vi).unwrap();
        } else {
            nic.connect_request(vi, &"native".parse().unwrap(), None).unwrap();
        }
        Native { nic, vi, free, sent: 0, got: 0 }
    }

    fn take(&mut self) -> (Descriptor, usize) {
        loop {
            if let Some(done) = self.nic.poll_recv(self.vi).unwrap() {
                return (done.descriptor, done.length as usize);
            }
            std::hint::spin_loop();
        }
    }
}

impl Way for Native {
    fn send(&mut self, bytes: &[u8]) {
        if bytes.len() > 104 {
            // A window of half the receives at a time.
            if self.sent == WINDOW / 2 {
                let (descriptor, _) = self.take();
                self.nic.post_recv(self.vi, descriptor).unwrap();
                self.sent = 0;
            }
            self.sent += 1;
        }
        while let Some(done) = self.nic.poll_send(self.vi).unwrap() {
            self.free.push(done.descriptor);
        }
        let mut descriptor = loop {
            if let Some(descriptor) = self.free.pop() {
                break descriptor;
            }
            if let Some(done) = self.nic.poll_send(self.vi).unwrap() {
                break done.descriptor;
            }
        };
        // The bytes are in registered memory already, as native programs have them; only small ones change.
        if bytes.len() <= 8 {
            descriptor.write(0, 0, bytes);
        }
        descriptor.set_len(bytes.len());
        self.nic.post_send(self.vi, descriptor).unwrap();
    }

    fn receive(&mut self, into: &mut [u8]) {
        let (mut descriptor, mut len) = self.take();
        // A word that opened a window no writer waited for.
        while len == 1 {
            self.nic.post_recv(self.vi, descriptor).unwrap();
            (descriptor, len) = self.take();
        }
        assert_eq!(len, into.len());
        descriptor.buffers()[0].read(0, into);
        self.nic.post_recv(self.vi, descriptor).unwrap();
        if len > 104 {
            self.got += 1;
            if self.got.is_multiple_of(WINDOW / 2) {
                self.nic.send_inline(self.vi, &[1], None).unwrap();
            }
        }
    }
}

impl Way for Stream {
    fn send(&mut self, bytes: &[u8]) {
        self.write_all(bytes).unwrap();
    }

    fn receive(&mut self, into: &mut [u8]) {
        self.read_exact(into).unwrap();
    }

    fn push(&mut self) {
        self.flush().unwrap();
    }
}

impl Way for TcpStream {
    fn send(&mut self, bytes: &[u8]) {
        self.write_all(bytes).unwrap();
    }

    fn receive(&mut self, into: &mut [u8]) {
        self.read_exact(into).unwrap();
    }
}

fn provider(folder: &Path) -> Box<dyn viaduct_via::provider::Provider> {
    let shm = ShmConfig { runtime_dir: Some(folder.to_owned()), ..ShmConfig::default() };
    let bind = std::env::var("BIND").map_or(std::net::Ipv4Addr::LOCALHOST, |b| b.parse().unwrap());
    let ofi =
        OfiConfig { runtime_dir: Some(folder.to_owned()), bind: Some(bind.into()), ..Default::default() };
    let config = viaduct_providers::Config { shm, ofi, ..Default::default() };
    let name = std::env::var("PROVIDER").unwrap_or_else(|_| "shm".into());
    viaduct_providers::open(&name, &config).unwrap()
}

fn config(name: &str) -> Config {
    let ring = std::env::var("RING").ok().and_then(|r| r.parse().ok()).unwrap_or(Config::default().ring);
    let plain = Config { waiting: Waiting::Polling, ring, ..Config::default() };
    match name {
        "sovia, no combining" => Config { combining: false, ..plain },
        "sovia, blocking" => Config::default(),
        "sovia, ring" => Config { path: Bytes::Ring, ..plain },
        "sovia, messages" => Config { path: Bytes::Messages, ..plain },
        name => match Step::ALL.into_iter().find(|s| s.name() == name) {
            Some(step) => Config { waiting: Waiting::Polling, ..Config::step(step) },
            None => plain,
        },
    }
}

fn stream(folder: &Path, name: &'static str, server: bool) -> Box<dyn Way> {
    let sovia = Sovia::open(Nic::open(provider(folder)).unwrap(), config(name)).unwrap();
    if server {
        let listener = sovia.listen("via://:7000", 1).unwrap();
        say("listening");
        return Box::new(listener.accept().unwrap());
    }
    Box::new(sovia.connect("via://:7000").unwrap())
}

fn tcp(folder: &Path, server: bool) -> Box<dyn Way> {
    let at = folder.join("tcp.port");
    let stream = if server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        std::fs::write(&at, listener.local_addr().unwrap().port().to_string()).unwrap();
        say("listening");
        listener.accept().unwrap().0
    } else {
        let port: u16 = std::fs::read_to_string(&at).unwrap().parse().unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap()
    };
    stream.set_nodelay(true).unwrap();
    Box::new(stream)
}

const WAYS: [&str; 7] =
    ["native", "sovia", "sovia, no combining", "sovia, blocking", "sovia, messages", "sovia, ring", "tcp"];

fn open(way: &'static str, folder: &Path, server: bool) -> Box<dyn Way> {
    match way {
        "native" => Box::new(Native::new(folder, server)),
        "tcp" => tcp(folder, server),
        name => stream(folder, name, server),
    }
}

/// Nanoseconds one way, megabytes a second, and nanoseconds for each message of a stream of small ones.
fn drive(way: &mut dyn Way, native: bool) -> [f64; 3] {
    let mut small = [0; 8];
    let mut ping = |count: usize| {
        let start = Instant::now();
        for _ in 0..count {
            way.send(&[1; 8]);
            way.receive(&mut small);
        }
        start.elapsed().as_nanos() as f64 / count as f64 / 2.0
    };
    ping(PINGS / 10);
    let latency = ping(PINGS);
    let bytes = vec![7; LARGE];
    let start = Instant::now();
    for _ in 0..LARGES {
        way.send(&bytes);
    }
    way.push();
    way.receive(&mut small);
    let bandwidth = (LARGES * LARGE) as f64 / start.elapsed().as_secs_f64() / 1e6;
    let start = Instant::now();
    if !native {
        for _ in 0..SMALLS {
            way.send(&[1; 8]);
        }
        way.push();
        way.receive(&mut small);
    }
    let each = start.elapsed().as_nanos() as f64 / SMALLS as f64;
    way.send(&small);
    way.push();
    [latency, bandwidth, each]
}

fn answer(way: &mut dyn Way, native: bool) {
    let mut small = [0; 8];
    for _ in 0..PINGS / 10 + PINGS {
        way.receive(&mut small);
        way.send(&small);
    }
    let mut bytes = vec![0; LARGE];
    for _ in 0..LARGES {
        way.receive(&mut bytes);
    }
    way.send(&small);
    way.push();
    if !native {
        let mut bytes = vec![0; 4096];
        for _ in 0..SMALLS * 8 / bytes.len() {
            way.receive(&mut bytes);
        }
        way.receive(&mut bytes[..SMALLS * 8 % 4096]);
        way.send(&small);
        way.push();
    }
    // The end that closes first has sent all it had to.
    way.receive(&mut small);
}

fn say(what: &str) {
    println!("{what}");
    std::io::stdout().flush().unwrap();
}

/// Both ends in one thread: for counting instructions.
fn count(folder: &Path, way: &'static str, rounds: usize) {
    let open = || Sovia::open(Nic::open(provider(folder)).unwrap(), config(way)).unwrap();
    let (server, client) = (open(), open());
    let listener = server.listen("via://:7000", 1).unwrap();
    let mut one = client.connect("via://:7000").unwrap();
    let mut other = listener.accept().unwrap();
    let mut small = [0; 8];
    for _ in 0..rounds {
        one.send(&[1; 8]);
        one.push();
        other.receive(&mut small);
        other.send(&small);
        other.push();
        one.receive(&mut small);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(5);
    let ways: Vec<&'static str> = WAYS
        .into_iter()
        .filter(|w| std::env::var("WAYS").map_or(true, |v| v.split(';').any(|x| x == *w)))
        .collect();
    if let Some(folder) = args.iter().position(|a| a == "--server").map(|at| args[at + 1].clone()) {
        let _ = viaduct_os::cpu::pin(1);
        for _ in 0..rounds {
            for way in &ways {
                answer(&mut *open(way, folder.as_ref(), true), *way == "native");
            }
        }
        return;
    }
    if let Ok(way) = std::env::var("COUNT") {
        let folder = std::env::temp_dir().join(format!("sovia-count-{}", std::process::id()));
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&folder)
            .unwrap();
        count(&folder, if way == "combine" { "sovia" } else { "sovia, no combining" }, rounds);
        std::fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let folder = std::env::temp_dir().join(format!("sovia-compare-{}", std::process::id()));
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&folder).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--server", folder.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = viaduct_os::cpu::pin(0);
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    let mut best = vec![[f64::MAX, 0.0, f64::MAX]; ways.len()];
    for _ in 0..rounds {
        for (at, way) in ways.iter().enumerate() {
            said.next().unwrap().unwrap();
            if *way == "native" {
                // It listens, and is about to look.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let [latency, bandwidth, small] = drive(&mut *open(way, &folder, false), *way == "native");
            let best = &mut best[at];
            *best = [best[0].min(latency), best[1].max(bandwidth), best[2].min(small)];
        }
    }
    server.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{:22} {:>14} {:>14} {:>14}", "", "8 B one way ns", "32 KiB MB/s", "8 B stream ns");
    for (way, [latency, bandwidth, small]) in ways.iter().zip(&best) {
        let of = |n: f64, first: f64| format!("{n:9.0} x{:.2}", n / first);
        println!(
            "{way:22} {:>14} {:>14} {:>14}",
            of(*latency, best[0][0]),
            of(*bandwidth, best[0][1]),
            format!("{small:.1}")
        );
    }
}
