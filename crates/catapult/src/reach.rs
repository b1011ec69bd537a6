//! Reaching an agent: at once if it is known, else over ssh.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use viaduct_agent::bootstrap::{self, Payload, Ways};
use viaduct_agent::known::{self, Known};
use viaduct_agent::serve::first_message;
use viaduct_agent::{Identity, Link};

use crate::jobs::Visited;
use crate::role::{JOBS, JobsAsk};

/// An agent that is known answers at once, or is gone.
const KNOWN: Duration = Duration::from_secs(10);

/// How agents are reached.
#[derive(Debug)]
pub struct Reach {
    /// The run-time folder, with what is known.
    pub folder: PathBuf,
    /// How they are brought up.
    pub ways: Ways,
    /// How often a host is tried again.
    pub retries: u32,
    /// How many hosts at a time.
    pub at_once: usize,
    /// Our own program, once a host needs it.
    pub payload: OnceLock<Result<Payload, String>>,
}

impl Reach {
    /// A connection to the agent of one host, or why there is none.
    ///
    /// # Errors
    /// In words for the user.
    pub fn host(&self, host: &str) -> Result<Link, String> {
        let identity = Identity::of_user(&self.folder).map_err(|why| why.to_string())?;
        let mut last = String::new();
        for _ in 0..=self.retries {
            let end = Instant::now() + self.ways.limit;
            if let Some(known) = known::find(&self.folder, host) {
                match Link::call(&known.address, &identity, known.key, self.ways.limit.min(KNOWN)) {
                    Ok(link) => return Ok(link),
                    // It has left, or the host was started anew: ssh knows more.
                    Err(_) => known::forget(&self.folder, host),
                }
            }
            let payload = self.payload.get_or_init(|| Payload::ourselves().map_err(|why| why.to_string()));
            let payload = payload.as_ref().map_err(Clone::clone)?;
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
            let ways = Ways { limit: left, ..self.ways.clone() };
            let called = bootstrap::bring_up(host, &[identity.public()], payload, &ways).and_then(|known| {
                let link = Link::call(&known.address, &identity, known.key, left)?;
                known::remember(&self.folder, &known)?;
                Ok(link)
            });
            match called {
                Ok(link) => return Ok(link),
                Err(why) => last = why.to_string(),
            }
        }
        Err(format!("{host}: {last}"))
    }
}

/// Asks a known agent for its jobs, or to send them a signal.
///
/// # Errors
/// If it is not there.
pub fn ask_jobs(folder: &Path, known: &Known, ask: &JobsAsk) -> Result<Vec<Visited>, viaduct_agent::Error> {
    let limit = Duration::from_secs(5);
    let identity = Identity::of_user(folder)?;
    let mut link = Link::call(&known.address, &identity, known.key, limit)?;
    link.say(&first_message(JOBS, &ask.to_bytes()))?;
    let messages = link.wait(Instant::now() + limit)?;
    Ok(messages.first().and_then(|message| postcard::from_bytes(message).ok()).unwrap_or_default())
}
