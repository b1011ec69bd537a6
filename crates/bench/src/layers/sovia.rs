//! Streams of SOVIA between two processes, measured by the same loops as the kernel's sockets.
//!
//! The NIC of the place becomes the library's, and the two meet again at the place's address. How calls wait is the
//! library's business, so the loops treat the stream as one that blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use viaduct_sovia::{Config, Sovia};

use crate::control::Patience;
use crate::error::{Error, Result};
use crate::layers::socket::{self, Stream};
use crate::layers::via::{CONNECT_LIMIT, Meeting, Place};
use crate::loops::End;
use crate::plan::{Variant, Wait};

/// How long an accept waits before it looks whether the other process still runs.
const LOOK: Duration = Duration::from_millis(100);

/// One end over a stream with these settings.
pub(crate) fn end(place: Place, config: Config) -> Result<Box<dyn End>> {
    let layer = place.variant.layer.name();
    let variant = Variant { wait: Wait::Block, ..place.variant.clone() };
    let patience = place.patience.clone();
    let (nic, meeting) = place.meet_again()?;
    let failed = |e: io::Error| Error::layer(layer, e.to_string(), "");
    let sovia = Sovia::open(nic, config).map_err(|e| failed(e.into()))?;
    let stream = match meeting {
        Meeting::Answer(name) => {
            let listener = sovia.listen(&name, 1).map_err(|e| failed(e.into()))?;
            until_met(&patience, || listener.accept_timeout(LOOK))
        }
        Meeting::Call(name) => {
            until_met(&patience, || sovia.connect_timeout(&name, CONNECT_LIMIT).map_err(io::Error::from))
        }
    };
    let stream = stream?.map_err(failed)?;
    socket::end(&variant, patience, |_| {
        let stream = stream.try_clone().map_err(failed)?;
        Ok(Sov(stream))
    })
}

/// Tries until the two have met. The other end opens its library at the same time, and may not listen or call yet; once its
/// process is gone it never will.
fn until_met<T>(patience: &Patience, mut meet: impl FnMut() -> io::Result<T>) -> Result<io::Result<T>> {
    let start = Instant::now();
    loop {
        match meet() {
            Err(e) if is_early(e.kind()) && start.elapsed() < CONNECT_LIMIT => {
                patience.check("connecting two streams")?;
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return Ok(done),
        }
    }
}

fn is_early(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::TimedOut)
}

struct Sov(viaduct_sovia::Stream);

impl Read for Sov {
    #[inline(always)]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Sov {
    #[inline(always)]
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Sov {
    /// What was combined goes at the end of a slice, as it would if the program went on to read.
    fn push_out(&mut self) -> Result<()> {
        self.0.flush().map_err(Error::os("flushing a stream"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    #[test]
    fn a_stream_stops_looking_for_a_process_that_is_gone() {
        let control = Control::create(4096, false, viaduct_providers::config::Config::default()).unwrap();
        let mut peer = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        control.watch(pidfd_open(Pid::from_child(&peer), PidfdFlags::empty()).unwrap());
        let mut tries = 0;
        let met: Result<io::Result<()>> = until_met(&control.patience(), || {
            tries += 1;
            if tries == 3 {
                peer.kill().and_then(|()| peer.wait()).unwrap();
            }
            Err(ErrorKind::ConnectionRefused.into())
        });
        assert!(matches!(met, Err(Error::PeerGone { doing: "connecting two streams" })), "{met:?}");
        assert_eq!(tries, 3, "nothing is tried after its end");
        peer.wait().unwrap();
    }
}
