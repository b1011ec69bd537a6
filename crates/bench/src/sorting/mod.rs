//! The experiments of Millennium Sort (section 4): `viaduct sort` as a whole, launch included, beside what a user would take
//! instead, and what the parts of this host could do.
//!
//! ```text
//!   datamation   1 M records, by nodes and transport: phases, speed-up, overhead by cause; kernels; rivals
//!   records      1 M and 10 M records against a copy, rivals and skewed keys
//!   memory       more than memory holds, against those that can be told how much to use
//!   text         lines
//!   nodes        nodes of this host against one process
//!   windows      registering memory as a whole and in windows
//!   minute       as many records as are sorted in a minute
//!   components   memory, disk and network alone, and which of them bounds the sort
//! ```
//!
//! Every output is validated, ours and those of rivals, before its time counts. All take turns.

mod bars;
mod components;
mod contest;
mod datamation;
mod kernels;
mod minute;
mod rivals;
mod windows;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use viaduct_results::schema::Line;

use contest::Seen;

pub use bars::{memory, nodes, records, text};
pub use components::components;
pub use datamation::datamation;
pub use minute::minute;
pub use windows::windows;

/// Takes a line of the result.
pub type Emit<'a> = &'a mut dyn FnMut(Line) -> io::Result<()>;

/// What the experiments need.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The program `viaduct`.
    pub program: PathBuf,
    /// A folder for inputs and outputs, on the disk that is measured.
    pub folder: PathBuf,
    /// Small sizes and few rounds, to see that it works.
    pub quick: bool,
    /// How often each measurement is made.
    pub rounds: usize,
}

/// A run of the sort.
struct Run {
    seconds: f64,
    summary: Value,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("sort").args(words).current_dir(&self.folder);
        command.env("VIADUCT_RUNTIME_DIR", self.folder.join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Writes an input; `style` has letters of the generator.
    fn generate(&self, records: u64, name: &str, style: &[&str]) -> io::Result<()> {
        viaduct_os::runtime_dir::runtime_dir(Some(&self.folder.join("run")))
            .map_err(|error| io::Error::other(error.to_string()))?;
        let records = records.to_string();
        let mut words = vec!["gen", &records, "-o", name];
        words.extend(style);
        match self.command(&words).status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("the generator failed")),
        }
    }

    /// Sorts `input` into `out` and validates that. `None` if either did not work.
    fn sort(&self, input: &str, words: &[&str]) -> Option<Run> {
        let _ = std::fs::remove_file(self.path("out"));
        let begun = Instant::now();
        let args = [words, &[input, "-o", "out", "--summary", "summary"]].concat();
        let good = self.command(&args).status().is_ok_and(|status| status.success());
        let seconds = begun.elapsed().as_secs_f64();
        let (input, output) = (self.records_of(input)?, self.records_of("out")?);
        // Without the sum, records that are there twice could stand for others that are not.
        if !good || !output.ordered || (output.count, &output.sum) != (input.count, &input.sum) {
            return None;
        }
        let summary = serde_json::from_slice(&std::fs::read(self.path("summary")).ok()?).ok()?;
        Some(Run { seconds, summary })
    }

    /// What the validator says of a file of records.
    fn records_of(&self, name: &str) -> Option<Seen> {
        let output = self.command(&["check", name]).stderr(Stdio::piped()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = |what: &str| text.lines().find_map(|line| line.strip_prefix(what));
        let count = told("Records: ")?.parse().ok()?;
        Some(Seen { ordered: output.status.success(), count, sum: told("Checksum: ")?.to_owned() })
    }
}

/// What a file of lines is, each of at least `least` bytes; `None` if one is shorter. The sum is that of the lines' hashes.
fn lines_of(path: &Path, least: usize) -> Option<Seen> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::io::{BufRead, BufReader};
    let mut lines = BufReader::with_capacity(1 << 20, std::fs::File::open(path).ok()?);
    let (mut before, mut line) = (Vec::new(), Vec::new());
    let (mut ordered, mut count, mut sum) = (true, 0, 0u64);
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return Some(Seen { ordered, count, sum: format!("{sum:x}") });
        }
        // The order is that of the lines without their ends.
        line.pop_if(|last| *last == b'\n');
        if line.len() + 1 < least {
            return None;
        }
        ordered &= before <= line;
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        sum = sum.wrapping_add(hasher.finish());
        std::mem::swap(&mut before, &mut line);
        count += 1;
    }
}
