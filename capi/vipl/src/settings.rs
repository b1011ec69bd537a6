//! What the environment says: which provider a device stands for, how strict tags are, which hosts there are.
//!
//! Read at each VipOpenNic, so that a program that changes its environment is heard. The knobs of the providers count, too
//! (`viaduct config` lists them).

use std::fs;

use viaduct_os::knob;
use viaduct_providers::config::Config;
use viaduct_providers::vipl;

use crate::names::Nodes;

const PROVIDER: &str = "VIADUCT_PROVIDER";
const NODES: &str = "VIADUCT_VIPL_NODES";
const HOSTS: &str = "VIADUCT_VIPL_HOSTS";
const NODE: &str = "VIADUCT_VIPL_NODE";

/// The settings of one NIC.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What was asked for; none leaves the choice to us.
    provider: Option<String>,
    devices: Vec<(String, String)>,
    /// Whether a NULL tag is refused, instead of going with every tag.
    pub(crate) strict: bool,
    /// Whether a receive has to end inside its region when it is posted, instead of when a message needs it.
    pub(crate) strict_receives: bool,
    /// Descriptors in a work queue.
    pub(crate) depth: usize,
    /// Host names that are not the name server's.
    pub(crate) nodes: Nodes,
    pub(crate) providers: Config,
}

impl Settings {
    /// From the variables of this process.
    pub(crate) fn from_environment() -> Result<Settings, String> {
        Settings::read(|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let mut own = vipl::Config::default();
        knob::read(vipl::KNOBS, &mut own, &variable).map_err(|bad| bad.to_string())?;
        let mut nodes = Nodes::default();
        nodes.add_list(&own.nodes).map_err(|e| format!("{NODES}: {e}"))?;
        if let Some(file) = &own.hosts {
            let bad = |why: String| format!("{HOSTS}={}: {why}", file.display());
            let text = fs::read_to_string(file).map_err(|e| bad(e.to_string()))?;
            nodes.add_file(&text).map_err(bad)?;
        }
        if let Some(node) = &own.node {
            nodes.set_own(node).map_err(|e| format!("{NODE}={node}: {e}"))?;
        }
        Ok(Settings {
            provider: variable(PROVIDER).filter(|name| !name.is_empty()),
            devices: own.devices,
            strict: own.strict_tags,
            strict_receives: own.strict_receives,
            depth: own.depth,
            nodes,
            providers: Config::from_variables(&variable).map_err(|e| e.to_string())?,
        })
    }

    /// The provider behind a device; none if there is no such device.
    pub(crate) fn provider_of<'a>(&'a self, device: &'a str) -> Option<&'a str> {
        // Programs ask for nodes of some folder.
        let base = device.rsplit(['/', '\\']).next().unwrap_or(device);
        if let Some((_, provider)) = self.devices.iter().find(|(name, _)| name == device || name == base) {
            return Some(provider);
        }
        // A device may be called as its provider.
        if viaduct_providers::find(base).is_some() {
            return Some(base);
        }
        let lower = base.to_ascii_lowercase();
        let kind = lower.trim_end_matches(|c: char| c.is_ascii_digit());
        match (kind, lower.as_str()) {
            (_, "via_lo") => Some(self.provider.as_deref().unwrap_or("shm")),
            ("via_eth" | "clanvi" | "vinic" | "nic" | "viaduct", _) => {
                Some(self.provider.as_deref().unwrap_or("auto"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &str = "VIADUCT_VIPL_DEVICES";
    const TAGS: &str = "VIADUCT_VIPL_TAGS";
    const DEPTH: &str = "VIADUCT_VIPL_QUEUE_DEPTH";
    const RECEIVES: &str = "VIADUCT_VIPL_RECEIVES";

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn devices_of_the_wild_are_known_in_any_folder() {
        let plain = settings(&[]).unwrap();
        for name in ["clanvi0", "/dev/clanvi0", "via_eth7", "VINIC", "VINIC0", "nic0", "/dev/viaduct", "auto"]
        {
            assert_eq!(plain.provider_of(name), Some("auto"), "{name}");
        }
        for name in ["via_lo", "/dev/via_lo", "/etc/via_lo", "shm"] {
            assert_eq!(plain.provider_of(name), Some("shm"), "{name}");
        }
        assert_eq!(plain.provider_of("ofi:tcp"), Some("ofi:tcp"));
        for name in ["", "eth0", "/dev/null", "via_los", "ofi:"] {
            assert_eq!(plain.provider_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_environment_chooses() {
        let chosen = [(PROVIDER, "ofi:tcp"), (DEVICES, "mine=loopback, clanvi1=shm")];
        let chosen = settings(&chosen).unwrap();
        assert_eq!(chosen.provider_of("/dev/clanvi0"), Some("ofi:tcp"));
        assert_eq!(chosen.provider_of("via_lo"), Some("ofi:tcp"));
        assert_eq!(chosen.provider_of("/dev/clanvi1"), Some("shm"));
        assert_eq!(chosen.provider_of("mine"), Some("loopback"));
        assert!(settings(&[(TAGS, "strict")]).unwrap().strict && !settings(&[(TAGS, "lax")]).unwrap().strict);
    }

    #[test]
    fn mistakes_are_told() {
        let mistakes = [
            (TAGS, "loose"),
            (RECEIVES, "loose"),
            (DEPTH, "0"),
            (DEPTH, "many"),
            (DEVICES, "clanvi0"),
            (NODES, "a=b"),
            (NODE, "nobody"),
            (HOSTS, "/no/such/file"),
            ("VIADUCT_SHM_DIRECT", "perhaps"),
        ];
        for (variable, value) in mistakes {
            let told = settings(&[(variable, value)]).unwrap_err();
            assert!(told.contains(variable), "{told}");
        }
    }
}
