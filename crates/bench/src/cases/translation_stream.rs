//! Translation as a stream (Millennium Sort, figure 7): what is left of the bandwidth when targets have to be mapped.
//!
//! Slabs, series and proof are those of `translation`.

use crate::cases::translation::{build, points};
use crate::cases::{Apart, Case, References, nothing};
use crate::plan::Motion;

pub(super) const CASE: Case = Case {
    name: "translation-stream",
    about: "how many bytes a second pass when the targets are mapped at the sender, and when each is mapped first",
    unit: "MB/s",
    lower_is_better: false,
    sizes: &[4 << 10, 64 << 10],
    value: |ns, size| size as f64 / ns * 1e3,
    points: |settings, sizes| {
        points(settings, settings.sizes.is_empty() && settings.quick, sizes, Motion::Stream)
    },
    timed: "a stream by descriptor from the first post to the acknowledgement of the last message; the receiver reads \
            every byte inside that time (MB = 10^6 bytes). The targets lie in one slab (hit), in as many as the sender \
            keeps mapped (stride), or in more, in turn (miss). miss_rate (in JSON) is the share of messages whose \
            target was not mapped",
    window: 4,
    axis: "",
    references: References::None,
    logp: Apart::Not,
    via: build,
    ofi: None,
    derive: nothing,
};
