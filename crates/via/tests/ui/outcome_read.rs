//! A completion has no bytes and no length before its status was looked at, be it of a wait, of a view's
//! poll or of an arrival at a server.

use viaduct_via::{Arrival, Cq, Error, Listener, Nic, Vi};

fn read(nic: &mut Nic, vi: Vi, cq: Cq, listener: Listener) -> Result<(), Error> {
    nic.wait_cq(cq, None)?.data(); //~ E0599
    let _ = nic.wait_recv_outcome(vi, None)?.length; //~ E0609
    nic.wait_cq(cq, None)?.ok()?.data();
    if let Some(done) = nic.vi(vi)?.poll_recv()? {
        let _ = done.data(); //~ E0599
    }
    if let Some(done) = nic.vi(vi)?.poll_send()? {
        let _ = done.descriptor; //~ E0609
    }
    let mut batch = Vec::new();
    nic.cq(cq)?.poll_batch(&mut batch, 4)?;
    batch.extend(nic.cq(cq)?.poll()?);
    for done in batch {
        let _ = done.length; //~ E0609
        done.ok()?.data();
    }
    match nic.wait_any(cq, listener, None)? {
        Arrival::Completion(done) => drop(done.bytes()), //~ E0599
        Arrival::Request(_) => {}
    }
    if let Arrival::Completion(done) = nic.wait_any(cq, listener, None)? {
        done.ok()?.data();
    }
    Ok(())
}

fn main() {
    let _ = read;
}
