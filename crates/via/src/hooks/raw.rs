//! The wrapping itself: a provider and endpoints that ask a hook before they pass things on. All calls are passed on, those of
//! the fast path too, so that what runs under hooks is what runs without them.

use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use viaduct_os::segment::Segment;
use viaduct_os::wait::Sleep;

use crate::address::NetAddress;
use crate::attributes::{NicAttributes, Reach, RemoteAttributes};
use crate::counters::CounterSlot;
use crate::descriptor::{RemoteAddress, Work};
use crate::error::Error;
use crate::handle::Vi;
use crate::hooks::{Hook, Step, Verdict};
use crate::memory::{MemHandle, RegionInfo};
use crate::provider::{
    Endpoint, Event, ListenId, Provider, RequestId, SharedMemory, Signal, Sleeper, Small, Submit,
};
use crate::queues::{Fault, Queues};
use crate::raw::WatchWord;

/// A provider with a hook around it. Hooks nest by wrapping again.
pub struct Hooked {
    inner: Box<dyn Provider>,
    hook: Arc<dyn Hook>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("inner", &self.inner.name()).finish_non_exhaustive()
    }
}

impl Hooked {
    /// Wraps a provider.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(inner: impl Into<Box<dyn Provider>>, hook: Arc<dyn Hook>) -> Box<dyn Provider> {
        Box::new(Hooked { inner: inner.into(), hook })
    }

    fn wrap(&self, inner: Box<dyn Endpoint>) -> Box<dyn Endpoint> {
        Box::new(HookedEndpoint { inner, hook: self.hook.clone(), breaks: false, passed: None })
    }
}

// SAFETY: memory, regions and descriptors go to the wrapped provider as they came; nothing here touches them.
unsafe impl Provider for Hooked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn attributes(&self) -> NicAttributes {
        self.inner.attributes()
    }

    fn counters(&self) -> CounterSlot {
        self.inner.counters()
    }

    fn signal(&self) -> Arc<Signal> {
        self.inner.signal()
    }

    fn sleeper(&self) -> Arc<dyn Sleeper> {
        let inner = self.inner.sleeper();
        match self.hook.holds_for() {
            None => inner,
            Some(limit) => Arc::new(LightSleeper { inner, limit }),
        }
    }

    fn allocate(&mut self, len: usize, align: usize) -> Result<SharedMemory, Error> {
        self.hook.step(Step::Allocate)?;
        self.inner.allocate(len, align)
    }

    fn share(&mut self, segment: &Arc<Segment>, range: Range<usize>) -> Result<SharedMemory, Error> {
        self.hook.step(Step::Allocate)?;
        self.inner.share(segment, range)
    }

    fn publish(&mut self, handle: MemHandle, region: &RegionInfo) -> Result<(), Error> {
        self.hook.step(Step::Register)?;
        self.inner.publish(handle, region)
    }

    fn withdraw(&mut self, handle: MemHandle) {
        self.inner.withdraw(handle);
    }

    fn reach(&self, remote: &NetAddress) -> Reach {
        self.inner.reach(remote)
    }

    fn listen(&mut self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        self.hook.step(Step::Listen)?;
        self.inner.listen(address, backlog)
    }

    fn set_waiting(&mut self, listener: ListenId, waiting: bool) {
        self.inner.set_waiting(listener, waiting);
    }

    fn unlisten(&mut self, listener: ListenId) {
        self.inner.unlisten(listener);
    }

    fn request(
        &mut self,
        vi: Vi,
        local: Option<&NetAddress>,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        self.hook.step(Step::Request)?;
        self.inner.request(vi, local, remote, ours)
    }

    fn request_peer(
        &mut self,
        vi: Vi,
        local: &NetAddress,
        remote: &NetAddress,
        ours: &RemoteAttributes,
    ) -> Result<(), Error> {
        self.hook.step(Step::Request)?;
        self.inner.request_peer(vi, local, remote, ours)
    }

    fn cancel(&mut self, vi: Vi) {
        self.inner.cancel(vi);
    }

    fn accept(
        &mut self,
        request: RequestId,
        vi: Vi,
        ours: &RemoteAttributes,
    ) -> Result<Box<dyn Endpoint>, Error> {
        self.hook.step(Step::Accept)?;
        let endpoint = self.inner.accept(request, vi, ours)?;
        Ok(self.wrap(endpoint))
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), Error> {
        self.inner.reject(request, private_data)
    }

    fn next_event(&mut self) -> Option<Event> {
        Some(match self.inner.next_event()? {
            Event::Established { vi, endpoint, remote } => {
                Event::Established { vi, endpoint: self.wrap(endpoint), remote }
            }
            other => other,
        })
    }

    fn ready(&mut self, into: &mut Vec<Vi>) {
        self.inner.ready(into);
    }
}

/// Wakes by itself: no ring tells that the time is over for which a hook holds something.
struct LightSleeper {
    inner: Arc<dyn Sleeper>,
    limit: Duration,
}

impl Sleep for LightSleeper {
    fn announce(&self) -> u32 {
        self.inner.announce()
    }

    fn cancel(&self) {
        self.inner.cancel();
    }

    fn park(&self, ticket: u32, timeout: Option<Duration>) {
        self.inner.park(ticket, Some(timeout.map_or(self.limit, |t| t.min(self.limit))));
    }
}

impl Sleeper for LightSleeper {
    fn ring(&self) {
        self.inner.ring();
    }

    fn arm_fd(&self) -> Result<(), Error> {
        self.inner.arm_fd()
    }

    fn drain_fd(&self) {
        self.inner.drain_fd();
    }

    fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.inner.fd()
    }
}

struct HookedEndpoint {
    inner: Box<dyn Endpoint>,
    hook: Arc<dyn Hook>,
    breaks: bool,
    /// Index of the descriptor that the hook has let pass but the transport was too busy for.
    passed: Option<u32>,
}

impl HookedEndpoint {
    /// What the hook's word means to the model; `None` lets the message pass.
    fn obey(&mut self, verdict: Verdict) -> Option<Submit> {
        match verdict {
            Verdict::Pass => None,
            Verdict::Hold => Some(Submit::Busy),
            Verdict::Lose => Some(Submit::Done),
            Verdict::Fail(status) => Some(Submit::Failed(status)),
            Verdict::Break => {
                self.breaks = true;
                Some(Submit::Busy)
            }
        }
    }
}

// SAFETY: descriptors go to the wrapped endpoint as they came, and come back by its word; nothing here touches their memory.
unsafe impl Endpoint for HookedEndpoint {
    fn submit(&mut self, work: &mut Work, index: u32) -> Submit {
        if self.breaks {
            return Submit::Busy;
        }
        // What the hook let pass and the transport could not take yet is not judged again.
        if self.passed != Some(index) {
            let verdict = self.hook.submit(work, index);
            if let Some(outcome) = self.obey(verdict) {
                return outcome;
            }
        }
        let submitted = self.inner.submit(work, index);
        self.passed = (submitted == Submit::Busy).then_some(index);
        submitted
    }

    fn submit_inline(&mut self, bytes: &[u8], immediate: Option<u32>) -> Submit {
        if self.breaks {
            return Submit::Busy;
        }
        let verdict = self.hook.submit_inline(bytes);
        self.obey(verdict).unwrap_or_else(|| self.inner.submit_inline(bytes, immediate))
    }

    fn write_inline(&mut self, bytes: &[u8], to: RemoteAddress, immediate: Option<u32>) -> Submit {
        if self.breaks {
            return Submit::Busy;
        }
        let verdict = self.hook.write_inline(bytes);
        self.obey(verdict).unwrap_or_else(|| self.inner.write_inline(bytes, to, immediate))
    }

    fn most_by_value(&self) -> u32 {
        self.inner.most_by_value()
    }

    fn submit_value(&mut self, parts: &[&[u8]], total: u32, immediate: Option<u32>) -> Submit {
        if self.breaks {
            return Submit::Busy;
        }
        let verdict = self.hook.submit_value(parts);
        self.obey(verdict).unwrap_or_else(|| self.inner.submit_value(parts, total, immediate))
    }

    fn nudge(&mut self) {
        if !self.breaks {
            self.inner.nudge();
        }
    }

    fn reads_private(&self) -> bool {
        self.inner.reads_private()
    }

    fn read_private(&mut self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        self.inner.read_private(address, into)
    }

    fn tell_receives_from(&self) -> u32 {
        self.inner.tell_receives_from()
    }

    fn take_small(&mut self, work: &Work) -> Option<Small> {
        if self.breaks {
            return None;
        }
        let taken = self.inner.take_small(work)?;
        self.hook.received(1);
        Some(taken)
    }

    fn watch(&self) -> WatchWord {
        if self.breaks { WatchWord::NONE } else { self.inner.watch() }
    }

    fn recv_posted(&mut self, work: &Work, number: u32) {
        self.inner.recv_posted(work, number);
    }

    fn poll(&mut self, queues: &mut Queues<'_>) {
        if self.breaks {
            queues.broken(Fault::Lost);
            return;
        }
        self.inner.poll(queues);
        if queues.received() > 0 {
            self.hook.received(queues.received());
        }
    }

    fn set_armed(&mut self, armed: bool) {
        self.inner.set_armed(armed);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn provider(&self) -> &'static str {
        self.inner.provider()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}
