//! Two connected NICs driven by one thread, and one round of each kind: a message, an RDMA write, a poll for nothing.
//!
//! A round makes the call that is to be counted through [`counted`](crate::counted), and the others directly.

use std::time::Duration;

use viaduct_providers::{Config, open};
use viaduct_via::{Completion, Cq, Descriptor, MemAttributes, Nic, ProtectionTag, Vi, ViAttributes};

use crate::counted::{
    count_this_poll_cq, count_this_poll_recv, count_this_poll_send, count_this_post_recv,
    count_this_post_send, count_this_send_inline,
};

/// The call that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// None: to warm up.
    Nothing,
    PostRecv,
    PostSend,
    SendInline,
    PollRecv,
    PollSend,
    PollCq,
}

/// `a` sends to `b`. The last VI made is the one that is used.
pub(crate) struct Pair {
    a: Nic,
    b: Nic,
    va: Vi,
    vb: Vi,
    cq: Option<Cq>,
    /// The completion queue of sends, of `a`.
    send_cq: Option<Cq>,
    /// Here while they are not posted.
    send: Option<Descriptor>,
    recv: Option<Descriptor>,
    write: Option<Descriptor>,
    bytes: Vec<u8>,
}

impl Pair {
    /// One connection, for messages of `len` bytes.
    pub(crate) fn new(len: usize) -> Pair {
        Pair::with_vis(len, 1, false)
    }

    /// One connection, with each end's VI bound to a completion queue, among `vis` that are.
    pub(crate) fn bound(len: usize, vis: usize) -> Pair {
        Pair::with_vis(len, vis, true)
    }

    fn with_vis(len: usize, vis: usize, bound: bool) -> Pair {
        let ((mut a, ta), (mut b, tb)) = (nic(), nic());
        let cq = bound.then(|| b.create_cq(1024 * vis).expect("a completion queue"));
        let send_cq = bound.then(|| a.create_cq(1024).expect("a completion queue"));
        let (mut ours, mut theirs) = (ViAttributes::new(ta), ViAttributes::new(tb));
        (ours.send_cq, theirs.recv_cq) = (send_cq, cq);
        let address = format!("instructions-{}", std::process::id()).parse().expect("an address");
        let listener = b.listen(&address, 1).expect("no other process has this id");
        let mut last = None;
        for _ in 0..vis {
            let va = a.create_vi(ours.clone()).expect("a VI");
            let vb = b.create_vi(theirs.clone()).expect("a VI");
            a.connect_start(va, None, &address, &[], Some(Duration::from_secs(60))).expect("a request");
            let request = b.wait_listener(listener, None).expect("the request");
            b.accept(request, vb).expect("accepted");
            a.connect_finish(va).expect("connected");
            last = Some((va, vb));
        }
        let (va, vb) = last.expect("at least one VI");
        let buffer = |nic: &mut Nic, attributes| nic.alloc(len, attributes).expect("memory");
        let target = buffer(&mut b, MemAttributes::remote(tb));
        let write = Descriptor::rdma_write(buffer(&mut a, MemAttributes::local(ta)), target.remote(0));
        Pair {
            send: Some(Descriptor::send(buffer(&mut a, MemAttributes::local(ta)))),
            recv: Some(Descriptor::recv(target)),
            write: Some(write),
            bytes: vec![0; len],
            a,
            b,
            va,
            vb,
            cq,
            send_cq,
        }
    }

    /// A message by value.
    pub(crate) fn inline_message(&mut self, counted: Call) {
        self.post_recv(counted);
        match counted {
            Call::SendInline => count_this_send_inline(&mut self.a, self.va, &self.bytes),
            _ => self.a.send_inline(self.va, &self.bytes, None),
        }
        .expect("sent");
        self.take(counted);
    }

    /// A message by descriptor.
    pub(crate) fn message(&mut self, counted: Call) {
        self.post_recv(counted);
        let send = self.send.take().expect("came back from the last round");
        let done = self.post_send(send, counted);
        self.send = Some(done);
        self.take(counted);
    }

    /// An RDMA write into the buffer of the receive.
    pub(crate) fn write(&mut self, counted: Call) {
        let write = self.write.take().expect("came back from the last round");
        let done = self.post_send(write, counted);
        self.write = Some(done);
    }

    /// A look at the receive queue, or the completion queue, which are empty.
    pub(crate) fn look(&mut self, counted: Call) {
        assert!(self.poll(counted).is_none(), "nothing was sent");
    }

    fn post_recv(&mut self, counted: Call) {
        let recv = self.recv.take().expect("came back from the last round");
        match counted {
            Call::PostRecv => count_this_post_recv(&mut self.b, self.vb, recv),
            _ => self.b.post_recv(self.vb, recv),
        }
        .expect("posted");
    }

    /// Posts a descriptor and polls until it is back: at once, but for a first mapping.
    fn post_send(&mut self, descriptor: Descriptor, counted: Call) -> Descriptor {
        match counted {
            Call::PostSend => count_this_post_send(&mut self.a, self.va, descriptor),
            _ => self.a.post_send(self.va, descriptor),
        }
        .expect("posted");
        loop {
            let done = match (self.send_cq, counted) {
                (None, Call::PollSend) => count_this_poll_send(&mut self.a, self.va),
                (None, _) => self.a.poll_send(self.va),
                (Some(cq), Call::PollSend) => count_this_poll_cq(&mut self.a, cq),
                (Some(cq), _) => self.a.poll_cq(cq),
            };
            if let Some(done) = done.expect("connected") {
                assert!(done.status.is_success(), "{:?}", done.status);
                return done.descriptor;
            }
        }
    }

    fn take(&mut self, counted: Call) {
        let done = self.poll(counted).expect("the message is there");
        assert!(done.status.is_success() && done.length as usize == self.bytes.len(), "{done:?}");
        self.recv = Some(done.descriptor);
    }

    fn poll(&mut self, counted: Call) -> Option<Completion> {
        match (self.cq, counted) {
            (Some(cq), Call::PollCq) => count_this_poll_cq(&mut self.b, cq),
            (Some(cq), _) => self.b.poll_cq(cq),
            (None, Call::PollRecv) => count_this_poll_recv(&mut self.b, self.vb),
            (None, _) => self.b.poll_recv(self.vb),
        }
        .expect("connected")
    }
}

fn nic() -> (Nic, ProtectionTag) {
    let provider = open("shm", &Config::default()).expect("the provider opens");
    let mut nic = Nic::open(provider).expect("the NIC opens");
    let tag = nic.create_ptag().expect("a tag");
    (nic, tag)
}
