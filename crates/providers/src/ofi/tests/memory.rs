//! Memory that is being sent from is not given back, whatever a peer says.

use std::sync::Arc;

use proptest::prelude::{Just, prop_oneof};
use viaduct_via::raw::RawMemory;
use viaduct_via::{Op, Status};

use super::super::wire::FAILED;
use super::*;

/// Longer than what leaves at once through a small window.
const LARGE: usize = 1 << 20;

/// Pages of their own, which can be locked: then every access ends the process.
struct Pages(*mut u8);

// SAFETY: only maps and unmaps.
unsafe impl Send for Pages {}
// SAFETY: has nothing to be called but `lock`, which may be called at any time.
unsafe impl Sync for Pages {}

impl Pages {
    fn new() -> Arc<Pages> {
        let (how, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: fresh pages, wherever there is room.
        let memory = unsafe { libc::mmap(ptr::null_mut(), LARGE, how, kind, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Arc::new(Pages(memory.cast()))
    }

    fn lock(&self) {
        // SAFETY: pages of ours; that the program uses them no more is what the test is about.
        assert_eq!(unsafe { libc::mprotect(self.0.cast(), LARGE, libc::PROT_NONE) }, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by us, once.
        unsafe { libc::munmap(self.0.cast(), LARGE) };
    }
}

impl Scene {
    /// Posts a large send from pages of its own.
    fn send_large(&mut self, vi: Vi) -> Arc<Pages> {
        let pages = Pages::new();
        // SAFETY: so many bytes, which live as long as the Arc.
        let memory = unsafe { RawMemory::from_shared(pages.0, LARGE, pages.clone()) };
        let buffer = self.nic.register_raw(memory, MemAttributes::local(self.tag)).unwrap();
        self.nic.post_send(vi, Descriptor::send(buffer)).unwrap();
        pages
    }
}

/// A frame without content that claims to be the next one.
fn frame(rogue: &Rogue, kind: Kind, change: impl FnOnce(&mut Head)) -> Vec<u8> {
    let mut head = Head::new(kind);
    head.sequence = rogue.sent.into();
    change(&mut head);
    head.as_bytes().to_vec()
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_report_of_a_failure_breaks_a_connection_that_has_no_reports() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "reports");
    let Some(mut s) = scene() else { return };
    for level in [Reliability::Unreliable, Reliability::ReliableDelivery] {
        let (mut rogue, vi) = s.connected_at(level, 1);
        let pages = s.send_large(vi);
        let failed = frame(&rogue, Kind::Alive, |h| (h.flags, h.status) = (FAILED, 7));
        assert!(rogue.send(&failed));
        let end = Instant::now() + scaled(Duration::from_secs(30));
        let back = loop {
            if let Ok(Some(back)) = s.nic.poll_send(vi) {
                break back;
            }
            assert!(Instant::now() < end, "the send does not come back");
        };
        assert_eq!((back.op, back.status), (Op::Send, Status::Flushed), "{level:?}");
        assert_eq!(s.nic.query_vi(vi).unwrap().state, ViState::Error);
        pages.lock();
        // The rest would leave now, from memory that is not ours any more.
        let credit = frame(&rogue, Kind::Credit, |h| h.data_credits = 1.into());
        rogue.send(&credit);
        s.nic.disconnect(vi).unwrap();
        drop(rogue);
        drop(back);
    }
    s.is_well();
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_message_refused_in_the_middle_is_not_sent_on() {
    let _watchdog = Watchdog::arm(Duration::from_secs(300), "a refusal");
    let Some(mut s) = scene() else { return };
    let (mut rogue, vi) = s.connected_at(Reliability::ReliableReception, 1);
    let pages = s.send_large(vi);
    let status = Status::RemoteDescriptorError as u8;
    let failed = frame(&rogue, Kind::Alive, |h| (h.flags, h.status) = (FAILED, status));
    assert!(rogue.send(&failed));
    let back = s.nic.wait_send_outcome(vi, Some(scaled(Duration::from_secs(30)))).unwrap();
    assert_eq!(back.status(), Status::RemoteDescriptorError);
    pages.lock();
    let credit = frame(&rogue, Kind::Credit, |h| h.data_credits = 1.into());
    rogue.send(&credit);
    s.breaks(vi, "a message was refused");
    drop(back);
    s.is_well();
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn memory_that_came_back_is_never_touched_again_whatever_a_peer_sends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(600), "random frames while sending");
    let Some(mut s) = scene() else { return };
    let mut runner = TestRunner::deterministic();
    // Mostly frames without content that a connection may survive, and some of any kind.
    let kind = prop_oneof![6 => 8u8..11, 1 => 2u8..13];
    let flags = prop_oneof![2 => Just(0u8), 2 => Just(FAILED), 1 => 0u8..32];
    let fields = (flags, 1u8..9, 0u32..4, 0u16..2, prop_oneof![4 => Just(0u32), 1 => 1u32..3]);
    let len = prop_oneof![4 => Just(0usize), 1 => 0usize..64];
    let strategy = proptest::collection::vec((kind, fields, len), 1..12);
    for round in 0..rounds(60, 1200) {
        let level = Reliability::ALL[round as usize % Reliability::ALL.len()];
        let (mut rogue, vi) = s.connected_at(level, 1 + (round % 4) as u16);
        let mut out: VecDeque<Arc<Pages>> = (0..2).map(|_| s.send_large(vi)).collect();
        let mut back = Vec::new();
        let mut reap = |s: &mut Scene, out: &mut VecDeque<Arc<Pages>>| {
            while let Ok(Some(done)) = s.nic.poll_send(vi) {
                out.pop_front().expect("as many as were posted").lock();
                back.push(done);
            }
        };
        let frames = strategy.new_tree(&mut runner).unwrap().current();
        for (kind, (flags, status, number, credits, acked), len) in frames {
            let mut head = Head::new(Kind::Alive);
            head.as_mut_bytes()[0] = kind;
            (head.flags, head.status) = (flags, status);
            (head.sequence, head.length) = (rogue.sent.into(), (len as u32).into());
            (head.number, head.acked, head.data_credits) = (number.into(), acked.into(), credits.into());
            if !rogue.send(&[head.as_bytes(), &vec![0xaa; len]].concat()) {
                break;
            }
            rogue.look();
            reap(&mut s, &mut out);
        }
        // Credits for what is left, if the connection still stands.
        for _ in 0..8 {
            let credit = frame(&rogue, Kind::Credit, |h| h.data_credits = 1.into());
            if !rogue.send(&credit) {
                break;
            }
            reap(&mut s, &mut out);
        }
        drop(rogue);
        let end = Instant::now() + scaled(Duration::from_secs(30));
        while !out.is_empty() {
            assert!(Instant::now() < end, "a send does not come back");
            reap(&mut s, &mut out);
        }
        s.breaks(vi, "it is gone");
    }
    s.is_well();
}
