//! Programs as people write them today, over streams of Viaduct and over TCP: HTTP by hyper, gRPC by tonic, and an RPC of
//! our own. Everything above the connector, which is this page, is the same for both (SOVIA, section 5.4, of our days).
//!
//! ```text
//!   http   grpc   rpc        one program each, server and client
//!        │
//!   Network ── Conn, Door    the connector: tcp or via
//! ```
//!
//! ```sh
//! cargo run --release -p viaduct-sockets --example echo      # both, one against the other
//! ```

#![forbid(unsafe_code)]

pub mod grpc;
pub mod http;
pub mod rpc;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use viaduct_sovia::Sovia;
use viaduct_sovia::tokio::{Listener, Sockets, Stream};

/// Where a program's connections come from.
#[derive(Clone)]
pub enum Network {
    /// The kernel's.
    Tcp,
    /// Viaduct's.
    Via(Sockets),
}

impl Network {
    /// Viaduct's, inside a runtime.
    pub fn via(sovia: Sovia) -> io::Result<Network> {
        Sockets::new(sovia).map(Network::Via)
    }

    /// Listens at a place of its own choice; it is told with the listener.
    pub async fn listen(&self, via: &str) -> io::Result<(Door, String)> {
        Ok(match self {
            Network::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?.to_string();
                (Door::Tcp(listener), address)
            }
            Network::Via(sockets) => (Door::Via(sockets.listen(via, 64)?), via.to_owned()),
        })
    }

    /// Connects.
    pub async fn connect(&self, address: &str) -> io::Result<Conn> {
        Ok(match self {
            Network::Tcp => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Conn::Tcp(stream)
            }
            Network::Via(sockets) => Conn::Via(Box::new(sockets.connect(address).await?)),
        })
    }
}

/// A listener.
pub enum Door {
    /// The kernel's.
    Tcp(TcpListener),
    /// Viaduct's.
    Via(Listener),
}

impl Door {
    /// The next connection.
    pub async fn accept(&self) -> io::Result<Conn> {
        Ok(match self {
            Door::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Conn::Tcp(stream)
            }
            Door::Via(listener) => Conn::Via(Box::new(listener.accept().await?)),
        })
    }
}

/// A connection, which is all that the programs see.
pub enum Conn {
    /// The kernel's.
    Tcp(TcpStream),
    /// Viaduct's, boxed since a stream is several times as large as a socket's number.
    Via(Box<Stream>),
}

impl Conn {
    fn writer(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncWrite + Unpin)> {
        match self.get_mut() {
            Conn::Tcp(stream) => Pin::new(stream),
            Conn::Via(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for Conn {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Conn::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Conn::Via(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writer().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(cx)
    }
}

/// What tonic wants to know of a connection: nothing, here.
impl tonic::transport::server::Connected for Conn {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
