//! What a NIC counts, read in the process itself, and what the library says by `tracing`.
//!
//! ```text
//!   counters
//! ```

use std::time::Duration;

use viaduct_net::{Counter, Error, Nic, ViAttributes, providers};

/// The counters that a service might hand to its metrics.
const SHOWN: [Counter; 6] = [
    Counter::Connects,
    Counter::InlineSends,
    Counter::Receives,
    Counter::BytesReceived,
    Counter::Sleeps,
    Counter::Breaks,
];

fn main() -> Result<(), Error> {
    let mut nic = Nic::open(providers::loopback::provider())?;
    let (a, b) = (nic.create_vi(ViAttributes::default())?, nic.create_vi(ViAttributes::default())?);
    nic.vi(b)?.post_receives(3, 16)?;
    let address = "counted".parse()?;
    let listener = nic.listen(&address, 1)?;
    nic.connect(a, &address).timeout(Duration::from_secs(1)).start()?;
    let request = nic.wait_listener(listener, None)?;
    nic.accept(request, b)?;
    nic.connect_finish(a)?;
    for word in [&b"one"[..], b"two", b"three"] {
        nic.vi(a)?.send_inline(word, None)?;
        nic.vi(b)?.wait_recv(None)?;
    }
    // A clone of the slot can be read on any thread, while the NIC works.
    let counters = nic.counters().clone();
    for counter in SHOWN {
        println!("{} {}", counter.name(), counters.read(counter));
    }
    Ok(())
}
