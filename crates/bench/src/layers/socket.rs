//! What Unix and TCP stream sockets and pipes have in common: whole messages over a byte stream, blocking or spinning.
//!
//! The receiver reads as much as the kernel gives in one call (up to 64 KiB or one message), which is what a well
//! written program does, and sums every piece as it arrives.

use std::io::{ErrorKind, Read, Write};

use crate::control::{Control, Patience};
use crate::error::{Error, Result};
use crate::layers::Door;
use crate::layers::cold::Pages;
use crate::loops::{End, Looped, Wire};
use crate::pattern;
use crate::plan::{Variant, Wait};
use crate::raw::sum;

/// Bytes asked from the kernel at once, at least.
const CHUNK: usize = 64 << 10;

/// Send and receive buffers asked for.
pub(super) const KERNEL_BUFFER: usize = 4 << 20;

/// A kernel socket as these loops need it.
pub(super) trait Stream: Read + Write {
    /// Sends what the kernel keeps back for a fuller packet, if it does such a thing.
    fn push_out(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The second process' side of byte streams at `address`, each of which `accept` waits for.
pub(super) fn door<S: Stream + 'static>(
    address: String,
    variant: &Variant,
    control: &Control,
    accept: impl FnMut(&Variant) -> Result<S> + 'static,
) -> Box<dyn Door> {
    Box::new(SocketListening { address, variant: variant.clone(), patience: control.patience(), accept })
}

/// As many streams as the variant asks for, each of which `open` makes, as one end.
pub(super) fn end<S: Stream + 'static>(
    variant: &Variant,
    patience: Patience,
    mut open: impl FnMut(&Variant) -> Result<S>,
) -> Result<Box<dyn End>> {
    let streams = (0..variant.connections).map(|_| open(variant)).collect::<Result<Vec<S>>>()?;
    Ok(Box::new(Looped::new(Socket::new(variant, streams, patience), variant)))
}

struct SocketListening<A> {
    address: String,
    variant: Variant,
    patience: Patience,
    accept: A,
}

impl<S: Stream + 'static, A: FnMut(&Variant) -> Result<S>> Door for SocketListening<A> {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(self: Box<Self>) -> Result<Box<dyn End>> {
        end(&self.variant, self.patience, self.accept)
    }
}

/// A connected socket, and the idle ones beside it.
struct Socket<S> {
    stream: S,
    /// Kept open, never used.
    _idle: Vec<S>,
    size: usize,
    spin: bool,
    out: Pages,
    input: Pages,
    /// Bytes of `input` that are filled and not yet taken.
    have: std::ops::Range<usize>,
    message: Vec<u8>,
    patience: Patience,
}

impl<S: Stream> Socket<S> {
    /// Takes over connected sockets; the last one is used, the others stay idle. A variant that polls needs sockets
    /// that were set to non-blocking.
    fn new(variant: &Variant, mut sockets: Vec<S>, patience: Patience) -> Socket<S> {
        let stream = sockets.pop().expect("at least one connection");
        Socket {
            stream,
            _idle: sockets,
            size: variant.size,
            spin: variant.wait == Wait::Poll,
            out: Pages::new(variant, variant.size, 1),
            input: Pages::new(variant, CHUNK.max(variant.size), 0),
            have: 0..0,
            message: Vec::with_capacity(variant.size),
            patience,
        }
    }

    #[inline(always)]
    fn write_all(&mut self, which: Source) -> Result<()> {
        let bytes: &[u8] = match which {
            Source::Message => self.out.here(),
            Source::Acknowledgement => &[6],
        };
        let mut at = 0;
        let mut refusals = 0u32;
        while at < bytes.len() {
            match self.stream.write(&bytes[at..]) {
                Ok(written) => at += written,
                Err(error) => self.patience.retry(self.spin, &mut refusals, "sending", error)?,
            }
        }
        Ok(())
    }

    /// Reads what there is, at least one byte.
    #[inline(always)]
    fn fill(&mut self) -> Result<()> {
        let mut refusals = 0u32;
        self.input.turn();
        loop {
            match self.stream.read(self.input.here_mut()) {
                Ok(0) => return Err(Error::PeerGone { doing: "receiving a byte stream" }),
                Ok(count) => {
                    self.have = 0..count;
                    return Ok(());
                }
                Err(error) => self.patience.retry(self.spin, &mut refusals, "receiving", error)?,
            }
        }
    }
}

impl<S: Stream> Wire for Socket<S> {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        if CHECK {
            pattern::fill(self.out.here_mut(), seq);
        }
        self.write_all(Source::Message)?;
        self.out.turn();
        Ok(())
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        let mut missing = self.size;
        let mut total = 0u64;
        self.message.clear();
        while missing > 0 {
            if self.have.is_empty() {
                self.fill()?;
            }
            let take = missing.min(self.have.len());
            let piece = &self.input.here()[self.have.start..self.have.start + take];
            if CHECK {
                self.message.extend_from_slice(piece);
            } else {
                total = total.wrapping_add(sum(piece));
            }
            self.have.start += take;
            missing -= take;
        }
        Ok(if CHECK { pattern::mismatches(&self.message, seq) } else { total })
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.push_out()
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.write_all(Source::Acknowledgement)?;
        self.stream.push_out()
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        self.fill()?;
        self.have = 0..0;
        Ok(())
    }
}

enum Source {
    Message,
    Acknowledgement,
}

impl Patience {
    /// After a failed socket call: returns if it should be tried again.
    #[inline(always)]
    fn retry(
        &self,
        spin: bool,
        refusals: &mut u32,
        doing: &'static str,
        error: std::io::Error,
    ) -> Result<()> {
        match error.kind() {
            ErrorKind::WouldBlock if spin => {
                *refusals = refusals.wrapping_add(1);
                if refusals.is_multiple_of(1 << 12) {
                    self.check(doing)?;
                }
                Ok(())
            }
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Err(Error::PeerGone { doing }),
            _ => Err(Error::Os { doing: format!("{doing} a byte stream"), source: error }),
        }
    }
}
