//! Between hosts: several network namespaces on one machine, links that are cut, addresses without a host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use viaduct_kit::child::{Child, say};
use viaduct_kit::effort::rounds;
use viaduct_kit::hosts::{Bad, Hosts};
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::{OfiConfig, ShmConfig};
use viaduct_providers::{Config, ofi, open};
use viaduct_via::{
    Descriptor, Error, MemAttributes, NetAddress, Nic, ProtectionTag, RemoteAddress, Status, Vi,
    ViAttributes, ViState,
};

const LIMIT: Duration = Duration::from_secs(120);
const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// Each host has a run-time folder of its own, and all have the token.
fn nic(folder: &Path, token: &Path, silence: Duration) -> (Nic, ProtectionTag) {
    let ofi = OfiConfig {
        runtime_dir: Some(folder.to_owned()),
        token_file: Some(token.to_owned()),
        heartbeat: silence / 4,
        silence,
        ..OfiConfig::default()
    };
    let shm = ShmConfig { runtime_dir: Some(folder.to_owned()), ..ShmConfig::default() };
    let mut nic = Nic::open(open("auto", &Config { shm, ofi, ..Config::default() }).unwrap()).unwrap();
    let tag = nic.create_ptag().unwrap();
    (nic, tag)
}

/// A token as a user would make it.
fn secret() -> String {
    (0..32).map(|_| format!("{:02x}", viaduct_os::random::u32() as u8)).collect()
}

// Serves one connection after another, until told to end: echoes messages, lends a word.
viaduct_kit::child!(SERVER, |args| {
    let silence = Duration::from_millis(args[2].parse().unwrap());
    let (mut nic, tag) = nic(Path::new(&args[0]), Path::new(&args[1]), silence);
    let word = nic.alloc(8, MemAttributes::remote(tag)).unwrap();
    let listener = nic.listen(&"meeting".parse().unwrap(), 4).unwrap();
    say(format!("word {} {}", word.remote(0).addr, word.remote(0).handle.number()));
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    loop {
        for _ in 0..8 {
            let buffer = nic.alloc(100_000, MemAttributes::local(tag)).unwrap();
            nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        let Ok(request) = nic.wait_listener(listener, LONG) else { return };
        if nic.accept(request, vi).is_err() {
            continue;
        }
        say("connected");
        loop {
            let Ok(got) = nic.wait_recv_outcome(vi, LONG) else { return };
            if got.status() != Status::Success {
                break;
            }
            let data = got.0.data();
            let mut answer = nic.alloc(data.len(), MemAttributes::local(tag)).unwrap();
            answer.write(0, &data);
            let _ = nic.post_recv(vi, got.0.descriptor);
            let _ = nic.post_send(vi, Descriptor::send(answer));
            while let Ok(Some(_)) = nic.poll_send(vi) {}
        }
        say(format!("ended {:?}", nic.query_vi(vi).unwrap().state));
        nic.disconnect(vi).unwrap();
        while let Ok(Some(_)) = nic.poll_recv(vi) {}
        while let Ok(Some(_)) = nic.poll_send(vi) {}
    }
});

struct Scene {
    nic: Nic,
    tag: ProtectionTag,
    server: Child,
    word: RemoteAddress,
    to: NetAddress,
    // Last, so that no process is in it any more.
    hosts: Hosts,
    _folder: TempDir,
}

fn scene(silence: Duration) -> Option<Scene> {
    if let Err(e) = ofi::find(&OfiConfig::default()) {
        skip(&e.to_string());
        return None;
    }
    let hosts = Hosts::new(1)?;
    let folder = TempDir::new("hosts");
    let token = folder.join("token");
    fs::write(&token, secret()).unwrap();
    fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let (here, there) = (folder.join("here"), folder.join("there"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let mut command = SERVER.command(&[&text(&there), &text(&token), &silence.as_millis().to_string()]);
    hosts.enter(0, &mut command);
    let mut server = Child::start(SERVER.name(), command);
    let line = server.expect_line("word ", LIMIT);
    let (addr, handle) = line.split_once(' ').unwrap();
    let handle = viaduct_via::MemHandle::from_number(handle.parse().unwrap());
    let word = RemoteAddress { addr: addr.parse().unwrap(), handle };
    let (nic, tag) = nic(&here, &token, silence);
    let to = format!("{}/meeting", hosts.address(0)).parse().unwrap();
    Some(Scene { nic, tag, server, word, to, hosts, _folder: folder })
}

impl Scene {
    fn connect(&mut self, vi: Vi) {
        for _ in 0..4 {
            let buffer = self.nic.alloc(100_000, MemAttributes::local(self.tag)).unwrap();
            self.nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        self.nic.connect_request(vi, &self.to.clone(), LONG).unwrap();
        self.server.expect_line("connected", LIMIT);
        assert_eq!(self.nic.query_vi(vi).unwrap().provider, Some("ofi:tcp"), "another host");
    }

    fn send(&mut self, vi: Vi, len: usize) {
        let buffer = self.nic.alloc(len, MemAttributes::local(self.tag)).unwrap();
        self.nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    }

    fn echo(&mut self, vi: Vi, len: usize) {
        self.send(vi, len);
        assert_eq!(self.nic.wait_send_outcome(vi, LONG).unwrap().status(), Status::Success);
        assert_eq!(self.nic.wait_recv(vi, LONG).unwrap().length as usize, len);
    }
}

#[test]
fn two_hosts_exchange_messages_and_memory() {
    let _watchdog = Watchdog::arm(LIMIT, "two hosts");
    let Some(mut s) = scene(Duration::from_secs(20)) else { return };
    let vi = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
    s.connect(vi);
    for len in [1, 5000, 100_000] {
        s.echo(vi, len);
    }
    for n in 0..3u64 {
        let old = s.nic.alloc(8, MemAttributes::local(s.tag)).unwrap();
        s.nic.post_send(vi, Descriptor::fetch_add(old, s.word, 5)).unwrap();
        let done = s.nic.wait_send_outcome(vi, LONG).unwrap().0;
        assert_eq!((done.status, done.data()), (Status::Success, (n * 5).to_ne_bytes().to_vec()));
    }
    s.nic.disconnect(vi).unwrap();
    s.server.expect_line("ended Error", LIMIT);
}

#[test]
fn a_missing_host_and_a_missing_name_are_different_errors() {
    let _watchdog = Watchdog::arm(LIMIT, "a missing host");
    let Some(mut s) = scene(Duration::from_secs(20)) else { return };
    let vi = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
    let stranger = format!("{}/stranger", s.hosts.address(0)).parse().unwrap();
    let told = s.nic.connect_request(vi, &stranger, None);
    assert!(matches!(told, Err(Error::NoMatch(_))), "{told:?}");
    let nowhere = format!("{}/meeting", s.hosts.unused_address()).parse().unwrap();
    let told = s.nic.connect_request(vi, &nowhere, None);
    assert!(matches!(told, Err(Error::NotReachable(_))), "{told:?}");
}

/// What a bad link does to packets is not seen above TCP: every message comes once, in order, as it was sent.
fn over_a_bad_link(bad: Bad, rounds: u64) {
    let _watchdog = Watchdog::arm(4 * LIMIT, "a bad link");
    let Some(mut s) = scene(Duration::from_secs(60)) else { return };
    let vi = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
    s.connect(vi);
    if !s.hosts.spoil(0, bad) {
        return;
    }
    let mut sent = 0usize;
    // Until the link has done its worst, as luck will have it.
    while (sent as u64) < rounds || s.hosts.spoilt_packets(0) == 0 {
        assert!((sent as u64) < 20 * rounds, "the link is a good one");
        let len = [8, 3000, 100_000][sent % 3];
        let content: Vec<u8> = (0..len).map(|n| (n * 7 + sent) as u8).collect();
        let mut buffer = s.nic.alloc(len, MemAttributes::local(s.tag)).unwrap();
        buffer.write(0, &content);
        s.nic.post_send(vi, Descriptor::send(buffer)).unwrap();
        assert_eq!(s.nic.wait_send_outcome(vi, LONG).unwrap().status(), Status::Success);
        let back = s.nic.wait_recv_outcome(vi, LONG).unwrap().0;
        assert_eq!(back.status, Status::Success, "message {sent}");
        assert!(back.data() == content, "message {sent} is another one");
        s.nic.post_recv(vi, back.descriptor).unwrap();
        sent += 1;
    }
    s.hosts.unspoil(0);
    assert!(matches!(s.nic.poll_recv(vi), Ok(None)), "nothing came twice");
    s.nic.disconnect(vi).unwrap();
    s.server.expect_line("ended Error", LIMIT);
}

#[test]
fn a_link_that_loses_packets_loses_no_message() {
    over_a_bad_link(Bad::Loses { percent: 3 }, rounds(24, 600));
}

#[test]
fn a_link_that_doubles_packets_doubles_no_message() {
    over_a_bad_link(Bad::Doubles { percent: 30 }, rounds(60, 3000));
}

#[test]
fn a_slow_link_carries_everything() {
    over_a_bad_link(Bad::Slow { kbytes: 150 }, rounds(9, 60));
}

/// Cut after cut, with messages under way: each is noticed by both ends, everything comes back once, nothing is left.
#[test]
fn a_cut_link_is_noticed_and_everything_comes_back() {
    let _watchdog = Watchdog::arm(10 * LIMIT, "cut links");
    let Some(mut s) = scene(Duration::from_millis(400)) else { return };
    let vi = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
    let mut leaks = None;
    for round in 0..rounds(4, 100) {
        s.connect(vi);
        s.echo(vi, 100);
        s.hosts.cut(0);
        for n in 0..20 {
            s.send(vi, 1 + n * 4000);
        }
        let back = (0..20).map(|_| s.nic.wait_send_outcome(vi, LONG).unwrap().status());
        assert!(back.filter(|status| *status == Status::Flushed).count() > 0, "more than fits was sent");
        for _ in 0..3 {
            assert_eq!(s.nic.wait_recv_outcome(vi, LONG).unwrap().status(), Status::Flushed);
        }
        assert!(matches!(s.nic.wait_recv(vi, LONG), Err(Error::QueueEmpty)));
        assert!(matches!(s.nic.wait_send(vi, LONG), Err(Error::QueueEmpty)));
        assert_eq!(s.nic.query_vi(vi).unwrap().state, ViState::Error);
        s.server.expect_line("ended Error", LIMIT);
        s.hosts.mend(0);
        s.nic.disconnect(vi).unwrap();
        if round == 0 {
            leaks = Some(LeakCheck::start());
        }
    }
    if let Some(leaks) = leaks {
        leaks.finish();
    }
}
