//! A peer stopped by SIGSTOP: no error, time-outs that may be retried, little CPU, and after SIGCONT intact data.

use std::time::{Duration, Instant};

use viaduct_faults::actor::{self, Fate};
use viaduct_faults::frozen::Frozen;
use viaduct_faults::node::{Mode, Place};
use viaduct_faults::plan::{self, Role};
use viaduct_faults::session;
use viaduct_kit::child::{hear, say};
use viaduct_kit::effort;
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::process::is_stopped;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::point::{self, Action};
use viaduct_via::{Descriptor, Error, MemAttributes, NetAddress, Queue, Status, ViAttributes, ViState};

const LIMIT: Duration = Duration::from_secs(30);

/// Most of one CPU that waiting for a stopped peer may take, in per cent. Spinning would take a hundred.
const CPU: f64 = 20.0;

/// Where peers stop; each point is passed by both roles, but for those that only one has.
const EVERYWHERE: &[&str] = &[
    "open.core",
    "inline.before",
    "inline.put",
    "push.entered",
    "push.left",
    "pull.offered",
    "large.put",
    "bounce.filled",
    "map.asked",
    "take.seen",
    "take.fetched",
    "take.completed",
    "service.before-hand-out",
    "rdma.mapped-entered",
    "rdma.kernel-entered",
    "rdma.helper-asked",
    "service.rdma-checked",
    "withdraw.gone",
    "close.begin",
    "close.told",
    "close.detached",
];
const CLIENT: &[&str] =
    &["request.connected", "request.sent", "answer.received", "answer.mapped", "ack.sent"];
const SERVER: &[&str] =
    &["listen.watched", "asked.received", "accept.begin", "accept.before-send", "accept.sent"];

fn stops(mode: Mode, victim: Role) {
    let folder = TempDir::new("stop");
    let place = Place { folder: folder.path(), mode };
    drop(place.open());
    let leaks = LeakCheck::start_with_folders([folder.path()]);
    let own = if victim == Role::Client { CLIENT } else { SERVER };
    let (mut stopped, mut timeouts, mut most) = (0, 0, 0.0_f64);
    {
        let mut nic = place.open();
        for point in own.iter().chain(EVERYWHERE) {
            for nth in 1..=effort::rounds(1, 4) {
                let what = format!("{mode:?}, {victim:?} stops at {point} {nth}");
                let _watchdog = Watchdog::arm(LIMIT, &what);
                let mut child = actor::start(place, victim, &Fate::Stopped((*point).into(), nth));
                let mut partner = Frozen::new(&mut child);
                let report = session::run(&mut nic, place, victim.other(), &plan::whole(mode), &mut partner);
                let (seen, cpu) = (partner.timeouts, partner.cpu);
                assert!(report.result.is_ok(), "{what}: {:?}", report.result);
                // It may stop when no caller waits for it any more, or not have passed there.
                while cpu.is_none() && child.next_line(Duration::from_millis(50)).is_none() {
                    child.cont();
                }
                child.close_input();
                assert!(child.wait(LIMIT).success(), "{what}: it finds nothing wrong either");
                if let Some(cpu) = cpu {
                    (stopped, timeouts, most) = (stopped + 1, timeouts + seen, most.max(cpu));
                    assert!(cpu < CPU, "{what}: waiting for it took {cpu:.0} % of a CPU");
                }
            }
        }
    }
    leaks.finish();
    assert!(stopped >= 15, "only {stopped} stops were noticed");
    eprintln!(
        "{mode:?}, {victim:?}: {stopped} stops, {timeouts} time-outs, 0 errors, at most {most:.1} % CPU"
    );
}

viaduct_kit::isolated! { limit 600;
    fn a_stopped_client_is_not_dead() {
        stops(Mode::Direct, Role::Client);
    }
}

viaduct_kit::isolated! { limit 600;
    fn a_stopped_server_is_not_dead() {
        stops(Mode::Direct, Role::Server);
    }
}

viaduct_kit::isolated! { limit 600;
    fn a_stopped_server_that_copies_is_not_dead() {
        stops(Mode::Copy, Role::Server);
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_peer_stopped_inside_a_copy_does_not_hold_up_disconnect() {
        let _watchdog = Watchdog::arm(LIMIT, "disconnect from a peer stopped in a copy");
        let folder = TempDir::new("stop");
        let place = Place { folder: folder.path(), mode: Mode::Direct };
        let mut nic = place.open();
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        // The receives of the whole plan as the client's messages need them, the addresses first.
        for len in [24, 8, 100, 24, 20_000] {
            let buffer = nic.alloc(len, MemAttributes::local(tag)).unwrap();
            nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
        }
        let listener = nic.listen(&"faults-a".parse().unwrap(), 1).unwrap();
        let mut child = actor::start(place, Role::Client, &Fate::Stopped("push.entered".into(), 1));
        let request = nic.wait_listener(listener, Some(LIMIT)).unwrap();
        nic.accept(request, vi).unwrap();
        let got = nic.wait_recv(vi, Some(LIMIT)).unwrap();
        assert_eq!(got.length, 24);
        let mut answer = nic.alloc(24, MemAttributes::local(tag)).unwrap();
        answer.write(0, &got.data());
        nic.post_send(vi, Descriptor::send(answer)).unwrap();
        while !is_stopped(child.pid()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        nic.disconnect(vi).unwrap();
        let queue = |nic: &mut viaduct_via::Nic, queue| match queue {
            Queue::Send => nic.poll_send(vi).unwrap(),
            Queue::Receive => nic.poll_recv(vi).unwrap(),
        };
        assert!(queue(&mut nic, Queue::Send).unwrap().status.is_success());
        let mut back = Vec::new();
        while let Some(completion) = queue(&mut nic, Queue::Receive) {
            back.push(completion.status);
        }
        assert_eq!(back.len(), 4);
        assert_eq!(back.last(), Some(&Status::Flushed));
        nic.destroy_vi(vi).unwrap();
        child.cont();
        assert_eq!(child.wait(LIMIT).code(), Some(actor::CUT_OFF), "it finds its connection ended");
    }
}

// Connects, posts a receive of ordinary memory, and never looks at it.
viaduct_kit::child!(LAZY_RECEIVER, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let inbox = nic.register(vec![0; 4 << 20], MemAttributes::local(tag)).unwrap();
    nic.post_recv(vi, Descriptor::recv(inbox)).unwrap();
    nic.connect_request(vi, &"busy".parse().unwrap(), None).unwrap();
    say("connected");
    hear();
});

// Connects and echoes the length of each message of ordinary memory.
viaduct_kit::child!(EAGER_RECEIVER, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    for _ in 0..4 {
        let inbox = nic.register(vec![0; 4 << 20], MemAttributes::local(tag)).unwrap();
        nic.post_recv(vi, Descriptor::recv(inbox)).unwrap();
    }
    nic.connect_request(vi, &"busy".parse().unwrap(), None).unwrap();
    while let Ok(got) = nic.wait_recv_outcome(vi, None) {
        if !got.status().is_success() {
            break;
        }
        say(format!("got {}", got.0.length));
        nic.post_recv(vi, got.0.descriptor).unwrap();
    }
});

viaduct_kit::isolated! { limit 120;
    fn peers_that_fetch_nothing_hold_up_no_other_peer() {
        let _watchdog = Watchdog::arm(LIMIT, "a message beside stopped receivers");
        let folder = TempDir::new("stop");
        let path = folder.path().to_str().unwrap();
        let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
        let tag = nic.create_ptag().unwrap();
        let listener = nic.listen(&"busy".parse().unwrap(), 8).unwrap();
        let accept = |nic: &mut viaduct_via::Nic| {
            let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
            let request = nic.wait_listener(listener, Some(LIMIT)).unwrap();
            nic.accept(request, vi).unwrap();
            vi
        };
        let message = |nic: &mut viaduct_via::Nic, len| {
            Descriptor::send(nic.register(vec![7; len], MemAttributes::local(tag)).unwrap())
        };
        // Several, so that no pool for all would be large enough.
        let mut stopped = Vec::new();
        for _ in 0..6 {
            let mut child = LAZY_RECEIVER.spawn(&[path]);
            let vi = accept(&mut nic);
            child.expect_line("connected", LIMIT);
            child.stop();
            let long = message(&mut nic, 2 << 20);
            nic.post_send(vi, long).unwrap();
            assert!(nic.poll_send(vi).unwrap().is_none(), "it is longer than all bounce buffers");
            stopped.push((child, vi));
        }
        let mut eager = EAGER_RECEIVER.spawn(&[path]);
        let vi = accept(&mut nic);
        let mut goes_through = |nic: &mut viaduct_via::Nic| {
            let text = message(nic, 300_000);
            nic.post_send(vi, text).unwrap();
            assert_eq!(nic.wait_send_outcome(vi, Some(LIMIT)).unwrap().status(), Status::Success);
            assert_eq!(eager.expect_line("got ", LIMIT), "300000");
        };
        goes_through(&mut nic);
        for (_, vi) in &stopped {
            nic.disconnect(*vi).unwrap();
        }
        goes_through(&mut nic);
        stopped.iter_mut().for_each(|(child, _)| child.kill());
        goes_through(&mut nic);
        nic.disconnect(vi).unwrap();
        eager.finish(LIMIT);
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_connection_that_fetches_nothing_leaves_bounce_buffers_to_others_of_its_process() {
        let _watchdog = Watchdog::arm(LIMIT, "a message beside one that is not fetched");
        let folder = TempDir::new("stop");
        let place = Place { folder: folder.path(), mode: Mode::Direct };
        let (mut nic, mut peer) = (place.open(), place.open());
        let (tag, peer_tag) = (nic.create_ptag().unwrap(), peer.create_ptag().unwrap());
        let listener = peer.listen(&"busy".parse().unwrap(), 8).unwrap();
        let mut connect = || {
            let (ours, theirs) =
                (nic.create_vi(ViAttributes::new(tag)).unwrap(), peer.create_vi(ViAttributes::new(peer_tag)).unwrap());
            let inbox = peer.register(vec![0; 4 << 20], MemAttributes::local(peer_tag)).unwrap();
            peer.post_recv(theirs, Descriptor::recv(inbox)).unwrap();
            nic.connect_start(ours, None, &"busy".parse().unwrap(), &[], None).unwrap();
            let request = peer.wait_listener(listener, Some(LIMIT)).unwrap();
            peer.accept(request, theirs).unwrap();
            nic.connect_finish(ours).unwrap();
            (ours, theirs)
        };
        let (idle, busy) = (connect(), connect());
        let mut send = |vi| {
            let text = nic.register(vec![7; 2 << 20], MemAttributes::local(tag)).unwrap();
            nic.post_send(vi, Descriptor::send(text)).unwrap();
        };
        send(idle.0);
        send(busy.0);
        let got = loop {
            assert!(nic.poll_send(idle.0).unwrap().is_none());
            let _ = nic.poll_send(busy.0).unwrap();
            if let Some(got) = peer.poll_recv(busy.1).unwrap() {
                break got;
            }
        };
        assert!(got.status.is_success() && got.length == 2 << 20);
    }
}

// Stops at a point and then serves: requests that were given up meanwhile fail, the next one stands.
viaduct_kit::child!(SERVER_THAT_STOPS, |args| {
    point::arm(&args[1], 1, Action::Stop);
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let listener = nic.listen(&"faults-a".parse().unwrap(), 8).unwrap();
    loop {
        let request = nic.wait_listener(listener, None).unwrap();
        match nic.accept(request, vi) {
            Ok(()) => break,
            Err(refused) => assert!(matches!(refused.error, Error::NotReachable(_)), "{refused}"),
        }
    }
    hear();
});

viaduct_kit::isolated! { limit 120;
    fn a_request_to_a_stopped_server_times_out_and_may_be_repeated() {
        let _watchdog = Watchdog::arm(LIMIT, "a request to a stopped server");
        let folder = TempDir::new("stop");
        let place = Place { folder: folder.path(), mode: Mode::Direct };
        let address: NetAddress = "faults-a".parse().unwrap();
        for point in ["listen.watched", "asked.received", "accept.begin"] {
            let mut nic = place.open();
            let tag = nic.create_ptag().unwrap();
            let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
            let mut child = SERVER_THAT_STOPS.spawn(&[folder.path().to_str().unwrap(), point]);
            let mut timeouts = 0;
            loop {
                match nic.connect_request(vi, &address, Some(Duration::from_millis(100))) {
                    Ok(_) => break,
                    Err(Error::Timeout) => {
                        assert_eq!(nic.query_vi(vi).unwrap().state, ViState::Idle);
                        timeouts += 1;
                        if timeouts == 2 {
                            child.cont();
                        }
                    }
                    Err(Error::NoMatch(_) | Error::NoRoom { .. }) => std::thread::sleep(Duration::from_millis(1)),
                    Err(error) => panic!("{point}: {error}"),
                }
            }
            assert!(timeouts >= 2, "{point}");
            assert_eq!(nic.query_vi(vi).unwrap().state, ViState::Connected);
            child.finish(LIMIT);
        }
    }
}

viaduct_kit::isolated! { limit 120;
    fn a_process_stopped_at_the_folder_does_not_hold_up_others() {
        let _watchdog = Watchdog::arm(LIMIT, "a NIC beside a stopped process that holds the folder");
        let folder = TempDir::new("stop");
        let place = Place { folder: folder.path(), mode: Mode::Direct };
        for point in ["sweep.locked", "bind.locked", "bind.bound"] {
            let mut child = actor::start(place, Role::Server, &Fate::Stopped(point.into(), 1));
            while !is_stopped(child.pid()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut nic = place.open();
            let start = Instant::now();
            // Binding waits for its turn, but not for ever.
            if let Err(error) = nic.listen(&"elsewhere".parse().unwrap(), 1) {
                assert!(matches!(error, Error::Os(_)) && start.elapsed() > Duration::from_secs(1), "{error}");
            }
            child.cont();
            nic.listen(&"elsewhere-too".parse().unwrap(), 1).unwrap();
        }
    }
}
