//! A message whose send completed with success arrives whole, whatever its sender does next: a complete send needs its
//! sender no more.
//!
//! Each case is a process that sends one message, waits for its completion and ends. The receiver has a receive
//! posted, and where the send completes without it, looks at nothing before the sender has ended: what it has to fetch,
//! it then fetches from a process that is gone. Unreliable connections may lose messages between hosts, and reliable
//! delivery may lose the end of a long one whose sender is killed (docs/protocols/ofi.md); on one host nothing is lost
//! while a receive is posted.
//!
//! A sender is connected a moment before the receiver's VI is, and knows of no receive in that moment. A message that it
//! could have pushed into one is then fetched, and its send is complete when the receiver has it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use viaduct_faults::node::{Mode, Place, config};
use viaduct_job::Token;
use viaduct_kit::child::{hear, say};
use viaduct_kit::effort;
use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_os::point::{self, Action};
use viaduct_providers::{Config, open};
use viaduct_via::{
    Buffer, Descriptor, Error, MemAttributes, Nic, Op, ProtectionTag, Reliability, Status, ViAttributes,
    ViState,
};

const LIMIT: Duration = Duration::from_secs(60);
const SIZES: [usize; 8] = [0, 1, 104, 105, 4 << 10, 64 << 10, (64 << 10) + 1, 1 << 20];
const ENDINGS: [&str; 3] = ["exits", "killed", "disconnects"];
const MEMORY: [&str; 2] = ["registered", "allocated"];
/// Ways in beside a posted descriptor, with sizes for each: one with immediate data, and bytes by value, whose call returns
/// when they are taken.
const OTHER_WAYS: [(&str, &[usize]); 3] =
    [("immediate", &SIZES), ("inline", &[0, 1, 104]), ("value", &[105, 4 << 10, 64 << 10, (64 << 10) + 1])];
/// What goes with a message by all of these ways.
const IMMEDIATE: u32 = 0x0bad_cafe;
/// Cases that run side by side: most of a short one is the start of its process.
const SIDE_BY_SIDE: usize = 4;
/// How long a receiver that is late takes to tell its sender of the receive: most senders have sent by then.
const LATE: Duration = Duration::from_millis(30);
/// How long the control thread of a receiver is held up: most senders have ended by then.
const LATER: Duration = Duration::from_millis(500);

/// One message.
#[derive(Clone, Debug)]
struct Case {
    provider: String,
    isolate: bool,
    level: Reliability,
    size: usize,
    way: &'static str,
    from: &'static str,
    into: &'static str,
    ending: &'static str,
    /// The sender is connected for a while before it can know of the receive.
    late: bool,
}

impl Case {
    /// The words for the sender's process.
    fn words(&self, folder: &TempDir, token: &Token) -> [String; 10] {
        [
            folder.path().display().to_string(),
            self.provider.clone(),
            self.isolate.to_string(),
            (self.level as u8).to_string(),
            self.size.to_string(),
            self.from.into(),
            self.ending.into(),
            token.secret_text(),
            self.waits_for_the_receive().to_string(),
            self.way.into(),
        ]
    }

    /// Whether the call that takes the bytes is all there is to the send.
    fn is_by_value(&self) -> bool {
        matches!(self.way, "value" | "inline")
    }

    /// Whether the message goes straight into the receive, if its sender knows of that.
    fn can_be_pushed(&self) -> bool {
        self.into == "allocated" && self.level.is_reliable()
    }

    /// Whether the message would be fetched out of the sender's buffer if it were not pushed.
    fn can_be_pulled(&self) -> bool {
        self.from == "allocated" && self.size > 104 && !self.is_by_value()
    }

    /// Whether the sender must know of the receive before it sends, so that the send completes without the receiver.
    fn waits_for_the_receive(&self) -> bool {
        self.can_be_pushed() && self.can_be_pulled() && !self.needs_the_receiver()
    }

    /// Whether the level allows that the message does not arrive, which its receive then says. Reliable delivery over a
    /// network is done when the kernel has the bytes. A kernel that ends a process resets its connections that have
    /// unread input, such as the credits that come back for a message of many frames, and drops what it has not sent.
    fn may_be_lost(&self) -> bool {
        self.provider.starts_with("ofi")
            && self.level == Reliability::ReliableDelivery
            && self.size >= 1 << 20
            && self.ending != "disconnects"
    }

    /// Whether the receiver has to do something before the send can complete.
    fn needs_the_receiver(&self) -> bool {
        let pulled = self.can_be_pulled() && (!self.can_be_pushed() || self.late);
        !self.is_by_value()
            && (self.level == Reliability::ReliableReception || self.size >= 1 << 20 || pulled)
    }
}

fn settings(folder: &str, provider: &str, isolate: bool, token: &str) -> (String, Config) {
    let mode = if provider == "auto" { Mode::Auto } else { Mode::Direct };
    let mut config = config(folder.as_ref(), mode);
    config.shm.isolate = isolate;
    config.ofi.token = Some(token.parse().expect("a token"));
    config.ofi.bind = Some(std::net::Ipv4Addr::LOCALHOST.into());
    config.ofi.silence = scaled(Duration::from_secs(30));
    (provider.to_owned(), config)
}

fn memory(nic: &mut Nic, tag: ProtectionTag, kind: &str, len: usize) -> Buffer {
    match kind {
        "allocated" => nic.alloc(len, MemAttributes::local(tag)).unwrap(),
        _ => nic.register(vec![0; len], MemAttributes::local(tag)).unwrap(),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + len) as u8).collect()
}

// Sends one message, and ends in the way it is told as soon as the send is complete.
viaduct_kit::child!(SENDER, |args| {
    let [folder, provider, isolate, level, size, from, ending, token, waits, way] = args else {
        panic!("{args:?}")
    };
    let (provider, config) = settings(folder, provider, isolate == "true", token);
    let mut nic = Nic::open(open(&provider, &config).unwrap()).unwrap();
    let tag = nic.create_ptag().unwrap();
    let level = Reliability::ALL.into_iter().find(|l| (*l as u8).to_string() == *level).unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(level)).unwrap();
    let size: usize = size.parse().unwrap();
    let mut buffer = memory(&mut nic, tag, from, size.max(1));
    buffer.write(0, &pattern(size));
    loop {
        match nic.connect_request(vi, &"outlive".parse().unwrap(), Some(scaled(LIMIT))) {
            Ok(_) => break,
            Err(Error::NoMatch(_) | Error::NoRoom { .. }) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    if waits == "true" {
        assert_eq!(hear().as_deref(), Some("connected"));
    }
    if ["value", "inline"].contains(&way.as_str()) {
        let bytes = buffer.to_vec(size);
        let sent = nic.wait_for(Some(scaled(LIMIT)), |nic| {
            let taken = match way.as_str() {
                "inline" => nic.send_inline(vi, &bytes, Some(IMMEDIATE)),
                _ => nic.send_value(vi, &[&bytes[..size / 3], &bytes[size / 3..]], Some(IMMEDIATE)),
            };
            (!matches!(taken, Err(Error::Busy))).then_some(taken)
        });
        sent.unwrap().unwrap();
    } else {
        let descriptor = Descriptor::new(Op::Send).segment_range(buffer, 0..size);
        let with = way == "immediate";
        nic.post_send(vi, if with { descriptor.immediate(IMMEDIATE) } else { descriptor }).unwrap();
        let sent = nic.wait_send_outcome(vi, Some(scaled(LIMIT))).unwrap();
        assert_eq!(sent.status(), Status::Success);
    }
    match ending.as_str() {
        // SAFETY: ends the process at once; nothing of it is used any more.
        "exits" => unsafe { libc::_exit(0) },
        "killed" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        _ => nic.disconnect(vi).unwrap(),
    }
});

/// Whether the case could be tried: not where its provider is not to be had.
fn arrives(case: &Case) -> bool {
    let _watchdog = Watchdog::arm(scaled(LIMIT) * 2, &format!("{case:?}"));
    let (folder, token) = (TempDir::new("outlive"), Token::random());
    let words = case.words(&folder, &token);
    let (provider, config) = settings(&words[0], &case.provider, case.isolate, &words[7]);
    let provider = match open(&provider, &config) {
        Ok(provider) => provider,
        Err(error) => {
            viaduct_kit::packages::skip(&error.to_string());
            return false;
        }
    };
    let mut nic = Nic::open(provider).unwrap();
    let tag = nic.create_ptag().unwrap();
    let vi = nic.create_vi(ViAttributes::new(tag).reliability(case.level)).unwrap();
    let into = memory(&mut nic, tag, case.into, 1 << 20);
    nic.post_recv(vi, Descriptor::recv(into)).unwrap();
    let listener = nic.listen(&"outlive".parse().unwrap(), 1).unwrap();
    let mut child = SENDER.spawn(&words.each_ref().map(String::as_str));
    let request = nic.wait_listener(listener, Some(scaled(LIMIT))).unwrap();
    if case.late {
        // The answer is on its way, the receive has not been published.
        point::arm("accept.endpoint", 1, Action::Sleep(LATE));
    }
    nic.accept(request, vi).unwrap();
    if case.waits_for_the_receive() {
        child.send_line("connected");
    }
    let ended = |status: std::process::ExitStatus| {
        assert!(status.success() != (case.ending == "killed"), "{case:?}: the sender ended with {status}");
    };
    if !case.needs_the_receiver() {
        ended(child.wait(scaled(LIMIT)));
    }
    let got = loop {
        match nic.wait_recv_outcome(vi, Some(Duration::from_millis(100))) {
            Ok(got) => break got,
            Err(Error::Timeout) => {}
            Err(error) => panic!("{case:?}: {error}"),
        }
    };
    if got.status() == Status::Success {
        assert!(got.0.data() == pattern(case.size), "{case:?}: other bytes arrived");
        assert_eq!(got.0.immediate, (case.way != "descriptor").then_some(IMMEDIATE), "{case:?}");
    } else {
        assert!(case.may_be_lost(), "{case:?}: a message that was sent did not arrive: {:?}", got.status());
    }
    if case.needs_the_receiver() {
        ended(child.wait(scaled(LIMIT)));
    }
    while nic.query_vi(vi).unwrap().state != ViState::Error {
        let _ = nic.wait_recv_outcome(vi, Some(Duration::from_millis(10)));
    }
    true
}

/// The cases, several at a time, until one cannot be tried.
fn all_arrive(cases: Vec<Case>) {
    let cases = Mutex::new(cases.into_iter());
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || while next().is_some_and(|case| arrives(&case)) {};
    std::thread::scope(|threads| (0..SIDE_BY_SIDE).for_each(|_| drop(threads.spawn(work))));
}

/// Every size with every way to end; levels and memory take turns, or all of them in the long form.
fn all(provider: &str, isolate: bool, levels: &[Reliability]) {
    let mut cases = Vec::new();
    for (turn, (ending, size)) in ENDINGS.into_iter().flat_map(|e| SIZES.map(|s| (e, s))).enumerate() {
        let mut tries = Vec::new();
        for level in levels {
            for (from, into) in MEMORY.into_iter().flat_map(|f| MEMORY.map(|i| (f, i))) {
                let (provider, level) = (provider.to_owned(), *level);
                let way = "descriptor";
                tries.push(Case { provider, isolate, level, size, way, from, into, ending, late: false });
            }
        }
        if effort::full() {
            cases.append(&mut tries);
            continue;
        }
        let far = provider.starts_with("ofi");
        // A process that loads libfabric takes long to start: each size with every other way to end.
        if far && (turn + turn / SIZES.len()) % 2 == 1 {
            continue;
        }
        // In shared memory from ordinary memory into ordinary memory always: that goes through bounce buffers.
        let bounced = |c: &&Case| {
            (c.from, c.into) == (MEMORY[0], MEMORY[0]) && c.level != Reliability::ReliableReception && !far
        };
        cases.extend(tries.iter().find(bounced).cloned());
        cases.push(tries.swap_remove((turn + 1) * 5 % tries.len()));
    }
    cases.extend(in_other_ways(provider, isolate, levels));
    all_arrive(cases);
}

/// Each other way in with every way to end; levels, sizes and memory take turns, or all of them in the long form. What is
/// taken by value has no completion: over a network it has left when an orderly disconnect has returned, not before.
fn in_other_ways(provider: &str, isolate: bool, levels: &[Reliability]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (turn, (ending, (way, sizes))) in
        ENDINGS.into_iter().flat_map(|e| OTHER_WAYS.map(|w| (e, w))).enumerate()
    {
        let mut tries = Vec::new();
        for (size, level) in sizes.iter().flat_map(|s| levels.iter().map(move |l| (*s, *l))) {
            for (from, into) in MEMORY.into_iter().flat_map(|f| MEMORY.map(|i| (f, i))) {
                let provider = provider.to_owned();
                tries.push(Case { provider, isolate, level, size, way, from, into, ending, late: false });
            }
        }
        tries.retain(|case| !(case.is_by_value() && provider.starts_with("ofi") && ending != "disconnects"));
        if effort::full() {
            cases.append(&mut tries);
        } else if !tries.is_empty() {
            // Two of them, as far apart as they lie.
            let len = tries.len();
            cases.push(tries[(turn + 1) * 5 % len].clone());
            cases.push(tries[((turn + 1) * 5 + len / 2) % len].clone());
        }
    }
    cases
}

#[test]
fn a_message_in_shared_memory_outlives_its_sender() {
    all("shm", false, &Reliability::ALL);
}

#[test]
fn a_message_between_isolated_processes_outlives_its_sender() {
    all("shm", true, &Reliability::ALL);
}

#[test]
fn a_message_to_a_receiver_that_is_late_arrives() {
    let levels = if effort::full() { &Reliability::ALL[..] } else { &[Reliability::ReliableDelivery] };
    let memory = if effort::full() { &MEMORY[..] } else { &["allocated"] };
    let mut cases = Vec::new();
    for (ending, size) in ENDINGS.into_iter().flat_map(|e| SIZES[3..].iter().map(move |s| (e, *s))) {
        for (from, into) in memory.iter().flat_map(|f| memory.iter().map(|i| (*f, *i))) {
            let to_case = |level: &Reliability| {
                let (provider, isolate, level, way) = ("shm".to_owned(), false, *level, "descriptor");
                Case { provider, isolate, level, size, way, from, into, ending, late: true }
            };
            cases.extend(levels.iter().map(to_case));
        }
    }
    // One at a time: a process has one armed point.
    assert!(cases.iter().all(arrives));
}

#[test]
fn a_message_of_the_provider_that_chooses_outlives_its_sender() {
    all("auto", false, &Reliability::ALL);
}

#[test]
fn a_message_over_tcp_outlives_its_sender() {
    all("ofi:tcp", false, &[Reliability::ReliableDelivery, Reliability::ReliableReception]);
}

#[test]
fn a_message_over_libfabrics_shared_memory_outlives_its_sender() {
    all("ofi:shm", false, &[Reliability::ReliableDelivery, Reliability::ReliableReception]);
}

// Sends a message while its control thread is held up at the first note that comes, and ends at once.
viaduct_kit::child!(HELD_UP, |args| {
    let mut nic = Place { folder: args[0].as_ref(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let vis = [(); 3].map(|()| {
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        nic.connect_request(vi, &"outlive".parse().unwrap(), Some(scaled(LIMIT))).unwrap();
        vi
    });
    point::arm("control.note", 1, Action::Sleep(LIMIT));
    say("connected");
    hear();
    // A note, at which the receiver's control thread is held up until this process has ended.
    nic.disconnect(vis[2]).unwrap();
    let text = nic.register(pattern(SIZES[4]), MemAttributes::local(tag)).unwrap();
    nic.post_send(vis[0], Descriptor::send(text)).unwrap();
    assert_eq!(nic.wait_send_outcome(vis[0], Some(scaled(LIMIT))).unwrap().status(), Status::Success);
    // SAFETY: ends the process at once; nothing of it is used any more.
    unsafe { libc::_exit(0) };
});

/// The kernel tells the end of a process that has left something unread ahead of what this process has sent.
#[test]
fn a_message_outlives_a_sender_that_has_left_notes_unread() {
    let _watchdog = Watchdog::arm(scaled(LIMIT), "a sender with unread notes");
    let folder = TempDir::new("outlive");
    let mut nic = Place { folder: folder.path(), mode: Mode::Direct }.open();
    let tag = nic.create_ptag().unwrap();
    let listener = nic.listen(&"outlive".parse().unwrap(), 3).unwrap();
    let mut child = HELD_UP.spawn(&[folder.path().to_str().unwrap()]);
    let vis = [(); 3].map(|()| {
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        let into = memory(&mut nic, tag, "registered", 1 << 20);
        nic.post_recv(vi, Descriptor::recv(into)).unwrap();
        let request = nic.wait_listener(listener, Some(scaled(LIMIT))).unwrap();
        nic.accept(request, vi).unwrap();
        vi
    });
    child.expect_line("connected", LIMIT);
    // A note each, the second of which is not read.
    vis[1..].iter().for_each(|vi| nic.disconnect(*vi).unwrap());
    point::arm("control.note", 1, Action::Sleep(LATER));
    child.send_line("go");
    assert!(child.wait(LIMIT).success());
    let got = nic.wait_recv_outcome(vis[0], Some(scaled(LIMIT))).unwrap();
    assert_eq!(got.status(), Status::Success);
    assert!(got.0.data() == pattern(SIZES[4]), "other bytes arrived");
}
