//! Which functions of the shipped library call which, read from its machine code and its relocations.
//!
//! Followed are calls, jumps and addresses that are taken. A call through a table of methods is not seen; the engine has none.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use viaduct_kit::packages::need_program;

use crate::library;

fn said(tool: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(need_program(tool, "binutils")?).args(words).arg(library()).output().unwrap();
    assert!(output.status.success(), "{tool}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the loader puts into a place: the address of a name, or one inside of the library.
pub(crate) enum Target {
    Name(String),
    Inside(u64),
}

/// All places that the loader fills in.
pub(crate) fn relocations() -> Option<BTreeMap<u64, Target>> {
    let text = said("readelf", &["-rW"])?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let target = match fields.get(2)?.ends_with("_RELATIVE") {
            true => Target::Inside(number(fields.get(3)?)?),
            false => Target::Name(fields.get(4)?.split('@').next()?.to_owned()),
        };
        Some((number(fields[0])?, target))
    };
    Some(text.lines().filter_map(row).collect())
}

/// What each function uses.
pub(crate) struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    pub(crate) fn read() -> Option<Graph> {
        let places = relocations()?;
        let text = said("objdump", &["-d", "--no-show-raw-insn"])?;
        let start = |line: &str| {
            let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
            Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
        };
        let functions: BTreeMap<u64, String> = text.lines().filter_map(start).collect();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut of = String::new();
        for line in text.lines() {
            if let Some((_, name)) = start(line) {
                of = name;
                continue;
            }
            let Some((code, place)) = line.split_once('<').filter(|_| line.contains('\t')) else { continue };
            let address = code.rsplit(' ').find(|word| !word.is_empty() && *word != "#");
            let there = address.and_then(|word| u64::from_str_radix(word, 16).ok());
            let used = match there.and_then(|there| places.get(&there)) {
                Some(Target::Name(name)) => Some(name.clone()),
                Some(Target::Inside(address)) => functions.get(address).cloned(),
                None => place.trim_end_matches('>').split(['+', '@']).next().map(str::to_owned),
            };
            uses.entry(of.clone()).or_default().extend(used);
        }
        Some(Graph(uses))
    }

    /// All that is used by `roots`, directly or not, and what used it first. What `stops` says is not followed.
    pub(crate) fn reached<'a>(
        &'a self,
        roots: impl Iterator<Item = &'a str>,
        stops: impl Fn(&str) -> bool,
    ) -> BTreeMap<&'a str, &'a str> {
        let mut reached = BTreeMap::new();
        let mut next: Vec<(&str, &str)> = roots.map(|root| (root, "")).collect();
        while let Some((name, by)) = next.pop() {
            if reached.contains_key(name) {
                continue;
            }
            reached.insert(name, by);
            if !stops(name) {
                next.extend(self.0.get(name).into_iter().flatten().map(|used| (used.as_str(), name)));
            }
        }
        reached
    }

    pub(crate) fn defines(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}
