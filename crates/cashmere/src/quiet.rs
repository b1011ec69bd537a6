//! No log lines inside faults: the program's subscriber may allocate, and take a lock that the program holds where it
//! was interrupted.

use tracing::dispatcher::{self, DefaultGuard, Dispatch};
use tracing::subscriber::NoSubscriber;

/// What is logged on this thread goes nowhere until the value is dropped. None: it goes nowhere anyway, also because the
/// thread is in the middle of logging, whose state must stay as it is.
pub(crate) fn quiet() -> Option<DefaultGuard> {
    let logs = dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>());
    logs.then(|| dispatcher::set_default(&Dispatch::none()))
}

/// Makes what [`quiet`] needs on this thread, which allocates once.
pub(crate) fn prepare() {
    drop(dispatcher::set_default(&Dispatch::none()));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Counts lines, and faults in the middle of each.
    struct Faults(Arc<AtomicUsize>);

    impl Subscriber for Faults {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            let _quiet = quiet();
            tracing::warn!("in a fault");
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn nothing_is_logged_in_a_fault_also_in_the_middle_of_a_line() {
        let lines = Arc::new(AtomicUsize::new(0));
        dispatcher::with_default(&Dispatch::new(Faults(lines.clone())), || {
            tracing::warn!("a line");
            {
                let _quiet = quiet();
                tracing::warn!("in a fault");
            }
            tracing::warn!("another line");
        });
        assert_eq!(lines.load(Ordering::Relaxed), 2);
    }
}
