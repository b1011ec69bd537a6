//! A peer's segment has come, and there is no descriptor or no address space left for it: the cause is named, every thread that
//! waits for it is told, and no thread asks again and again.

use std::fs::File;
use std::time::Duration;

use viaduct_faults::footprint::Footprint;
use viaduct_faults::heard::Heard;
use viaduct_faults::node::{Mode, Place};
use viaduct_kit::resources::{with_extra_memory, with_nofile_limit};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{Buffer, Descriptor, MemAttributes, Nic, ProtectionTag, Status, Vi, ViAttributes, ViState};

const LIMIT: Duration = Duration::from_secs(60);
/// More than is left for it.
const LARGE: usize = 64 << 20;
const LEN: usize = 50_000;

struct End {
    nic: Nic,
    tag: ProtectionTag,
    vi: Vi,
}

/// Two NICs of this process, connected.
fn pair(folder: &TempDir) -> (End, End) {
    let end = || {
        let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        End { nic, tag, vi }
    };
    let (mut a, mut b) = (end(), end());
    connect(&mut a, &mut b);
    (a, b)
}

fn connect(a: &mut End, b: &mut End) {
    let listener = b.nic.listen(&"mapping".parse().unwrap(), 1).unwrap();
    a.nic.connect_start(a.vi, None, &"mapping".parse().unwrap(), &[], None).unwrap();
    let request = b.nic.wait_listener(listener, Some(LIMIT)).unwrap();
    b.nic.accept(request, b.vi).unwrap();
    a.nic.connect_finish(a.vi).unwrap();
    b.nic.unlisten(listener).unwrap();
}

viaduct_kit::isolated! { limit 120;
    fn a_segment_without_a_descriptor_left_ends_the_wait_and_names_the_limit() {
        let _watchdog = Watchdog::arm(LIMIT, "a segment without a descriptor left");
        let (heard, folder) = (Heard::listen(), TempDir::new("mapping"));
        let (mut a, mut b) = pair(&folder);
        let buffer = b.nic.alloc(LEN, MemAttributes::local(b.tag)).unwrap();
        b.nic.post_recv(b.vi, Descriptor::recv(buffer)).unwrap();
        let open = Footprint::settled().descriptors() as u64 - 1; // without the one that counts
        let sent = with_nofile_limit(open, || {
            // The numbers in between that are free.
            let _held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            a.nic.post_send(a.vi, Descriptor::send(vec![1; LEN].into())).unwrap();
            // Without a time limit: it comes back.
            a.nic.wait_send_outcome(a.vi, None).unwrap()
        });
        assert!(!sent.status().is_success(), "{}", sent.status());
        assert_eq!(a.nic.query_vi(a.vi).unwrap().state, ViState::Error);
        assert_eq!(heard.count("RLIMIT_NOFILE"), 1, "the cause is named, once");
    }
}

viaduct_kit::isolated! { limit 120;
    fn rdma_without_address_space_for_the_mapping_fails_and_works_again_after_relief() {
        let _watchdog = Watchdog::arm(LIMIT, "a mapping without address space");
        let (heard, folder) = (Heard::listen(), TempDir::new("mapping"));
        let (mut a, mut b) = pair(&folder);
        let window = b.nic.alloc(LARGE, MemAttributes::remote(b.tag)).unwrap();
        let write = |a: &mut End| {
            a.nic.post_send(a.vi, Descriptor::rdma_write(vec![1; LEN].into(), window.remote(0))).unwrap();
            a.nic.wait_send_outcome(a.vi, None).unwrap().status()
        };
        let status = with_extra_memory(8 << 20, || write(&mut a));
        assert_eq!(status, Status::TransportError);
        assert_eq!(heard.count("out of memory"), 1, "asked for once");
        // The next one may still be told of the old failure; the one after that is not.
        for round in 0.. {
            for end in [&mut a, &mut b] {
                end.nic.disconnect(end.vi).unwrap();
                while end.nic.poll_send(end.vi).unwrap().is_some() {}
            }
            connect(&mut a, &mut b);
            if write(&mut a).is_success() {
                break;
            }
            assert!(round < 100, "there is room, and it does not work again");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_message_that_cannot_be_pushed_takes_another_way() {
        let _watchdog = Watchdog::arm(LIMIT, "messages that cannot be pushed");
        let (heard, folder) = (Heard::listen(), TempDir::new("mapping"));
        let (mut a, mut b) = pair(&folder);
        let bytes: Vec<u8> = (0..LEN).map(|i| (i / 3) as u8).collect();
        let message = |a: &mut End, b: &mut End, into: Buffer| {
            b.nic.post_recv(b.vi, Descriptor::recv(into)).unwrap();
            a.nic.post_send(a.vi, Descriptor::send(bytes.clone().into())).unwrap();
            let mut sent = None;
            let received = loop {
                sent = sent.or_else(|| a.nic.poll_send(a.vi).unwrap());
                if let Some(received) = b.nic.poll_recv(b.vi).unwrap() {
                    break received;
                }
            };
            assert!(sent.is_none_or(|sent| sent.status.is_success()));
            assert!(received.status.is_success() && received.data() == bytes);
            while a.nic.query_vi(a.vi).unwrap().sends > 0 {
                a.nic.poll_send(a.vi).unwrap();
            }
            received.descriptor.into_buffer()
        };
        // So that the bounce buffers are there, and mapped.
        message(&mut a, &mut b, vec![0; LEN].into());
        let large = b.nic.alloc(LARGE, MemAttributes::local(b.tag)).unwrap();
        with_extra_memory(8 << 20, || {
            (0..20).fold(large, |into, _| message(&mut a, &mut b, into));
        });
        // Once a second at most.
        assert!((1..10).contains(&heard.count("out of memory")), "asked for with every message");
    }
}
