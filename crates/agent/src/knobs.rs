//! Settings of the agent.

use std::time::Duration;

use viaduct_os::knob::{self, BadKnob, Knob, Purpose};

/// Settings of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Time without work after which an agent leaves.
    pub idle: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config { idle: Duration::from_secs(1800) }
    }
}

impl Config {
    /// Defaults, overridden by variables; `variable` gives the value of one.
    ///
    /// # Errors
    /// For the first value that is not understood.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Config, BadKnob> {
        let mut config = Config::default();
        knob::read(KNOBS, &mut config, variable)?;
        Ok(config)
    }
}

/// Every setting.
pub const KNOBS: &[Knob<Config>] = &[Knob {
    name: "agent.idle",
    env: "VIADUCT_AGENT_IDLE",
    help: "time without work after which an agent leaves, in s unless it says",
    purpose: Purpose::Use,
    show: |c| knob::show_time(c.idle),
    set: |c, text| {
        c.idle = knob::time(text, "s")?;
        Ok(())
    },
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_meant_unless_it_says_otherwise() {
        let with = |text: &'static str| Config::from_variables(move |_| Some(text.to_owned()));
        assert_eq!(with("90").unwrap().idle, Duration::from_secs(90));
        assert_eq!(with("10m").unwrap().idle, Duration::from_secs(600));
        assert_eq!(with("later").unwrap_err().name, "agent.idle");
        assert_eq!((KNOBS[0].show)(&Config::default()), "30m");
    }
}
