//! Messages between two processes: sends, receives and probes.

use super::{Comm, Request, Status, World, lock};
use crate::error::{Class, Error, Result};
use crate::protocol::{Manner, Soon};
use crate::raw::Span;

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Done when the memory can be used again.
    Standard,
    /// Done when the message has met its receive.
    Synchronous,
    /// The receive is posted already.
    Ready,
    /// Copied, and done at once.
    Buffered,
}

/// A message that a probe has taken, for one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message(u64);

impl Message {
    /// The message of no process.
    pub const NO_PROC: Message = Message(0);

    /// As a number, for tables of handles.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From its number.
    pub fn from_bits(bits: u64) -> Message {
        Message(bits)
    }
}

impl World {
    /// Sends a message and waits until its memory can be used again.
    ///
    /// # Errors
    /// For arguments that make no sense, or if the receiver is gone.
    #[inline]
    pub fn send(&self, mode: Mode, span: &Span, dest: i32, tag: i32, comm: &Comm) -> Result<()> {
        let envelope = comm.envelope(tag)?;
        let Some(to) = comm.process(dest)? else { return Ok(()) };
        if matches!(mode, Mode::Standard | Mode::Ready) {
            let sent = self.shared.with(|engine| {
                let sent = engine.core.send_now(&mut engine.links, span, to, &envelope, Manner::Blocking);
                if sent {
                    engine.look_sometimes();
                }
                sent
            })?;
            if sent {
                return Ok(());
            }
        }
        let request = self.start(mode, Manner::Blocking, span, dest, tag, comm)?;
        self.wait(request).error.map_or(Ok(()), Err)
    }

    /// Starts to send a message. [`Request::SENT`]: it has left.
    ///
    /// # Errors
    /// For arguments that make no sense.
    #[inline]
    pub fn isend(&self, mode: Mode, span: &Span, dest: i32, tag: i32, comm: &Comm) -> Result<Request> {
        if matches!(mode, Mode::Standard | Mode::Ready)
            && let Some(to) = comm.process(dest)?
        {
            let envelope = comm.envelope(tag)?;
            return self.shared.with(|engine| {
                let manner = Manner::Nonblocking;
                let sent = if engine.core.send_now(&mut engine.links, span, to, &envelope, manner) {
                    Request::SENT
                } else {
                    engine.core.isend(&mut engine.links, span, to, envelope, manner, comm.keep())
                };
                engine.look_sometimes();
                sent
            });
        }
        self.start(mode, Manner::Nonblocking, span, dest, tag, comm)
    }

    fn start(
        &self,
        mode: Mode,
        manner: Manner,
        span: &Span,
        dest: i32,
        tag: i32,
        comm: &Comm,
    ) -> Result<Request> {
        let envelope = comm.envelope(tag)?;
        let Some(to) = comm.process(dest)? else {
            return self.shared.with(|engine| engine.core.finished(Status::EMPTY));
        };
        let manner = if mode == Mode::Synchronous { Manner::Synchronous } else { manner };
        if mode == Mode::Buffered {
            let copy = span.packed();
            let sent = self.shared.with(|engine| {
                engine.core.isend(&mut engine.links, &copy, to, envelope, Manner::Nonblocking, comm.keep())
            })?;
            let mut buffered = lock(&self.buffered);
            self.shared.with(|engine| buffered.retain(|(old, _)| engine.core.take(*old).is_none()))?;
            buffered.push((sent, span.bytes()));
            return self.shared.with(|engine| engine.core.finished(Status::EMPTY));
        }
        self.shared.with(|engine| {
            let request = engine.core.isend(&mut engine.links, span, to, envelope, manner, comm.keep());
            engine.look_sometimes();
            request
        })
    }

    /// Bytes of buffered sends that are on their way.
    pub fn buffered(&self) -> usize {
        let mut buffered = lock(&self.buffered);
        let _ = self.shared.with(|engine| {
            engine.look();
            buffered.retain(|(old, _)| engine.core.take(*old).is_none());
        });
        buffered.iter().map(|(_, len)| len).sum()
    }

    /// Waits until all buffered sends have left.
    ///
    /// # Errors
    /// If a receiver is gone.
    pub fn flush_buffered(&self) -> Result<()> {
        let left = std::mem::take(&mut *lock(&self.buffered));
        let ends: Vec<_> = left.into_iter().map(|(request, _)| self.wait(request)).collect();
        ends.into_iter().find_map(|end| end.error).map_or(Ok(()), Err)
    }

    /// Receives a message.
    ///
    /// # Errors
    /// For arguments that make no sense, a message that is too long, or if the sender is gone.
    pub fn recv(&self, span: &Span, source: i32, tag: i32, comm: &Comm) -> Result<Status> {
        let Some((pattern, from)) = comm.pattern(source, tag)? else { return Ok(Status::PROC_NULL) };
        let mut soon = Soon::new(pattern, span);
        self.shared.with(|engine| engine.receive_soon(&mut soon))?;
        if soon.is_waiting() && self.shared.hand_over() {
            self.shared.with(|engine| engine.receive_soon(&mut soon))?;
        }
        if soon.is_done() {
            return soon.result();
        }
        let request = match soon.request() {
            Some(request) => request,
            None => self
                .shared
                .with(|engine| engine.core.irecv(&mut engine.links, span, pattern, from, comm.keep()))?,
        };
        let done = self.wait(request);
        done.error.map_or(Ok(done.status), Err)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// For arguments that make no sense.
    pub fn irecv(&self, span: &Span, source: i32, tag: i32, comm: &Comm) -> Result<Request> {
        let Some((pattern, from)) = comm.pattern(source, tag)? else {
            return self.shared.with(|engine| engine.core.finished(Status::PROC_NULL));
        };
        self.shared.with(|engine| engine.core.irecv(&mut engine.links, span, pattern, from, comm.keep()))
    }

    /// Sends a message and receives another.
    ///
    /// # Errors
    /// As those of [`send`](Self::send) and [`recv`](Self::recv).
    #[allow(clippy::too_many_arguments, reason = "those of MPI_Sendrecv")]
    pub fn sendrecv(
        &self,
        send: &Span,
        dest: i32,
        send_tag: i32,
        recv: &Span,
        source: i32,
        recv_tag: i32,
        comm: &Comm,
    ) -> Result<Status> {
        let receive = self.irecv(recv, source, recv_tag, comm)?;
        let sent = self.isend(Mode::Standard, send, dest, send_tag, comm);
        let sent = sent.and_then(|sent| self.wait(sent).error.map_or(Ok(()), Err));
        if let Err(error) = sent {
            // The other message may never come: its sender may wait for the one that could not be sent.
            self.cancel(receive);
            self.wait(receive);
            return Err(error);
        }
        let received = self.wait(receive);
        received.error.map_or(Ok(received.status), Err)
    }

    /// Sends a message and receives another in its place.
    ///
    /// # Errors
    /// As those of [`sendrecv`](Self::sendrecv).
    pub fn sendrecv_replace(
        &self,
        span: &Span,
        dest: i32,
        send_tag: i32,
        source: i32,
        recv_tag: i32,
        comm: &Comm,
    ) -> Result<Status> {
        self.sendrecv(&span.packed(), dest, send_tag, span, source, recv_tag, comm)
    }

    /// The first message that a receive would take, if it is there.
    ///
    /// # Errors
    /// For arguments that make no sense.
    pub fn iprobe(&self, source: i32, tag: i32, comm: &Comm) -> Result<Option<Status>> {
        let Some((pattern, _)) = comm.pattern(source, tag)? else { return Ok(Some(Status::PROC_NULL)) };
        self.shared.with(|engine| {
            engine.look();
            engine.core.probe(&pattern)
        })
    }

    /// Waits for a message that a receive would take.
    ///
    /// # Errors
    /// For arguments that make no sense, or if the sender is gone.
    pub fn probe(&self, source: i32, tag: i32, comm: &Comm) -> Result<Status> {
        let Some((pattern, from)) = comm.pattern(source, tag)? else { return Ok(Status::PROC_NULL) };
        self.shared.wait(|engine| match engine.core.probe(&pattern) {
            Some(status) => Some(Ok(status)),
            None => engine.core.why_none(&from).map(Err),
        })?
    }

    /// Takes the first message that a receive would take, if it is there.
    ///
    /// # Errors
    /// For arguments that make no sense.
    pub fn improbe(&self, source: i32, tag: i32, comm: &Comm) -> Result<Option<(Message, Status)>> {
        let Some((pattern, _)) = comm.pattern(source, tag)? else {
            return Ok(Some((Message::NO_PROC, Status::PROC_NULL)));
        };
        let held = self.shared.with(|engine| {
            engine.look();
            engine.core.hold(&pattern)
        })?;
        Ok(held.map(|(number, status)| (Message(number), status)))
    }

    /// Waits for a message that a receive would take, and takes it.
    ///
    /// # Errors
    /// For arguments that make no sense, or if the sender is gone.
    pub fn mprobe(&self, source: i32, tag: i32, comm: &Comm) -> Result<(Message, Status)> {
        let Some((pattern, from)) = comm.pattern(source, tag)? else {
            return Ok((Message::NO_PROC, Status::PROC_NULL));
        };
        self.shared.wait(|engine| match engine.core.hold(&pattern) {
            Some((number, status)) => Some(Ok((Message(number), status))),
            None => engine.core.why_none(&from).map(Err),
        })?
    }

    /// Starts to receive a message that a probe has taken.
    ///
    /// # Errors
    /// If there is no such message.
    pub fn imrecv(&self, message: Message, span: &Span) -> Result<Request> {
        if message == Message::NO_PROC {
            return self.shared.with(|engine| engine.core.finished(Status::PROC_NULL));
        }
        let none = || Error::new(Class::Request, "a message that was received before");
        let request =
            self.shared.with(|engine| engine.core.receive_held(&mut engine.links, message.0, span, None))?;
        request.ok_or_else(none)
    }

    /// Receives a message that a probe has taken.
    ///
    /// # Errors
    /// If there is no such message, or it is too long.
    pub fn mrecv(&self, message: Message, span: &Span) -> Result<Status> {
        let request = self.imrecv(message, span)?;
        let done = self.wait(request);
        done.error.map_or(Ok(done.status), Err)
    }
}
