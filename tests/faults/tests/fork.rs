//! Fork with descriptors posted and memory registered (SOVIA, section 3.5.1 and figure 5): transfers use the parent's
//! pages, the child gets a NIC of its own, and neither hides the end of the other.

use std::time::Duration;

use viaduct_faults::footprint::Footprint;
use viaduct_faults::forking::{BIG, CLOSER, FORKER, KINDS, LEN, PARENT};
use viaduct_faults::node::{Mode, Place};
use viaduct_faults::plan::pattern;
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{
    Buffer, Completion, Descriptor, Error, MemAttributes, MemHandle, Nic, ProtectionTag, RemoteAddress,
    Status, Vi, ViAttributes,
};

const LIMIT: Duration = Duration::from_secs(30);

struct End {
    nic: Nic,
    tag: ProtectionTag,
}

impl End {
    fn shared(&mut self, len: usize) -> Buffer {
        self.nic.alloc(len, MemAttributes::local(self.tag)).unwrap()
    }

    fn done(&mut self, vi: Vi, descriptor: Descriptor) -> Completion {
        self.nic.post_send(vi, descriptor).unwrap();
        let done = self.nic.wait_send_outcome(vi, None).unwrap().0;
        assert_eq!(done.status, Status::Success);
        done
    }

    fn message(&mut self, vi: Vi, bytes: &[u8]) {
        let mut buffer = self.shared(bytes.len());
        buffer.write(0, bytes);
        drop(self.done(vi, Descriptor::send(buffer)));
    }

    fn received(&mut self, vi: Vi) -> Vec<u8> {
        let came = self.nic.wait_recv_outcome(vi, None).unwrap().0;
        assert_eq!(came.status, Status::Success);
        came.data()
    }
}

viaduct_kit::isolated! { limit 120;
    fn transfers_use_the_parents_pages_and_the_child_its_own_nic() {
        transfers(Mode::Direct);
    }
}

viaduct_kit::isolated! { limit 120;
    fn transfers_of_auto_use_the_parents_pages() {
        transfers(Mode::Auto);
    }
}

viaduct_kit::isolated! { limit 120;
    fn transfers_over_the_network_use_the_parents_pages() {
        transfers(Mode::Network);
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_closed_nic_is_noticed_although_a_forked_child_lives() {
        closing(Mode::Direct);
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_closed_nic_of_auto_is_noticed_although_a_forked_child_lives() {
        closing(Mode::Auto);
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_closed_nic_is_noticed_over_the_network_although_a_forked_child_lives() {
        closing(Mode::Network);
    }
}

/// Where NICs of this mode meet; `None`, and the test logged as skipped, if there are none.
fn place(folder: &TempDir, mode: Mode) -> Option<Place<'_>> {
    let place = Place { folder: folder.path(), mode };
    place.try_open().inspect_err(|e| skip(&e.to_string())).ok()?;
    Some(place)
}

fn transfers(mode: Mode) {
    let _watchdog = Watchdog::arm(LIMIT, "a process that forks");
    let folder = TempDir::new("fork");
    let Some(place) = place(&folder, mode) else { return };
    let leaks = LeakCheck::start_with_folders([folder.path()]).adopt_orphans();
    {
        let mut nic = place.open();
        let tag = nic.create_ptag().unwrap();
        let mut end = End { nic, tag };
        let vi = end.nic.create_vi(ViAttributes::new(tag)).unwrap();
        for len in [LEN, BIG, LEN, LEN, LEN] {
            end.nic.post_recv(vi, Descriptor::recv(vec![0; len].into())).unwrap();
        }
        let listener = end.nic.listen(&"fork-test".parse().unwrap(), 2).unwrap();
        let mut parent = FORKER.spawn(&[folder.path().to_str().unwrap(), mode.name()]);
        let request = end.nic.wait_listener(listener, None).unwrap();
        let windows: Vec<RemoteAddress> =
            request.remote().private_data.chunks_exact(12).map(place_of).collect();
        end.nic.accept(request, vi).unwrap();
        parent.expect_line("written", LIMIT);

        // What the peer reads and writes is the parent's, for shareable and for private memory.
        for (step, window) in [20, 21].into_iter().zip(&windows) {
            let buffer = end.shared(LEN);
            let read = end.done(vi, Descriptor::rdma_read(buffer, *window));
            assert!(read.data().iter().all(|byte| *byte == PARENT), "the child's bytes were read");
            let mut buffer = end.shared(LEN - 8);
            buffer.write(0, pattern(step, LEN - 8));
            drop(end.done(vi, Descriptor::rdma_write(buffer, *window)));
            let old = end.shared(8);
            let counter = window.offset(LEN as u64 - 8);
            let old = end.done(vi, Descriptor::fetch_add(old, counter, 1));
            assert_eq!(old.data(), [PARENT; 8]);
        }
        for number in 1..=KINDS.len() {
            end.message(vi, pattern(10 + number, LEN));
        }
        // What was under way at the fork arrives as it was.
        assert!(end.received(vi) == pattern(1, LEN), "a message to be fetched came from other pages");
        let big = end.received(vi);
        assert!(big.chunks(LEN).all(|part| part == pattern(2, part.len())), "the rest came from other pages");
        parent.send_line("moved");

        // The child drops what it inherited and connects by itself; its parent goes on.
        parent.expect_line("refused ", LIMIT);
        let request = end.nic.wait_listener(listener, None).unwrap();
        assert_eq!(request.remote().private_data, b"child");
        let other = end.nic.create_vi(ViAttributes::new(tag)).unwrap();
        for _ in 0..3 {
            let buffer = end.shared(64);
            end.nic.post_recv(other, Descriptor::recv(buffer)).unwrap();
        }
        end.nic.accept(request, other).unwrap();
        end.message(other, b"hello, child");
        assert_eq!(end.received(other), b"hello, child");
        parent.send_line("again");
        for _ in KINDS {
            assert!(end.received(vi).iter().all(|byte| *byte == PARENT));
        }
        parent.expect_line("sent", LIMIT);

        // The parent dies, the child lives: its peer notices, and its address is free.
        let buffer = end.shared(64);
        end.nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        parent.kill();
        assert_eq!(end.nic.wait_recv_outcome(vi, None).unwrap().status(), Status::Flushed);
        // The kernel closes a dead process' descriptors one by one.
        while let Err(error) = end.nic.listen(&"fork-parent".parse().unwrap(), 1) {
            assert!(matches!(error, Error::AddressInUse(_)), "{error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        end.message(other, b"still there?");
        assert_eq!(end.received(other), b"still there?");
        end.nic.disconnect(other).unwrap();
    }
    drop(place.open());
    leaks.finish();
}

fn closing(mode: Mode) {
    let _watchdog = Watchdog::arm(LIMIT, "a NIC that is closed after a fork");
    let folder = TempDir::new("fork");
    let Some(place) = place(&folder, mode) else { return };
    let mut nic = place.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(vec![0; 8].into())).unwrap();
    let listener = nic.listen(&"fork-test".parse().unwrap(), 2).unwrap();
    let mut child = CLOSER.spawn(&[folder.path().to_str().unwrap(), mode.name()]);
    let before = Footprint::take();
    child.send_line("begin");
    let request = nic.wait_listener(listener, None).unwrap();
    nic.accept(request, vi).unwrap();
    assert_eq!(nic.wait_recv_outcome(vi, None).unwrap().status(), Status::Flushed);
    child.expect_line("closed", LIMIT);
    nic.disconnect(vi).unwrap();
    before.comes_back("the peer's NIC was closed, its child lives");
    child.finish(LIMIT);
}

fn place_of(bytes: &[u8]) -> RemoteAddress {
    let addr = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
    let handle = MemHandle::from_number(u32::from_ne_bytes(bytes[8..].try_into().unwrap()));
    RemoteAddress { addr, handle }
}
