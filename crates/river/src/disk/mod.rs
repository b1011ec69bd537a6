//! The ends of a flow on disks (Millennium Sort, section 3.2, Disk Source and Disk Sink).
//!
//! A [`Volume`] is one file or several that are striped. Readers choose between the page cache and direct I/O per file:
//! what is in memory already is copied, what is not is read past the cache with many transfers under way. Those go through
//! io_uring; where that is refused, the threads that pull and put do them.

mod mirror;
mod output;
mod places;
mod sink;
mod source;
mod stream;
mod volume;
mod writes;

pub use mirror::{Chunks, MirrorSource};
pub use output::{Output, abandon_outputs};
pub use sink::DiskSink;
pub use source::{DiskSource, Partial};
pub use stream::{StreamSink, StreamSource};
pub use volume::Volume;

/// Whether files are used past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where it is likely to win.
    #[default]
    Auto,
    /// Wherever the file system allows it.
    On,
    /// Never.
    Off,
}
