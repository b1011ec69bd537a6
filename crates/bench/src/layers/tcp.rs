//! `tcp` and its variants: the kernel's TCP over the loopback interface, or to another host.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::rc::Rc;

use rustix::net::sockopt;

use crate::control::Control;
use crate::error::{Error, Result};
use crate::layers::Door;
use crate::layers::socket::{KERNEL_BUFFER, Stream, door, end};
use crate::loops::End;
use crate::plan::{Motion, Variant, Wait};

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    let ip = if control.far().is_some() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = TcpListener::bind((ip, 0)).map_err(Error::os(format!("listening on {ip}")))?;
    let port = listener.local_addr().map_err(Error::os("asking for the port of a listener"))?.port();
    Ok(door(port.to_string(), variant, control, move |variant| {
        let (stream, _) = listener.accept().map_err(Error::os("accepting a TCP connection"))?;
        prepare(stream, variant)
    }))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, port: &str) -> Result<Box<dyn End>> {
    let address = format!("{}:{port}", control.far().unwrap_or("127.0.0.1"));
    end(variant, control.patience(), |variant| {
        let stream = TcpStream::connect(&address).map_err(Error::os(format!("connecting to {address}")))?;
        prepare(stream, variant)
    })
}

/// A TCP socket that knows whether Nagle's algorithm is on.
struct Tcp {
    stream: TcpStream,
    nagle: bool,
}

impl Read for Tcp {
    #[inline(always)]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Tcp {
    #[inline(always)]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Stream for Tcp {
    /// Without this the last bytes of every slice would wait for a delayed acknowledgement, 40 ms, and TCP would look
    /// a thousand times slower than it is in a long stream.
    fn push_out(&mut self) -> Result<()> {
        if self.nagle {
            self.stream.set_nodelay(true).map_err(Error::os("setting TCP_NODELAY"))?;
            self.stream.set_nodelay(false).map_err(Error::os("clearing TCP_NODELAY"))?;
        }
        Ok(())
    }
}

fn prepare(stream: TcpStream, variant: &Variant) -> Result<Tcp> {
    stream.set_nodelay(!variant.nagle).map_err(Error::os("setting TCP_NODELAY"))?;
    stream.set_nonblocking(variant.wait == Wait::Poll).map_err(Error::os("setting a socket's mode"))?;
    if variant.motion == Motion::Stream && buffers_allowed() {
        sockopt::set_socket_send_buffer_size(&stream, KERNEL_BUFFER)
            .map_err(Error::os("setting SO_SNDBUF"))?;
        sockopt::set_socket_recv_buffer_size(&stream, KERNEL_BUFFER)
            .map_err(Error::os("setting SO_RCVBUF"))?;
    }
    Ok(Tcp { stream, nagle: variant.nagle })
}

/// A fixed size below what was asked for would be worse for TCP than letting the kernel tune it.
fn buffers_allowed() -> bool {
    ["rmem_max", "wmem_max"].iter().all(|name| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
        text.trim().parse::<usize>().is_ok_and(|limit| limit >= KERNEL_BUFFER)
    })
}
