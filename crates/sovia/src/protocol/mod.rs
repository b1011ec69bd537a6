//! The protocol of one connection as a pure core: events in, actions out. No clock, no thread, no system call, no bytes.
//!
//! SOVIA, sections 3.2, 3.3, 4.2 and 4.3. The engine tells what happened (a packet came, the application writes, a
//! descriptor was posted again) and does what the answer says. Bytes stay with the engine; here are only their numbers.
//!
//! ```text
//!   combine   what waits in the combining buffer, and when it goes   section 3.2.3
//!   ring      where packets lie that are written into the receiver's memory
//!   state     figure 8
//!   connection   all of them together, with credits to send and acknowledgements to give (`viaduct_via::window`)
//!                                                            sections 3.2.1, 3.2.2
//!   calm      the shortest ways, while nothing else goes on
//! ```

mod calm;
mod combine;
mod connection;
pub mod ring;
mod state;

pub use connection::{Action, Actions, Came, Connection, Taken, Violation, Way, WriteStep};
pub use state::State;
