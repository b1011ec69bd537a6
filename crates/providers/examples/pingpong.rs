//! Two threads, a NIC each: small-message latency and rate, to see the data path alone.

use std::time::{Duration, Instant};

use viaduct_providers::{Config, open};
use viaduct_via::{Descriptor, MemAttributes, Nic, Vi, ViAttributes};

fn recv(nic: &mut Nic, vi: Vi) -> viaduct_via::Completion {
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
    for _ in 0..64 {
        let buffer = nic.alloc(8, MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }
    let here = "pingpong-example".parse().unwrap();
    if server {
        let request = nic.connect_wait(&here, None).unwrap();
        nic.accept(request, vi).map_err(|(e, _)| e).unwrap();
    } else {
        while nic.connect_request(vi, &here, Some(Duration::from_secs(5))).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut send = Some(Descriptor::send(nic.alloc(8, MemAttributes::local(tag)).unwrap()));
    for round in 0..20 {
        let n = 20_000;
        let t = Instant::now();
        for _ in 0..n {
            if !server {
                nic.post_send(vi, send.take().unwrap()).unwrap();
                send = Some(nic.poll_send(vi).unwrap().unwrap().descriptor);
            }
            let got = recv(&mut nic, vi);
            nic.post_recv(vi, got.descriptor).unwrap();
            if server {
                nic.post_send(vi, send.take().unwrap()).unwrap();
                send = Some(nic.poll_send(vi).unwrap().unwrap().descriptor);
            }
        }
        if !server && round % 4 == 3 {
            println!("one way {:.1} ns", t.elapsed().as_nanos() as f64 / n as f64 / 2.0);
        }
    }
}

fn main() {
    let server = std::thread::spawn(|| end(true));
    end(false);
    server.join().unwrap();
}
