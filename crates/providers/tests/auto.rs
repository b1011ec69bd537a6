//! The provider that chooses by itself: which peer is reached by what, and everything on one NIC.
//!
//! Two hosts on one machine are two names in VIADUCT_HOST; the network is the loopback interface.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use viaduct_job::Token;
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_providers::config::{OfiConfig, ShmConfig};
use viaduct_providers::{Config, ofi, open};
use viaduct_via::{
    Descriptor, Error, Listener, MemAttributes, NetAddress, Nic, ProtectionTag, Spin, Status, Vi,
    ViAttributes, WaitConfig,
};

const LONG: Option<Duration> = Some(Duration::from_secs(30));

struct Node {
    nic: Nic,
    tag: ProtectionTag,
}

fn config(folder: &Path, token: Option<&Token>, host: Option<&str>) -> Config {
    let ofi = OfiConfig {
        runtime_dir: Some(folder.to_owned()),
        provider: Some("tcp".into()),
        token: token.cloned(),
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        host: host.map(str::to_owned),
        ..OfiConfig::default()
    };
    let shm = ShmConfig { runtime_dir: Some(folder.to_owned()), longest_sleep: None, ..ShmConfig::default() };
    Config { shm, ofi, ..Config::default() }
}

fn node(name: &str, config: &Config) -> Node {
    let mut nic = Nic::open(open(name, config).unwrap()).unwrap();
    // No sleeper is found awake by chance: a wake-up that is lost shows.
    nic.set_wait(WaitConfig { spin: Spin::Never });
    let tag = nic.create_ptag().unwrap();
    Node { nic, tag }
}

fn has_libfabric() -> bool {
    ofi::find(&OfiConfig::default()).map_err(|e| skip(&e.to_string())).is_ok()
}

fn address(text: &str) -> NetAddress {
    text.parse().unwrap()
}

impl Node {
    fn vi(&mut self) -> Vi {
        self.nic.create_vi(ViAttributes::new(self.tag)).unwrap()
    }

    fn send(&mut self, vi: Vi, text: &[u8]) {
        let mut buffer = self.nic.alloc(text.len(), MemAttributes::local(self.tag)).unwrap();
        buffer.write(0, text);
        self.nic.post_send(vi, Descriptor::send(buffer)).unwrap();
        assert_eq!(self.nic.wait_send_outcome(vi, LONG).unwrap().status(), Status::Success);
    }

    fn carrier(&mut self, vi: Vi) -> &'static str {
        self.nic.query_vi(vi).unwrap().provider.expect("connected")
    }
}

/// Connects a VI of the client's with one of the server's; the carrier must be the same at both ends.
fn connect(client: &mut Node, server: &mut Node, listener: Listener, b: Vi, to: &str) -> (Vi, &'static str) {
    let a = client.vi();
    for _ in 0..4 {
        let buffer = server.nic.alloc(64, MemAttributes::local(server.tag)).unwrap();
        server.nic.post_recv(b, Descriptor::recv(buffer)).unwrap();
    }
    client.nic.connect_start(a, None, &address(to), &[], LONG).unwrap();
    while client.nic.connect_poll(a).unwrap_or_else(|e| panic!("{to}: {e}")).is_none() {
        if let Some(request) = server.nic.poll_listener(listener).unwrap() {
            server.nic.accept(request, b).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let carrier = client.carrier(a);
    assert_eq!(server.carrier(b), carrier, "{to}");
    (a, carrier)
}

#[test]
fn peers_of_this_host_are_reached_through_shared_memory() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "local peers");
    let folder = TempDir::new("auto");
    // Without libfabric, too.
    let mut config = config(folder.path(), None, None);
    config.ofi.library = "libnothing.so".into();
    let (mut a, mut b) = (node("auto", &config), node("auto", &config));
    let listener = b.nic.listen(&address("echo"), 4).unwrap();
    for to in ["echo", "localhost/echo", "127.0.0.1/echo"] {
        let vi = b.vi();
        let (va, carrier) = connect(&mut a, &mut b, listener, vi, to);
        assert_eq!(carrier, "shm", "{to}");
        a.send(va, to.as_bytes());
        assert_eq!(b.nic.wait_recv(vi, LONG).unwrap().data(), to.as_bytes());
    }
    // And one that chose shared memory by itself.
    let (vi, mut plain) = (b.vi(), node("shm", &config));
    assert_eq!(connect(&mut plain, &mut b, listener, vi, "echo").1, "shm");
    // Others are not, and it is said what is missing.
    let vi = a.vi();
    let error = a.nic.connect_request(vi, &address("203.0.113.7/echo"), LONG).unwrap_err();
    assert!(matches!(&error, Error::Unavailable { why, .. } if why.contains("libnothing.so")), "{error}");
}

#[test]
fn peers_of_two_hosts_meet_on_one_completion_queue() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "two hosts");
    if !has_libfabric() {
        return;
    }
    let folder = TempDir::new("auto");
    let token = Token::random();
    let on = |host| config(folder.path(), Some(&token), Some(host));
    let (mut near, mut far) = (node("auto", &on("server")), node("auto", &on("client")));
    let mut server = node("auto", &on("server"));
    let cq = server.nic.create_cq(64).unwrap();
    let listener = server.nic.listen(&address("echo"), 4).unwrap();
    let attributes = ViAttributes::new(server.tag).cq(cq);
    let (vn, vf) =
        (server.nic.create_vi(attributes.clone()).unwrap(), server.nic.create_vi(attributes).unwrap());
    let (near_vi, carrier) = connect(&mut near, &mut server, listener, vn, "echo");
    assert_eq!(carrier, "shm");
    let (far_vi, carrier) = connect(&mut far, &mut server, listener, vf, "127.0.0.1/echo");
    assert_eq!(carrier, "ofi:tcp");
    // Asleep on one queue, woken by either.
    for round in 0..4 {
        let (peer, from, to) = if round % 2 == 0 { (&mut near, near_vi, vn) } else { (&mut far, far_vi, vf) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                peer.send(from, format!("round {round}").as_bytes());
            });
            let got = server.nic.wait_cq(cq, LONG).unwrap().0;
            assert_eq!((got.vi, got.data()), (to, format!("round {round}").into_bytes()));
        });
    }
    // One descriptor over both.
    for (peer, from, to) in [(&mut far, far_vi, vf), (&mut near, near_vi, vn)] {
        server.nic.arm().unwrap();
        assert!(server.nic.poll_cq(cq).unwrap().is_none());
        let epoll = Epoll::new().unwrap();
        epoll.add(server.nic.fd().unwrap(), 1, Interest::Read).unwrap();
        peer.send(from, b"poll");
        epoll.wait(&mut Vec::new(), LONG).unwrap();
        let got = server.nic.wait_cq(cq, LONG).unwrap().0;
        assert_eq!((got.vi, got.data()), (to, b"poll".to_vec()));
        epoll.del(server.nic.fd().unwrap()).unwrap();
        server.nic.disarm();
    }
    // One region for both, also one that was there before the network was.
    let target = server.nic.alloc(16, MemAttributes::remote(server.tag)).unwrap();
    for (n, (peer, vi)) in [(&mut near, near_vi), (&mut far, far_vi)].into_iter().enumerate() {
        let mut buffer = peer.nic.alloc(8, MemAttributes::local(peer.tag)).unwrap();
        buffer.write(0, &[n as u8 + 1; 8]);
        let place = target.remote(n * 8);
        peer.nic.post_send(vi, Descriptor::rdma_write(buffer, place)).unwrap();
        assert_eq!(peer.nic.wait_send_outcome(vi, LONG).unwrap().status(), Status::Success);
    }
    assert_eq!(target.to_vec(16), [[1; 8], [2; 8]].concat());
}

#[test]
fn a_region_from_before_the_network_is_reached_over_it() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "an early region");
    if !has_libfabric() {
        return;
    }
    let folder = TempDir::new("auto");
    let token = Token::random();
    let on = |host| config(folder.path(), Some(&token), Some(host));
    let (mut far, mut server) = (node("auto", &on("client")), node("auto", &on("server")));
    let target = server.nic.alloc(8, MemAttributes::remote(server.tag)).unwrap();
    let listener = server.nic.listen(&address("echo"), 4).unwrap();
    let vi = server.vi();
    let (far_vi, _) = connect(&mut far, &mut server, listener, vi, "127.0.0.1/echo");
    let buffer = far.nic.alloc(8, MemAttributes::local(far.tag)).unwrap();
    far.nic.post_send(far_vi, Descriptor::rdma_read(buffer, target.remote(0))).unwrap();
    assert_eq!(far.nic.wait_send_outcome(far_vi, LONG).unwrap().status(), Status::Success);
    let handle = target.remote(0);
    server.nic.deregister(target).unwrap();
    let buffer = far.nic.alloc(8, MemAttributes::local(far.tag)).unwrap();
    far.nic.post_send(far_vi, Descriptor::rdma_read(buffer, handle)).unwrap();
    assert_eq!(far.nic.wait_send_outcome(far_vi, LONG).unwrap().status(), Status::RdmaProtectionError);
}

#[test]
fn a_name_is_taken_once_whichever_way_it_is_reached() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "one name");
    if !has_libfabric() {
        return;
    }
    let folder = TempDir::new("auto");
    let config = config(folder.path(), Some(&Token::random()), None);
    let (mut a, mut plain) = (node("auto", &config), node("ofi", &config));
    let listener = plain.nic.listen(&address("echo"), 4).unwrap();
    assert!(matches!(a.nic.listen(&address("echo"), 1), Err(Error::AddressInUse(_))));
    plain.nic.unlisten(listener).unwrap();
    let listener = a.nic.listen(&address("echo"), 1).unwrap();
    assert!(matches!(plain.nic.listen(&address("echo"), 1), Err(Error::AddressInUse(_))));
    // A program that insists on the network gets it, on this host too.
    let vi = a.vi();
    assert_eq!(connect(&mut plain, &mut a, listener, vi, "echo").1, "ofi:tcp");
    a.nic.unlisten(listener).unwrap();
    plain.nic.listen(&address("echo"), 1).unwrap();
}

#[test]
fn auto_promises_what_both_keep() {
    if !has_libfabric() {
        return;
    }
    let folder = TempDir::new("auto");
    let config = config(folder.path(), Some(&Token::random()), None);
    let limits = |name: &str| {
        let nic = node(name, &config).nic;
        let a = nic.attributes();
        let list = [
            a.max_vi as u64,
            a.max_descriptors_per_queue as u64,
            a.max_segments_per_desc as u64,
            a.max_cq as u64,
            a.max_cq_entries as u64,
            a.max_transfer_size.into(),
            a.max_inline as u64,
            a.max_private_data as u64,
            a.max_register_regions as u64,
            a.max_register_block_bytes,
            a.max_ptags as u64,
        ];
        (list, a.reliability, a.rdma_read)
    };
    let (auto, shm, ofi) = (limits("auto"), limits("shm"), limits("ofi"));
    for (n, limit) in auto.0.into_iter().enumerate() {
        assert!(limit <= shm.0[n].min(ofi.0[n]), "limit {n}");
    }
    assert_eq!((auto.1, auto.2), (ofi.1, ofi.2));
}
