//! What became of the ranks, and which exit status that makes. Pure.

use serde_json::{Value, json};
use viaduct_os::signals;

use crate::output::ranges;
use crate::wire::End;

/// Exit status when the time was up.
pub const TIMED_OUT: u8 = 124;
/// Exit status when a host could not be reached, as of ssh.
pub const UNREACHABLE: u8 = 255;
/// Exit status when a program cannot be found, as of shells.
pub const NOT_STARTED: u8 = 127;
/// Exit status when a program is there and cannot be executed, as of shells.
pub const NOT_EXECUTABLE: u8 = 126;

/// With more ranks a table has a row for those that ended alike.
const ROWS: usize = 32;

/// One rank's fate.
#[derive(Clone, Debug)]
pub struct Fate {
    /// Where it ran.
    pub host: String,
    /// Its process there.
    pub pid: Option<i32>,
    /// How it ended, if it has.
    pub end: Option<End>,
    /// How long it ran, in microseconds.
    pub time: u64,
}

impl Fate {
    /// The status that a shell would see.
    pub fn status(&self) -> u8 {
        match &self.end {
            Some(End::Code(code)) => (*code & 0xff) as u8,
            Some(End::Signal(signal)) => (128 + *signal).clamp(0, 255) as u8,
            Some(End::NotStarted(_, code)) => *code,
            Some(End::Lost(_)) => UNREACHABLE,
            None => 0,
        }
    }

    /// Whether it was never started, or lost with its host.
    pub fn never_came(&self) -> bool {
        matches!(self.end, Some(End::NotStarted(..) | End::Lost(_)))
    }
}

/// What became of all.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of every rank, in their order.
    pub fates: Vec<Fate>,
    /// The time was up.
    pub timed_out: bool,
    /// The reader of our output left: the status of what had ended by then.
    closed_pipe: Option<u8>,
    /// The first rank because of which the job was ended, and the status that this gives.
    ended_by: Option<(u32, u8)>,
    /// The first rank that ended badly by itself.
    first_bad: Option<u32>,
    /// Ranks are being ended: what happens to them now is our doing.
    ending: bool,
}

impl Outcome {
    /// Of ranks on these hosts, none of which has begun.
    pub fn new(hosts: &[String]) -> Outcome {
        let fate = |host: &String| Fate { host: host.clone(), pid: None, end: None, time: 0 };
        Outcome { fates: hosts.iter().map(fate).collect(), ..Outcome::default() }
    }

    /// The worst of all; what ended the job goes before what its end did to the others.
    pub fn status(&self) -> u8 {
        if self.timed_out {
            return TIMED_OUT;
        }
        if let Some(status) = self.closed_pipe {
            return status;
        }
        self.ended_by.map_or_else(|| self.worst(), |(_, status)| status)
    }

    /// A rank is the reason to end the job: it called MPI_Abort, left early, was lost or could not be started. Only the
    /// first one counts. A code whose low byte is 0 would pass for success, and becomes 1.
    pub fn end_by_rank(&mut self, rank: u32, code: i32) {
        let lost = self.fates.iter().any(|fate| matches!(fate.end, Some(End::Lost(_))));
        let status = if lost { UNREACHABLE } else { ((code & 0xff) as u8).max(1) };
        self.ended_by.get_or_insert((rank, status));
    }

    /// A rank has ended, so many microseconds after its start.
    pub fn ended(&mut self, rank: u32, end: End, time: u64) {
        let ending = self.ending;
        let Some(fate) = self.fates.get_mut(rank as usize) else { return };
        (fate.end, fate.time) = (Some(end), time);
        if fate.status() != 0 && !ending {
            self.first_bad.get_or_insert(rank);
        }
    }

    /// From now on ranks end because the launcher wants it.
    pub fn is_ending(&mut self) {
        self.ending = true;
    }

    /// The rank that failed first, in a few words; none if there is no such rank, or it is the only one.
    pub fn first_failure(&self) -> Option<String> {
        let rank = self.ended_by.map(|(rank, _)| rank).or(self.first_bad)?;
        let fate = self.fates.get(rank as usize).filter(|_| self.fates.len() > 1)?;
        let how = match fate.end.as_ref()? {
            End::Code(code) => format!("ended with code {code}"),
            End::Signal(signal) => format!("was ended by {}", signals::name(*signal)),
            End::NotStarted(..) => "was not started".to_owned(),
            End::Lost(_) => "was lost".to_owned(),
        };
        Some(format!(
            "first to fail: rank {rank} on {} {how} after {:.3} s",
            fate.host,
            fate.time as f64 / 1e6
        ))
    }

    /// The reader of our output left. What had failed before stays a failure; what this does to ranks is none.
    pub fn closed_pipe(&mut self) {
        let status = self.worst();
        self.closed_pipe.get_or_insert(status);
    }

    /// Whether the reader of our output left.
    pub fn is_pipe_closed(&self) -> bool {
        self.closed_pipe.is_some()
    }

    fn worst(&self) -> u8 {
        self.fates.iter().map(Fate::status).max().unwrap_or(0)
    }

    /// Rows of a table: rank, host, pid, code, signal, seconds. Of many ranks those of one host that ended alike are one row.
    pub fn rows(&self) -> Vec<[String; 6]> {
        let mut groups: Vec<(Vec<usize>, &Fate)> = Vec::new();
        for (rank, fate) in self.fates.iter().enumerate() {
            let alike =
                |(_, other): &&mut (Vec<usize>, &Fate)| other.host == fate.host && other.end == fate.end;
            match groups.iter_mut().rev().take(8).find(alike).filter(|_| self.fates.len() > ROWS) {
                Some((ranks, _)) => ranks.push(rank),
                None => groups.push((vec![rank], fate)),
            }
        }
        let row = |(ranks, fate): (Vec<usize>, &Fate)| {
            let (code, signal) = match &fate.end {
                Some(End::Code(code)) => (code.to_string(), String::new()),
                Some(End::Signal(signal)) => (String::new(), signals::name(*signal)),
                Some(End::NotStarted(..)) => ("not started".to_owned(), String::new()),
                Some(End::Lost(_)) => ("lost".to_owned(), String::new()),
                None => (String::new(), String::new()),
            };
            let pid = fate.pid.filter(|_| ranks.len() == 1).map(|pid| pid.to_string()).unwrap_or_default();
            let longest = ranks.iter().map(|&rank| self.fates[rank].time).max().unwrap_or(0);
            let seconds = format!("{:.3}", longest as f64 / 1e6);
            [ranges(&ranks), fate.host.clone(), pid, code, signal, seconds]
        };
        groups.into_iter().map(row).collect()
    }

    /// One object for each rank, one for the job.
    pub fn objects(&self) -> Vec<Value> {
        let object = |(rank, fate): (usize, &Fate)| {
            let mut object =
                json!({ "type": "exit", "rank": rank, "host": fate.host, "status": fate.status() });
            object["seconds"] = (fate.time as f64 / 1e6).into();
            match &fate.end {
                Some(End::Signal(signal)) => object["signal"] = signals::name(*signal).into(),
                Some(End::Code(code)) => object["code"] = (*code).into(),
                Some(End::NotStarted(why, _) | End::Lost(why)) => object["error"] = why.clone().into(),
                None => {}
            }
            object
        };
        let mut all: Vec<Value> = self.fates.iter().enumerate().map(object).collect();
        all.push(json!({ "type": "job", "status": self.status(), "timed_out": self.timed_out }));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ends: &[End]) -> Outcome {
        let fate = |end: &End| Fate { host: "h".into(), pid: Some(1), end: Some(end.clone()), time: 1500 };
        Outcome { fates: ends.iter().map(fate).collect(), ..Outcome::default() }
    }

    #[test]
    fn the_worst_counts() {
        assert_eq!(outcome(&[End::Code(0), End::Code(0)]).status(), 0);
        assert_eq!(outcome(&[End::Code(3), End::Code(1)]).status(), 3);
        assert_eq!(outcome(&[End::Code(3), End::Signal(9)]).status(), 137);
        assert_eq!(outcome(&[End::NotStarted("x".into(), 127)]).status(), 127);
        assert_eq!(outcome(&[End::Signal(9), End::Lost("x".into())]).status(), 255);
        assert_eq!(Outcome { timed_out: true, ..outcome(&[End::Signal(9)]) }.status(), 124);
    }

    #[test]
    fn the_rank_that_ended_the_job_gives_the_status() {
        let ended = |code: i32, ends: &[End]| {
            let mut outcome = outcome(ends);
            outcome.end_by_rank(1, code);
            outcome.end_by_rank(0, 143);
            outcome.status()
        };
        assert_eq!(ended(7, &[End::Signal(15), End::Code(7)]), 7);
        assert_eq!(ended(139, &[End::Signal(15), End::Signal(11)]), 139);
        assert_eq!(ended(0, &[End::Signal(15), End::Code(0)]), 1, "an end before its time is no success");
        assert_eq!(ended(256, &[End::Signal(15), End::Code(0)]), 1);
        assert_eq!(ended(7, &[End::Lost("x".into()), End::Code(7)]), 255);
    }

    #[test]
    fn a_reader_that_leaves_hides_no_failure() {
        let mut bad = outcome(&[End::Code(0), End::Code(3)]);
        bad.closed_pipe();
        assert_eq!(bad.status(), 3);
        let mut good = outcome(&[End::Code(0)]);
        good.closed_pipe();
        good.fates[0].end = Some(End::Signal(13));
        assert_eq!(good.status(), 0);
    }

    #[test]
    fn every_rank_is_in_the_table_and_in_the_objects() {
        let outcome = outcome(&[End::Code(2), End::Signal(15)]);
        let rows = outcome.rows();
        assert_eq!(rows[0], ["0", "h", "1", "2", "", "0.002"]);
        assert_eq!(rows[1][4], "TERM");
        assert_eq!(outcome.objects().len(), 3);
    }

    #[test]
    fn of_many_ranks_those_that_ended_alike_are_one_row() {
        let mut ends = vec![End::Code(0); 1000];
        ends[7] = End::Signal(11);
        let rows = outcome(&ends).rows();
        assert_eq!((rows.len(), &*rows[0][0], &*rows[1][0]), (2, "0-6,8-999", "7"));
    }

    #[test]
    fn the_first_rank_that_fails_by_itself_is_named() {
        let mut outcome = Outcome::new(&["a", "b"].map(str::to_owned));
        outcome.ended(1, End::Signal(11), 1_500_000);
        outcome.is_ending();
        outcome.ended(0, End::Signal(15), 2_000_000);
        let words = outcome.first_failure().unwrap();
        assert_eq!(words, "first to fail: rank 1 on b was ended by SEGV after 1.500 s");
    }
}
