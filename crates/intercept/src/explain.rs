//! A line for each decision about a connection, for `viaduct run --explain`. Only if it was asked for: it opens a file.

use core::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use viaduct_os::bare::sockets::{Name, Side, name};
use viaduct_os::bare::{calls, whoami};

use crate::settings::settings;

/// Directions that were switched to a ring, in this process.
static SWITCHED: AtomicU64 = AtomicU64::new(0);

/// Directions that this process has switched to a ring so far.
pub fn switched() -> u64 {
    SWITCHED.load(Ordering::Relaxed)
}

pub(crate) fn count_switch() {
    SWITCHED.fetch_add(1, Ordering::Relaxed);
}

/// Notes what was decided about a connection.
#[cold]
pub(crate) fn explain(fd: i32, verdict: &str, reason: &str) {
    let Some(path) = settings().and_then(|settings| settings.explain.as_ref()) else { return };
    let mut line = Line { bytes: [0; 512], len: 0 };
    let ends = [Side::Own, Side::Peer].map(|side| name(fd, side).ok().flatten().unwrap_or_default());
    let pid = whoami::recorded_process();
    let _ = write!(line, "{pid} fd {fd} {} -> {} {verdict}", Shown(ends[0]), Shown(ends[1]));
    if !reason.is_empty() {
        let _ = write!(line, ": {reason}");
    }
    let _ = line.write_str("\n");
    let _ = calls::append(path.as_c_str(), &line.bytes[..line.len]);
}

struct Shown(Name);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = std::net::Ipv6Addr::from(self.0.address);
        match address.to_ipv4_mapped() {
            Some(address) => write!(f, "{address}:{}", self.0.port),
            None => write!(f, "[{address}]:{}", self.0.port),
        }
    }
}

struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }
}
