//! The store's server and client as they are written with unsafe slices and buffers of their own: what the safe ones are measured against.

use std::collections::HashMap;

use viaduct_net::{Arrival, Descriptor, Ended, Error, NetAddress, Nic, Queue, Vi, ViAttributes};

use super::{CLIENTS, DEPTH, FULL, LONGEST, PATIENCE, Store, answer, let_in};

/// Serves clients until the NIC fails: requests are read where they arrived, answers copied into a buffer for each client.
pub(super) fn serve(mut nic: Nic, address: &NetAddress) -> Result<(), Error> {
    let (cq, listener) = (nic.create_cq(CLIENTS * (1 + DEPTH))?, nic.listen(address, 64)?);
    let (mut store, mut replies) = (Store::new(), HashMap::new());
    let mut inside = 0;
    loop {
        match nic.wait_any(cq, listener, None)? {
            Arrival::Request(request) if inside == CLIENTS => drop(nic.reject_with(request, FULL)),
            Arrival::Request(request) => inside += usize::from(let_in(&mut nic, cq, request).is_ok()),
            Arrival::Completion(Ended(done)) if !done.status.is_success() => {
                replies.remove(&done.vi);
                nic.retire(done.vi)?;
                inside -= 1;
            }
            Arrival::Completion(Ended(done)) if done.queue == Queue::Send => {
                replies.insert(done.vi, done.descriptor);
            }
            Arrival::Completion(Ended(done)) => {
                let vi = done.vi;
                let reply = replies.remove(&vi).map_or_else(|| reply(&mut nic), Ok);
                let posted = reply.and_then(|mut reply| {
                    // SAFETY: the receive is not posted, and peers have no rights to what post_receives allocates.
                    let request = unsafe { done.descriptor.buffers()[0].as_slice() };
                    let (status, value) = answer(&mut store, &request[..done.length as usize]);
                    fill(&mut reply, &[&[status], &value]);
                    nic.post_recv(vi, done.descriptor)?;
                    Ok(nic.post_send(vi, reply)?)
                });
                if posted.is_err() {
                    replies.remove(&vi);
                    nic.retire(vi)?;
                    inside -= 1;
                }
            }
        }
    }
}

/// A buffer for an answer.
fn reply(nic: &mut Nic) -> Result<Descriptor, Error> {
    Ok(Descriptor::send(nic.buffer(LONGEST)?))
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
        let request = Some(reply(&mut nic)?);
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
