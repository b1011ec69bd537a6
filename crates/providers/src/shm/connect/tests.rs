//! The order of messages on the socket of a connection: the last word of its set-up, and notes behind it. The other end is
//! played by hand and leaves fences to sleepers, so that a NIC which sleeps often has something to ask at once.

use viaduct_os::fdpass::Listener;
use viaduct_via::provider::Provider;
use viaduct_via::{NetAddress, Nic, RemoteAttributes, Vi, ViAttributes};

use super::*;
use crate::config::ShmConfig;
use crate::shm::lane::Lanes;
use crate::shm::nic::Shm;
use crate::shm::wire::{Note, note};

const LONG: Option<std::time::Duration> = Some(std::time::Duration::from_secs(60));

/// A NIC that has asked its peers for fences, in a folder of its own.
struct Sleeper {
    nic: Nic,
    core: Arc<Core>,
    vi: Vi,
    attributes: ViAttributes,
}

impl Sleeper {
    fn open(name: &str) -> Sleeper {
        let dir = std::env::temp_dir().join(format!("viaduct-{name}-{}", std::process::id()));
        let provider = Shm::open(ShmConfig { runtime_dir: Some(dir), ..ShmConfig::default() }).unwrap();
        let core = provider.core.clone();
        core.crowd.pretend_asked();
        let mut nic = Nic::open(Box::new(provider) as Box<dyn Provider>).unwrap();
        let mut attributes = ViAttributes::new(nic.create_ptag().unwrap());
        attributes.max_transfer_size = 4_096;
        let vi = nic.create_vi(attributes.clone()).unwrap();
        Sleeper { nic, core, vi, attributes }
    }

    /// A message from a NIC like this one, which leaves fences to sleepers.
    fn hello(&self, kind: u32, to: &NetAddress) -> Hello {
        let mut hello = Hello::new(kind, [7; 16]);
        hello.parties.set_addresses(to, &"played".parse().unwrap());
        hello.parties.set_attributes(&RemoteAttributes {
            reliability: self.attributes.reliability,
            max_transfer_size: self.attributes.max_transfer_size,
            qos: self.attributes.qos,
            rdma_write: false,
            rdma_read: false,
            ptag: self.attributes.ptag,
            private_data: Vec::new(),
        });
        hello.set_asymmetric(true);
        hello
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.core.folder);
    }
}

/// The next message; the test's own time limit ends a wait for one that never comes.
fn next(channel: &Channel) -> Vec<u8> {
    let (mut buffer, mut fds) = (vec![0; 60_000], Vec::new());
    loop {
        match channel.recv(&mut buffer, &mut fds, 8).unwrap() {
            Recv::Message(len) => return buffer[..len].to_vec(),
            Recv::WouldBlock => std::thread::yield_now(),
            Recv::Closed => panic!("the NIC hung up"),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel")]
fn a_server_that_sleeps_often_accepts_before_it_asks_for_fences() {
    let mut server = Sleeper::open("server-order");
    let address: NetAddress = "order".parse().unwrap();
    let listener = server.nic.listen(&address, 1).unwrap();
    let channel = Channel::connect(&server.core.path(&address)).unwrap();
    let request = server.hello(hello::REQUEST, &address);
    assert!(channel.send(request.as_bytes(), &server.core.own_fds(false).unwrap()).unwrap());
    let request = server.nic.wait_listener(listener, LONG).unwrap();
    server.nic.accept(request, server.vi).unwrap();
    assert_eq!(Hello::parse(&next(&channel)).unwrap().kind, hello::ACCEPT);
    assert_eq!(Note::parse(&next(&channel)).unwrap().0.kind, note::FENCE);
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel")]
fn a_client_that_sleeps_often_acknowledges_before_it_asks_for_fences() {
    let mut client = Sleeper::open("client-order");
    let address: NetAddress = "order".parse().unwrap();
    let listener = Listener::bind(&client.core.path(&address)).unwrap();
    client.nic.connect_start(client.vi, None, &address, &[], None).unwrap();
    let channel = loop {
        if let Some(channel) = listener.accept().unwrap() {
            break channel;
        }
    };
    assert_eq!(Hello::parse(&next(&channel)).unwrap().kind, hello::REQUEST);
    let slots = client.core.config.ring_slots;
    let (lane, segment) = Lanes::new(slots).make(&client.core.budget).unwrap();
    let mut accept = client.hello(hello::ACCEPT, &address);
    (accept.lane_slab, accept.lane_offset, accept.ring_slots) = (lane.slab, lane.offset, slots as u32);
    // As a server that has another channel to this NIC, and waits for the client's last word.
    accept.set_has_channel(true);
    let mut fds = client.core.own_fds(false).unwrap();
    fds.push(segment.fd().unwrap());
    assert!(channel.send(accept.as_bytes(), &fds).unwrap());
    client.nic.connect_finish(client.vi).unwrap();
    assert_eq!(Hello::parse(&next(&channel)).unwrap().kind, hello::ACK);
    assert_eq!(Note::parse(&next(&channel)).unwrap().0.kind, note::FENCE);
}
