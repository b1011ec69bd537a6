//! Children by re-exec: a test that needs another process starts its own binary again.
//!
//! [`child!`](crate::child!) names a piece of code that can run in a process of its own. The name is an ordinary
//! static of type [`Program`], so a wrong one does not compile, and there is no list to keep. `NAME.spawn(&[...])`
//! starts the binary again and gives a [`Child`]: lines in, lines out, signals, exit status. It is killed and reaped
//! when it is dropped, and dies with the thread that started it.
//!
//! How it works: `child!` puts a function into the start-up list of the executable (`.init_array`). It looks at one
//! environment variable, and if that names its program, runs it and exits before `main` is reached. So it does not
//! matter which harness the binary has (libtest, nextest, none), no extra test appears in the counts, the child's
//! output holds only what it said, and it starts with a single thread, which matters to tests of fork and signals.
//!
//! It works in unit tests, integration tests, doc tests, libraries of tests and under `forbid(unsafe_code)`. What Rust
//! sets up on the way to `main`, a name for the first thread and a message on stack overflow, is not there.

mod handle;
mod program;

pub use handle::Child;
pub use program::{Program, hear, say};

/// Names code that can run in a child process: `child!(NAME, |args| { ... })`.
///
/// `args` is a `&[String]`. The child exits with 0 when the code returns and with 101 when it panics. A function
/// does as well as a closure: `child!(pub SERVER, server::<Shm>)`.
///
/// ```
/// viaduct_kit::child!(SUM, |args| {
///     let sum: u32 = args.iter().map(|arg| arg.parse::<u32>().unwrap()).sum();
///     viaduct_kit::child::say(sum);
/// });
///
/// let mut child = SUM.spawn(&["2", "3"]);
/// assert_eq!(child.expect_line("", std::time::Duration::from_secs(10)), "5");
/// ```
#[macro_export]
macro_rules! child {
    ($(#[$meta:meta])* $visibility:vis $name:ident, $body:expr) => {
        $crate::child! { @ stringify!($name); $(#[$meta])* $visibility $name, $body }
    };
    (@ $unique:expr; $(#[$meta:meta])* $visibility:vis $name:ident, $body:expr) => {
        $(#[$meta])*
        $visibility static $name: $crate::child::Program =
            $crate::child::Program::new(concat!(module_path!(), "::", $unique), $body);

        const _: () = {
            extern "C" fn enter() {
                $name.enter();
            }
            #[used]
            #[unsafe(link_section = ".init_array")]
            static ENTER: extern "C" fn() = enter;
        };
    };
}

/// A test in a process of its own: `isolated! { fn name() { ... } }`.
///
/// For whatever concerns the whole process: descriptors left open, limits, signal handlers, the count of threads.
/// The test passes if the body returns, fails if it panics, exits otherwise or takes longer than a minute
/// (`isolated! { limit 300; fn name() { ... } }` for other limits, in seconds).
///
/// ```no_run
/// viaduct_kit::isolated! {
///     fn nothing_stays_open() {
///         let leaks = viaduct_kit::leaks::LeakCheck::start();
///         drop(std::fs::File::open("/dev/null"));
///         leaks.finish();
///     }
/// }
/// ```
#[macro_export]
macro_rules! isolated {
    (limit $seconds:expr; $(#[$meta:meta])* fn $name:ident() $body:block) => {
        $(#[$meta])*
        #[test]
        fn $name() {
            $crate::child! { @ stringify!($name); BODY, |_args| $body }
            BODY.spawn(&[]).finish(::std::time::Duration::from_secs($seconds));
        }
    };
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        $crate::isolated! { limit 60; $(#[$meta])* fn $name() $body }
    };
}
