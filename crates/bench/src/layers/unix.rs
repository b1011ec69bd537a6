//! `unix` and `unix-spin`: a Unix stream socket. The address is abstract, so no file is left behind.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt;

use crate::control::Control;
use crate::error::{Error, Result};
use crate::layers::Door;
use crate::layers::socket::{KERNEL_BUFFER, Stream, door, end};
use crate::loops::End;
use crate::plan::{Variant, Wait};

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    let (listener, name) = bind()?;
    Ok(door(name, variant, control, move |variant| {
        let (stream, _) = listener.accept().map_err(Error::os("accepting a Unix connection"))?;
        prepare(stream, variant)
    }))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, name: &str) -> Result<Box<dyn End>> {
    let address = address_of(name)?;
    end(variant, control.patience(), |variant| {
        let stream = UnixStream::connect_addr(&address).map_err(Error::os("connecting to a Unix socket"))?;
        prepare(stream, variant)
    })
}

/// A listener and its name, by which [`address_of`] finds it.
pub(super) fn bind() -> Result<(UnixListener, String)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("viaduct-bench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let listener =
        UnixListener::bind_addr(&address_of(&name)?).map_err(Error::os("listening on a Unix socket"))?;
    Ok((listener, name))
}

impl Stream for UnixStream {}

/// The abstract address behind a name.
pub(super) fn address_of(name: &str) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(name).map_err(Error::os("naming a Unix socket"))
}

fn prepare(stream: UnixStream, variant: &Variant) -> Result<UnixStream> {
    stream.set_nonblocking(variant.wait == Wait::Poll).map_err(Error::os("setting a socket's mode"))?;
    // The kernel grants what it may; less is no error.
    sockopt::set_socket_send_buffer_size(&stream, KERNEL_BUFFER).map_err(Error::os("setting SO_SNDBUF"))?;
    Ok(stream)
}
