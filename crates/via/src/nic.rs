//! The NIC: owner of every VI, queue, tag and region of one opened provider.
//!
//! A NIC is used by one thread at a time (`&mut self`), so nothing on its data path takes a lock; threads that want
//! to work side by side open a NIC each, or share one as a [`SharedNic`](crate::SharedNic). ADR 0002 has the reasons.
//!
//! What was posted and could not be handed over at once moves on inside calls only: no thread works for a NIC while its
//! owner computes. A poll moves the VI or the completion queue that it is for, a call that waits moves all of them. A program that posts and then makes no calls for a while uses a `SharedNic`, whose service thread goes on
//! with the sends (ADR 0020). [`Nic::disconnect`] and dropping the NIC wait for them, for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use viaduct_os::fork;
use viaduct_os::wait::{WaitConfig, WaitPolicy};

use crate::accepting::{Forgotten, Listening};
use crate::attributes::{NicAttributes, Reach, RemoteAttributes, ViAttributes};
use crate::counters::CounterSlot;
use crate::cq::CqCore;
use crate::error::Error;
use crate::event::{ErrorEvent, ErrorHandler, ErrorSink};
use crate::handle::{Cq, ProtectionTag, Srq, Table, Vi};
use crate::memory::{MemTable, Retired};
use crate::post::Ends;
use crate::provider::{Provider, Signal, Sleeper};
use crate::retiring::{Leaving, tell_lost};
use crate::srq::SrqCore;
use crate::vi::{ViCore, ViState};

/// An opened network interface.
///
/// Posted work moves on inside calls of its owner only; a [`SharedNic`](crate::SharedNic) has a thread for it.
///
/// ```
/// use viaduct_providers::loopback;
/// use viaduct_via::{Descriptor, MemAttributes, Nic, ViAttributes};
///
/// let mut nic = Nic::open(loopback::provider())?;
/// let tag = nic.create_ptag()?;
/// let vi = nic.create_vi(ViAttributes::new(tag))?;
/// let buffer = nic.alloc(4096, MemAttributes::local(tag))?;
/// nic.post_recv(vi, Descriptor::recv(buffer))?; // receives are posted before the connection stands
/// # Ok::<(), viaduct_via::Error>(())
/// ```
pub struct Nic {
    pub(crate) vis: Table<ViCore>,
    pub(crate) cqs: Table<CqCore>,
    pub(crate) srqs: Table<SrqCore>,
    pub(crate) tags: Table<()>,
    pub(crate) mem: MemTable,
    pub(crate) listening: Table<Listening>,
    pub(crate) provider: Box<dyn Provider>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) sleeper: Arc<dyn Sleeper>,
    pub(crate) counters: CounterSlot,
    pub(crate) errors: ErrorSink,
    pub(crate) wait: Option<WaitPolicy>,
    pub(crate) wait_config: WaitConfig,
    pub(crate) ready: Vec<Vi>,
    pub(crate) attributes: NicAttributes,
    pub(crate) forgotten: Arc<Forgotten>,
    /// What concerns other threads. Kept for the driver, which takes it back.
    pub(crate) unrest: Unrest,
    /// How long an orderly end waits for sends that are under way.
    drain: Duration,
    /// Which receives have to end inside their region when they are posted.
    pub(crate) receive_ends: Ends,
    pub(crate) retired: Arc<Retired>,
    /// VIs that were retired while they were sending.
    pub(crate) leaving: Vec<Leaving>,
    /// VIs that calls for other VIs look at, too.
    pub(crate) others: Vec<Vi>,
    generation: u32,
}

/// What calls have left for other threads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unrest(u8);

impl Unrest {
    const SENDS: u8 = 1;
    const COOLED: u8 = 2;

    /// A send was posted that was not done at once.
    pub(crate) fn note_send(&mut self) {
        self.0 |= Unrest::SENDS;
    }

    /// A VI was left to its doorbell, if `cooled`, which a thread that sleeps already does not know.
    #[inline]
    pub(crate) fn note_cooled(&mut self, cooled: bool) {
        self.0 |= if cooled { Unrest::COOLED } else { 0 };
    }

    pub(crate) fn sends(self) -> bool {
        self.0 & Unrest::SENDS != 0
    }

    pub(crate) fn cooled(self) -> bool {
        self.0 & Unrest::COOLED != 0
    }

    /// Not 0 if there is something.
    #[inline(always)]
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn take(&mut self) -> Unrest {
        std::mem::take(self)
    }
}

/// How long an orderly end waits for sends that are under way, unless set otherwise.
const DRAIN: Duration = Duration::from_secs(1);

/// State of a VI and its queues.
#[derive(Clone, Debug)]
pub struct ViInfo {
    /// State.
    pub state: ViState,
    /// What it was created as.
    pub attributes: ViAttributes,
    /// What its peer is, while connected.
    pub remote: Option<RemoteAttributes>,
    /// Descriptors in the send queue, done or not.
    pub sends: usize,
    /// Descriptors in the receive queue, done or not.
    pub receives: usize,
    /// The provider that carries the connection, while connected.
    pub provider: Option<&'static str>,
    /// How its ends reach each other, while connected.
    pub reach: Option<Reach>,
}

impl Nic {
    /// Opens a NIC on a provider.
    ///
    /// # Errors
    /// What the provider says; [`Error::Os`].
    pub fn open(provider: impl Into<Box<dyn Provider>>) -> Result<Nic, Error> {
        Nic::open_with(provider, WaitConfig::default())
    }

    /// Opens a NIC that waits in a particular way.
    ///
    /// # Errors
    /// [`Error::Os`], and the provider's.
    pub fn open_with(provider: impl Into<Box<dyn Provider>>, wait: WaitConfig) -> Result<Nic, Error> {
        let provider = provider.into();
        viaduct_os::barrier::register();
        let (signal, sleeper) = (provider.signal(), provider.sleeper());
        Ok(Nic {
            vis: Table::new(),
            cqs: Table::new(),
            srqs: Table::new(),
            tags: Table::new(),
            mem: MemTable::default(),
            listening: Table::new(),
            forgotten: Forgotten::new(signal.clone(), sleeper.clone()),
            signal,
            sleeper,
            counters: provider.counters(),
            errors: ErrorSink::default(),
            wait: Some(WaitPolicy::new(wait)),
            wait_config: wait,
            ready: Vec::with_capacity(64),
            attributes: provider.attributes(),
            receive_ends: Ends::Used,
            unrest: Unrest::default(),
            drain: DRAIN,
            retired: Retired::new(),
            leaving: Vec::new(),
            others: Vec::new(),
            generation: fork::generation(),
            provider,
        })
    }

    /// What the NIC offers.
    pub fn attributes(&self) -> &NicAttributes {
        &self.attributes
    }

    /// What the NIC has counted.
    pub fn counters(&self) -> &CounterSlot {
        &self.counters
    }

    /// Changes how calls of the NIC wait. A [`SharedNic`](crate::SharedNic) that is made of it afterwards waits in this way
    /// too; streams have a [setting](crate::Spin) of their own.
    pub fn set_wait(&mut self, wait: WaitConfig) {
        self.wait_config = wait;
        self.wait = Some(WaitPolicy::new(wait));
    }

    /// How long [`disconnect`](Self::disconnect), and dropping the NIC, wait for posted sends that are under way, and how long those
    /// of a [retired](Self::retire) VI may take; one second unless set. Zero gives them back at once, flushed.
    pub fn set_drain(&mut self, limit: Duration) {
        self.drain = limit;
    }

    pub(crate) fn drain_limit(&self) -> Duration {
        self.drain
    }

    /// Whether a receive has to end inside its region when it is posted. By default a receive may end beyond, and only a
    /// message that needs those bytes fails, with a protection error. Holds for receives posted from now on.
    #[doc(hidden)]
    pub fn set_strict_receives(&mut self, strict: bool) {
        self.receive_ends = if strict { Ends::All } else { Ends::Used };
        self.mem.forget_checks();
    }

    /// Sets the handler of asynchronous errors; `None` goes back to keeping them for [`take_error`](Self::take_error).
    pub fn on_error(&mut self, handler: Option<ErrorHandler>) {
        self.errors.set(handler);
    }

    /// The oldest asynchronous error kept for want of a handler.
    pub fn take_error(&mut self) -> Option<ErrorEvent> {
        self.errors.take()
    }

    /// Reports an asynchronous error that a layer above has found.
    #[doc(hidden)]
    pub fn raise_error(&mut self, event: ErrorEvent) {
        self.errors.raise(event);
    }

    /// Makes a protection tag.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Forked`].
    pub fn create_ptag(&mut self) -> Result<ProtectionTag, Error> {
        self.check_fork()?;
        limit("protection tags", self.tags.len(), self.attributes.max_ptags)?;
        Ok(ProtectionTag(self.tags.insert(())))
    }

    /// Destroys a protection tag that nothing uses any more.
    ///
    /// # Errors
    /// [`Error::InUse`] while a VI or a region has it; [`Error::InvalidPtag`].
    pub fn destroy_ptag(&mut self, tag: ProtectionTag) -> Result<(), Error> {
        self.check_fork()?;
        self.tags.get(tag.0).ok_or(Error::InvalidPtag)?;
        self.finish_leaving(tag);
        self.collect_retired();
        let by_vi = self.vis.values().any(|v| v.attributes.ptag == tag);
        if by_vi || self.mem.uses_tag(tag) {
            return Err(Error::InUse("the protection tag"));
        }
        self.tags.remove(tag.0);
        Ok(())
    }

    /// Makes a VI.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::InvalidPtag`], [`Error::InvalidHandle`] or [`Error::InvalidParameter`] for attributes that do not
    /// hold; [`Error::NotSupported`] for a reliability level that the provider has not.
    pub fn create_vi(&mut self, mut attributes: ViAttributes) -> Result<Vi, Error> {
        self.check_vi_attributes(&mut attributes)?;
        limit("VIs", self.vis.len(), self.attributes.max_vi)?;
        let (send_cq, recv_cq, srq) = (attributes.send_cq, attributes.recv_cq, attributes.srq);
        let vi = Vi(self.vis.insert(ViCore::new(attributes, self.attributes.max_inline)));
        for cq in [send_cq, recv_cq].into_iter().flatten() {
            self.cqs.get_mut(cq.0).expect("checked above").join(vi);
        }
        if let Some(srq) = srq.and_then(|s| self.srqs.get_mut(s.0)) {
            srq.users += 1;
        }
        Ok(vi)
    }

    /// Destroys a VI that is idle and whose queues were drained.
    ///
    /// # Errors
    /// [`Error::InvalidState`] if it is not idle; [`Error::InUse`] if its queues were not drained; [`Error::InvalidHandle`].
    /// [`retire`](Self::retire) sees to all of that.
    pub fn destroy_vi(&mut self, vi: Vi) -> Result<(), Error> {
        self.check_fork()?;
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.state != ViState::Idle {
            return Err(Error::InvalidState { call: "destroy_vi", wanted: "idle", found: core.state });
        }
        if core.send.len() > 0 || core.recv.len() > 0 {
            return Err(Error::InUse("a work queue of the VI"));
        }
        let core = self.vis.remove(vi.0).expect("found above");
        for cq in [core.attributes.send_cq, core.attributes.recv_cq].into_iter().flatten() {
            if let Some(cq) = self.cqs.get_mut(cq.0) {
                cq.leave(vi);
            }
        }
        if let Some(srq) = core.attributes.srq.and_then(|s| self.srqs.get_mut(s.0)) {
            srq.users -= 1;
        }
        Ok(())
    }

    /// State, attributes and queue lengths of a VI, after a look at its connection.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::Forked`].
    pub fn query_vi(&mut self, vi: Vi) -> Result<ViInfo, Error> {
        self.check_fork()?;
        self.process_events();
        if self.vis.get(vi.0).is_some_and(|c| c.state == ViState::Connected) {
            self.progress_vi(vi);
        }
        let core = self.vis.get(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        Ok(ViInfo {
            state: core.state,
            attributes: core.attributes.clone(),
            remote: core.remote.clone(),
            sends: core.send.len() as usize,
            receives: core.recv.len() as usize,
            provider: core.endpoint.as_ref().map(|e| e.provider()),
            reach: core.endpoint.as_ref().map(|e| e.reach()),
        })
    }

    /// Changes the attributes of an idle VI; its queues and completion queues stay.
    ///
    /// # Errors
    /// [`Error::InvalidState`] if it is not idle; as of [`create_vi`](Self::create_vi).
    pub fn set_vi_attributes(&mut self, vi: Vi, mut attributes: ViAttributes) -> Result<(), Error> {
        self.check_vi_attributes(&mut attributes)?;
        let core = self.vis.get_mut(vi.0).ok_or(Error::InvalidHandle("VI"))?;
        if core.state != ViState::Idle {
            return Err(Error::InvalidState { call: "set_vi_attributes", wanted: "idle", found: core.state });
        }
        let old = &core.attributes;
        let changed = ViAttributes {
            send_depth: old.send_depth,
            recv_depth: old.recv_depth,
            send_cq: old.send_cq,
            recv_cq: old.recv_cq,
            srq: old.srq,
            ..attributes
        };
        core.set_attributes(changed, self.attributes.max_inline);
        Ok(())
    }

    /// Makes a completion queue.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::InvalidParameter`] for no entries.
    pub fn create_cq(&mut self, entries: usize) -> Result<Cq, Error> {
        self.check_fork()?;
        self.check_cq_entries(entries)?;
        limit("completion queues", self.cqs.len(), self.attributes.max_cq)?;
        Ok(Cq(self.cqs.insert(CqCore::new(entries))))
    }

    /// Destroys a completion queue that no VI is bound to any more.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`]; [`Error::InUse`] while a VI is bound to it; [`Error::Forked`].
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), Error> {
        self.check_fork()?;
        if self.cqs.get(cq.0).ok_or(Error::InvalidHandle("completion queue"))?.in_use() {
            return Err(Error::InUse("the completion queue"));
        }
        self.cqs.remove(cq.0);
        Ok(())
    }

    /// Changes the size of a completion queue, also while it is in use; not below what is reserved.
    ///
    /// # Errors
    /// [`Error::CqFull`] below what is reserved; [`Error::Limit`]; [`Error::InvalidHandle`].
    pub fn resize_cq(&mut self, cq: Cq, entries: usize) -> Result<(), Error> {
        self.check_fork()?;
        self.check_cq_entries(entries)?;
        let core = self.cqs.get_mut(cq.0).ok_or(Error::InvalidHandle("completion queue"))?;
        if entries < core.reserved() {
            return Err(Error::CqFull { capacity: core.capacity() });
        }
        core.resize(entries);
        Ok(())
    }

    /// Makes a shared receive queue.
    ///
    /// Messages of VIs that draw from it do not take the fast path of small messages: receives of a VI's own are faster.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a depth that is 0 or above the limit.
    pub fn create_srq(&mut self, depth: usize) -> Result<Srq, Error> {
        self.check_fork()?;
        if depth == 0 || depth > self.attributes.max_descriptors_per_queue {
            return Err(Error::InvalidParameter("depth of the shared receive queue"));
        }
        Ok(Srq(self.srqs.insert(SrqCore::new(depth))))
    }

    /// Destroys a shared receive queue that no VI uses; descriptors still in it are returned.
    ///
    /// # Errors
    /// [`Error::InUse`] while a VI draws from it; [`Error::InvalidHandle`].
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<Vec<crate::Descriptor>, Error> {
        self.check_fork()?;
        let core = self.srqs.get(srq.0).ok_or(Error::InvalidHandle("shared receive queue"))?;
        if core.users > 0 {
            return Err(Error::InUse("the shared receive queue"));
        }
        let mut core = self.srqs.remove(srq.0).expect("found above");
        Ok(std::iter::from_fn(|| core.take()).collect())
    }

    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        fork::generation() != self.generation
    }

    #[inline]
    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    pub(crate) fn check_ptag(&self, tag: ProtectionTag) -> Result<(), Error> {
        self.check_fork()?;
        if tag == ProtectionTag::ANY {
            return Ok(());
        }
        self.tags.get(tag.0).copied().ok_or(Error::InvalidPtag)
    }

    fn check_cq_entries(&self, entries: usize) -> Result<(), Error> {
        if entries == 0 {
            return Err(Error::InvalidParameter("a completion queue has at least one entry"));
        }
        if entries > self.attributes.max_cq_entries {
            let limit = self.attributes.max_cq_entries as u64;
            return Err(Error::Limit { what: "entries of a completion queue", limit });
        }
        Ok(())
    }

    fn check_vi_attributes(&mut self, a: &mut ViAttributes) -> Result<(), Error> {
        self.check_ptag(a.ptag)?;
        if a.max_transfer_size == u32::MAX {
            a.max_transfer_size = self.attributes.max_transfer_size;
        }
        if a.max_transfer_size > self.attributes.max_transfer_size {
            let limit = u64::from(self.attributes.max_transfer_size);
            return Err(Error::Limit { what: "maximum transfer size", limit });
        }
        if !self.attributes.reliability.contains(&a.reliability) {
            return Err(Error::NotSupported("this reliability level"));
        }
        if a.rdma_read && !self.attributes.rdma_read.contains(&a.reliability) {
            return Err(Error::InvalidRdmaRead);
        }
        let depth = 1..=self.attributes.max_descriptors_per_queue;
        if !depth.contains(&a.send_depth) || !depth.contains(&a.recv_depth) {
            return Err(Error::InvalidParameter("queue depth is 0 or above the NIC's limit"));
        }
        if [a.send_cq, a.recv_cq].into_iter().flatten().any(|cq| self.cqs.get(cq.0).is_none()) {
            return Err(Error::InvalidHandle("completion queue"));
        }
        if a.srq.is_some_and(|s| self.srqs.get(s.0).is_none()) {
            return Err(Error::InvalidHandle("shared receive queue"));
        }
        Ok(())
    }
}

/// Waits for sends that are under way, a second at most ([`Nic::set_drain`]), then ends all connections and takes memory back from
/// peers. What is not out by then is discarded with its descriptor, and a warning says how much that was; [`Nic::abandon`] waits
/// for nothing, and says nothing.
impl Drop for Nic {
    fn drop(&mut self) {
        // A forked child only drops its copy; rings and peers are the parent's.
        if self.check_fork().is_err() {
            self.retired.close();
            return;
        }
        let vis: Vec<Vi> = self.vis.handles().map(Vi).collect();
        if !std::thread::panicking() {
            self.drain(&vis);
            if !self.drain.is_zero() {
                let senders = vis.iter().filter(|vi| self.is_sending(**vi));
                let lost = senders.filter_map(|vi| self.vis.get(vi.0)).map(|core| core.send.not_done());
                let (vis, sends) = lost.fold((0, 0), |(vis, all), sends| (vis + 1, all + sends));
                tell_lost("a NIC was dropped", vis, sends);
            }
        }
        for vi in vis {
            // Idle VIs refuse, which is fine.
            let _ = self.disconnect_now(vi);
        }
        // Peers must be out of every region before its memory can go, be it with our descriptors or with a buffer
        // that the program still has.
        let retired = self.retired.close();
        for handle in self.mem.handles() {
            self.withdraw(handle);
        }
        drop(retired);
    }
}

pub(crate) fn limit(what: &'static str, used: usize, limit: usize) -> Result<(), Error> {
    if used < limit { Ok(()) } else { Err(Error::Limit { what, limit: limit as u64 }) }
}
