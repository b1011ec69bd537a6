//! An edge over a TCP connection. The kernel's window is the credit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use viaduct_os::poll;

use super::frame::{HEAD, Head, Kind, words_of};
use super::send::LAST_WORDS;
use crate::buffer::Buffer;
use crate::edge::Edge;
use crate::error::Error;
use crate::flow::{Sink, Source};
use crate::pool::MemPool;

/// Bytes of a long record for which memory is taken at a time.
const STEP: usize = 1 << 20;

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
        // What does not fit is waited for apart: only that is a stall.
        let _ = stream.set_nonblocking(true);
        TcpSink { node, stream: Mutex::new(stream), edge: Edge::new(name) }
    }

    /// Sends a frame; waits for the peer to take it, at most for `limit` at a time.
    fn send(&self, head: Head, payload: &[u8], limit: Option<Duration>) -> Result<(), Error> {
        let mut stream = match self.stream.try_lock() {
            Ok(stream) => stream,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.edge.stalled_for_credit(|| self.stream.lock().unwrap_or_else(PoisonError::into_inner))
            }
        };
        let head = head.to_bytes()?;
        let sent = self.write(&mut stream, &head, limit);
        let sent = sent.and_then(|()| self.write(&mut stream, payload, limit));
        sent.map_err(|error| Error::Net { what: "sending to", node: self.node, cause: error.to_string() })
    }

    fn write(&self, stream: &mut TcpStream, mut bytes: &[u8], limit: Option<Duration>) -> io::Result<()> {
        let fd = stream.as_raw_fd();
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let wait = || poll::wait(&mut [poll::Watched::write(fd)], limit);
                    if self.edge.stalled_for_credit(wait)? == 0 && limit.is_some() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Sink for TcpSink {
    fn put(&self, buffer: Buffer) -> Result<(), Error> {
        self.send(Head::of(&buffer), buffer.data(), None)?;
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
        self.send(Head::control(Kind::End, 0), &[], None)
    }

    fn fail(&self, error: Error) {
        let words = words_of(&error);
        let told = self.send(Head::control(Kind::Failure, words.len()), &words, Some(LAST_WORDS));
        if told.is_err() {
            // A receiver that takes nothing learns of the failure by the end of the connection.
            let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.shutdown(Shutdown::Both);
        }
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
        let _ = stream.set_nonblocking(true);
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
    fn read_long(&self, stream: &mut TcpStream, len: usize) -> Result<Buffer, Error> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let got = bytes.len();
            bytes.resize(len.min(got + STEP), 0);
            self.read(stream, &mut bytes[got..])?;
        }
        Ok(Buffer::of_bytes(bytes))
    }

    /// Fills `into`. Only the time in which nothing was there is a stall.
    fn read(&self, stream: &mut TcpStream, mut into: &mut [u8]) -> Result<(), Error> {
        let fd = stream.as_raw_fd();
        while !into.is_empty() {
            match stream.read(into) {
                Ok(0) => return Err(self.broken(&io::ErrorKind::UnexpectedEof.into())),
                Ok(got) => into = &mut into[got..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let wait = || poll::wait(&mut [poll::Watched::read(fd)], None);
                    self.edge.stalled_for_data(wait).map_err(|error| self.broken(&error))?;
                }
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(())
    }

    fn frame(&self, state: &mut MutexGuard<'_, Receiving>) -> Result<Option<Buffer>, Error> {
        let mut head = [0; HEAD];
        self.read(&mut state.stream, &mut head)?;
        let head = Head::from_bytes(&head, u32::MAX as usize).map_err(|error| error.at_node(self.node))?;
        match head.kind {
            Kind::End => {
                state.dry = true;
                Ok(None)
            }
            Kind::Failure => {
                let mut words = vec![0; head.len];
                self.read(&mut state.stream, &mut words)?;
                state.dry = true;
                Err(Error::Node { node: self.node, cause: String::from_utf8_lossy(&words).into_owned() })
            }
            Kind::Piece => Err(Error::Format("a piece where whole buffers travel".into()).at_node(self.node)),
            Kind::Data => {
                let mut buffer = if head.len > self.pool.buffer_size() {
                    self.read_long(&mut state.stream, head.len)?
                } else {
                    let buffer = self.pool.try_take();
                    let wait = || self.edge.stalled_for_credit(|| self.pool.take());
                    let mut buffer = buffer.unwrap_or_else(wait);
                    self.read(&mut state.stream, &mut buffer.room_mut()[..head.len])?;
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
        let buffer = self.frame(&mut state)?;
        if let Some(buffer) = &buffer {
            self.edge.carried(buffer.len(), buffer.records());
        }
        Ok(buffer)
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}
