//! A peer that has the token and does not play by the rules: whatever it sends, it loses its connection and nothing else.

use std::collections::VecDeque;
use std::ptr;
use std::time::{Duration, Instant};

use proptest::prelude::{Strategy, any};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use viaduct_job::Token;
use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::handle::RawHandle;
use viaduct_via::{
    Descriptor, Listener, MemAttributes, NetAddress, Nic, ProtectionTag, Reliability, RemoteAttributes, Vi,
    ViAttributes, ViState,
};
use zerocopy::IntoBytes;

use super::endpoint::Active;
use super::fabric::{Fabric, News};
use super::flow::Window;
use super::greeting::Client;
use super::info::Info;
use super::place::Names;
use super::sys::Fi;
use super::wire::{HEAD, Head, Hello, Kind, LAST, step};
use crate::config::OfiConfig;

mod memory;
mod relay;
mod strangers;

const FRAME: usize = 4096;
const BUFFERS: usize = 64;
/// Context of the only send under way.
const SEND: u64 = 1 << 20;

/// A client of its own making, straight on libfabric.
struct Rogue {
    // First, so that it is closed before its buffers go.
    ep: Active,
    fabric: Fabric,
    memory: Vec<u8>,
    out: Vec<u8>,
    sent: u32,
    port: u16,
    inbox: VecDeque<Vec<u8>>,
    over: bool,
}

/// What comes in, and whether the connection is over.
enum Heard {
    Frame(Vec<u8>),
    Over,
}

impl Rogue {
    fn new(config: &OfiConfig, token: &Token) -> Rogue {
        let host = viaduct_job::HostId::of_this(None).unwrap();
        let names = Names::new(config.runtime_dir.clone().unwrap(), token, host);
        Rogue::at(config, names.find(&"door".parse().unwrap()).expect("the scene listens"))
    }

    /// Connects to this place.
    fn at(config: &OfiConfig, place: std::net::SocketAddr) -> Rogue {
        let fi = Fi::load(&config.library).unwrap();
        let info = Info::find(fi, Some("tcp"), super::abi::FI_MSG).unwrap().first_of("tcp").unwrap();
        let fabric = Fabric::open(fi, info, false).unwrap();
        let ep = fabric.endpoint(&fabric.info.leading_to(place)).unwrap();
        let mut rogue = Rogue {
            ep,
            fabric,
            memory: vec![0; FRAME * 2 * BUFFERS],
            out: Vec::new(),
            sent: 0,
            port: place.port(),
            inbox: VecDeque::new(),
            over: false,
        };
        for n in 0..BUFFERS {
            rogue.post(n);
        }
        rogue.ep.connect(place).unwrap();
        rogue.until(|r| r.fabric.read_eq().map(|news| assert!(matches!(news, News::Connected { .. }))));
        rogue
    }

    fn post(&mut self, n: usize) {
        let to = self.memory[n * 2 * FRAME..].as_mut_ptr();
        // SAFETY: the buffer is part of memory that is dropped after the endpoint, and read when it is done.
        let code = unsafe { self.ep.recv(to, 2 * FRAME, ptr::null_mut(), n as u64) };
        self.over |= code != 0;
    }

    /// Sends bytes as they are; whether they went out. The peer may have cut us off for them by then.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.out = bytes.to_vec();
        // SAFETY: `out` is not touched until the send is done, which is waited for.
        let code = unsafe { self.ep.send(self.out.as_ptr(), bytes.len(), ptr::null_mut(), SEND) };
        if code != 0 {
            return false;
        }
        self.sent += 1;
        self.until(|r| {
            let sent = r.look();
            (sent || r.over).then_some(sent)
        })
    }

    /// Takes what libfabric has; whether the send is done.
    fn look(&mut self) -> bool {
        let mut done = Vec::new();
        self.fabric.read_cq(&mut done);
        let mut sent = false;
        for d in done {
            if d.errno != 0 {
                self.over = true;
            } else if d.context == SEND {
                sent = true;
            } else {
                let n = d.context as usize;
                self.inbox.push_back(self.memory[n * 2 * FRAME..][..d.len].to_vec());
                self.post(n);
            }
        }
        self.over |= matches!(self.fabric.read_eq(), Some(News::Over { .. }));
        sent
    }

    fn hello(&mut self, hello: &Hello) -> bool {
        let mut head = Head::new(Kind::Hello);
        head.sequence = self.sent.into();
        head.length = (size_of::<Hello>() as u32).into();
        self.send(&[head.as_bytes(), hello.as_bytes()].concat())
    }

    fn hear(&mut self) -> Heard {
        self.until(|r| {
            r.look();
            match r.inbox.pop_front() {
                Some(bytes) => Some(Heard::Frame(bytes)),
                None => r.over.then_some(Heard::Over),
            }
        })
    }

    fn hear_hello(&mut self) -> Hello {
        match self.hear() {
            Heard::Frame(bytes) => Hello::parse(&bytes[HEAD..]).unwrap(),
            Heard::Over => panic!("cut off"),
        }
    }

    fn is_cut_off(&mut self) {
        while let Heard::Frame(_) = self.hear() {}
    }

    fn until<T>(&mut self, mut look: impl FnMut(&mut Rogue) -> Option<T>) -> T {
        let end = Instant::now() + scaled(Duration::from_secs(30));
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < end, "it did not come");
            std::thread::yield_now();
        }
    }
}

struct Scene {
    nic: Nic,
    tag: ProtectionTag,
    listener: Listener,
    config: OfiConfig,
    token: Token,
    _folder: TempDir,
}

fn scene() -> Option<Scene> {
    scene_with(FRAME, |_| ())
}

/// A scene with frames of so many bytes, and settings changed by `change`.
fn scene_with(frame: usize, change: impl FnOnce(&mut OfiConfig)) -> Option<Scene> {
    let folder = TempDir::new("rogue");
    let token = Token::random();
    let mut config = OfiConfig {
        provider: Some("tcp".into()),
        runtime_dir: Some(folder.path().to_owned()),
        token: Some(token.clone()),
        bind: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        frame,
        ..OfiConfig::default()
    };
    change(&mut config);
    let provider = match super::open(config.clone()) {
        Ok(provider) => provider,
        Err(e) => {
            skip(&e.to_string());
            return None;
        }
    };
    let mut nic = Nic::open(provider).unwrap();
    let tag = nic.create_ptag().unwrap();
    let listener = nic.listen(&"door".parse().unwrap(), 4).unwrap();
    Some(Scene { nic, tag, listener, config, token, _folder: folder })
}

fn request() -> Hello {
    request_of(Reliability::ReliableDelivery, 8)
}

/// A request of this level, with room for so many frames of each class.
fn request_of(reliability: Reliability, window: u16) -> Hello {
    let mut hello = Hello::new(step::REQUEST);
    let (to, from): (NetAddress, NetAddress) = ("door".parse().unwrap(), "rogue".parse().unwrap());
    hello.parties.set_addresses(&to, &from);
    hello.parties.set_attributes(&RemoteAttributes {
        reliability,
        max_transfer_size: 1 << 30,
        qos: 0,
        rdma_write: true,
        rdma_read: true,
        ptag: ProtectionTag::from_raw(RawHandle { index: 0, generation: 0 }),
        private_data: Vec::new(),
    });
    hello.set_window(Window { data: window, service: window }, FRAME);
    hello
}

impl Scene {
    /// A rogue that is connected by the book, and the VI at our end, with receives posted.
    fn connected(&mut self) -> (Rogue, Vi) {
        self.connected_at(Reliability::ReliableDelivery, 8)
    }

    /// A rogue and a VI of this level; the rogue has room for so many frames of each class.
    fn connected_at(&mut self, level: Reliability, window: u16) -> (Rogue, Vi) {
        let mut rogue = Rogue::new(&self.config, &self.token);
        let (client, hello) = Client::new(request_of(level, window), rogue.port);
        assert!(rogue.hello(&hello));
        let challenge = rogue.hear_hello();
        let proof = client.answer_challenge(&challenge, &self.token).unwrap();
        assert!(rogue.hello(&proof));
        let asked = self.nic.wait_listener(self.listener, Some(Duration::from_secs(30))).unwrap();
        let vi = self.nic.create_vi(ViAttributes::new(self.tag).reliability(level)).unwrap();
        for _ in 0..4 {
            let buffer = self.nic.alloc(64, MemAttributes::local(self.tag)).unwrap();
            self.nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        self.nic.accept(asked, vi).unwrap();
        assert_eq!(rogue.hear_hello().step(), step::ACCEPT);
        (rogue, vi)
    }

    fn breaks(&mut self, vi: Vi, what: &str) {
        let end = Instant::now() + scaled(Duration::from_secs(30));
        while self.nic.query_vi(vi).unwrap().state != ViState::Error {
            assert!(Instant::now() < end, "the connection stands: {what}");
            std::thread::yield_now();
        }
        self.nic.disconnect(vi).unwrap();
    }

    /// A peer that plays by the rules is still served.
    fn is_well(&mut self) {
        let (mut rogue, vi) = self.connected();
        let mut head = Head::new(Kind::Data);
        head.flags = super::wire::FIRST | LAST;
        (head.sequence, head.length, head.total) = (2.into(), 5.into(), 5.into());
        assert!(rogue.send(&[head.as_bytes(), b"hello"].concat()));
        let got = self.nic.wait_recv(vi, Some(Duration::from_secs(30))).unwrap();
        assert_eq!(got.data(), b"hello");
        self.nic.disconnect(vi).unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn another_version_and_a_wrong_proof_are_told() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "greetings");
    let Some(mut s) = scene() else { return };
    let mut rogue = Rogue::new(&s.config, &s.token);
    let mut bytes = request().as_bytes().to_vec();
    bytes[8] = 9;
    let mut head = Head::new(Kind::Hello);
    head.length = (bytes.len() as u32).into();
    assert!(rogue.send(&[head.as_bytes(), &bytes].concat()));
    assert_eq!(rogue.hear_hello().step(), step::WRONG_VERSION);
    let mut rogue = Rogue::new(&s.config, &s.token);
    assert!(rogue.hello(&request()));
    assert_eq!(rogue.hear_hello().step(), step::CHALLENGE);
    assert!(rogue.hello(&Hello::new(step::PROOF)));
    assert_eq!(rogue.hear_hello().step(), step::NOT_OF_THIS_JOB);
    // Out of turn: an answer where a request should be.
    let mut rogue = Rogue::new(&s.config, &s.token);
    rogue.hello(&Hello::new(step::ACCEPT));
    rogue.is_cut_off();
    assert!(s.nic.poll_listener(s.listener).unwrap().is_none(), "the owner heard of none of them");
    s.is_well();
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn frames_against_the_rules_break_the_connection_alone() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "frames");
    let Some(mut s) = scene() else { return };
    let frame = |kind, change: fn(&mut Head), len: usize| {
        let mut head = Head::new(kind);
        (head.sequence, head.length) = (2.into(), (len as u32).into());
        change(&mut head);
        [head.as_bytes(), &vec![7; len]].concat()
    };
    let bad = [
        frame(Kind::Alive, |h| h.sequence = 9.into(), 0),
        frame(Kind::Alive, |h| h.length = 9.into(), 0),
        frame(Kind::Credit, |h| h.data_credits = 60.into(), 0),
        frame(Kind::Ack, |h| h.acked = 1.into(), 0),
        frame(Kind::Reply, |h| h.flags = LAST, 0),
        frame(Kind::Data, |h| h.total = 4.into(), 8),
        frame(Kind::Data, |h| (h.total, h.offset, h.flags) = (16.into(), 8.into(), LAST), 8),
        frame(Kind::Atomic, |_| {}, 3),
        frame(Kind::Hello, |_| {}, 0),
        frame(Kind::Closed, |_| {}, 0),
        vec![0; HEAD],
        vec![2; 7],
        vec![],
    ];
    for (n, bytes) in bad.iter().enumerate() {
        let (mut rogue, vi) = s.connected();
        rogue.send(bytes);
        s.breaks(vi, &format!("frame {n}"));
    }
    s.is_well();
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn other_peers_are_served_whatever_one_sends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(600), "random frames");
    let Some(mut s) = scene() else { return };
    let secret = s.nic.alloc(4096, MemAttributes::local(s.tag)).unwrap();
    let mut runner = TestRunner::deterministic();
    let flags = (0u8..32, 0u8..12, any::<u32>(), 0u32..5000, any::<u32>(), any::<u64>());
    let strategy = proptest::collection::vec((2u8..12, flags, 0usize..FRAME - HEAD), 1..12);
    for _ in 0..rounds(20, 400) {
        let (mut rogue, vi) = s.connected();
        let frames = strategy.new_tree(&mut runner).unwrap().current();
        for (kind, (flags, status, number, total, handle, address), len) in frames {
            let mut head = Head::new(Kind::Alive);
            head.as_mut_bytes()[0] = kind;
            (head.flags, head.status) = (flags, status);
            (head.sequence, head.length) = (rogue.sent.into(), (len as u32).into());
            (head.number, head.total, head.offset) = (number.into(), total.into(), (number % 3).into());
            // Half of them aim at memory that there is.
            let (handle, address) = match number % 2 {
                0 => (secret.remote(0).handle.number(), secret.remote(0).addr),
                _ => (handle, address),
            };
            (head.handle, head.address) = (handle.into(), address.into());
            if !rogue.send(&[head.as_bytes(), &vec![0xaa; len]].concat()) {
                break;
            }
            let _ = s.nic.query_vi(vi);
        }
        drop(rogue);
        s.breaks(vi, "it is gone");
    }
    assert_eq!(secret.to_vec(4096), [0; 4096], "no peer may write there");
    s.is_well();
}
