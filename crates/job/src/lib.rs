//! A job: what processes that belong together know of each other before any VI exists.
//!
//! ```text
//!   token   a secret of 32 bytes that every process of a job has, and no other
//!   auth    both ends of a connection prove that they have it, and that nothing was changed on the way
//!   greeting   that, over TCP
//!   host    which host a process is on: boot and network namespace
//!   card    the addresses of a process, as bytes or as text
//!   pmi     the lines of PMI-1: what launchers answer, what ranks ask
//!   ranks   a rank in its job: number, size, barrier, exchange; under any launcher that speaks PMI-1, or alone
//!   first   what ranks tell each other first: hosts, and a token where the launcher gave none
//!   meet    ranks that were started by hand come together at the first of them
//!   segment memory that ranks of one host share, all or any group of them
//! ```
//!
//! Catapult (Millennium Sort, section 3) starts the processes of a job and tells each of them about the others; this is
//! what it tells, and how they ask.
//!
//! ```
//! use viaduct_job::auth::{Nonce, Role, prove, verify};
//! use viaduct_job::token::Token;
//!
//! let token = Token::random();
//! let (asked, answered) = (Nonce::random(), Nonce::random());
//! let proof = prove(&token, Role::Server, &asked, &answered, b"what was said");
//! assert!(verify(&token, Role::Server, &asked, &answered, b"what was said", &proof));
//! assert!(!verify(&token, Role::Server, &asked, &answered, b"something else", &proof));
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, missing_debug_implementations)]

pub mod auth;
pub mod card;
pub mod error;
mod first;
pub mod greeting;
pub mod host;
mod meet;
pub mod pmi;
pub mod ranks;
pub mod segment;
pub mod token;

mod hex;

pub use card::Card;
pub use error::Error;
pub use host::HostId;
pub use ranks::Job;
pub use token::Token;
