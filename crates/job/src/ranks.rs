//! The job as one of its ranks sees it: its number, how many there are, and what the others have to tell.
//!
//! Whatever started the process (`viaduct launch`, `mpiexec.hydra`, `srun --mpi=pmi2`), it answers PMI-1; if nothing
//! did, the process is a job of its own with one rank, unless VIADUCT_MEET says where ranks that were started by hand
//! come together. Before any VI exists, ranks have two operations:
//! [`barrier`](Job::barrier) and [`exchange`](Job::exchange).

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;

use viaduct_os::budget::Budget;
use viaduct_os::{inherit, random};

use crate::error::Error;
use crate::first::{self, Common};
use crate::hex;
use crate::host::HostId;
use crate::meet::{self, Table};
use crate::pmi::client::Client;
use crate::token::Token;

/// Looks up a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A process in its job.
#[derive(Debug)]
pub struct Job {
    rank: usize,
    size: usize,
    host: HostId,
    launcher: Option<Client>,
    /// Rank 0 of a job that was started by hand keeps the table.
    table: Option<Table>,
    /// How many exchanges there were: each has keys of its own.
    round: u64,
    /// The token of the launcher or the user.
    given: Option<Token>,
    /// What the first exchange settles.
    common: Option<Common>,
    /// How many segments each group has shared.
    pub(crate) shared: BTreeMap<Vec<usize>, u64>,
}

impl Job {
    /// Joins the job that this process was started in. `variable` is `|name| std::env::var(name).ok()`.
    ///
    /// # Errors
    /// If the launcher's variables or the token make no sense, it does not answer, or it is one that we do not speak to.
    pub fn join(variable: Lookup<'_>) -> Result<Job, Error> {
        let host = HostId::of_this(variable("VIADUCT_HOST").as_deref())?;
        let launcher = match (variable("PMI_FD"), variable("PMI_PORT")) {
            (Some(fd), _) => {
                let bad = || Error::BadVariable { name: "PMI_FD", value: fd.clone() };
                let number = fd.parse().map_err(|_| bad())?;
                let socket = inherit::socket_at(number).map_err(|_| bad())?;
                Some(Client::on_stream(UnixStream::from(socket))?)
            }
            (None, Some(port)) => Some(Client::connect(&port, &variable("PMI_ID").unwrap_or_default())?),
            (None, None) => None,
        };
        let given = given(variable)?;
        if let (None, Some(address)) = (&launcher, variable("VIADUCT_MEET")) {
            return by_hand(&address, host, given, variable);
        }
        if launcher.is_none() {
            foreign(variable)?;
            return Ok(Job::new(0, 1, host, None, given));
        }
        let name = if variable("PMI_RANK").is_some() { "PMI_RANK" } else { "PMI_ID" };
        let (rank, size) = place(name, "PMI_SIZE", variable)?;
        Ok(Job::new(rank, size, host, launcher, given))
    }

    fn new(rank: usize, size: usize, host: HostId, launcher: Option<Client>, given: Option<Token>) -> Job {
        let shared = BTreeMap::new();
        Job { rank, size, host, launcher, table: None, round: 0, given, common: None, shared }
    }

    /// Which of the processes this is, counted from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes the job has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A text that no other job of the same launcher has.
    pub fn name(&self) -> &str {
        self.launcher.as_ref().map_or("singleton", Client::space)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.launcher.as_mut().map_or(Ok(()), Client::barrier)
    }

    /// Every rank gives some bytes and gets those of all, in the order of ranks. All ranks must call it.
    ///
    /// # Errors
    /// If the launcher is gone, or keeps less than it took.
    pub fn exchange(&mut self, ours: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let Some(launcher) = &mut self.launcher else { return Ok(vec![ours.to_vec()]) };
        let (rank, round) = (self.rank, self.round);
        self.round += 1;
        // Two digits a byte; the first piece says how many there are.
        let longest = format!("viaduct.{round}.{rank}.{}", u16::MAX).len();
        let room = (launcher.value_max(longest).saturating_sub(8) / 2).max(1);
        let pieces: Vec<&[u8]> = if ours.is_empty() { vec![ours] } else { ours.chunks(room).collect() };
        for (n, piece) in pieces.iter().enumerate() {
            let digits: String = piece.iter().map(|b| format!("{b:02x}")).collect();
            let value = if n == 0 { format!("{}:{digits}", pieces.len()) } else { digits };
            launcher.put(&format!("viaduct.{round}.{rank}.{n}"), &value)?;
        }
        launcher.barrier()?;
        (0..self.size).map(|rank| collect(launcher, round, rank)).collect()
    }

    /// The hosts of all ranks, in their order. The first call is an exchange, so all ranks must make it.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn hosts(&mut self) -> Result<&[HostId], Error> {
        self.common().map(|common| &common.hosts[..])
    }

    /// Whether all ranks share this host, so that they need no network. The first call is as that of [`hosts`](Self::hosts).
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn is_on_one_host(&mut self) -> Result<bool, Error> {
        let ours = self.host;
        Ok(self.hosts()?.iter().all(|host| *host == ours))
    }

    /// The token of the job: that of the launcher or the user, or one that rank 0 made where they gave none. The first call is
    /// as that of [`hosts`](Self::hosts).
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange), and if only some of the ranks were given one.
    pub fn token(&mut self) -> Result<Token, Error> {
        self.common().map(|common| common.token.clone())
    }

    /// What the first exchange settles. From then on this process has its share of the host's memory, no more.
    pub(crate) fn common(&mut self) -> Result<&Common, Error> {
        let common = match self.common.take() {
            Some(common) => common,
            None => {
                let ours = first::give(self.rank, self.host, random::u64(), self.given.as_ref());
                let common = first::settle(&self.exchange(&ours)?, self.given.as_ref())?;
                let here = common.hosts.iter().filter(|host| **host == self.host).count();
                Budget::share_process(here);
                common
            }
        };
        Ok(self.common.insert(common))
    }

    /// The ranks on this host, this one among them, in their order. All ranks must call it the first time.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn neighbours(&mut self) -> Result<Vec<usize>, Error> {
        let ours = self.host;
        Ok(self
            .hosts()?
            .iter()
            .enumerate()
            .filter(|(_, host)| **host == ours)
            .map(|(rank, _)| rank)
            .collect())
    }

    /// Ends the whole job with this code. The caller has to end this process.
    pub fn abort(&mut self, code: i32, why: &str) {
        if let Some(launcher) = &mut self.launcher {
            launcher.abort(code, why);
        }
    }

    /// Leaves the job. A process that ends without it is taken for a failure.
    ///
    /// # Errors
    /// If the launcher is gone.
    pub fn finish(mut self) -> Result<(), Error> {
        let finished = self.launcher.as_mut().map_or(Ok(()), Client::finish);
        // A rank that said good-bye hangs up; the table stays until all have.
        self.launcher = None;
        let _ = self.table.take().map(Table::close);
        finished
    }
}

/// Which rank of how many, as two variables say.
fn place(rank: &'static str, size: &'static str, variable: Lookup<'_>) -> Result<(usize, usize), Error> {
    let number = |name: &'static str| -> Result<usize, Error> {
        let value = variable(name).unwrap_or_default();
        value.parse().map_err(|_| Error::BadVariable { name, value })
    };
    let (number, count) = (number(rank)?, number(size)?);
    if number >= count {
        return Err(Error::BadVariable { name: rank, value: number.to_string() });
    }
    Ok((number, count))
}

/// A rank that a user started by hand, from what `viaduct launch --dry-run` printed.
fn by_hand(address: &str, host: HostId, given: Option<Token>, variable: Lookup<'_>) -> Result<Job, Error> {
    let (rank, size) = place("VIADUCT_RANK", "VIADUCT_SIZE", variable)?;
    let missing = || Error::BadVariable { name: "VIADUCT_TOKEN_FILE", value: String::new() };
    let token = given.ok_or_else(missing)?;
    let table = (rank == 0).then(|| Table::open(address, size, &token)).transpose()?;
    let launcher = Some(Client::on_connection(meet::visit(address, rank, &token)?)?);
    Ok(Job { table, ..Job::new(rank, size, host, launcher, Some(token)) })
}

/// The token that the launcher or the user gave, if there is one.
fn given(variable: Lookup<'_>) -> Result<Option<Token>, Error> {
    match (variable("VIADUCT_TOKEN"), variable("VIADUCT_TOKEN_FILE")) {
        (Some(text), _) => text.parse().map(Some),
        (None, Some(path)) => Token::from_file(Path::new(&path)).map(Some),
        (None, None) => Ok(None),
    }
}

fn collect(launcher: &mut Client, round: u64, rank: usize) -> Result<Vec<u8>, Error> {
    let lost = || Error::PmiSaid(format!("nothing of what rank {rank} gave"));
    let mut piece = |n: usize| launcher.get(&format!("viaduct.{round}.{rank}.{n}"))?.ok_or_else(lost);
    let first = piece(0)?;
    let (count, digits) = first.split_once(':').ok_or_else(lost)?;
    let count: usize = count.parse().ok().filter(|n| (1..=1 << 16).contains(n)).ok_or_else(lost)?;
    let mut bytes = hex::parse(digits).ok_or_else(lost)?;
    for n in 1..count {
        bytes.extend(hex::parse(&piece(n)?).ok_or_else(lost)?);
    }
    Ok(bytes)
}

/// A launcher that started several processes and gave none of them a way to meet: each would take itself for the only one.
fn foreign(variable: Lookup<'_>) -> Result<(), Error> {
    let many = |name: &str| variable(name).and_then(|n| n.parse::<usize>().ok()).is_some_and(|n| n > 1);
    if many("OMPI_COMM_WORLD_SIZE") {
        let hint = "use `viaduct launch` or mpiexec.hydra";
        return Err(Error::ForeignLauncher { launcher: "Open MPI's mpirun", hint });
    }
    // Inside a batch script there is one process, and SLURM_STEP_ID is not set.
    if many("SLURM_STEP_NUM_TASKS") {
        return Err(Error::ForeignLauncher { launcher: "srun", hint: "use `srun --mpi=pmi2`" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn with(list: &[(&str, &str)]) -> Result<Job, Error> {
        let map: BTreeMap<String, String> = list.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        Job::join(&|name| map.get(name).cloned())
    }

    #[test]
    fn a_process_without_a_launcher_is_a_job() {
        let mut job = with(&[]).unwrap();
        assert_eq!((job.rank(), job.size(), job.name()), (0, 1, "singleton"));
        job.barrier().unwrap();
        assert_eq!(job.exchange(b"card").unwrap(), [b"card"]);
        assert_eq!(job.neighbours().unwrap(), [0]);
        assert!(job.is_on_one_host().unwrap());
        assert_eq!(job.token().unwrap(), job.token().unwrap());
        job.finish().unwrap();
    }

    #[test]
    fn a_token_that_was_given_is_the_token_of_the_job() {
        let token = Token::random();
        let mut job = with(&[("VIADUCT_TOKEN", &token.secret_text())]).unwrap();
        assert_eq!(job.token().unwrap(), token);
        assert!(matches!(with(&[("VIADUCT_TOKEN", "short")]), Err(Error::BadToken)));
    }

    #[test]
    fn variables_that_make_no_sense_are_named() {
        for fd in ["", "x", "-3", "1", "99999"] {
            assert!(
                matches!(with(&[("PMI_FD", fd)]), Err(Error::BadVariable { name: "PMI_FD", .. })),
                "{fd:?}"
            );
        }
    }

    #[test]
    fn a_launcher_that_we_do_not_speak_to_is_named() {
        let error = with(&[("OMPI_COMM_WORLD_SIZE", "4")]).unwrap_err().to_string();
        assert!(error.contains("Open MPI") && error.contains("viaduct launch"), "{error}");
        assert!(with(&[("SLURM_STEP_NUM_TASKS", "2")]).is_err());
        assert!(with(&[("OMPI_COMM_WORLD_SIZE", "1")]).is_ok());
    }
}
