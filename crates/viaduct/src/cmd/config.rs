//! `viaduct config`: every knob with its value, its default and where the value comes from.

use std::process::ExitCode;

use anyhow::Result;
use viaduct_providers::config::{Config, KNOBS};

use crate::cli::FormatArgs;
use crate::cli::launch::SILENCE;
use crate::cmd::bench::USUAL;
use crate::knobs;
use crate::output::table;

pub(crate) fn run(args: &FormatArgs) -> Result<ExitCode> {
    let (config, defaults) = (knobs::from_environment()?, Config::default());
    let mut rows = vec![provider_row(), silence_row()];
    for knob in KNOBS {
        let origin = origin(knob.env);
        let (value, default) = ((knob.show)(&config), (knob.show)(&defaults));
        rows.push([knob.name.into(), value, default, origin.into(), knob.env.into(), knob.help.into()]);
    }
    let (streams, defaults) =
        (viaduct_sovia::Config::from_variables(variable)?, viaduct_sovia::Config::default());
    for knob in viaduct_sovia::knobs::KNOBS {
        let origin = origin(knob.env);
        let (value, default) = ((knob.show)(&streams), (knob.show)(&defaults));
        rows.push([knob.name.into(), value, default, origin.into(), knob.env.into(), knob.help.into()]);
    }
    table::print(args.format, ["knob", "value", "default", "origin", "variable", "what it does"], rows)?;
    Ok(ExitCode::SUCCESS)
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

fn origin(name: &str) -> &'static str {
    if std::env::var_os(name).is_some() { "environment" } else { "default" }
}

/// The one of `viaduct launch`.
fn silence_row() -> [String; 6] {
    let (name, usual) = ("VIADUCT_SILENCE", SILENCE.to_string());
    let value = variable(name).unwrap_or_else(|| usual.clone());
    let help =
        "seconds of silence after which launcher and hosts take each other for lost (launch --silence)";
    ["launch.silence".into(), value, usual, origin(name).into(), name.into(), help.into()]
}

/// The one knob that belongs to the tools and not to a provider.
fn provider_row() -> [String; 6] {
    let set = std::env::var("VIADUCT_PROVIDER").ok();
    let origin = if set.is_some() { "environment" } else { "default" };
    let help = "provider that tools use unless told otherwise";
    [
        "provider".into(),
        set.unwrap_or_else(|| USUAL.into()),
        USUAL.into(),
        origin.into(),
        "VIADUCT_PROVIDER".into(),
        help.into(),
    ]
}
