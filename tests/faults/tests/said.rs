//! What the library says in the log of connections and their ends, and of what is lost where no call can tell it.

use std::time::Duration;

use viaduct_faults::heard::Heard;
use viaduct_faults::node::{Mode, Place};
use viaduct_kit::child::{hear, say};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{Buffer, Descriptor, Error, Nic, Reliability, Vi, ViAttributes, ViState};

const LIMIT: Duration = Duration::from_secs(60);
/// More messages than fit on the way.
const MANY: usize = 50;

// Connects and says so; then it only waits to be killed.
viaduct_kit::child!(MORTAL, |args| {
    let (mut nic, vi) = end(args[0].as_ref(), ViAttributes::default());
    nic.connect(vi, &"said".parse().unwrap()).timeout(LIMIT).wait().unwrap();
    say("connected");
    hear();
});

fn end(folder: &std::path::Path, attributes: ViAttributes) -> (Nic, Vi) {
    let mut nic = Place { folder, mode: Mode::Direct }.open();
    let vi = nic.create_vi(attributes).unwrap();
    (nic, vi)
}

/// Two NICs of this process, connected; a message counts as out when it was received.
fn pair(folder: &TempDir) -> ((Nic, Vi), (Nic, Vi)) {
    let attributes = ViAttributes { reliability: Reliability::ReliableReception, ..ViAttributes::default() };
    let (mut a, mut b) = (end(folder.path(), attributes.clone()), end(folder.path(), attributes));
    let listener = b.0.listen(&"said".parse().unwrap(), 1).unwrap();
    a.0.connect(a.1, &"said".parse().unwrap()).timeout(LIMIT).start().unwrap();
    let request = b.0.wait_listener(listener, Some(LIMIT)).unwrap();
    b.0.accept(request, b.1).unwrap();
    b.0.unlisten(listener).unwrap();
    a.0.connect_finish(a.1).unwrap();
    (a, b)
}

/// Posts sends that the peer does not take.
fn post_in_vain(nic: &mut Nic, vi: Vi) {
    for n in 0..MANY {
        nic.post_send(vi, Descriptor::send(Buffer::from(vec![n as u8; 9000]))).unwrap();
    }
}

viaduct_kit::isolated! { limit 120;
    fn connections_and_their_ends_are_told_with_the_peer() {
        let _watchdog = Watchdog::arm(LIMIT, "connections in the log");
        let (heard, folder) = (Heard::listen(), TempDir::new("said"));
        let ((mut a, va), (mut b, vb)) = pair(&folder);
        assert_eq!(heard.count("DEBUG: connected vi=0 peer=said provider=shm reach=Direct"), 1, "{heard:?}");
        assert_eq!(heard.count("connected vi=0 peer=") , 2, "{heard:?}");

        a.disconnect(va).unwrap();
        assert_eq!(heard.count("disconnected vi=0 peer=said"), 1, "{heard:?}");
        b.wait_for(Some(LIMIT), |b| (b.query_vi(vb).unwrap().state == ViState::Error).then_some(())).unwrap();
        assert_eq!(heard.count("connection broken"), 1, "{heard:?}");

        // No listener, and one that says no.
        let absent = a.connect(va, &"absent".parse().unwrap()).timeout(LIMIT).wait();
        assert!(matches!(absent, Err(Error::NoMatch(_))), "{absent:?}");
        assert_eq!(heard.count("connection refused vi=0 peer=absent"), 1, "{heard:?}");
        let listener = b.listen(&"no".parse().unwrap(), 1).unwrap();
        a.connect(va, &"no".parse().unwrap()).timeout(LIMIT).start().unwrap();
        let request = b.wait_listener(listener, Some(LIMIT)).unwrap();
        b.reject(request).unwrap();
        assert!(matches!(a.connect_finish(va), Err(Error::Rejected { .. })));
        assert_eq!(heard.count("connection request rejected"), 1, "{heard:?}");
        assert_eq!(heard.count("connection refused vi=0 peer=no"), 1, "{heard:?}");
    }
}

viaduct_kit::isolated! { limit 120;
    fn the_death_of_a_peer_is_told() {
        let _watchdog = Watchdog::arm(LIMIT, "a death in the log");
        let (heard, folder) = (Heard::listen(), TempDir::new("said"));
        let (mut nic, vi) = end(folder.path(), ViAttributes::default());
        nic.vi(vi).unwrap().post_receives(1, 8).unwrap();
        let listener = nic.listen(&"said".parse().unwrap(), 1).unwrap();
        let mut peer = MORTAL.spawn(&[folder.path().to_str().unwrap()]);
        let request = nic.wait_listener(listener, Some(LIMIT)).unwrap();
        let from = request.from().to_string();
        nic.accept(request, vi).unwrap();
        peer.expect_line("connected", LIMIT);
        peer.kill();
        assert!(nic.wait_recv(vi, Some(LIMIT)).is_err());
        assert_eq!(heard.count(&format!("connection broken vi=0 peer={from} fault=Lost")), 1, "{heard:?}");
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_nic_that_is_dropped_tells_what_is_lost() {
        let _watchdog = Watchdog::arm(LIMIT, "a NIC that is dropped");
        let (heard, folder) = (Heard::listen(), TempDir::new("said"));
        let ((mut nic, vi), _peer) = pair(&folder);
        nic.set_drain(Duration::from_millis(20));
        post_in_vain(&mut nic, vi);
        drop(nic);
        assert_eq!(heard.count("WARN: a NIC was dropped before all its sends were out"), 1, "{heard:?}");

        // What is done, and what an application gives up on purpose, is not worth a word.
        let ((nic, _), _peer) = pair(&folder);
        drop(nic);
        let ((mut nic, vi), _peer) = pair(&folder);
        nic.set_drain(2 * LIMIT);
        post_in_vain(&mut nic, vi);
        // Were they waited for, the watchdog would bite.
        nic.abandon();
        assert_eq!(heard.count("before all its sends were out"), 1, "{heard:?}");
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_vi_that_is_retired_tells_what_is_lost() {
        let _watchdog = Watchdog::arm(LIMIT, "a VI that is retired");
        let (heard, folder) = (Heard::listen(), TempDir::new("said"));
        let ((mut nic, vi), _peer) = pair(&folder);
        nic.set_drain(Duration::from_millis(20));
        post_in_vain(&mut nic, vi);
        nic.retire(vi).unwrap();
        let other = nic.create_vi(ViAttributes::default()).unwrap();
        let lost = "WARN: a VI was retired before all its sends were out";
        nic.wait_for(Some(LIMIT), |nic| {
            assert!(nic.poll_recv(other).unwrap().is_none());
            (heard.count(lost) > 0).then_some(())
        })
        .unwrap();
        assert_eq!(heard.count(lost), 1, "{heard:?}");
    }
}
