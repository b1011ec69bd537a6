//! The store's server and client as they are written with unsafe slices and buffers of their own: what the safe ones are measured against.

use std::collections::HashMap;

use viaduct_net::{Arrival, Descriptor, Ended, Error, NetAddress, Nic, Queue, Vi, ViAttributes};

use super::{LONGEST, PATIENCE, Store, answer};

/// Serves clients until the NIC fails: requests are read where they arrived, answers copied into a buffer for each client.
pub(super) fn serve(mut nic: Nic, address: &NetAddress) -> Result<(), Error> {
    let (cq, listener) = (nic.create_cq(4096)?, nic.listen(address, 64)?);
    let (mut store, mut replies) = (Store::new(), HashMap::new());
    loop {
        match nic.wait_any(cq, listener, None)? {
            Arrival::Request(request) => {
                let vi = nic.create_vi(ViAttributes::default().cq(cq).depth(4))?;
                nic.vi(vi)?.post_receives(1, LONGEST)?;
                replies.insert(vi, Descriptor::send(nic.buffer(LONGEST)?));
                if nic.accept(request, vi).is_err() {
                    nic.retire(vi)?;
                }
            }
            Arrival::Completion(Ended(done)) if !done.status.is_success() => {
                replies.remove(&done.vi);
                nic.retire(done.vi)?;
            }
            Arrival::Completion(Ended(done)) if done.queue == Queue::Send => {
                replies.insert(done.vi, done.descriptor);
            }
            Arrival::Completion(Ended(done)) => {
                let vi = done.vi;
                let mut reply = match replies.remove(&vi) {
                    Some(reply) => reply,
                    None => Descriptor::send(nic.buffer(LONGEST)?),
                };
                // SAFETY: the receive is not posted, and peers have no rights to what post_receives allocates.
                let request = unsafe { done.descriptor.buffers()[0].as_slice() };
                let (status, value) = answer(&mut store, &request[..done.length as usize]);
                fill(&mut reply, &[&[status], &value]);
                let posted = nic.post_recv(vi, done.descriptor);
                if posted.and_then(|()| nic.post_send(vi, reply)).is_err() {
                    nic.retire(vi)?;
                }
            }
        }
    }
}

/// Writes the parts one behind the other into the buffer of a send that is not posted.
fn fill(send: &mut Descriptor, parts: &[&[u8]]) {
    // SAFETY: the send is not posted, and peers have no rights to what Nic::buffer makes.
    let bytes = unsafe { send.as_mut_slice(0) };
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    send.set_len(at);
}

/// One client's connection.
pub(super) struct Client {
    nic: Nic,
    vi: Vi,
    request: Option<Descriptor>,
}

impl Client {
    pub(super) fn connect(mut nic: Nic, address: &NetAddress) -> Result<Client, Error> {
        let vi = nic.create_vi(ViAttributes::default().depth(4))?;
        nic.vi(vi)?.post_receives(1, LONGEST)?;
        let request = Some(Descriptor::send(nic.buffer(LONGEST)?));
        nic.connect(vi, address).timeout(PATIENCE).wait()?;
        Ok(Client { nic, vi, request })
    }

    /// Asks, and gives the status and the value of the answer.
    pub(super) fn call(&mut self, operation: u8, key: &[u8], value: &[u8]) -> Result<(u8, Vec<u8>), Error> {
        let mut request = self.request.take().ok_or(Error::Closed)?;
        fill(&mut request, &[&[operation, key.len() as u8], key, value]);
        self.nic.post_send(self.vi, request)?;
        let message = self.nic.wait_recv(self.vi, Some(PATIENCE))?;
        // SAFETY: the receive is not posted, and peers have no rights to what post_receives allocates.
        let bytes = unsafe { message.descriptor.buffers()[0].as_slice() };
        let (status, value) = bytes[..message.length as usize].split_first().unwrap_or((&2, &[]));
        let answer = (*status, value.to_vec());
        self.nic.post_recv(self.vi, message.descriptor)?;
        self.request = Some(self.nic.wait_send(self.vi, Some(PATIENCE))?.descriptor);
        Ok(answer)
    }
}
