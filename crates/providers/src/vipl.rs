//! Settings of the C library VIPL, in one table. They are here, and not with the library, because the program that lists all
//! settings stands beside the library and may not use it.

use std::path::PathBuf;

use viaduct_os::knob::{self, Knob, Purpose, choose, chosen, filled};

/// Settings of the C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Providers of devices by name.
    pub devices: Vec<(String, String)>,
    /// Whether a NULL tag is refused, instead of going with every tag.
    pub strict_tags: bool,
    /// Whether a receive has to end inside its region when it is posted, instead of when a message needs it.
    pub strict_receives: bool,
    /// Descriptors in a work queue.
    pub depth: usize,
    /// Hosts of the name service: `a, b, far=10.0.0.7`.
    pub nodes: String,
    /// File with such hosts.
    pub hosts: Option<PathBuf>,
    /// Which of them this host is.
    pub node: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            devices: Vec::new(),
            strict_tags: false,
            strict_receives: false,
            depth: 1024,
            nodes: String::new(),
            hosts: None,
            node: None,
        }
    }
}

const STRICT: &[(&str, bool)] = &[("lax", false), ("strict", true)];

/// Every setting.
pub const KNOBS: &[Knob<Config>] = &[
    Knob {
        name: "vipl.devices",
        env: "VIADUCT_VIPL_DEVICES",
        help: "providers of devices of the C library: name=provider, ...",
        purpose: Purpose::Use,
        show: |c| {
            let pairs: Vec<String> =
                c.devices.iter().map(|(name, provider)| format!("{name}={provider}")).collect();
            pairs.join(",")
        },
        set: |c, text| {
            let entries = text.split([',', ' ']).filter(|entry| !entry.is_empty());
            let pair = |entry: &str| entry.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
            c.devices = entries.map(pair).collect::<Option<_>>().ok_or("name=provider, ...")?;
            Ok(())
        },
    },
    Knob {
        name: "vipl.tags",
        env: "VIADUCT_VIPL_TAGS",
        help: "lax: a NULL tag goes with every tag; strict: it is refused",
        purpose: Purpose::Use,
        show: |c| chosen(&c.strict_tags, STRICT),
        set: |c, text| {
            c.strict_tags = choose(text, STRICT)?;
            Ok(())
        },
    },
    Knob {
        name: "vipl.queue-depth",
        env: "VIADUCT_VIPL_QUEUE_DEPTH",
        help: "descriptors in a work queue of the C library",
        purpose: Purpose::Use,
        show: |c| c.depth.to_string(),
        set: |c, text| {
            c.depth = knob::number_in(text, 1..=65_536)?;
            Ok(())
        },
    },
    Knob {
        name: "vipl.receives",
        env: "VIADUCT_VIPL_RECEIVES",
        help: "lax: a receive may end beyond its region; strict: it is refused when it is posted",
        purpose: Purpose::Use,
        show: |c| chosen(&c.strict_receives, STRICT),
        set: |c, text| {
            c.strict_receives = choose(text, STRICT)?;
            Ok(())
        },
    },
    Knob {
        name: "vipl.nodes",
        env: "VIADUCT_VIPL_NODES",
        help: "addresses of hosts for the name service of the C library",
        purpose: Purpose::Use,
        show: |c| c.nodes.clone(),
        set: |c, text| {
            c.nodes = text.to_owned();
            Ok(())
        },
    },
    Knob {
        name: "vipl.hosts",
        env: "VIADUCT_VIPL_HOSTS",
        help: "file with such addresses",
        purpose: Purpose::Use,
        show: |c| c.hosts.as_ref().map_or_else(String::new, |path| path.display().to_string()),
        set: |c, text| {
            c.hosts = Some(filled(text, "a file")?.into());
            Ok(())
        },
    },
    Knob {
        name: "vipl.node",
        env: "VIADUCT_VIPL_NODE",
        help: "which of them this host is, for the C library",
        purpose: Purpose::Use,
        show: |c| c.node.clone().unwrap_or_else(|| "automatic".into()),
        set: |c, text| {
            c.node = Some(filled(text, "the name of a host of the list")?);
            Ok(())
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_shown_are_understood() {
        let other = Config {
            devices: vec![("nic0".into(), "shm".into()), ("a".into(), "ofi:tcp".into())],
            strict_tags: true,
            strict_receives: true,
            depth: 16,
            nodes: "a, b=10.0.0.7".into(),
            hosts: Some("/h".into()),
            node: Some("a".into()),
        };
        let mut again = Config::default();
        for knob in KNOBS {
            knob.take(&mut again, &(knob.show)(&other)).unwrap();
        }
        assert_eq!(again, other);
    }
}
