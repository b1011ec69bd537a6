//! Two threads, a NIC each: small-message latency beside that of a bare cache line, to see the data path alone.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use viaduct_providers::{Config, open};
use viaduct_via::{Completion, Descriptor, MemAttributes, Nic, Vi, ViAttributes};

#[repr(align(256))]
struct Line(AtomicU64);
static PING: Line = Line(AtomicU64::new(0));
static PONG: Line = Line(AtomicU64::new(0));
static START: Barrier = Barrier::new(2);

fn bare(server: bool, from: u64, n: u64) -> f64 {
    let t = Instant::now();
    for i in from + 1..=from + n {
        let (mine, theirs) = if server { (&PONG.0, &PING.0) } else { (&PING.0, &PONG.0) };
        if !server {
            mine.store(i, Ordering::Release);
        }
        while theirs.load(Ordering::Acquire) != i {
            std::hint::spin_loop();
        }
        if server {
            mine.store(i, Ordering::Release);
        }
    }
    t.elapsed().as_nanos() as f64 / n as f64 / 2.0
}

fn recv(nic: &mut Nic, vi: Vi) -> Completion {
    loop {
        if let Some(done) = nic.poll_recv(vi).unwrap() {
            return done;
        }
        std::hint::spin_loop();
    }
}

fn end(server: bool) {
    viaduct_os::cpu::pin(usize::from(server)).unwrap();
    let mut nic = Nic::open(open("shm", &Config::default()).unwrap()).unwrap();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    for _ in 0..2 {
        let buffer = nic.alloc(8, MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }
    let here = "pingpong-example".parse().unwrap();
    if server {
        let request = nic.connect_wait(&here, None).unwrap();
        nic.accept(request, vi).unwrap();
    } else {
        while nic.connect_request(vi, &here, Some(Duration::from_secs(5))).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let n = 2_000u64;
    let mut spent = None;
    for round in 0..60 {
        START.wait();
        let before = bare(server, round * 2 * n, n);
        let t = Instant::now();
        for _ in 0..n {
            if server {
                spent = Some(recv(&mut nic, vi).descriptor);
            }
            nic.send_inline(vi, &[7; 8], None).unwrap();
            // Two receives are posted: there is time to post this one again when the answer is on its way.
            if let Some(descriptor) = spent.take() {
                nic.post_recv(vi, descriptor).unwrap();
            }
            if !server {
                spent = Some(recv(&mut nic, vi).descriptor);
            }
        }
        let ours = t.elapsed().as_nanos() as f64 / n as f64 / 2.0;
        let after = bare(server, round * 2 * n + n, n);
        if !server && (before / after - 1.0).abs() < 0.15 {
            println!("bare line {before:6.1} ns, one way {ours:6.1} ns");
        }
    }
}

fn main() {
    let server = std::thread::spawn(|| end(true));
    end(false);
    server.join().unwrap();
}
