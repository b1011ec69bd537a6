//! An edge over a TCP connection. The kernel's window is the credit.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use viaduct_os::poll;

use super::frame::{HEAD, Head, Kind, words_of};
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::{Sink, Source};
use crate::pool::MemPool;

/// The sending end.
#[derive(Debug)]
pub struct TcpSink {
    node: u32,
    stream: Mutex<TcpStream>,
    edge: Edge,
}

impl TcpSink {
    /// Sends to `node` over a connection.
    pub fn new(name: &str, node: u32, stream: TcpStream) -> TcpSink {
        // A frame is written in two pieces; waiting between them would cost a round trip.
        let _ = stream.set_nodelay(true);
        TcpSink { node, stream: Mutex::new(stream), edge: Edge::new(name) }
    }

    fn send(&self, head: Head, payload: &[u8]) -> Result<(), Error> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = stream.write_all(&head.to_bytes()).and_then(|()| stream.write_all(payload));
        sent.map_err(|error| Error::Net { what: "sending to", node: self.node, cause: error.to_string() })
    }
}

impl Sink for TcpSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        self.edge.stalled_for_credit(|| self.send(Head::of(&buffer), buffer.data()))?;
        self.edge.carried(buffer.len(), buffer.records());
        Ok(())
    }

    /// The kernel says that there is credit once a good part of its buffer is free; what does not fit then still waits.
    fn try_put(&self, buffer: Buffer) -> Result<Option<Buffer>, Error> {
        let fd = self.stream.lock().unwrap_or_else(PoisonError::into_inner).as_raw_fd();
        let ready = poll::wait(&mut [poll::Watched::write(fd)], Some(Duration::ZERO));
        if ready.is_ok_and(|count| count == 0) {
            return Ok(Some(buffer));
        }
        self.put(buffer).map(|()| None)
    }

    fn finish(&self) -> Result<(), Error> {
        self.send(Head::control(Kind::End, 0), &[])
    }

    fn fail(&self, error: Error) {
        let words = words_of(&error);
        // If the connection is broken the receiver knows of that.
        let _ = self.send(Head::control(Kind::Failure, words.len()), &words);
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct TcpSource {
    node: u32,
    state: Mutex<Receiving>,
    pool: MemPool,
    edge: Edge,
}

#[derive(Debug)]
struct Receiving {
    stream: TcpStream,
    dry: bool,
}

impl TcpSource {
    /// Receives from `node` over a connection, into buffers of `pool`.
    pub fn new(name: &str, node: u32, stream: TcpStream, pool: MemPool) -> TcpSource {
        TcpSource { node, state: Mutex::new(Receiving { stream, dry: false }), pool, edge: Edge::new(name) }
    }

    fn broken(&self, error: &io::Error) -> Error {
        let cause = if error.kind() == io::ErrorKind::UnexpectedEof {
            "the connection ended before the flow did".to_owned()
        } else {
            error.to_string()
        };
        Error::Net { what: "receiving from", node: self.node, cause }
    }

    /// Reads a record that is longer than a buffer into one of its own. Memory comes with the bytes, not with the length that the
    /// peer names.
    fn read_long(&self, stream: &TcpStream, len: usize) -> Result<Buffer, Error> {
        let mut bytes = Vec::new();
        let got = stream.take(len as u64).read_to_end(&mut bytes).map_err(|error| self.broken(&error))?;
        if got < len {
            return Err(self.broken(&io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Buffer::of_bytes(bytes))
    }

    fn frame(&self, state: &mut MutexGuard<'_, Receiving>) -> Result<Option<Buffer>, Error> {
        let mut head = [0; HEAD];
        state.stream.read_exact(&mut head).map_err(|error| self.broken(&error))?;
        let head = Head::from_bytes(&head, u32::MAX as usize).map_err(|error| error.at_node(self.node))?;
        match head.kind {
            Kind::End => {
                state.dry = true;
                Ok(None)
            }
            Kind::Failure => {
                let mut words = vec![0; head.len];
                state.stream.read_exact(&mut words).map_err(|error| self.broken(&error))?;
                state.dry = true;
                Err(Error::Node { node: self.node, cause: String::from_utf8_lossy(&words).into_owned() })
            }
            Kind::Piece => Err(Error::Format("a piece where whole buffers travel".into()).at_node(self.node)),
            Kind::Data => {
                let mut buffer = if head.len > self.pool.buffer_size() {
                    self.read_long(&state.stream, head.len)?
                } else {
                    let mut buffer = self.edge.stalled_for_credit(|| self.pool.take());
                    let room = &mut buffer.room_mut()[..head.len];
                    state.stream.read_exact(room).map_err(|error| self.broken(&error))?;
                    buffer
                };
                head.mark(&mut buffer);
                Ok(Some(buffer))
            }
        }
    }
}

impl Source for TcpSource {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.dry {
            return Ok(None);
        }
        let buffer = self.edge.stalled_for_data(|| self.frame(&mut state))?;
        if let Some(buffer) = &buffer {
            self.edge.carried(buffer.len(), buffer.records());
        }
        Ok(buffer)
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
