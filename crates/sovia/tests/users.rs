//! Streams between processes that do not map each other's memory: of two users, and of one user that keeps its memory to
//! itself. Bytes come as messages there, because every write into a ring would be carried out by the other's control thread.

use crate::world;

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::unprivileged::NOBODY;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::{OtherUsers, ShmConfig};
use viaduct_sovia::{Config, Path, Sovia, Stream};
use viaduct_via::Nic;
use world::{World, hasty, patient};

const LIMIT: Duration = Duration::from_secs(60);
/// Users that own nothing: the kernel asks for no entry in a list.
const HERE: u32 = 61_003;
const THERE: u32 = 61_004;
/// From what fits into a ring entry to several windows.
const SIZES: [usize; 6] = [1, 104, 105, 40_000, 300_000, 3 << 20];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Sends each size, and reads it back from a peer that echoes.
fn ask(stream: &Stream) {
    for len in SIZES {
        let bytes = pattern(len);
        let mut got = vec![0; len];
        thread::scope(|scope| {
            scope.spawn(|| {
                (&*stream).write_all(&bytes).unwrap();
                (&*stream).flush().unwrap();
            });
            (&*stream).read_exact(&mut got).unwrap();
        });
        assert!(got == bytes, "{len}: other bytes came back");
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&*stream).read(&mut [0]).unwrap(), 0);
}

fn echo(stream: &Stream) {
    let mut bytes = vec![0; 1 << 20];
    loop {
        match (&*stream).read(&mut bytes).unwrap() {
            0 => return stream.shutdown(Shutdown::Write).unwrap(),
            n => {
                (&*stream).write_all(&bytes[..n]).unwrap();
                (&*stream).flush().unwrap();
            }
        }
    }
}

/// The path at both ends of a stream between two libraries of one process, after an exchange.
fn paths(world: &mut World, path: Path, isolate: [bool; 2]) -> [Option<Path>; 2] {
    let config = hasty(&Config { path, ..Config::default() });
    let [server, client] = isolate.map(|isolate| {
        world.shm(|shm| shm.isolate = isolate);
        world.open(&config)
    });
    let listener = server.listen("paths", 1).unwrap();
    let asking = client.connect("paths").unwrap();
    let answering = listener.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&answering));
        ask(&asking);
    });
    [&asking, &answering].map(Stream::path)
}

#[test]
fn a_stream_takes_the_ring_only_where_memory_is_mapped() {
    let _watchdog = Watchdog::arm(scaled(LIMIT), "paths");
    // Server and client.
    for (isolate, path, wanted) in [
        ([false, false], Path::Auto, Path::Ring),
        ([true, true], Path::Auto, Path::Messages),
        ([true, false], Path::Auto, Path::Messages),
        ([false, true], Path::Auto, Path::Messages),
        ([true, true], Path::Ring, Path::Ring),
        ([false, false], Path::Messages, Path::Messages),
    ] {
        let mut world = World::new("shm");
        assert_eq!(paths(&mut world, path, isolate), [Some(wanted); 2], "isolate {isolate:?}, {path:?}");
    }
}

fn open(args: &[String]) -> Sovia {
    let shm = ShmConfig {
        runtime_dir: Some(PathBuf::from(&args[1])),
        other_users: OtherUsers::Everybody,
        ..ShmConfig::default()
    };
    let mut config = viaduct_providers::Config { shm, ..Default::default() };
    let token = viaduct_providers::config::KNOBS.iter().find(|k| k.name == "ofi.token").unwrap();
    (token.set)(&mut config, &args[2]).unwrap();
    let nic = Nic::open(viaduct_providers::open(&args[0], &config).unwrap()).unwrap();
    Sovia::open(nic, patient(&Config::default())).unwrap()
}

viaduct_kit::child!(SERVER, |args| {
    let sovia = open(args);
    let listener = sovia.listen("users", 4).unwrap();
    say("listening");
    let stream = listener.accept().unwrap();
    echo(&stream);
    say(format!("path {:?}", stream.path()));
    hear();
});

viaduct_kit::child!(CLIENT, |args| {
    let sovia = open(args);
    let stream = sovia.connect("users").unwrap();
    let provider = stream.provider();
    ask(&stream);
    say(format!("path {:?} by {provider:?}", stream.path()));
});

fn start(program: &viaduct_kit::child::Program, user: u32, args: &[&str]) -> Child {
    let mut command = program.command(args);
    command.uid(user).gid(NOBODY).env("TMPDIR", "/tmp");
    Child::start(program.name(), command)
}

#[test]
fn a_stream_between_users_takes_messages() {
    if !viaduct_kit::packages::need_root() {
        return;
    }
    let _watchdog = Watchdog::arm(scaled(LIMIT) * 2, "users");
    let all = TempDir::new("sovia-users");
    all.open_to_all();
    let folder = |user: u32| {
        let path = all.join(user.to_string());
        if !path.exists() {
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            chown(&path, Some(user), Some(user)).unwrap();
        }
        path.to_str().unwrap().to_owned()
    };
    let token = "c5".repeat(32);
    // Between users, and for comparison within one.
    for (client, wanted) in [(HERE, "Messages"), (THERE, "Ring")] {
        for provider in ["shm", "auto"] {
            let mut server = start(&SERVER, THERE, &[provider, &folder(THERE), &token]);
            server.expect_line("listening", scaled(LIMIT));
            let mut asking = start(&CLIENT, client, &[provider, &folder(client), &token]);
            let said = asking.expect_line("path ", scaled(LIMIT));
            assert_eq!(said, format!("Some({wanted}) by Some(\"shm\")"));
            assert_eq!(server.expect_line("path ", scaled(LIMIT)), format!("Some({wanted})"));
            asking.finish(scaled(LIMIT));
            server.kill();
        }
    }
}
