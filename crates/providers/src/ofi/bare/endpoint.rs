//! Endpoints that connect, and that messages are posted to.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;
use std::rc::Rc;

use viaduct_via::Error;

use super::ledger::PostedMessage;
use super::{Cq, Inner, Message};
use crate::ofi::abi::*;
use crate::ofi::endpoint::{Active, Passive};
use crate::ofi::fabric::{News, failed};
use crate::ofi::info::Info;

/// Where an endpoint's completions go; may be one queue for both.
#[derive(Clone)]
pub struct Queues {
    /// Of its sends.
    pub send: Cq,
    /// Of its receives.
    pub receive: Cq,
}

/// Waits for connections.
pub struct Listener {
    passive: Passive,
    inner: Rc<Inner>,
}

/// A client that wants to connect.
pub struct Request {
    info: Info,
}

impl Listener {
    pub(super) fn open(inner: &Rc<Inner>, address: SocketAddr) -> Result<Listener, Error> {
        let passive = inner.fabric.listen(address);
        let passive = passive.map_err(|code| failed(inner.fabric.fi, "fi_listen", code.into()))?;
        Ok(Listener { passive, inner: inner.clone() })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.passive.address()
    }

    /// The next client that wants to connect, if there is one.
    pub fn poll(&self) -> Option<Request> {
        let key = self.passive.key();
        match self.inner.hear(|news| matches!(news, News::Asked { at, .. } if *at == key))? {
            News::Asked { info, .. } => Some(Request { info }),
            _ => None,
        }
    }

    /// An endpoint for a request; receives may be posted before it is accepted.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    pub fn endpoint(&self, request: &Request, queues: &Queues) -> Result<Endpoint, Error> {
        Endpoint::open(&self.inner, &request.info, queues, None)
    }
}

/// One end of a connection.
pub struct Endpoint {
    active: Option<Active>,
    /// Where it leads, if it calls.
    to: Option<SocketAddr>,
    _queues: Queues,
    inner: Rc<Inner>,
}

impl Endpoint {
    pub(super) fn leading_to(inner: &Rc<Inner>, to: SocketAddr, queues: &Queues) -> Result<Endpoint, Error> {
        let info = inner.fabric.info.leading_to(to);
        Endpoint::open(inner, &info, queues, Some(to))
    }

    fn open(
        inner: &Rc<Inner>,
        info: &Info,
        queues: &Queues,
        to: Option<SocketAddr>,
    ) -> Result<Endpoint, Error> {
        let fabric = &inner.fabric;
        let check =
            |call, code: c_int| if code == 0 { Ok(()) } else { Err(failed(fabric.fi, call, code.into())) };
        let mut ep = ptr::null_mut();
        let domain = fabric.domain;
        // SAFETY: open objects; the endpoint is closed by drop, whatever fails after it was opened, and keeps its queues.
        let active = unsafe {
            check(
                "fi_endpoint",
                ((*(*domain).ops).endpoint)(domain, info.ptr, &raw mut ep, ptr::null_mut()),
            )?;
            let active = Active { ep };
            let ops = &*(*ep).fid.ops;
            let fid = &raw mut (*ep).fid;
            check("fi_ep_bind", (ops.bind)(fid, &raw mut (*fabric.eq).fid, 0))?;
            if Rc::ptr_eq(&queues.send.0, &queues.receive.0) {
                let cq = queues.send.0.cq.cast();
                check("fi_ep_bind", (ops.bind)(fid, cq, FI_SEND | FI_RECV))?;
            } else {
                check("fi_ep_bind", (ops.bind)(fid, queues.send.0.cq.cast(), FI_SEND))?;
                check("fi_ep_bind", (ops.bind)(fid, queues.receive.0.cq.cast(), FI_RECV))?;
            }
            check("fi_enable", (ops.control)(fid, FI_ENABLE, ptr::null_mut()))?;
            active
        };
        Ok(Endpoint { active: Some(active), to, _queues: queues.clone(), inner: inner.clone() })
    }

    /// What completions name it by.
    pub fn key(&self) -> usize {
        self.active().key()
    }

    /// Starts to connect, or takes the connection that it was made for.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    pub fn start(&self) -> Result<(), Error> {
        let (call, done) = match self.to {
            Some(to) => ("fi_connect", self.active().connect(to)),
            None => ("fi_accept", self.active().accept()),
        };
        done.map_err(|code| failed(self.inner.fabric.fi, call, code.into()))
    }

    /// Whether the connection stands.
    ///
    /// # Errors
    /// [`Error::Transport`] if it was refused or has ended.
    pub fn is_connected(&self) -> Result<bool, Error> {
        let key = self.key();
        let of_it =
            |news: &News| matches!(news, News::Connected { ep } | News::Over { ep, .. } if *ep == key);
        match self.inner.hear(of_it) {
            Some(News::Connected { .. }) => Ok(true),
            Some(News::Over { errno, .. }) => Err(failed(self.inner.fabric.fi, "fi_connect", errno.into())),
            _ => Ok(false),
        }
    }

    /// Posts a send; gives the message back if the queue is full.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    #[inline]
    pub fn send(&self, message: Message) -> Result<Option<Message>, Error> {
        self.post(message, false)
    }

    /// Posts a receive; gives the message back if the queue is full.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause.
    #[inline]
    pub fn receive(&self, message: Message) -> Result<Option<Message>, Error> {
        self.post(message, true)
    }

    /// Sends bytes that are copied by the call and have no completion; false if the queue is full.
    ///
    /// # Errors
    /// [`Error::Transport`] with the cause; [`Error::Limit`] if there are too many.
    #[inline]
    pub fn inject(&self, bytes: &[u8]) -> Result<bool, Error> {
        let limit = self.inner.facts.inject;
        if bytes.len() > limit {
            return Err(Error::Limit { what: "bytes of a message by value", limit: limit as u64 });
        }
        // SAFETY: the bytes are there, and are copied.
        let code = unsafe { self.active().inject(bytes.as_ptr(), bytes.len()) };
        self.taken("fi_inject", code)
    }

    #[inline]
    fn post(&self, message: Message, receive: bool) -> Result<Option<Message>, Error> {
        let active = self.active();
        let (whole, pieces) = (message.whole(), message.pieces());
        let several = if whole.is_none() { Some(message.places()) } else { None };
        let limit = if receive { self.inner.facts.scatter } else { self.inner.facts.gather };
        if pieces > limit {
            return Err(Error::Limit { what: "pieces of one message", limit: limit as u64 });
        }
        let context =
            self.inner.ledger.borrow_mut().put(PostedMessage { message, endpoint: active.key(), receive });
        // SAFETY: the ledger keeps the message, and with it the memory, until the completion has come or the endpoint is
        // closed; it cannot be touched there.
        let code = unsafe {
            match (whole, several) {
                (Some((at, len, desc)), _) if receive => active.recv(at, len, desc, context),
                (Some((at, len, desc)), _) => active.send(at, len, desc, context),
                (None, several) => {
                    let (places, mut descs) = several.unwrap_or_default();
                    let msg = &*(*active.ep).msg;
                    let call = if receive { msg.recvv } else { msg.sendv };
                    let descs = descs.as_mut_ptr();
                    call(active.ep, places.as_ptr().cast(), descs, places.len(), 0, context as *mut _)
                }
            }
        };
        match self.taken(if receive { "fi_recv" } else { "fi_send" }, code) {
            Ok(true) => Ok(None),
            // It was not taken, so that it is ours again.
            refused => {
                let held = self.inner.ledger.borrow_mut().take(context);
                refused.map(|_| held.map(|held| held.message))
            }
        }
    }

    #[inline]
    fn taken(&self, call: &'static str, code: isize) -> Result<bool, Error> {
        match code {
            0 => Ok(true),
            code if code == -(FI_EAGAIN as isize) => Ok(false),
            code => Err(failed(self.inner.fabric.fi, call, code as i64)),
        }
    }

    #[inline]
    fn active(&self) -> &Active {
        self.active.as_ref().expect("open until it is dropped")
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let key = self.key();
        if let Some(active) = self.active.take() {
            active.shut_down();
        }
        // Closed now: libfabric works on its messages no more. They go when the ledger is not borrowed.
        let left = self.inner.ledger.borrow_mut().take_all(key);
        drop(left);
        self.inner
            .news
            .borrow_mut()
            .retain(|news| !matches!(news, News::Connected { ep } | News::Over { ep, .. } if *ep == key));
    }
}
