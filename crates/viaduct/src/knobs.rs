//! Settings from the environment, by the tables of the crates below.

use anyhow::Result;
use viaduct_bench::Error;
use viaduct_os::knob::BadKnob;
use viaduct_providers::config::Config;

/// A variable of this process.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// Settings of the providers: defaults, overridden by the environment.
pub(crate) fn from_environment() -> Result<Config> {
    Ok(Config::from_variables(variable).map_err(refused)?)
}

/// Settings of streams: defaults, overridden by the environment.
pub(crate) fn streams() -> Result<viaduct_sovia::Config> {
    let spin = from_environment()?.wait.spin;
    Ok(viaduct_sovia::Config { spin, ..viaduct_sovia::Config::from_variables(variable)? })
}

/// Settings of MPI: defaults, overridden by the environment.
pub(crate) fn mpi() -> Result<viaduct_mpi::world::Settings> {
    Ok(viaduct_mpi::world::Settings::from_variables(variable).map_err(refused)?)
}

/// Settings of launching: defaults, overridden by the environment.
pub(crate) fn launching() -> Result<viaduct_catapult::knobs::Config> {
    Ok(viaduct_catapult::knobs::Config::from_variables(variable).map_err(refused)?)
}

/// Settings of the agent: defaults, overridden by the environment.
pub(crate) fn agent() -> Result<viaduct_agent::knobs::Config> {
    Ok(viaduct_agent::knobs::Config::from_variables(variable).map_err(refused)?)
}

/// Settings of the C library, which reads them itself; for lists of settings.
pub(crate) fn vipl() -> Result<viaduct_providers::vipl::Config> {
    let mut config = viaduct_providers::vipl::Config::default();
    viaduct_os::knob::read(viaduct_providers::vipl::KNOBS, &mut config, variable).map_err(refused)?;
    Ok(config)
}

/// A value that is not understood, as the command line says it.
pub(crate) fn refused(bad: BadKnob) -> Error {
    Error::usage(
        format!("{}={} is not understood", bad.env, bad.given),
        format!("{}: {}", bad.name, bad.allowed),
    )
}
