//! Sockets as streams (SOVIA, section 5.2, figure 9b): bandwidth with the paper's optimisations one after the other.
//!
//! Series and ends are those of `sockets-latency`.

use crate::cases::sockets::{SIZES, build, points};
use crate::cases::{Apart, Case, References, nothing};
use crate::plan::Motion;

pub(super) const CASE: Case = Case {
    name: "sockets-stream",
    about: "how many bytes a second pass over a stream of SOVIA, step by step, between native VIA and TCP",
    unit: "MB/s",
    lower_is_better: false,
    sizes: SIZES,
    value: |ns, size| size as f64 / ns * 1e3,
    points: |settings, sizes| Ok(points(settings, sizes, Motion::Stream)),
    timed: "a long sequence of writes of one size, from the first to the answer to the last; the receiver reads every byte \
            inside that time (MB = 10^6 bytes). Series as in sockets-latency; via: messages of VIA with a window of 4, of 64 \
            up to 2 KiB; tcp has the largest buffers that are allowed",
    window: 4,
    axis: "",
    references: References::All,
    logp: Apart::Not,
    via: build,
    ofi: None,
    derive: nothing,
};
