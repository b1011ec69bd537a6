//! A completion whose status was not looked at is warned of, also behind a `?`; one that was carried out may be dropped.

#![deny(unused_must_use)]

use viaduct_via::{Cq, Error, Nic, Queue, SharedNic, Vi};

fn overlook(nic: &mut Nic, vi: Vi, cq: Cq) -> Result<(), Error> {
    nic.wait_cq(cq, None)?; //~ unused
    nic.wait_recv_outcome(vi, None)?; //~ unused
    nic.wait_send_outcome(vi, None)?; //~ unused
    nic.cq(cq)?.wait(None)?; //~ unused
    nic.wait_cq(cq, None)?.ok()?;
    nic.wait_recv(vi, None)?;
    nic.vi(vi)?.wait_send(None)?;
    Ok(())
}

fn share(nic: &SharedNic, vi: Vi, cq: Cq) -> Result<(), Error> {
    nic.wait(vi, Queue::Send, None)?; //~ unused
    nic.wait_cq(cq, None)?; //~ unused
    nic.wait_recv(vi, None)?;
    Ok(())
}

async fn later(nic: &SharedNic, vi: Vi, cq: Cq) -> Result<(), Error> {
    nic.next(vi, Queue::Receive).await?; //~ unused
    nic.next_cq(cq).await?; //~ unused
    nic.next_cq(cq).await?.ok()?;
    Ok(())
}

fn main() {
    let _ = (overlook, share, later);
}
