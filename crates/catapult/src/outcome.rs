//! What became of the ranks, and which exit status that makes. Pure.

use serde_json::{Value, json};
use viaduct_os::signals;

use crate::wire::End;

/// Exit status when the time was up.
pub const TIMED_OUT: u8 = 124;
/// Exit status when a host could not be reached, as of ssh.
pub const UNREACHABLE: u8 = 255;
/// Exit status when a program cannot be found or started, as of shells.
pub const NOT_STARTED: u8 = 127;

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
            Some(End::NotStarted(_)) => NOT_STARTED,
            Some(End::Lost(_)) => UNREACHABLE,
            None => 0,
        }
    }
}

/// What became of all.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of every rank, in their order.
    pub fates: Vec<Fate>,
    /// The time was up.
    pub timed_out: bool,
    /// Whoever read our output left.
    pub closed_pipe: bool,
    /// A rank ended the job with this code (MPI_Abort).
    pub aborted: Option<i32>,
}

impl Outcome {
    /// The worst of all; what ended the job goes before what its end did to the others.
    pub fn status(&self) -> u8 {
        if self.timed_out {
            return TIMED_OUT;
        }
        if self.closed_pipe {
            return 0;
        }
        let lost = self.fates.iter().any(|fate| matches!(fate.end, Some(End::Lost(_))));
        match self.aborted {
            _ if lost => UNREACHABLE,
            Some(code) if code & 0xff != 0 => (code & 0xff) as u8,
            _ => self.fates.iter().map(Fate::status).max().unwrap_or(0),
        }
    }

    /// Rows of a table: rank, host, pid, code, signal, seconds.
    pub fn rows(&self) -> Vec<[String; 6]> {
        let row = |(rank, fate): (usize, &Fate)| {
            let (code, signal) = match &fate.end {
                Some(End::Code(code)) => (code.to_string(), String::new()),
                Some(End::Signal(signal)) => (String::new(), signals::name(*signal)),
                Some(End::NotStarted(_)) => ("not started".to_owned(), String::new()),
                Some(End::Lost(_)) => ("lost".to_owned(), String::new()),
                None => (String::new(), String::new()),
            };
            let pid = fate.pid.map(|pid| pid.to_string()).unwrap_or_default();
            [rank.to_string(), fate.host.clone(), pid, code, signal, format!("{:.3}", fate.time as f64 / 1e6)]
        };
        self.fates.iter().enumerate().map(row).collect()
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
                Some(End::NotStarted(why) | End::Lost(why)) => object["error"] = why.clone().into(),
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
        assert_eq!(outcome(&[End::NotStarted("x".into())]).status(), 127);
        assert_eq!(outcome(&[End::Signal(9), End::Lost("x".into())]).status(), 255);
        assert_eq!(Outcome { timed_out: true, ..outcome(&[End::Signal(9)]) }.status(), 124);
        assert_eq!(Outcome { aborted: Some(7), ..outcome(&[End::Signal(9), End::Code(7)]) }.status(), 7);
    }

    #[test]
    fn every_rank_is_in_the_table_and_in_the_objects() {
        let outcome = outcome(&[End::Code(2), End::Signal(15)]);
        let rows = outcome.rows();
        assert_eq!(rows[0], ["0", "h", "1", "2", "", "0.002"]);
        assert_eq!(rows[1][4], "TERM");
        assert_eq!(outcome.objects().len(), 3);
    }
}
