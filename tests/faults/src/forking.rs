//! A process that forks while it has descriptors posted and memory registered, for the fork tests.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use viaduct_kit::child::{hear, say};
use viaduct_via::{
    Buffer, Cq, Descriptor, Error, Listener, MemAttributes, NetAddress, Nic, ProtectionTag, Queue, Status,
    Vi, ViAttributes,
};

use crate::node::{Mode, Place};
use crate::plan::{Kind, pattern};

/// Bytes of an ordinary buffer, of one so large that it is under way for a while, and of a window.
pub const LEN: usize = 20_000;
/// Sixty-four bounce buffers of it, four times as many as there are.
pub const BIG: usize = 4 << 20;
/// What the parent writes everywhere after the fork.
pub const PARENT: u8 = 0xaa;
/// What the child writes everywhere.
pub const CHILD: u8 = 0xcc;
/// Every kind of memory.
pub const KINDS: [Kind; 3] = [Kind::Shared, Kind::Heap, Kind::Implicit];

viaduct_kit::child!(
    /// Forks in the middle of its work; then parent and child write every buffer.
    pub FORKER,
    |args| forker(Place { folder: Path::new(&args[0]), mode: Mode::named(&args[1]) })
);

viaduct_kit::child!(
    /// When told to begin, connects, forks a child that lives on, and closes its NIC.
    pub CLOSER,
    |args| {
        hear();
        let mut nic = Place { folder: Path::new(&args[0]), mode: Mode::named(&args[1]) }.open();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.connect_request(vi, &"fork-test".parse().unwrap(), None).unwrap();
        if fork() {
            hear(); // ends when the test closes the input, or with the test
            return;
        }
        say("ready");
        drop(nic);
        say("closed");
        hear();
    }
);

/// Buffers as addresses, which outlive moves.
struct Spot(*mut u8, usize);

impl Spot {
    fn of(buffer: &mut Buffer) -> Spot {
        // SAFETY: only the address is kept, and used while the memory lives; no other thread writes at the same time.
        let slice = unsafe { buffer.as_mut_slice() };
        Spot(slice.as_mut_ptr(), slice.len())
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the buffer is posted or kept, so its memory is there; transfers wait for this step of the test.
        unsafe { std::ptr::write_bytes(self.0, byte, self.1) };
    }

    fn holds(&self, byte: u8) -> bool {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.iter().all(|b| *b == byte)
    }
}

fn forker(place: Place<'_>) {
    let mut nic = place.open();
    let tag = nic.create_ptag().unwrap();
    let cq = nic.create_cq(64).unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag).cq(cq)).unwrap();
    let listener = nic.listen(&"fork-parent".parse().unwrap(), 1).unwrap();
    let remote = MemAttributes::remote(tag);
    let mut windows = [nic.alloc(LEN, remote).unwrap(), nic.register(vec![0; LEN], remote).unwrap()];
    let mut spots: Vec<Spot> = windows.iter_mut().map(Spot::of).collect();
    for kind in KINDS {
        let mut buffer = make(&mut nic, tag, LEN, kind);
        spots.push(Spot::of(&mut buffer));
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }
    let mut private = Vec::new();
    for place in windows.iter().map(|window| window.remote(0)) {
        private.extend(place.addr.to_ne_bytes());
        private.extend(place.handle.number().to_ne_bytes());
    }
    nic.connect_start(vi, None, &"fork-test".parse().unwrap(), &private, None).unwrap();
    nic.connect_finish(vi).unwrap();
    // Under way at the fork: one that waits to be fetched, one that went in part.
    let mut under_way = Vec::new();
    for (step, len, kind) in [(1, LEN, Kind::Shared), (2, BIG, Kind::Implicit)] {
        let mut buffer = make(&mut nic, tag, len, kind);
        (0..len).step_by(LEN).for_each(|at| buffer.write(at, pattern(step, LEN.min(len - at))));
        under_way.push(Spot::of(&mut buffer));
        nic.post_send(vi, Descriptor::send(buffer)).unwrap();
    }
    let (mut from_child, to_parent) = std::io::pipe().unwrap();
    let (from_parent, mut to_child) = std::io::pipe().unwrap();
    if fork() {
        drop((from_child, to_child));
        spots.append(&mut under_way);
        let inherited = Inherited { nic, cq, vi, listener, tag, windows, spots };
        return child(inherited, place, to_parent, from_parent);
    }
    let mut byte = [0];
    from_child.read_exact(&mut byte).unwrap();
    spots.iter().for_each(|spot| spot.fill(PARENT));
    say("written");
    let mut received = 0;
    for _ in 0..5 {
        let done = nic.wait_cq(cq, None).unwrap().0;
        assert_eq!(done.status, Status::Success);
        if done.queue == Queue::Receive {
            received += 1;
            assert!(done.data() == pattern(10 + received, LEN), "message {received} met other pages");
        }
    }
    assert_eq!(hear().as_deref(), Some("moved"));
    for (step, window) in [20, 21].into_iter().zip(&windows) {
        assert!(window.to_vec(LEN - 8) == pattern(step, LEN - 8), "the peer wrote to other pages");
    }
    to_child.write_all(b"c").unwrap();
    // After the child has dropped what it inherited.
    assert_eq!(hear().as_deref(), Some("again"));
    for kind in KINDS {
        let mut buffer = make(&mut nic, tag, LEN, kind);
        buffer.write(0, &[PARENT; LEN]);
        nic.post_send(vi, Descriptor::send(buffer)).unwrap();
        assert!(nic.wait_cq(cq, None).unwrap().status().is_success());
    }
    say("sent");
    hear();
}

struct Inherited {
    nic: Nic,
    cq: Cq,
    vi: Vi,
    listener: Listener,
    tag: ProtectionTag,
    windows: [Buffer; 2],
    spots: Vec<Spot>,
}

fn child(mut inherited: Inherited, place: Place<'_>, mut to_parent: PipeWriter, mut from_parent: PipeReader) {
    inherited.spots.iter().for_each(|spot| spot.fill(CHILD));
    to_parent.write_all(b"w").unwrap();
    let mut byte = [0];
    from_parent.read_exact(&mut byte).unwrap();
    for (i, spot) in inherited.spots.iter().enumerate() {
        assert!(spot.holds(CHILD), "a transfer of the parent's reached page {i} of the child");
    }
    let refused = inherited.refused();
    let Inherited { nic, windows, .. } = inherited;
    drop(windows);
    drop(nic);
    say(format!("refused {refused}"));
    let mut nic = place.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    (0..4).for_each(|_| {
        let buffer = make(&mut nic, tag, 64, Kind::Shared);
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    });
    nic.connect_start(vi, None, &"fork-test".parse().unwrap(), b"child", None).unwrap();
    nic.connect_finish(vi).unwrap();
    loop {
        let came = nic.wait_recv_outcome(vi, None).unwrap().0;
        if !came.status.is_success() {
            return; // the test is done
        }
        let mut echo = make(&mut nic, tag, came.length as usize, Kind::Shared);
        echo.write(0, &came.data());
        nic.post_send(vi, Descriptor::send(echo)).unwrap();
        assert!(nic.wait_send_outcome(vi, None).unwrap().status().is_success());
    }
}

impl Inherited {
    /// Every call on the parent's NIC is refused by name. How many there were.
    fn refused(&mut self) -> usize {
        let Inherited { nic, cq, vi, listener, tag, windows, .. } = self;
        let (cq, vi, listener, tag) = (*cq, *vi, *listener, *tag);
        let address: NetAddress = "elsewhere".parse().unwrap();
        let local = MemAttributes::local(tag);
        let limit = Some(Duration::from_secs(10));
        let answers: Vec<(&str, Result<(), Error>)> = vec![
            ("create_ptag", nic.create_ptag().map(drop)),
            ("destroy_ptag", nic.destroy_ptag(tag)),
            ("create_vi", nic.create_vi(ViAttributes::new(tag)).map(drop)),
            ("create_cq", nic.create_cq(8).map(drop)),
            ("resize_cq", nic.resize_cq(cq, 128)),
            ("alloc", nic.alloc(64, local).map(drop)),
            ("register", nic.register(vec![0; 64], local).map(drop)),
            ("set_mem_attributes", nic.set_mem_attributes(windows[0].handle(), local)),
            ("query_vi", nic.query_vi(vi).map(drop)),
            ("post_recv", nic.post_recv(vi, Descriptor::recv(vec![0; 8].into())).map_err(Error::from)),
            ("post_send", nic.post_send(vi, Descriptor::send(vec![0; 8].into())).map_err(Error::from)),
            ("send_inline", nic.send_inline(vi, b"x", None)),
            ("poll_send", nic.poll_send(vi).map(drop)),
            ("poll_recv", nic.poll_recv(vi).map(drop)),
            ("poll_cq", nic.poll_cq(cq).map(drop)),
            ("wait_cq", nic.wait_cq(cq, limit).map(drop)),
            ("arm", nic.arm()),
            ("listen", nic.listen(&address, 1).map(drop)),
            ("poll_listener", nic.poll_listener(listener).map(drop)),
            ("wait_listener", nic.wait_listener(listener, limit).map(drop)),
            ("unlisten", nic.unlisten(listener)),
            ("connect_wait", nic.connect_wait(&address, limit).map(drop)),
            ("connect_request", nic.connect_request(vi, &address, limit).map(drop)),
            ("disconnect", nic.disconnect(vi)),
            ("destroy_vi", nic.destroy_vi(vi)),
            ("destroy_cq", nic.destroy_cq(cq)),
        ];
        for (call, answer) in &answers {
            assert!(matches!(answer, Err(Error::Forked)), "{call} in the child: {answer:?}");
        }
        answers.len()
    }
}

fn make(nic: &mut Nic, tag: ProtectionTag, len: usize, kind: Kind) -> Buffer {
    let attributes = MemAttributes::local(tag);
    match kind {
        Kind::Shared => nic.alloc(len, attributes).unwrap(),
        Kind::Heap => nic.register(vec![0; len], attributes).unwrap(),
        Kind::Implicit => vec![0; len].into(),
    }
}

/// Forks; true in the child.
fn fork() -> bool {
    // SAFETY: the child goes on in this thread, which holds no lock; the C library's handlers make its allocator usable.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    pid == 0
}
