//! Settings from the environment: the one place of this program that reads it.

use anyhow::Result;
use viaduct_bench::Error;
use viaduct_providers::config::Config;

/// Defaults, overridden by the environment.
pub(crate) fn from_environment() -> Result<Config> {
    let variable = |name: &str| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    let config = Config::from_variables(variable).map_err(|bad| {
        Error::usage(
            format!("{}={} is not understood", bad.env, bad.given),
            format!("{}: {}", bad.name, bad.allowed),
        )
    })?;
    Ok(config)
}
