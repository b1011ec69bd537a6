//! The channel between two control threads has little room: what does not fit waits and goes on, whichever end is slow.

use std::time::Duration;

use viaduct_faults::node::{Mode, Place};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{Descriptor, MemAttributes, Nic, ProtectionTag, Status, Vi, ViAttributes};

const LIMIT: Duration = Duration::from_secs(60);
const LEN: usize = 5 << 20;

struct End {
    nic: Nic,
    tag: ProtectionTag,
    vi: Vi,
}

fn pair(place: Place<'_>) -> (End, End) {
    let end = || {
        let mut nic = place.open();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        End { nic, tag, vi }
    };
    let (mut a, mut b) = (end(), end());
    let listener = b.nic.listen(&"channel".parse().unwrap(), 1).unwrap();
    a.nic.connect_start(a.vi, None, &"channel".parse().unwrap(), &[], None).unwrap();
    let request = b.nic.wait_listener(listener, Some(LIMIT)).unwrap();
    b.nic.accept(request, b.vi).unwrap();
    a.nic.connect_finish(a.vi).unwrap();
    (a, b)
}

#[test]
fn rdma_by_the_helper_is_not_bounded_by_the_socket() {
    let _watchdog = Watchdog::arm(LIMIT, "megabytes through the helper");
    let folder = TempDir::new("channel");
    let (mut a, mut b) = pair(Place { folder: folder.path(), mode: Mode::Copy });
    let bytes: Vec<u8> = (0..LEN).map(|i| (i / 7) as u8).collect();
    let window = b.nic.register(vec![0; LEN], MemAttributes::remote(b.tag)).unwrap();
    let mut source = a.nic.register(vec![0; LEN], MemAttributes::local(a.tag)).unwrap();
    source.write(0, &bytes);
    a.nic.post_send(a.vi, Descriptor::rdma_write(source, window.remote(0))).unwrap();
    let written = a.nic.wait_send_outcome(a.vi, None).unwrap().0;
    assert_eq!(written.status, Status::Success);
    assert!(window.to_vec(LEN) == bytes, "other bytes were written");
    let back = a.nic.register(vec![0; LEN], MemAttributes::local(a.tag)).unwrap();
    a.nic.post_send(a.vi, Descriptor::rdma_read(back, window.remote(0))).unwrap();
    let read = a.nic.wait_send_outcome(a.vi, None).unwrap().0;
    assert_eq!(read.status, Status::Success);
    assert!(read.data() == bytes, "other bytes were read");
}
