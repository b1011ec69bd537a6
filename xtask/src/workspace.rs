//! What Cargo knows of the workspace: packages, where they are, what they use, their test targets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The workspace, as `cargo metadata` describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    /// The registries that it may go to: none of them if it is not published, any if nothing is said.
    #[serde(default)]
    pub(crate) publish: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    /// Only packages of this workspace have one.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// `[package.metadata]` of a manifest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) xtask: Option<Wishes>,
}

/// `[package.metadata.xtask]`: what a package wants of us.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wishes {
    /// The arguments of `cargo miri test` for this package, such as `["--lib"]`.
    #[serde(default)]
    pub(crate) miri: Option<Vec<String>>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit());
        let output = command.output().context("cargo cannot be started")?;
        ensure!(output.status.success(), "cargo metadata: {}", output.status);
        serde_json::from_slice(&output.stdout).context("cargo metadata gave something else than expected")
    }

    /// Test targets whose name starts with `prefix`, with their packages.
    pub(crate) fn test_targets(&self, prefix: &str) -> Vec<(&Package, &Target)> {
        let all = self
            .packages
            .iter()
            .flat_map(|package| package.targets.iter().map(move |target| (package, target)));
        all.filter(|(_, target)| {
            target.name.starts_with(prefix) && target.kind.iter().any(|kind| kind == "test")
        })
        .collect()
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }

    /// Whether it is published, for programs to depend on.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    pub(crate) fn miri(&self) -> Option<&[String]> {
        self.metadata.as_ref()?.xtask.as_ref()?.miri.as_deref()
    }
}

/// The Cargo that started us, so that everything is built by one toolchain.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Whether a command ends well; what it prints is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
        "workspace_root": "/w", "target_directory": "/w/target", "version": 1,
        "packages": [
            {"name": "viaduct-os", "version": "0.1.0", "manifest_path": "/w/crates/os/Cargo.toml", "dependencies": [],
             "targets": [{"name": "viaduct_os", "kind": ["lib"]}, {"name": "loom_ring", "kind": ["test"]}],
             "metadata": {"xtask": {"miri": ["--lib"]}}},
            {"name": "viaduct-via", "version": "0.1.0", "manifest_path": "/w/crates/via/Cargo.toml",
             "dependencies": [{"name": "viaduct-os", "kind": null, "path": "/w/crates/os"},
                              {"name": "libc", "kind": "dev", "path": null}],
             "targets": [{"name": "loom_not_a_test", "kind": ["example"]}], "metadata": null, "publish": []}
        ]
    }"#;

    pub(crate) fn sample() -> Workspace {
        serde_json::from_str(SAMPLE).unwrap()
    }

    #[test]
    fn test_targets_are_found_by_name_and_kind() {
        let workspace = sample();
        let found: Vec<_> =
            workspace.test_targets("loom").iter().map(|(_, target)| target.name.clone()).collect();
        assert_eq!(found, ["loom_ring"]);
        assert!(workspace.test_targets("none").is_empty());
    }

    #[test]
    fn wishes_are_read() {
        let workspace = sample();
        assert_eq!(workspace.packages[0].miri(), Some(&["--lib".to_owned()][..]));
        assert_eq!(workspace.packages[1].miri(), None);
        assert_eq!(workspace.packages[1].folder(), Path::new("/w/crates/via"));
    }
}
