//! The settings as knobs, each with a name, a variable and a line of help: one table for `viaduct config`, the C library and
//! documents.
//!
//! Nothing here reads the environment; the programs on top do, by [`Knob::env`].

use std::time::Duration;

use crate::config::{Config, Handling, Path, Waiting};
use crate::error::Error;

/// One setting that can be changed from outside.
#[derive(Debug)]
pub struct Knob {
    /// Its name, as `viaduct config` lists it.
    pub name: &'static str,
    /// The variable that sets it.
    pub env: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Its value as text.
    pub show: fn(&Config) -> String,
    /// Sets it from text; what it may be otherwise.
    pub set: fn(&mut Config, &str) -> Result<(), &'static str>,
}

/// All of them.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "sovia.mtu",
        env: "VIADUCT_SOVIA_MTU",
        help: "most bytes in one packet of a stream",
        show: |c| c.mtu.to_string(),
        set: |c, text| number(text).map(|n| c.mtu = n),
    },
    Knob {
        name: "sovia.window",
        env: "VIADUCT_SOVIA_WINDOW",
        help: "packets under way without an acknowledgement (w)",
        show: |c| c.window.to_string(),
        set: |c, text| number(text).map(|n| c.window = u32::try_from(n).unwrap_or(u32::MAX)),
    },
    Knob {
        name: "sovia.threshold",
        env: "VIADUCT_SOVIA_THRESHOLD",
        help: "acknowledgements held back (t), below the window",
        show: |c| c.threshold.to_string(),
        set: |c, text| number(text).map(|n| c.threshold = u32::try_from(n).unwrap_or(u32::MAX)),
    },
    Knob {
        name: "sovia.copy-max",
        env: "VIADUCT_SOVIA_COPY_MAX",
        help: "longest request, in bytes, that is combined with others",
        show: |c| c.copy_max.to_string(),
        set: |c, text| number(text).map(|n| c.copy_max = n),
    },
    Knob {
        name: "sovia.combining",
        env: "VIADUCT_SOVIA_COMBINING",
        help: "small requests wait for more, unless a stream says otherwise: on or off",
        show: |c| if c.combining { "on" } else { "off" }.into(),
        set: |c, text| choose(text, &[("on", true), ("off", false)], "on or off").map(|on| c.combining = on),
    },
    Knob {
        name: "sovia.timer-ms",
        env: "VIADUCT_SOVIA_TIMER_MS",
        help: "longest that a combined packet waits, in milliseconds",
        show: |c| c.timer.as_millis().to_string(),
        set: |c, text| number(text).map(|n| c.timer = Duration::from_millis(n as u64)),
    },
    Knob {
        name: "sovia.path",
        env: "VIADUCT_SOVIA_PATH",
        help: "how bytes travel: auto, messages, or ring (written into memory of the receiver)",
        show: |c| match c.path {
            Path::Auto => "auto".into(),
            Path::Messages => "messages".into(),
            Path::Ring => "ring".into(),
        },
        set: |c, text| {
            let all = [("auto", Path::Auto), ("messages", Path::Messages), ("ring", Path::Ring)];
            choose(text, &all, "auto, messages or ring").map(|path| c.path = path)
        },
    },
    Knob {
        name: "sovia.ring",
        env: "VIADUCT_SOVIA_RING",
        help: "bytes of a receiver's ring",
        show: |c| c.ring.to_string(),
        set: |c, text| number(text).map(|n| c.ring = n),
    },
    Knob {
        name: "sovia.handling",
        env: "VIADUCT_SOVIA_HANDLING",
        help: "who takes packets in: single (the threads of the application) or handler (a thread of its own)",
        show: |c| match c.handling {
            Handling::Single => "single".into(),
            Handling::Handler => "handler".into(),
        },
        set: |c, text| {
            let all = [("single", Handling::Single), ("handler", Handling::Handler)];
            choose(text, &all, "single or handler").map(|handling| c.handling = handling)
        },
    },
    Knob {
        name: "sovia.waiting",
        env: "VIADUCT_SOVIA_WAITING",
        help: "how calls wait: blocking (look while that pays, then sleep) or polling (takes a whole CPU)",
        show: |c| match c.waiting {
            Waiting::Blocking => "blocking".into(),
            Waiting::Polling => "polling".into(),
        },
        set: |c, text| {
            let all = [("blocking", Waiting::Blocking), ("polling", Waiting::Polling)];
            choose(text, &all, "blocking or polling").map(|waiting| c.waiting = waiting)
        },
    },
];

impl Config {
    /// Defaults, overridden by variables; `variable` gives the value of one.
    ///
    /// # Errors
    /// For the first value that is not understood, and if they contradict themselves.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let mut config = Config::default();
        for knob in KNOBS {
            let Some(text) = variable(knob.env) else { continue };
            (knob.set)(&mut config, &text).map_err(|hint| Error::Config {
                cause: format!("{}={text} is not understood", knob.env),
                hint,
            })?;
        }
        config.check()?;
        Ok(config)
    }
}

fn number(text: &str) -> Result<usize, &'static str> {
    text.trim().parse().map_err(|_| "a number")
}

fn choose<T: Copy>(text: &str, all: &[(&str, T)], allowed: &'static str) -> Result<T, &'static str> {
    all.iter().find(|(name, _)| *name == text.trim()).map(|(_, value)| *value).ok_or(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set() {
        for config in [Config::default(), Config::step(crate::Step::Handler)] {
            let mut copy = Config { waiting: Waiting::Polling, ..Config::default() };
            for knob in KNOBS {
                (knob.set)(&mut copy, &(knob.show)(&config)).unwrap();
                assert!(knob.env.starts_with("VIADUCT_SOVIA_") && knob.name.starts_with("sovia."));
            }
            assert_eq!(copy, config);
        }
    }

    #[test]
    fn bad_values_name_their_variable() {
        let only = |name: &'static str, value: &'static str| {
            Config::from_variables(move |env| (env == name).then(|| value.to_owned()))
        };
        assert_eq!(only("VIADUCT_SOVIA_WINDOW", "64").unwrap().window, 64);
        for (name, value) in [
            ("VIADUCT_SOVIA_WINDOW", "wide"),
            ("VIADUCT_SOVIA_COMBINING", "sometimes"),
            ("VIADUCT_SOVIA_HANDLING", ""),
        ] {
            let said = only(name, value).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains(';'), "{said}");
        }
        // Understood, but not together with the others.
        assert!(only("VIADUCT_SOVIA_WINDOW", "8").unwrap_err().to_string().contains("threshold"));
    }
}
