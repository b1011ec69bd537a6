//! Where the warnings of the libraries go: lines on standard error, as far as a filter lets them through.
//!
//! The programs on top and the C libraries [`install`] it; a program that has a subscriber of its own keeps that. A line is
//! made in one piece and written with one system call. There is no lock and no thread-local memory, so it works in a forked
//! child, in an exit handler and in any thread, and what cannot be written is dropped.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The variable that programs take the filter from.
pub const VARIABLE: &str = "VIADUCT_LOG";

/// Which messages are written: a level for all, and others for the modules below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    usual: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { usual: LevelFilter::WARN, modules: Vec::new() }
    }
}

impl FromStr for Filter {
    type Err = String;

    /// Words with commas between them: a level, or a module with its level.
    fn from_str(text: &str) -> Result<Filter, String> {
        let bad =
            || "off, error, warn, info, debug or trace, or MODULE=LEVEL, with commas between them".to_owned();
        // An empty word would be the level of errors.
        let level = |word: &str| word.trim().parse().ok().filter(|_| !word.trim().is_empty()).ok_or_else(bad);
        let mut filter = Filter::default();
        for word in text.split(',').map(str::trim) {
            match word.split_once('=') {
                None => filter.usual = level(word)?,
                Some((module, word)) => filter.modules.push((module.trim().to_owned(), level(word)?)),
            }
        }
        Ok(filter)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.usual)?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={level}"))
    }
}

impl Filter {
    /// The level for a module: that of the longest path it is below.
    fn level(&self, target: &str) -> LevelFilter {
        let below = |module: &str| match target.strip_prefix(module) {
            Some(rest) => rest.is_empty() || rest.starts_with("::"),
            None => false,
        };
        let found =
            self.modules.iter().filter(|(module, _)| below(module)).max_by_key(|(module, _)| module.len());
        found.map_or(self.usual, |(_, level)| *level)
    }

    fn most(&self) -> LevelFilter {
        self.modules.iter().map(|(_, level)| *level).fold(self.usual, LevelFilter::max)
    }
}

/// Writes messages to standard error from now on, each with the name of the program or library in front. False if the
/// process has a subscriber already, which stays.
pub fn install(name: &'static str, filter: Filter) -> bool {
    tracing::subscriber::set_global_default(Log { name, filter }).is_ok()
}

/// For a C library, which is set up by the environment alone: writes messages as the variable says, or warnings if
/// it says nothing that is understood, which is written too. Does nothing in a process that has a subscriber.
pub fn install_for_library(name: &'static str, variable: Option<String>) {
    let (filter, bad) = match variable.map(|text| text.parse::<Filter>().map_err(|allowed| (text, allowed))) {
        None => (Filter::default(), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(bad)) => (Filter::default(), Some(bad)),
    };
    if install(name, filter)
        && let Some((text, allowed)) = bad
    {
        tracing::warn!("{VARIABLE}={text} is not understood; {allowed}");
    }
}

struct Log {
    name: &'static str,
    filter: Filter,
}

impl Subscriber for Log {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= self.filter.level(about.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn event(&self, event: &Event<'_>) {
        let about = event.metadata();
        let mut line = MessageText(String::with_capacity(200));
        let _ = write!(line.0, "{}: {}: ", self.name, about.level().as_str().to_ascii_lowercase());
        event.record(&mut line);
        line.0.push('\n');
        // SAFETY: bytes of ours with their length. A closed descriptor fails the call, which is no concern of the caller.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, line.0.as_ptr().cast(), line.0.len()) };
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The text of a message: its words, then other fields as name=value.
struct MessageText(String);

impl Visit for MessageText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A peer's words may be among them: one message is one line.
        let mut text = String::new();
        let _ = match field.name() {
            "message" => write!(text, "{value:?}"),
            name => write!(text, " {name}={value:?}"),
        };
        self.0.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_a_level_for_all_and_others_for_modules() {
        let filter: Filter = "info, viaduct_providers=debug,viaduct_providers::shm=off".parse().unwrap();
        assert_eq!(filter.level("viaduct_via::nic"), LevelFilter::INFO);
        assert_eq!(filter.level("viaduct_providers::ofi"), LevelFilter::DEBUG);
        assert_eq!(filter.level("viaduct_providers_too"), LevelFilter::INFO);
        assert_eq!(filter.level("viaduct_providers::shm::pair"), LevelFilter::OFF);
        assert_eq!(filter.most(), LevelFilter::DEBUG);
        assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter);
        assert_eq!("off".parse::<Filter>().unwrap().most(), LevelFilter::OFF);
        assert_eq!(Filter::default().to_string(), "warn");
        for bad in ["", "loud", "a=", "warn,,info"] {
            assert!(bad.parse::<Filter>().is_err(), "{bad}");
        }
    }
}
