//! The settings as knobs, each with a name, a variable and a line of help: one table for `viaduct config`, the C library and
//! documents.
//!
//! Nothing here reads the environment; the programs on top do.

use viaduct_os::knob::{self, Knob, Purpose, bytes, choose, chosen, number, show_time, time};

use crate::config::{Config, Handling, Path, Waiting};
use crate::error::Error;

/// All of them.
pub const KNOBS: &[Knob<Config>] = &[
    Knob {
        name: "sovia.mtu",
        env: "VIADUCT_SOVIA_MTU",
        help: "most bytes in one packet of a stream",
        purpose: Purpose::Use,
        show: |c| c.mtu.to_string(),
        set: |c, text| size(text).map(|n| c.mtu = n),
    },
    Knob {
        name: "sovia.window",
        env: "VIADUCT_SOVIA_WINDOW",
        help: "packets under way without an acknowledgement (w)",
        purpose: Purpose::Use,
        show: |c| c.window.to_string(),
        set: |c, text| number(text).map(|n| c.window = u32::try_from(n).unwrap_or(u32::MAX)),
    },
    Knob {
        name: "sovia.threshold",
        env: "VIADUCT_SOVIA_THRESHOLD",
        help: "acknowledgements held back (t), below the window",
        purpose: Purpose::Use,
        show: |c| c.threshold.to_string(),
        set: |c, text| number(text).map(|n| c.threshold = u32::try_from(n).unwrap_or(u32::MAX)),
    },
    Knob {
        name: "sovia.copy-max",
        env: "VIADUCT_SOVIA_COPY_MAX",
        help: "longest request, in bytes, that is combined with others",
        purpose: Purpose::Use,
        show: |c| c.copy_max.to_string(),
        set: |c, text| size(text).map(|n| c.copy_max = n),
    },
    Knob {
        name: "sovia.combining",
        env: "VIADUCT_SOVIA_COMBINING",
        help: "small requests wait for more, unless a stream says otherwise: on or off",
        purpose: Purpose::Use,
        show: |c| knob::show_switch(c.combining),
        set: |c, text| knob::switch(text).map(|on| c.combining = on),
    },
    Knob {
        name: "sovia.timer-ms",
        env: "VIADUCT_SOVIA_TIMER_MS",
        help: "longest that a combined packet waits, in milliseconds",
        purpose: Purpose::Use,
        show: |c| show_time(c.timer),
        set: |c, text| time(text, "ms").map(|t| c.timer = t),
    },
    Knob {
        name: "sovia.path",
        env: "VIADUCT_SOVIA_PATH",
        help: "how bytes travel: auto, messages, or ring (written into memory of the receiver)",
        purpose: Purpose::Figures,
        show: |c| chosen(&c.path, PATHS),
        set: |c, text| choose(text, PATHS).map(|chosen| c.path = chosen),
    },
    Knob {
        name: "sovia.ring",
        env: "VIADUCT_SOVIA_RING",
        help: "bytes of a receiver's ring",
        purpose: Purpose::Use,
        show: |c| c.ring.to_string(),
        set: |c, text| size(text).map(|n| c.ring = n),
    },
    Knob {
        name: "sovia.handling",
        env: "VIADUCT_SOVIA_HANDLING",
        help: "which thread takes packets in: single (those of the application) or handler (a thread of its own)",
        purpose: Purpose::Figures,
        show: |c| chosen(&c.handling, HANDLINGS),
        set: |c, text| choose(text, HANDLINGS).map(|chosen| c.handling = chosen),
    },
    Knob {
        name: "sovia.waiting",
        env: "VIADUCT_SOVIA_WAITING",
        help: "how calls wait: blocking (look while that pays, then sleep) or polling (takes a whole CPU)",
        purpose: Purpose::Figures,
        show: |c| chosen(&c.waiting, WAITINGS),
        set: |c, text| choose(text, WAITINGS).map(|chosen| c.waiting = chosen),
    },
    Knob {
        name: "sovia.ring-memory",
        env: "VIADUCT_SOVIA_RING_MEMORY",
        help: "bytes of rings that are made at connection; further ones are made when they are needed, and shorter",
        purpose: Purpose::Use,
        show: |c| c.ring_memory.to_string(),
        set: |c, text| size(text).map(|n| c.ring_memory = n),
    },
    Knob {
        name: "sovia.close-limit",
        env: "VIADUCT_SOVIA_CLOSE_LIMIT",
        help: "how long a closed connection may take to end before it is cut off",
        purpose: Purpose::Use,
        show: |c| show_time(c.close_limit),
        set: |c, text| time(text, "ms").map(|t| c.close_limit = t),
    },
    Knob {
        name: "sovia.exit-limit",
        env: "VIADUCT_SOVIA_EXIT_LIMIT",
        help: "how long the end of a program waits for connections that are closing",
        purpose: Purpose::Use,
        show: |c| show_time(c.exit_limit),
        set: |c, text| time(text, "ms").map(|t| c.exit_limit = t),
    },
];

const PATHS: &[(&str, Path)] = &[("auto", Path::Auto), ("messages", Path::Messages), ("ring", Path::Ring)];
const HANDLINGS: &[(&str, Handling)] = &[("single", Handling::Single), ("handler", Handling::Handler)];
const WAITINGS: &[(&str, Waiting)] = &[("blocking", Waiting::Blocking), ("polling", Waiting::Polling)];

impl Config {
    /// Defaults, overridden by variables; `variable` gives the value of one.
    ///
    /// # Errors
    /// For the first value that is not understood, and if they contradict themselves.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let mut config = Config::default();
        knob::read(KNOBS, &mut config, variable).map_err(|bad| Error::Config {
            cause: format!("{}={} is not understood", bad.env, bad.given),
            hint: format!("{}: {}", bad.name, bad.allowed),
        })?;
        config.check()?;
        Ok(config)
    }
}

fn size(text: &str) -> Result<usize, String> {
    bytes(text).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_shown_can_be_set() {
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
        assert_eq!(only("VIADUCT_SOVIA_MTU", "16K").unwrap().mtu, 16 << 10);
        assert_eq!(only("VIADUCT_SOVIA_TIMER_MS", "20").unwrap().timer.as_millis(), 20);
        assert_eq!(only("VIADUCT_SOVIA_TIMER_MS", "250us").unwrap().timer.as_micros(), 250);
        for (name, value) in [
            ("VIADUCT_SOVIA_WINDOW", "wide"),
            ("VIADUCT_SOVIA_COMBINING", "sometimes"),
            ("VIADUCT_SOVIA_HANDLING", ""),
            ("VIADUCT_SOVIA_MTU", "32Q"),
            ("VIADUCT_SOVIA_TIMER_MS", "soon"),
        ] {
            let said = only(name, value).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains(';'), "{said}");
        }
        // Understood, but not together with the others.
        assert!(only("VIADUCT_SOVIA_WINDOW", "8").unwrap_err().to_string().contains("threshold"));
    }
}
