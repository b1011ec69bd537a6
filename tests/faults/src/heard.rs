//! What the library says by `tracing`, kept for a test to look at. One for the process, so for `isolated!` tests.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Everything said since it was made.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// Listens from here on.
    ///
    /// # Panics
    ///
    /// If somebody listens already.
    pub fn listen() -> Heard {
        let heard = Heard::default();
        tracing::subscriber::set_global_default(heard.clone()).expect("nobody else listens in this process");
        heard
    }

    /// How many lines have this in them.
    pub fn count(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, _field: &Field, value: &dyn Debug) {
        write!(self.0, "{value:?} ").expect("a string takes everything");
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{}: ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
