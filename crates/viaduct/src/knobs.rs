//! Settings from the environment: the one place of this program that reads it.

use anyhow::Result;
use viaduct_bench::Error;
use viaduct_providers::config::{Config, KNOBS};

/// Defaults, overridden by the environment.
pub(crate) fn from_environment() -> Result<Config> {
    let mut config = Config::default();
    for knob in KNOBS {
        let Some(text) = std::env::var_os(knob.env) else { continue };
        let text = text.to_string_lossy();
        (knob.set)(&mut config, &text).map_err(|allowed| {
            // What is never shown is not shown when it is wrong either: it may be the right one with a slip.
            let given = if knob.is_secret() { "…".into() } else { text };
            Error::usage(
                format!("{}={given} is not understood", knob.env),
                format!("{}: {allowed}", knob.name),
            )
        })?;
    }
    Ok(config)
}
