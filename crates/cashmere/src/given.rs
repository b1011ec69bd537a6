//! What the launcher of a run tells its processes: one variable of the environment, the same in all of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use viaduct_os::fault::EngineKind;

use crate::node::start::Settings;
use crate::variant::Variant;

/// The name of the variable.
pub const VARIABLE: &str = "VIADUCT_DSM";

/// Whether workers stay on one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// A core for each worker if its host has enough of them, else none.
    #[default]
    Auto,
    /// A core for each worker, which several share if they have to.
    Core,
    /// Where the kernel likes.
    None,
}

/// What a run says at its end, on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// Nothing: the program does.
    #[default]
    None,
    /// A table of times and counts.
    Table,
    /// A line of JSON.
    Json,
}

macro_rules! words {
    ($kind:ident, $what:literal: $($word:literal => $value:ident),*) => {
        impl $kind {
            /// The word for it.
            pub fn name(self) -> &'static str {
                match self { $($kind::$value => $word),* }
            }
        }

        impl FromStr for $kind {
            type Err = String;

            fn from_str(word: &str) -> Result<$kind, String> {
                match word {
                    $($word => Ok($kind::$value),)*
                    _ => Err(format!(concat!("no ", $what, " `{}`; there are ", $($word, " "),*), word)),
                }
            }
        }
    };
}
words!(Bind, "way to bind workers": "auto" => Auto, "core" => Core, "none" => None);
words!(Report, "report": "none" => None, "table" => Table, "json" => Json);

/// What the processes of a run are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Nodes.
    pub nodes: usize,
    /// Workers of each.
    pub workers: usize,
    /// The protocol variant.
    pub variant: Variant,
    /// The access engine; None lets the library choose.
    pub engine: Option<EngineKind>,
    /// Bytes of shared memory; None leaves it to the program.
    pub memory: Option<usize>,
    /// Bytes of a page; None leaves it to the program.
    pub page: Option<usize>,
    /// Whether workers stay on one core.
    pub bind: Bind,
    /// What is said at the end.
    pub report: Report,
    /// A file of homes to begin with, which the first process reads.
    pub homes_in: Option<PathBuf>,
    /// The file to which the first worker writes the homes of the first touch.
    pub homes_out: Option<PathBuf>,
    /// The file to which the first worker writes how far it has come.
    pub progress: Option<PathBuf>,
}

/// What a program would like where the launcher leaves it the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Bytes of shared memory. Pages that are not used cost next to nothing.
    pub memory: usize,
    /// Bytes of a page, the unit of consistency: a power of two, at least the machine's and 32,768 at most. It holds for all that
    /// the run allocates.
    pub page: usize,
}

impl Default for Wishes {
    /// 256 MiB in pages of 4 KiB.
    fn default() -> Wishes {
        Wishes { memory: 256 << 20, page: 4096 }
    }
}

impl Given {
    /// How the run is laid out, for a program with these wishes.
    pub fn settings(&self, wishes: Wishes) -> Settings {
        Settings {
            nodes: self.nodes,
            workers: self.workers,
            variant: self.variant,
            engine: self.engine,
            memory: self.memory.unwrap_or(wishes.memory),
            page: self.page.unwrap_or(wishes.page),
            homes_in: self.homes_in.clone(),
            homes_out: self.homes_out.clone(),
        }
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Given { nodes, workers, variant, .. } = self;
        write!(f, "nodes={nodes} workers={workers} variant={variant} bind={}", self.bind.name())?;
        write!(f, " report={}", self.report.name())?;
        if let Some(engine) = self.engine {
            write!(f, " engine={engine}")?;
        }
        if let Some(memory) = self.memory {
            write!(f, " memory={memory}")?;
        }
        if let Some(page) = self.page {
            write!(f, " page={page}")?;
        }
        let paths =
            [("homes-in", &self.homes_in), ("homes-out", &self.homes_out), ("progress", &self.progress)];
        for (name, path) in paths {
            if let Some(path) = path {
                write!(f, " {name}={}", escape(path))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        let mut given = Given {
            nodes: 0,
            workers: 0,
            variant: Variant::NoneMg,
            engine: None,
            memory: None,
            page: None,
            bind: Bind::Auto,
            report: Report::None,
            homes_in: None,
            homes_out: None,
            progress: None,
        };
        for word in text.split(' ') {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))?;
            let number = || value.parse().map_err(|_| format!("{name}: `{value}` is not a number"));
            match name {
                "nodes" => given.nodes = number()?,
                "workers" => given.workers = number()?,
                "variant" => given.variant = value.parse().map_err(|why| format!("{why}"))?,
                "engine" => given.engine = Some(value.parse()?),
                "memory" => given.memory = Some(number()?),
                "page" => given.page = Some(number()?),
                "bind" => given.bind = value.parse()?,
                "report" => given.report = value.parse()?,
                "homes-in" => given.homes_in = Some(unescape(value)),
                "homes-out" => given.homes_out = Some(unescape(value)),
                "progress" => given.progress = Some(unescape(value)),
                other => return Err(format!("`{other}` is not known; program and `viaduct` differ in age")),
            }
        }
        Ok(given)
    }
}

/// A path as one word: blanks are written as `%20`.
fn escape(path: &Path) -> String {
    path.display().to_string().replace('%', "%25").replace(' ', "%20")
}

fn unescape(word: &str) -> PathBuf {
    word.replace("%20", " ").replace("%25", "%").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_settings_come_back() {
        let least = Given {
            nodes: 2,
            workers: 3,
            variant: Variant::Dms,
            engine: None,
            memory: None,
            page: None,
            bind: Bind::None,
            report: Report::Json,
            homes_in: None,
            homes_out: None,
            progress: None,
        };
        let most = Given {
            engine: Some(EngineKind::Mprotect),
            memory: Some(1 << 30),
            page: Some(8192),
            bind: Bind::Core,
            homes_in: Some("a %20 b".into()),
            homes_out: Some("homes".into()),
            progress: Some("/run/a folder/x=1 y".into()),
            ..least.clone()
        };
        for given in [least, most] {
            assert_eq!(given.to_string().parse(), Ok(given));
        }
        assert!("nodes=2 colour=red".parse::<Given>().unwrap_err().contains("differ in age"));
        assert!("nodes=two".parse::<Given>().unwrap_err().contains("not a number"));
        assert!("bind=socket".parse::<Given>().unwrap_err().contains("auto core none"));
    }

    #[test]
    fn the_launcher_beats_the_program() {
        let given: Given = "nodes=1 workers=1 page=8192".parse().expect("words");
        let settings = given.settings(Wishes { memory: 1 << 20, page: 4096 });
        assert_eq!((settings.memory, settings.page), (1 << 20, 8192));
    }
}
