//! What every Viaduct test suite needs, and nothing that Viaduct itself is made of.
//!
//! The kit depends on no other crate of the workspace, so that each of them can use it in its tests.
//!
//! ```text
//!  a test                         the kit
//!  ------------------------------------------------------------------------------------------
//!  needs a second process         child::Program, child::Child, isolated!   re-exec of this binary
//!  may hang                       watchdog::Watchdog                        a hang becomes a failure
//!  must leave nothing behind      leaks::LeakCheck                          fds, maps, children, files, threads
//!  must not allocate              alloc::CountingAlloc                      heap calls counted per thread
//!  runs out of something          resources::with_nofile_limit              limits that put themselves back
//!  needs a program of the system  packages::need_program, skip!             skipped by name, never silently
//!  must work without root         unprivileged::unprivileged                uid 65534 with folders of its own
//!  is written in C                cc::compile_c                             warnings are errors
//!  writes files                   tempdir::TempDir                          removes itself
//!  needs several hosts            hosts::Hosts                              network namespaces, links that can be cut
//!  needs hosts with sshd          cluster::Cluster                          keys made for it
//!  waits for another's state      process::{is_stopped, has_ended}           what the kernel says of it
//!  is refused a system call       refused::refuse                           as by the filter of a container
//!  reads hostile input            fuzz::spoil                               right messages with something wrong
//!  needs a Python package         wheels::need_wheel                        skipped by name, as programs are
//!  needs userfaultfd              userfaultfd::lacks                        asked of the kernel, not of Viaduct
//!  takes long                     effort::{full, scaled}                    more rounds with --full
//! ```
//!
//! A test in two processes, whole:
//!
//! ```
//! use std::time::Duration;
//! use viaduct_kit::child::{hear, say};
//!
//! viaduct_kit::child!(ECHO, |args| {
//!     say(format!("ready {}", args[0]));
//!     while let Some(line) = hear() {
//!         say(format!("echo {line}"));
//!     }
//! });
//!
//! // With #[test] on it, in a file below tests/.
//! fn a_line_comes_back() {
//!     let wait = Duration::from_secs(10);
//!     let mut echo = ECHO.spawn(&["one"]);
//!     assert_eq!(echo.expect_line("ready ", wait), "one");
//!     echo.send_line("hello");
//!     assert_eq!(echo.expect_line("echo ", wait), "hello");
//!     echo.kill();
//!     assert!(!echo.wait(wait).success());
//! }
//! # a_line_comes_back();
//! ```

pub mod alloc;
pub mod cc;
pub mod child;
pub mod cluster;
pub mod effort;
pub mod fuzz;
pub mod hosts;
pub mod leaks;
pub mod packages;
pub mod process;
pub mod refused;
pub mod resources;
pub mod tempdir;
pub mod unprivileged;
pub mod userfaultfd;
pub mod watchdog;
pub mod wheels;
