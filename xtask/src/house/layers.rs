//! Which package may use which. Dependencies point downward, siblings never use each other, tests come from outside.
//!
//! A new package is added to [`LAYERS`]; one that is not there fails the check.

use std::path::Path;

use super::Finding;
use crate::workspace::{Dependency, Package, Workspace};

/// The floors of the house, lowest first. `/*` stands for every package in a folder.
const LAYERS: &[&[&str]] = &[
    &["crates/os"],
    &["crates/via", "crates/job", "crates/results"],
    &["crates/providers"],
    &["crates/sovia", "crates/mpi", "crates/cashmere", "crates/river"],
    &["crates/agent", "crates/net"],
    &["crates/sort", "crates/catapult", "crates/intercept", "apps/*"],
    &["crates/bench"],
    &["crates/viaduct", "capi/*", "examples"],
];

/// Only the top picks a provider: these take an opened Nic, and use providers in tests alone.
const TAKE_A_NIC: &[&str] = &["crates/sovia", "crates/mpi", "crates/cashmere", "crates/river"];

const PROVIDERS: &str = "crates/providers";
const KIT: &str = "tests/kit";
const CONFORMANCE: &str = "tests/conformance";
const XTASK: &str = "xtask";

const MEND: &str = "move the code down, take it as an argument, or lift the user up";

/// Where a package stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Floor(usize),
    Kit,
    Conformance,
    /// Tests of the whole, which may use everything.
    Tests,
    Xtask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// In the product: normal and build dependencies.
    Product,
    /// In tests only.
    Tests,
}

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.packages.iter().flat_map(|package| check_package(package, &workspace.root)).collect()
}

fn check_package(package: &Package, root: &Path) -> Vec<Finding> {
    let manifest = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path);
    let folder = relative(package.folder(), root);
    if place(&folder).is_none() {
        let what = format!("package {} ({folder}) has no place in the house", package.name);
        return vec![Finding::error(manifest, 1, what, "add it to LAYERS in xtask/src/house/layers.rs")];
    }
    let ours = package.dependencies.iter().filter_map(|used| Some((used, used.path.as_deref()?)));
    let bad = ours.filter_map(|(used, path)| {
        let reason = refusal(&folder, &relative(path, root), use_of(used))?;
        let what = format!("{} must not use {}: {reason}", package.name, used.name);
        Some(Finding::error(manifest, line_of(&package.manifest_path, &used.name), what, MEND))
    });
    bad.collect()
}

/// Why `from` may not use `to`; `None` if it may.
fn refusal(from: &str, to: &str, kind: Use) -> Option<&'static str> {
    let (Some(from_place), Some(to_place)) = (place(from), place(to)) else {
        return Some("it has no place in the house");
    };
    match (from_place, to_place, kind) {
        (_, Place::Xtask, _) => Some("nothing uses the chores"),
        (Place::Xtask, Place::Kit, _) => None,
        (Place::Xtask, _, _) => Some("the chores stay apart from the product, so that they build at once"),
        (Place::Kit, _, _) => Some("the kit uses no package of the house, so that each can use the kit"),
        (Place::Tests, _, _) => None,
        (_, Place::Tests, _) => Some("tests of the whole are used by no package"),
        (Place::Conformance, Place::Kit, _) => None,
        (Place::Conformance, _, _) if matches!(to, "crates/os" | "crates/via" | "crates/job" | PROVIDERS) => {
            None
        }
        (Place::Conformance, _, _) => Some("conformance suites know providers and what is below them"),
        (Place::Floor(_), Place::Kit | Place::Conformance, Use::Tests) => None,
        (Place::Floor(_), Place::Kit | Place::Conformance, Use::Product) => {
            Some("test code is for dev-dependencies")
        }
        (Place::Floor(_), Place::Floor(_), Use::Tests) if to == PROVIDERS => None,
        (Place::Floor(_), Place::Floor(_), Use::Product) if to == PROVIDERS && TAKE_A_NIC.contains(&from) => {
            Some("only the top picks a provider; this layer takes an opened Nic")
        }
        (Place::Floor(above), Place::Floor(below), _) if above > below => None,
        (Place::Floor(one), Place::Floor(other), _) if one == other => Some("siblings do not use each other"),
        (Place::Floor(_), Place::Floor(_), _) => Some("dependencies point downward"),
    }
}

fn place(folder: &str) -> Option<Place> {
    match folder {
        KIT => return Some(Place::Kit),
        CONFORMANCE => return Some(Place::Conformance),
        XTASK => return Some(Place::Xtask),
        _ if folder.starts_with("tests/") => return Some(Place::Tests),
        _ => {}
    }
    LAYERS.iter().position(|floor| floor.iter().any(|entry| covers(entry, folder))).map(Place::Floor)
}

fn covers(entry: &str, folder: &str) -> bool {
    match entry.strip_suffix("/*") {
        Some(parent) => folder.rsplit_once('/').is_some_and(|(start, _)| start == parent),
        None => entry == folder,
    }
}

fn use_of(dependency: &Dependency) -> Use {
    if dependency.kind.as_deref() == Some("dev") { Use::Tests } else { Use::Product }
}

fn relative(folder: &Path, root: &Path) -> String {
    folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned()
}

/// The line that names the dependency, as near as one can tell.
fn line_of(manifest: &Path, name: &str) -> usize {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    text.lines().position(|line| line.starts_with(name)).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::sample;

    fn may(from: &str, to: &str) -> bool {
        refusal(from, to, Use::Product).is_none()
    }

    fn may_in_tests(from: &str, to: &str) -> bool {
        refusal(from, to, Use::Tests).is_none()
    }

    #[test]
    fn arrows_point_downward() {
        assert!(may("crates/via", "crates/os") && may("crates/viaduct", "crates/bench"));
        assert!(may("capi/mpi", "crates/mpi") && may("crates/viaduct", "apps/nas"));
        for measured in ["crates/sort", "crates/catapult", "crates/intercept", "apps/nas"] {
            assert!(may("crates/bench", measured) && !may(measured, "crates/bench"), "{measured}");
            assert!(may(measured, "crates/results"), "{measured}");
        }
        assert!(!may("crates/os", "crates/via") && !may("crates/bench", "crates/viaduct"));
        assert!(!may_in_tests("crates/os", "crates/via"));
    }

    #[test]
    fn siblings_do_not_use_each_other() {
        assert!(!may("crates/mpi", "crates/sovia") && !may("crates/sort", "crates/catapult"));
        assert!(!may("capi/mpi", "crates/viaduct") && !may("apps/nas", "apps/dsm"));
        assert!(!may_in_tests("crates/mpi", "crates/sovia"));
    }

    #[test]
    fn the_middle_takes_a_nic() {
        assert!(!may("crates/sovia", "crates/providers") && may_in_tests("crates/sovia", "crates/providers"));
        assert!(may_in_tests("crates/via", "crates/providers") && !may("crates/via", "crates/providers"));
        assert!(may("crates/viaduct", "crates/providers") && may("crates/bench", "crates/providers"));
    }

    #[test]
    fn test_code_stays_in_tests() {
        assert!(may_in_tests("crates/os", "tests/kit") && !may("crates/os", "tests/kit"));
        assert!(may_in_tests("crates/providers", "tests/conformance"));
        assert!(!may("crates/providers", "tests/conformance"));
        assert!(may("tests/conformance", "crates/via") && !may("tests/conformance", "crates/mpi"));
        assert!(may("tests/e2e", "crates/viaduct") && !may_in_tests("crates/viaduct", "tests/e2e"));
        assert!(!may("tests/kit", "crates/os") && !may_in_tests("tests/kit", "crates/os"));
    }

    #[test]
    fn the_chores_stay_apart() {
        assert!(may("xtask", "tests/kit") && !may("xtask", "crates/os") && !may("crates/os", "xtask"));
    }

    #[test]
    fn a_package_without_place_is_found() {
        let mut workspace = sample();
        assert_eq!(check(&workspace), []);
        workspace.packages[0].manifest_path = "/w/crates/misc/Cargo.toml".into();
        let findings = check(&workspace);
        assert!(findings[0].what.contains("crates/misc"), "{findings:?}");
    }

    #[test]
    fn an_upward_dependency_is_found_in_the_workspace() {
        let mut workspace = sample();
        workspace.packages[1].dependencies[0].path = Some("/w/crates/providers".into());
        let findings = check(&workspace);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("downward"), "{findings:?}");
    }
}
