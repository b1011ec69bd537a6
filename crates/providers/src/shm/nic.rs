//! The provider object of one NIC, and the core it shares with its endpoints and its control thread.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use viaduct_os::budget::Budget;
use viaduct_os::epoll::{Epoll, Interest};
use viaduct_os::error::OsError;
use viaduct_os::eventfd::EventFd;
use viaduct_os::fork::{self, Registration};
use viaduct_os::point::point;
use viaduct_os::segment::Segment;
use viaduct_os::{barrier, clock, cpu, process, random, runtime_dir, signals};
use viaduct_via::provider::{Endpoint, Event, ListenId, Provider, RequestId, SharedMemory, Signal, Sleeper};
use viaduct_via::{
    CounterSlot, Error, MemHandle, NetAddress, NicAttributes, Reach, RegionInfo, Reliability,
    RemoteAttributes, Vi,
};

use super::bounce::Bounces;
use super::control::{self, Control};
use super::crowd::Crowd;
use super::directory::Directory;
use super::doorbell::BITS;
use super::greeting::Meeting;
use super::lane::LaneId;
use super::map::MapCache;
use super::mem::Memory;
use super::pair::{Pair, lock};
use super::ring::INLINE_BYTES;
use super::shared::{Direction, NicPage, View};
use crate::bell::Bell;
use crate::config::{Fences, OtherUsers, ShmConfig};
use crate::parties::MAX_PRIVATE;

/// Longest message.
const MAX_TRANSFER: u32 = 1 << 30;

/// How long one withdrawal, or the close of a connection, waits for copies of peers that do not end.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the owner of the NIC, its endpoints and its control thread share.
pub(crate) struct Core {
    pub(crate) uid: [u8; 16],
    /// A copy of the number in private memory, where peers look whether process_vm works.
    pub(crate) uid_copy: Box<[u8; 16]>,
    pub(crate) config: ShmConfig,
    pub(crate) budget: Budget,
    pub(crate) folder: PathBuf,
    pub(crate) page_segment: Arc<Segment>,
    pub(crate) page: View<NicPage>,
    pub(crate) bell: Arc<Bell<View<NicPage>>>,
    /// Peers write to this one to wake a sleeper in poll or epoll.
    pub(crate) bell_fd: EventFd,
    pub(crate) signal: Arc<Signal>,
    pub(crate) counters: CounterSlot,
    pub(crate) memory: Memory,
    pub(crate) directory: Mutex<Directory>,
    pub(crate) maps: Mutex<MapCache>,
    pub(crate) bounce: Mutex<Bounces>,
    pub(crate) control: Mutex<Control>,
    /// VIs by the doorbell bit they listen to.
    pub(crate) bells: Mutex<HashMap<u32, Vec<Vi>>>,
    /// Live connections, by pair and lane.
    pub(crate) lanes: Mutex<HashMap<(u64, LaneId), LaneRecord>>,
    /// First part of the directory, as every peer of our own user gets it, and what the others get.
    pub(crate) directory_fd: OwnedFd,
    pub(crate) no_directory: OnceLock<Segment>,
    /// How other users are met, if they are.
    pub(crate) meeting: Option<Meeting>,
    pub(crate) epoll: Epoll,
    pub(crate) wake: Arc<EventFd>,
    pub(crate) stop: AtomicBool,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) generation: u32,
}

impl Core {
    /// Where a peer may look whether process_vm works; other users are not told where our memory is.
    pub(crate) fn probe_address(&self, foreign: bool) -> u64 {
        if foreign { 0 } else { self.uid_copy.as_ptr() as u64 }
    }

    /// Wakes the owner of the NIC.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Tells the owner of news in the control state.
    pub(crate) fn tell(&self) {
        self.signal.post_events();
        self.bell.alarm();
    }

    /// Waits until no peer is inside a copy that began before the caller withdrew something. Peers that are stopped
    /// in the middle hold it up for a bounded time only, however many there are; they are trusted with payload
    /// (SECURITY.md).
    pub(crate) fn quiesce(&self) {
        barrier::heavy();
        let lanes: Vec<_> = lock(&self.lanes).values().map(|l| (l.inbound.clone(), l.pair.clone())).collect();
        wait_while_busy(&lanes);
    }
}

/// A live connection, as the control thread and withdrawals see it.
pub(crate) struct LaneRecord {
    /// Where the peer says that it is copying into our memory, and that it is closed.
    pub(crate) inbound: View<Direction>,
    pub(crate) pair: Arc<Pair>,
    /// Index of our VI, for its doorbell.
    pub(crate) vi: u32,
    /// What the peer may do through our VI.
    pub(crate) tag: u64,
    pub(crate) rdma_write: bool,
    pub(crate) rdma_read: bool,
}

/// Waits until the senders of these directions have left the copies they are in. Senders that are dead are not waited
/// for, and all others together for [`PATIENCE`] at the most.
pub(crate) fn wait_while_busy(directions: &[(View<Direction>, Arc<Pair>)]) {
    let mut inside: Vec<_> = directions
        .iter()
        .map(|(direction, pair)| (direction, pair, direction.tx.busy.load(Ordering::Acquire)))
        .filter(|(_, _, seen)| !seen.is_multiple_of(2))
        .collect();
    if inside.is_empty() {
        return;
    }
    let now = clock::now_ns();
    // A pair that has used up our patience a moment ago gets none: a peer must not hold up each of its connections.
    inside.retain(|(_, pair, _)| pair.has_patience(now));
    inside.sort_by_key(|(_, pair, _)| pair.id);
    let give_up = now + PATIENCE.as_nanos() as u64;
    loop {
        let mut asked: Option<(u64, bool)> = None;
        inside.retain(|(direction, pair, seen)| {
            let alive = match asked {
                Some((id, alive)) if id == pair.id => alive,
                _ => !pair.is_dead() && process::pid_alive(pair.pidfd.as_fd()),
            };
            asked = Some((pair.id, alive));
            alive && direction.tx.busy.load(Ordering::Acquire) == *seen
        });
        if inside.is_empty() {
            return;
        }
        if clock::now_ns() > give_up {
            break;
        }
        std::thread::yield_now();
    }
    inside.iter().for_each(|(_, pair, _)| pair.lose_patience(give_up));
}

/// How these settings have us meet other users.
fn meeting(config: &ShmConfig) -> Result<Option<Meeting>, Error> {
    if config.other_users == OtherUsers::Nobody {
        return Ok(None);
    }
    let none = || Error::Unavailable {
        provider: "shm",
        why: "shm.other-users is set and there is no job token to prove which processes belong together"
            .into(),
        hint: "give the processes of all users the same token, each in a file of its own: VIADUCT_TOKEN_FILE",
    };
    let token = config.token.clone().ok_or_else(none)?;
    let (users, host) = (config.other_users.clone(), config.host.clone());
    Ok(Some(Meeting { token, users, host, own: process::effective_uid() }))
}

/// The shared-memory provider of one NIC.
pub(crate) struct Shm {
    pub(super) core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
    /// File descriptors a forked child must not keep: they would hide our death from peers.
    _fds: Vec<Registration>,
}

impl Shm {
    pub(crate) fn open(config: ShmConfig) -> Result<Shm, Error> {
        point("open.begin");
        let meeting = meeting(&config)?;
        let many = config.neighbours > cpu::machine();
        if config.fences == Fences::Sender || config.fences == Fences::Auto && many {
            barrier::force_symmetric();
        }
        barrier::register();
        let folder = runtime_dir::runtime_dir(config.runtime_dir.as_deref())?;
        // Sockets of processes that were killed; the next NIC to open tidies up.
        let _ = runtime_dir::sweep(&folder);
        let budget = config.memory_budget.map_or_else(|| Budget::process().clone(), Budget::new);
        let page_segment = Arc::new(Segment::create("viaduct-nic", size_of::<NicPage>(), &budget)?);
        let page = View::nic_page(&page_segment).expect("the segment was made for it");
        let bell_fd = EventFd::new()?;
        let rung = EventFd::from_peer(bell_fd.dup()?)?;
        let mut uid = [0; 16];
        random::fill(&mut uid);
        let (epoll, wake) = (Epoll::new()?, Arc::new(EventFd::new()?));
        epoll.add(&wake, control::WAKE, Interest::Read)?;
        let crowd = Arc::new(Crowd::new(wake.clone(), config.fences == Fences::Auto));
        let before_sleep = crowd.clone();
        let bell = Bell::with_fd(page.clone(), rung, config.longest_sleep, move || before_sleep.note_sleep());
        let bell = Arc::new(bell);
        let memory = Memory::new(budget.clone());
        let directory = Directory::new(budget.clone())?;
        let first = directory.chunk(0).expect("made with its first part");
        let directory_fd = first.dup_fd().map_err(|e| OsError::sys("dup", e))?;
        let core = Arc::new(Core {
            uid,
            uid_copy: Box::new(uid),
            folder,
            page_segment,
            page,
            bell,
            bell_fd,
            signal: Arc::new(Signal::default()),
            counters: CounterSlot::open("shm")?,
            bounce: Mutex::new(Bounces::new(memory.clone())),
            no_directory: OnceLock::new(),
            meeting,
            memory,
            directory: Mutex::new(directory),
            directory_fd,
            maps: Mutex::new(MapCache::new(config.map_cache)),
            control: Mutex::new(Control::default()),
            bells: Mutex::new(HashMap::new()),
            lanes: Mutex::new(HashMap::new()),
            epoll,
            wake,
            stop: AtomicBool::new(false),
            crowd,
            generation: fork::generation(),
            config,
            budget,
        });
        point("open.core");
        let for_thread = core.clone();
        let builder = std::thread::Builder::new().name("viaduct-control".into()).stack_size(256 << 10);
        let thread = signals::while_blocked(|| builder.spawn(move || control::run(&for_thread)))
            .map_err(|e| OsError::sys("clone", e))?;
        point("open.thread");
        // A child that kept these would hide our death from peers.
        let fds = vec![
            fork::close_in_child(core.epoll.as_fd().as_raw_fd()),
            fork::close_in_child(core.wake.as_fd().as_raw_fd()),
        ];
        Ok(Shm { core, thread: Some(thread), _fds: fds })
    }
}

// SAFETY: peers find regions through the directory alone, check bounds, rights and tag inside `busy`, and `withdraw` waits for
// copies under way; memory comes from slabs that are mapped as long as a part of them is used.
unsafe impl Provider for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn attributes(&self) -> NicAttributes {
        NicAttributes {
            name: "shm".into(),
            max_vi: 1 << 20,
            max_descriptors_per_queue: 65_536,
            max_segments_per_desc: 252,
            max_cq: 65_536,
            max_cq_entries: 1 << 24,
            max_transfer_size: MAX_TRANSFER,
            max_inline: INLINE_BYTES,
            max_private_data: MAX_PRIVATE,
            max_register_regions: (1 << 20) - 1,
            max_register_block_bytes: 1 << 40,
            max_ptags: 1 << 20,
            reliability: &Reliability::ALL,
            rdma_read: &[Reliability::ReliableDelivery, Reliability::ReliableReception],
            beyond_host: false,
        }
    }

    fn counters(&self) -> CounterSlot {
        self.core.counters.clone()
    }

    fn signal(&self) -> Arc<Signal> {
        self.core.signal.clone()
    }

    fn sleeper(&self) -> Arc<dyn Sleeper> {
        self.core.bell.clone()
    }

    fn allocate(&mut self, len: usize, align: usize) -> Result<SharedMemory, Error> {
        self.core.memory.allocate(len, align)
    }

    fn share(&mut self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error> {
        self.core.memory.share(segment, range)
    }

    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error> {
        let had_rights = lock(&self.core.directory).publish(handle, region)?;
        if had_rights {
            self.core.quiesce();
        }
        Ok(())
    }

    fn withdraw(&mut self, handle: MemHandle) {
        let had_rights = lock(&self.core.directory).withdraw(handle);
        point("withdraw.gone");
        // No peer can be inside memory that was never open to others, so the barrier on all CPUs is spared.
        if had_rights {
            self.core.quiesce();
        }
        point("withdraw.quiet");
    }

    fn reach(&self, remote: &NetAddress) -> Reach {
        self.core.reach(remote)
    }

    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        self.core.listen(address, backlog)
    }

    fn set_waiting(&mut self, listener: ListenId, waiting: bool) {
        self.core.set_waiting(listener, waiting);
    }

    fn unlisten(&mut self, listener: ListenId) {
        self.core.unlisten(listener);
    }

    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        self.core.request(vi, local, remote, ours)
    }

    fn request_peer(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        self.core.request_peer(vi, local, remote, ours)
    }

    fn cancel(&mut self, vi: Vi) {
        self.core.cancel(vi);
    }

    fn accept(
        &mut self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error> {
        let endpoint = self.core.accept(request, vi, ours)?;
        Ok(Box::new(endpoint))
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        self.core.reject(request, private_data)
    }

    fn next_event(&mut self) -> Option<Event> {
        lock(&self.core.control).events.pop_front()
    }

    fn ready(&mut self, into: &mut Vec<Vi>) {
        self.core.page.doorbells.take(|bit| {
            if let Some(vis) = lock(&self.core.bells).get(&(bit % BITS)) {
                into.extend(vis);
            }
        });
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // In a forked child the thread, the sockets and the mappings are the parent's.
        if fork::generation() != self.core.generation {
            std::mem::forget(self.thread.take());
            std::mem::forget(self.core.clone());
            return;
        }
        point("nic.closing");
        self.core.stop.store(true, Ordering::Release);
        self.core.wake.signal();
        if let Some(thread) = self.thread.take() {
            // A control thread that panicked has nothing left to say.
            let _ = thread.join();
        }
        point("nic.joined");
        self.core.shut_down();
        point("nic.closed");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use viaduct_via::{Descriptor, MemAttributes, Nic, Spin, ViAttributes, WaitConfig};

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));

    /// Both ends of a connection go over to fences of the senders while messages are under way, and then sleep without a
    /// barrier on other CPUs. No sleep ends by itself here: a wake-up that is lost is a time-out.
    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel")]
    fn senders_that_are_asked_fence_themselves_and_no_wake_up_is_lost() {
        let dir = std::env::temp_dir().join(format!("viaduct-fences-{}", std::process::id()));
        let config =
            ShmConfig { runtime_dir: Some(dir.clone()), longest_sleep: None, ..ShmConfig::default() };
        let end = || {
            let provider = Shm::open(config.clone()).unwrap();
            let core = provider.core.clone();
            let mut nic = Nic::open(Box::new(provider) as Box<dyn Provider>).unwrap();
            nic.set_wait(WaitConfig { spin: Spin::Never });
            let tag = nic.create_ptag().unwrap();
            let vi = nic.create_vi(ViAttributes::new(tag)).unwrap();
            (nic, vi, tag, core)
        };
        let ((mut a, va, tag_a, core_a), (mut b, vb, tag_b, core_b)) = (end(), end());
        let here: NetAddress = "fences".parse().unwrap();
        let listener = b.listen(&here, 1).unwrap();
        a.connect_start(va, None, &here, &[], LONG).unwrap();
        let request = b.wait_listener(listener, LONG).unwrap();
        b.accept(request, vb).unwrap();
        a.connect_finish(va).unwrap();
        let asymmetric = barrier::asymmetric();
        assert_eq!(barrier::reaches_out(), asymmetric, "as it comes, the sleeper pays");
        let play = |nic: &mut Nic, vi: Vi, tag, first: bool, ask: &Core| {
            for round in 0..400u32 {
                let buffer = nic.alloc(8, MemAttributes::local(tag)).unwrap();
                nic.post_recv(vi, Descriptor::recv(buffer)).unwrap();
                if first {
                    nic.send_inline(vi, &round.to_ne_bytes(), None).unwrap();
                }
                if round == 100 {
                    ask.ask_for_fences();
                }
                assert_eq!(nic.wait_recv(vi, LONG).unwrap().data(), round.to_ne_bytes());
                if !first {
                    nic.send_inline(vi, &round.to_ne_bytes(), None).unwrap();
                }
            }
        };
        // The receive of the first message has to be there before it comes.
        let buffer = b.alloc(8, MemAttributes::local(tag_b)).unwrap();
        b.post_recv(vb, Descriptor::recv(buffer)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| play(&mut b, vb, tag_b, false, &core_b));
            play(&mut a, va, tag_a, true, &core_a);
        });
        let give_up = clock::now_ns() + 60_000_000_000;
        while barrier::reaches_out() {
            assert!(clock::now_ns() < give_up, "both were asked, and both have answered");
            std::thread::yield_now();
        }
        assert!(!barrier::asymmetric());
        drop((a, b));
        let _ = std::fs::remove_dir_all(dir);
    }
}
