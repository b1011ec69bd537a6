//! A peer that fills shared memory with garbage: its victim gets a clean error or data, never a crash, a hang or a
//! write outside of what was posted; and a third process that behaves notices nothing.

use std::time::{Duration, Instant};

use viaduct_faults::ledger::Account;
use viaduct_faults::node::{Mode, Place};
use viaduct_faults::scribbler::{self, ADDRESS, CONNECTIONS, Garbage, Target, WINDOW};
use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::effort;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::{
    Buffer, ConnRequest, Descriptor, Listener, MemAttributes, MemHandle, Nic, Op, ProtectionTag, Queue,
    RemoteAddress, Vi, ViAttributes, ViState,
};

const LIMIT: Duration = Duration::from_secs(30);
const ROUND: Duration = Duration::from_millis(200);
const CANARY: u8 = 0x5a;

// Sends, waits for its echo, again and again; ends when its input does.
viaduct_kit::child!(NEIGHBOUR, |args| {
    let place = Place { folder: args[0].as_ref(), mode: Mode::named(&args[1]) };
    let mut nic = place.open();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
    let buffer = |nic: &mut Nic, len| nic.alloc(len, MemAttributes::local(tag)).unwrap();
    for _ in 0..2 {
        let inbox = buffer(&mut nic, 20_000);
        nic.post_recv(vi, Descriptor::recv(inbox)).unwrap();
    }
    nic.connect_start(vi, None, &ADDRESS.parse().unwrap(), b"good", None).unwrap();
    nic.connect_finish(vi).unwrap();
    let parent = std::thread::spawn(hear);
    let mut count = 0u64;
    while !parent.is_finished() {
        count += 1;
        let len = [8, 90, 20_000][count as usize % 3];
        let text: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + count) as u8).collect();
        let mut message = buffer(&mut nic, len);
        message.write(0, &text);
        nic.post_send(vi, Descriptor::send(message)).unwrap();
        let echo = nic.wait_recv_outcome(vi, None).unwrap().0;
        assert!(echo.status.is_success() && echo.data() == text, "message {count}: {:?}", echo.status);
        nic.post_recv(vi, echo.descriptor).unwrap();
        while nic.poll_send(vi).unwrap().is_some() {}
    }
    say(format!("echoes {count}"));
    // The victim ends the connection.
    assert!(!nic.wait_recv_outcome(vi, None).unwrap().status().is_success());
});

struct Victim {
    nic: Nic,
    tag: ProtectionTag,
    listener: Listener,
    good: Vi,
    echoes: u64,
    neighbour: Child,
    /// Memory to which no peer was given a right.
    canaries: Vec<Buffer>,
}

impl Victim {
    fn new(place: Place<'_>) -> Victim {
        let mut nic = place.open_wary();
        let tag = nic.create_ptag().unwrap();
        let listener = nic.listen(&ADDRESS.parse().unwrap(), 8).unwrap();
        let neighbour = NEIGHBOUR.spawn(&[place.folder.to_str().unwrap(), place.mode.name()]);
        let good = nic.create_vi(ViAttributes::new(tag)).unwrap();
        for _ in 0..4 {
            let inbox = nic.alloc(20_000, MemAttributes::local(tag)).unwrap();
            nic.post_recv(good, Descriptor::recv(inbox)).unwrap();
        }
        let request = nic.wait_listener(listener, Some(LIMIT)).unwrap();
        assert_eq!(request.remote().private_data, b"good");
        nic.accept(request, good).unwrap();
        Victim { nic, tag, listener, good, echoes: 0, neighbour, canaries: Vec::new() }
    }

    fn canary(&mut self, len: usize, shared: bool) {
        let attributes = MemAttributes::local(self.tag);
        let buffer = if shared {
            self.nic.alloc(len, attributes)
        } else {
            self.nic.register(vec![0; len], attributes)
        };
        let mut buffer = buffer.unwrap();
        buffer.write(0, &vec![CANARY; len]);
        self.canaries.push(buffer);
    }

    /// Answers the neighbour, if it said something.
    fn echo(&mut self, limit: Option<Duration>) {
        let came = match limit {
            Some(Duration::ZERO) => self.nic.poll_recv(self.good).unwrap(),
            limit => Some(self.nic.wait_recv_outcome(self.good, limit).unwrap().0),
        };
        let Some(came) = came else { return };
        assert!(came.status.is_success(), "the neighbour's connection: {}", came.status);
        let mut back = self.nic.alloc(came.length as usize, MemAttributes::local(self.tag)).unwrap();
        back.write(0, &came.data());
        self.nic.post_recv(self.good, came.descriptor).unwrap();
        self.nic.post_send(self.good, Descriptor::send(back)).unwrap();
        while self.nic.poll_send(self.good).unwrap().is_some() {}
        self.echoes += 1;
    }

    fn accept(&mut self, request: ConnRequest) -> (Account, RemoteAddress) {
        let attributes = ViAttributes::new(self.tag).reliability(request.remote().reliability);
        let vi = self.nic.create_vi(attributes).unwrap();
        let mut account = Account::new(vi, None);
        for i in 0..30 {
            self.post_recv(&mut account, i);
        }
        let private = &request.remote().private_data;
        let addr = u64::from_ne_bytes(private[..8].try_into().unwrap());
        let handle = MemHandle::from_number(u32::from_ne_bytes(private[8..].try_into().unwrap()));
        self.nic.accept(request, vi).unwrap();
        (account, RemoteAddress { addr, handle })
    }

    fn post_recv(&mut self, account: &mut Account, i: usize) {
        let attributes = MemAttributes::local(self.tag);
        let len = [64, 3_000, 20_000][i % 3];
        let buffer = if i.is_multiple_of(2) {
            self.nic.alloc(len, attributes).unwrap()
        } else {
            // A frame around the bytes, which stays as it is.
            vec![0; len].into()
        };
        account.post(&mut self.nic, Queue::Receive, Descriptor::recv(buffer)).unwrap();
    }

    /// Something for the hostile peer: sends of all sizes, RDMA on its window.
    fn post_send(&mut self, account: &mut Account, window: RemoteAddress, garbage: &mut Garbage) {
        let attributes = MemAttributes::local(self.tag);
        let n = garbage.number();
        let len = [8, 100, 3_000, 20_000, WINDOW][n as usize % 5];
        let buffer =
            if n & 1 << 20 == 0 { self.nic.alloc(len, attributes).unwrap() } else { vec![1; len].into() };
        let descriptor = match n >> 8 & 7 {
            0 => Descriptor::rdma_write(buffer, window),
            1 => Descriptor::rdma_write(buffer, window).immediate(7),
            2 => Descriptor::rdma_read(buffer, window),
            3 => Descriptor::fetch_add(self.nic.alloc(8, attributes).unwrap(), window.offset(8), 1),
            _ => Descriptor::send(buffer),
        };
        account.post(&mut self.nic, Queue::Send, descriptor).unwrap();
    }

    /// One hostile peer from its coming to its end. How many of its connections broke while it lived.
    fn survives(&mut self, place: Place<'_>, seed: u64, target: Target, asleep: bool) -> usize {
        let mut peer = scribbler::start(place, seed, target);
        let mut garbage = Garbage::new(seed + 1_000);
        let mut accounts = Vec::new();
        while accounts.len() < CONNECTIONS {
            if let Some(request) = self.nic.poll_listener(self.listener).unwrap() {
                accounts.push(self.accept(request));
            }
            self.echo(Some(Duration::ZERO));
        }
        peer.expect_line("connected", LIMIT);
        let before = self.echoes;
        peer.send_line("go");
        let (mut broken, start) = (0, Instant::now());
        // Long enough, and until the neighbour was served: on a busy machine that may take longer.
        while start.elapsed() < ROUND || self.echoes < before + 3 {
            if asleep {
                // Nothing but the neighbour's message wakes this thread.
                self.echo(None);
                continue;
            }
            self.echo(Some(Duration::ZERO));
            broken = 0;
            for (i, (account, window)) in accounts.iter_mut().enumerate() {
                if self.nic.query_vi(account.vi).unwrap().state == ViState::Error {
                    broken += 1;
                    continue;
                }
                for queue in [Queue::Send, Queue::Receive] {
                    while let Some(done) = poll(&mut self.nic, account.vi, queue) {
                        // What the peer says of its RDMA write is its own affair; a message lies in the buffer.
                        let room = done.descriptor.work().total;
                        assert!(
                            done.op == Op::RemoteRdmaWrite || done.length <= room,
                            "seed {seed}: {done:?}"
                        );
                        drop(done.data());
                        account.back(&done);
                    }
                }
                let info = self.nic.query_vi(account.vi).unwrap();
                if info.receives < 20 {
                    self.post_recv(account, i);
                }
                if info.sends < 8 {
                    self.post_send(account, *window, &mut garbage);
                }
            }
        }
        peer.close_input();
        for (account, _) in accounts {
            account.is_over(&mut self.nic);
            account.close(&mut self.nic);
        }
        assert!(peer.wait(LIMIT).success(), "the scribbler ends by itself");
        self.echo(None);
        for canary in &self.canaries {
            assert!(
                canary.to_vec(canary.len()).iter().all(|byte| *byte == CANARY),
                "seed {seed}: a stray write"
            );
        }
        broken
    }

    fn end(mut self) -> u64 {
        self.neighbour.close_input();
        // It is in a wait that only an answer ends.
        let heard = loop {
            if let Some(line) = self.neighbour.next_line(Duration::from_millis(1)) {
                break line;
            }
            self.echo(Some(Duration::ZERO));
        };
        let echoes: u64 = heard.strip_prefix("echoes ").unwrap().parse().unwrap();
        self.nic.disconnect(self.good).unwrap();
        self.neighbour.finish(LIMIT);
        echoes
    }
}

fn poll(nic: &mut Nic, vi: Vi, queue: Queue) -> Option<viaduct_via::Completion> {
    match queue {
        Queue::Send => nic.poll_send(vi).unwrap(),
        Queue::Receive => nic.poll_recv(vi).unwrap(),
    }
}

fn scribbled_on(mode: Mode, target: Target, asleep: bool) {
    let folder = TempDir::new("hostile");
    let place = Place { folder: folder.path(), mode };
    let mut victim = Victim::new(place);
    victim.canary(100_000, false);
    // With direct access a peer is trusted with payload; without it no slab is ever shown to it.
    if mode == Mode::Copy {
        victim.canary(100_000, true);
    }
    let (rounds, mut broken) = (effort::rounds(8, 100), 0);
    for seed in 0..rounds {
        let _watchdog = Watchdog::arm(LIMIT, &format!("{mode:?}, {target:?}, asleep {asleep}, seed {seed}"));
        broken += victim.survives(place, seed, target, asleep);
    }
    let _watchdog = Watchdog::arm(LIMIT, "the neighbour's end");
    let echoes = victim.end();
    eprintln!(
        "{mode:?}, {target:?}: {rounds} hostile peers, {broken} connections broken, {echoes} echoes of the neighbour"
    );
}

viaduct_kit::isolated! { limit 600;
    fn garbage_in_direct_mode_concerns_its_own_connection_only() {
        scribbled_on(Mode::Direct, Target::Everything, false);
    }
}

viaduct_kit::isolated! { limit 600;
    fn garbage_in_copy_mode_concerns_its_own_connection_only() {
        scribbled_on(Mode::Copy, Target::Everything, false);
    }
}

viaduct_kit::isolated! { limit 600;
    fn garbage_does_not_keep_a_sleeper_from_being_woken() {
        scribbled_on(Mode::Direct, Target::Everything, true);
    }
}

viaduct_kit::isolated! { limit 600;
    fn a_silenced_bell_does_not_keep_a_sleeper_from_being_woken() {
        scribbled_on(Mode::Direct, Target::Bells, true);
    }
}

// Makes many connections, and says for ever that it is inside a copy on each.
viaduct_kit::child!(DAWDLER, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    for _ in 0..DAWDLES {
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.connect_request(vi, &ADDRESS.parse().unwrap(), None).unwrap();
    }
    // Half a lane of 64 entries, and where `tx.busy` is in it: the upper half of the first word.
    let (direction, busy) = ((1_216 + 64 * 64) / 8, 1 << 32);
    for range in scribbler::ranges("viaduct-lanes") {
        let words = scribbler::words(range);
        words
            .iter()
            .step_by(direction)
            .for_each(|word| word.store(busy, std::sync::atomic::Ordering::Relaxed));
    }
    say("inside");
    hear();
});

const DAWDLES: usize = 56;

#[test]
fn copies_that_never_end_hold_up_a_withdrawal_once() {
    // One after the other, the waits would take far longer than the watchdog does.
    let _watchdog =
        Watchdog::arm(effort::scaled(Duration::from_secs(90)), "withdrawals beside copies that do not end");
    let folder = TempDir::new("dawdle");
    let place = Place { folder: folder.path(), mode: Mode::Direct };
    let mut nic = place.open();
    let tag = nic.create_ptag().unwrap();
    let listener = nic.listen(&ADDRESS.parse().unwrap(), 8).unwrap();
    let mut child = DAWDLER.spawn(&[folder.path().to_str().unwrap()]);
    let vis: Vec<Vi> = (0..DAWDLES)
        .map(|_| {
            let request = nic.wait_listener(listener, Some(LIMIT)).unwrap();
            let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
            nic.accept(request, vi).unwrap();
            vi
        })
        .collect();
    child.expect_line("inside", LIMIT);
    for turn in 0..40 {
        let start = Instant::now();
        let window = nic.alloc(4096, MemAttributes::remote(tag)).unwrap();
        nic.deregister(window).unwrap();
        // Else the child wrote somewhere else, and this shows nothing: a withdrawal waits 100 ms at least.
        let took = start.elapsed();
        assert!(turn > 0 || took >= Duration::from_millis(50), "no copy is under way: {took:?}");
    }
    for vi in vis {
        nic.disconnect(vi).unwrap();
    }
}
