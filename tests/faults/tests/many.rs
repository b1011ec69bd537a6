//! A thousand connections between two processes: within the ordinary limit of descriptors, and each of them works.

use std::time::Duration;

use viaduct_faults::footprint::Footprint;
use viaduct_faults::node::{Mode, Place};
use viaduct_kit::child::say;
use viaduct_kit::resources::with_nofile_limit;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{Descriptor, MemAttributes, Nic, Status, ViAttributes, ViState};

const LIMIT: Duration = Duration::from_secs(120);
const CONNECTIONS: usize = 1_000;
/// The limit of a login shell, nearly everywhere.
const ORDINARY: u64 = 1_024;
/// Most descriptors that so many connections may take: what counts is the number of peers.
const FEW: usize = 64;

// Connects a thousand times, then answers on every connection what came there.
viaduct_kit::child!(CALLER, |args| {
    with_nofile_limit(ORDINARY, || {
        let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
        let tag = nic.create_ptag().unwrap();
        let cq = nic.create_cq(2 * CONNECTIONS).unwrap();
        let before = Footprint::take().descriptors();
        for _ in 0..CONNECTIONS {
            let vi = nic.create_vi(ViAttributes::new(tag).depth(4).cq(cq)).unwrap();
            post_recv(&mut nic, vi, tag);
            nic.connect_start(vi, None, &"many".parse().unwrap(), &[], None).unwrap();
            nic.connect_finish(vi).unwrap();
        }
        say(Footprint::take().descriptors() - before);
        let mut answered = 0;
        while answered < CONNECTIONS {
            let done = nic.wait_cq(cq, None).unwrap().0;
            assert!(done.status.is_success(), "{}", done.status);
            if done.queue == viaduct_via::Queue::Receive {
                let mut answer = nic.alloc(8, MemAttributes::local(tag)).unwrap();
                answer.write(0, &done.data());
                nic.post_send(done.vi, Descriptor::send(answer)).unwrap();
                answered += 1;
            }
        }
        viaduct_kit::child::hear();
    });
});

fn post_recv(nic: &mut Nic, vi: viaduct_via::Vi, tag: viaduct_via::ProtectionTag) {
    let buffer = nic.alloc(64, MemAttributes::local(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
}

viaduct_kit::isolated! { limit 300;
    fn a_thousand_connections_take_few_descriptors() {
        let _watchdog = Watchdog::arm(LIMIT, "a thousand connections");
        let folder = TempDir::new("many");
        with_nofile_limit(ORDINARY, || {
            let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
            let tag = nic.create_ptag().unwrap();
            let cq = nic.create_cq(2 * CONNECTIONS).unwrap();
            let listener = nic.listen(&"many".parse().unwrap(), 16).unwrap();
            let mut caller = CALLER.spawn(&[folder.path().to_str().unwrap()]);
            let before = Footprint::take();
            let mut vis = Vec::new();
            while vis.len() < CONNECTIONS {
                let request = nic.wait_listener(listener, None).unwrap();
                let vi = nic.create_vi(ViAttributes::new(tag).depth(4).cq(cq)).unwrap();
                post_recv(&mut nic, vi, tag);
                nic.accept(request, vi).unwrap();
                vis.push(vi);
            }
            let theirs: usize = caller.expect_line("", LIMIT).parse().unwrap();
            let ours = Footprint::take().descriptors() - before.descriptors();
            eprintln!("{CONNECTIONS} connections: {ours} descriptors here, {theirs} there");
            assert!(ours < FEW && theirs < FEW);

            // Each connection carries its own number there and back.
            for (number, vi) in vis.iter().enumerate() {
                let mut message = nic.alloc(8, MemAttributes::local(tag)).unwrap();
                message.write(0, &(number as u64).to_ne_bytes());
                nic.post_send(*vi, Descriptor::send(message)).unwrap();
            }
            let mut answers = 0;
            while answers < CONNECTIONS {
                let done = nic.wait_cq(cq, None).unwrap().0;
                assert!(done.status.is_success());
                if done.queue == viaduct_via::Queue::Receive {
                    let number = u64::from_ne_bytes(done.data().try_into().unwrap());
                    assert_eq!(vis[number as usize], done.vi, "an answer on another connection");
                    answers += 1;
                }
            }

            // The other process is killed: every connection says so at the completion queue, though none is polled.
            vis.iter().for_each(|vi| post_recv(&mut nic, *vi, tag));
            caller.kill();
            let mut flushed = 0;
            while flushed < CONNECTIONS {
                let done = nic.wait_cq(cq, None).unwrap().0;
                flushed += usize::from(done.status == Status::Flushed);
            }
            caller.wait(LIMIT);
            for vi in &vis {
                assert_eq!(nic.query_vi(*vi).unwrap().state, ViState::Error);
                nic.disconnect(*vi).unwrap();
            }
            while nic.poll_cq(cq).unwrap().is_some() {}
            vis.iter().for_each(|vi| nic.destroy_vi(*vi).unwrap());
            nic.destroy_cq(cq).unwrap();
            nic.destroy_ptag(tag).unwrap();
            let after = Footprint::settled();
            // The directory has grown by a segment, and keeps it.
            assert!(after.descriptors() <= before.descriptors() + 1, "before {before:#?}\nafter {after:#?}");
        });
    }
}
