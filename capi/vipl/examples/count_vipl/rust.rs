//! The rounds by the Rust interface, with memory of the program's own, as the C library has it.

use std::time::Duration;

use viaduct_providers::{Config, open};
use viaduct_via::{Completion, Descriptor, Error, MemAttributes, Nic, PostError, Vi, ViAttributes};

use crate::{BATCH, BYTES, Call, Rounds};

struct Pair {
    a: Nic,
    b: Nic,
    va: Vi,
    vb: Vi,
    /// Those that are not posted; the last is posted first.
    sends: Vec<Descriptor>,
    recvs: Vec<Descriptor>,
}

pub(crate) fn pair() -> Box<dyn Rounds> {
    let nic =
        || Nic::open(open("shm", &Config::default()).expect("the provider opens")).expect("the NIC opens");
    let (mut a, mut b) = (nic(), nic());
    let (ta, tb) = (a.create_ptag().expect("a tag"), b.create_ptag().expect("a tag"));
    let (va, vb) = (a.create_vi(ViAttributes::new(ta)), b.create_vi(ViAttributes::new(tb)));
    let (va, vb) = (va.expect("a VI"), vb.expect("a VI"));
    let address = format!("vipl-instructions-{}", std::process::id()).parse().expect("an address");
    let listener = b.listen(&address, 1).expect("no other process has this id");
    a.connect_start(va, None, &address, &[], Some(Duration::from_secs(60))).expect("a request");
    let request = b.wait_listener(listener, None).expect("the request");
    b.accept(request, vb).expect("accepted");
    a.connect_finish(va).expect("connected");
    let mut pair = Pair { a, b, va, vb, sends: Vec::new(), recvs: Vec::new() };
    for _ in 0..BATCH {
        let out = pair.a.register(vec![0; BYTES], MemAttributes::local(ta)).expect("memory");
        let into = pair.b.register(vec![0; BYTES], MemAttributes::local(tb)).expect("memory");
        pair.sends.push(Descriptor::send(out));
        pair.recvs.push(Descriptor::recv(into));
    }
    Box::new(pair)
}

impl Rounds for Pair {
    fn batch(&mut self, call: Call) {
        for _ in 0..BATCH {
            match call {
                Call::PostRecv => {
                    let recv = self.recvs.pop().expect("came back from the last batch");
                    self.b.post_recv(self.vb, recv).expect("posted");
                }
                Call::PostSend => {
                    let send = self.sends.pop().expect("came back from the last batch");
                    self.a.post_send(self.va, send).expect("posted");
                }
                Call::RecvDone => {
                    let done = self.b.poll_recv(self.vb).expect("connected").expect("the message is there");
                    self.recvs.push(done.descriptor);
                }
                Call::SendDone => {
                    let done = self.a.poll_send(self.va).expect("connected").expect("sent at once");
                    self.sends.push(done.descriptor);
                }
                Call::RecvNotDone => assert!(self.b.poll_recv(self.vb).expect("connected").is_none()),
                Call::Nothing => {}
            }
        }
    }

    fn round(&mut self, counted: Call) {
        let recv = self.recvs.pop().expect("came back from the last round");
        match counted {
            Call::PostRecv => count_this_post_recv(&mut self.b, self.vb, recv),
            _ => self.b.post_recv(self.vb, recv),
        }
        .expect("posted");
        let nothing = match counted {
            Call::RecvNotDone => count_this_poll_recv(&mut self.b, self.vb),
            _ => self.b.poll_recv(self.vb),
        };
        assert!(nothing.expect("connected").is_none());
        let send = self.sends.pop().expect("came back from the last round");
        match counted {
            Call::PostSend => count_this_post_send(&mut self.a, self.va, send),
            _ => self.a.post_send(self.va, send),
        }
        .expect("posted");
        let sent = match counted {
            Call::SendDone => count_this_poll_send(&mut self.a, self.va),
            _ => self.a.poll_send(self.va),
        };
        self.sends.push(sent.expect("connected").expect("a small message goes at once").descriptor);
        let received = match counted {
            Call::RecvDone => count_this_poll_recv(&mut self.b, self.vb),
            _ => self.b.poll_recv(self.vb),
        };
        self.recvs.push(received.expect("connected").expect("the message is there").descriptor);
    }
}

#[inline(never)]
fn count_this_post_recv(nic: &mut Nic, vi: Vi, descriptor: Descriptor) -> Result<(), PostError> {
    nic.post_recv(vi, descriptor)
}

#[inline(never)]
fn count_this_post_send(nic: &mut Nic, vi: Vi, descriptor: Descriptor) -> Result<(), PostError> {
    nic.post_send(vi, descriptor)
}

#[inline(never)]
fn count_this_poll_recv(nic: &mut Nic, vi: Vi) -> Result<Option<Completion>, Error> {
    nic.poll_recv(vi)
}

#[inline(never)]
fn count_this_poll_send(nic: &mut Nic, vi: Vi) -> Result<Option<Completion>, Error> {
    nic.poll_send(vi)
}
