//! Two NICs that reach each other, and what every test does with them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_via::hooks::{Hook, Hooked};
use viaduct_via::{
    Buffer, Completion, Descriptor, Error, MemAttributes, NetAddress, Nic, ProtectionTag, Queue, Reliability,
    Vi, ViAttributes, ViState, WaitConfig,
};

use crate::harness::{Opener, Setup};

/// Time in which something that must happen has happened, however slow the machine. Never measured against.
pub const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// Time after which something that must not happen is taken not to happen.
pub const SHORT: Option<Duration> = Some(Duration::from_millis(20));

/// Which of the two NICs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that usually asks and sends.
    A,
    /// The one that usually answers and receives.
    B,
}

/// A NIC with a protection tag, and the VIs made through it.
pub struct Node {
    nic: Nic,
    /// The tag that [`Node::vi_attributes`] and [`Node::buffer`] use.
    pub tag: ProtectionTag,
    vis: Vec<Vi>,
}

impl Node {
    /// A node from an opened NIC.
    pub fn new(mut nic: Nic) -> Node {
        // One thread moves both NICs of a world: neither gets anywhere while the other waits for it.
        nic.set_drain(Duration::from_millis(5));
        let tag = nic.create_ptag().expect("a first tag");
        Node { nic, tag, vis: Vec::new() }
    }

    /// The NIC itself.
    pub fn into_nic(self) -> Nic {
        self.nic
    }

    /// What a VI is asked to be, at this level of reliability.
    pub fn vi_attributes(&self, level: Reliability) -> ViAttributes {
        ViAttributes::new(self.tag).reliability(level)
    }

    /// A VI at this level.
    pub fn vi(&mut self, level: Reliability) -> Vi {
        self.vi_with(self.vi_attributes(level))
    }

    /// A VI with these attributes.
    pub fn vi_with(&mut self, attributes: ViAttributes) -> Vi {
        let vi = self.nic.create_vi(attributes).expect("a VI");
        self.vis.push(vi);
        vi
    }

    /// Memory that only this node uses.
    pub fn buffer(&mut self, len: usize) -> Buffer {
        self.nic.alloc(len, MemAttributes::local(self.tag)).expect("memory")
    }

    /// Memory that peers may read and write.
    pub fn window(&mut self, len: usize) -> Buffer {
        self.nic.alloc(len, MemAttributes::remote(self.tag)).expect("memory")
    }

    /// A buffer with these bytes.
    pub fn message(&mut self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.buffer(bytes.len());
        buffer.write(0, bytes);
        buffer
    }

    /// These bytes as registered memory of the heap.
    pub fn register_local(&mut self, bytes: Vec<u8>) -> Buffer {
        self.nic.register(bytes, MemAttributes::local(self.tag)).expect("memory")
    }

    /// Posts `count` receives of `len` bytes, with contexts from 0.
    pub fn post_recvs(&mut self, vi: Vi, count: u64, len: usize) {
        for context in 0..count {
            let buffer = self.buffer(len);
            self.nic.post_recv(vi, Descriptor::recv(buffer).context(context)).expect("a receive posted");
        }
    }

    /// Posts a send of these bytes.
    pub fn send(&mut self, vi: Vi, bytes: &[u8]) {
        let buffer = self.message(bytes);
        self.nic.post_send(vi, Descriptor::send(buffer)).expect("a send posted");
    }

    /// The state of a VI.
    pub fn state(&mut self, vi: Vi) -> ViState {
        self.nic.query_vi(vi).expect("a known VI").state
    }

    /// The next completion of a queue, if it is there.
    pub fn poll(&mut self, vi: Vi, queue: Queue) -> Option<Completion> {
        match queue {
            Queue::Send => self.nic.poll_send(vi),
            Queue::Receive => self.nic.poll_recv(vi),
        }
        .expect("a known VI")
    }

    /// Everything a queue gives at once.
    pub fn drain(&mut self, vi: Vi, queue: Queue) -> Vec<Completion> {
        std::iter::from_fn(|| self.poll(vi, queue)).collect()
    }

    /// Drains both queues and destroys the VI.
    pub fn retire(&mut self, vi: Vi) {
        let _ = self.nic.disconnect(vi);
        drop(self.drain(vi, Queue::Send));
        drop(self.drain(vi, Queue::Receive));
        self.nic.destroy_vi(vi).expect("an idle, drained VI");
        self.vis.retain(|v| *v != vi);
    }

    fn pump(&mut self) {
        for i in 0..self.vis.len() {
            // A VI that a test destroyed by itself is no longer known.
            let _ = self.nic.query_vi(self.vis[i]);
        }
    }
}

impl Deref for Node {
    type Target = Nic;

    fn deref(&self) -> &Nic {
        &self.nic
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Nic {
        &mut self.nic
    }
}

/// Two NICs of one process that reach each other.
pub struct World {
    /// Usually the client.
    pub a: Node,
    /// Usually the server.
    pub b: Node,
    /// Sends are held back by a hook.
    pub delayed: bool,
    /// What carries a connection, where that is not the provider itself.
    pub carrier: Option<&'static str>,
    name: &'static str,
    addresses: u32,
    doing: String,
    open: Opener,
    /// Where the NICs meet; to be kept as long as they are.
    pub folder: Option<TempDir>,
}

impl World {
    /// Opens the two NICs.
    pub fn open(setup: Setup) -> Result<World, Error> {
        let Setup { name, open, delayed, folder, carrier } = setup;
        let node = || Ok::<_, Error>(Node::new(Nic::open(open()?)?));
        let (a, b) = (node()?, node()?);
        Ok(World { a, b, delayed, carrier, name, addresses: 0, doing: String::new(), open, folder })
    }

    /// Name of the world.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Says what is tried now, for the message of a wait in vain.
    pub fn trying(&mut self, what: impl Into<String>) {
        self.doing = what.into();
    }

    /// One more NIC that reaches the others.
    pub fn node(&self) -> Node {
        Node::new(Nic::open((self.open)().expect("a provider")).expect("a NIC"))
    }

    /// One more NIC, with a hook of the test's own around it.
    pub fn hooked(&self, hook: Arc<dyn Hook>) -> Node {
        let provider = (self.open)().expect("a provider");
        Node::new(Nic::open(Hooked::new(provider, hook)).expect("a NIC"))
    }

    /// Both NICs sleep without spinning first.
    pub fn sleepy(&mut self) {
        let wait = WaitConfig { spin: viaduct_via::Spin::Never };
        self.a.set_wait(wait);
        self.b.set_wait(wait);
    }

    /// An address that was not used in this world.
    pub fn address(&mut self) -> NetAddress {
        self.addresses += 1;
        NetAddress::local(&format!("conformance-{}", self.addresses)).expect("a short name")
    }

    /// One of the two.
    pub fn side(&mut self, side: Side) -> &mut Node {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Connects two idle VIs, `a` asking.
    pub fn connect(&mut self, a: Vi, b: Vi) {
        let address = self.address();
        connect(&mut self.a, a, &mut self.b, b, &address);
    }

    /// A connected pair of VIs at this level, with nothing posted.
    pub fn pair(&mut self, level: Reliability) -> (Vi, Vi) {
        self.pair_with(level, |attributes| attributes)
    }

    /// A connected pair of VIs, both with changed attributes.
    pub fn pair_with(
        &mut self,
        level: Reliability,
        change: impl Fn(ViAttributes) -> ViAttributes,
    ) -> (Vi, Vi) {
        let a = self.a.vi_attributes(level);
        let b = self.b.vi_attributes(level);
        let (a, b) = (self.a.vi_with(change(a)), self.b.vi_with(change(b)));
        self.connect(a, b);
        (a, b)
    }

    /// The next completion of a queue, while both NICs are kept going.
    pub fn next(&mut self, side: Side, vi: Vi, queue: Queue) -> Completion {
        self.until("a completion", |w| w.side(side).poll(vi, queue))
    }

    /// The next receive of `b`.
    pub fn received(&mut self, vi: Vi) -> Completion {
        self.next(Side::B, vi, Queue::Receive)
    }

    /// The next send of `a`.
    pub fn sent(&mut self, vi: Vi) -> Completion {
        self.next(Side::A, vi, Queue::Send)
    }

    /// Waits until a VI is in a state.
    pub fn reaches(&mut self, side: Side, vi: Vi, state: ViState) {
        self.until("another state", |w| (w.side(side).state(vi) == state).then_some(()));
    }

    /// Keeps both NICs going until `look` finds something.
    pub fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut World) -> Option<T>) -> T {
        let what = if self.doing.is_empty() { what.to_owned() } else { format!("{what}, {}", self.doing) };
        until(&what, || {
            let found = look(self);
            if found.is_none() {
                self.pump();
            }
            found
        })
    }

    /// Keeps both NICs going for a while.
    pub fn idle(&mut self) {
        for _ in 0..200 {
            self.pump();
            std::thread::yield_now();
        }
    }

    /// Moves every VI on by one step.
    pub fn pump(&mut self) {
        self.a.pump();
        self.b.pump();
    }
}

/// Connects two idle VIs of two NICs, `a` asking.
pub fn connect(a: &mut Node, va: Vi, b: &mut Node, vb: Vi, address: &NetAddress) {
    let listener = b.listen(address, 1).expect("a free address");
    a.connect_start(va, None, address, &[], LONG).expect("a request");
    let request = b.wait_listener(listener, LONG).expect("the request arrives");
    b.accept(request, vb).expect("accepted");
    a.connect_finish(va).expect("connected");
    b.unlisten(listener).expect("a known listener");
}

/// Looks until something is found; the watchdog of the test is the only clock, apart from a very generous one.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + scaled(Duration::from_secs(30));
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}
