//! Output of ranks that goes to files of the launcher's host: one for each rank, or one for several if the pattern says so.
//!
//! ```text
//!   %r rank   %h host   %j job   %% a percent sign
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use super::{Merger, Mode, Stream};
use crate::error::Error;

/// Where the output of ranks goes, by stream; streams without a pattern are shown as usual.
#[derive(Debug, Default)]
pub struct OutputFiles {
    streams: [Option<Files>; 2],
}

#[derive(Debug)]
struct Files {
    files: Vec<(PathBuf, File)>,
    /// The file of each rank.
    of_rank: Vec<usize>,
    /// Keeps lines whole where several ranks share a file, and writes labels.
    merger: Merger,
    complaint: Option<String>,
}

impl OutputFiles {
    /// Creates the files for ranks on these hosts.
    ///
    /// # Errors
    /// If a pattern is none, or a file cannot be made.
    pub fn create(
        patterns: [Option<&str>; 2],
        job: &str,
        hosts: &[String],
        label: bool,
    ) -> Result<OutputFiles, Error> {
        let mut made = OutputFiles::default();
        for (stream, pattern) in made.streams.iter_mut().zip(patterns) {
            *stream = pattern.map(|pattern| Files::create(pattern, job, hosts, label)).transpose()?;
        }
        Ok(made)
    }

    /// How many descriptors they take.
    pub fn count(&self) -> usize {
        self.streams.iter().flatten().map(|files| files.files.len()).sum()
    }

    /// Writes what a rank wrote; false if that stream does not go to a file.
    pub fn put(&mut self, rank: u32, stream: Stream, bytes: &[u8]) -> bool {
        self.with(rank, stream, |merger, write| merger.put(rank, stream, bytes, write))
    }

    /// A rank will write nothing more there; false if that stream does not go to a file.
    pub fn end(&mut self, rank: u32, stream: Stream) -> bool {
        self.with(rank, stream, |merger, write| merger.end(rank, stream, write))
    }

    /// What went wrong since the last time, for the user.
    pub fn complaints(&mut self) -> Vec<String> {
        self.streams.iter_mut().flatten().filter_map(|files| files.complaint.take()).collect()
    }

    fn with(&mut self, rank: u32, stream: Stream, act: impl FnOnce(&mut Merger, super::Write<'_>)) -> bool {
        let Some(files) = &mut self.streams[stream.index()] else { return false };
        let Some(&index) = files.of_rank.get(rank as usize) else { return true };
        let (list, complaint) = (&mut files.files, &mut files.complaint);
        act(&mut files.merger, &mut |_, bytes| {
            let (path, file) = &mut list[index];
            if let Err(why) = file.write_all(bytes) {
                complaint
                    .get_or_insert_with(|| format!("{}: {why}; output is missing there", path.display()));
            }
        });
        true
    }
}

impl Files {
    fn create(pattern: &str, job: &str, hosts: &[String], label: bool) -> Result<Files, Error> {
        let mut by_path: BTreeMap<PathBuf, usize> = BTreeMap::new();
        let (mut files, mut of_rank) = (Vec::new(), Vec::new());
        for (rank, host) in hosts.iter().enumerate() {
            let path = PathBuf::from(expand(pattern, rank, host, job)?);
            let index = match by_path.get(&path) {
                Some(&index) => index,
                None => {
                    let failed = |why: std::io::Error| Error::system(path.display().to_string(), why);
                    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                        fs::create_dir_all(folder).map_err(failed)?;
                    }
                    files.push((path.clone(), File::create(&path).map_err(failed)?));
                    by_path.insert(path, files.len() - 1);
                    files.len() - 1
                }
            };
            of_rank.push(index);
        }
        let mode = match (label, files.len() == hosts.len()) {
            (true, _) => Mode::Label,
            (false, true) => Mode::Raw,
            (false, false) => Mode::Plain,
        };
        Ok(Files { files, of_rank, merger: Merger::new(mode, hosts.to_vec()), complaint: None })
    }
}

/// The name of a rank's file.
fn expand(pattern: &str, rank: usize, host: &str, job: &str) -> Result<String, Error> {
    let mut name = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '%') {
            (_, false) => name.push(letter),
            (_, true) => match letters.next() {
                Some('r') => name.push_str(&rank.to_string()),
                // A host may be ssh://user@host:22, which is no name of a file.
                Some('h') => name.push_str(&host.replace('/', "_")),
                Some('j') => name.push_str(job),
                Some('%') => name.push('%'),
                _ => {
                    let hint = "%r is the rank, %h the host, %j the job, %% a percent sign".to_owned();
                    return Err(Error::Option {
                        word: pattern.to_owned(),
                        why: "is no pattern of files",
                        hint,
                    });
                }
            },
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn patterns_name_files() {
        assert_eq!(expand("out/%j.%r.%h%%", 3, "ssh://a", "v1").unwrap(), "out/v1.3.ssh:__a%");
        assert!(expand("%x", 0, "a", "j").is_err() && expand("%", 0, "a", "j").is_err());
    }

    #[test]
    fn ranks_write_to_files_of_their_own_or_share_whole_lines() {
        let folder = TempDir::new("files");
        let hosts = ["a", "b"].map(str::to_owned);
        let own = folder.join("own/%r").display().to_string();
        let shared = folder.join("all").display().to_string();
        let mut files = OutputFiles::create([Some(&own), Some(&shared)], "j", &hosts, false).unwrap();
        assert_eq!(files.count(), 3);
        for stream in [Stream::Out, Stream::Err] {
            assert!(
                files.put(0, stream, b"on")
                    && files.put(1, stream, b"two\n")
                    && files.put(0, stream, b"e\nlast")
            );
            assert!(files.end(0, stream));
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("own/0"), read("own/1")), ("one\nlast".to_owned(), "two\n".to_owned()));
        assert_eq!(read("all"), "two\none\nlast\n");
        assert!(!OutputFiles::default().put(0, Stream::Out, b"shown"));
    }
}
