//! Processes of different users: they meet if both say so and have the job's token, and are not shown each other's memory.
//!
//! Two users that are neither root nor each other are needed, so these run as root alone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use viaduct_faults::scribbler;
use viaduct_job::Token;
use viaduct_kit::child::{Child, hear, say};
use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::unprivileged::NOBODY;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::{Config, open};
use viaduct_via::{
    Completion, Counter, Descriptor, Error, MemAttributes, Nic, Op, ProtectionTag, Reliability,
    RemoteAddress, Status, Vi, ViAttributes, ViState,
};

/// Users without an entry in a list: the kernel asks for no entry in a list.
const HERE: u32 = 61_001;
const THERE: u32 = 61_002;

const LIMIT: Duration = Duration::from_secs(60);
const SIZES: [usize; 8] = [0, 8, 104, 105, 4096, 65_537, 1 << 20, 3 << 20];
/// Bytes of the region that the client may reach, and of a receive.
const WINDOW: usize = 200_000;

/// Settings by their names, as a user gives them.
fn config(args: &[String]) -> Config {
    let mut config = Config::default();
    for pair in args {
        let (name, value) = pair.split_once('=').expect("name=value");
        let knob = viaduct_providers::config::KNOBS.iter().find(|k| k.name == name).expect("a knob");
        (knob.set)(&mut config, value).unwrap();
    }
    config
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + scaled(LIMIT);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

struct End {
    nic: Nic,
    tag: ProtectionTag,
}

impl End {
    fn open(args: &[String]) -> Result<End, Error> {
        let mut nic = Nic::open(open(&args[0], &config(&args[1..]))?)?;
        let tag = nic.create_ptag()?;
        Ok(End { nic, tag })
    }

    fn vi(&mut self, level: Reliability) -> Vi {
        let attributes = ViAttributes::new(self.tag).reliability(level);
        self.nic.create_vi(attributes).unwrap()
    }

    fn post_recv(&mut self, vi: Vi) {
        let buffer = self.nic.alloc(3 << 20, MemAttributes::local(self.tag)).unwrap();
        self.nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
    }

    /// Posts, and waits for the outcome.
    fn finish(&mut self, vi: Vi, descriptor: Descriptor) -> Completion {
        self.nic.post_send(vi, descriptor).unwrap();
        until("a send to end", || self.nic.poll_send(vi).unwrap())
    }

    fn send(&mut self, vi: Vi, bytes: &[u8], shared: bool) {
        let len = bytes.len().max(1);
        let mut buffer = match shared {
            true => self.nic.alloc(len, MemAttributes::local(self.tag)).unwrap(),
            false => vec![0; len].into(),
        };
        buffer.write(0, bytes);
        let send = Descriptor::new(Op::Send).segment_range(buffer, 0..bytes.len());
        assert_eq!(self.finish(vi, send).status, Status::Success);
    }
}

viaduct_kit::child!(SERVER, |args| {
    let mut end = End::open(&args[1..]).unwrap();
    let listener = end.nic.listen(&args[0].parse().unwrap(), 8).unwrap();
    say("listening");
    let region = end.nic.register(vec![0; WINDOW], MemAttributes::remote(end.tag)).unwrap();
    // Memory that could be mapped, and must not be.
    let shareable = end.nic.alloc(WINDOW, MemAttributes::remote(end.tag)).unwrap();
    loop {
        let Ok(request) = end.nic.wait_listener(listener, Some(scaled(LIMIT))) else { return };
        let level = request.remote().reliability;
        let vi = end.vi(level);
        end.post_recv(vi);
        end.post_recv(vi);
        end.nic.accept(request, vi).unwrap();
        for at in [region.remote(0), shareable.remote(0)] {
            end.send(
                vi,
                &[at.addr.to_le_bytes(), u64::from(at.handle.number()).to_le_bytes()].concat(),
                true,
            );
        }
        // Echoes until the other end goes.
        while end.nic.query_vi(vi).unwrap().state == ViState::Connected {
            let Some(got) = end.nic.poll_recv(vi).unwrap() else { continue };
            if !got.status.is_success() {
                break;
            }
            end.post_recv(vi);
            end.send(vi, &got.data(), got.length % 2 == 0);
        }
        say("gone");
    }
});

viaduct_kit::child!(CLIENT, |args| {
    let mut end = match End::open(&args[1..]) {
        Ok(end) => end,
        Err(error) => return say(format!("refused {error:?}")),
    };
    for level in Reliability::ALL {
        let vi = end.vi(level);
        end.post_recv(vi);
        end.post_recv(vi);
        let asked = end.nic.connect_request(vi, &args[0].parse().unwrap(), Some(scaled(LIMIT)));
        if let Err(error) = asked {
            return say(format!("refused {error:?}"));
        }
        if level == Reliability::Unreliable {
            say(format!("connected by {}", end.nic.query_vi(vi).unwrap().provider.unwrap_or("nobody")));
        }
        let places = [(); 2].map(|()| {
            let got = until("a place", || end.nic.poll_recv(vi).unwrap()).data();
            end.post_recv(vi);
            let word = |at: usize| u64::from_le_bytes(got[at..at + 8].try_into().unwrap());
            RemoteAddress { addr: word(0), handle: viaduct_via::MemHandle::from_number(word(8) as u32) }
        });
        for (n, size) in SIZES.into_iter().enumerate() {
            end.send(vi, &pattern(size), n % 2 == 0);
            let got = until("an echo", || end.nic.poll_recv(vi).unwrap());
            assert!(
                got.status.is_success() && got.data() == pattern(size),
                "{level:?} {size}: {:?}",
                got.status
            );
            end.post_recv(vi);
        }
        for at in places {
            let text = pattern(70_000);
            let mut source = end.nic.alloc(text.len(), MemAttributes::local(end.tag)).unwrap();
            source.write(0, &text);
            assert_eq!(end.finish(vi, Descriptor::rdma_write(source, at)).status, Status::Success);
            if !level.is_reliable() {
                continue;
            }
            let into = end.nic.alloc(text.len(), MemAttributes::local(end.tag)).unwrap();
            let read = end.finish(vi, Descriptor::rdma_read(into, at));
            assert!(read.status.is_success() && read.data() == text);
            let old = end.nic.alloc(8, MemAttributes::local(end.tag)).unwrap();
            let added = end.finish(vi, Descriptor::fetch_add(old, at, 3));
            assert!(added.status.is_success() && added.data() == text[..8]);
        }
        let counters = end.nic.counters();
        let direct =
            [Counter::DirectCopies, Counter::PulledCopies, Counter::KernelCopies].map(|c| counters.read(c));
        assert_eq!(direct, [0; 3], "nothing goes straight into memory of another user");
        // Out of bounds: refused by the target, and nothing of it written.
        let beyond = RemoteAddress { addr: places[0].addr + 8, handle: places[0].handle };
        let long = end.nic.alloc(WINDOW, MemAttributes::local(end.tag)).unwrap();
        let done = end.finish(vi, Descriptor::rdma_write(long, beyond));
        assert_eq!(done.status, Status::RdmaProtectionError, "{level:?}");
        let state = if level.is_reliable() { ViState::Error } else { ViState::Connected };
        until("the state", || (end.nic.query_vi(vi).unwrap().state == state).then_some(()));
        end.nic.disconnect(vi).unwrap();
    }
    say("done");
    hear();
});

/// Two users with folders of their own.
struct Users {
    folder: TempDir,
    token: String,
}

impl Users {
    fn new() -> Option<Users> {
        if !viaduct_kit::packages::need_root() {
            return None;
        }
        let folder = TempDir::new("users");
        folder.open_to_all();
        for user in [HERE, THERE] {
            let path = folder.join(user.to_string());
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            chown(&path, Some(user), Some(user)).unwrap();
        }
        Some(Users { folder, token: Token::random().secret_text() })
    }

    /// Settings of a user: which other user may come, and whose token it has.
    fn settings(&self, user: u32, others: &str, token: Option<&str>) -> Vec<String> {
        let folder = self.folder.join(user.to_string());
        let mut all =
            vec![format!("shm.runtime-dir={}", folder.display()), format!("shm.other-users={others}")];
        all.extend(token.map(|token| format!("ofi.token={token}")));
        all
    }

    fn start(program: &viaduct_kit::child::Program, user: u32, provider: &str, settings: &[String]) -> Child {
        let mut args = vec!["users", provider];
        args.extend(settings.iter().map(String::as_str));
        let mut command = program.command(&args);
        command.uid(user).gid(NOBODY).env("TMPDIR", "/tmp");
        Child::start(program.name(), command)
    }
}

#[test]
fn users_that_name_each_other_talk_by_copying() {
    let Some(users) = Users::new() else { return };
    let _dog = Watchdog::arm(scaled(LIMIT) * 3, "two users");
    for provider in ["shm", "auto"] {
        let token = Some(users.token.as_str());
        let (there, here) =
            (users.settings(THERE, &HERE.to_string(), token), users.settings(HERE, "all", token));
        let mut server = Users::start(&SERVER, THERE, provider, &there);
        server.expect_line("listening", scaled(LIMIT));
        let mut client = Users::start(&CLIENT, HERE, provider, &here);
        assert_eq!(client.expect_line("connected by ", scaled(LIMIT)), "shm");
        client.expect_line("done", scaled(LIMIT));
        // Its death is noticed like that of any other peer.
        client.kill();
        for _ in Reliability::ALL {
            server.expect_line("gone", scaled(LIMIT));
        }
        server.kill();
    }
}

#[test]
fn users_that_are_not_named_or_lack_the_token_stay_out() {
    let Some(users) = Users::new() else { return };
    let _dog = Watchdog::arm(scaled(LIMIT) * 3, "two users");
    let (ours, other) = (users.token.clone(), Token::random().secret_text());
    let (ours, other) = (Some(ours.as_str()), Some(other.as_str()));
    let third = (THERE + 1).to_string();
    for (why, server, client, wanted) in [
        ("it is off at both ends", ("off", ours), ("off", ours), "no listener waits"),
        ("it is off at the listener", ("off", ours), ("all", ours), "no listener waits"),
        ("it is off at the client", ("all", ours), ("off", ours), "no listener waits"),
        ("the listener names another user", (third.as_str(), ours), ("all", ours), "not of this job"),
        ("the client names another user", ("all", ours), (third.as_str(), ours), "not of this job"),
        ("the client has another token", ("all", ours), ("all", other), "no listener waits"),
        ("the client has no token", ("all", ours), ("all", None), "provider shm cannot be used"),
    ] {
        let settings = users.settings(THERE, server.0, server.1);
        let mut listening = Users::start(&SERVER, THERE, "shm", &settings);
        listening.expect_line("listening", scaled(LIMIT));
        let settings = users.settings(HERE, client.0, client.1);
        let mut asking = Users::start(&CLIENT, HERE, "shm", &settings);
        let said = asking.expect_line("refused ", scaled(LIMIT));
        assert!(said.starts_with(wanted), "{why}: {said}");
        listening.kill();
        asking.kill();
    }
}

// Connects, then does to every eventfd it can reach what could make others block on it: fills its counter, and clears
// O_NONBLOCK, which belongs to the open file and so to all its holders. It also says over and over that both owners sleep
// on their descriptors, so that both are rung there. Ends when its input does.
viaduct_kit::child!(BLOCKER, |args| {
    let mut end = End::open(&args[1..]).unwrap();
    let vi = end.vi(Reliability::Unreliable);
    (0..8).for_each(|_| end.post_recv(vi));
    end.nic.connect_request(vi, &args[0].parse().unwrap(), Some(scaled(LIMIT))).unwrap();
    let pages = scribbler::ranges("viaduct-nic");
    assert_eq!(pages.len(), 2, "our page and the victim's");
    let is_eventfd = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
    };
    let numbers: Vec<i32> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(is_eventfd)
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let most = (u64::MAX - 1).to_ne_bytes();
    for number in &numbers {
        let mut count = [0u8; 8];
        // SAFETY: calls of the kernel with valid buffers. Only an empty counter takes so much.
        unsafe {
            libc::read(*number, count.as_mut_ptr().cast(), 8);
            libc::write(*number, most.as_ptr().cast(), 8);
        }
    }
    // Only when all are full: two numbers may be one open file, and a write to it would block from now on.
    for number in numbers {
        // SAFETY: calls of the kernel without memory of ours.
        unsafe {
            let flags = libc::fcntl(number, libc::F_GETFL);
            libc::fcntl(number, libc::F_SETFL, flags & !libc::O_NONBLOCK);
        }
        // Each time its owner has emptied it, it is filled again.
        std::thread::spawn(move || {
            // SAFETY: a call of the kernel with a valid buffer.
            while unsafe { libc::write(number, most.as_ptr().cast(), 8) } == 8 {}
        });
    }
    let ring_there = || pages.iter().for_each(|page| scribbler::words(*page)[0].store(2, Ordering::Relaxed));
    ring_there();
    say("connected");
    let parent = std::thread::spawn(hear);
    // Without a call of the library, which would block.
    while !parent.is_finished() {
        ring_there();
    }
    // SAFETY: ends the process at once; nothing of it is used any more.
    unsafe { libc::_exit(0) };
});

// Waits for a peer, and arms, sends and disarms beside it.
viaduct_kit::child!(ARMING, |args| {
    let mut end = End::open(&args[1..]).unwrap();
    let listener = end.nic.listen(&args[0].parse().unwrap(), 1).unwrap();
    say("listening");
    let request = end.nic.wait_listener(listener, Some(scaled(LIMIT))).unwrap();
    let vi = end.vi(Reliability::Unreliable);
    end.nic.accept(request, vi).unwrap();
    hear();
    for _ in 0..1_000 {
        end.nic.arm().unwrap();
        if end.nic.query_vi(vi).unwrap().sends < 32 {
            end.nic.post_send(vi, Descriptor::send(vec![7; 8].into())).unwrap();
        }
        while end.nic.poll_send(vi).unwrap().is_some() {}
        end.nic.disarm();
    }
    // The control thread is not stuck either: it makes connections with a NIC of its own process.
    let mut other = End::open(&args[1..]).unwrap();
    let (asking, answering) = (other.vi(Reliability::Unreliable), end.vi(Reliability::Unreliable));
    other.nic.connect_start(asking, None, &args[0].parse().unwrap(), &[], None).unwrap();
    let request = end.nic.wait_listener(listener, Some(scaled(LIMIT))).unwrap();
    end.nic.accept(request, answering).unwrap();
    other.nic.connect_finish(asking).unwrap();
    say("done");
});

/// The victim goes on beside a peer that tries to block it.
fn is_not_blocked(mut victim: Child, blocker: impl FnOnce() -> Child) {
    let _dog = Watchdog::arm(scaled(LIMIT), "a peer that clears flags");
    victim.expect_line("listening", scaled(LIMIT));
    let mut blocker = blocker();
    blocker.expect_line("connected", scaled(LIMIT));
    victim.send_line("go");
    victim.expect_line("done", scaled(LIMIT));
    blocker.kill();
}

#[test]
fn an_isolated_peer_cannot_make_us_block_by_flags_of_files() {
    let folder = TempDir::new("flags");
    let folder = format!("shm.runtime-dir={}", folder.path().display());
    let args = ["flags", "shm", &folder, "shm.isolate=on"];
    is_not_blocked(ARMING.spawn(&args), || BLOCKER.spawn(&args));
}

#[test]
fn another_user_cannot_make_us_block_by_flags_of_files() {
    let Some(users) = Users::new() else { return };
    let token = Some(users.token.as_str());
    let (there, here) = (users.settings(THERE, "all", token), users.settings(HERE, "all", token));
    let victim = Users::start(&ARMING, THERE, "shm", &there);
    is_not_blocked(victim, || Users::start(&BLOCKER, HERE, "shm", &here));
}

// Connects, then tries to write to what its peer shows other users in the place of a directory: it would be a channel
// between users that may not talk to each other.
viaduct_kit::child!(SCRIBE, |args| {
    let mut end = End::open(&args[1..]).unwrap();
    let vi = end.vi(Reliability::Unreliable);
    end.nic.connect_request(vi, &args[0].parse().unwrap(), Some(scaled(LIMIT))).unwrap();
    let shown = scribbler::mappings("viaduct-none");
    assert!(!shown.is_empty(), "the peer showed us no directory");
    for (from, to) in shown {
        // SAFETY: the mapping is there; its rights change, if at all, for this process alone.
        let changed = unsafe {
            libc::mprotect(from as *mut libc::c_void, to - from, libc::PROT_READ | libc::PROT_WRITE)
        };
        let refused = std::io::Error::last_os_error();
        assert_eq!((changed, refused.raw_os_error()), (-1, Some(libc::EACCES)), "{refused}");
    }
    say("refused");
});

#[test]
fn other_users_get_no_memory_of_ours_to_leave_words_in() {
    let Some(users) = Users::new() else { return };
    let _dog = Watchdog::arm(scaled(LIMIT) * 2, "two users");
    let token = Some(users.token.as_str());
    let (there, here) = (users.settings(THERE, "all", token), users.settings(HERE, "all", token));
    let mut victim = Users::start(&ARMING, THERE, "shm", &there);
    victim.expect_line("listening", scaled(LIMIT));
    let mut scribe = Users::start(&SCRIBE, HERE, "shm", &here);
    scribe.expect_line("refused", scaled(LIMIT));
    victim.kill();
}

viaduct_kit::isolated! {
    /// Only the rights of the folder keep others from leaving a socket there; where they fail, the credentials of the
    /// listener do not.
    fn a_listener_of_another_user_in_our_folder_is_refused() {
        // SAFETY: a system call without arguments.
        if unsafe { libc::geteuid() } != 0 {
            viaduct_kit::skip!("only root can play another user");
        }
        let folder = TempDir::new("users");
        let mut config = Config::default();
        config.shm.runtime_dir = Some(folder.path().join("run"));
        let mut nic = Nic::open(open("shm", &config).unwrap()).unwrap();
        let kind = rustix::net::SocketType::SEQPACKET;
        let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
        let path = folder.path().join("run/stranger.sock");
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        // A listener has the credentials of the process that begins to listen.
        // SAFETY: the process of this test alone changes its user, and changes back.
        unsafe { assert_eq!(libc::seteuid(THERE), 0) };
        rustix::net::listen(&socket, 1).unwrap();
        // SAFETY: as above.
        unsafe { assert_eq!(libc::seteuid(0), 0) };
        let tag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
        let refused = nic.connect_request(vi, &"stranger".parse().unwrap(), Some(LIMIT)).unwrap_err();
        assert!(matches!(refused, Error::NotReachable(_)), "{refused}");
        assert!(refused.to_string().contains(&THERE.to_string()), "{refused}");
    }
}
