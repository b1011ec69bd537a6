//! Moving messages on: from the inbox into receive descriptors, acknowledgements back, RDMA at once.

use viaduct_via::raw;
use viaduct_via::{Fault, Op, Queues, Reliability, Status, Work};

use super::vi::{LoopbackVi, Packet, receive_op};

impl LoopbackVi {
    pub(super) fn progress(&mut self, queues: &mut Queues<'_>) {
        self.take_acks(queues);
        while self.with_end(true, |end| !end.inbox.is_empty()) {
            if queues.must_hold() {
                // Sends that the peer will not acknowledge any more do not wait until there is room; its messages do.
                if self.with_end(true, |end| end.closed) {
                    self.unacknowledged.clear();
                    queues.flush_sends();
                }
                return;
            }
            if queues.next_recv().is_none() {
                // A receive completed in this very poll may be posted again before the next message is judged.
                if queues.received() == 0 {
                    self.nothing_posted(queues);
                }
                return;
            }
            let Some(packet) = self.with_end(true, |end| end.inbox.pop_front()) else { return };
            if !self.deliver(&packet, queues) {
                return;
            }
        }
        if self.with_end(true, |end| end.closed && end.inbox.is_empty()) {
            self.take_acks(queues);
            queues.broken(Fault::Disconnected);
        }
    }

    fn deliver(&mut self, packet: &Packet, queues: &mut Queues<'_>) -> bool {
        let Some(work) = queues.next_recv() else { return false };
        let arriving = if packet.written.is_some() { 0 } else { packet.bytes.len() as u64 };
        let status = work.judge_message(arriving);
        if status.is_success() && packet.written.is_none() {
            scatter(work, &packet.bytes);
        }
        let length =
            if status.is_success() { packet.written.unwrap_or(packet.bytes.len() as u32) } else { 0 };
        queues.complete_recv(receive_op(packet), status, length, packet.immediate);
        if status.is_success() {
            self.acknowledge(Status::Success);
            return true;
        }
        self.acknowledge(Status::RemoteDescriptorError);
        if self.reliability.is_reliable() {
            queues.broken(Fault::of_receive(status));
            return false;
        }
        true
    }

    fn nothing_posted(&mut self, queues: &mut Queues<'_>) {
        if self.reliability.is_reliable() {
            self.acknowledge(Status::RemoteDescriptorError);
            queues.broken(Fault::ReceiveQueueEmpty);
            return;
        }
        let lost = self.with_end(true, |end| std::mem::take(&mut end.inbox).len());
        (0..lost).for_each(|_| queues.dropped());
    }

    fn acknowledge(&self, status: Status) {
        if self.reliability != Reliability::ReliableReception {
            return;
        }
        let armed = self.with_end(false, |end| {
            end.acks.push_back(status);
            end.armed
        });
        self.tell_peer(armed);
    }

    fn take_acks(&mut self, queues: &mut Queues<'_>) {
        while let Some(status) = self.with_end(true, |end| end.acks.pop_front()) {
            let Some((index, length)) = self.unacknowledged.pop_front() else { return };
            let length = if status.is_success() { length } else { 0 };
            queues.complete_send(index, status, length);
            if !status.is_success() {
                queues.broken(Fault::Remote(status));
            }
        }
    }
}

/// The bytes a descriptor sends.
pub(super) fn gather(work: &Work) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(work.total as usize);
    for s in work.segments() {
        let len = s.len as usize;
        // SAFETY: a posted segment is valid until its descriptor is back; room for len bytes was reserved.
        unsafe {
            viaduct_os::copy::copy(bytes.as_mut_ptr().add(bytes.len()), s.addr, len);
            bytes.set_len(bytes.len() + len);
        }
    }
    bytes
}

/// Spreads bytes over the segments of a descriptor; they fit, as the caller has checked.
pub(super) fn scatter(work: &Work, bytes: &[u8]) {
    let mut rest = bytes;
    for s in work.segments() {
        let n = rest.len().min(s.len as usize);
        // SAFETY: a posted segment is valid until its descriptor is back; n is within it and within rest.
        unsafe { viaduct_os::copy::copy(s.addr, rest.as_ptr(), n) };
        rest = &rest[n..];
    }
}

/// Carries out an RDMA operation on the peer's memory, under the hub's lock so that it cannot be withdrawn meanwhile.
pub(super) fn rdma(vi: &LoopbackVi, work: &mut Work) -> Result<(), Status> {
    let mut hub = vi.hub.lock();
    let nic = hub.nics.get_mut(&vi.peer_nic()).ok_or(Status::TransportError)?;
    let region = nic.regions.get(&work.remote.handle.number()).ok_or(Status::RdmaProtectionError)?;
    let rights = match work.op {
        Op::RdmaWrite => region.attributes().rdma_write,
        Op::RdmaRead => region.attributes().rdma_read,
        _ => region.attributes().rdma_read && region.attributes().rdma_write,
    };
    if !rights
        || !region.attributes().ptag.goes_with(vi.peer_tag)
        || !region.contains(work.remote.addr, u64::from(work.total))
    {
        return Err(Status::RdmaProtectionError);
    }
    let remote = work.remote.addr as *mut u8;
    if work.op.is_atomic() {
        // SAFETY: inside a registered region (checked), aligned to 8 (checked when posted), kept by the hub's lock.
        let old = unsafe {
            match work.op {
                Op::FetchAdd => raw::fetch_add(remote, work.operands[0]),
                _ => raw::compare_swap(remote, work.operands[0], work.operands[1]),
            }
        };
        scatter(work, &old.to_ne_bytes());
        return Ok(());
    }
    let mut at = remote;
    for s in work.segments() {
        let len = s.len as usize;
        // SAFETY: the remote range was checked as a whole and is kept by the hub's lock; the local one is posted.
        unsafe {
            match work.op {
                Op::RdmaWrite => viaduct_os::copy::copy(at, s.addr, len),
                _ => viaduct_os::copy::copy(s.addr, at, len),
            }
            at = at.add(len);
        }
    }
    Ok(())
}
