//! Streams between hosts, which are network namespaces here: what goes wrong there ends in bounded time.
//!
//! The item 5 (peer killed, link cut, no listener), over ofi:tcp alone and as `auto` chooses it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::effort::scaled;
use viaduct_kit::hosts::Hosts;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::{OfiConfig, ShmConfig};
use viaduct_sovia::{Config, Sovia, Stream};
use viaduct_via::Nic;

const LIMIT: Duration = Duration::from_secs(120);

/// Each host has a run-time folder of its own, and all have the token.
fn library(provider: &str, folder: &Path, token: &Path) -> Sovia {
    let silence = scaled(Duration::from_secs(3));
    let ofi = OfiConfig {
        runtime_dir: Some(folder.to_owned()),
        token_file: Some(token.to_owned()),
        heartbeat: silence / 4,
        silence,
        ..OfiConfig::default()
    };
    let shm = ShmConfig { runtime_dir: Some(folder.to_owned()), ..ShmConfig::default() };
    let provider =
        viaduct_providers::open(provider, &viaduct_providers::Config { shm, ofi, ..Default::default() })
            .unwrap();
    // At the end of a test the other side may be out of reach.
    let config = Config { exit_limit: Duration::from_millis(50), ..Config::default() };
    Sovia::open(Nic::open(provider).unwrap(), config).unwrap()
}

// Echoes on one connection.
viaduct_kit::child!(ECHO, |args| {
    let sovia = library(&args[0], args[1].as_ref(), args[2].as_ref());
    let listener = sovia.listen("via://:7000", 4).unwrap();
    say("listening");
    let mut stream = listener.accept_timeout(scaled(LIMIT)).unwrap();
    let mut buffer = vec![0; 100_000];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => say("ended"),
            Ok(n) => match stream.write_all(&buffer[..n]).and_then(|()| stream.flush()) {
                Ok(()) => continue,
                Err(e) => say(format!("failed {:?}", e.kind())),
            },
            Err(e) => say(format!("failed {:?}", e.kind())),
        }
        break;
    }
    drop(stream);
    let _ = hear();
});

struct Scene {
    stream: Stream,
    sovia: Sovia,
    server: Child,
    // Last, so that no process is in it any more.
    hosts: Hosts,
    folder: TempDir,
}

/// A stream to a host of its own, over which an echo has come back.
fn scene(provider: &str) -> Option<Scene> {
    if let Err(error) = viaduct_providers::open("ofi:tcp", &Default::default()) {
        viaduct_kit::packages::skip(&format!("ofi:tcp cannot be used: {error}"));
        return None;
    }
    let hosts = Hosts::new(1)?;
    let folder = TempDir::new("sovia-hosts");
    let token = folder.join("token");
    std::fs::write(&token, "5a".repeat(32)).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let (here, there) = (folder.join("here"), folder.join("there"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let mut command = ECHO.command(&[provider, &text(&there), &text(&token)]);
    hosts.enter(0, &mut command);
    let mut server = Child::start(ECHO.name(), command);
    server.expect_line("listening", scaled(LIMIT));
    let sovia = library(provider, &here, &token);
    let mut stream = sovia.connect(&format!("via://{}:7000", hosts.address(0))).unwrap();
    assert_eq!(stream.provider(), Some("ofi:tcp"));
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 5) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&bytes).unwrap();
            writer.flush().unwrap();
        });
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == bytes, "other bytes came back");
    });
    drop(writer);
    assert!(sovia.activity().lent > 0, "long requests leave from where they lie, in messages");
    Some(Scene { stream, sovia, server, hosts, folder })
}

#[test]
fn an_echo_and_an_end_in_good_order() {
    for provider in ["ofi:tcp", "auto"] {
        let _watchdog = Watchdog::arm(LIMIT, provider);
        let Some(mut scene) = scene(provider) else { return };
        scene.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(scene.stream.read(&mut [0; 8]).unwrap(), 0);
        scene.server.expect_line("ended", scaled(LIMIT));
    }
}

/// The path of the bytes is chosen for each connection.
#[test]
fn one_library_has_a_ring_here_and_messages_there() {
    let _watchdog = Watchdog::arm(LIMIT, "both paths");
    let Some(mut scene) = scene("auto") else { return };
    let lent = scene.sovia.activity().lent;
    let listener = scene.sovia.listen("via://:7100", 1).unwrap();
    let token = scene.folder.join("token");
    let neighbour = library("auto", &scene.folder.join("here"), &token);
    let mut local = neighbour.connect("via://:7100").unwrap();
    let mut other = listener.accept_timeout(scaled(LIMIT)).unwrap();
    assert_eq!((local.provider(), other.provider()), (Some("shm"), Some("shm")));
    for round in 0..20u8 {
        let bytes = vec![round; 50_000];
        let mut back = vec![0; bytes.len()];
        // The one waits in the other's ring while the far one goes to and fro.
        other.write_all(&bytes).unwrap();
        scene.stream.write_all(&bytes).unwrap();
        scene.stream.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
        local.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
    }
    assert_eq!(neighbour.activity().lent, 0);
    // Two packets of a far request, and none of a near one.
    assert_eq!(scene.sovia.activity().lent, lent + 40);
}

#[test]
fn a_killed_peer_on_another_host_is_noticed() {
    let _watchdog = Watchdog::arm(LIMIT, "a killed peer");
    let Some(mut scene) = scene("ofi:tcp") else { return };
    scene.server.kill();
    assert_eq!(scene.stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(scene.stream.write(&[0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(scene.stream);
    assert_eq!(scene.sovia.activity().open, 0);
}

/// A writer whose request is lent and does not get on is not kept, and its memory is its own again.
#[test]
fn a_loan_comes_back_from_a_peer_that_is_gone() {
    for cut in [false, true] {
        let _watchdog = Watchdog::arm(LIMIT, "a loan");
        let Some(mut scene) = scene("ofi:tcp") else { return };
        let lent = scene.sovia.activity().lent;
        scene.server.stop();
        std::thread::scope(|scope| {
            let (writer, sovia) = (&scene.stream, &scene.sovia);
            let writing = scope.spawn(move || {
                let mut writer = writer;
                let mut bytes = vec![7; 8 << 20];
                // More than the ways there can hold.
                let error = (0..8).find_map(|_| writer.write_all(&bytes).err());
                bytes.fill(8);
                error.map(|e| e.kind())
            });
            while sovia.activity().lent < lent + 8 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!writing.is_finished(), "the peer does not read, and all was taken");
            if cut {
                scene.hosts.cut(0);
            } else {
                scene.server.kill();
            }
            let kind = writing.join().unwrap();
            assert_eq!(kind, Some(ErrorKind::ConnectionReset), "cut: {cut}");
        });
        drop(scene.stream);
        assert_eq!(scene.sovia.activity().open, 0);
    }
}

#[test]
fn a_cut_link_ends_both_ends() {
    let _watchdog = Watchdog::arm(LIMIT, "a cut link");
    let Some(mut scene) = scene("ofi:tcp") else { return };
    scene.hosts.cut(0);
    // Neither is told of anything; both find out.
    assert_eq!(scene.stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    scene.server.expect_line("failed ConnectionReset", scaled(LIMIT));
    drop(scene.stream);
    assert_eq!(scene.sovia.activity().open, 0);
}

#[test]
fn an_address_without_listener_on_another_host_is_an_error() {
    let _watchdog = Watchdog::arm(LIMIT, "no listener");
    let Some(scene) = scene("ofi:tcp") else { return };
    let to = [
        format!("via://{}:7001", scene.hosts.address(0)),
        format!("via://{}:1", scene.hosts.unused_address()),
    ];
    for to in to {
        let error = scene.sovia.connect_timeout(&to, scaled(Duration::from_secs(2))).err().unwrap();
        let kind = io::Error::from(error).kind();
        let known = [ErrorKind::ConnectionRefused, ErrorKind::TimedOut, ErrorKind::HostUnreachable];
        assert!(known.contains(&kind), "{to}: {kind:?}");
    }
    assert_eq!(scene.sovia.activity().open, 1);
}
