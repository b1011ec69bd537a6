//! What the library says by `tracing`, kept for a test to look at. One for the process, so for `isolated!` tests.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Everything said since it was made.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// Listens from here on.
    ///
    /// # Panics
    ///
    /// If another subscriber listens already.
    pub fn listen() -> Heard {
        let heard = Heard::default();
        tracing::subscriber::set_global_default(heard.clone()).expect("no other subscriber in this process");
        heard
    }

    /// How many lines have this in them.
    pub fn count(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // As it is printed: the message, then the fields by name.
        if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}"));
        } else {
            write!(self.0, " {}={value:?}", field.name()).expect("a string takes everything");
        }
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(format!("{}: {}", event.metadata().level(), line.0));
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
