//! The book (`docs/book`) and the README as doc tests: `cargo test --doc -p viaduct-book` compiles and runs every Rust
//! block in them.
//!
//! Chapters that are not about connecting start from [`connected`]:
//!
//! ```
//! let (mut here, mut there) = viaduct_book::connected()?;
//! # let _ = (&mut here.nic, &mut there.nic);
//! # Ok::<(), viaduct_via::Error>(())
//! ```
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use viaduct_providers::open;
use viaduct_via::{Error, NetAddress, Nic, ProtectionTag, Vi, ViAttributes};

/// One end of a connection.
pub struct End {
    /// The NIC.
    pub nic: Nic,
    /// The protection tag of its VI, for memory that the VI shall use.
    pub tag: ProtectionTag,
    /// The connected VI.
    pub vi: Vi,
}

/// Two NICs on shared memory with a VI each, connected.
///
/// # Errors
/// The machine's, if it has no shared memory or no run-time folder for us.
pub fn connected() -> Result<(End, End), Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let address = NetAddress::local(&format!("book-{}-{number}", std::process::id()))?;
    let (mut here, mut there) = (End::open()?, End::open()?);
    let listener = there.nic.listen(&address, 1)?;
    here.nic.connect(here.vi, &address).timeout(Duration::from_secs(10)).start()?;
    let request = there.nic.wait_listener(listener, Some(Duration::from_secs(10)))?;
    there.nic.accept(request, there.vi)?;
    here.nic.connect_finish(here.vi)?;
    Ok((here, there))
}

impl End {
    fn open() -> Result<End, Error> {
        let mut nic = Nic::open(open("shm", &Default::default())?)?;
        let tag = nic.create_ptag()?;
        let vi = nic.create_vi(ViAttributes::new(tag))?;
        Ok(End { nic, tag, vi })
    }
}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/getting-started.md")]
pub mod getting_started {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/messages.md")]
pub mod messages {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/rdma.md")]
pub mod rdma {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/when-things-break.md")]
pub mod when_things_break {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/benchmarks.md")]
pub mod benchmarks {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/sockets.md")]
pub mod sockets {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/faster.md")]
pub mod faster {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/few-cores.md")]
pub mod few_cores {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/observing.md")]
pub mod observing {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/several-hosts.md")]
pub mod several_hosts {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/layers.md")]
pub mod layers {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/sorting.md")]
pub mod sorting {}

/// Shared memory between nodes.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/shared-memory.md")]
pub mod shared_memory {}

/// Launching on a cluster.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/launching.md")]
pub mod launching {}
