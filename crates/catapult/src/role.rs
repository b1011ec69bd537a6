//! What an agent does for a launcher: one node of a job, in a worker of its own; and looking after jobs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use viaduct_agent::Link;
use viaduct_agent::serve::Role;

use crate::jobs;
use crate::wire::Event;
use crate::worker::Worker;

/// The name of the role.
pub const ROLE: &str = "launch";
/// That of looking after jobs.
pub const JOBS: &str = "jobs";

/// Runs nodes of jobs.
#[derive(Debug)]
pub struct LaunchRole {
    /// The run-time folder.
    pub folder: PathBuf,
    /// Where files are kept by content.
    pub cache: PathBuf,
    /// The command that reaches other hosts, with its options.
    pub ssh: Vec<String>,
    /// The home folder of the user.
    pub home: PathBuf,
}

impl Role for LaunchRole {
    fn name(&self) -> &'static str {
        ROLE
    }

    fn run(&self, link: Link, first: &[u8]) -> u8 {
        match Worker::new(self, link, first) {
            Ok(mut worker) => worker.run(),
            Err(refused) => {
                let (mut link, node, why) = *refused;
                let _ = link.say(&postcard::to_stdvec(&(node, Event::Refused(why))).unwrap_or_default());
                link.linger(Duration::from_secs(2));
                1
            }
        }
    }
}

/// What is asked of [`JobsRole`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobsAsk {
    /// The beginning of the names of jobs that get the signal; all of them if it is empty.
    pub start: String,
    /// The signal; none to look only.
    pub signal: Option<i32>,
}

impl JobsAsk {
    /// As it travels.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }
}

/// Looks after the jobs of a host. What it is asked last for, it answers with what it found.
#[derive(Debug)]
pub struct JobsRole {
    /// The run-time folder.
    pub folder: PathBuf,
}

impl Role for JobsRole {
    fn name(&self) -> &'static str {
        JOBS
    }

    fn run(&self, mut link: Link, first: &[u8]) -> u8 {
        let mut next = Some(first.to_vec());
        // As often as it is asked: a benchmark asks often.
        while let Some(bytes) = next {
            let Ok(ask) = postcard::from_bytes::<JobsAsk>(&bytes) else { return 1 };
            let wanted = |job: &str| ask.signal.filter(|_| job.starts_with(&ask.start));
            let found = jobs::visit(&self.folder, &wanted).unwrap_or_default();
            let answer = postcard::to_stdvec(&found).unwrap_or_default();
            if link.say(&answer).is_err() {
                return 1;
            }
            link.flush(Duration::from_secs(5));
            let more = link.wait(Instant::now() + Duration::from_secs(10));
            next = more.ok().and_then(|messages| messages.into_iter().next());
        }
        0
    }
}
