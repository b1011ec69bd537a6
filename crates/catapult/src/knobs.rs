//! Settings of the launcher and of what agents do for it, in one table.

use std::path::PathBuf;
use std::time::Duration;

use viaduct_os::knob::{self, BadKnob, Knob, Purpose};

/// Settings of launching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The command that reaches other hosts, with its options.
    pub ssh: Vec<String>,
    /// Folder of programs and files that were brought to this host; `None` is the user's cache.
    pub cache: Option<PathBuf>,
    /// Silence after which launcher and hosts take each other for lost.
    pub silence: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config { ssh: vec!["ssh".to_owned()], cache: None, silence: Duration::from_millis(2500) }
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

    /// The cache of this user on this host; `variable` gives the value of a variable.
    pub fn cache(&self, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
        if let Some(folder) = &self.cache {
            return folder.clone();
        }
        let home = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache");
        variable("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("viaduct")
    }
}

/// Every setting.
pub const KNOBS: &[Knob<Config>] = &[
    Knob {
        name: "launch.ssh",
        env: "VIADUCT_SSH",
        help: "command that reaches other hosts, with its options",
        purpose: Purpose::Use,
        show: |c| c.ssh.join(" "),
        set: |c, text| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                return Err("a command".into());
            }
            c.ssh = words;
            Ok(())
        },
    },
    Knob {
        name: "launch.cache",
        env: "VIADUCT_CACHE",
        help: "folder of programs that were staged on a host",
        purpose: Purpose::Use,
        show: |c| c.cache.as_ref().map_or("automatic".into(), |path| path.display().to_string()),
        set: |c, text| {
            c.cache = Some(knob::filled(text, "a folder")?.into());
            Ok(())
        },
    },
    Knob {
        name: "launch.silence",
        env: "VIADUCT_SILENCE",
        help: "silence after which launcher and hosts take each other for lost, in s unless it says (launch --silence)",
        purpose: Purpose::Use,
        show: |c| knob::show_time(c.silence),
        set: |c, text| {
            c.silence = knob::time(text, "s")?;
            Ok(())
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with(list: &[(&str, &str)]) -> Result<Config, BadKnob> {
        let find = |name: &str| list.iter().find(|(known, _)| *known == name);
        Config::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn variables_override_defaults_and_shown_values_are_understood() {
        assert_eq!(with(&[]).unwrap(), Config::default());
        let other =
            with(&[("VIADUCT_SSH", "ssh -p 22"), ("VIADUCT_SILENCE", "0.75"), ("VIADUCT_CACHE", "/c")]);
        let other = other.unwrap();
        assert_eq!((other.ssh.len(), other.silence), (3, Duration::from_millis(750)));
        let mut again = Config::default();
        for knob in KNOBS {
            knob.take(&mut again, &(knob.show)(&other)).unwrap();
        }
        assert_eq!(again, other);
        for bad in [("VIADUCT_SSH", " "), ("VIADUCT_SILENCE", "soon"), ("VIADUCT_CACHE", "")] {
            assert_eq!(with(&[bad]).unwrap_err().env, bad.0);
        }
    }

    #[test]
    fn the_cache_is_where_the_user_says_or_where_caches_are() {
        let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(Config::default().cache(home), PathBuf::from("/h/.cache/viaduct"));
        let xdg = |name: &str| (name == "XDG_CACHE_HOME").then(|| "/x".to_owned());
        assert_eq!(Config::default().cache(xdg), PathBuf::from("/x/viaduct"));
        let own = Config { cache: Some("/c".into()), ..Config::default() };
        assert_eq!(own.cache(home), PathBuf::from("/c"));
    }
}
