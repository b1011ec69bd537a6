//! Two NICs driven by one thread: what the data path costs without a second core. For profilers.

use std::time::{Duration, Instant};

use viaduct_providers::{Config, open};
use viaduct_via::{Cq, Descriptor, MemAttributes, Nic, ProtectionTag, Vi, ViAttributes};

fn end(bound: bool) -> (Nic, Vi, ProtectionTag, Option<Cq>) {
    let mut nic = Nic::open(open("shm", &Config::default()).unwrap()).unwrap();
    let tag = nic.create_ptag().unwrap();
    let cq = bound.then(|| nic.create_cq(64).unwrap());
    let attributes = ViAttributes::new(tag);
    let vi = nic.create_vi(cq.into_iter().fold(attributes, ViAttributes::cq)).unwrap();
    (nic, vi, tag, cq)
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number of rounds"));
    let mode = std::env::args().nth(2).unwrap_or_default();
    let bound = mode == "cq";
    let ((mut a, va, ta, ca), (mut b, vb, tb, cb)) = (end(bound), end(bound));
    let here = "selfloop-example".parse().unwrap();
    let listener = b.listen(&here, 1).unwrap();
    a.connect_start(va, None, &here, &[], Some(Duration::from_secs(5))).unwrap();
    let request = b.wait_listener(listener, None).unwrap();
    b.accept(request, vb).unwrap();
    a.connect_finish(va).unwrap();
    let mut send = Descriptor::send(a.alloc(8, MemAttributes::local(ta)).unwrap());
    let mut recv = Descriptor::recv(b.alloc(8, MemAttributes::local(tb)).unwrap());
    let mut back = Descriptor::recv(a.alloc(8, MemAttributes::local(ta)).unwrap());
    let t = Instant::now();
    let what = match mode.as_str() {
        "inline" => {
            for _ in 0..rounds {
                b.post_recv(vb, recv).unwrap();
                a.send_inline(va, &[0; 8], None).unwrap();
                recv = b.poll_recv(vb).unwrap().unwrap().descriptor;
            }
            "post_recv, send_inline, poll_recv"
        }
        "pingpong" => {
            for _ in 0..rounds {
                b.post_recv(vb, recv).unwrap();
                a.send_inline(va, &[0; 8], None).unwrap();
                recv = b.poll_recv(vb).unwrap().unwrap().descriptor;
                a.post_recv(va, back).unwrap();
                b.send_inline(vb, &[0; 8], None).unwrap();
                back = a.poll_recv(va).unwrap().unwrap().descriptor;
            }
            "post_recv, send_inline, poll_recv, there and back"
        }
        "" => {
            for _ in 0..rounds {
                b.post_recv(vb, recv).unwrap();
                a.post_send(va, send).unwrap();
                send = a.poll_send(va).unwrap().unwrap().descriptor;
                recv = b.poll_recv(vb).unwrap().unwrap().descriptor;
            }
            "post_recv, post_send, poll_send, poll_recv"
        }
        "cq" => {
            let (ca, cb) = (ca.unwrap(), cb.unwrap());
            for _ in 0..rounds {
                b.post_recv(vb, recv).unwrap();
                a.post_send(va, send).unwrap();
                send = a.poll_cq(ca).unwrap().unwrap().descriptor;
                recv = b.poll_cq(cb).unwrap().unwrap().descriptor;
            }
            "post_recv, post_send, and both ends' poll_cq"
        }
        other => panic!("{other}: neither inline nor pingpong nor cq nor nothing"),
    };
    let ns = t.elapsed().as_nanos() as f64 / f64::from(rounds);
    println!("{ns:.1} ns for {what}");
}
