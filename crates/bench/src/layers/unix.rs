//! `unix` and `unix-spin`: a Unix stream socket. The address is abstract, so no file is left behind.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt;

use crate::control::{Control, Patience};
use crate::error::{Error, Result};
use crate::layers::Door;
use crate::layers::socket::{KERNEL_BUFFER, Socket, Stream};
use crate::loops::{End, Looped};
use crate::plan::{Variant, Wait};

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("viaduct-bench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let listener =
        UnixListener::bind_addr(&address_of(&name)?).map_err(Error::os("listening on a Unix socket"))?;
    Ok(Box::new(Listening { listener, name, variant: variant.clone(), patience: control.patience() }))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, name: &str) -> Result<Box<dyn End>> {
    let address = address_of(name)?;
    let mut sockets = Vec::with_capacity(variant.connections);
    for _ in 0..variant.connections {
        let stream = UnixStream::connect_addr(&address).map_err(Error::os("connecting to a Unix socket"))?;
        sockets.push(prepare(stream, variant)?);
    }
    Ok(Box::new(Looped::new(Socket::new(variant, sockets, control.patience()), variant)))
}

struct Listening {
    listener: UnixListener,
    name: String,
    variant: Variant,
    patience: Patience,
}

impl Door for Listening {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(self: Box<Self>) -> Result<Box<dyn End>> {
        let mut sockets = Vec::with_capacity(self.variant.connections);
        for _ in 0..self.variant.connections {
            let (stream, _) = self.listener.accept().map_err(Error::os("accepting a Unix connection"))?;
            sockets.push(prepare(stream, &self.variant)?);
        }
        Ok(Box::new(Looped::new(Socket::new(&self.variant, sockets, self.patience), &self.variant)))
    }
}

impl Stream for UnixStream {}

fn address_of(name: &str) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(name).map_err(Error::os("naming a Unix socket"))
}

fn prepare(stream: UnixStream, variant: &Variant) -> Result<UnixStream> {
    stream.set_nonblocking(variant.wait == Wait::Poll).map_err(Error::os("setting a socket's mode"))?;
    // The kernel grants what it may; less is no error.
    sockopt::set_socket_send_buffer_size(&stream, KERNEL_BUFFER).map_err(Error::os("setting SO_SNDBUF"))?;
    Ok(stream)
}
