//! Two NICs driven by one thread: what the data path costs without a second core. For profilers.

use std::time::{Duration, Instant};

use viaduct_providers::{Config, open};
use viaduct_via::{Descriptor, MemAttributes, Nic, ProtectionTag, Vi, ViAttributes};

fn end() -> (Nic, Vi, ProtectionTag) {
    let mut nic = Nic::open(open("shm", &Config::default()).unwrap()).unwrap();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    (nic, vi, tag)
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number of rounds"));
    let ((mut a, va, ta), (mut b, vb, tb)) = (end(), end());
    let here = "selfloop-example".parse().unwrap();
    let listener = b.listen(&here, 1).unwrap();
    a.connect_start(va, None, &here, &[], Some(Duration::from_secs(5))).unwrap();
    let request = b.wait_listener(listener, None).unwrap();
    b.accept(request, vb).map_err(|(e, _)| e).unwrap();
    a.connect_finish(va).unwrap();
    let mut send = Descriptor::send(a.alloc(8, MemAttributes::local(ta)).unwrap());
    let mut recv = Descriptor::recv(b.alloc(8, MemAttributes::local(tb)).unwrap());
    let inline = std::env::args().nth(2).is_some();
    let t = Instant::now();
    for _ in 0..rounds {
        b.post_recv(vb, recv).unwrap();
        if inline {
            a.send_inline(va, &[0; 8], None).unwrap();
        } else {
            a.post_send(va, send).unwrap();
            send = a.poll_send(va).unwrap().unwrap().descriptor;
        }
        recv = b.poll_recv(vb).unwrap().unwrap().descriptor;
    }
    let ns = t.elapsed().as_nanos() as f64 / f64::from(rounds);
    println!(
        "{ns:.1} ns for post_recv, {}, poll_recv",
        if inline { "send_inline" } else { "post_send, poll_send" }
    );
}
